"""Where the tasks of an example run: on two threads, with `--gpus 2` on so many GPUs, and with `--mpi` in the processes
that `mpiexec` started."""

import argparse
from typing import Any

import numpy as np

from texpr.tasks import FunctionDefinition, LeastTransfer, gpu, mpi, on_arrays


def options(bound: int | None = None) -> dict[str, Any]:
    """What an engine is made with; each memory but home holds `bound` bytes of blocks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--trace")
    given = parser.parse_args()
    if given.mpi:
        return {"workers": 1, "memories": {"remote": bound}, "transport": mpi(), "trace": given.trace}
    if given.gpus:
        memories: dict[str, Any] = {f"gpu{k}": gpu(k, bound=bound) for k in range(given.gpus)}
        policy = LeastTransfer()
        return {"workers": dict.fromkeys(memories, 2), "memories": memories, "policy": policy, "trace": given.trace}
    if bound is not None:
        return {"workers": {"fast": 2}, "memories": {"fast": bound}, "trace": given.trace}
    return {"workers": 2, "trace": given.trace}


def everywhere(fn: Any) -> FunctionDefinition:
    """A function on arrays that works with NumPy's on CPUs and with torch's on GPUs."""
    return FunctionDefinition(cpu=on_arrays(fn), cuda=on_arrays(fn, library="torch"))


def linalg(array: Any) -> Any:
    """The linear algebra of an array's library."""
    if isinstance(array, np.ndarray):
        return np.linalg
    import torch

    return torch.linalg
