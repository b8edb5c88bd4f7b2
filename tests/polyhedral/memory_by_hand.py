"""Kernels that are bound by memory, written by hand as values: rows in registers, sums in one launch, a transpose.

Chunks of 16 bytes are counted from a line of 128 bytes of memory, so rows of any length at any address are read and
written in whole chunks; the elements before a row and behind it are masked.
"""

from dataclasses import dataclass
from functools import partial

from graphs import barrier, copy, define, do, each, last, launch, loop, order, program, reduce, view, when

from texpr.grammar.types import BF16, F32
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Lead, Node

LINE = 128  # bytes
ANY = 1 << 30  # blocks
KEPT = 8  # chunks of a thread whose exponentials stay in registers
ROW = dict.fromkeys(("X", "Y", "v", "o"), BF16) | dict.fromkeys(("m", "r", "p", "s", "g", "z", "gs", "zs", "f"), F32)
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
    return dict.fromkeys(("v", "p", "o"), (8 * chunks,)) | dict.fromkeys(("m", "r", "s", "g", "z", "f"), (1,))


def softmax_row(warps: int, chunks: int, met: Met) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """What a thread does with its part of a row before the partial results of warps meet, and after."""
    step = 8 * 32 * warps
    every = f"x < {8 * chunks}"
    moved = partial(
        copy,
        over=f"q < {chunks}, e < 8",
        within=(f"0 - c - {step} * q", f"N - c - {step} * q"),
        access="aligned",
        types=ROW,
    )
    keep = chunks <= KEPT  # the exponentials, or they are computed twice
    scaled = "exp(f32(v[x]) - r[0])"
    combined = partial(reduce, monoid="ScaledSum", lift=False, types=ROW)
    before = (
        moved("S0", f"v[8 * q + e] = X[i, c + {step} * q + e]", other=float("-inf")),
        reduce("S1", "m[0]", "f32(v[x])", monoid="Greatest", over=every, types=ROW),
        do("S2", "r[0] = select(m[0] == -inf, 0.0, m[0])", types=ROW),
        *((each("S3", every, f"p[x] = {scaled}", types=ROW),) if keep else ()),
        reduce("S4", "s[0]", "p[x]" if keep else scaled, monoid="Sum", over=every, types=ROW),
        combined("S5", "g[0]; z[0]", "m[0]", "s[0]", lanes=32),
    )
    after = (
        combined("S8", "g[0]; z[0]", met.greatest, met.sum, over=met.over, lanes=met.lanes, last=True),
        do("S9", f"f[0] = {'select(m[0] == -inf, 0.0, exp(m[0] - g[0]))' if keep else '1.0'} / z[0]", types=ROW),
        each("S10", every, f"o[x] = bf16({'p[x]' if keep else 'exp(f32(v[x]) - g[0])'} * f[0])", types=ROW),
        moved("S11", f"Y[i, c + {step} * q + e] = o[8 * q + e]"),
    )
    return before, after


