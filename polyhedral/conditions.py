"""isl sets written out in the language: the way back from `affine.Scope.holds`.

    { [x] : exists e: x = 2e and 0 <= x < N }   ->   x >= 0 and N >= x + 1 and 2 * (x / 2) == x

Floors are written as divisions by numbers; a set whose floors no expression gives is computed anew, with ones that
have. Run within a query, as everything of isl.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Always, Compare, CompareOp, Condition, IndexBinary, IndexExpr, IndexOp, Or, SizeVar
from texpr.grammar.index.expr import ZERO, add, conjunction, const, multiply, subtract
from texpr.polyhedral import isl

PARAM, DIM, DIV = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.div


def condition_of(points: isl.Set, coordinates: Sequence[IndexExpr]) -> Condition:
    """Where a point with these coordinates is in the set."""
    pieces = [_piece(piece, coordinates) for piece in points.coalesce().compute_divs().get_basic_sets()]
    if not pieces:
        return Always(value=False)
    return pieces[0] if len(pieces) == 1 else Or(parts=tuple(pieces))


def affine_expression(affine: isl.Aff, coordinates: Sequence[IndexExpr] = ()) -> IndexExpr:
    """A quasi-affine function of the coordinates and the sizes, floored where it has a denominator."""
    above, below = _sides(affine, coordinates)
    whole = subtract(above, below)
    denominator = affine.get_denominator_val().to_python()
    return whole if denominator == 1 else IndexBinary(op=IndexOp.DIV, left=whole, right=const(denominator))


def _piece(piece: isl.BasicSet, coordinates: Sequence[IndexExpr]) -> Condition:
    parts: list[Condition] = []
    for constraint in piece.get_constraints():
        above, below = _sides(constraint.get_aff(), coordinates)
        op = CompareOp.EQ if constraint.is_equality() else CompareOp.GE
        if not constraint.is_div_constraint():
            parts.append(Compare(op=op, left=above, right=below))
    return conjunction(parts)


def _sides(affine: isl.Aff, coordinates: Sequence[IndexExpr]) -> tuple[IndexExpr, IndexExpr]:
    """What an affine function, times its denominator, adds, and what it takes away."""
    scale = affine.get_denominator_val()
    terms: list[tuple[int, IndexExpr]] = []
    for position, coordinate in enumerate(coordinates):
        terms.append((affine.get_coefficient_val(DIM, position).mul(scale).to_python(), coordinate))
    for position in range(affine.dim(PARAM)):
        size = SizeVar(name=str(affine.get_dim_name(PARAM, position)))
        terms.append((affine.get_coefficient_val(PARAM, position).mul(scale).to_python(), size))
    for position in range(affine.dim(DIV)):
        factor = affine.get_coefficient_val(DIV, position).mul(scale).to_python()
        if factor:
            terms.append((factor, affine_expression(affine.get_div(position), coordinates)))
    terms.append((affine.get_constant_val().mul(scale).to_python(), const(1)))
    sides: list[IndexExpr] = [ZERO, ZERO]
    for factor, value in terms:
        if factor:
            sides[factor < 0] = add(sides[factor < 0], multiply(const(abs(factor)), value))
    return sides[0], sides[1]
