"""What the statements of a program weigh together, each as often as it runs.

    par N i { par i + 1 j { par j + 1 k { S } } }   at N = 100   ->   171700 times S

A loop runs its body so many times alike where no extent inside asks for its index. Otherwise every iteration is
counted, and sums up to an iteration are kept: a triangle takes a step for each row. Where that takes more than STEPS,
the count of a nest is a polynomial in the index, which its first iterations decide, if extents are affine and nowhere
negative. What is left is counted at iterations spread evenly, and is not exact.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import comb

from texpr.grammar.ast import If, IndexExpr, Node, Par, Seq, SizeVar, Stmt
from texpr.grammar.core import children
from texpr.grammar.index.expr import const, index_names, substitute
from texpr.grammar.index.linear import linear
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass

STEPS = 1 << 16  # iterations that are looked at in one way of counting

Values = Mapping[str, int]
Weigh = Callable[[Node], int]


@dataclass(frozen=True, slots=True)
class Count:
    total: int
    exact: bool = True


def weigh_instances(body: tuple[Stmt, ...], sizes: Values, weigh: Weigh) -> Count:
    """The weights of all instances of the statements of a body; conditions count as if they held."""
    nest = _nest(body, weigh)
    for way in (_Every(), _Polynomial()):
        try:
            if way.applies(nest, sizes):
                return Count(way.body(nest, sizes))
        except _TooManyError:
            continue
    return Count(_Spread(nest.depth).body(nest, sizes), exact=False)


class _TooManyError(Exception):
    """More than STEPS."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Nest:
    """A body: the weight of one run without the loops in it; `asks` are the indices from outside in its extents,
    `depth` the loops inside one another, `degree` those of them with an index in their extent."""

    weight: int
    loops: tuple["_Loop", ...]
    asks: frozenset[str]
    depth: int
    degree: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Loop:
    index: str
    extent: IndexExpr
    asks: frozenset[str]  # indices in its own extent
    body: _Nest

    @property
    def varies(self) -> bool:
        return self.index in self.body.asks


def _nest(body: tuple[Stmt, ...], weigh: Weigh) -> _Nest:
    weight, loops = 0, list[_Loop]()
    work = list(body)
    while work:
        stmt = work.pop()
        match stmt:
            case Par(index=index, extent=extent) | Seq(index=index, extent=extent):
                inside = _nest(stmt.body, weigh)
                loops.append(_Loop(index=index, extent=extent, asks=index_names(extent), body=inside))
            case If():
                weight += weigh(stmt.condition)
                work += children(stmt)
            case _:
                weight += weigh(stmt)
    return _Nest(
        weight=weight,
        loops=tuple(loops),
        asks=frozenset().union(*(loop.asks | (loop.body.asks - {loop.index}) for loop in loops)),
        depth=max((1 + loop.body.depth for loop in loops), default=0),
        degree=max((bool(loop.asks) + loop.body.degree for loop in loops), default=0),
    )


class _Every:
    """Counts every iteration."""

    def __init__(self) -> None:
        self._left = STEPS
        self._sums: dict[tuple[object, ...], list[int]] = {}  # of a loop at values of what is asked inside

    def applies(self, nest: _Nest, sizes: Values) -> bool:
        return True

    def body(self, nest: _Nest, values: Values) -> int:
        return nest.weight + sum(self._loop(loop, values) for loop in nest.loops)

    def _loop(self, loop: _Loop, values: Values) -> int:
        extent = max(0, _extent(loop, values))
        if extent == 0 or not loop.varies:
            return extent and extent * self.body(loop.body, values)
        return self._iterations(loop, extent, values)

    def _iterations(self, loop: _Loop, extent: int, values: Values) -> int:
        asked = sorted(loop.body.asks - {loop.index})
        sums = self._sums.setdefault((loop, *(values[name] for name in asked)), [0])
        while len(sums) <= extent:
            sums.append(sums[-1] + self._at(loop, len(sums) - 1, values))
        return sums[extent]

    def _at(self, loop: _Loop, number: int, values: Values) -> int:
        self._step()
        return self.body(loop.body, {**values, loop.index: number})

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyError


class _Polynomial(_Every):
    """Counts as many iterations as decide the polynomial, and adds it up by Newton's forward differences."""

    def applies(self, nest: _Nest, sizes: Values) -> bool:
        """Whether extents are affine and none that asks for an index is negative: its least value is at a corner, where
        every index is first or last."""
        for loop in nest.loops:
            self._step()
            extent = _extent(loop, sizes)
            if not _affine(loop.extent, sizes) or (loop.asks and extent < 0):
                return False
            corners = (0, extent - 1) if loop.varies else (0,)
            runs = loop.asks or extent > 0
            if runs and not all(self.applies(loop.body, {**sizes, loop.index: at}) for at in corners):
                return False
        return True

    def _iterations(self, loop: _Loop, extent: int, values: Values) -> int:
        found = [self._at(loop, number, values) for number in range(min(extent, loop.body.degree + 1))]
        if len(found) == extent:
            return sum(found)
        total = 0
        for order in range(1, len(found) + 1):
            total += found[0] * comb(extent, order)
            found = [after - before for before, after in pairwise(found)]
        return total


class _Spread(_Every):
    """Counts some iterations of each loop, the middles of equal parts, so that STEPS suffice for the deepest nest."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self._parts = max(2, int(STEPS ** (1 / depth)))

    def _iterations(self, loop: _Loop, extent: int, values: Values) -> int:
        parts = min(self._parts, extent)
        middles = ((2 * part + 1) * extent // (2 * parts) for part in range(parts))
        found = sum(self.body(loop.body, {**values, loop.index: number}) for number in middles)
        return found * extent // parts


def _extent(loop: _Loop, values: Values) -> int:
    return int(index_value(loop.extent, values))


def _affine(extent: IndexExpr, sizes: Values) -> bool:
    """Whether it is affine in the indices, once sizes are numbers."""
    form = linear(substitute(extent, lambda leaf: const(sizes[leaf.name]) if isinstance(leaf, SizeVar) else None))
    return not form.operations() and all(len(monomial) <= 1 for monomial in form.terms)
