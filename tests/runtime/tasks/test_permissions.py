"""Permissions and accesses: what allows what, how several fold, what an access brings, and what a child may do."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from test_tensors import refused

from texpr.runtime.tasks.grants import check_within, grants
from texpr.runtime.tasks.permissions import (
    ALLOWS,
    EFFECT,
    FOLD,
    WITHIN,
    Effect,
    Mode,
    Right,
    accumulate,
    may_accumulate,
    may_read,
    may_read_write,
    may_write,
    read,
    read_write,
    temp,
    write,
)
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Tensor

MAY = (may_read, may_write, may_read_write, may_accumulate)
DO = (read, write, read_write, accumulate, temp)


def tensor(name: str = "A") -> Tensor:
    return Tensor(name, (tiled(6, 2),))


def test_each_access_needs_a_permission_that_allows_it() -> None:
    a = tensor()
    allowed = {(m, d) for m, d in product(MAY, DO) if not _fails([m(a), d(a.block((1,)))])}
    exclusive = {(m, d) for m in (may_write, may_read_write) for d in DO}
    assert allowed == exclusive | {
        (may_read, read),
        (may_accumulate, accumulate),
        (may_read, temp),
        (may_accumulate, temp),
    }
    refused(
        "E0704",
        "task gemm: `write` of A[1], but the task may only read it",
        lambda: grants("task gemm", [may_read(a[0:2]), write(a.block((1,)))]),
    )


def _fails(declared: Sequence[Any]) -> bool:
    try:
        grants("task", declared)
    except Exception:
        return True
    return False


def test_several_permissions_on_a_block_fold_to_one() -> None:
    a = tensor()
    block = a.block((0,))
    for first, second in product(range(4), repeat=2):
        folded = grants("task", [MAY[first](block), MAY[second](block)]).blocks[block]
        kinds = {EFFECT[Right(first)], EFFECT[Right(second)]}
        assert EFFECT[folded] == (kinds.pop() if len(kinds) == 1 else Effect.WRITE)
        assert ALLOWS[folded] >= ALLOWS[Right(first)] | ALLOWS[Right(second)]
        assert FOLD[Right(first)][Right(second)] is FOLD[Right(second)][Right(first)] is folded


def test_slices_and_whole_tensors_fold_with_blocks() -> None:
    a, b = tensor(), tensor("B")
    found = grants("task", [may_read(a), may_accumulate(a[1:3]), may_read(b[:]), read(b.block((0,)))])
    assert not found.blocks.keys() & set(b.blocks()) and found.whole == {b: Right.READ}
    assert {block.number: right for block, right in found.blocks.items()} == {
        0: Right.READ,
        1: Right.READ_WRITE,
        2: Right.READ_WRITE,
    }
    within = grants("task", [may_write(a), may_accumulate(a[1:3])])
    assert within.whole == {a: Right.WRITE} and not within.blocks


def test_an_access_brings_its_permission_where_none_is_declared() -> None:
    a, b = tensor(), tensor("B")
    found = grants("task", [may_read(b), read(b.block((2,))), accumulate(a.block((0,))), temp(a.block((1,)))])
    assert found.blocks == {a.block((0,)): Right.ACCUMULATE} and found.whole == {b: Right.READ}
    alone = grants("task", [write(a.block((0,))), read(a.block((1,)))])
    assert alone.blocks == {a.block((0,)): Right.WRITE, a.block((1,)): Right.READ}


def test_a_block_keeps_one_access_of_each_mode() -> None:
    a, b = tensor().blocks(), tensor("B").block((0,))
    first, second, _ = a
    for make, mode in zip(DO[:4], Mode, strict=False):
        assert make(first) is make(first) == (mode, first, False) and make(second) == (mode, second, False)
    assert write(first, cancellable=True) == (Mode.WRITE, first, True) and write(first) == (Mode.WRITE, first, False)
    declared = (read(first), read_write(b))
    assert list(grants("t", declared).touched) == [(Mode.READ, first, False), (Mode.READ_WRITE, b, False)]
    permitted = grants("t", [may_read(first), *declared])
    assert permitted.touched == [(Right.READ, first, False), (Right.READ_WRITE, b, False)] and permitted.blocks == {
        first: Right.READ, b: Right.READ_WRITE,
    }  # fmt: skip


def test_wrong_declarations_are_refused() -> None:
    a = tensor()
    zero = Tensor("Z", (tiled(4, 2),), zero=lambda i: i == 1)
    block = a.block((0,))
    refused("E0703", "task t declares a int, no permission and no access", lambda: grants("task t", [3]))
    refused("E0703", "task t declares two accesses to A[0]", lambda: grants("task t", [read(block), write(block)]))
    both = [may_read_write(a), read(block), write(block)]
    refused("E0703", "task t declares two accesses to A[0]", lambda: grants("task t", both))
    refused("E0703", "an access is on one block, not on A[0:2]", lambda: read(a[0:2]))
    refused("E0703", "an access is on one block, not on a str", lambda: accumulate("A"))  # type: ignore[arg-type]  # so
    refused("E0703", "a permission is on a tensor, a slice or a block", lambda: may_read([a]))  # type: ignore[arg-type]  # so
    refused("E0709", "Z[1] is a zero block, and cannot be declared `write`", lambda: write(zero.block((1,))))
    assert read(zero.block((1,))).mode is Mode.READ


def test_a_child_may_do_no_more_than_its_parent() -> None:
    a, b = tensor(), tensor("B")
    for outer, inner in product(range(4), repeat=2):
        parent, child = grants("p", [MAY[outer](a[0:2])]), grants("c", [MAY[inner](a.block((1,)))])
        if EFFECT[Right(inner)] in WITHIN[EFFECT[Right(outer)]]:
            check_within("task c", child, "task p", parent)
        else:
            refused("E0705", "but its parent task p may only", lambda: check_within("task c", child, "task p", parent))  # noqa: B023 -- called at once
    parent = grants("p", [may_write(a[0:2]), may_write(a[2:3]), may_read(b)])
    check_within("task c", grants("c", [may_read(a), may_read(b)]), "task p", parent)
    refused(
        "E0705",
        "task c would write A[2], but its parent task p has no permission on it",
        lambda: check_within("task c", grants("c", [may_write(a)]), "task p", grants("p", [may_write(a[0:2])])),
    )
    refused(
        "E0705",
        "task c would accumulate into B[0], but its parent task p may only read it",
        lambda: check_within("task c", grants("c", [accumulate(b.block((0,)))]), "task p", parent),
    )


def test_a_parent_that_reads_has_only_readers_below_it() -> None:
    assert {outer: set(inner) for outer, inner in WITHIN.items()} == {
        Effect.READ: {Effect.READ},
        Effect.WRITE: set(Effect),
        Effect.ACCUMULATE: {Effect.ACCUMULATE},
    }
