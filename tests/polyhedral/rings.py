"""Hand-built launches with every kind of synchronisation, each right; tests take them as they are, or spoil them.

Each has a function that makes it and is in `GRAPHS` with arrays to run on and what they hold afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from graphs import barrier, copy, define, do, index, last, launch, loop, once, part, parts, program, when

from texpr.grammar.index.value import index_value
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Init, Publish, TriggerNext, Turn, Words
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
        launch(*body, threads=96, pipes=(pipe,)),
        shared={"a": (64,)},
        registers={"s": (1,)},
    )


def multicast(stages: int) -> MappedProgram:
    """Two blocks of a cluster: each copies half of a row to both, and both sum whole rows. Releases go to both."""
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
        "A: i32[K, 64], B: i32[2, 32]",
        launch(*body, threads=64, grid=2, cluster=2, pipes=(pipe,)),
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
        loop("q", "K", Wait(pipe="ring"), do("S1", "B[q, j] = a[j]"), Release(pipe="ring")),
    )
    body = (*INITIALISED, parts(part("make", 1, *make), part("use", 1, *use)))
    return program("A: i32[K, 32], B: i32[K, 32]", launch(*body, threads=64, pipes=(pipe,)), shared={"a": (32,)})


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
    begin = (loop("p", ahead, when("p < K", *fetch("p", "S0"))),) if ahead else ()
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
        launch(*body, threads=64, pipes=(pipe,)),
        shared={"a": (64,)},
        registers={"s": (1,)},
    )


def groups() -> MappedProgram:
    """Rows are copied two ahead in groups of each thread, and a tile of results is stored behind the threads' backs."""

    def fetch(row: str, id: str) -> tuple[Any, ...]:
        move = copy(id, f"a[({row}) % 3, i] = A[{row}, i]", completion="cp_async")
        return when(f"{row} < K", move), Close(kind=GroupKind.CP_ASYNC)

    store = copy("S5", "B[k, x] = b[x]", over="x < 32", completion="bulk")
    body = (
        define("i", lane=32),
        *fetch("0", "S0"),
        *fetch("1", "S1"),
        loop(
            "k",
            "K",
            *fetch("k + 2", "S2"),
            WaitGroup(kind=GroupKind.CP_ASYNC, behind=2),
            once(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
            barrier("block"),
            do("S3", "b[i] = a[k % 3, 31 - i]"),
            Fence(kind=FenceKind.ASYNC_PROXY),
            barrier("block"),
            once(store, Close(kind=GroupKind.BULK)),
        ),
        once(WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
    )
    return program(
        "A: i32[K, 32], B: i32[K, 32]",
        launch(*body, threads=32),
        shared={"a": (3, 32), "b": (32,)},
    )


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
    return program("A: i32[32], B: i32[32]", launch(*body, threads=64), shared={"a": (32,), "b": (32,)})


def exchanged() -> MappedProgram:
    """Blocks of a cluster write into one another's memory, and arrive and wait for one another apart."""
    body = (
        define("i", lane=32),
        define("r", rank=2),
        do("S0", "t[1 - r, i] = A[r, i]"),
        barrier("cluster", action="arrive"),
        do("S1", "s[0] = A[r, i]"),
        barrier("cluster", action="wait"),
        do("S2", "B[r, i] = t[r, 31 - i] + s[0]"),
    )
    return program(
        "A: i32[2, 32], B: i32[2, 32]",
        launch(*body, threads=32, grid=2, cluster=2),
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
        launch(*body, threads=32, grid="N"),
        words=(
            Words(name="turns", shape=(), init=Init.ZERO_EACH_CALL),
            Words(name="done", shape=(index("N"),), init=Init.ZERO_EACH_CALL),
        ),
    )


def ticket() -> MappedProgram:
    """Every block leaves a partial sum; the last to come adds them, and leaves the counter at 0."""
    body = (
        define("i", lane=32),
        define("b", grid=1 << 20),
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
        launch(*body, threads=32, grid="N"),
        workspace={"p": ("N", 32)},
        registers={"s": (1,)},
        words=(Words(name="tickets", shape=(), init=Init.ZERO_ONCE),),
    )


def two_passes() -> MappedProgram:
    """All blocks of a cooperative launch write, meet, and read what their neighbours wrote."""
    body = (
        define("i", lane=32),
        define("b", grid=1 << 20),
        do("S0", "p[b, i] = A[b, i]"),
        GridBarrier(),
        do("S1", "B[b, i] = p[N - 1 - b, i]"),
    )
    return program("A: i32[N, 32], B: i32[N, 32]", launch(*body, threads=32, grid="N"), workspace={"p": ("N", 32)})


def overlapping() -> MappedProgram:
    """The second launch begins before the first is over, and waits for it where it reads what the first wrote."""
    first = launch(
        define("i", lane=32),
        define("b", grid=1 << 20),
        TriggerNext(),
        do("S0", "p[b, i] = A[b, i]"),
        threads=32,
        grid="N",
        name="first",
    )
    second = launch(
        define("i", lane=32),
        define("b", grid=1 << 20),
        do("S1", "s[0] = A[b, i]"),
        AfterLaunch(),
        do("S2", "B[b, i] = p[N - 1 - b, i] + s[0]"),
        threads=32,
        grid="N",
        name="second",
    )
    return program("A: i32[N, 32], B: i32[N, 32]", first, second, workspace={"p": ("N", 32)}, registers={"s": (1,)})


@dataclass(frozen=True)
class Graph:
    """A program with the sizes that its arrays give it, and the function that says what it computes."""

    program: MappedProgram
    sizes: dict[str, int]
    result: str
    expected: Callable[[Any], Any]

    def arrays(self) -> dict[str, Any]:
        found = {}
        for buffer in self.program.kernel.params:
            shape = tuple(int(index_value(e, self.sizes)) for e in buffer.shape)
            found[buffer.name] = np.zeros(shape, np.int32)
        found["A"] = np.random.default_rng(1).integers(-99, 99, found["A"].shape).astype(np.int32)
        return found


def _swapped(a: Any) -> Any:
    return a.sum(0)[None, :32] + a.sum(0)[None, :31:-1] + np.zeros((2, 1), np.int32)


GRAPHS = {
    **{f"ring {n}": Graph(ring(n), {"K": 5}, "B", lambda a: a.sum(0)[::-1]) for n in (1, 2, 3, 4)},
    **{f"multicast {n}": Graph(multicast(n), {"K": 5}, "B", _swapped) for n in (1, 2, 3, 4)},
    **{f"handed on {n}": Graph(handed_on(n), {"K": 5}, "B", lambda a: 2 * a[:, ::-1]) for n in (1, 2, 3)},
    **{f"staged {n}": Graph(staged(n), {"K": 5}, "B", lambda a: a.sum(0)[::-1]) for n in (1, 2, 3, 4)},
    "groups": Graph(groups(), {"K": 5}, "B", lambda a: a[:, ::-1]),
    "named": Graph(named(), {}, "B", lambda a: a + 1),
    "exchanged": Graph(exchanged(), {}, "B", lambda a: a[::-1, ::-1] + a),
    "look-back": Graph(look_back(), {"N": 6}, "P", lambda a: a.cumsum(0)),
    "ticket": Graph(ticket(), {"N": 6}, "B", lambda a: a.sum(0)[::-1]),
    "two passes": Graph(two_passes(), {"N": 6}, "B", lambda a: a[::-1]),
    "overlapping": Graph(overlapping(), {"N": 6}, "B", lambda a: a[::-1] + a),
}
