"""What a thread loads of a reduction that it shares: wide runs of neighbours, and what each row has once.

copy X_run[4*i_ahead + e] = X[i_first + 2048*i_ahead + e] for i_ahead < 2, e < 4       all rounds of a turn
copy X_run[4*i_round + e] = X[i_next + 2048*i_round + e] for e < 4                     one round of the next turn

Chunks of rows that are read once ask for no line of the L1, which what all rows read has for itself. Where they hold
the end of a row they are loaded whole: element by element, warps at ends made others wait (a matrix of 257 x 100003 in
bf16 times a vector ran at .84 of a read on an H200, so at .94).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Bind, Compare, CompareOp, Condition, Expr, IndexExpr, IndexVar, Read, Seq
from texpr.grammar.index.expr import ONE, ZERO, add, conjunction, const, minimum, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.crew import Crew
from texpr.polyhedral.map.part_lines import chunks_near
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.rows_beside import RowsBeside
from texpr.polyhedral.map.runs import chunks_inside, nothing
from texpr.polyhedral.map.vectors import Element, Wide, at
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.operators import Copy, Generic, Origin
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLoads:
    """The loads of a turn whose first iteration is the value of the name `first`: `ahead` rounds of `width` neighbours
    of the index `along`, `step` iterations apart; of one `number` alone, where one is said. `exact`: there are all of
    them. What is `wide` has its registers in `held`, what a row has once in `alone`."""

    crew: Crew
    over: Seq
    along: str
    width: int
    step: int
    ahead: int
    exact: bool
    rows: RowsBeside | None
    wide: Sequence[Wide]
    held: Mapping[Element, str]
    alone: Mapping[Element, str]
    first: str
    number: IndexExpr | None = None

    def nodes(self) -> tuple[Node, ...]:
        """All of them, before any is used."""
        return self._loads() if self.crew.origin is None else self._by_chunks()

    def of_round(self, first: str, number: IndexExpr) -> "RoundLoads":
        """Those of one round of another turn."""
        return replace(self, first=first, number=number)

    @property
    def _problem(self) -> Problem:
        return self.crew.draft.problem

    def _box(self, word: str) -> tuple[IndexExpr, list[tuple[str, IndexExpr]]]:
        """The number of a round, and the loop over all of them where it is of one."""
        if self.number is not None:
            return self.number, []
        name = self.crew.draft.names.fresh(word)
        return (ZERO, []) if self.ahead == 1 else (IndexVar(name=name), [(name, const(self.ahead))])

    def _last_row(self) -> IndexExpr:
        behind = const(self.ahead - 1) if self.number is None else self.number
        return add(IndexVar(name=self.first), multiply(const(self.step), behind))

    def _loads(self) -> tuple[Node, ...]:
        """The loads. Where there is a row for each and no chunk leaves its array, none is asked."""
        rows: tuple[Node, ...] = tuple(self._row(element, name, asks=True) for element, name in self.alone.items())
        loads = (*rows, *(self._load(one) for one in self.wide))
        funnels = [one for one in self.wide if one.funnel]
        if not funnels and self.crew.rows_origin is None:
            return loads
        over, crew = self.over, self.crew
        width = crew.choice.widths.get(over.index, 1)
        last = self._last_row()
        ends: list[Condition] = []
        if crew.rows_origin is not None:
            ends.append(Compare(op=CompareOp.LE, left=ZERO, right=IndexVar(name=self.first)))
        if not self.exact:
            ends.append(Compare(op=CompareOp.LE, left=add(last, const(width)), right=over.extent))
        for one in funnels:
            behind = const(self.width - one.width)
            of_run = self.along == over.index
            there = at(one.element[1], over.index, add(last, behind) if of_run else last)
            if self.rows is not None:
                there = self.rows.there(there, self.rows.last)
            elif not of_run:
                there = at(there, self.along, add(IndexVar(name=crew.firsts[self.along]), behind))
            inside = chunks_inside(self._problem, one, there)
            if inside is None:
                return loads
            ends.append(inside)
        rows = tuple(self._row(element, name, asks=False) for element, name in self.alone.items())
        plain = (*rows, *(self._load(one, asks=False) for one in self.wide))
        condition = conjunction(tuple(dict.fromkeys(ends)))
        return (Guard(condition=condition, body=plain, orelse=loads, padding=True, span=over.span),)

    def _by_chunks(self) -> tuple[Node, ...]:
        """Loads of aligned chunks, and of what each row has once. Where no chunk leaves its array, none is asked for
        more than that it has an element of the band, and none for its row where all rows are there."""
        over, crew, problem = self.over, self.crew, self._problem
        first, here = IndexVar(name=self.first), IndexVar(name=crew.firsts[self.along])
        assert crew.along is not None, "there are neighbours"
        last_row = self._last_row()
        last = minimum(add(here, const(self.width - 1)), subtract(crew.along.extent, ONE))
        nodes = self._chunks(asks=True, exact=True)
        for asks in (True, False) if not self.exact else (False,):
            end = minimum(last_row, subtract(over.extent, ONE)) if asks else last_row
            ends = {over.index: (first, end), self.along: (here, last)}
            near = [chunks_near(problem, one, ends) for one in self.wide]
            known = tuple(condition for condition in near if condition is not None)
            if len(known) < len(near):
                continue
            all_rows = () if asks or self.exact else (Compare(op=CompareOp.LT, left=last_row, right=over.extent),)
            condition = conjunction(tuple(dict.fromkeys((*all_rows, *known))))
            plain = self._chunks(asks=asks, exact=False)
            nodes = (Guard(condition=condition, body=plain, orelse=nodes, padding=True, span=over.span),)
        return nodes

    def _chunks(self, *, asks: bool, exact: bool) -> tuple[Node, ...]:
        """All loads; `asks`: whether there is a row for each, `exact`: no byte that is not wanted is read."""
        return (
            *(self._chunk(one, asks=asks, exact=exact) for one in self.wide),
            *(self._row(element, name, asks=asks) for element, name in self.alone.items()),
        )

    def _chunk(self, wide: Wide, *, asks: bool, exact: bool) -> Copy:
        """The loads of an element's chunks, of which those of the band's elements are wanted."""
        load, here = self._load(wide, asks=asks), IndexVar(name=self.crew.firsts[self.along])
        assert self.crew.along is not None, "there are neighbours"
        ends = self.crew.along.extent
        if self.crew.strip_end:
            ends = minimum(ends, IndexVar(name=self.crew.strip_end))
        begin, end = subtract(ZERO, here), subtract(ends, here)
        if asks and load.within is not None:
            cut = self.crew.cut is not None and not self.crew.strip_end
            end = load.within.end if cut else minimum(end, load.within.end)
        unseen = not exact and not asks  # of rows that are none zeros are added
        other = nothing(wide.dtype, wide.first.span)
        within = Within(begin=begin, end=end, other=other, exact=exact, unseen=unseen, inside=not exact)
        return replace(load, within=within)

    def _row(self, element: Element, register: str, *, asks: bool) -> Node:
        """The loads of what each row has once."""
        over, (name, subscripts) = self.over, element
        at_round, loops = self._box("row_ahead")
        row = add(IndexVar(name=self.first), multiply(const(self.step), at_round))
        dtype, span = self.crew.draft.kernel.buffer(name).dtype, over.span
        read = Read(buffer=name, subscripts=at(subscripts, over.index, row), dtype=dtype, span=span)

        def bind(value: Expr) -> tuple[Generic]:
            id = self.crew.draft.names.fresh(f"{over.index}_row_load")
            leaf = Bind(id=id, buffer=register, subscripts=(at_round,), value=value, span=span)
            return (Generic(id=id, leaf=leaf, origin=Origin.COPY_IN, digits=self.crew.own),)

        body: tuple[Node, ...] = bind(read)
        if asks and not self.exact:
            there = Compare(op=CompareOp.LT, left=row, right=over.extent)
            guard = Guard(condition=there, body=body, orelse=bind(nothing(dtype, span)), padding=True, span=span)
            body = (guard,)
        for index, extent in loops:
            return Loop(index=index, extent=extent, body=body, unroll=True, span=span)
        return body[0]

    def _cache(self, wide: Wide) -> Cache:
        """What a load asks of the caches."""
        crew = self.crew
        alone = crew.rows_origin is not None and not wide.funnel
        return Cache.NO_ALLOCATE if alone and self.rows is not None and self.rows.of(wide.element) else Cache.PLAIN

    def _load(self, wide: Wide, *, asks: bool = True) -> Copy:
        """The loads of an element; `asks`: whether there is a row for each, and its chunks lie in the array."""
        over, crew, register = self.over, self.crew, self.held[wide.element]
        q, box = self._box(f"{stem(self.along)}_ahead")
        a, e = (crew.draft.names.fresh(f"{stem(self.along)}_{word}") for word in ("access", "element"))
        start: IndexExpr = ZERO
        if self.width > wide.width:
            box.append((a, const(self.width // wide.width)))
            start = multiply(const(wide.width), IndexVar(name=a))
        box.append((e, const(wide.width)))
        here = add(start, IndexVar(name=e))
        first = add(IndexVar(name=self.first), multiply(const(self.step), q))
        name, subscripts = wide.element
        of_run = self.along == over.index
        there = at(subscripts, over.index, add(first, here) if of_run else first)
        if not of_run:
            there = at(there, self.along, add(IndexVar(name=crew.firsts[self.along]), here))
        in_register = add(multiply(const(self.width), q), here)
        if self.rows is not None:
            own, numbers = self.rows.loops(wide.element)
            box = [*own, *box]
            there = self.rows.there(there, numbers)
            in_register = self.rows.place(self.width * self.ahead, wide.element, numbers, in_register)
        left, chunked = subtract(over.extent, first), of_run and crew.rows_origin is not None
        end = subtract(left, start) if of_run else multiply(const(wide.width), left)
        begin = subtract(ZERO, add(first, start)) if chunked and asks else ZERO
        whole = not of_run or linear(over.extent).is_multiple(self.width, self._problem.divisors)
        all_rows = self.exact or not asks
        if all_rows:
            end = const(wide.width)
        ends = crew.cut if self.rows is None else None
        if ends is not None:
            here_on = subtract(ends, add(IndexVar(name=crew.firsts[self.along]), start))
            end = here_on if all_rows else minimum(end, here_on)
        cut = not all_rows or (wide.funnel and asks) or ends is not None
        exact = asks and (wide.funnel or not (whole or chunked))
        other = nothing(wide.dtype, wide.first.span)
        return Copy(
            id=crew.draft.names.fresh(f"{getattr(wide.first, 'id', self.along)}_load"),
            source=View(buffer=name, subscripts=there, dtype=wide.dtype),
            target=View(buffer=register, subscripts=(in_register,), dtype=wide.dtype),
            over=tuple(box),
            within=Within(begin=begin, end=end, other=other, exact=exact) if cut else None,
            access=Access.FUNNEL if wide.funnel else Access.ALIGNED,
            cache=self._cache(wide),
            digits=crew.own,
            span=wide.first.span,
        )
