"""The typed façade between index expressions and isl: the only place that builds isl objects from expressions.

A `Scope` is the view from inside some loops: their indices are the dimensions, by name, and the free sizes are the
parameters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
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
from texpr.grammar.index.linear import Linear, Operation, factors, linear, obstacle, why_not_affine
from texpr.grammar.index.operators import DIVISIONS, OPERATORS
from texpr.grammar.records import dataclass
from texpr.grammar.walk import walk
from texpr.polyhedral import isl

MAX_COALESCED = 8  # alternatives of one condition that are merged where they touch
MAX_CASES = 32  # values of indices that are multiplied, all combinations together
MAX_DEPTH = 100  # of floors, minima and maxima over one another
MAX_NUMBER = 2**62  # of coefficients and constants
MAX_FLOOR_BITS = 72  # of the divisors and coefficients under the floors of one expression


class NotAffineError(Exception):
    """The expression is outside the quasi-affine form; the text says why, in the language's words."""


class BeyondLimitError(NotAffineError):
    """The expression is larger than the proofs take, whatever its form: E0307 where its base is E0308."""


def normal(expr: IndexExpr) -> Linear:
    """The normal form of an expression that may stand in a proof once products of sizes are split; NotAffineError says
    why there is none."""
    form = linear(expr)
    _check_depth(form)
    reason = obstacle(form)
    if reason is not None:
        raise NotAffineError(reason)
    return form


