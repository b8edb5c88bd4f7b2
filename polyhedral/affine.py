"""The typed façade between index expressions and isl: the only place that builds isl objects from expressions.

A `Scope` is the view from inside some loops: their indices are the dimensions, by name, and the free sizes are the
parameters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import assert_never

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    SizeVar,
    Subscript,
)
from texpr.grammar.index.expr import index_names, substitute
from texpr.polyhedral import isl
from texpr.polyhedral.polynomial import ONE, BeyondLimitError, NotAffineError, Polynomial, normalize, why_not_affine

MAX_COALESCED = 8  # alternatives of one condition that are merged where they touch
MAX_CASES = 32  # values of indices that are multiplied, all combinations together
MAX_NUMBER = 2**62  # of coefficients and constants
MAX_FLOOR_BITS = 72  # of the divisors and coefficients under the floors of one expression


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The sizes (parameters) and indices (dimensions, outermost first) that an expression may name."""

    sizes: tuple[str, ...]
    indices: tuple[str, ...]
    work: isl.Work = field(repr=False)
    few: Mapping[str, int] = field(default_factory=dict)  # the extents of indices that have few values
    space: isl.Space = field(init=False)
    _values: dict[IndexExpr, isl.PwAff] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        space = isl.Space.create_from_names(self.work.context, set=list(self.indices), params=list(self.sizes))
        object.__setattr__(self, "space", space)

    def value(self, expr: IndexExpr) -> isl.PwAff:
        """The expression as a function of indices and sizes; NotAffineError says why there is none."""
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = self._value(expr)
        return found

    def _value(self, expr: IndexExpr, most: int = MAX_CASES) -> isl.PwAff:
        try:
            return self.polynomial(normalize(expr))
        except BeyondLimitError:
            raise
        except NotAffineError:
            factors = [(self.few[name], name) for name in multiplied(expr) if self.few.get(name, most + 1) <= most]
            if not factors:
                raise
        return self._by_cases(expr, min(factors)[1], most)

    def _by_cases(self, expr: IndexExpr, index: str, most: int) -> isl.PwAff:
        """`p * (K / 8)` for each value of `p`, which are few: a product with a number is affine."""
        result: isl.PwAff | None = None
        for number in range(self.few[index]):
            value = IndexConst(value=number)
            piece = self._value(substitute(expr, _at(index, value)), most // self.few[index])
            piece = piece.intersect_domain(compare(CompareOp.EQ, self.index(index), self.value(value)))
            result = piece if result is None else result.union_add(piece)
        assert result is not None, "an index of few values has some"
        return result

    def polynomial(self, polynomial: Polynomial) -> isl.PwAff:
        """The same for an expression in normal form."""
        reason = why_not_affine(polynomial)
        if reason is not None:
            raise NotAffineError(reason)
        if floor_bits(polynomial) > MAX_FLOOR_BITS:
            raise BeyondLimitError("its divisions and moduli are too many, or of too large numbers, to be proved")
        linear = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.space))
        atoms: list[tuple[IndexBinary, int]] = []
        for (sizes, atom), coefficient in polynomial.items():
            if abs(coefficient) > MAX_NUMBER:
                raise BeyondLimitError("its numbers are beyond 62 bits")
            match atom:
                case None if sizes:
                    position = self.sizes.index(sizes[0])
                    linear = linear.set_coefficient_val(isl.dim_type.param, position, coefficient)
                case None:
                    linear = linear.set_constant_val(coefficient)
                case IndexVar(name=name):
                    linear = linear.set_coefficient_val(isl.dim_type.in_, self.indices.index(name), coefficient)
                case IndexBinary():
                    atoms.append((atom, coefficient))
                case _:
                    assert_never(atom)
        result = isl.PwAff.from_aff(linear)
        for binary, coefficient in atoms:
            result = result.add(self._atom(binary).scale_val(isl.Val.int_from_si(self.work.context, coefficient)))
        return result

    def _atom(self, expr: IndexBinary) -> isl.PwAff:
        left, right = self.value(expr.left), self.value(expr.right)
        match expr.op:
            case IndexOp.DIV:
                return left.div(right).floor()
            case IndexOp.CEILDIV:
                return left.div(right).ceil()
            case IndexOp.MOD:
                return left.sub(right.mul(left.div(right).floor()))
            case IndexOp.MIN:
                return left.min(right)
            case IndexOp.MAX:
                return left.max(right)
            case _:
                raise NotAffineError(f"{expr.op} is not an atom")

    def index(self, name: str) -> isl.PwAff:
        """One of the indices."""
        return self.value(IndexVar(name=name))

    def universe(self) -> isl.Set:
        """All points, unconstrained."""
        return isl.Set.universe(self.space)

    def holds(self, condition: Condition) -> isl.Set:
        """The points at which the condition is true; NotAffineError says why there is no such set."""
        match condition:
            case Always(value=value):
                return self.universe() if value else isl.Set.empty(self.space)
            case Compare(op=op, left=left, right=right):
                return compare(op, self.value(left), self.value(right))
            case And(parts=parts):
                result = self.universe()
                for part in parts:
                    result = result.intersect(self.holds(part))
                return result
            case Or(parts=parts):
                result = isl.Set.empty(self.space)
                for part in parts:
                    result = result.union(self.holds(part))
                return result.coalesce() if len(parts) <= MAX_COALESCED else result
            case Not(part=part):
                return self.holds(part).complement()
            case _:
                assert_never(condition)

    def below(self, value: isl.PwAff, limit: isl.PwAff) -> isl.Set:
        """The points at which `0 <= value < limit`."""
        zero = isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(self.space))
        return value.ge_set(zero).intersect(value.lt_set(limit))

    @property
    def width(self) -> int:
        """The columns of a value over this scope."""
        return len(self.sizes) + len(self.indices)

    def inner(self, index: str, extent: IndexExpr | None = None) -> "Scope":
        """The scope inside one more loop."""
        few = self.few
        if isinstance(extent, IndexConst) and 0 < extent.value <= MAX_CASES:
            few = {**few, index: extent.value}
        return Scope(self.sizes, (*self.indices, index), self.work, few)


