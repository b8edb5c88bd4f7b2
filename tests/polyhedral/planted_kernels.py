"""The kernels in which faults are planted: how each is mapped, at which sizes, and what it computes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Contracted, Parted, Piped, Row, Scanned
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.ringed import Ringed

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "f16": np.float16, "f32": np.float32,
    "f64": np.float64,
}  # fmt: skip


Arrays = dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A program, how it is mapped, its sizes, and what it computes: of A and B in the letters of einsum, or of all."""

    text: str
    target: str
    choice: Choice | Candidate
    sizes: dict[str, int]
    wanted: str | Callable[[Arrays], Any]

    @property
    def program(self) -> MappedProgram:
        how = self.choice if isinstance(self.choice, Candidate) else Candidate(launches={"g_0": self.choice})
        kernel = texpr.parse(self.text).only
        program: MappedProgram = kernel.compile(
            f"cuda-host:{self.target}", stop_after="map", mapping=how, **self.sizes
        ).mapping.program
        return program

    def arrays(self, program: MappedProgram) -> Arrays:
        """Random arguments, the result poisoned."""
        random, found = np.random.default_rng(5), dict[str, Any]()
        for buffer in program.kernel.params:
            shape = tuple(constant_value(extent) or 0 for extent in buffer.shape)
            values = np.full(shape, np.nan) if buffer.name == "C" else random.standard_normal(shape)
            found[buffer.name] = values.astype(TYPES[str(buffer.dtype)])
        return found

    def is_right(self, given: Arrays, got: Any) -> bool:
        wide = {name: array.astype(float) for name, array in given.items() if name != "C"}
        how = self.wanted
        want = np.einsum(how, wide["A"], wide["B"]) if isinstance(how, str) else how(wide)
        wrong = got.astype(float)
        return bool((np.abs(wrong - want) < 1e-2 * np.abs(want).max()).all())


def _text(a: str, b: str, c: str, types: str, band: str = "M i, N j") -> str:
    """A product of A and B with these subscripts; the attribute of its statement may stand behind both types."""
    factor, result, *attrs = types.split()
    sizes = {"i": "M", "j": "N", "k": "K", "p": "P"}
    every = list(zip("ABC", (a, b, c), (factor, factor, result), strict=True))
    heads = ", ".join(f"{name}: {t}[{', '.join(sizes[n] for n in at)}]" for name, at, t in every)
    left, right, target = (f"{name}[{', '.join(at)}]" for name, at, _ in every)
    bound = f"{target} = sum K k {{ {left} * {right} }} {' '.join(attrs)}".strip()
    return f"kernel g({heads}) {{ par {band} {{ {bound} }} }}"


def _piped(rows: int, columns: int, **how: Any) -> Piped:
    return Piped(along="j", across="i", tile={"i": rows, "j": columns}, **{"stages": 2, "persistent": 2, **how})


def _ringed(rows: int, columns: int, wide: int, stages: int, depth: int = 32) -> Ringed:
    tile, each = {"i": rows, "j": columns}, {"i": 32, "j": wide}
    return Ringed(along="j", across="i", tile=tile, each=each, depth=depth, stages=stages, band=2)


