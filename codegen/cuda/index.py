"""C++ as a dialect of index expressions: 32-bit arithmetic where intervals prove that it fits, 64-bit elsewhere.

A `Term` is the text of an expression with its precedence, its interval and its C++ type. The type of a sum is the wider
of the parts', and a part is converted before an operation whose result does not fit 32 bits; brackets keep what C++
adds from left to right from leaving them on the way. So no `int` overflows.

    i_block in [0, 2^31), 256 * i_block + i_lane   ->   tx::i64(256) * i_block + i_lane   (i64)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from texpr.grammar.ast import (
    And,
    Compare,
    CompareOp,
    Condition,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    SizeVar,
)
from texpr.grammar.index.expr import apply
from texpr.grammar.index.interval import of_numbers
from texpr.grammar.index.operators import OPERATORS
from texpr.grammar.index.text import text
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.value import Layout, Unit

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
SIZE_MAX = 2**62 - 1  # no array has a larger extent, so `size + constant` does not overflow

ATOM, PRODUCT, SUM, RELATION, CONJUNCTION, DISJUNCTION, CONDITIONAL = range(7)  # precedences, the tightest first


@dataclass(frozen=True, slots=True)
class Term:
    """C++ text of an index expression. `low` and `high` bound its value; `wide` says that its type is i64. `partial`
    bounds what a sum comes to in 32 bits while its operands are added up; None where that is nothing. `names` are the
    variables that the text names; what is folded away is not among them."""

    text: str
    level: int
    low: int
    high: int
    wide: bool
    partial: tuple[int, int] | None = None
    names: frozenset[str] = frozenset()

    def at(self, level: int) -> str:
        """The text, in parentheses where it binds less tightly than `level`."""
        return self.text if self.level <= level else f"({self.text})"

    def in_int(self) -> tuple[int, int] | None:
        """The interval of what is computed in 32 bits where this is put after a `+`, operand by operand."""
        if self.level == SUM:
            return self.partial
        return None if self.wide else (self.low, self.high)

    def as_wide(self) -> "Term":
        """The same value in i64."""
        if self.wide:
            return self
        return Term(f"tx::i64({self.text})", ATOM, self.low, self.high, True, names=self.names)

    def as_int(self) -> "Term":
        """The same value in `int`, which it is known to fit."""
        return Term(f"int({self.text})", ATOM, self.low, self.high, False, names=self.names) if self.wide else self


def fits_int(low: int, high: int) -> bool:
    """Whether every value from low to high is an `int`."""
    return low >= INT_MIN and high <= INT_MAX


def constant(value: int) -> Term:
    """An integer literal. -2^31 and -2^63 have no literal, their text is a difference."""
    wide = not fits_int(value, value)
    suffix = "ll" if wide else ""
    if value in (INT_MIN, LONG_MIN):
        return Term(f"({value + 1}{suffix} - 1)", ATOM, value, value, wide)
    text = f"{value}{suffix}"
    return Term(text if value >= 0 else f"({text})", ATOM, value, value, wide)


def variable(name: str, low: int, high: int, *, wide: bool | None = None) -> Term:
    """A variable; its type follows from its interval unless `wide` says it."""
    wide = not fits_int(low, high) if wide is None else wide
    return Term(name, ATOM, low, high, wide, names=frozenset({name}))


def _range(op: IndexOp, left: Term, right: Term) -> tuple[int, int]:
    """The interval of a result; no value that is reached leaves 64 bits."""
    low, high = of_numbers(op, (left.low, left.high), (right.low, right.high))
    return max(low, LONG_MIN), min(high, LONG_MAX)


def add(left: Term, right: Term, sign: int = 1) -> Term:
    """left + right, or left - right for sign -1."""
    if right.text == "0":
        return left
    if left.text == "0" and sign == 1:
        return right
    if right.low == right.high < 0 and right.high > INT_MIN:
        right, sign = constant(-right.low), -sign
    low, high = _range(IndexOp.ADD if sign == 1 else IndexOp.SUB, left, right)
    wide = left.wide or right.wide or not fits_int(low, high)
    if wide and not left.wide and not right.wide:
        left = left.as_wide()
    first, more = left.in_int(), right.in_int()
    on_the_way = None if left.wide or more is None else (left.low + more[0], left.high + more[1])
    joins = sign == 1 and (on_the_way is None or fits_int(*on_the_way))
    ints = [first, on_the_way if joins else None, None if wide else (low, high)]
    partial = _hull([span for span in ints if span is not None])
    second = right.at(SUM if joins else PRODUCT)
    text = f"{left.at(SUM)} {'+' if sign == 1 else '-'} {second}"
    return Term(text, SUM, low, high, wide, partial, left.names | right.names)


def _hull(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


def mul(left: Term, right: Term) -> Term:
    """left * right."""
    if left.text == "1":
        return right
    if right.text == "1":
        return left
    if "0" in (left.text, right.text):
        return constant(0)
    low, high = _range(IndexOp.MUL, left, right)
    wide = left.wide or right.wide or not fits_int(low, high)
    if wide and not left.wide and not right.wide:
        left = left.as_wide()
    text = f"{left.at(PRODUCT)} * {right.at(ATOM)}"
    return Term(text, PRODUCT, low, high, wide, names=left.names | right.names)


def _call(op: IndexOp, left: Term, right: Term) -> Term:
    low, high = _range(op, left, right)
    if left.wide or right.wide:
        left, right = left.as_wide(), right.as_wide()
    text = f"tx::{OPERATORS[op].cuda or op.value}({left.text}, {right.text})"
    return Term(text, ATOM, low, high, left.wide, names=left.names | right.names)


def div(left: Term, right: Term) -> Term:
    """Floor division; plain `/` where both signs are known."""
    if right.text == "1":
        return left
    if right.low < 1 or left.low < 0:
        return _near(IndexOp.DIV, left, right) or _call(IndexOp.DIV, left, right)
    return _divided(IndexOp.DIV, left, right)


def _near(op: IndexOp, left: Term, right: Term) -> Term | None:
    """The same by a number that is known, of what lies so little below 0 that this number makes it positive; None where
    it does not, or leaves an `int`."""
    by = right.low
    if left.wide or right.high != by or by < 1 or left.low < -by or not fits_int(left.low, left.high + by):
        return None
    low, high = _range(op, left, right)
    text = f"tx::near_{'div' if op is IndexOp.DIV else 'mod'}({left.text}, {right.text})"
    return Term(text, ATOM, low, high, False, names=left.names | right.names)


def _divided(op: IndexOp, left: Term, right: Term) -> Term:
    """C++'s own division or remainder of what is not negative."""
    low, high = _range(op, left, right)
    text = f"{left.at(PRODUCT)} {'/' if op is IndexOp.DIV else '%'} {right.at(ATOM)}"
    return Term(text, PRODUCT, low, high, left.wide or right.wide, names=left.names | right.names)


