"""The typed façade between index expressions and isl: the only place that builds isl objects from expressions.

A `Scope` is the view from inside some loops: their indices are the dimensions, by name, and the free sizes are the
parameters. `limited` counts isl's operations: a query that needs more than `MAX_OPERATIONS` is given up with E0307.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

import islpy as isl

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexExpr,
    IndexOp,
    IndexVar,
    Kernel,
    Not,
    Or,
)
from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.source import Span
from texpr.polyhedral.polynomial import ONE, BeyondLimitError, NotAffineError, Polynomial, normalize, why_not_affine

CONTEXT = isl.DEFAULT_CONTEXT
# One isl operation grows slower as numbers grow: 200 000 of them took 46 s on sums of unaligned modulos, 20 000 took
# 0.3 s; the proofs of usual kernels take some hundreds for each query.
MAX_OPERATIONS = 20_000  # isl operations of one query
MAX_BUILDING = 100_000  # isl operations to build the domain or the relation of one construct
MAX_WORK = 20_000  # pairs of accesses of one kernel that may meet, weighted by their floors
MAX_COALESCED = 8  # alternatives of one condition that are merged where they touch
MAX_NUMBER = 2**62  # of coefficients and constants
MAX_FLOOR_BITS = 72  # of the divisors and coefficients under the floors of one expression


@contextmanager
def limited(span: Span, what: str, operations: int = MAX_OPERATIONS) -> Iterator[None]:
    """Runs one isl query under the operation limit; E0307 at `span` when it is exceeded. Queries do not nest."""
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(operations)
    try:
        yield
    except isl.Error as failure:
        exceeded = "maximal number of operations" in str(failure)
        why = f"takes more than {operations} steps" if exceeded else "is beyond the integer set library"
        help = "bind the sizes, or write simpler subscripts and conditions"
        raise TExprError([error("E0307", f"{what} {why}", span, help=help)]) from failure
    finally:
        CONTEXT.set_max_operations(0)
        CONTEXT.reset_operations()


class Budget:
    """Counts the pairs of accesses of one kernel that isl compares; E0307 beyond `MAX_WORK`."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.spent = 0

    @property
    def exhausted(self) -> bool:
        return self.spent > MAX_WORK

    def spend(self, floors: int, span: Span) -> None:
        """One more pair, with so many floors in its relations, whose second access is at `span`."""
        self.spent += (1 + floors) ** 2
        if self.exhausted:
            message = f"`{self.kernel.name}` has too many pairs of accesses to compare"
            help = "split the kernel, or replace unrolled statements by loops"
            raise TExprError([error("E0307", message, span, "the proofs stop here", help=help)])


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The sizes (parameters) and indices (dimensions, outermost first) that an expression may name."""

    sizes: tuple[str, ...]
    indices: tuple[str, ...]
    space: isl.Space = field(init=False)
    _values: dict[IndexExpr, isl.PwAff] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        space = isl.Space.create_from_names(CONTEXT, set=list(self.indices), params=list(self.sizes))
        object.__setattr__(self, "space", space)

    def value(self, expr: IndexExpr) -> isl.PwAff:
        """The expression as a function of indices and sizes; NotAffineError says why there is none."""
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = self.polynomial(normalize(expr))
        return found

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
            result = result.add(self._atom(binary).scale_val(isl.Val.int_from_si(CONTEXT, coefficient)))
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

    def inner(self, index: str) -> "Scope":
        """The scope inside one more loop."""
        return Scope(self.sizes, (*self.indices, index))


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


def least_point(points: isl.Set) -> tuple[int, ...]:
    """The lexicographically least point of a non-empty set that is bounded below, parameters first (in their order,
    each as small as can be), then dimensions.

    One coordinate at a time, on the pieces that are not empty: in islpy 2026.2.2 `lexmin` fails on some sets with
    existential dimensions, and `dim_min_val` of a union counts its empty pieces.
    """
    flat = points.move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, points.dim(isl.dim_type.param))
    pieces = [isl.Set.from_basic_set(piece) for piece in flat.get_basic_sets()]
    point: list[int] = []
    for position in range(flat.dim(isl.dim_type.set)):
        pieces = [piece for piece in pieces if not piece.is_empty()]
        least = min(piece.dim_min_val(position).to_python() for piece in pieces)
        value = isl.Val.int_from_si(CONTEXT, least)
        pieces = [piece.fix_val(isl.dim_type.set, position, value) for piece in pieces]
        point.append(least)
    return tuple(point)
