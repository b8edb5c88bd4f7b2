"""Time programs of several launches on a GPU, as they are and with launches that overlap the end of the one before.

    python tests/gpu/trials_overlap.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/trials_overlap.py run OUT                      with PyTorch and cuda-core; no compiler

In the overlapping form every launch but the first waits at its start for the one before (`AfterLaunch`), and every one
but the last lets the next one begin at once (`TriggerNext`). Both forms are compared with float64, then timed in
shuffled rounds, as graphs of calls and as calls on a stream.
"""

import random
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from build_or_run import build_or_run

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

CHAIN = """kernel chain(A: f32[N], Y: f32[N]) {
    new B: f32[N]
    new C: f32[N]
    par N i { B[i] = A[N - 1 - i] + 1.0 }
    par N i { C[i] = 2.0 * B[N - 1 - i] }
    par N i { B[i] = C[N - 1 - i] - 3.0 }
    par N i { Y[i] = B[N - 1 - i] * B[i] }
}"""
SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
CALLS, ROUNDS = 50, 7


def build(out: Path, arch: str) -> None:
    """An artifact of each form for each size."""
    from dataclasses import replace

    import texpr
    from texpr.kernels import Compiled
    from texpr.pipeline import build_mapped
    from texpr.polyhedral.mapped.between import AfterLaunch, TriggerNext
    from texpr.polyhedral.mapped.program import Launch

    for size in SIZES:
        program = texpr.parse(CHAIN).only.compile(f"cuda:{arch}", N=size, stop_after="map").mapping.program
        last = len(program.host) - 1
        host = []
        for number, launch in enumerate(program.host):
            assert isinstance(launch, Launch), "the chain has no loop and no condition"
            trigger, wait = (TriggerNext(),) * (number < last), (AfterLaunch(),) * (number > 0)
            host.append(replace(launch, body=(*trigger, *wait, *launch.body)))
        overlapping = replace(program, host=tuple(host))
        for name, each in (("plain", program), ("overlapping", overlapping)):
            Compiled(build_mapped(each), ()).save(out / f"{name}-{size}")
    print(2 * len(SIZES), "artifacts of", last + 1, "launches for", arch)


def run(out: Path) -> int:
    """Check and time all; 0 when all are right."""
    import torch
    from gpu_timing import graph_of, interleaved

    from texpr.runtime.load import load

    wrong = 0
    print(f"{'elements':>10} {'':12} {'graph, us a call':>18} {'stream, us a call':>18}")
    for size in SIZES:
        kernels = {name: load(out / f"{name}-{size}") for name in ("plain", "overlapping")}
        a, y = torch.rand(size, device="cuda"), torch.empty(size, device="cuda")
        wide = a.double()
        b = 2 * (wide + 1) - 3  # turned round three times: that of the element at the other end
        want = b * b.flip(0)
        for name, kernel in kernels.items():
            for _ in range(CALLS):
                y.fill_(float("nan"))
                kernel(a, y)
                if not bool(torch.allclose(y.double(), want, rtol=1e-5, atol=1e-6)):
                    print(f"{name} of {size}: WRONG")
                    wrong += 1
                    break
        calls = {name: partial(kernel, a, y) for name, kernel in kernels.items()}
        graphs = {name: (graph_of(torch, lambda n, _, c=call: c(), CALLS), CALLS) for name, call in calls.items()}
        found = interleaved(torch, graphs, ROUNDS)
        streams: dict[str, list[float]] = {name: [] for name in kernels}
        for _ in range(ROUNDS):
            for name, call in random.sample(list(calls.items()), len(calls)):
                streams[name].append(of_stream(torch, call))
        for name in kernels:
            graph, stream = (1000 * statistics.median(each[name]) for each in (found, streams))
            print(f"{size:10} {name:12} {graph:18.2f} {stream:18.2f}")
    return 1 if wrong else 0


def of_stream(torch: Any, call: Any) -> float:
    """Milliseconds of a call among others on a stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / CALLS


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