def _at(index: str, value: IndexExpr) -> Callable[[IndexVar | SizeVar], IndexExpr | None]:
    return lambda leaf: value if isinstance(leaf, IndexVar) and leaf.name == index else None


def multiplied(expr: IndexExpr) -> frozenset[str]:
    """The indices in products of two expressions that are not constant."""
    if not isinstance(expr, IndexBinary):
        return frozenset()
    found = multiplied(expr.left) | multiplied(expr.right)
    if expr.op is IndexOp.MUL and not isinstance(expr.left, IndexConst) and not isinstance(expr.right, IndexConst):
        found |= index_names(expr)
    return found


def floor_bits(polynomial: Polynomial) -> int:
    """How hard the floors of an expression are: the bits of their divisors and of the coefficients under them.

    isl solves floors together over the integers, where one operation takes time with the bits of all of them:
    twenty moduli of 14 bits do not end, five take a second.
    """
    bits = 0
    for _, atom in polynomial:
        if isinstance(atom, IndexBinary):
            left, right = normalize(atom.left), normalize(atom.right)
            bits += floor_bits(left) + floor_bits(right)
            if atom.op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV):
                numbers = [number for term, number in left.items() if term != ONE] + list(right.values())
                bits += sum(max(abs(number).bit_length() - 1, 0) for number in numbers)
    return bits


def coprime_columns(subscripts: Iterable[Subscript]) -> int:
    """The columns that the coefficients of subscripts are worth: their bits where one is no multiple of the next.

    `1024 * i + 32 * j + k` is worth none. Three coefficients of 30 bits without a common divisor make isl search for
    integer points with numbers of some hundred bits.
    """
    bits = 0
    for subscript in subscripts:
        if isinstance(subscript, IndexBinary):
            try:
                found = normalize(subscript)
            except NotAffineError:
                continue
            factors = sorted({abs(factor) for (_, atom), factor in found.items() if atom is not None})
            bits += sum(low.bit_length() for low, high in pairwise(factors) if high % low)
    return bits // 4


def compare(op: CompareOp, left: isl.PwAff, right: isl.PwAff) -> isl.Set:
    """The points at which `left op right`."""
    match op:
        case CompareOp.EQ:
            return left.eq_set(right)
        case CompareOp.NE:
            return left.ne_set(right)
        case CompareOp.LT:
            return left.lt_set(right)
        case CompareOp.LE:
            return left.le_set(right)
        case CompareOp.GT:
            return left.gt_set(right)
        case CompareOp.GE:
            return left.ge_set(right)
        case _:
            assert_never(op)


def extend(domain: isl.Set, scope: Scope) -> isl.Set:
    """`domain` of the outer loops as a set over `scope`, whose last indices are unconstrained."""
    have = domain.dim(isl.dim_type.set)
    wider = domain.add_dims(isl.dim_type.set, len(scope.indices) - have)
    for position in range(have, len(scope.indices)):
        wider = wider.set_dim_name(isl.dim_type.set, position, scope.indices[position])
    return wider


def relation(domain: isl.Set, values: Sequence[isl.PwAff | None], statement: str, buffer: str) -> isl.Map:
    """`{ statement[…] -> buffer[values…] }` on `domain`; a value None stands for every integer."""
    result = isl.Map.from_domain(domain)
    for value in values:
        if value is None:
            result = result.add_dims(isl.dim_type.out, 1)
        else:
            result = result.flat_range_product(isl.Map.from_pw_aff(value))
    return result.set_tuple_name(isl.dim_type.in_, statement).set_tuple_name(isl.dim_type.out, buffer)
