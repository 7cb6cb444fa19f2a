"""Kernels that begin with the slow imports already made, which are two of the six seconds that most pages take.

A process that has made them forks a kernel for each notebook. Names, random numbers and figures begin afresh. A page
that forgets an import still fails, since its modules are loaded and not named.
"""

import gc
import multiprocessing
import os
import signal
import sys
import uuid
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner
from nbval.kernel import NbvalKernelspecManager

# Matplotlib asks the environment for its backend when it is imported; the kernel's own setting would come too late.
# The backend itself is not imported before there is a kernel, for it looks for one when it is.
INLINE = "module://matplotlib_inline.backend_inline"
SLOW = ["ipykernel.kernelapp", "IPython.core.completer", "matplotlib.pyplot", "scipy.special", "torch"]

server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(SLOW)


def _kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be what `python -m ipykernel_launcher arguments` is in this folder."""
    from ipykernel.kernelapp import IPKernelApp

    gc.freeze()  # or a collection in the middle of a measurement would walk through all that is loaded
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment, MPLBACKEND=INLINE)
    os.chdir(folder)
    here = str(Path(__file__).parent)
    sys.path[:] = [place for place in sys.path if place not in ("", here)]
    IPKernelApp.launch_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])  # with which it ends


class _Process(server.Process):
    """A forked kernel with those handles of `subprocess.Popen` that a provisioner takes."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, number: int) -> None:
        if self.exitcode is None:
            os.kill(self.pid, number)


class _Provisioner(LocalProvisioner):
    async def launch_kernel(self, cmd, cwd, env, **_):
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        os.environ["MPLBACKEND"] = INLINE  # the server has the environment of the process that starts it
        self.process = _Process(target=_kernel, args=(arguments, cwd, env))
        self.process.start()
        self.pid = self.pgid = self.process.pid  # once it runs it leads a group of its own
        return self.connection_info


class ThisPython(AsyncKernelManager):
    """A new kernel of the interpreter that runs this script, whatever kernels the user has installed as python3."""

    def __init__(self, **options):
        super().__init__(kernel_spec_manager=NbvalKernelspecManager(), **options)


class WarmKernel(ThisPython):
    """Such a kernel, forked."""

    def __init__(self, **options):
        super().__init__(kernel_id=str(uuid.uuid4()), **options)
        self.provisioner = _Provisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
