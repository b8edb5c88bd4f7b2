"""A program of several products of square matrices, each of the one before, beside as many calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = """kernel chain(A: {dtype}[M, M], B: {dtype}[M, M], C: {dtype}[M, M]) {{
    new D: {dtype}[M, M]; new E: {dtype}[M, M]; new F: {dtype}[M, M]
    par M i, M j {{ D[i, j] = sum M k {{ A[i, k] * {b} }} }}
    par M i, M j {{ E[i, j] = sum M k {{ D[i, k] * {b} }} }}
    par M i, M j {{ F[i, j] = sum M k {{ E[i, k] * {b} }} }}
    par M i, M j {{ C[i, j] = sum M k {{ F[i, k] * {b} }} }}
}}"""
CHAINED, LAUNCHES, FAR = 4, 12, 1e-2  # products, launches of a graph, and how far from torch's


def chain_text(dtype: str, *, turned: bool) -> str:
    """The program; of a second factor that lies `turned`."""
    return TEXT.format(dtype=dtype, b="B[j, k]" if turned else "B[k, j]")


def chained(torch: Any, folder: Path, given: Any, *, turned: bool, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a product: in one program, and by as many calls."""
    from gpu_timing import graph_of, interleaved

    from texpr.runtime.load import load

    chain, size = load(folder), given["A"].shape[-1]
    arrays = {"A": given["A"], "B": given["B"] * size**-0.5}  # neither grows nor vanishes
    b = arrays["B"].mT if turned else arrays["B"]
    held = [torch.empty_like(arrays["A"]) for _ in range(CHAINED)]
    result = torch.full_like(arrays["A"], float("nan"))

    def by_calls(number: int, stream: int) -> None:
        for source, target in zip((arrays["A"], *held), held, strict=False):
            torch.matmul(source, b, out=target)

    chain(**arrays, C=result)
    by_calls(0, 0)
    apart = (result.double() - held[-1].double()).norm() / held[-1].double().norm()
    if not apart < FAR:
        raise AssertionError(f"{folder}: the chain is {float(apart):.1e} from torch's")
    acts: dict[str, Callable[[int, int], object]] = {
        "texpr": lambda n, stream: chain(**arrays, C=result),
        "torch": by_calls,
    }
    graphs = {name: (graph_of(torch, act, LAUNCHES), LAUNCHES * CHAINED) for name, act in acts.items()}
    return interleaved(torch, graphs, rounds)
