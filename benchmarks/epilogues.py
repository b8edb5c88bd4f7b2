"""Products of matrices of bf16 with what a program does with their sums, beside PyTorch in as many steps as it takes,
and beside the product alone.

    python benchmarks/epilogues.py build DIR     where the compiler is, without a GPU
    python benchmarks/epilogues.py run DIR       with PyTorch and cuda-core; no compiler

    --size 4096x4096x4096 (M, N, K; may be given again), --epilogue bias_gelu (may be given again),
    --case nt (nn, tn, tt)

Every result is compared with float64 on a poisoned output. A time is the median of rounds in shuffled order, each a
graph of launches; the second columns are of such graphs replayed once after a pause each. `run` writes
DIR/epilogues.json after each product.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (4096, 14336, 4096))
CASES = {"nn": ("M, K", "K, N"), "nt": ("M, K", "N, K"), "tn": ("K, M", "K, N"), "tt": ("K, M", "N, K")}
GRAPH_MS, MAX_LAUNCHES, BURSTS = 10.0, 50, 12
TOLERANCE = 4e-3  # of the norm
TEXT = """kernel product(A: bf16[{a}], B: bf16[{b}], {more}C: bf16[M, N]) {{
    {before}
    par M i, N j {{
        let s = sum K k {{ A[{at_a}] * B[{at_b}] }}
        {body}
    }}
}}"""

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Epilogue:
    """What is done with the sum `s`: `more` parameters, the statements of the `body`; PyTorch's steps from a product of
    two matrices, and what is expected of the exact sums. `rows` is what S begins with, where the body makes an S[i]
    of each row, and what is expected of that."""

    more: Mapping[str, str]
    body: str
    steps: Callable[[Any, Any, Any, Arrays, Any], object]
    expected: Callable[[Any, Any, Arrays], Any]
    rows: tuple[str, Callable[[Any], Any]] | None = None


def _matmul(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.matmul(a, b, out=out)


def _gelu(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.ops.aten.gelu.out(torch.addmm(given["b"], a, b, out=out), out=out)


def _relu(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.relu_(torch.addmm(given["b"], a, b, out=out))


def _silu(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.ops.aten.silu.out(torch.matmul(a, b, out=out), out=out)


def _residual(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.matmul(a, b, out=out).add_(given["R"])


def _scales(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.matmul(a, b, out=out).mul_(given["u"][:, None]).mul_(given["v"])


def _squares(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.linalg.vector_norm(torch.matmul(a, b, out=out), dim=1, dtype=torch.float32)


def _greatest(torch: Any, a: Any, b: Any, given: Arrays, out: Any) -> object:
    return torch.amax(torch.matmul(a, b, out=out), dim=1)


EPILOGUES = {
    "plain": Epilogue({}, "C[i, j] = s", _matmul, lambda torch, s, given: s),
    "bias_relu": Epilogue(
        {"b": "N"}, "C[i, j] = max(b[j] + s, 0.0)", _relu, lambda torch, s, given: torch.relu(s + given["b"].double())
    ),
    "bias_gelu": Epilogue(
        {"b": "N"},
        "C[i, j] = gelu(f32(b[j]) + s)",
        _gelu,
        lambda torch, s, given: torch.nn.functional.gelu(s + given["b"].double()),
    ),
    "silu": Epilogue({}, "C[i, j] = silu(s)", _silu, lambda torch, s, given: torch.nn.functional.silu(s)),
    "residual": Epilogue(
        {"R": "M, N"}, "C[i, j] = R[i, j] + s", _residual, lambda torch, s, given: s + given["R"].double()
    ),
    "scales": Epilogue(
        {"u": "M", "v": "N"},
        "C[i, j] = u[i] * v[j] * s",
        _scales,
        lambda torch, s, given: s * given["u"].double()[:, None] * given["v"].double(),
    ),
    "row_squares": Epilogue(
        {}, "C[i, j] = s; S[i] += s * s", _squares, lambda torch, s, given: s, ("0.0", lambda s: (s * s).sum(1))
    ),
    "row_greatest": Epilogue(
        {}, "C[i, j] = s; S[i] max= s", _greatest, lambda torch, s, given: s, ("-inf", lambda s: s.amax(1))
    ),
}


@dataclass(frozen=True)
class Product:
    m: int
    n: int
    k: int
    case: str
    epilogue: str

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k}-{self.case}-{self.epilogue}"

    @property
    def text(self) -> str:
        a, b = CASES[self.case]
        own = EPILOGUES[self.epilogue]
        more = "".join(f"{name}: bf16[{shape}], " for name, shape in own.more.items())
        at = {"M, K": "i, k", "K, M": "k, i", "K, N": "k, j", "N, K": "j, k"}
        before = f"par M i {{ S[i] = {own.rows[0]} }}" if own.rows else ""
        more += "S: f32[M], " if own.rows else ""
        return TEXT.format(a=a, b=b, at_a=at[a], at_b=at[b], more=more, before=before, body=own.body)

    @property
    def sizes(self) -> dict[str, int]:
        return {"M": self.m, "N": self.n, "K": self.k}

    def shape(self, letters: str) -> tuple[int, ...]:
        return tuple(self.sizes[letter] for letter in letters.split(", "))


def products(options: argparse.Namespace) -> Iterator[tuple[Product, ...]]:
    """Those of one size and case, the plain one first."""
    for m, n, k in [tuple(map(int, text.split("x"))) for text in options.size or ()] or SIZES:
        for case in options.case or ("nt",):
            names = dict.fromkeys(("plain", *(options.epilogue or EPILOGUES)))
            yield tuple(Product(m, n, k, case, name) for name in names)


def build(out: Path, options: argparse.Namespace) -> int:
    """An artifact for each product; the exit status."""
    import texpr

    for together in products(options):
        for product in together:
            kernel = texpr.parse(product.text, product.name).only
            kernel.compile(f"cuda:{options.arch}", sizes=product.sizes).save(out / product.name)
    return 0


def run(out: Path, options: argparse.Namespace) -> int:
    """Every product that is built; the exit status, 1 where one is wrong."""
    import torch

    rows: dict[str, dict[str, Any]] = {}
    for together in products(options):
        rows |= measure(torch, together, out, options.rounds)
        (out / "epilogues.json").write_text(json.dumps(rows, indent=1) + "\n")
        for product in together:
            print(line_of(product, rows[product.name], rows[together[0].name]), flush=True)
    return 0 if rows and all(row["right"] for row in rows.values()) else 1


def measure(torch: Any, together: tuple[Product, ...], out: Path, rounds: int) -> dict[str, dict[str, Any]]:
    from gpu_timing import bursts, graph_of, interleaved, launches_in
    from memory_measure import first_call
    from memory_problems import error_of

    from texpr.runtime.load import load

    rows: dict[str, dict[str, Any]] = {}
    graphs: dict[str, Any] = {}
    kept: list[Any] = []  # what graphs read and write: a capture gives memory that is free back to the driver
    one = together[0]
    a_shape, b_shape = (one.shape(letters) for letters in CASES[one.case])
    drawn = {"A": a_shape, "B": b_shape, "R": (one.m, one.n), "b": (one.n,), "u": (one.m,), "v": (one.n,)}
    given = {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for name, shape in drawn.items()}
    given["A"] *= one.k**-0.5
    a = given["A"] if one.case[0] == "n" else given["A"].mT
    b = given["B"] if one.case[1] == "n" else given["B"].mT
    sums = a.double() @ b.double()
    launches = 0
    for product in together:
        own = EPILOGUES[product.epilogue]
        kernel = load(out / product.name)
        arrays = {name: given[name] for name in ("A", "B", *own.more)}
        arrays |= {"S": torch.full((one.m,), float("nan"), device="cuda")} if own.rows else {}
        got = [torch.full((one.m, one.n), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        kernel(**arrays, C=got[0])
        took = first_call(torch, lambda kernel=kernel, arrays=arrays, got=got: kernel(**arrays, C=got[1]))
        kept += kernel, got
        launches = launches or launches_in(GRAPH_MS, took, MAX_LAUNCHES)
        wanted = own.expected(torch, sums, given)
        peer = torch.empty_like(got[0])
        own.steps(torch, a, b, given, peer)
        errors = {n: error_of(torch, x.double(), wanted, exact=False) for n, x in (("texpr", got[0]), ("torch", peer))}
        same = bool(torch.equal(*got))
        if own.rows:
            errors["texpr"] = max(
                errors["texpr"], error_of(torch, arrays["S"].double(), own.rows[1](sums), exact=False)
            )
        rows[product.name] = {
            "device": torch.cuda.get_device_name(0),
            "error": errors,
            "same bits": same,
            "right": errors["texpr"] < TOLERANCE and same,
        }

        def ours(number: int, stream: int, kernel: Any = kernel, arrays: Any = arrays, c: Any = got[1]) -> None:
            kernel(**arrays, C=c)

        def theirs(number: int, stream: int, own: Epilogue = own, c: Any = got[0]) -> None:
            own.steps(torch, a, b, given, c)

        graphs[f"{product.name} texpr"] = (graph_of(torch, ours, launches), launches)
        graphs[f"{product.name} torch"] = (graph_of(torch, theirs, launches), launches)
        del wanted, peer
    for way, times in ("ms", interleaved(torch, graphs, rounds)), ("burst ms", bursts(torch, graphs, BURSTS)):
        for key, found in times.items():
            name, who = key.split()
            rows[name].setdefault(way, {})[who] = found
    return rows


def line_of(product: Product, row: dict[str, Any], plain: dict[str, Any]) -> str:
    said = "" if row["right"] else f"  WRONG: {row['error']['texpr']:.1e}, same bits: {row['same bits']}"
    return (
        f"{product.name:36}{_column(row['ms'], plain['ms'])}   burst{_column(row['burst ms'], plain['burst ms'])}{said}"
    )


def _column(found: dict[str, list[float]], plain: dict[str, list[float]]) -> str:
    ours, theirs, alone = (statistics.median(times) for times in (found["texpr"], found["torch"], plain["texpr"]))
    return (
        f" {1000 * ours:9.1f} us   torch {1000 * theirs:9.1f} us   torch's time over ours {theirs / ours:.3f}"
        f"   of the product alone {alone / ours:.3f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("epilogues"))
    parser.add_argument("--size", action="append")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--epilogue", action="append", choices=EPILOGUES)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    return build(options.out, options) if options.action == "build" else run(options.out, options)


if __name__ == "__main__":
    sys.exit(main())