def mod(left: Term, right: Term) -> Term:
    """Floor remainder; nothing where the left side is below the divisor, plain `%` where both signs are known."""
    if right.low >= 1 and left.low >= 0 and left.high < right.low:
        return left
    if right.low < 1 or left.low < 0:
        return _near(IndexOp.MOD, left, right) or _call(IndexOp.MOD, left, right)
    return _divided(IndexOp.MOD, left, right)


def ceildiv(left: Term, right: Term) -> Term:
    """The least integer that is not below left / right."""
    if right.text == "1":
        return left
    if left.low >= 0 and right.low == right.high >= 1 and left.high < LONG_MAX - right.high:
        return div(add(left, constant(right.high - 1)), right)
    return _call(IndexOp.CEILDIV, left, right)


def combine(op: IndexOp, left: Term, right: Term) -> Term:
    """`left op right`; constants are folded."""
    if left.low == left.high and right.low == right.high and (right.low > 0 or not OPERATORS[op].divides):
        return constant(apply(op, left.low, right.low))
    match op:
        case IndexOp.ADD:
            return add(left, right)
        case IndexOp.SUB:
            return add(left, right, -1)
        case IndexOp.MUL:
            return mul(left, right)
        case IndexOp.DIV:
            return div(left, right)
        case IndexOp.MOD:
            return mod(left, right)
        case IndexOp.CEILDIV:
            return ceildiv(left, right)
        case _:
            return _call(op, left, right)


@dataclass(frozen=True, slots=True)
class IndexScope:
    """The terms of indices and sizes in scope."""

    indices: Mapping[str, Term]
    sizes: Mapping[str, Term]


