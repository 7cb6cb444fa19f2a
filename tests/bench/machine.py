"""What a table of ratios was measured on: the processor, and who multiplies matrices for NumPy and for torch."""

import platform
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info


def processor():
    """The processor's model name, as Linux and Python know it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def blas_of_numpy():
    """Name, version and kernel of the library that NumPy's products run in, and its threads."""
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    loaded = [lib for lib in threadpool_info() if lib["user_api"] == "blas" and "numpy" in lib["filepath"]]
    loaded = loaded or [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    if not loaded:
        return f"{built['name']} {built['version']}"
    lib = loaded[0]
    return f"{lib['internal_api']} {lib['version']} ({lib.get('architecture', 'kernel unknown')})"


def blas_of_torch():
    """The libraries that torch's products run in, and the instructions that its own kernels use."""
    parts = ["MKL"] if torch.backends.mkl.is_available() else []
    parts += ["oneDNN"] if torch.backends.mkldnn.is_available() else []
    return f"{' and '.join(parts) or 'its own'} ({torch.backends.cpu.get_cpu_capability()})"


def describe():
    """What `make bench` prints above its rows and writes beside them."""
    return {
        "processor": processor(),
        "NumPy": f"{np.__version__}, {blas_of_numpy()}",
        "torch": f"{torch.__version__}, {blas_of_torch()}",
        "threads": 1,  # conftest.one_thread
    }
