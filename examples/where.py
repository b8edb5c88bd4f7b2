"""Where the tasks of an example run: on two threads, with `--gpus 2` on so many GPUs, and with `--mpi` in the processes
that `mpiexec` started, each on threads of its own or on the GPUs that it sees."""

import argparse
import threading
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
    memories: dict[str, Any] = {f"gpu{k}": gpu(k, bound=bound) for k in range(given.gpus)}
    chosen: dict[str, Any] = {"trace": given.trace}
    if given.mpi:
        chosen["transport"] = mpi()
    if given.gpus:
        return chosen | {"workers": dict.fromkeys(memories, 2), "memories": memories, "policy": LeastTransfer()}
    if given.mpi:
        return chosen | {"workers": 1, "memories": {"remote": bound}}
    if bound is not None:
        return chosen | {"workers": {"fast": 2}, "memories": {"fast": bound}}
    return chosen | {"workers": 2}


def everywhere(fn: Any) -> FunctionDefinition:
    """A function on arrays that works with NumPy's on CPUs and with torch's on GPUs."""
    return FunctionDefinition(cpu=on_arrays(fn), cuda=on_arrays(fn, library="torch"))


def linalg(array: Any) -> Any:
    """The linear algebra of an array's library."""
    if isinstance(array, np.ndarray):
        return np.linalg
    import torch

    with _FIRST:  # torch loads its solvers when they are first used, and fails where two threads do that at once
        if not _loaded:
            _loaded.append(torch.linalg.cholesky(torch.ones(1, 1, dtype=array.dtype, device=array.device)))
    return torch.linalg


_FIRST, _loaded = threading.Lock(), list[Any]()