def _check_depth(form: Linear) -> None:
    if any(inner.depth > MAX_DEPTH for inner in form.operations()):
        raise BeyondLimitError(f"it is nested deeper than {MAX_DEPTH} operators")


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The sizes (parameters) and indices (dimensions, outermost first) that an expression may name. Indices that are
    fixed, as those of the host are to a launch, may stand among the parameters."""

    sizes: tuple[str, ...]
    indices: tuple[str, ...]
    work: isl.Work = field(repr=False)
    few: Mapping[str, int] = field(default_factory=dict)  # the extents of indices that have few values
    space: isl.Space = field(init=False)
    _places: dict[str, tuple[isl.dim_type, int]] = field(init=False, repr=False)
    _values: dict[Linear, isl.PwAff] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        places = {name: (isl.dim_type.param, number) for number, name in enumerate(self.sizes)}
        places |= {name: (isl.dim_type.in_, number) for number, name in enumerate(self.indices)}
        object.__setattr__(self, "_places", places)
        space = isl.Space.create_from_names(self.work.context, set=list(self.indices), params=list(self.sizes))
        object.__setattr__(self, "space", space)

    def value(self, expr: IndexExpr) -> isl.PwAff:
        """The expression as a function of indices and sizes; NotAffineError says why there is none."""
        return self._value(expr)

    def _value(self, expr: IndexExpr, most: int = MAX_CASES) -> isl.PwAff:
        try:
            return self.form(linear(expr))
        except BeyondLimitError:
            raise
        except NotAffineError:
            choices = [(self.few[name], name) for name in multiplied(expr) if self.few.get(name, most + 1) <= most]
            if not choices:
                raise
        return self._by_cases(expr, min(choices)[1], most)

    def _by_cases(self, expr: IndexExpr, index: str, most: int) -> isl.PwAff:
        """`p * (K / 8)` for each value of `p`, which are few: a product with a number is affine."""
        result: isl.PwAff | None = None
        for number in range(self.few[index]):
            value = IndexConst(value=number)
            piece = self._value(substitute(expr, _at(index, value)), most // self.few[index])
            piece = piece.intersect_domain(compare(CompareOp.EQ, self.index(index).sub(self.value(value))))
            result = piece if result is None else result.union_add(piece)
        assert result is not None, "an index of few values has some"
        return result

    def form(self, form: Linear) -> isl.PwAff:
        """The same for an expression in normal form."""
        found = self._values.get(form)
        if found is None:
            found = self._values[form] = self._built(form)
        return found

    def _built(self, form: Linear) -> isl.PwAff:
        _check_depth(form)
        reason = why_not_affine(form)
        if reason is not None:
            raise NotAffineError(reason)
        if floor_bits(form) > MAX_FLOOR_BITS:
            raise BeyondLimitError("its divisions and moduli are too many, or of too large numbers, to be proved")
        affine = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.space))
        operations: list[tuple[Operation, int]] = []
        for monomial, coefficient in form.terms.items():
            if abs(coefficient) > MAX_NUMBER:
                raise BeyondLimitError("its numbers are beyond 62 bits")
            match monomial:
                case ():
                    affine = affine.set_constant_val(coefficient)
                case (SizeVar(name=name) | IndexVar(name=name),):
                    affine = affine.set_coefficient_val(*self._places[name], coefficient)
                case (Operation() as inner,):
                    operations.append((inner, coefficient))
        result = isl.PwAff.from_aff(affine)
        for inner, coefficient in operations:
            result = result.add(self._operation(inner).scale_val(isl.Val.int_from_si(self.work.context, coefficient)))
        return result

    def _operation(self, inner: Operation) -> isl.PwAff:
        build = OPERATORS[inner.op].isl
        assert build is not None, f"{inner.op} is resolved by the normal form"
        value: isl.PwAff = build(self.form(inner.left), self.form(inner.right))
        return value

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
            case Compare(op=CompareOp.LT | CompareOp.LE, right=IndexBinary(op=IndexOp.MIN, left=one, right=other)):
                both = (self.holds(replace(condition, right=limit)) for limit in (one, other))
                return next(both).intersect(next(both))  # convex, as the pieces of a minimum together are not
            case Compare(op=op, left=left, right=right):
                return compare(op, self.value(left).sub(self.value(right)))
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
        return value.nonneg_set().intersect(limit.sub(value).pos_set())

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
    products = (n for n in walk(expr) if isinstance(n, IndexBinary) and n.op is IndexOp.MUL)
    found = (index_names(n) for n in products if not any(isinstance(side, IndexConst) for side in (n.left, n.right)))
    return frozenset[str]().union(*found)


def floor_bits(form: Linear) -> int:
    """How hard the floors of an expression are: the bits of their divisors and of the coefficients under them.

    isl solves floors together over the integers, where one operation takes time with the bits of all of them:
    twenty moduli of 14 bits do not end, five take a second.
    """
    bits = 0
    for inner in form.operations():
        bits += floor_bits(inner.left) + floor_bits(inner.right)
        if inner.op in DIVISIONS:
            numbers = [number for monomial, number in inner.left.terms.items() if monomial]
            numbers += inner.right.terms.values()
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
                found = normal(subscript)
            except NotAffineError:
                continue
            numbers = sorted({abs(number) for monomial, number in found.terms.items() if factors(monomial)[1]})
            bits += sum(low.bit_length() for low, high in pairwise(numbers) if high % low)
    return bits // 4


def compare(op: CompareOp, value: isl.PwAff) -> isl.Set:
    """The points at which `value op 0`."""
    match op:
        case CompareOp.EQ:
            return value.zero_set()
        case CompareOp.NE:
            return value.non_zero_set()
        case CompareOp.LT:
            return value.neg().pos_set()
        case CompareOp.LE:
            return value.neg().nonneg_set()
        case CompareOp.GT:
            return value.pos_set()
        case CompareOp.GE:
            return value.nonneg_set()
        case _:
            assert_never(op)


def extend(domain: isl.Set, scope: Scope) -> isl.Set:
    """`domain` of the outer loops as a set over `scope`, whose last indices are unconstrained."""
    have = domain.dim(isl.dim_type.set)
    wider = domain.add_dims(isl.dim_type.set, len(scope.indices) - have)
    for position in range(have, len(scope.indices)):
        wider = wider.set_dim_name(isl.dim_type.set, position, scope.indices[position])
    return wider


def relation(domain: isl.Set, values: Sequence[isl.PwAff | None]) -> isl.Map:
    """`{ […] -> [values…] }` on `domain`; a value None stands for every integer."""
    result: isl.Map | None = None
    for value in values:
        if value is not None:
            part = isl.Map.from_pw_aff(value)
        else:
            part = isl.Map.from_domain(isl.Set.universe(domain.space)).add_dims(isl.dim_type.out, 1)
        result = part if result is None else result.flat_range_product(part)
    return isl.Map.from_domain(domain) if result is None else result.intersect_domain(domain)
