"""Grade the notebooks of strangers: the verdict is computed in a process that the student's code cannot reach.

A submission passes the gate (`intake`), is judged (`judge`) behind walls (`walls`) by workers (`workers`), and its
marks go to pages (`pages`), the gradebook (`course`) and exports (`export`). Two processes share the work. The
*student* process runs the submitted cells, behind walls, and answers questions about values. The *grading* process
runs the instructor's tests and asks. What passes between them (`rpc`) is described, never executed. nbgrader stays
what makes, releases, marks by hand and keeps the books. The package knows no one course.

From the ground up, and no import runs the other way:

    rpc       codec framing plain plugins torch_values pandas_values links nodes exchange files agent printed
              shell line raised calls arguments proxies trusted_end student
              values as bytes, bytes over a line, a conversation
    walls     sandbox namespaces syscalls supervisor fork_server doctor
              the walls, the process that forks, what works here
    intake    gate notebook answers flags
              what is let in: files, notebooks, answers
    judge     job clock trusted parts student_side grader results reasons words doubts
              what is run, how, what came out
    pages     autograded feedback outline text veil similarity tables
              what people see of a verdict
    workers   process message pool cluster fingerprint
              a grading process, many of them, many machines
    course    run folder files template submission publication rows store entries gradebook late trial probes
              migrate settings report guard validation
              an assignment, and what is kept of it
    export    marks tables worksheet canvas moodle
              what other systems take
    errors    their one base, below all rooms
    cli       the command, above them
"""

import contextlib
import sys


def _import_jsonschema():
    """Import what nbformat needs, in a quarter of the time, before anything else here imports it.

    jsonschema builds thirty-eight parsers of international addresses where the package rfc3987_syntax is installed, as
    it is beside JupyterLab. It takes that package to be optional, and no schema of a notebook asks for such an address.
    Every command and every zygote would wait three seconds for them.
    """
    if "rfc3987_syntax" in sys.modules:
        return
    sys.modules["rfc3987_syntax"] = None
    with contextlib.suppress(ImportError):
        import jsonschema  # noqa: F401
    del sys.modules["rfc3987_syntax"]  # whoever wants it can have it


_import_jsonschema()
