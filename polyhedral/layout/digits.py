"""Index expressions as sums of digits, which is what the terms of a layout are.

    i % 6 * 8 + j / 4     over i < 24, j < 16:     8 * (i % 6) + 1 * (j / 4)
    (4 * i + j) / 8       over j < 4:              1 * (i / 2)
    (i + lead) / 8                                 1 * ((i + lead) / 8)

A digit is `(index + offset) / divisor % modulus`. A quotient or remainder of a sum is one again where each part is
split at a multiple of the divisor (4 * i is 8 * (i / 2) + 4 * (i % 2)) and what is left stays within one period. What
has no such form, as (i % 6) / 4 or (i + j) % 8, is NotDigitsError, with the reason.
"""

from collections.abc import Iterable, Mapping
from math import gcd

from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.linear import Linear, constant, operation
from texpr.grammar.index.linear import variable as form_of
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.grammar.walk import fold

NOTHING = Linear()
ONE = constant(1)


class NotDigitsError(Exception):
    """An expression that is no sum of digits; the text says which part of it."""


@dataclass(frozen=True, slots=True)
class Digit:
    """(index + offset) / divisor % modulus; the offset of no index at all is in the sum's constant."""

    index: str
    divisor: int = 1
    modulus: int | None = None
    offset: Linear = NOTHING


@dataclass(frozen=True, slots=True)
class Sum:
    """`parts` maps digits to their coefficients, none of which is 0; `rest` is what no index changes."""

    parts: Mapping[Digit, Linear]
    rest: Linear


Extents = Mapping[str, IndexExpr]


def digits(expression: IndexExpr, extents: Extents) -> Sum:
    """The expression as digits of the indices that have an extent; all other names are fixed."""
    numbers = {name: constant_value(extent) for name, extent in extents.items()}

    def write(node: IndexExpr, parts: list[Sum]) -> Sum:
        match node:
            case IndexConst(value=value):
                return Sum({}, constant(value))
            case IndexVar(name=name) if name in numbers:
                return Sum({Digit(name): ONE}, NOTHING)
            case IndexVar() | SizeVar():
                return Sum({}, form_of(node))
            case _:
                return _operation(node.op, parts[0], parts[1], numbers, node)

    return fold(expression, write)


def _operation(op: IndexOp, left: Sum, right: Sum, numbers: Mapping[str, int | None], node: IndexExpr) -> Sum:
    if not left.parts and not right.parts:
        return Sum({}, operation(op, left.rest, right.rest))
    match op:
        case IndexOp.ADD:
            return _plus(left, right)
        case IndexOp.SUB:
            return _plus(left, _times(right, constant(-1)))
        case IndexOp.MUL if not right.parts:
            return _times(left, right.rest)
        case IndexOp.MUL if not left.parts:
            return _times(right, left.rest)
        case IndexOp.DIV | IndexOp.CEILDIV | IndexOp.MOD if not right.parts and (by := right.rest.value or 0) > 0:
            if op is IndexOp.CEILDIV:
                left = Sum(left.parts, left.rest + (by - 1))
            return _remainder(left, by, numbers) if op is IndexOp.MOD else _quotient(left, by, numbers)
        case _:
            raise NotDigitsError(f"{in_words(node)} is no sum of digits")


def _plus(left: Sum, right: Sum) -> Sum:
    return Sum(_collected((*left.parts.items(), *right.parts.items())), left.rest + right.rest)


def _times(sum_: Sum, factor: Linear) -> Sum:
    return Sum(_collected((digit, c * factor) for digit, c in sum_.parts.items()), sum_.rest * factor)


def _collected(parts: Iterable[tuple[Digit, Linear]]) -> dict[Digit, Linear]:
    total: dict[Digit, Linear] = {}
    for digit, coefficient in parts:
        total[digit] = total.get(digit, NOTHING) + coefficient
    return {digit: c for digit, c in total.items() if c.terms}


