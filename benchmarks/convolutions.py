"""Convolutions in f32 on the FMA units of a GPU, from plain programs, beside cuDNN without TF32 (through PyTorch); and
`narrow` ones in bf16 on its tensor cores, with channels last.

    python benchmarks/convolutions.py build DIR     where the compiler is, without a GPU
    python benchmarks/convolutions.py run DIR       with PyTorch and cuda-core; no compiler

    --kind plain (one of those below; may be given again), --arch, --rounds

Three sizes of each kind stand below, listed before anything was tuned. Every result is compared with float64 on a
poisoned output. A rate counts the products of the definition; the bar is the smaller of cuDNN's and of our product of
4096 x 4096 matrices in the same run. A time is the median of rounds in shuffled order, each a graph of launches. `run`
writes DIR/results.json after each convolution.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

GRAPH_MS, MAX_LAUNCHES = 10.0, 50


@dataclass(frozen=True)
class Convolution:
    """Images of a batch, of `channels` in each of some groups, to `filters` in each; what stands once for each
    dimension of an image is a tuple. `transposed`: what a gradient with respect to images computes; its program has an
    index for each phase of a stride, in which other places of the window meet pixels."""

    kind: str
    batch: int
    channels: int
    filters: int
    image: tuple[int, ...]
    window: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    dtype: str = "f32"

    @property
    def name(self) -> str:
        image = "x".join(map(str, self.image))
        return f"{self.kind}-{self.batch}x{self.groups * self.channels}-{self.groups * self.filters}-{image}"

    @property
    def is_narrow(self) -> bool:
        """Whether it is one of tensor cores, of arrays whose channels lie last."""
        return self.dtype == "bf16"

    @property
    def is_depthwise(self) -> bool:
        return self.channels == self.filters == 1

    @property
    def out(self) -> tuple[int, ...]:
        both = [(n, self.dilation * (k - 1) + 1) for n, k in zip(self.image, self.window, strict=True)]
        if self.transposed:
            return tuple((n - 1) * self.stride + reach - 2 * self.padding for n, reach in both)
        return tuple((n + 2 * self.padding - reach) // self.stride + 1 for n, reach in both)

    @property
    def operations(self) -> int:
        pixels = self.image if self.transposed else self.out
        return 2 * self.batch * self.groups * self.channels * self.filters * prod(pixels) * prod(self.window)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of our arrays: groups have a dimension of their own, where there are several."""
        if self.is_narrow:
            x, y = (self.batch, *self.image, self.channels), (self.batch, *self.out, self.filters)
            return {"X": x, "F": (*self.window, self.channels, self.filters), "Y": y}
        group = (self.groups,) if self.groups > 1 else ()
        inside, outside = ((), ()) if self.is_depthwise else ((self.channels,), (self.filters,))
        both = (*inside, *outside) if self.transposed else (*outside, *inside)
        return {
            "X": (self.batch, *group, *inside, *self.image),
            "F": (*group, *both, *self.window),
            "Y": (self.batch, *group, *outside, *self.out),
        }

    @property
    def phases(self) -> int:
        """Of how many phases the pixels of a dimension are."""
        return self.stride if self.transposed else 1

    @property
    def text(self) -> str:
        dims, phases = range(len(self.image)), self.phases
        group = ["g"] if self.groups > 1 else []
        c, o = ([], []) if self.is_depthwise else (["c"], ["o"])
        rows = [f"y{d}" for d in dims]
        pixels = [f"{phases} * y{d} + p{d}" if phases > 1 else f"y{d}" for d in dims]
        taps = [f"{phases} * r{d} + (p{d} + {self.padding}) % {phases}" if phases > 1 else f"r{d}" for d in dims]
        places, inside = zip(*(self._place(d) for d in dims), strict=True)
        element = f"X[{', '.join(['n', *places, *c] if self.is_narrow else ['n', *group, *c, *places])}]"
        conditions = [one for some in inside for one in some]
        if conditions:
            element = f"select({' and '.join(conditions)}, {element}, 0.0)"
        factor = f"F[{', '.join([*group, *(c + o if self.transposed else o + c), *taps])}]"
        if self.is_narrow:
            factor = f"F[{', '.join([*taps, *c, *o])}]"
        shapes = self.shapes
        assert all(n % phases == 0 for n in (*self.window, *self.out)), "each phase has as many taps and pixels"
        extents = [*shapes["Y"][: -len(dims)], *(n // phases for n in self.out)]
        loops = [*zip(["n", *group, *o, *rows], extents, strict=True)]
        if self.is_narrow:
            loops = [*zip(["n", *rows, *o], shapes["Y"], strict=True)]
        loops += [(f"p{d}", phases) for d in dims if phases > 1]
        summed = [*((self.channels, name) for name in c), *((n // phases, f"r{d}") for d, n in enumerate(self.window))]
        result = ["n", *pixels, *o] if self.is_narrow else ["n", *group, *o, *pixels]
        buffers = ", ".join(f"{name}: {self.dtype}[{', '.join(map(str, shapes[name]))}]" for name in "XFY")
        return f"""kernel convolution({buffers}) {{
    par {", ".join(f"{extent} {name}" for name, extent in loops)} {{
        Y[{", ".join(result)}] = sum {", ".join(f"{n} {name}" for n, name in summed)} {{
            {element} * {factor}
        }}
    }}
}}
"""

    def _place(self, dim: int) -> tuple[str, list[str]]:
        """Where the pixel of a window lies along a dimension, and the conditions that it lies in the image."""
        high, pad = self.image[dim], self.padding
        apart = f"{self.dilation} * r{dim}" if self.dilation > 1 else f"r{dim}"
        if self.transposed:
            first = f"y{dim} + (p{dim} + {pad}) / {self.stride}" if self.stride > 1 else f"y{dim} + {pad}"
            return f"{first} - {apart}", [f"{first} >= {apart}", f"{first} - {apart} < {high}"]
        at = f"{self.stride} * y{dim} + {apart}" if self.stride > 1 else f"y{dim} + {apart}"
        if not pad:
            return at, []
        return f"{at} - {pad}", [f"{at} >= {pad}", f"{at} < {high + pad}"]


SIZES = (
    Convolution("plain", 32, 64, 64, (58, 58), (3, 3)),
    Convolution("plain", 32, 256, 256, (30, 30), (3, 3)),
    Convolution("plain", 32, 512, 512, (9, 9), (3, 3)),
    Convolution("padded", 32, 64, 64, (56, 56), (3, 3), padding=1),
    Convolution("padded", 32, 128, 256, (28, 28), (3, 3), padding=1),
    Convolution("padded", 16, 512, 512, (14, 14), (3, 3), padding=1),
    Convolution("strided", 32, 64, 128, (56, 56), (3, 3), stride=2, padding=1),
    Convolution("strided", 32, 256, 512, (14, 14), (3, 3), stride=2, padding=1),
    Convolution("strided", 64, 3, 64, (224, 224), (7, 7), stride=2, padding=3),
    Convolution("dilated", 16, 128, 128, (60, 60), (3, 3), dilation=2),
    Convolution("dilated", 16, 256, 256, (33, 33), (3, 3), padding=4, dilation=4),
    Convolution("dilated", 8, 512, 512, (33, 33), (3, 3), padding=2, dilation=2),
    Convolution("pointwise", 32, 64, 256, (56, 56), (1, 1)),
    Convolution("pointwise", 32, 1024, 256, (14, 14), (1, 1)),
    Convolution("pointwise", 32, 2048, 512, (7, 7), (1, 1)),
    Convolution("lines", 32, 128, 128, (4096,), (5,), padding=2),
    Convolution("lines", 16, 80, 512, (3000,), (3,), padding=1),
    Convolution("lines", 8, 512, 512, (1500,), (3,), stride=2, padding=1),
    Convolution("volumes", 4, 32, 64, (32, 32, 32), (3, 3, 3), padding=1),
    Convolution("volumes", 2, 64, 64, (16, 56, 56), (3, 3, 3)),
    Convolution("volumes", 8, 128, 128, (8, 14, 14), (3, 3, 3), padding=1),
    Convolution("groups", 32, 32, 64, (56, 56), (3, 3), padding=1, groups=4),
    Convolution("groups", 32, 64, 64, (28, 28), (3, 3), padding=1, groups=8),
    Convolution("groups", 16, 128, 128, (14, 14), (3, 3), padding=1, groups=4),
    Convolution("depthwise", 32, 1, 1, (112, 112), (3, 3), padding=1, groups=64),
    Convolution("depthwise", 32, 1, 1, (56, 56), (3, 3), padding=1, groups=144),
    Convolution("depthwise", 32, 1, 1, (28, 28), (5, 5), padding=2, groups=384),
    Convolution("transposed", 32, 128, 64, (28, 28), (4, 4), stride=2, padding=1, transposed=True),
    Convolution("transposed", 16, 256, 128, (28, 28), (2, 2), stride=2, transposed=True),
    Convolution("transposed", 32, 128, 128, (28, 28), (3, 3), padding=1, transposed=True),
)
NARROW = (
    Convolution("narrow", 32, 128, 128, (56, 56), (3, 3), padding=1, dtype="bf16"),
    Convolution("narrow", 32, 256, 256, (28, 28), (3, 3), padding=1, dtype="bf16"),
    Convolution("narrow", 32, 64, 64, (56, 56), (3, 3), padding=1, dtype="bf16"),
    Convolution("narrow", 32, 512, 512, (14, 14), (3, 3), padding=1, dtype="bf16"),
    Convolution("narrow", 16, 96, 200, (37, 41), (3, 3), dtype="bf16"),
)
TOLERANCE = {"f32": 1e-5, "bf16": 3e-3}
KINDS = tuple(dict.fromkeys(one.kind for one in (*SIZES, *NARROW)))


def chosen(options: argparse.Namespace) -> Iterator[Convolution]:
    return (one for one in (*SIZES, *NARROW) if one.kind in (options.kind or KINDS))


def build(out: Path, options: argparse.Namespace) -> int:
    """An artifact for each convolution, and one of the product that they are compared with; the exit status."""
    from contractions import Product

    import texpr

    matrices = Product(4096, 4096, 4096, "nn")
    texpr.parse(matrices.text, matrices.name).only.compile(f"cuda:{options.arch}", sizes=matrices.sizes).save(
        out / matrices.name
    )
    count = 0
    for one in chosen(options):
        texpr.parse(one.text, one.name).only.compile(f"cuda:{options.arch}").save(out / one.name)
        count += 1
    print(f"{count} artifacts for {options.arch} in {out}")
    return 0


# ---- running -----------------------------------------------------------------------------------------------------


def run(out: Path, options: argparse.Namespace) -> int:
    """Every convolution that is built; the exit status, 1 where one is wrong."""
    import torch
    from contractions import Product
    from contractions import measure as measure_product

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    matrices = Product(4096, 4096, 4096, "nn")
    ways = argparse.Namespace(rounds=options.rounds, peer=[], cold=False, way=[], wanted=False)
    found = measure_product(torch, matrices, out, ways)
    direct = matrices.operations / statistics.median(found["ms"]["texpr"]) / 1e9
    rows: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "product": found}
    print(f"product of 4096 x 4096 matrices {direct:6.1f} TFLOP/s", flush=True)
    right = []
    for one in chosen(options):
        if not (out / one.name).exists():
            print(f"{one.name}: not built")
            continue
        rows[one.name] = row = measure(torch, one, out, options.rounds)
        right.append(row["right"])
        (out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(line_of(one, row, direct), flush=True)
    return 0 if right and all(right) else 1


def measure(torch: Any, one: Convolution, out: Path, rounds: int) -> dict[str, Any]:
    from gpu_timing import graph_of, interleaved, launches_in
    from memory_measure import first_call
    from memory_problems import error_of

    from texpr.runtime.load import load

    kernel, shapes, dims = load(out / one.name), one.shapes, len(one.image)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[one.dtype]
    x, f = (torch.randn(shapes[name], device="cuda").to(dtype) for name in "XF")
    result = torch.full(shapes["Y"], float("nan"), device="cuda", dtype=dtype)
    if one.is_narrow:  # as PyTorch has them: other dimensions of arrays whose channels lie last
        images, filters = x.movedim(-1, 1), f.movedim((-1, -2), (0, 1)).contiguous(memory_format=torch.channels_last)
    else:
        images = x.reshape(one.batch, one.groups * one.channels, *one.image)
        first = one.groups * (one.channels if one.transposed else one.filters)
        filters = f.reshape(first, one.filters if one.transposed else one.channels, *one.window)

    def as_ours(found: Any) -> Any:
        return found.movedim(1, -1) if one.is_narrow else found.reshape(shapes["Y"])

    act = getattr(torch.nn.functional, f"conv{'_transpose' if one.transposed else ''}{dims}d")
    given = {"stride": one.stride, "padding": one.padding, "dilation": one.dilation, "groups": one.groups}
    wanted = as_ours(act(images.double(), filters.double(), **given))
    kernel(X=x, F=f, Y=result)
    again = torch.full_like(result, float("nan"))
    took = first_call(torch, lambda: kernel(X=x, F=f, Y=again))
    found = {"texpr": result, "cudnn": as_ours(act(images, filters, **given))}
    errors = {name: error_of(torch, got.double(), wanted, exact=False) for name, got in found.items()}
    row: dict[str, Any] = {"error": errors, "same bits": bool(torch.equal(result, again))}
    row["right"] = errors["texpr"] < TOLERANCE[one.dtype] and row["same bits"]
    del wanted, found
    launches = launches_in(GRAPH_MS, took, MAX_LAUNCHES)
    graphs = {
        "texpr": (graph_of(torch, lambda n, stream: kernel(X=x, F=f, Y=result), launches), launches),
        "cudnn": (graph_of(torch, lambda n, stream: act(images, filters, **given), launches), launches),
    }
    return {**row, "ms": interleaved(torch, graphs, rounds)}


def line_of(one: Convolution, row: dict[str, Any], direct: float) -> str:
    rate = {name: one.operations / statistics.median(times) / 1e9 for name, times in row["ms"].items()}
    took = 1000 * statistics.median(row["ms"]["texpr"])
    said = "" if row["right"] else f"  WRONG: {row['error']['texpr']:.1e}, same bits: {row['same bits']}"
    ours, peer = rate["texpr"], rate["cudnn"]
    return (
        f"{one.name:38} {took:9.1f} us {ours:6.1f} TFLOP/s   cuDNN {peer:6.1f}   of cuDNN {ours / peer:.3f}"
        f"{'' if one.is_narrow else f'   of the smaller {ours / min(peer, direct):.3f}'}{said}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("convolutions"))
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    return build(options.out, options) if options.action == "build" else run(options.out, options)


if __name__ == "__main__":
    sys.exit(main())