def softmax(warps: int, chunks: int, name: str = "hand") -> MappedProgram:
    """A block a row, `chunks` chunks of 8 elements in the registers of each thread, and one barrier."""
    before, after = softmax_row(warps, chunks, Met("gs[y]", "zs[y]", over=f"y < {warps}"))
    return program(
        "X: bf16[M, N], Y: bf16[M, N]",
        launch(
            define("i", grid=ANY),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("c", offset="0 - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            *before,
            when("l == 0", do("S6", "gs[w] = g[0]", types=ROW), do("S7", "zs[w] = z[0]", types=ROW)),
            barrier("block"),
            *after,
            name=name,
            threads=32 * warps,
            grid="M",
            orders=(order("S6", "S8", "gs"), order("S7", "S8", "zs")),
        ),
        shared={"gs": (warps,), "zs": (warps,)},
        registers=row_registers(chunks),
        types=ROW,
    )


def cluster_softmax(ranks: int, warps: int, chunks: int, name: str = "hand", min_blocks: int = 0) -> MappedProgram:
    """A cluster of blocks a row, each with a share of its chunks; every warp tells all blocks its greatest and sum."""
    slots = ranks * warps  # one for a lane
    before, after = softmax_row(warps, chunks, Met(f"gs[h, l % {slots}]", f"zs[h, l % {slots}]", lanes=slots))
    push = (
        do("S6", f"gs[l, {warps} * h + w] = g[0]", types=ROW),
        do("S7", f"zs[l, {warps} * h + w] = z[0]", types=ROW),
    )
    return program(
        "X: bf16[M, N], Y: bf16[M, N]",
        launch(
            define("j", grid=ANY),
            define("i", offset=f"j // {ranks}"),
            define("h", rank=ranks),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("c", offset=f"{8 * 32 * warps * chunks} * h - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            *before,
            when(f"l < {ranks}", *push),
            barrier("cluster"),
            *after,
            name=name,
            threads=32 * warps,
            grid=f"{ranks} * M",
            cluster=ranks,
            min_blocks=min_blocks,
            orders=(order("S6", "S8", "gs", scope="cluster"), order("S7", "S8", "zs", scope="cluster")),
        ),
        cluster={"gs": (ranks, slots), "zs": (ranks, slots)},
        registers=row_registers(chunks),
        types=ROW,
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
        "A: f32[N], B: f32[1]",
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
    thread. A block owns the sectors of the result that begin in its rows, less a sector: no sector has two writers but
    at the ends of rows. A row of the tile is a chunk longer than the tile, against conflicts of banks."""
    own, down, across = rows - PIECE, rows // 8, columns // 8
    threads = down * across
    return program(
        "X: bf16[M, N], Y: bf16[N, M]",
        launch(
            define("b", grid=ANY),
            define("d", lane=32, warp=threads // 32),
            define("r0", offset=f"{own} * (b % ((M + {own - 1}) // {own}))"),
            define("c0", offset=f"{columns} * (b // ((M + {own - 1}) // {own}))"),
            define("r", offset=f"r0 + 8 * (d // {across})"),
            define("c", offset=f"c0 + 8 * (d % {across})"),
            copy(
                "S0",
                "v[8 * a + e] = X[r + a, c + e]",
                "a < 8, e < 8",
                within=("0", "min(N - c, 8 * (M - r - a))"),
                other=0.0,
                access="funnel",
                types=TILE,
            ),
            each("S1", "a < 8, e < 8", "o[8 * e + a] = v[8 * a + e]", types=TILE),
            copy("S2", "t[c - c0 + e, r - r0 + a] = o[8 * e + a]", "e < 8, a < 8", access="aligned", types=TILE),
            barrier("block"),
            loop("k", columns * down // threads, *_result(own, down, threads // down)),
            name=name,
            threads=threads,
            min_blocks=min_blocks,
            grid=f"((M + {own - 1}) // {own}) * ((N + {columns - 1}) // {columns})",
            orders=(order("S2", "S3", "t"), order("S2", "S5", "t")),
        ),
        shared={"t": (columns, rows + 8)},
        registers={"v": (64,), "o": (64,), "w": (8,)},
        types=TILE,
    )


def _result(own: int, down: int, step: int) -> tuple[Node, ...]:
    """A chunk of a row of the result from the tile, and in front of the first sector of a row single elements."""
    return (
        define("j", offset=f"d // {down} + {step} * k"),
        when(
            "c0 + j < N",
            Lead(index="past", of=view("Y[c0 + j, r0]", TILE), bytes=2 * PIECE),
            define("begin", offset=f"({PIECE} - past) % {PIECE}"),
            define("x", offset=f"begin + 8 * (d % {down})"),
            when(
                f"d % {down} < {own // 8}",
                copy("S3", "w[e] = t[j, x + e]", "e < 8", access="funnel", types=TILE),
                copy(
                    "S4",
                    "Y[c0 + j, r0 + x + e] = w[e]",
                    "e < 8",
                    within=("0", "M - r0 - x"),
                    access="aligned",
                    types=TILE,
                ),
            ),
            when(
                f"r0 + d % {down} == 0",
                copy("S5", "Y[c0 + j, e] = t[j, e]", f"e < {PIECE}", within=("0", "min(begin, M)"), types=TILE),
            ),
        ),
    )
