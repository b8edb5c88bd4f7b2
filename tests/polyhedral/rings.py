"""Hand-built launches with pipes and groups: copies on their way while others are used."""

from typing import Any

from graphs import barrier, copy, define, do, launch, loop, once, order, part, parts, program, when

from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Close,
    Commit,
    End,
    Fence,
    FenceKind,
    GroupKind,
    Pipe,
    PipeKind,
    Release,
    Until,
    Wait,
    WaitGroup,
)

INITIALISED = (once(Fence(kind=FenceKind.BARRIER_INIT)), barrier("block"))
INITIALISED_CLUSTER = (once(Fence(kind=FenceKind.BARRIER_INIT)), barrier("cluster"))


def ring(stages: int) -> MappedProgram:
    """Rows of A go through a ring of tiles, from the thread that copies them to the threads that sum them."""
    pipe = Pipe(
        name="ring",
        stages=stages,
        kind=PipeKind.TRANSACTION,
        scope=Scope.BLOCK,
        buffers=("a",),
        producers=(End(part="load"),),
        consumers=(End(part="sum"),),
        commits=1,
        releases=64,
        bytes=64 * 4,
    )
    load = once(
        loop(
            "k",
            "K",
            Acquire(pipe="ring"),
            copy("S0", "a[x] = A[k, x]", over="x < 64", completion="transaction", pipe="ring"),
            Commit(pipe="ring"),
        )
    )
    sum_rows = (
        define("i", lane=32, warp=2),
        do("S1", "s[0] = 0"),
        loop("k", "K", Wait(pipe="ring"), do("S2", "s[0] += a[63 - i]"), Release(pipe="ring")),
        do("S3", "B[i] = s[0]"),
    )
    body = (*INITIALISED, parts(part("load", 1, load), part("sum", 2, *sum_rows)))
    return program(
        "A: i32[K, 64], B: i32[64]",
        launch(
            *body,
            threads=96,
            pipes=(pipe,),
            orders=(order("S0", "S2", "a"), order("S2", "S0", "a", "anti", after="k", distance=stages)),
        ),
        shared={"a": (64,)},
        registers={"s": (1,)},
    )


def multicast(stages: int, width: str = "64") -> MappedProgram:
    """Two blocks of a cluster: each copies half of a row to both, and both sum whole rows. Releases go to both. Of
    wider arrays they sum the first 64 columns."""
    both = ((0, 1), (0, 1))
    pipe = Pipe(
        name="ring",
        stages=stages,
        kind=PipeKind.TRANSACTION,
        scope=Scope.CLUSTER,
        buffers=("a",),
        producers=(End(part="load", ranks=both),),
        consumers=(End(part="sum", ranks=both),),
        commits=1,
        releases=64,
        bytes=64 * 4,
    )
    load = once(
        define("r", rank=2),
        loop(
            "k",
            "K",
            Acquire(pipe="ring"),
            copy("S0", "a[32 * r + x] = A[k, 32 * r + x]", over="x < 32", completion="transaction", pipe="ring"),
            Commit(pipe="ring"),
        ),
    )
    sum_rows = (
        define("i", lane=32),
        define("q", rank=2),
        do("S1", "s[0] = 0"),
        loop("k", "K", Wait(pipe="ring"), do("S2", "s[0] += a[i] + a[63 - i]"), Release(pipe="ring")),
        do("S3", "B[q, i] = s[0]"),
    )
    body = (*INITIALISED_CLUSTER, parts(part("load", 1, load), part("sum", 1, *sum_rows)), barrier("cluster"))
    return program(
        f"A: i32[K, {width}], B: i32[2, 32]",
        launch(
            *body,
            threads=64,
            grid=2,
            cluster=2,
            pipes=(pipe,),
            orders=(
                order("S0", "S2", "a", scope="cluster"),
                order("S2", "S0", "a", "anti", "cluster", after="k", distance=stages),
            ),
        ),
        shared={"a": (64,)},
        registers={"s": (1,)},
    )


