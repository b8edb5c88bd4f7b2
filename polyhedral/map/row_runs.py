"""Runs across rows beside one another: elements that lie along an index of which a thread has rows, not along what it
adds.

    par 8 m, N n { Y[m, n] = sum K k { X[m, k] * (f32(W[k, n]) * s[k / 32, n]) } }    8 rows m and n, 8 neighbours of k

    copy X_run[8*r + e] = X[m_first + r, k_first + e] for r < 8, e < 8
    copy W_run[8*v + e] = W[k_first + v, n_first + e] for v < 8, e < 8
    copy s_run[e] = s[k_first / 32, n_first + e] for e < 8                             alike for all k of a turn

So weights are read as they lie in memory, whichever of their dimensions is the last one.
"""

from collections.abc import Iterator, Mapping
from math import prod

from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.index.expr import ZERO, add, const, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.crew import Crew
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.quotients import quotients_of, quotients_of_first
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.rows_beside import RowsBeside
from texpr.polyhedral.map.runs import nothing, through
from texpr.polyhedral.map.vectors import Element, Wide, along, at
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import subscript_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """An element that lies along the rows of an `index`, of which a thread has `count`; `turn`: how many iterations of
    a turn have other elements."""

    wide: Wide
    index: str
    count: int
    turn: int

    def accesses(self, choice: Parted) -> int:
        """Those that a thread makes of it in a turn."""
        names = subscript_names(self.wide.element[1])
        others = prod(n for index, n in choice.patch.items() if index in names and index != self.index)
        return self.turn * others * self.count // self.wide.width


def across_rows(problem: Problem, one: Reduction, choice: Parted, hardware: tuple[str, ...]) -> Iterator[Across]:
    """What a reduction reads that lies along an index of which each thread of a block has rows of its own."""
    together = choice.widths.get(one.over.index, 1) * choice.ahead
    for index, count in choice.patch.items():
        if index not in dict(choice.deal):
            continue
        for wide in along(problem, one.reading, index, hardware).vectors(count).wide:
            if wide.loads and not wide.stores and not wide.funnel:
                turn = _turn(wide.element, one.over.index, together, choice)
                yield Across(wide=wide, index=index, count=count, turn=turn)


def _turn(element: Element, over: str, turn: int, choice: Parted) -> int:
    """Of how many iterations of a turn each has another element: neighbours whose quotients are alike have one."""
    if over not in subscript_names(element[1]):
        return 1
    divisors = quotients_of(element[1], over)
    return 1 if choice.ahead == 1 and divisors and not any(d % turn for d in divisors) else turn


class RowRuns:
    """The loads of what lies across the rows of a thread, and where its registers have an element. Of a turn from the
    iteration `first` on, `here` is the number of the one at hand; rounds are `step` iterations apart."""

    def __init__(
        self, crew: Crew, reduction: Reduction, choice: Parted, rows: RowsBeside, first: str, step: int
    ) -> None:
        self.crew, self.choice, self.rows, self.first, self.step = crew, choice, rows, first, step
        self.over = reduction.over
        hardware = (*crew.nest.indices, *reduction.indices)
        found = across_rows(crew.draft.problem, reduction, choice, hardware)
        self.held = {one.wide.element: (one, self._register(one)) for one in found}

    def _register(self, one: Across) -> str:
        """A register array for all rows, and for each iteration that has another element."""
        wide, layout = one.wide, row_major((const(self.rows.count(one.wide.element) * one.turn),))
        reason = f"neighbouring elements of {wide.element[0]} in rows beside one another, moved {wide.width} at a time"
        return self.crew.draft.local(
            f"{wide.element[0]}_run", wide.dtype, Memory.REG, layout, reason, span=wide.first.span
        )

    def of(self, nodes: tuple[Node, ...], here: IndexExpr, begin: int) -> tuple[Node, ...]:
        """What a thread adds, with registers in place of these elements; what quotients tell that neighbours have in
        common is read once."""
        nodes = through(nodes, {element: (name, (self._at(one, here),)) for element, (one, name) in self.held.items()})
        index, count = self.over.index, self.choice.widths.get(self.over.index, 1)
        if self.choice.ahead > 1 or begin % count:
            return nodes
        return quotients_of_first(nodes, index, self.first, count)

    def loads(self, *, exact: bool) -> tuple[Node, ...]:
        """All loads; `exact`: there is each of the iterations of all turns."""
        names = [Fresh(buffer=name) for _, name in self.held.values()]
        return (*names, *(self._load(one, name, exact=exact) for one, name in self.held.values()))

    def _at(self, one: Across, here: IndexExpr) -> IndexExpr:
        """The element of the row at hand."""
        return self._place(one, self._others(one, self.rows.at_hand), here, self.rows.at_hand[one.index])

    def _others(self, one: Across, numbers: Mapping[str, IndexExpr]) -> IndexExpr:
        """The number of a row among those of the other indices."""
        found: IndexExpr = ZERO
        for digit in self.rows.of(one.wide.element):
            if digit.index != one.index:
                found = add(multiply(found, digit.radix), numbers[digit.index])
        return found

    def _place(self, one: Across, others: IndexExpr, here: IndexExpr, number: IndexExpr) -> IndexExpr:
        run = add(multiply(const(one.turn), others), here if one.turn > 1 else ZERO)
        return add(multiply(const(one.count), run), number)

    def _load(self, one: Across, register: str, *, exact: bool) -> Copy:
        """The loads of all rows and iterations of an element."""
        crew, wide, over, choice = self.crew, one.wide, self.over, self.choice
        fresh, (name, subscripts) = crew.draft.names.fresh, wide.element
        own, numbers = self.rows.loops(wide.element, without=one.index)
        q, v, a, e = (fresh(f"{stem(one.index)}_{word}") for word in ("ahead", "step", "access", "element"))
        each, box = choice.widths.get(over.index, 1), list(own)
        number: IndexExpr = ZERO
        k: IndexExpr = IndexVar(name=self.first)
        if one.turn > 1:
            for loop, radix, apart, weight in ((q, choice.ahead, self.step, each), (v, each, 1, 1)):
                if radix > 1:
                    box.append((loop, const(radix)))
                    k = add(k, multiply(const(apart), IndexVar(name=loop)))
                    number = add(number, multiply(const(weight), IndexVar(name=loop)))
        start: IndexExpr = ZERO
        if one.count > wide.width:
            box.append((a, const(one.count // wide.width)))
            start = multiply(const(wide.width), IndexVar(name=a))
        box.append((e, const(wide.width)))
        row = add(start, IndexVar(name=e))
        there = self.rows.there(at(subscripts, over.index, k), numbers)
        there = at(there, one.index, add(IndexVar(name=crew.firsts[one.index]), row))
        left = multiply(const(wide.width), subtract(over.extent, k))
        within = Within(begin=ZERO, end=left, other=nothing(wide.dtype, wide.first.span), exact=False)
        place = self._place(one, self._others(one, numbers), number, row)
        return Copy(
            id=fresh(f"{getattr(wide.first, 'id', one.index)}_load"),
            source=View(buffer=name, subscripts=there, dtype=wide.dtype),
            target=View(buffer=register, subscripts=(place,), dtype=wide.dtype),
            over=tuple(box),
            within=None if exact else within,
            access=Access.ALIGNED,
            digits=crew.own,
            span=wide.first.span,
        )
