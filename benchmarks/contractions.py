"""Products of matrices on a GPU, from plain programs, beside torch: of f32 on its FMA units, of f16, bf16, tf32 (f32
under `#tf32`), f64, i8 and f8e4m3 on its tensor cores. The peers are torch.matmul, without TF32 but for tf32,
torch._int_mm, and torch._scaled_mm, with sums that are as exact as ours, and `fast`.

    python benchmarks/contractions.py build DIR     where the compiler is, without a GPU
    python benchmarks/contractions.py run DIR       with PyTorch and cuda-core; no compiler

    --size 2048x2048x2048 (M, N, K; may be given again), --case nn (nt, tn, tt: which operand is transposed),
    --shape 128x128x8x8x16x2x1x1: tiles of that choice instead of the compiler's own: the tile's sides across and along,
    a thread's share of both, the depth, blocks on a multiprocessor together, products ahead, blocks for a tile;
    --dtype f32 (f16, bf16, f64, tf32, i8, f8e4m3), --result f32: of C, where it is no product of f32 (torch's is
    rounded to the factors' type; of i8 it is i32, of f8e4m3 bf16)

--arch sm_90: without wgmma, by single warps and `mma.sync`, as every target from sm_80 on has it; an H200 runs it, too.

--cold: every launch has other arrays, so many that none is in the L2 cache any more; beside a sum that only reads the
larger factor (needs CuPy).

--way burst (sustained, single, chain; may be given again): other columns. By bursts of 10 ms after a pause; by blocks
of 60 ms behind others of their own, in 5 rounds; one launch alone; and a program of 4 products of square matrices, each
of the one before, whose launches begin early, beside as many calls. Each ratio is the median of rounds, with the least
and the greatest.

--peer quack (triton, ampere; may be given again): QuACK's tuned product and Triton's autotuned one too, where they are
installed; where not, a line says so. ampere: Triton's as it compiles for sm_80, with `mma.sync`, beside `--arch sm_90`.

--wanted: the sizes that are to be as fast as cuBLAS, in all columns, beside all peers, few rows with cold caches, and
what comes of them (`product_summary.py`).

Every product is compared with float64 on a poisoned output. A time is the median of rounds in shuffled order, each a
graph of launches. `run` writes DIR/results.json after each product.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from product_peers import PEERS
from product_summary import LARGE, SKINNY, SMALL, SUM, WAYS

NARROW = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (3000, 3000, 3000), (1000, 1304, 2056))
TOLERANCE = {"f32": 1e-5, "f16": 5e-4, "bf16": 3e-3, "i32": 0.0, "f64": 1e-14}  # of the norm, by the type of the result
CUT = 2e-3  # the same of factors that are cut to tf32
RESULTS = {"i8": "i32", "tf32": "f32", "f8e4m3": "bf16"}  # where it is not the type of the factors
SIZES = ((2048, 2048, 2048), (4096, 4096, 4096), (1000, 1000, 1000), (1023, 1025, 1027))
CASES = ("nn", "nt", "tn", "tt")
BURSTS, BLOCKS, BLOCK_MS, ALONE = 12, 5, 60.0, 20
BATCHED = (64, 512, 512, 512)
GRAPH_MS, MAX_LAUNCHES = 10.0, 50
ROTATED_BYTES = 420 << 20  # several times the L2 cache
TEXT = """kernel matmul(A: {dtype}[{batch}{a}], B: {dtype}[{batch}{b}], C: {result}[{batch}M, N]) {{
    par {loop}M i, N j {{
        C[{at}i, j] = sum K k {{ A[{at}{ik}] * B[{at}{kj}] }}{attr}
    }}
}}"""


@dataclass(frozen=True)
class Product:
    """A product of matrices, of which a batch has several (None: one), with operands transposed or not, of a type, and
    a `result` of one."""

    m: int
    n: int
    k: int
    case: str
    batch: int | None = None
    dtype: str = "f32"
    result: str = "f32"

    @property
    def name(self) -> str:
        types = "" if self.dtype == "f32" else f"-{self.dtype}" + (f"-{self.result}" * (self.result != self.dtype))
        return f"{f'{self.batch}x' if self.batch else ''}{self.m}x{self.n}x{self.k}-{self.case}{types}"

    @property
    def text(self) -> str:
        left, right = self.case
        return TEXT.format(
            dtype="f32" if self.dtype == "tf32" else self.dtype,
            attr=" #tf32" if self.dtype == "tf32" else "",
            result=self.result,
            batch="P, " if self.batch else "",
            loop="P p, " if self.batch else "",
            at="p, " if self.batch else "",
            a="M, K" if left == "n" else "K, M",
            ik="i, k" if left == "n" else "k, i",
            b="K, N" if right == "n" else "N, K",
            kj="k, j" if right == "n" else "j, k",
        )

    @property
    def chains(self) -> bool:
        """Whether the result may be a factor of the next product."""
        square = not self.batch and self.m == self.n == self.k and self.case[0] == "n"
        return square and self.dtype in ("f16", "bf16") and self.dtype == self.result

    @property
    def sizes(self) -> dict[str, int]:
        return {"M": self.m, "N": self.n, "K": self.k, **({"P": self.batch} if self.batch else {})}

    @property
    def operations(self) -> int:
        return 2 * self.m * self.n * self.k * (self.batch or 1)


def products(options: argparse.Namespace) -> Iterator[Product]:
    usual = SIZES if options.dtype == "f32" else NARROW
    result = options.result or RESULTS.get(options.dtype, options.dtype)
    sizes = [tuple(map(int, text.split("x"))) for text in options.size or ()] or usual
    for m, n, k in sizes:
        for case in options.case or CASES:
            if (m, n, k) not in SKINNY or case[0] == "n":
                yield Product(m, n, k, case, None, options.dtype, result)
    if not options.size or options.wanted:
        batch, m, n, k = BATCHED
        yield Product(m, n, k, "nn", batch, options.dtype, result)


def build(out: Path, options: argparse.Namespace) -> int:
    """An artifact for each product; the exit status."""
    from product_chain import chain_text

    import texpr

    for product in products(options):
        kernel = texpr.parse(product.text, product.name).only
        compiled = kernel.compile(f"cuda:{options.arch}", sizes=product.sizes)
        if options.shape:
            candidate = shaped(compiled.mapping.candidate, [int(number) for number in options.shape.split("x")])
            compiled = kernel.compile(f"cuda:{options.arch}", sizes=product.sizes, mapping=candidate)
        compiled.save(out / product.name)
        if product.chains and "chain" in options.way:
            text = chain_text(product.dtype, turned=product.case[1] == "t")
            chain = texpr.parse(text, f"{product.name}-chain").only
            chain.compile(f"cuda:{options.arch}", sizes={"M": product.m}).save(out / f"{product.name}-chain")
    print(f"{len(list(products(options)))} artifacts for {options.arch} in {out}")
    return 0


def shaped(candidate: Any, numbers: list[int]) -> Any:
    """The candidate with another tile."""
    ((name, choice),) = candidate.launches.items()
    high, wide, own_high, own_wide, depth, resident, ahead, parts = numbers
    chosen = replace(
        choice,
        threads=high * wide // (own_high * own_wide),
        tile={choice.across: high, choice.along: wide},
        each={choice.across: own_high, choice.along: own_wide},
        depth=depth,
        resident=resident,
        ahead=ahead,
        parts=parts,
    )
    return replace(candidate, launches={name: chosen})


# ---- running -----------------------------------------------------------------------------------------------------


def run(out: Path, options: argparse.Namespace) -> int:
    """Every product that is built; the exit status, 1 where one is wrong."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    from product_peers import BUILT, peer
    from product_summary import summary

    for name in options.peer:
        if peer(name) is None:
            print(f"{name}: not installed here ({BUILT[name]}); no column of it")
    rows: dict[str, dict[str, Any]] = {}
    for product in products(options):
        if not (out / product.name).exists():
            print(f"{product.name}: not built")
            continue
        found = measure(torch, product, out, options)
        rows[product.name] = {"device": torch.cuda.get_device_name(0), **found}
        (out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(line_of(product, rows[product.name]), flush=True)
    for line in summary(rows):
        print(line)
    return 0 if rows and all(row["right"] for row in rows.values()) else 1


def measure(torch: Any, product: Product, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    from gpu_timing import bursts, graph_of, interleaved, launches_in, sustained
    from memory_measure import first_call
    from memory_problems import error_of
    from product_chain import chained
    from product_peers import peers_of, read_only, runs, torch_type

    from texpr.runtime.load import load

    kernel, batch = load(out / product.name), (product.batch,) if product.batch else ()
    left, right = product.case
    shapes = {
        "A": (product.m, product.k) if left == "n" else (product.k, product.m),
        "B": (product.k, product.n) if right == "n" else (product.n, product.k),
    }
    dtype, out_type = (torch_type(torch, name) for name in (product.dtype, product.result))
    given = {name: drawn(torch, (*batch, *shape), dtype) for name, shape in shapes.items()}
    poison = float("nan") if out_type.is_floating_point else -77
    result = torch.full((*batch, product.m, product.n), poison, device="cuda", dtype=out_type)
    a, b = sides_of(given, product.case)
    wanted = a.double() @ b.double()
    kernel(**given, C=result)
    again = torch.full_like(result, poison)
    took = first_call(torch, lambda: kernel(**given, C=again))
    own_peers = peers_of(torch, product, a, b, options.peer)
    peers = {name: act for name, act in own_peers.items() if runs(torch, act)}
    found = {"texpr": result, **{name: act() for name, act in peers.items()}}
    errors = {name: error_of(torch, got.double(), wanted, exact=False) for name, got in found.items()}
    row: dict[str, Any] = {"error": errors, "same bits": bool(torch.equal(result, again))}
    limit = CUT if product.dtype == "tf32" else TOLERANCE[product.result]
    row["right"] = errors["texpr"] <= limit and row["same bits"]
    del wanted, found
    launches = launches_in(GRAPH_MS, took, MAX_LAUNCHES)
    bytes_ = sum(array.numel() * array.element_size() for array in given.values())
    cold = options.cold or (options.wanted and (product.m, product.n, product.k) in SKINNY)
    count = -(-ROTATED_BYTES // bytes_) if cold else 1
    launches = max(launches, count)
    sets = [given, *({name: array.clone() for name, array in given.items()} for _ in range(count - 1))]
    others = [peers_of(torch, product, *sides_of(own, product.case), options.peer) for own in sets]
    acts: dict[str, Callable[[int, int], object]] = {
        "texpr": lambda n, stream: kernel(**sets[n % count], C=result),
        **{name: lambda n, stream, name=name: others[n % count][name]() for name in peers},
    }
    if cold:
        acts[SUM] = read_only(torch, [max(own.values(), key=lambda array: array.numel()) for own in sets])
    graphs = {name: (graph_of(torch, act, launches), launches) for name, act in acts.items()}
    row["ms"] = interleaved(torch, graphs, options.rounds)
    if "burst" in options.way:
        row["burst ms"] = bursts(torch, graphs, BURSTS)
    if "sustained" in options.way:
        row["sustained ms"] = sustained(torch, graphs, BLOCKS, BLOCK_MS)
    if "single" in options.way:
        alone = {name: (graph_of(torch, act, 1), 1) for name, act in acts.items()}
        row["single ms"] = bursts(torch, alone, ALONE)
    if "chain" in options.way and product.chains:
        folder, turned = out / f"{product.name}-chain", product.case[1] == "t"
        row["chain ms"] = chained(torch, folder, given, turned=turned, rounds=options.rounds)
    return row


def sides_of(given: dict[str, Any], case: str) -> tuple[Any, Any]:
    """Both factors as they are multiplied."""
    left, right = (own if letter == "n" else own.mT for own, letter in zip(given.values(), case, strict=True))
    return left, right


def drawn(torch: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Random numbers, of integers all that there are."""
    if not dtype.is_floating_point:
        return torch.randint(-128, 128, shape, device="cuda", dtype=dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def line_of(product: Product, row: dict[str, Any]) -> str:
    times = {name: statistics.median(found) for name, found in row["ms"].items()}
    rate = {name: product.operations / took / 1e9 for name, took in times.items()}
    beside = "".join(
        f"   {name} {rate[name]:6.1f}   of {name} {rate['texpr'] / rate[name]:.3f}" for name in rate if name != "texpr"
    )
    beside += "".join(_column(way, row[f"{way} ms"]) for way in WAYS if f"{way} ms" in row)
    said = "" if row["right"] else f"  WRONG: {row['error']['texpr']:.1e}, same bits: {row['same bits']}"
    return f"{product.name:32} {1000 * times['texpr']:9.1f} us {rate['texpr']:6.1f} TFLOP/s{beside}{said}"


def _column(way: str, found: dict[str, list[float]]) -> str:
    """The ratio to each peer, with what it was in the worst and the best round."""
    from gpu_timing import ratio

    peers = (name for name in found if name != "texpr")
    told = {name: ratio(found["texpr"], found[name]) for name in peers}
    return "".join(f"   {way} of {name} {mid:.3f} [{low:.3f}, {high:.3f}]" for name, (mid, low, high) in told.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("contractions"))
    parser.add_argument("--size", action="append")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--shape")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16", "tf32", "i8", "f8e4m3", "f64"), default="f32")
    parser.add_argument("--result", choices=TOLERANCE)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--way", action="append", choices=WAYS, default=[])
    parser.add_argument("--peer", action="append", choices=PEERS, default=[])
    parser.add_argument("--wanted", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    if options.wanted:
        options.size = options.size or ["x".join(map(str, size)) for size in (*LARGE, *SMALL, *SKINNY)]
        options.way, options.peer = options.way or list(WAYS), options.peer or ["quack", "triton"]
    return build(options.out, options) if options.action == "build" else run(options.out, options)


if __name__ == "__main__":
    sys.exit(main())
