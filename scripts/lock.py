"""Resolve requirements.in in a fresh environment and write every version that came out to requirements.txt."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Made by `make lock` from requirements.in: every package of the course, exactly. Edit requirements.in instead.
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-q", "-r", str(ROOT / "requirements.in")], check=True)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    # Packages of the accelerator build of torch differ from platform to platform: torch itself asks for its own.
    lines = [line for line in frozen.splitlines() if not line.startswith(("nvidia-", "cuda-", "triton"))]
    lines = [line.split("+")[0] if line.startswith("torch==") else line for line in lines]
    # What is asked for on some systems only keeps its marker: freezing forgets it.
    asked = [line.partition(";") for line in (ROOT / "requirements.in").read_text().splitlines()]
    markers = {name.strip(): f"; {marker.strip()}" for name, _, marker in asked if marker}
    lines = [line + markers.get(line.split("==")[0], "") for line in lines]
    (ROOT / "requirements.txt").write_text(HEAD + "\n".join([*lines, "-e ./", "-e ./lib/nbreferee"]) + "\n")
    print(f"requirements.txt: {len(lines)} packages. Now: make test")


if __name__ == "__main__":
    main()
