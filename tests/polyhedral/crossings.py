"""Hand-built launches whose parts, blocks and launches meet: named barriers, clusters, flags, tickets, overlap."""

from graphs import barrier, define, do, index, last, launch, loop, order, part, parts, program, when

from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Init, Publish, TriggerNext, Turn, Words
from texpr.polyhedral.mapped.program import MappedProgram


def named() -> MappedProgram:
    """One part fills a tile, arrives and goes on; the other waits for it, and the block for both."""
    left = (define("i", lane=32), do("S0", "a[i] = A[i]"), barrier("block", "left", "right", action="arrive"))
    right = (
        define("j", lane=32),
        barrier("block", "left", "right"),
        do("S1", "b[j] = a[31 - j]"),
    )
    body = (
        parts(part("left", 1, *left), part("right", 1, *right)),
        barrier("block"),
        define("e", lane=32, warp=2),
        when("e < 32", do("S2", "B[e] = b[31 - e] + 1")),
    )
    return program(
        "A: i32[32], B: i32[32]",
        launch(*body, threads=64, orders=(order("S0", "S1", "a"), order("S1", "S2", "b"))),
        shared={"a": (32,), "b": (32,)},
    )


def exchanged() -> MappedProgram:
    """Blocks of a cluster write into one another's memory, and arrive and wait for one another apart."""
    body = (
        define("i", lane=32),
        define("r", rank=2),
        barrier("cluster", relaxed=True),
        do("S0", "t[1 - r, i] = A[r, i]"),
        barrier("cluster", action="arrive"),
        do("S1", "s[0] = A[r, i]"),
        barrier("cluster", action="wait"),
        do("S2", "B[r, i] = t[r, 31 - i] + s[0]"),
    )
    return program(
        "A: i32[2, 32], B: i32[2, 32]",
        launch(*body, threads=32, grid=2, cluster=2, orders=(order("S0", "S2", "t", scope="cluster"),)),
        cluster={"t": (2, 32)},
        registers={"s": (1,)},
    )


def look_back() -> MappedProgram:
    """Running sums over blocks: each waits for the sum of the one that took the turn before."""
    body = (
        define("i", lane=32),
        Turn(counter="turns", index="t"),
        when(
            "t > 0",
            Await(flag="done", at=(index("t - 1"),)),
            do("S0", "P[t, i] = P[t - 1, i] + A[t, i]"),
            orelse=(do("S1", "P[t, i] = A[t, i]"),),
        ),
        Publish(flag="done", at=(index("t"),)),
    )
    return program(
        "A: i32[N, 32], P: i32[N, 32]",
        launch(
            *body,
            threads=32,
            grid="N",
            orders=(order("S0", "S0", "P", scope="grid", after="t"), order("S1", "S0", "P", scope="grid", after="t")),
        ),
        words=(
            Words(name="turns", shape=(), init=Init.ZERO_EACH_CALL),
            Words(name="done", shape=(index("N"),), init=Init.ZERO_EACH_CALL),
        ),
    )


def ticket() -> MappedProgram:
    """Every block leaves a partial sum; the last to come adds them, and leaves the counter at 0."""
    body = (
        define("i", lane=32),
        define("b", grid="N"),
        do("S0", "p[b, i] = A[b, i]"),
        last(
            "tickets",
            "N",
            do("S1", "s[0] = 0"),
            loop("q", "N", do("S2", "s[0] += p[q, 31 - i]")),
            do("S3", "B[i] = s[0]"),
        ),
    )
    return program(
        "A: i32[N, 32], B: i32[32]",
        launch(*body, threads=32, grid="N", orders=(order("S0", "S2", "p", scope="grid"),)),
        workspace={"p": ("N", 32)},
        registers={"s": (1,)},
        words=(Words(name="tickets", shape=(), init=Init.ZERO_ONCE),),
    )


def two_passes() -> MappedProgram:
    """All blocks of a cooperative launch write, meet, and read what their neighbours wrote."""
    body = (
        define("i", lane=32),
        define("b", grid="N"),
        do("S0", "p[b, i] = A[b, i]"),
        GridBarrier(counter="met"),
        do("S1", "B[b, i] = p[N - 1 - b, i]"),
    )
    return program(
        "A: i32[N, 32], B: i32[N, 32]",
        launch(*body, threads=32, grid="N", orders=(order("S0", "S1", "p", scope="grid"),)),
        workspace={"p": ("N", 32)},
        words=(Words(name="met", shape=(), init=Init.ZERO_ONCE),),
    )


def overlapping() -> MappedProgram:
    """The second launch begins before the first is over, and waits for it where it reads what the first wrote."""
    first = launch(
        define("i", lane=32),
        define("b", grid="N"),
        TriggerNext(),
        do("S0", "p[b, i] = A[b, i]"),
        threads=32,
        grid="N",
        name="first",
    )
    second = launch(
        define("i", lane=32),
        define("b", grid="N"),
        do("S1", "s[0] = A[b, i]"),
        AfterLaunch(),
        do("S2", "B[b, i] = p[N - 1 - b, i] + s[0]"),
        threads=32,
        grid="N",
        name="second",
        orders=(order("S0", "S2", "p", scope="grid"),),
    )
    return program("A: i32[N, 32], B: i32[N, 32]", first, second, workspace={"p": ("N", 32)}, registers={"s": (1,)})
