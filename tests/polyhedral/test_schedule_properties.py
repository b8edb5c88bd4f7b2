"""Moves forced on random programs: the rule of the move, the check of schedules and an enumeration say the same."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from random_nests import random_nests
from schedule_oracle import keeps, moves
from stages import program

from texpr.grammar.ast import Kernel
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Move
from texpr.polyhedral.program import Program
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.check import check
from texpr.polyhedral.schedule.legal import violation
from texpr.polyhedral.schedule.origins import composed

MANY = int(os.environ.get("MOVES", "0"))  # programs; a few in CI
SIZES = range(4)


def programs(count: int, *, free: bool) -> Iterator[tuple[int, Program]]:
    """Programs that are legal, with their seeds."""
    for seed in range(count):
        try:
            found = program(random_nests(seed, free=free))
            prove(found)
        except TExprError:
            continue
        yield seed, found


def environments(kernel: Kernel) -> list[dict[str, int]]:
    names = [size.name for size in kernel.sizes]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(SIZES, repeat=len(names))]


def same_results(before: Kernel, after: Kernel, sizes: dict[str, int], seed: int) -> None:
    """Both kernels compute the same, bit by bit."""
    chance = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for buffer in before.params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        arrays[buffer.name] = chance.integers(-3, 4, shape).astype(np.float32)
    want, got = (interpret(k, arrays, mode="exact", sizes=sizes, seed=seed).outputs for k in (before, after))
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=f"{seed}: {name}")


def said_by_all(before: Program, move: Move, seed: int) -> tuple[bool, bool, list[str | None]] | None:
    """What the rule, the check and the enumeration say of a move; None where it does not fit."""
    before = build_program(before.kernel)  # every move with the steps of a compilation of its own
    try:
        found = moved(before, move)
        after = build_program(found.kernel, beside=before)
    except TExprError as refused:
        assert {d.code for d in refused.diagnostics} <= {"E0404", "E0306"}, refused
        return None
    rule, fault = violation(before, move) is None, check(before, after, found.origins) is None
    said = [keeps(before.kernel, found.kernel, found.origins, sizes) for sizes in environments(before.kernel)]
    if not rule and not any(said):  # it takes more iterations to see
        names = [size.name for size in before.kernel.sizes]
        said += [keeps(before.kernel, found.kernel, found.origins, dict.fromkeys(names, n)) for n in (4, 5, 7)]
    if rule:
        sizes = dict.fromkeys((size.name for size in before.kernel.sizes), 3)
        same_results(before.kernel, found.kernel, sizes, seed)
    return rule, fault, said


@pytest.mark.parametrize("free", [False, True], ids=["bound", "free"])
def test_the_rule_the_check_and_an_enumeration_agree_on_every_move(free: bool) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    for seed, found in programs(MANY or (24 if free else 40), free=free):
        chance = random.Random(seed)
        possible = list(moves(found.kernel))
        for move in possible if MANY else chance.sample(possible, min(len(possible), 14)):
            verdicts = said_by_all(found, move, seed)
            if verdicts is None:
                continue
            rule, checked, said = verdicts
            wrong = next((s for s in said if s is not None), None)
            assert rule == checked, (seed, move, rule, checked, wrong)
            assert rule == (wrong is None), (seed, move, rule, wrong)
            counts[type(move).__name__, rule] += 1
    if MANY:
        print(counts)
    assert sum(counts[kind, True] for kind, _ in counts) > 30, counts
    assert sum(counts[kind, False] for kind, _ in counts) > 10, counts


def test_a_schedule_of_several_moves_is_checked_as_one() -> None:
    made = 0
    for seed, found in programs(MANY or 12, free=True):
        chance = random.Random(seed)
        now, origins, count = found, dict[str, Any](), 0
        for _ in range(12):
            possible = list(moves(now.kernel))
            if not possible or count == 4:
                break
            move = chance.choice(possible)
            try:
                step = moved(now, move)
                after = build_program(step.kernel, beside=now)
            except TExprError:
                continue
            if violation(now, move) is None:
                now, origins, count = after, dict(composed(origins, step.origins)), count + 1
        if count > 1:
            made += 1
            prove(now)
            try:
                assert check(found, now, origins) is None, seed
            except TExprError as limit:  # of many remainders at once
                assert {d.code for d in limit.diagnostics} == {"E0307"}, seed
            for sizes in environments(found.kernel):
                assert keeps(found.kernel, now.kernel, origins, sizes) is None, seed
            same_results(found.kernel, now.kernel, dict.fromkeys((s.name for s in found.kernel.sizes), 3), seed)
    assert made >= 3
