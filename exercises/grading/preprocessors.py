"""Three steps inside nbgrader: execute with care, read a plain verdict, show students no hidden test."""

import os
import re
import tempfile
import time

import psutil
from nbclient.client import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer

BEGIN, END = "BEGIN HIDDEN TESTS", "END HIDDEN TESTS"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PATCHED_EXIT = "get_ipython().ask_exit = lambda: None"


def failure(ename, evalue):
    return new_output("error", ename=ename, evalue=evalue, traceback=[f"{ename}: {evalue}"])


class KernelLost(Exception):
    def __init__(self, index, output):
        super().__init__(index)
        self.index, self.output = index, output


class CarefulExecute(Execute):
    """Run every cell, whatever the others do.

    A cell that runs over its time is interrupted. If it does not heed that, or if it kills the kernel, a fresh kernel
    runs the notebook again without that cell. After `total` seconds what has not run is marked as not run.
    """

    timeout = Integer(60, allow_none=True, help="seconds that a cell may take").tag(config=True)
    total = Integer(300, help="seconds that a notebook may take").tag(config=True)
    losses = Integer(8, help="kernels that a notebook may lose before the rest is given up").tag(config=True)
    output_limit = Integer(1_000_000, help="characters of output that a cell may keep").tag(config=True)

    def preprocess(self, nb, resources, km=None):
        self.condemned, deadline = {}, time.monotonic() + self.total
        while True:
            try:
                return self._run_once(nb, resources, deadline)
            except KernelLost as lost:
                self.condemned[lost.index] = lost.output

    def _run_once(self, nb, resources, deadline):
        NotebookClient.__init__(self, nb, None)
        self.shutdown_kernel, self.iopub_timeout, self.deadline = "immediate", 10, deadline
        self.reset_execution_trackers()
        self._check_assign_resources(resources)
        offspring = []
        with tempfile.TemporaryDirectory(prefix="k") as self.sockets, self.setup_kernel():
            try:
                self.nb.metadata["language_info"] = self.wait_for_reply(self.kc.kernel_info())["content"][
                    "language_info"
                ]
                self.wait_for_reply(self.kc.execute(PATCHED_EXIT, silent=True, store_history=False))
                for index, cell in enumerate(self.nb.cells):
                    self.preprocess_cell(cell, resources, index)
            finally:
                offspring = self._offspring()
        for process in offspring:  # what a student's cell started ends with the notebook
            if process.is_running():
                process.kill()
        return self.nb, self.resources

    def create_kernel_manager(self):
        """Talk to the kernel through files of our own: no port that another kernel could take first."""
        manager = super().create_kernel_manager()
        if os.name == "posix" and len(self.sockets) < 80:
            manager.transport, manager.connection_file = "ipc", os.path.join(self.sockets, "k.json")
        return manager

    def _offspring(self):
        try:
            return psutil.Process(self.km.provisioner.pid).children(recursive=True)
        except (psutil.Error, AttributeError):
            return []

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code":
            return cell, resources
        cell.outputs, cell.execution_count = [], None
        left = self.deadline - time.monotonic()
        if index in self.condemned:
            cell.outputs = [self.condemned[index]]
        elif left <= 0:
            cell.outputs = [failure("TotalTimeout", f"not run: the notebook had used its {self.total} seconds")]
        elif len(self.condemned) >= self.losses:
            cell.outputs = [failure("DeadKernelError", f"not run: the notebook had lost {self.losses} kernels")]
        else:
            self.room = self.output_limit
            self.timeout_func = lambda _: max(1, min(self.timeout or left, left))
            try:
                return super().preprocess_cell(cell, resources, index)
            except DeadKernelError:
                raise KernelLost(index, failure("DeadKernelError", "the kernel died while it ran this cell")) from None
            except CellTimeoutError:
                reason = f"still running after {self.timeout} seconds, and deaf to an interrupt"
                raise KernelLost(index, failure("CellTimeoutError", reason)) from None
        return cell, resources

    def output(self, outs, msg, display_id, cell_index):
        self.room -= len(str(msg["content"]))
        if self.room < 0 and msg["msg_type"] != "error":
            return None
        return super().output(outs, msg, display_id, cell_index)


