"""What runs inside the throwaway environment of `plain`: nbgrader itself, and the questions put to what it leaves.

Run as a script by `plain`, never imported by tests: ``inside.py grade SECONDS`` and ``inside.py probe STUDENT``.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

COURSE, RESULT, PORT = Path("/course"), Path("/result"), 47011


def _nbgrader(*arguments, seconds, log):
    """Run a command of nbgrader; its exit status, or None if its time was over."""
    command = [sys.executable, "-P", "-m", "nbgrader", *arguments]
    with open(RESULT / log, "wb") as file:
        process = subprocess.Popen(command, cwd=COURSE, stdout=file, stderr=file, stdin=-3, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None


def _listen():
    """Take note of whoever connects, as a service on this machine would."""

    def serve(line):
        while True:
            peer, _ = line.accept()
            with open(RESULT / "network", "a") as file:
                file.write("x")
            peer.close()

    inet, unix = socket.socket(), socket.socket(socket.AF_UNIX)
    inet.bind(("127.0.0.1", PORT))
    unix.bind(f"\0hostile-{PORT}")
    for line in (inet, unix):
        line.listen()
        threading.Thread(target=serve, args=(line,), daemon=True).start()


def _processes():
    own = {1, os.getpid(), os.getppid()}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if int(pid) not in own and line.strip():
            found.append(line[:80])
    return found


def grade(seconds):
    _listen()
    start = time.monotonic()
    status = _nbgrader("autograde", "small", seconds=seconds, log="autograde.log")
    took = time.monotonic() - start
    time.sleep(0.3)
    report = {"status": status, "seconds": round(took, 1), "left": _processes()}
    (RESULT / "grade.json").write_text(json.dumps(report))


def _marks(gradebook, student):
    from nbgrader.api import MissingEntry

    try:
        notebook = gradebook.find_submission_notebook("small", "small", student)
    except (MissingEntry, UnicodeEncodeError):  # an id that no database takes
        return None
    return {
        grade.name: None if grade.auto_score is None and grade.manual_score is None else float(grade.score)
        for grade in notebook.grades
    }


def probe(student):
    from nbgrader.api import Gradebook

    report = {"marks": {}, "export": ""}
    try:
        with Gradebook("sqlite:////course/gradebook.db", "") as gradebook:
            for name in ("abel", "zoe", student):
                report["marks"][name] = _marks(gradebook, name)
            tests = [cell.source for cell in gradebook.find_notebook("small", "small").source_cells]
            report["tests_intact"] = any("kestrel" in (text or "") for text in tests)
    except Exception as error:
        report["gradebook"] = f"{type(error).__name__}: {error}"[:200]
    folder = COURSE / "autograded" / student / "small"
    outputs, size = [], 0
    for path in folder.glob("*.ipynb"):
        size += path.stat().st_size
        try:
            tree = json.loads(path.read_text("utf-8", "replace"))
        except ValueError:
            continue
        for cell in tree["cells"]:
            outputs += [json.dumps(output) for output in cell.get("outputs", ())]
    text = "\n".join(outputs)
    report["loot"] = (
        [part for part in re.findall(r"LOOT(?:(?!LOOT).){0,200000}", text, re.S)] if len(text) < 5e7 else []
    )
    report["size"] = size
    if folder.exists() and os.environ["HOSTILE_FEEDBACK"]:
        _nbgrader("generate_feedback", "small", "--student", student, seconds=60, log="feedback.log")
        pages = list((COURSE / "feedback" / student).rglob("*.html"))
        report["feedback"] = "\n".join(page.read_text("utf-8", "replace") for page in pages)[:30_000_000]
    if not re.fullmatch(r"[\w.-]+", student):
        _nbgrader("export", seconds=60, log="export.log")
        path = COURSE / "grades.csv"
        report["export"] = path.read_text("utf-8", "replace") if path.exists() else ""
    (RESULT / "probe.json").write_text(json.dumps(report))


if __name__ == "__main__":
    if sys.argv[1] == "grade":
        grade(float(sys.argv[2]))
    else:
        probe(os.environ["HOSTILE_STUDENT"])
