"""Hand-built launches with every kind of synchronisation, each right; tests take them as they are, or spoil them."""

from graphs import copy, define, do, launch, loop, once, part, parts, program

from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Barrier,
    Commit,
    End,
    Fence,
    FenceKind,
    Pipe,
    PipeKind,
    Release,
    Wait,
)

INITIALISED = (once(Fence(kind=FenceKind.BARRIER_INIT)), Barrier(scope=Scope.BLOCK))


def ring(stages: int) -> MappedProgram:
    """Rows of A go through a ring of tiles from the thread that copies to the threads that sum them."""
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