def _quotient(sum_: Sum, by: int, numbers: Mapping[str, int | None]) -> Sum:
    whole = {digit: _divided(c, by) for digit, c in sum_.parts.items() if c.is_multiple(by)}
    left = {digit: c for digit, c in sum_.parts.items() if digit not in whole}
    moved = _alone(left)
    if moved is not None and moved.modulus is None:
        return Sum(_collected((*whole.items(), (_shifted(moved, sum_.rest, moved.divisor * by, None), ONE))), NOTHING)
    over = sum_.rest.part(lambda _, c: c % by == 0)
    low: dict[Digit, int] = {}
    for digit, c in left.items():
        factor = _number(c)
        below, above = _split(digit, by // gcd(factor, by), numbers)
        low[below] = low.get(below, 0) + factor
        if above is not None:
            whole[above] = whole.get(above, NOTHING) + constant(factor // gcd(factor, by))
    for digit in [digit for digit, c in low.items() if c % by == 0]:  # of several that were split into one
        whole[digit] = whole.get(digit, NOTHING) + constant(low.pop(digit) // by)
    kept = _number(sum_.rest - over)
    least, most = _reach(low, kept, numbers)
    if least // by != most // by:
        raise NotDigitsError(f"a part that reaches from {least} to {most} is divided by {by}")
    return Sum(_collected(whole.items()), _divided(over, by) + least // by)


def _remainder(sum_: Sum, by: int, numbers: Mapping[str, int | None]) -> Sum:
    left = {digit: c for digit, c in sum_.parts.items() if not c.is_multiple(by)}
    rest = sum_.rest.part(lambda _, c: c % by != 0)
    moved = _alone(left)
    if moved is not None and (moved.modulus is None or moved.modulus % by == 0):
        return Sum({_shifted(moved, rest, moved.divisor, by): ONE}, NOTHING)
    low: dict[Digit, int] = {}
    for digit, c in left.items():
        factor = _number(c)
        below, _ = _split(digit, by // gcd(factor, by), numbers)
        low[below] = low.get(below, 0) + factor
    low = {digit: c for digit, c in low.items() if c % by}
    kept = _number(rest) % by
    least, most = _reach(low, kept, numbers)
    if least // by != most // by:
        raise NotDigitsError(f"the remainder by {by} is taken of a part that reaches from {least} to {most}")
    return Sum(_collected((d, constant(c)) for d, c in low.items()), constant(kept - least // by * by))


def _alone(parts: Mapping[Digit, Linear]) -> Digit | None:
    """The one digit that is there, once."""
    return next(iter(parts)) if list(parts.values()) == [ONE] else None


def _shifted(digit: Digit, amount: Linear, divisor: int, modulus: int | None) -> Digit:
    """The digit of `digit + amount`: floors of floors are one, (x / a + c) / b = (x + a * c) / (a * b)."""
    return Digit(digit.index, divisor, modulus, digit.offset + amount * digit.divisor)


def _split(digit: Digit, at: int, numbers: Mapping[str, int | None]) -> tuple[Digit, Digit | None]:
    """digit % at and digit / at; the second is None where it is 0."""
    ends = reach(digit, numbers)
    if ends is not None and ends[0] >= 0 and ends[1] < at:
        return digit, None
    if digit.modulus is not None and digit.modulus % at:
        raise NotDigitsError(f"a digit of {digit.modulus} values is split at {at}")
    above = None if digit.modulus is None else digit.modulus // at
    return (
        Digit(digit.index, digit.divisor, at, digit.offset),
        Digit(digit.index, digit.divisor * at, above, digit.offset),
    )


def reach(digit: Digit, numbers: Mapping[str, int | None]) -> tuple[int, int] | None:
    """Least and greatest value of a digit, as far as numbers tell; of an empty index those of one element."""
    count, offset = numbers.get(digit.index), digit.offset.value
    if count is not None and offset is not None:
        least, most = offset // digit.divisor, (offset + max(count, 1) - 1) // digit.divisor
        if digit.modulus is None:
            return least, most
        if least // digit.modulus == most // digit.modulus:
            return least % digit.modulus, most % digit.modulus
    return None if digit.modulus is None else (0, digit.modulus - 1)


def _reach(parts: Mapping[Digit, int], rest: int, numbers: Mapping[str, int | None]) -> tuple[int, int]:
    least = most = rest
    for digit, c in parts.items():
        ends = reach(digit, numbers)
        if ends is None:
            raise NotDigitsError(f"no bound is known for {digit.index}")
        least += min(c * ends[0], c * ends[1])
        most += max(c * ends[0], c * ends[1])
    return least, most


def _divided(form: Linear, by: int) -> Linear:
    return Linear({monomial: c // by for monomial, c in form.terms.items()})


def _number(form: Linear) -> int:
    value = form.value
    if value is None:
        raise NotDigitsError(f"{in_words(form.expression())} is divided, and it is no number")
    return value
