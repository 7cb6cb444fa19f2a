"""A pytest plugin: nbval's comparison of each cell's stored outputs with those of the execution for the book.

    PYTHONPATH=scripts pytest -p compare_outputs chapters

nbval asks a kernel to execute a cell and listens to what it puts out. Here a recording stands in the kernel's place: it
answers with what the same cell put out when scripts/execution.py executed the notebook. So a notebook is executed once
in a whole run, and what compares, sanitises, obeys tags and reports is nbval's own code. Two checks are added, since
nbval passes over a cell that was never run and over a picture that is gone.
"""

from copy import deepcopy

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

from execution import Executions

ID = "recorded"  # of every request; one is answered before the next is made


def pytest_configure(config):
    if config.option.nbval or config.option.nbval_lax:
        raise pytest.UsageError("compare_outputs stands in for --nbval: leave out one of the two")


def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".ipynb":
        return Notebook.from_parent(parent, path=file_path)


class Recording:
    """What nbval takes for a running kernel: it answers with recorded outputs."""

    def __init__(self, cells):
        self.cells, self.number, self.messages = cells, None, iter(())

    def is_alive(self):
        return True

    def execute_cell_input(self, source, allow_stdin=None):
        cell = self.cells[self.number]
        assert cell.source == source, f"Cell {self.number} of the recording is another cell"
        outputs = [message(output.output_type, deepcopy(output)) for output in cell.outputs]
        self.messages = iter([*outputs, message("status", {"execution_state": "idle"})])
        return ID

    def get_message(self, stream, timeout=None):
        return next(self.messages)

    def await_reply(self, msg_id, timeout=None):
        pass

    def await_idle(self, msg_id, timeout=None):
        pass

    def stop(self):
        pass


def message(kind, content):
    return {"msg_type": kind, "parent_header": {"msg_id": ID}, "content": content}


class Notebook(IPyNbFile):
    """nbval's collector, with a recording for a kernel."""

    def setup(self):
        self.kernel = Recording(Executions(self.config.rootpath).of(self.path))
        self.setup_sanitize_files()

    def collect(self):
        for cell in super().collect():
            yield Cell.from_parent(self, name=cell.name, cell_num=cell.cell_num, cell=cell.cell, options=cell.options)


class Cell(IPyNbCell):
    """nbval's item, which also sees a cell that was never run and an output of another kind."""

    def runtest(self):
        if self.cell.execution_count is None:
            self.raise_cell_error("The stored cell was never run: store its outputs with `make notebooks`")
        self.parent.kernel.number = self.cell_num
        super().runtest()
        if self.options["check"]:
            stored, fresh = kinds(self.cell.outputs), kinds(self.test_outputs)
            if stored != fresh:
                self.raise_cell_error(f"The stored outputs are of the kinds {stored}, the fresh ones of {fresh}")


def kinds(outputs):
    """What each output of a cell is: a stream's name, or the forms in which a value is shown."""
    return [output.get("name") or sorted(output.get("data", [])) for output in coalesce_streams(outputs)]
