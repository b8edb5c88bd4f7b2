"""Threads of a block, without NumPy, which takes longer to load than most kernels to compile: which of them (`Mask`),
what each has (`Points`, or one integer for all), and how often each came to something (`Counts`)."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import and_, or_
from typing import Any

from texpr.grammar.ast import CompareOp, Condition, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import COMPARE, names
from texpr.grammar.index.points import Points
from texpr.grammar.index.text import text
from texpr.grammar.index.value import index_value, on_operands
from texpr.grammar.records import dataclass

Value = int | Points
"""What an expression is in the threads of a block: one integer for all, or one for each."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Some of the `threads` of a block: bit t of `bits` says whether thread t is among them."""

    bits: int
    threads: int

    def __len__(self) -> int:
        """Of all threads, not of those that are in it."""
        return self.threads

    def __getitem__(self, thread: int) -> bool:
        return bool(self.bits >> thread & 1)

    def __and__(self, other: "Mask") -> "Mask":
        return Mask(self.bits & other.bits, self.threads)

    def without(self, other: "Mask") -> "Mask":
        return Mask(self.bits & ~other.bits, self.threads)

    def __iter__(self) -> Iterator[int]:
        """The threads that are in it, the least first."""
        left = self.bits
        while left:
            least = left & -left
            yield least.bit_length() - 1
            left ^= least

    @property
    def count(self) -> int:
        return self.bits.bit_count()

    def any(self) -> bool:
        return self.bits != 0

    @property
    def first(self) -> int:
        """The least thread in it; 0 where none is."""
        return (self.bits & -self.bits).bit_length() - 1 if self.bits else 0

    def alone(self) -> "Mask":
        """The first thread alone."""
        return Mask(1 << self.first, self.threads)

    def groups(self, width: int) -> list["Mask"]:
        """What is in it of each `width` neighbouring threads, such as a warp."""
        return [self & span(first, min(width, self.threads - first), self.threads) for first in self._firsts(width)]

    def in_part(self, width: int) -> int:
        """How many groups of `width` neighbours have some thread in it and some that is not."""
        return sum(0 < here.count < min(width, self.threads - first) for first, here in self._each(width))

    def reached(self, width: int) -> int:
        """How many groups of `width` neighbours have some thread in it."""
        return sum(here.any() for here in self.groups(width))

    def _firsts(self, width: int) -> range:
        return range(0, self.threads, width)

    def _each(self, width: int) -> Iterator[tuple[int, "Mask"]]:
        return zip(self._firsts(width), self.groups(width), strict=True)


def span(first: int, count: int, threads: int) -> Mask:
    """`count` neighbouring threads of so many."""
    return Mask(((1 << count) - 1) << first, threads)


@dataclass(slots=True)
class Counts:
    """How often each thread came to something: for each number, the bits of those that came so often."""

    by_number: dict[int, int]

    def of(self, who: Mask) -> list[tuple[int, int]]:
        """The numbers of these threads, the least first, and how many threads have each."""
        found = ((number, (bits & who.bits).bit_count()) for number, bits in self.by_number.items())
        return sorted((number, count) for number, count in found if count)

    def at(self, thread: int) -> int:
        return next(number for number, bits in self.by_number.items() if bits >> thread & 1)

    def step(self, who: Mask) -> None:
        """These threads come once more."""
        for number, bits in sorted(self.by_number.items(), reverse=True):
            moved = bits & who.bits
            if moved:
                self.by_number[number + 1] = self.by_number.get(number + 1, 0) | moved
                if bits == moved:
                    del self.by_number[number]
                else:
                    self.by_number[number] = bits ^ moved


def no_counts(threads: int) -> Counts:
    """Of threads that never came."""
    return Counts({0: (1 << threads) - 1})


@dataclass(slots=True)
class Values:
    """Expressions and conditions in all threads of a block, each computed once for equal values of the names in it."""

    threads: int
    used: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by the identity of an expression
    known: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict)  # with what its key tells by identity

    def of(self, expr: IndexExpr, values: Mapping[str, Any]) -> Value:
        """KeyError for a name that has no value."""
        found: Value = self._once(expr, values, lambda: index_value(expr, values))
        return found

    def holds(self, condition: Condition, values: Mapping[str, Any]) -> "bool | Mask":
        found: bool | Mask = self._once(condition, values, lambda: text(condition, _Masks(values, self.threads)))
        return found

    def _once(self, tree: IndexExpr | Condition, values: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        used = self.used.get(id(tree))
        if used is None:
            used = self.used[id(tree)] = tuple(sorted(names(tree)))
        given = [values[name] for name in used]
        key = (id(tree), *[each if isinstance(each, int) else (id(each),) for each in given])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = (run(), (tree, given))  # what is known stays alive, and so do identities
        return found[0]


def at(value: Value, who: Mask) -> Sequence[int]:
    """A value in each of these threads."""
    return [value] * who.count if isinstance(value, int) else [value.at[thread] for thread in who]


def over(value: Value, turn: int, who: Mask) -> Mask:
    """Those of the threads in which a value is more than `turn`."""
    if isinstance(value, int):
        return who if value > turn else Mask(0, who.threads)
    return who & _mask([each > turn for each in value.at])


def _mask(holds: Sequence[bool]) -> Mask:
    return Mask(sum(1 << thread for thread, here in enumerate(holds) if here), len(holds))


@dataclass(frozen=True, slots=True)
class _Masks:
    """Conditions as a dialect: a bool where they are alike in all threads, else those in which they hold."""

    values: Mapping[str, Any]
    threads: int

    def constant(self, value: int) -> Any:
        return value

    def name(self, leaf: IndexVar | SizeVar) -> Any:
        return self.values[leaf.name]

    def binary(self, op: IndexOp, left: Any, right: Any) -> Any:
        return on_operands(op, left, right)

    def compare(self, op: CompareOp, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return bool(COMPARE[op](left, right))
        first, second = ((each,) * self.threads if isinstance(each, int) else each.at for each in (left, right))
        return _mask([bool(COMPARE[op](a, b)) for a, b in zip(first, second, strict=True)])

    def every(self, parts: Sequence[Any]) -> Any:
        return self._joined(and_, parts, True)

    def some(self, parts: Sequence[Any]) -> Any:
        return self._joined(or_, parts, False)

    def negation(self, part: Any) -> Any:
        return not part if isinstance(part, bool) else span(0, self.threads, self.threads).without(part)

    def always(self, value: bool) -> Any:
        return value

    def _joined(self, join: Any, parts: Sequence[Any], nothing: bool) -> Any:
        if all(isinstance(part, bool) for part in parts):
            return reduce(join, parts, nothing)
        whole = (1 << self.threads) - 1
        bits = (part.bits if isinstance(part, Mask) else whole * part for part in parts)
        return Mask(reduce(join, bits, whole * nothing), self.threads)
