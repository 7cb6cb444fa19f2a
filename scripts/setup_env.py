"""Make .venv and install requirements.txt into it; what goes wrong is said in one line.

Written for any Python 3, so that an old one can still say that it is too old. `.venv/.installing` marks a set-up in
progress: one that was interrupted leaves the mark behind, and the next run then starts from an empty .venv.
`.venv/.ready` is written last, so make takes nothing for finished that is not.
"""

# ruff: noqa: UP031 (no f-strings: an old Python must get as far as its message)
import glob
import os
import re
import shutil
import subprocess
import sys

NEEDED = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
MARK = os.path.join(VENV, ".installing")
READY = os.path.join(VENV, ".ready")
LOG = os.path.join(ROOT, "_build", "setup.log")

# With this PyTorch: GB to download and GB that .venv then takes, summed over the wheels of requirements.txt for Linux
# on x86_64 and Python 3.11. Small: PyTorch's build for the CPU; large: the one for accelerators, Linux's default.
TORCH = "2.13.0"
SMALL = (0.8, 2.7)
LARGE = (3.3, 6.7)


def stop(line):
    sys.stderr.write(line + "\n")
    sys.exit(1)


def touch(path, text=""):
    with open(path, "w") as file:
        file.write(text)


def check_python():
    if sys.version_info < NEEDED:
        newer = [name for name in ("python3.14", "python3.13", "python3.12", "python3.11") if runs(name)]
        cure = (
            "run again with: make PYTHON=%s <target>" % newer[-1]
            if newer
            else "install one, then: make PYTHON=python3.11 <target>"
        )
        stop(
            "Python %d.%d is too old, the book needs 3.11 or newer: %s"
            % (sys.version_info[0], sys.version_info[1], cure)
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop(
            "This Python has no venv module: install it (Debian, Ubuntu: apt-get install python%d.%d-venv), "
            "then run the same command again" % sys.version_info[:2]
        )


def runs(name):
    found = shutil.which(name)
    if not found:
        return False
    with open(os.devnull, "w") as null:
        return subprocess.call([found, "-c", ""], stdout=null, stderr=null) == 0


def run(what, command, log):
    log.write("$ %s\n" % " ".join(command))
    log.flush()
    if subprocess.call(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT) != 0:
        log.flush()
        with open(LOG) as file:
            lines = [line.strip() for line in file if line.strip()]
        errors = [line for line in lines if line.upper().startswith("ERROR")] or lines[-1:]
        stop(
            "%s failed (%s): see _build/setup.log, check network and disk space, then run the same command again"
            % (what, errors[-1][:160])
        )


def sizes(python):
    """SMALL or LARGE, by the build of PyTorch that pip would take; None if that cannot be told."""
    if not sys.platform.startswith("linux"):
        return SMALL
    ask = [python, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check", "--no-input"]
    try:
        with open(os.devnull, "w") as null:
            told = subprocess.check_output([*ask, "--retries", "0", "--timeout", "10"], stderr=null, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    builds = re.findall(r"(?<=[ ,])%s(?:\+\w+)?(?=,|$)" % re.escape(TORCH), told.decode(), re.M)  # the one taken first
    return (SMALL if builds[0].endswith("+cpu") else LARGE) if builds else None


def announce(python):
    """Say what the installation takes before it begins."""
    if glob.glob(os.path.join(VENV, "lib", "python*", "site-packages", "torch-%s*" % TORCH)):
        return  # what is large is there already
    found = sizes(python)
    text = "%g GB to download, %g GB of disk; a minute or two once it is here"
    if found == LARGE:
        print(text % LARGE)
        cure = "This is PyTorch's build for accelerators. With the one for the CPU it is %g GB and %g GB: "
        print(cure % SMALL + 'Ctrl-C, then see "The small PyTorch" in README.md')
    elif found == SMALL:
        print(text % SMALL)
    else:
        print(text % SMALL + "; with PyTorch's build for accelerators %g GB and %g GB (see README.md)" % LARGE)
    sys.stdout.flush()


def compile_all(python, log):
    """Compile what was installed, on all cores; pip would on one. Some packages carry files that none can compile."""
    for folder in glob.glob(os.path.join(VENV, "lib", "python*", "site-packages")):
        subprocess.call([python, "-m", "compileall", "-q", "-j", "0", folder], stdout=log, stderr=subprocess.STDOUT)


def main():
    check_python()
    os.makedirs(os.path.dirname(LOG), exist_ok=True)
    python = os.path.join(VENV, "bin", "python")
    if os.path.exists(MARK) or (os.path.isdir(VENV) and not runs(python)):
        print("Removing an unfinished .venv")
        shutil.rmtree(VENV)
    if os.path.exists(READY):
        os.remove(READY)
    print("Setting up .venv from requirements.txt (log: _build/setup.log)", flush=True)
    os.makedirs(VENV, exist_ok=True)
    touch(MARK)
    with open(LOG, "w") as log:
        if not os.path.exists(python):
            run("Making .venv", [sys.executable, "-m", "venv", VENV], log)
        announce(python)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        run("Installing requirements.txt", [*pip, "--no-compile", "-r", "requirements.txt"], log)
        compile_all(python, log)
    os.remove(MARK)
    touch(READY, "%d.%d.%d\n" % sys.version_info[:3])


if __name__ == "__main__":
    main()
