"""Kernels that are bound by memory, written by hand as values: rows in registers, sums in one launch, a transpose.

Chunks of 16 bytes are counted from a line of 128 bytes of memory, so rows of any length at any address are read and
written in whole chunks; the elements before a row and behind it are masked.
"""

from functools import partial

from graphs import barrier, copy, define, do, each, last, launch, loop, order, program, reduce, view, when

from texpr.grammar.types import BF16, F32
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Lead, Node

LINE = 128  # bytes


def softmax(warps: int, chunks: int) -> MappedProgram:
    """A block a row, `chunks` chunks of 8 elements in the registers of each thread, and one barrier."""
    row = softmax_row("S", warps, chunks, "c", slots=warps)
    meet: tuple[Node, ...] = (
        when("l == 0", do("S5", "gs[w] = g[0]", types=ROW), do("S6", "zs[w] = z[0]", types=ROW)),
        barrier("block"),
    )
    return program(
        "X: bf16[M, N], Y: bf16[M, N]",
        launch(
            define("i", grid=1 << 20),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("c", offset="0 - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            *row[0],
            *meet,
            *row[1],
            threads=32 * warps,
            grid="M",
            orders=(order("S5", "S7", "gs"), order("S6", "S7", "zs")),
        ),
        shared={"gs": (warps,), "zs": (warps,)},
        registers=row_registers(chunks),
        types=ROW,
    )


ROW = dict.fromkeys(("X", "Y", "v", "o"), BF16) | dict.fromkeys(("m", "r", "p", "s", "g", "z", "gs", "zs", "f"), F32)


def row_registers(chunks: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("v", "p", "o"), (8 * chunks,)) | dict.fromkeys(("m", "r", "s", "g", "z", "f"), (1,))


def softmax_row(
    prefix: str, warps: int, chunks: int, c: str, *, slots: int, own: str = ""
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """What a thread does with its part of a row before the partial results of `slots` warps meet, and after."""
    step = 8 * 32 * warps
    wanted = (f"0 - {c} - {step} * q", f"N - {c} - {step} * q")
    over = f"q < {chunks}, e < 8"
    every = f"x < {8 * chunks}"
    moved = partial(copy, over=over, within=wanted, access="aligned", types=ROW)
    before = (
        moved(f"{prefix}0", f"v[8 * q + e] = X[i, {c} + {step} * q + e]", other=float("-inf")),
        reduce(f"{prefix}1", "m[0]", "Greatest", "f32(v[x])", over=every, types=ROW),
        do(f"{prefix}2", "r[0] = select(m[0] == -inf, 0.0, m[0])", types=ROW),
        each(f"{prefix}3", every, "p[x] = exp(f32(v[x]) - r[0])", types=ROW),
        reduce(f"{prefix}4", "s[0]", "Sum", "p[x]", over=every, types=ROW),
        reduce(f"{prefix}L", "g[0]; z[0]", "ScaledSum", "m[0]", "s[0]", lanes=32, lift=False, types=ROW),
    )
    after = (
        reduce(
            f"{prefix}7",
            "g[0]; z[0]",
            "ScaledSum",
            f"gs[{own}y]",
            f"zs[{own}y]",
            over=f"y < {slots}",
            lift=False,
            last=True,
            types=ROW,
        ),
        do(f"{prefix}8", "f[0] = select(m[0] == -inf, 0.0, exp(m[0] - g[0])) / z[0]", types=ROW),
        each(f"{prefix}9", every, "o[x] = bf16(p[x] * f[0])", types=ROW),
        moved(f"{prefix}10", f"Y[i, {c} + {step} * q + e] = o[8 * q + e]"),
    )
    return before, after


SUM = dict.fromkeys(("A", "B", "v", "s", "t", "ws", "vs", "p"), F32)


def ticket_sum(warps: int, chunks: int, blocks: int) -> MappedProgram:
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
                loop(
                    "k",
                    -(-blocks // threads),
                    when(f"i + {threads} * k < {blocks}", do("S8", f"s[0] += p[i + {threads} * k]", types=SUM)),
                ),
                *_of_block("S9", "S10", "S11", "vs", warps),
                do("S12", "B[0] = t[0]", once=True, types=SUM),
            ),
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
    return (
        reduce(lanes, "s[0]", "Sum", "s[0]", lanes=32, lift=False, types=SUM),
        when("l == 0", do(put, f"{slots}[w] = s[0]", types=SUM)),
        barrier("block"),
        reduce(get, "t[0]", "Sum", f"{slots}[y]", over=f"y < {warps}", lift=False, last=True, types=SUM),
    )


def cluster_softmax(ranks: int, warps: int, chunks: int) -> MappedProgram:
    """A cluster of blocks a row, each with a share of its chunks; every warp tells all blocks its greatest and sum."""
    width = 8 * 32 * warps * chunks  # elements of a block's share
    row = softmax_row("S", warps, chunks, "c", slots=ranks * warps, own="h, ")
    push = (
        do("S5", f"gs[l, {warps} * h + w] = g[0]", types=ROW),
        do("S6", f"zs[l, {warps} * h + w] = z[0]", types=ROW),
    )
    return program(
        "X: bf16[M, N], Y: bf16[M, N]",
        launch(
            define("j", grid=1 << 20),
            define("i", offset=f"j // {ranks}"),
            define("h", rank=ranks),
            Lead(index="lead", of=view("X[i, 0]", ROW), bytes=LINE),
            define("c", offset=f"{width} * h - lead", weight=8, lane=32, warp=warps),
            define("l", lane=32),
            define("w", warp=warps),
            barrier("cluster", action="arrive", name="begun"),
            *row[0],
            barrier("cluster", action="wait", name="begun"),
            when(f"l < {ranks}", *push),
            barrier("cluster"),
            *row[1],
            threads=32 * warps,
            grid=f"{ranks} * M",
            cluster=ranks,
            orders=(order("S5", "S7", "gs", scope="cluster"), order("S6", "S7", "zs", scope="cluster")),
        ),
        cluster={"gs": (ranks, ranks * warps), "zs": (ranks, ranks * warps)},
        registers=row_registers(chunks),
        types=ROW,
    )
