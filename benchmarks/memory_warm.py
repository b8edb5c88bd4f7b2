"""What torch.compile makes of the memory-bound peers, made by several processes at once, so that `run` finds it kept.

Inductor keeps its kernels in a folder. Compiling takes seconds for a kernel, on one core of many. Which variant of a
kernel is the fastest it finds out by measuring: that is forgotten here, where other processes compute meanwhile, and
found again by `run`.
"""

import multiprocessing
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from memory_measure import TorchDraws, peers_of
from memory_problems import PROBLEMS, arrays_of

Named = tuple[tuple[str, tuple[int, int], str], Path]
"""A case, by the name of its problem, and its artifact."""


def warm(cases: Iterable[Named], processes: int, seconds: float) -> int:
    """Compiles the peers of all cases that are begun in time, into the folder of TORCHINDUCTOR_CACHE_DIR; the exit
    status."""
    end, found = time.time() + seconds, list(cases)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        said = list(pool.imap_unordered(partial(_compile, end), found, chunksize=1))
    for measured in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        measured.unlink()
    wrong = [text for text in said if text]
    print("\n".join([*wrong, f"torch.compile: {len(said) - len(wrong)} of {len(found)} peers compiled"]))
    return 0


def _compile(end: float, case: Named) -> str:
    """What is wrong with the peer of one case; empty where it is compiled, which a call of it does."""
    (name, size, dtype), artifact = case
    if time.time() > end:
        return f"{artifact.name}: no time left"
    import torch

    from texpr.runtime.load import read_artifact

    (problem,) = (each for each in PROBLEMS if each.name == name)
    try:
        torch.cuda.empty_cache()
        manifest, _ = read_artifact(artifact)
        sizes = {key: value for key, value in manifest.sizes.items() if value is not None}
        arrays = arrays_of(problem, manifest.parameters, sizes, TorchDraws(torch))
        (output,) = (p.name for p in manifest.parameters if p.writes)
        inputs = [p.name for p in manifest.parameters if p.mode != "write"]
        for peer, call, _ in peers_of(torch, (problem, size, dtype), inputs, output, compiles=True):
            if peer == "torch.compile":
                call(arrays)
                torch.cuda.synchronize()
    except Exception as why:  # a peer's own errors, of any class: `run` says them again
        return f"{artifact.name}: {type(why).__name__}: {str(why)[:200]}"
    return ""