TILES = Contracted(
    threads=64, along="j", across="i", tile={"i": 32, "j": 32}, each={"i": 4, "j": 4}, depth=8, grid=("j", "i")
)
CHAIN = """kernel g(A: bf16[M, M], B: bf16[M, M], C: bf16[M, M]) {
    new D: bf16[M, M]
    par M i, M j { D[i, j] = sum M k { A[i, k] * B[j, k] } }
    par M i, M j { C[i, j] = sum M k { D[i, k] * B[j, k] } }
}"""
ONE_AFTER_ANOTHER = Candidate(
    launches={
        "g_0": _piped(64, 64),
        "g_1": Piped(along="j_1", across="i_1", tile={"i_1": 64, "j_1": 64}, stages=2, persistent=2),
    },
    early=frozenset({"g_1"}),
)
SCALED = """kernel g(A: f32[M, K], C: f32[M]) {
    par M i {
        new top: f32
        new total: f32
        top = -inf
        seq K k { top max= A[i, k] }
        total = 0.0
        seq K j { total += exp(A[i, j] - top) }
        C[i] = total
    }
}"""
ROWS = Blocks(
    threads=64, grid=("i",), shared_out=("k", "j"), widths={"k": 4, "j": 4}, rows=(Row(indices=("k", "j"), line=128),),
    cluster=2, memory={"top": Memory.REG, "total": Memory.REG},
)  # fmt: skip
ACROSS = Parted(
    threads=64, grid=("j", "i"), shared_out=("k",), deal=(("j", 4),), widths={"k": 8}, patch={"i": 4, "j": 4},
    blocks={"k": 2},
)  # fmt: skip
SUMS = """kernel g(A: bf16[M, N], C: bf16[M, N]) {
    par N j { new s: f32; s = 0.0; seq M i { s += A[i, j]; C[i, j] = s } }
}"""
RING = Scanned(
    threads=64, grid=("j",), shared_out=("i",), along="j", deal=(("j", 64),), ahead=16, ring=3, strip=32,
    memory={"s": Memory.REG},
)  # fmt: skip
KERNELS = {
    # blocks of a cluster stay for several tiles and bring halves of B to one another
    "multicast": Kernel(
        _text("ik", "jk", "ij", "bf16 bf16"), "sm_90a", _piped(64, 64, cluster=2),
        {"M": 200, "N": 136, "K": 200}, "ik,jk->ij",
    ),
    # blocks of a cluster share what is summed of a tile, and send one another their parts of it
    "shared": Kernel(
        _text("ik", "jk", "ij", "bf16 bf16"), "sm_90a", _piped(64, 64, split=2),
        {"M": 40, "N": 56, "K": 392}, "ik,jk->ij",
    ),
    # sums go back element by element
    "wgmma": Kernel(
        _text("pki", "pjk", "ijp", "f16 f32", "P p, M i, N j"), "sm_90a", _piped(64, 64),
        {"P": 2, "M": 72, "N": 72, "K": 200}, "pki,pjk->ijp",
    ),
    # two warpgroups multiply, and sums go back in boxes
    "boxes": Kernel(
        _text("ik", "kj", "ij", "f16 f32"), "sm_90a", _piped(128, 64, stages=3),
        {"M": 136, "N": 136, "K": 264}, "ik,kj->ij",
    ),
    "warps": Kernel(
        _text("ik", "kj", "ij", "bf16 bf16"), "sm_80", _ringed(64, 64, 32, 2),
        {"M": 40, "N": 56, "K": 136}, "ik,kj->ij",
    ),
    "warps of three slots": Kernel(
        _text("ki", "jk", "ij", "f16 f32"), "sm_80", _ringed(64, 64, 64, 3),
        {"M": 68, "N": 35, "K": 200}, "ki,jk->ij",
    ),
    # each product is rounded with the sum that takes it
    "f64 by warps": Kernel(
        _text("ki", "kj", "ij", "f64 f64"), "sm_90a", _ringed(64, 64, 32, 3, 16),
        {"M": 36, "N": 50, "K": 64}, "ki,kj->ij",
    ),
    # rows that lie along their side come to a warpgroup by registers
    "rows by registers": Kernel(
        _text("ki", "jk", "ij", "f32 f32 #tf32"), "sm_90a", _piped(64, 64, stages=2),
        {"M": 72, "N": 72, "K": 128}, "ki,jk->ij",
    ),
    # sums of f8 are made in portions
    "portions": Kernel(
        _text("ik", "jk", "ij", "f8e4m3 f32"), "sm_90a", _piped(64, 64, stages=2),
        {"M": 72, "N": 72, "K": 400}, "ik,jk->ij",
    ),
    "portions by warps": Kernel(
        _text("ik", "jk", "ij", "f8e4m3 f32"), "sm_89", _ringed(64, 64, 32, 3, 64),
        {"M": 40, "N": 50, "K": 208}, "ik,jk->ij",
    ),
    # blocks share the steps of all tiles, and the last one adds their sums of a tile
    "streamed": Kernel(
        _text("ik", "jk", "ij", "bf16 f32"), "sm_90a", _piped(64, 64, persistent=3, streamed=True),
        {"M": 40, "N": 72, "K": 200}, "ik,jk->ij",
    ),
    # each of two warpgroups has 128 rows, blocks side by side; bands that wind, every second turn from the end of k on
    "high": Kernel(
        _text("ik", "jk", "ij", "bf16 bf16"), "sm_90a", _piped(256, 80, high=2, abreast=2, band=1),
        {"M": 264, "N": 168, "K": 136}, "ik,jk->ij",
    ),
    # rows and columns are exchanged: warps of a warpgroup fill a box together, its rows columns of their sums
    "crossed": Kernel(
        _text("ik", "kj", "ij", "bf16 bf16"), "sm_90a",
        Piped(along="i", across="j", tile={"j": 256, "i": 48}, stages=2, persistent=2, high=2, abreast=2),
        {"M": 104, "N": 328, "K": 136}, "ik,kj->ij",
    ),
    # the launch begins while what is on the queue ends
    "first": Kernel(
        _text("ik", "jk", "ij", "bf16 bf16"), "sm_90a",
        Candidate(launches={"g_0": _piped(64, 64)}, early=frozenset({"g_0"})),
        {"M": 72, "N": 72, "K": 72}, "ik,jk->ij",
    ),
    # the second launch begins while the first one ends
    "chain": Kernel(CHAIN, "sm_90a", ONE_AFTER_ANOTHER, {"M": 72}, lambda of: of["A"] @ of["B"].T @ of["B"].T),
    # few rows whose factor lies across the sum: threads share it, and blocks meet in memory
    "rows across": Kernel(
        _text("ik", "kj", "ij", "f32 f32"), "sm_90a", ACROSS, {"M": 6, "N": 36, "K": 204}, "ik,kj->ij"
    ),
    # blocks of a cluster share a row, and meet once for its greatest value and the sum that it scales
    "scaled sums": Kernel(
        SCALED, "sm_90a", ROWS, {"M": 3, "K": 1539}, lambda of: np.exp(of["A"] - of["A"].max(1, keepdims=True)).sum(1)
    ),
    # running sums of columns whose rows come to a ring in chunks, and leave it in strips
    "ring of rows": Kernel(SUMS, "sm_80", RING, {"M": 100, "N": 131}, lambda of: of["A"].cumsum(0)),
    "tiles": Kernel(
        _text("ik", "kj", "ij", "f32 f32"), "sm_80", TILES, {"M": 37, "N": 35, "K": 29}, "ik,kj->ij"
    ),
}  # fmt: skip
