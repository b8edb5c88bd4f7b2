"""Kernels that are bound by memory, written by hand as values: rows in registers, sums in one launch, a transpose.

Chunks of 16 bytes are counted from a line of 128 bytes of memory, so rows of any length at any address are read and
written in whole chunks; the elements before a row and behind it are masked.
"""

from dataclasses import dataclass
from functools import partial

from graphs import barrier, copy, define, do, each, last, launch, loop, order, program, reduce, view, when

from texpr.grammar.types import BF16, F32
from texpr.polyhedral.layout.value import Xor
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Lead, Node

LINE = 128  # bytes
AHEAD = LINE // 2 - 1  # elements at most between a line and a row
ANY = 1 << 30  # blocks
ROW = dict.fromkeys(("X", "Y", "v", "b"), BF16) | dict.fromkeys(
    ("m", "r", "p", "o", "s", "g", "z", "gs", "zs", "f"), F32
)
SUM = dict.fromkeys(("A", "B", "v", "s", "t", "ws", "vs", "p"), F32)
TILE = dict.fromkeys(("X", "Y", "v", "o", "t", "w"), BF16)


@dataclass(frozen=True)
class Met:
    """Where the partial results of warps lie: each thread reads all of them, or each lane one."""

    greatest: str
    sum: str
    over: str = ""
    lanes: int = 1


def row_registers(chunks: int) -> dict[str, tuple[int, ...]]:
    single = dict.fromkeys(("b", "m", "r", "s", "g", "z", "f"), (1,))
    return dict.fromkeys(("v", "p"), (8 * chunks,)) | {"o": (8,)} | single