class PlainVerdict(NbGraderPreprocessor):
    """A test cell passes or fails: it earns all its points unless it raised an error or did not run.

    Left alone, nbgrader gives 0 for a warning on stderr, and takes the first displayed number for the points.
    """

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not is_grade(cell) or is_solution(cell):
            return cell, resources
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if cell.source.strip() and cell.execution_count is None and not errors:
            errors = [failure("NotRun", "this test did not run")]
        others = []
        for output in cell.outputs:
            if output.output_type == "stream":
                output.name = "stdout"
            elif output.output_type == "execute_result":
                output = new_output("display_data", data=output.data, metadata=output.metadata)
            if output.output_type != "error":
                others.append(output)
        cell.outputs = errors + others
        return cell, resources


def hidden_lines(cell):
    inside, lines = False, []
    for line in cell.source.split("\n"):
        if BEGIN in line or END in line:
            inside = BEGIN in line
        elif inside:
            lines.append(line)
    return lines


def titles(nb):
    """Each cell, with the heading of the exercise in which it stands."""
    title = ""
    for cell in nb.cells:
        if cell.cell_type == "markdown" and not cell.metadata.get("student") and not is_solution(cell):
            heading = re.match(r"##\s+(.+)", cell.source)
            title = heading[1].strip() if heading else title
        yield cell, title


def tests_of(nb):
    """The execution counts of the tests."""
    return {c.get("execution_count") for c in nb.cells if c.cell_type == "code" and is_grade(c)} - {None}


def of_student(frame, tests):
    """Is this part of a traceback about a line in one of the student's own cells?"""
    found = re.match(r"\s*Cell In\[(\d+)\]", ANSI.sub("", frame))
    return bool(found) and int(found.group(1)) not in tests


def plain_error(output, tests, redact=lambda text: text):
    """Keep of a traceback the student's own lines and the message."""
    frames = [redact(ANSI.sub("", frame)) for frame in output.traceback if of_student(frame, tests)]
    output.evalue = redact(output.evalue)
    output.traceback = [*frames, f"{output.ename}: {output.evalue}"]


def overview(nb):
    """[{title, score, points, parts}] for the head of the feedback page: an exercise, and its tests as parts."""
    rows = {}
    for cell, title in titles(nb):
        meta = cell.metadata.get("nbgrader", {})
        if not is_grade(cell):
            continue
        exercise, _, name = meta["grade_id"].partition("_")
        row = rows.setdefault(exercise, {"title": re.sub(r" \(\d+ points?\)$", "", title) or exercise, "parts": []})
        label = "written answer" if cell.cell_type == "markdown" else name.removeprefix("test-").replace("-", " ")
        row["parts"].append(
            {
                "id": meta["grade_id"],
                "label": label,
                "score": float(meta.get("score") or 0),
                "points": float(meta.get("points") or 0),
                "comment": bool(meta.get("comment")),
            }
        )
    for row in rows.values():
        row |= {key: sum(part[key] for part in row["parts"]) for key in ("score", "points")}
    return list(rows.values())


class ForStudents(NbGraderPreprocessor):
    """The copy that students receive: no hidden test, no line of one, no active HTML out of a student's notebook."""

    def preprocess(self, nb, resources):
        self.secret = {line.strip() for cell in nb.cells for line in hidden_lines(cell) if len(line.strip()) >= 12}
        self.tests, resources["exercises"] = tests_of(nb), overview(nb)
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "markdown" and (cell.metadata.get("student") or is_solution(cell)):
            cell.source = self._tame(cell.source)
        if cell.cell_type == "code":
            if is_grade(cell):
                kept, inside = [], False
                for line in cell.source.split("\n"):
                    if BEGIN in line:
                        kept.append(line[: len(line) - len(line.lstrip())] + "# (hidden tests ran here)")
                    inside = (inside or BEGIN in line) and END not in line
                    if not inside and END not in line:
                        kept.append(line)
                cell.source = "\n".join(kept)
            cell.outputs = [self._output(output) for output in cell.outputs]
        return cell, resources

    def _tame(self, text):
        return re.sub(r"(?i)(javascript|vbscript|data):", r"\1 :", re.sub(r"<(?=[A-Za-z/!?])", "< ", text))

    def _redact(self, text):
        return "\n".join(
            "[line of a hidden test]" if any(s in line for s in self.secret) else line for line in text.split("\n")
        )

    def _output(self, output):
        if output.output_type == "stream":
            output.text = self._redact(output.text)
        elif output.output_type == "error":
            plain_error(output, self.tests, self._redact)
        elif "data" in output:
            kept = {k: v for k, v in output.data.items() if k in ("text/plain", "image/png", "image/jpeg")}
            if "text/plain" in kept:
                kept["text/plain"] = self._redact(kept["text/plain"])
            output.data = kept
        return output
