"""What is built for isl of an expression or a condition has the value that the tree has, wherever there is one."""

from hypothesis import given
from index_expressions import INDICES, SIZES, conditions, expressions, meaning, points, truth

from texpr.grammar.ast import Compare, CompareOp, IndexVar, SizeVar
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope

WORK = isl.Work()


def at(point, found):
    """Whether a set has the point."""
    for kind, names in ((isl.dim_type.param, SIZES), (isl.dim_type.set, INDICES)):
        for number, name in enumerate(names):
            found = found.fix_val(kind, number, point[name])
    return not found.is_empty()


@given(expressions, points)
def test_isl_means_the_expression_that_it_takes(e, point):
    try:
        value = Scope(SIZES, INDICES, WORK).value(e)
    except NotAffineError:
        return
    zero = isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(value.get_domain_space()))
    assert at(point, value.eq_set(zero.add_constant_val(isl.Val.int_from_si(WORK.context, meaning(e, point)))))


@given(conditions, points)
def test_isl_means_the_condition_that_it_takes(c, point):
    try:
        found = Scope(SIZES, INDICES, WORK).holds(c)
    except NotAffineError:
        return
    assert at(point, found) == truth(c, point)


def test_an_index_may_be_fixed_and_called_like_a_word_of_isl():
    scope = Scope(("N", "floor"), ("mod",), WORK)
    less = Compare(op=CompareOp.LT, left=IndexVar(name="mod"), right=IndexVar(name="floor"))
    same = Compare(op=CompareOp.EQ, left=SizeVar(name="N"), right=IndexVar(name="floor"))
    both = scope.holds(less).intersect(scope.holds(same))
    assert isl.least_point(both.lower_bound_val(isl.dim_type.set, 0, 3)) == (4, 4, 3)
