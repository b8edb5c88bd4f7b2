"""Threads of a block as bits: masks, counts and values are what they are thread by thread."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from texpr.grammar.ast import And, Compare, CompareOp, Condition, IndexBinary, IndexConst, IndexOp, IndexVar, Not, Or
from texpr.grammar.index.points import Points
from texpr.grammar.index.value import condition_value, index_value
from texpr.polyhedral.orders.threads import Mask, Values, at, no_counts, over, span

THREADS = 96
masks = st.integers(0, (1 << THREADS) - 1).map(lambda bits: Mask(bits, THREADS))
few = st.lists(st.integers(0, THREADS - 1), max_size=5).map(lambda own: Mask(sum(1 << t for t in {*own}), THREADS))


@given(masks | few, masks | few, st.sampled_from((1, 32, 48, 64, 96, 128)))
def test_masks_are_sets_of_threads(one: Mask, other: Mask, width: int) -> None:
    a, b = {*one}, {*other}
    assert a == {t for t in range(THREADS) if one[t]} and list(one) == sorted(a) and one.count == len(a)
    assert {*(one & other)} == a & b and {*one.without(other)} == a - b and one.any() == bool(a)
    assert one.first == min(a, default=0) and (not a or {*one.alone()} == {min(a)})
    groups = [range(first, min(first + width, THREADS)) for first in range(0, THREADS, width)]
    assert [{*group} for group in one.groups(width)] == [a & {*group} for group in groups]
    assert one.reached(width) == sum(bool(a & {*group}) for group in groups)
    assert one.in_part(width) == sum(bool(a & {*group}) and not a >= {*group} for group in groups)


@given(st.lists(masks | few, max_size=8), masks | few)
def test_counts_are_those_of_each_thread(steps: list[Mask], asked: Mask) -> None:
    counts, each = no_counts(THREADS), [0] * THREADS
    for who in steps:
        counts.step(who)
        for thread in who:
            each[thread] += 1
    assert [counts.at(thread) for thread in range(THREADS)] == each
    assert counts.of(asked) == sorted(Counter(each[thread] for thread in asked).items())
    again = no_counts(THREADS)
    for who in reversed(steps):
        again.step(who)
    assert again.by_number == counts.by_number  # equal counts are equal, whatever came first


def test_values_and_conditions_are_those_of_each_thread() -> None:
    lane, k = IndexVar(name="lane"), IndexVar(name="k")
    product = IndexBinary(op=IndexOp.MUL, left=lane, right=k)
    quotient = IndexBinary(op=IndexOp.DIV, left=product, right=IndexBinary(op=IndexOp.SUB, left=k, right=lane))
    less = Compare(op=CompareOp.LT, left=quotient, right=IndexConst(value=3))
    alike = Compare(op=CompareOp.EQ, left=k, right=IndexConst(value=2))
    conditions: list[Condition] = [
        less,
        alike,
        And(parts=(less, alike)),
        Or(parts=(less, alike)),
        Not(part=less),
        Not(part=alike),
    ]
    lanes, known = Points(tuple(t % 32 for t in range(THREADS))), Values(THREADS)
    for turn in (0, 1, 2, 5, 2, 0):  # some twice: what is known is the same
        values = {"lane": lanes, "k": turn}
        own = [{"lane": t % 32, "k": turn} for t in range(THREADS)]
        everyone = span(0, THREADS, THREADS)
        assert list(at(known.of(quotient, values), everyone)) == [index_value(quotient, one) for one in own]
        assert known.of(k, values) == turn
        assert {*over(lanes, turn, everyone)} == {t for t in range(THREADS) if t % 32 > turn}
        for condition in conditions:
            found = known.holds(condition, values)
            each = [condition_value(condition, one) for one in own]
            assert each == ([found] * THREADS if isinstance(found, bool) else [found[t] for t in range(THREADS)])
