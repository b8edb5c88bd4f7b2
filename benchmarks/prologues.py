"""Products of matrices of what a program makes of their elements, beside PyTorch in as many steps as it takes.

    python benchmarks/prologues.py build DIR     where the compiler is, without a GPU
    python benchmarks/prologues.py run DIR       with PyTorch and cuda-core; no compiler

    --size 4096x4096x4096 (M, N, K; may be given again), --prologue dequantised (may be given again)
    --cold: every launch has other arrays, so many that none is in the L2 cache any more, beside a sum that only reads
    the largest one (needs CuPy); for few rows

Plain programs: one band, one sum. Every result is compared with float64 on a poisoned output, twice for its bits; a
time is the median of rounds in shuffled order, each a graph of launches. PyTorch makes the factors (eager steps) and
multiplies them. `run` writes DIR/prologues.json.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES = ((4096, 4096, 4096), (1000, 1304, 2080), (4093, 2053, 1056))
GRAPH_MS, MAX_LAUNCHES = 10.0, 50
TOLERANCE = 4e-3  # of the norm, of results in bf16
GROUP = 32  # rows of a scale

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Prologue:
    """The parameters with their types and shapes, what is summed, and the factors as PyTorch makes them."""

    inputs: Mapping[str, tuple[str, str]]
    summed: str
    factors: Callable[[Any, Arrays], tuple[Any, Any]]

    def text(self, name: str) -> str:
        given = ", ".join(f"{one}: {dtype}[{shape}]" for one, (dtype, shape) in self.inputs.items())
        return f"""kernel {name}({given}, out Y: f32[M, N]) where K % {GROUP} == 0 {{
            par M m, N n {{ Y[m, n] = sum K k {{ {self.summed} }} }}
        }}"""


PROLOGUES = {
    "converted": Prologue(
        {"X": ("bf16", "M, K"), "W": ("i8", "K, N")},
        "X[m, k] * f32(W[k, n])",
        lambda torch, a: (a["X"], a["W"].to(torch.bfloat16)),
    ),
    "dequantised": Prologue(
        {"X": ("bf16", "M, K"), "W": ("i8", "K, N"), "s": ("f32", f"K / {GROUP}, N")},
        f"X[m, k] * bf16(f32(W[k, n]) * s[k / {GROUP}, n])",
        lambda torch, a: (a["X"], (a["W"].float() * a["s"].repeat_interleave(GROUP, 0)).bfloat16()),
    ),
    "turned": Prologue(
        {"X": ("bf16", "M, K"), "W": ("i8", "N, K"), "s": ("f32", f"N, K / {GROUP}")},
        f"X[m, k] * bf16(f32(W[n, k]) * s[n, k / {GROUP}])",
        lambda torch, a: (a["X"], (a["W"].float() * a["s"].repeat_interleave(GROUP, 1)).bfloat16().mT),
    ),
    "rounded": Prologue(
        {"X": ("f32", "M, K"), "W": ("bf16", "N, K")},
        "bf16(X[m, k]) * W[n, k]",
        lambda torch, a: (a["X"].bfloat16(), a["W"].mT),
    ),
    "clamped": Prologue(
        {"X": ("f16", "M, K"), "W": ("f16", "K, N")},
        "max(X[m, k], 0.0) * W[k, n]",
        lambda torch, a: (a["X"].relu(), a["W"]),
    ),
    "weighted": Prologue(
        {"S": ("f32", "M, K"), "top": ("f32", "M"), "V": ("bf16", "K, N")},
        "bf16(exp(S[m, k] - top[m])) * V[k, n]",
        lambda torch, a: ((a["S"] - a["top"][:, None]).exp().bfloat16(), a["V"]),
    ),
    "scaled": Prologue(
        {"X": ("f32", "M, K"), "g": ("f32", "K"), "W": ("f32", "K, N")},
        "X[m, k] * g[k] * W[k, n]",
        lambda torch, a: (a["X"] * a["g"], a["W"]),
    ),
}


def products(options: argparse.Namespace) -> list[tuple[str, dict[str, int], Prologue]]:
    """Names, sizes and what is multiplied."""
    sizes = [tuple(map(int, text.split("x"))) for text in options.size or ()] or SIZES
    return [
        (f"{name}-{m}x{n}x{k}", {"M": m, "N": n, "K": k}, PROLOGUES[name])
        for m, n, k in sizes
        for name in options.prologue or PROLOGUES
    ]


def build(out: Path, options: argparse.Namespace) -> int:
    """An artifact for each product; the exit status."""
    import texpr

    for name, sizes, own in products(options):
        kernel = texpr.parse(own.text(name.split("-")[0]), name).only
        kernel.compile(f"cuda:{options.arch}", sizes=sizes).save(out / name)
    return 0


def run(out: Path, options: argparse.Namespace) -> int:
    """Every product that is built; the exit status, 1 where one is wrong."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    rows: dict[str, dict[str, Any]] = {}
    for name, sizes, own in products(options):
        rows[name] = measure(torch, own, sizes, out / name, options)
        (out / "prologues.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(line_of(name, rows[name]), flush=True)
        torch.cuda.empty_cache()
    return 0 if rows and all(row["right"] for row in rows.values()) else 1


def measure(
    torch: Any, own: Prologue, sizes: dict[str, int], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    from contractions import ROTATED_BYTES
    from gpu_timing import graph_of, interleaved, launches_in
    from memory_measure import first_call
    from memory_problems import error_of
    from product_peers import read_only
    from product_summary import SUM

    from texpr.runtime.load import load

    given = {name: _drawn(torch, dtype, _shape(shape, sizes)) for name, (dtype, shape) in own.inputs.items()}
    kernel = load(folder)
    got = [torch.full((sizes["M"], sizes["N"]), float("nan"), device="cuda") for _ in range(2)]
    kernel(**given, Y=got[0])
    took = first_call(torch, lambda: kernel(**given, Y=got[1]))
    launches = launches_in(GRAPH_MS, took, MAX_LAUNCHES)
    a, b = own.factors(torch, given)
    error = error_of(torch, got[0].double(), a.double() @ b.double(), exact=False)
    same = bool(torch.equal(*got))

    bytes_ = sum(array.numel() * array.element_size() for array in given.values())
    count = -(-ROTATED_BYTES // bytes_) if options.cold else 1
    launches = max(launches, count)
    sets = [given, *({name: array.clone() for name, array in given.items()} for _ in range(count - 1))]
    acts: dict[str, Callable[[int, int], object]] = {
        "texpr": lambda number, stream: kernel(**sets[number % count], Y=got[1]),
        "torch": lambda number, stream: torch.matmul(*own.factors(torch, sets[number % count])),
    }
    if options.cold:
        acts[SUM] = read_only(torch, [max(one.values(), key=lambda array: array.numel()) for one in sets])
    graphs = {who: (graph_of(torch, act, launches), launches) for who, act in acts.items()}
    return {
        "device": torch.cuda.get_device_name(0),
        "error": error,
        "same bits": same,
        "right": error < TOLERANCE and same,
        "ms": interleaved(torch, graphs, options.rounds),
    }


def _shape(text: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(eval(part.replace("/", "//"), {}, dict(sizes)) for part in text.split(", "))  # the table's own words


def _drawn(torch: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype == "i8":
        return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
    types = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    return torch.randn(shape, device="cuda").to(types[dtype])


def line_of(name: str, row: dict[str, Any]) -> str:
    times = {who: statistics.median(found) for who, found in row["ms"].items()}
    said = "" if row["right"] else f"  WRONG: {row['error']:.1e}, same bits: {row['same bits']}"
    ratio = times["torch"] / times["texpr"]
    ours, theirs = (1000 * times[who] for who in ("texpr", "torch"))
    least = "".join(f"   {who} {1000 * times[who]:.1f}" for who in times if who not in ("texpr", "torch"))
    return f"{name:32} {ours:9.1f} us   torch {theirs:9.1f} us   torch's time over ours {ratio:.3f}{least}{said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("prologues"))
    parser.add_argument("--size", action="append")
    parser.add_argument("--prologue", action="append", choices=PROLOGUES)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    return build(options.out, options) if options.action == "build" else run(options.out, options)


if __name__ == "__main__":
    sys.exit(main())