@dataclass(frozen=True, slots=True)
class Cpp:
    """C++ as a dialect; a condition is a term that is 0 or 1."""

    scope: IndexScope

    def constant(self, value: int) -> Term:
        return constant(value)

    def name(self, leaf: IndexVar | SizeVar) -> Term:
        return (self.scope.sizes if isinstance(leaf, SizeVar) else self.scope.indices)[leaf.name]

    def binary(self, op: IndexOp, left: Term, right: Term) -> Term:
        return combine(op, left, right)

    def compare(self, op: CompareOp, left: Term, right: Term) -> Term:
        known = _decided(op, left, right)
        if known is not None:
            return self.always(known)
        return _truth(f"{left.at(SUM)} {op.value} {right.at(SUM)}", RELATION, left, right)

    def every(self, parts: Sequence[Term]) -> Term:
        return self._joined(parts, "&&", True, CONJUNCTION)

    def some(self, parts: Sequence[Term]) -> Term:
        return self._joined(parts, "||", False, DISJUNCTION)

    def _joined(self, parts: Sequence[Term], word: str, empty: bool, level: int) -> Term:
        if any(part.low == part.high != empty for part in parts):
            return self.always(not empty)
        parts = [part for part in parts if part.low != part.high]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self.always(empty)
        return _truth(f" {word} ".join(part.at(RELATION) for part in parts), level, *parts)

    def negation(self, part: Term) -> Term:
        if part.low == part.high:
            return self.always(not part.low)
        return _truth(f"!({part.text})", ATOM, part)

    def always(self, value: bool) -> Term:
        return Term("true" if value else "false", ATOM, int(value), int(value), False)


def _decided(op: CompareOp, left: Term, right: Term) -> bool | None:
    """What a comparison says wherever its sides are what their intervals allow; None where that differs."""
    low, high = left.low - right.high, left.high - right.low  # of left - right
    match op:
        case CompareOp.LT | CompareOp.GE:
            found = True if high < 0 else False if low >= 0 else None
        case CompareOp.LE | CompareOp.GT:
            found = True if high <= 0 else False if low > 0 else None
        case CompareOp.EQ | CompareOp.NE:
            found = True if low == high == 0 else False if low > 0 or high < 0 else None
        case _:
            assert_never(op)
    return found if found is None or op in (CompareOp.LT, CompareOp.LE, CompareOp.EQ) else not found


def _truth(text: str, level: int, *parts: Term) -> Term:
    return Term(text, level, 0, 1, False, names=frozenset[str]().union(*(part.names for part in parts)))


def term(tree: IndexExpr | Condition, scope: IndexScope) -> Term:
    """The C++ of an index expression or of an affine condition."""
    return text(tree, Cpp(scope))


def coordinate(layout: Layout, unit: Unit, subscripts: Sequence[Term], scope: IndexScope) -> Term:
    """One coordinate of the place of an element, of its address before the XOR."""
    total = constant(0)
    for part in layout.of(unit):
        value = constant(0) if part.dim is None else subscripts[part.dim]
        value = div(add(value, term(part.offset, scope)), constant(part.divisor))
        if part.modulus is not None:
            value = mod(value, constant(part.modulus))
        total = add(total, mul(value, term(part.stride, scope)))
    return total


def address(layout: Layout, subscripts: Sequence[Term], scope: IndexScope) -> Term:
    """Where an element lies in its memory, counted in elements."""
    total, xor = coordinate(layout, Unit.ADDRESS, subscripts, scope), layout.xor
    if xor is None:
        return total
    text = f"tx::swizzled<{xor.bits}, {xor.base}, {xor.shift}>({total.text})"
    return Term(text, ATOM, 0, total.high | (xor.block - 1), total.wide, names=total.names)


def size_bounds(facts: Iterable[Condition]) -> dict[str, tuple[int, int]]:
    """What the facts say of single sizes: `N <= 65536` gives {N: (0, 65536)}. Sizes are never negative."""
    bounds: dict[str, tuple[int, int]] = {}
    work = list(facts)
    while work:
        match work.pop():
            case And(parts=parts):
                work.extend(parts)
            case Compare(op=op, left=SizeVar(name=name), right=IndexConst(value=value)):
                low, high = bounds.get(name, (0, SIZE_MAX))
                bounds[name] = _cut(op, low, high, value)
            case Compare(op=op, left=IndexConst(value=value), right=SizeVar(name=name)):
                low, high = bounds.get(name, (0, SIZE_MAX))
                bounds[name] = _cut(_MIRRORED[op], low, high, value)
            case _:  # other facts bound no single size
                pass
    return bounds


_MIRRORED = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


def _cut(op: CompareOp, low: int, high: int, value: int) -> tuple[int, int]:
    match op:
        case CompareOp.EQ:
            return value, value
        case CompareOp.LT:
            return low, min(high, value - 1)
        case CompareOp.LE:
            return low, min(high, value)
        case CompareOp.GT:
            return max(low, value + 1), high
        case CompareOp.GE:
            return max(low, value), high
        case CompareOp.NE:
            return low, high