def handed_on(stages: int) -> MappedProgram:
    """One part computes elements for another, which passes each on one turn later."""
    pipe = Pipe(
        name="ring",
        stages=stages,
        kind=PipeKind.ARRIVE,
        scope=Scope.BLOCK,
        buffers=("a",),
        producers=(End(part="make"),),
        consumers=(End(part="use"),),
        commits=32,
        releases=32,
    )
    make = (
        define("i", lane=32),
        loop("k", "K", Acquire(pipe="ring"), do("S0", "a[31 - i] = A[k, i] * 2"), Commit(pipe="ring")),
    )
    use = (
        define("j", lane=32),
        loop("k", "K", Wait(pipe="ring"), do("S1", "B[k, j] = a[j]"), Release(pipe="ring")),
    )
    body = (*INITIALISED, parts(part("make", 1, *make), part("use", 1, *use)))
    return program(
        "A: i32[K, 32], B: i32[K, 32]",
        launch(
            *body,
            threads=64,
            pipes=(pipe,),
            orders=(order("S0", "S1", "a"), order("S1", "S0", "a", "anti", after="k", distance=stages)),
        ),
        shared={"a": (32,)},
    )


def staged(stages: int) -> MappedProgram:
    """The threads that copy rows are those that read them, `stages - 1` rows later; barriers order the slots' reuse."""
    pipe = Pipe(
        name="ring",
        stages=stages,
        kind=PipeKind.CP_ASYNC,
        scope=Scope.BLOCK,
        buffers=("a",),
        producers=(End(),),
        consumers=(End(),),
        commits=64,
        releases=0,
    )

    def fetch(row: str, id: str) -> tuple[Any, ...]:
        move = copy(id, f"a[i] = A[{row}, i]", completion="cp_async", pipe="ring")
        return Acquire(pipe="ring"), move, Commit(pipe="ring")

    ahead = stages - 1
    begin = (loop("k", ahead, when("k < K", *fetch("k", "S0"))),) if ahead else ()
    early = (order("S0", "S3", "a"),) if ahead else ()
    later = order("S2", "S3", "a", after="k", distance=ahead) if ahead else order("S2", "S3", "a")
    body = (
        *INITIALISED,
        define("i", lane=32, warp=2),
        *begin,
        do("S1", "s[0] = 0"),
        loop(
            "k",
            "K",
            when(f"k + {ahead} < K", *fetch(f"k + {ahead}", "S2")),
            Wait(pipe="ring"),
            do("S3", "s[0] += a[63 - i]"),
            barrier("block"),
        ),
        do("S4", "B[i] = s[0]"),
    )
    return program(
        "A: i32[K, 64], B: i32[64]",
        launch(
            *body,
            threads=64,
            pipes=(pipe,),
            orders=(*early, later, order("S3", "S2", "a", "anti", after="k")),
        ),
        shared={"a": (64,)},
        registers={"s": (1,)},
    )


def groups() -> MappedProgram:
    """Rows are copied two ahead in groups of each thread, and a tile of results is stored behind the threads' backs."""

    def fetch(row: str, id: str) -> tuple[Any, ...]:
        move = copy(id, f"a[({row}) % 3, i] = A[{row}, i]", completion="cp_async")
        return when(f"{row} < K", move), Close(kind=GroupKind.CP_ASYNC)

    store = copy("S3", "B[k, x] = b[x]", over="x < 32", completion="bulk")
    body = (
        define("i", lane=32),
        loop("k", 2, *fetch("k", "S0")),
        loop(
            "k",
            "K",
            *fetch("k + 2", "S1"),
            WaitGroup(kind=GroupKind.CP_ASYNC, behind=2),
            once(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
            barrier("block"),
            do("S2", "b[i] = a[k % 3, 31 - i]"),
            Fence(kind=FenceKind.ASYNC_PROXY),
            barrier("block"),
            once(store, Close(kind=GroupKind.BULK)),
        ),
        once(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
    )
    return program(
        "A: i32[K, 32], B: i32[K, 32]",
        launch(
            *body,
            threads=32,
            orders=(
                order("S0", "S2", "a"),
                order("S1", "S2", "a", after="k", distance=2),
                order("S2", "S1", "a", "anti", after="k"),
                order("S2", "S3", "b"),
                order("S3", "S2", "b", "anti", after="k"),
            ),
        ),
        shared={"a": (3, 32), "b": (32,)},
    )
