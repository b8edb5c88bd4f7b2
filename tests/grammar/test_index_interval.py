"""Intervals contain every value, whether their ends are integers or expressions."""

from hypothesis import given
from hypothesis import strategies as st
from index_expressions import expressions, meaning

from texpr.grammar.ast import IndexBinary, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import const, subtract
from texpr.grammar.index.interval import bounds, ends, greatest, index_range, of_numbers

spans = st.tuples(st.integers(-20, 20), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
inside = st.floats(0, 1)


def between(span, part):
    return round(span[0] + part * (span[1] - span[0]))


@given(st.sampled_from(IndexOp), spans, spans, inside, inside)
def test_of_numbers_contains_every_value(op, a, b, x, y):
    if op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV):
        b = (max(b[0], 0), max(b[1], 0))
    e = IndexBinary(op=op, left=const(between(a, x)), right=const(between(b, y)))
    low, high = of_numbers(op, a, b)
    assert low <= meaning(e, {}) <= high


@given(expressions, spans, spans, st.integers(1, 9), st.integers(1, 9), inside, inside)
def test_bounds_over_numbers_contain_every_value(e, i, j, n, m, x, y):
    """Sizes are at least 1 here: a symbolic bound takes divisors to be positive."""
    point = {"i": between(i, x), "j": between(j, y), "N": n, "M": m}
    ranges = {
        name: (const(low), const(high)) for name, (low, high) in (("i", i), ("j", j), ("N", (n, n)), ("M", (m, m)))
    }
    low, high = ends(e, ranges)
    assert low is not None and high is not None
    assert meaning(low, {}) <= meaning(e, point) <= meaning(high, {})


@given(expressions, st.integers(1, 9), st.integers(1, 9), inside, inside)
def test_bounds_over_expressions_contain_every_value(e, n, m, x, y):
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {
        "i": (const(0), subtract(SizeVar(name="N"), const(1))),
        "j": (const(-2), SizeVar(name="M")),
    }
    point = {"i": between((0, n - 1), x), "j": between((-2, m), y), "N": n, "M": m}
    low, high = ends(e, ranges)
    assert low is None or meaning(low, point) <= meaning(e, point)
    assert high is None or meaning(high, point) >= meaning(e, point)


def test_one_side_may_be_known_alone():
    i, j, n = IndexVar(name="i"), IndexVar(name="j"), SizeVar(name="N")
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {"i": (const(-1), n), "j": (const(-1), n)}
    unknown = IndexBinary(op=IndexOp.MUL, left=i, right=j)
    assert bounds(unknown, ranges) is None
    assert greatest(IndexBinary(op=IndexOp.MIN, left=unknown, right=n), ranges) == n
    assert index_range(n, {}) == (const(0), subtract(n, const(1)))