def softmax_row(
    warps: int, chunks: int, met: Met, *, keep: bool, fast: bool = False, end: str = "N"
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """What a thread does with its part of a row, before `end`, until the partial results of warps meet, and after.
    `keep`: the exponentials, or they are computed twice; `fast`: they may be approximate."""
    step = 8 * 32 * warps
    every = f"x < {8 * chunks}"
    moved = partial(copy, within=(f"0 - c - {step} * q", f"{end} - c - {step} * q"), access="aligned", types=ROW)
    combined = partial(reduce, monoid="ScaledSum", lift=False, types=ROW)
    scaled = "exp(f32(v[x]) - r[0])"
    again = "exp(f32(v[8 * q + e]) - g[0])"
    factor = "select(m[0] == -inf, 0.0, exp(m[0] - g[0]))" if keep else "1.0"
    before = (
        moved("S0", f"v[8 * q + e] = X[i, c + {step} * q + e]", f"q < {chunks}, e < 8", other=float("-inf")),
        reduce("S1", "b[0]", "v[x]", monoid="Greatest", over=every, types=ROW),
        do("S2", "m[0] = f32(b[0])", types=ROW),
        do("S3", "r[0] = select(m[0] == -inf, 0.0, m[0])", types=ROW),
        *((each("S4", every, f"p[x] = {scaled}", types=ROW, fast=fast),) if keep else ()),
        reduce("S5", "s[0]", "p[x]" if keep else scaled, monoid="Sum", over=every, types=ROW),
        combined("S6", "g[0]; z[0]", "m[0]", "s[0]", lanes=32),
    )
    after = (
        combined("S9", "g[0]; z[0]", met.greatest, met.sum, over=met.over, lanes=met.lanes, last=True),
        do("S10", f"f[0] = {factor} / z[0]", types=ROW, fast=fast),
        loop(
            "q",
            chunks,
            each("S11", "e < 8", f"o[e] = {'p[8 * q + e]' if keep else again} * f[0]", types=ROW, fast=fast),
            moved("S12", f"Y[i, c + {step} * q + e] = o[e]", "e < 8"),
            unroll=True,
        ),
    )
    return before, after


def softmax(warps: int, chunks: int, name: str = "hand", *, keep: bool = True) -> MappedProgram:
    """A block a row, `chunks` chunks of 8 elements in the registers of each thread, and one barrier."""
    before, after = softmax_row(warps, chunks, Met("gs[y]", "zs[y]", over=f"y < {warps}"), keep=keep)
    return program(
        "X: bf16[M, N] #align(2), Y: bf16[M, N] #align(2)",
        launch(
            define("i", grid=ANY),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("c", offset="0 - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            *before,
            when("l == 0", do("S7", "gs[w] = g[0]", types=ROW), do("S8", "zs[w] = z[0]", types=ROW)),
            barrier("block"),
            *after,
            name=name,
            threads=32 * warps,
            grid="M",
            orders=(order("S7", "S9", "gs"), order("S8", "S9", "zs")),
        ),
        shared={"gs": (warps,), "zs": (warps,)},
        registers=row_registers(chunks),
        types=ROW,
        facts=f"N <= {8 * 32 * warps * chunks - AHEAD}",
    )


def cluster_softmax(
    ranks: int, warps: int, chunks: int, name: str = "hand", min_blocks: int = 0, *, fast: bool = False
) -> MappedProgram:
    """A cluster of blocks a row, each with as many of its lines; every warp tells all blocks its greatest and sum."""
    slots = ranks * warps  # one for a lane
    met = Met(f"gs[h, l % {slots}]", f"zs[h, l % {slots}]", lanes=slots)
    before, after = softmax_row(warps, chunks, met, keep=True, fast=fast, end="end")
    push = (
        do("S7", f"gs[l, {warps} * h + w] = g[0]", types=ROW),
        do("S8", f"zs[l, {warps} * h + w] = z[0]", types=ROW),
    )
    lines = LINE // 2 * ranks
    return program(
        "X: bf16[M, N] #align(2), Y: bf16[M, N] #align(2)",
        launch(
            barrier("cluster", action="arrive", relaxed=True),
            define("j", grid=ANY),
            define("i", offset=f"j // {ranks}"),
            define("h", rank=ranks),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("share", offset=f"{LINE // 2} * ((lead + N + {lines - 1}) // {lines})"),
            define("end", offset="min(N, share * (h + 1) - lead)"),
            define("c", offset="share * h - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            *before,
            barrier("cluster", action="wait"),
            when(f"l < {ranks}", *push),
            barrier("cluster"),
            *after,
            name=name,
            threads=32 * warps,
            grid=f"{ranks} * M",
            cluster=ranks,
            min_blocks=min_blocks,
            orders=(order("S7", "S9", "gs", scope="cluster"), order("S8", "S9", "zs", scope="cluster")),
        ),
        cluster={"gs": (ranks, slots), "zs": (ranks, slots)},
        registers=row_registers(chunks),
        types=ROW,
        facts=f"N <= {8 * 32 * warps * chunks * ranks - AHEAD}",
    )


def ticket_sum(warps: int, chunks: int, blocks: int, name: str = "hand") -> MappedProgram:
    """Blocks walk over the array together, `chunks` chunks of 4 elements a thread at a time; the last adds sums."""
    threads = 32 * warps
    step = 4 * threads * blocks
    at = f"c + {step} * ({chunks} * k + q)"
    walk = loop(
        "k",
        f"(N + {31 + chunks * step}) // {chunks * step}",
        copy(
            "S1",
            f"v[4 * q + e] = A[{at} + e]",
            f"q < {chunks}, e < 4",
            within=(f"0 - ({at})", f"N - ({at})"),
            other=0.0,
            access="aligned",
            types=SUM,
        ),
        each("S2", f"x < {4 * chunks}", "s[0] += v[x]", types=SUM),
    )
    partial_sums = loop(
        "k",
        -(-blocks // threads),
        when(f"i + {threads} * k < {blocks}", do("S8", f"s[0] += p[i + {threads} * k]", types=SUM)),
    )
    return program(
        "A: f32[N] #align(4), B: f32[1] #align(4)",
        launch(
            Lead(index="lead", of=view("A[0]", SUM), bytes=LINE),
            define("c", offset="0 - lead", weight=4, lane=32, warp=warps, grid=blocks),
            define("b", grid=blocks),
            define("i", lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            do("S0", "s[0] = 0.0", types=SUM),
            walk,
            *_of_block("S3", "S4", "S5", "ws", warps),
            do("S6", "p[b] = t[0]", once=True, types=SUM),
            last(
                "tickets",
                blocks,
                do("S7", "s[0] = 0.0", types=SUM),
                partial_sums,
                *_of_block("S9", "S10", "S11", "vs", warps),
                do("S12", "B[0] = t[0]", once=True, types=SUM),
            ),
            name=name,
            threads=threads,
            grid=blocks,
            orders=(order("S4", "S5", "ws"), order("S6", "S8", "p", scope="grid"), order("S10", "S11", "vs")),
        ),
        shared={"ws": (warps,), "vs": (warps,)},
        registers={"v": (4 * chunks,), "s": (1,), "t": (1,)},
        workspace={"p": (blocks,)},
        words=(Words(name="tickets", shape=(), init=Init.ZERO_ONCE),),
        types=SUM,
    )


def _of_block(lanes: str, put: str, get: str, slots: str, warps: int) -> tuple[Node, ...]:
    """The sums of a block's threads added, in all of them."""
    added = partial(reduce, monoid="Sum", lift=False, types=SUM)
    return (
        added(lanes, "s[0]", "s[0]", lanes=32),
        when("l == 0", do(put, f"{slots}[w] = s[0]", types=SUM)),
        barrier("block"),
        added(get, "t[0]", f"{slots}[y]", over=f"y < {warps}", last=True),
    )


PIECE = 16  # elements of 32 bytes, a sector of memory


def transpose(rows: int, columns: int, name: str = "hand", min_blocks: int = 0) -> MappedProgram:
    """Tiles of `rows` by `columns`, 16 bytes at a time both ways: 8 x 8 elements are transposed in the registers of a
    thread, and the tile in shared memory is swizzled. A block owns the sectors of the result that begin in its rows,
    less a sector: no sector has two writers but at the ends of rows. Of a tile that the array has whole nothing is
    masked."""
    own, down, across = rows - PIECE, rows // 8, columns // 8
    threads = down * across
    whole = f"r0 + {rows} < M and c0 + {columns} <= N"
    read = partial(copy, over="a < 8, e < 8", access="funnel", types=TILE)
    element = "v[8 * a + e] = X[r + a, c + e]"
    return program(
        "X: bf16[M, N] #align(2), Y: bf16[N, M] #align(2)",
        launch(
            define("tr", grid=f"(M + {own - 1}) // {own}"),
            define("tc", grid_y=f"(N + {columns - 1}) // {columns}"),
            define("d", lane=32, warp=threads // 32),
            define("r0", offset=f"{own} * tr"),
            define("c0", offset=f"{columns} * tc"),
            define("r", offset=f"r0 + 8 * (d // {across})"),
            define("c", offset=f"c0 + 8 * (d % {across})"),
            when(
                whole,
                read("S0", element),
                orelse=(read("S1", element, within=("0", "min(N - c, 8 * (M - r - a))"), other=0.0),),
            ),
            each("S2", "a < 8, e < 8", "o[8 * e + a] = v[8 * a + e]", types=TILE),
            copy("S3", "t[c - c0 + e, r - r0 + a] = o[8 * e + a]", "e < 8, a < 8", access="aligned", types=TILE),
            barrier("block"),
            when(
                whole,
                loop("k", columns * down // threads, *_sectors(own, down, threads // down, "S4", "S5")),
                orelse=(
                    loop(
                        "k",
                        columns * down // threads,
                        *_sectors(own, down, threads // down, "S6", "S7", within=("0", "M - r0 - x")),
                    ),
                ),
            ),
            when("tr == 0", loop("k", columns * PIECE // threads, *_edge(threads // PIECE))),
            name=name,
            threads=threads,
            min_blocks=min_blocks,
            grid=(f"(M + {own - 1}) // {own}", f"(N + {columns - 1}) // {columns}"),
            orders=tuple(order("S3", sink, "t") for sink in ("S4", "S6", "S8")),
        ),
        shared={"t": (columns, rows)},
        registers={"v": (64,), "o": (64,), "w": (8,)},
        types=TILE,
        swizzles={"t": Xor(bits=3, base=3, shift=rows.bit_length() - 1)},
        facts=f"M <= {1 << 24}, N <= {65535 * columns}",
    )


def _sectors(
    own: int, down: int, step: int, get: str, put: str, within: tuple[str, str] | None = None
) -> tuple[Node, ...]:
    """A chunk of a row of the result from the tile."""
    chunk = (
        Lead(index="past", of=view("Y[c0 + j, r0]", TILE), bytes=2 * PIECE),
        define("x", offset=f"({PIECE} - past) % {PIECE} + 8 * (d % {down})"),
        copy(get, "w[e] = t[j, x + e]", "e < 8", access="funnel", types=TILE),
        copy(put, "Y[c0 + j, r0 + x + e] = w[e]", "e < 8", within=within, access="aligned", types=TILE),
    )
    there = f"d % {down} < {own // 8}" if within is None else f"d % {down} < {own // 8} and c0 + j < N"
    return (define("j", offset=f"d // {down} + {step} * k"), when(there, *chunk))


def _edge(step: int) -> tuple[Node, ...]:
    """The elements in front of the first sector of a row of the result, one by one."""
    return (
        define("y", offset=f"d // {PIECE} + {step} * k"),
        define("z", offset=f"d % {PIECE}"),
        when(
            "c0 + y < N",
            Lead(index="before", of=view("Y[c0 + y, 0]", TILE), bytes=2 * PIECE),
            when(
                f"z < min(({PIECE} - before) % {PIECE}, M)",
                do("S8", "Y[c0 + y, z] = t[y, z]", types=TILE),
            ),
        ),
    )
