"""What a thread adds of a reduction that it shares: rounds of wide loads, then the additions.

    i_first = 4096*i_part + 2162688*i_serial + 4*team
    copy X_run[4*i_ahead + e] = X[i_first + 2048*i_ahead + e] for i_ahead < 2, e < 4
    for i_round < 2, i_vector < 4
      i = 2048*i_round + i_vector + i_first
      S_part += X_run[4*i_round + i_vector]

Consecutive blocks take neighbouring pieces of an array, so that all of them read from one part of memory at a time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Compare,
    CompareOp,
    Condition,
    IndexExpr,
    IndexVar,
    Seq,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    conjunction,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.part_lines import chunks_near, rows_alone
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.row_loads import row_load
from texpr.polyhedral.map.row_runs import RowRuns
from texpr.polyhedral.map.rows_beside import RowsBeside, takes_rows
from texpr.polyhedral.map.runs import chunks_inside, nothing, through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.updates import Change, changed, is_zero
from texpr.polyhedral.map.vectors import Element, Wide, along, at
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem


class Rounds:
    """What a thread adds of one reduction, from iteration `begin` on: rounds of `ahead` wide loads of each array, then
    the additions."""

    def __init__(
        self, crew: Crew, reduction: Reduction, parts: Mapping[str, Part], *, begin: int = 0, ahead: int | None = None
    ) -> None:
        self.crew, self.reduction, self.parts, self.begin = crew, reduction, parts, begin
        self.draft = crew.draft
        self.choice = crew.choice if ahead is None else replace(crew.choice, ahead=ahead)
        fresh, over = self.draft.names.fresh, reduction.over
        self.first = fresh(f"{stem(over.index)}_first")
        rows = crew.taken if takes_rows(crew, self.choice) else ()
        self.along = (over if rows else crew.along or over).index
        self.width = self.choice.widths.get(self.along, 1)
        own = (self._digit(par.index, "row", 1, self.choice.patch[par.index], Place.VECTOR) for par in rows)
        self.rows = RowsBeside(crew, tuple(digit for digit in own if digit is not None)) if rows else None
        self.step = crew.team * self.choice.widths.get(over.index, 1)
        self.round = self._digit(over.index, "round", self.step, self.choice.ahead, Place.SERIAL)
        self.vector = self._digit(self.along, "vector", 1, self.width, Place.VECTOR)
        self.runs = RowRuns(crew, reduction, self.choice, self.rows, self.first, self.step) if self.rows else None

    def _digit(self, index: str, word: str, weight: int, radix: int, place: Place) -> Digit | None:
        if radix == 1:
            return None
        name = self.draft.names.fresh(f"{stem(index)}_{word}")
        digit = Digit(name=name, index=index, weight=weight, radix=const(radix), stride=ONE, place=place)
        self.draft.digits.append(digit)
        return digit

    def nodes(self, inside: tuple[Node, ...] | None = None) -> tuple[Node, ...]:
        """What a thread does, or what is `inside`, in the loops around the one that threads share."""
        nodes = self.over() if inside is None else inside
        for loop in reversed(self.reduction.loops[:-1]):
            nodes = self._around(loop, nodes)
        return nodes

    def _serial(self, loop: Seq, covered: int) -> tuple[Digit | None, Digit | None]:
        """The digit of the block's part and that of a thread's turns."""
        count = self.choice.blocks.get(loop.index, 1)
        part, shared = None, self.crew.part_digit
        if shared is not None and loop.index in self.choice.blocks:
            part = Digit(
                name=self.draft.names.fresh(f"{stem(loop.index)}_part"),
                index=loop.index,
                weight=covered,
                radix=shared.radix,
                stride=shared.stride,
                place=shared.place,
            )
            self.draft.digits.append(part)
        begin = self.begin if loop is self.reduction.over else 0
        radix = ceildiv(at_least_zero(subtract(loop.extent, const(begin))), covered * count)
        if radix == ONE:
            return part, None
        name = self.draft.names.fresh(f"{stem(loop.index)}_serial")
        serial = Digit(name=name, index=loop.index, weight=covered * count, radix=radix, stride=ONE, place=Place.SERIAL)
        self.draft.digits.append(serial)
        return part, serial

    def over(self) -> tuple[Node, ...]:
        """What a thread does of the loop that threads share."""
        loop, nodes = self.reduction.over, self._at_once()
        part, serial = self._serial(loop, self.step * self.choice.ahead)
        own = multiply(const(self.choice.widths.get(loop.index, 1)), IndexVar(name=self.crew.team_index))
        own = add(const(self.begin), own)
        digits = tuple(d for d in (part, serial) if d is not None)
        nodes = (Define(index=self.first, digits=digits, offset=own), *nodes)
        return self._looped(loop, serial, nodes)

    def _around(self, loop: Seq, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        if self.choice.blocks.get(loop.index) is None:
            return (Loop(index=loop.index, extent=loop.extent, body=nodes, span=loop.span),)
        part, serial = self._serial(loop, 1)
        digits = tuple(d for d in (part, serial) if d is not None)
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=loop.index), right=loop.extent)
        guarded = Guard(condition=inside, body=nodes, padding=True, uniform=Scope.BLOCK, span=loop.span)
        return self._looped(loop, serial, (Define(index=loop.index, digits=digits), guarded))

    def _looped(self, loop: Seq, serial: Digit | None, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        if serial is None:
            return nodes
        return (Loop(index=serial.name, extent=serial.radix, body=nodes, digit=serial, span=loop.span),)

    # ---- one turn ----

    def _at_once(self) -> tuple[Node, ...]:
        """Loads of all rounds, then the additions of each."""
        over, crew = self.reduction.over, self.crew
        hardware = (*crew.nest.indices, *self.reduction.indices)
        body = changed(self.reduction.body, self.change())
        nodes = Body(self.draft, hardware=hardware, digits=crew.own).nodes(body)
        wide: tuple[Wide, ...] = ()
        if self.width > 1:
            found = along(self.draft.problem, self.reduction.reading, self.along, hardware, origin=crew.origin)
            wide = found.vectors(self.width).wide
        held = {one.element: self._register(one) for one in wide}
        nodes = through(nodes, {element: (name, (self._place(element),)) for element, name in held.items()})
        if self.runs is not None:
            nodes = self.runs.of(nodes, self._number())
        alone = self._alone(wide)
        round_ = ZERO if self.round is None else IndexVar(name=self.round.name)
        nodes = through(nodes, {element: (name, (round_,)) for element, name in alone.items()})
        extent = constant_value(over.extent)
        together = self.step * self.choice.ahead * self.choice.blocks.get(over.index, 1)
        self.exact = extent is not None and (extent - self.begin) % together == 0
        whole = self._ends_whole(over, self.choice.widths.get(over.index, 1))
        idle = self.runs is not None and self._adds_nothing({*held, *alone, *self.runs.held})
        if not self.exact and not whole and not idle:
            nodes = self._inside(IndexVar(name=over.index), nodes)
        nodes = self._defined(over.index, self.first, (self.round, self._vector_of(over.index)), nodes)
        if crew.along is not None and self.rows is None:
            first = crew.firsts[self.along]
            nodes = self._defined(self.along, first, (self.vector,), nodes)
        nodes = self._each_row(nodes)
        if not self.exact and whole and not (crew.origin and self._adds_nothing({*held, *alone})):
            ahead = ZERO if self.round is None else multiply(const(self.step), IndexVar(name=self.round.name))
            nodes = self._inside(add(IndexVar(name=self.first), ahead), nodes)
        nodes = self._unrolled(self.round, nodes)
        fresh = tuple(Fresh(buffer=name) for name in (*held.values(), *alone.values()))
        loads = self._loads(wide, held, alone) if crew.origin is None else self._by_chunks(wide, held, alone)
        across = self.runs.loads(exact=self.exact) if self.runs is not None else ()
        nodes = (*fresh, *loads, *across, *nodes)
        return self._inside(IndexVar(name=self.first), nodes) if idle and not self.exact else nodes

    def _each_row(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """An addition for all rows and neighbours of a thread: what lies across rows is made once for all of them."""
        if self.rows is None or self.runs is None:
            return self._unrolled(self.vector, nodes)
        if self.runs.held:
            return self._unrolled(self.vector, self.rows.each(nodes))
        return self.rows.each(self._unrolled(self.vector, nodes))

    def change(self) -> Change:
        """How a statement is run: its updates go to registers, those of the neighbour at hand."""
        vector = self.vector if self.crew.along is not None else None
        here: tuple[IndexExpr, ...] = () if vector is None else (IndexVar(name=vector.name),)
        here = here if self.rows is None else (self.rows.number,)
        return self.crew.into(self.parts, self.reduction.updates, here)

    def _loads(
        self, wide: Sequence[Wide], held: Mapping[Element, str], alone: Mapping[Element, str]
    ) -> tuple[Node, ...]:
        """The loads. Where there is a row for each and no chunk leaves its array, none is asked."""
        rows: tuple[Node, ...] = tuple(self._row(element, name, asks=True) for element, name in alone.items())
        loads = (*rows, *(self._load(one, held[one.element]) for one in wide))
        funnels = [one for one in wide if one.funnel]
        if not funnels:
            return loads
        over, crew = self.reduction.over, self.crew
        width = self.choice.widths.get(over.index, 1)
        last = add(IndexVar(name=self.first), const(self.step * (self.choice.ahead - 1)))
        ends: list[Condition] = []
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
            inside = chunks_inside(self.draft.problem, one, there)
            if inside is None:
                return loads
            ends.append(inside)
        rows = tuple(self._row(element, name, asks=False) for element, name in alone.items())
        plain = (*rows, *(self._load(one, held[one.element], asks=False) for one in wide))
        condition = conjunction(tuple(dict.fromkeys(ends)))
        return (Guard(condition=condition, body=plain, orelse=loads, padding=True, span=over.span),)

    def _by_chunks(
        self, wide: Sequence[Wide], held: Mapping[Element, str], alone: Mapping[Element, str]
    ) -> tuple[Node, ...]:
        """Loads of aligned chunks, and of what each row has once. Where no chunk leaves its array, none is asked for
        more than that it has an element of the band, and none for its row where all rows are there."""
        over, crew, problem = self.reduction.over, self.crew, self.draft.problem
        first, here = IndexVar(name=self.first), IndexVar(name=crew.firsts[self.along])
        assert crew.along is not None, "there are neighbours"
        last_row = add(first, const(self.step * (self.choice.ahead - 1)))
        last = minimum(add(here, const(self.width - 1)), subtract(crew.along.extent, ONE))
        nodes = self._chunks(wide, held, alone, asks=True, exact=True)
        for asks in (True, False) if not self.exact else (False,):
            end = minimum(last_row, subtract(over.extent, ONE)) if asks else last_row
            near = [chunks_near(problem, one, {over.index: (first, end), self.along: (here, last)}) for one in wide]
            known = tuple(condition for condition in near if condition is not None)
            if len(known) < len(near):
                continue
            all_rows = () if asks or self.exact else (Compare(op=CompareOp.LT, left=last_row, right=over.extent),)
            condition = conjunction(tuple(dict.fromkeys((*all_rows, *known))))
            plain = self._chunks(wide, held, alone, asks=asks, exact=False)
            nodes = (Guard(condition=condition, body=plain, orelse=nodes, padding=True, span=over.span),)
        return nodes

    def _chunks(
        self,
        wide: Sequence[Wide],
        held: Mapping[Element, str],
        alone: Mapping[Element, str],
        *,
        asks: bool,
        exact: bool,
    ) -> tuple[Node, ...]:
        """All loads of a turn; `asks`: whether there is a row for each, `exact`: no byte that is not wanted is read."""
        return (
            *(self._chunk(one, held[one.element], asks=asks, exact=exact) for one in wide),
            *(self._row(element, name, asks=asks) for element, name in alone.items()),
        )

    def _chunk(self, wide: Wide, register: str, *, asks: bool, exact: bool) -> Copy:
        """The loads of all rounds of an element's chunks, of which those of the band's elements are wanted."""
        load, here = self._load(wide, register, asks=asks), IndexVar(name=self.crew.firsts[self.along])
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

    def _alone(self, wide: Sequence[Wide]) -> dict[Element, str]:
        """Registers for what each row has once, by its element: it would else be waited for behind loads in chunks."""
        several = self.crew.along is not None and self.rows is None
        if not several or not (self.crew.origin or any(one.funnel for one in wide)):
            return {}
        found = dict[Element, str]()
        for element in rows_alone(self.draft.problem, self.reduction, self.along):
            dtype, layout = self.draft.kernel.buffer(element[0]).dtype, row_major((const(self.choice.ahead),))
            reason, span = f"what a row has of {element[0]}, loaded with it", self.reduction.over.span
            found[element] = self.draft.local(f"{element[0]}_row", dtype, Memory.REG, layout, reason, span=span)
        return found

    def _row(self, element: Element, register: str, *, asks: bool) -> Node:
        """The loads of what each row has once."""
        asks = asks and not self.exact
        return row_load(
            self.crew, self.reduction.over, element, register, self.first, self.step, self.choice.ahead, asks
        )

    def _adds_nothing(self, zeros: Collection[Element]) -> bool:
        """Whether an iteration that reads zeros there leaves all parts as they are."""
        return all(
            isinstance(u, Accumulate) and u.op is AccOp.ADD and is_zero(u.value, zeros) for u in self.reduction.updates
        ) and len(self.reduction.body) == len(self.reduction.updates)

    def _ends_whole(self, loop: Seq, width: int) -> bool:
        """Whether neighbours that a thread takes are all there or none of them."""
        return linear(loop.extent).is_multiple(width, self.draft.problem.divisors)

    def _inside(self, index: IndexExpr, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        over = self.reduction.over
        inside = Compare(op=CompareOp.LT, left=index, right=over.extent)
        return (Guard(condition=inside, body=nodes, padding=True, span=over.span),)

    def _unrolled(self, digit: Digit | None, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        if digit is None:
            return nodes
        span = self.reduction.over.span
        return (Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=True, span=span),)

    def _vector_of(self, index: str) -> Digit | None:
        return self.vector if index == self.along else None

    def _defined(
        self, index: str, first: str, digits: Sequence[Digit | None], nodes: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        own = tuple(d for d in digits if d is not None)
        return (Define(index=index, digits=own, offset=IndexVar(name=first)), *nodes)

    def _number(self) -> IndexExpr:
        """That of the addition at hand, among those of a turn."""
        here: IndexExpr = ZERO if self.vector is None else IndexVar(name=self.vector.name)
        if self.round is None:
            return here
        return add(multiply(const(self.width), IndexVar(name=self.round.name)), here)

    def _place(self, element: Element) -> IndexExpr:
        """The element of a register array that an addition takes."""
        here = self._number()
        if self.rows is not None:
            here = self.rows.place(self.width * self.choice.ahead, element, self.rows.at_hand, here)
        return here

    def _register(self, wide: Wide) -> str:
        rows = self.rows.count(wide.element) if self.rows is not None else 1
        layout = row_major((const(rows * self.width * self.choice.ahead),))
        reason = f"neighbouring elements of {wide.element[0]}, moved {wide.width} at a time"
        return self.draft.local(f"{wide.element[0]}_run", wide.dtype, Memory.REG, layout, reason, span=wide.first.span)

    def _load(self, wide: Wide, register: str, *, asks: bool = True) -> Copy:
        """The loads of all rounds; `asks`: whether there is a row for each, and its chunks lie in the array."""
        fresh, over = self.draft.names.fresh, self.reduction.over
        q, a, e = (fresh(f"{stem(self.along)}_{word}") for word in ("ahead", "access", "element"))
        box: list[tuple[str, IndexExpr]] = [(q, const(self.choice.ahead))] if self.choice.ahead > 1 else []
        round_ = multiply(const(self.step), IndexVar(name=q)) if self.choice.ahead > 1 else ZERO
        start: IndexExpr = ZERO
        if self.width > wide.width:
            box.append((a, const(self.width // wide.width)))
            start = multiply(const(wide.width), IndexVar(name=a))
        box.append((e, const(wide.width)))
        here = add(start, IndexVar(name=e))
        first = add(IndexVar(name=self.first), round_)
        name, subscripts = wide.element
        of_run = self.along == over.index
        there = at(subscripts, over.index, add(first, here) if of_run else first)
        if not of_run:
            there = at(there, self.along, add(IndexVar(name=self.crew.firsts[self.along]), here))
        in_register = add(multiply(const(self.width), IndexVar(name=q)), here) if self.choice.ahead > 1 else here
        if self.rows is not None:
            own, numbers = self.rows.loops(wide.element)
            box = [*own, *box]
            there = self.rows.there(there, numbers)
            in_register = self.rows.place(self.width * self.choice.ahead, wide.element, numbers, in_register)
        left = subtract(over.extent, first)
        end = subtract(left, start) if of_run else multiply(const(wide.width), left)
        whole = not of_run or self._ends_whole(over, self.width)
        all_rows = self.exact or not asks
        if all_rows:
            end = const(wide.width)
        ends = self.crew.cut if self.rows is None else None
        if ends is not None:
            here_on = subtract(ends, add(IndexVar(name=self.crew.firsts[self.along]), start))
            end = here_on if all_rows else minimum(end, here_on)
        cut = not all_rows or (wide.funnel and asks) or ends is not None
        exact = asks and (not whole or wide.funnel)
        other = nothing(wide.dtype, wide.first.span)
        return Copy(
            id=fresh(f"{getattr(wide.first, 'id', self.along)}_load"),
            source=View(buffer=name, subscripts=there, dtype=wide.dtype),
            target=View(buffer=register, subscripts=(in_register,), dtype=wide.dtype),
            over=tuple(box),
            within=Within(begin=ZERO, end=end, other=other, exact=exact) if cut else None,
            access=Access.FUNNEL if wide.funnel else Access.ALIGNED,
            digits=self.crew.own,
            span=wide.first.span,
        )
