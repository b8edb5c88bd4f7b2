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
    multiply,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.crew import Crew, Part, reach
from texpr.polyhedral.map.part_lines import rows_alone
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.round_loads import RoundLoads
from texpr.polyhedral.map.row_runs import RowRuns
from texpr.polyhedral.map.rows_beside import RowsBeside, takes_rows
from texpr.polyhedral.map.runs import through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.updates import Change, changed, is_zero
from texpr.polyhedral.map.vectors import Element, Wide, along
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.names import stem


class Rounds:
    """What a thread adds of one reduction, from iteration `begin` on: rounds of `ahead` wide loads of each array, then
    the additions. With `next_turn` each round is loaded again, for the turn behind, as soon as it is added; these are
    the `loads`, and who takes that turn has them `loaded`."""

    def __init__(
        self,
        crew: Crew,
        reduction: Reduction,
        parts: Mapping[str, Part],
        *,
        begin: int = 0,
        ahead: int | None = None,
        next_turn: bool = False,
        loaded: RoundLoads | None = None,
    ) -> None:
        self.crew, self.reduction, self.parts, self.begin = crew, reduction, parts, begin
        self.next_turn, self.loaded, self.loads = next_turn, loaded, loaded
        self.draft = crew.draft
        self.choice = crew.choice if ahead is None else replace(crew.choice, ahead=ahead)
        fresh, over = self.draft.names.fresh, reduction.over
        self.first = fresh(f"{stem(over.index)}_first")
        rows = crew.taken if takes_rows(crew, self.choice) else ()
        self.along = (over if rows else crew.along or over).index
        self.width = self.choice.widths.get(self.along, 1)
        own = (self._digit(par.index, "row", crew.apart, self.choice.patch[par.index], Place.VECTOR) for par in rows)
        self.rows = RowsBeside(crew, tuple(digit for digit in own if digit is not None)) if rows else None
        self.step = crew.team * self.choice.widths.get(over.index, 1)
        self.round = self._digit(over.index, "round", self.step, self.choice.ahead, Place.SERIAL)
        self.vector = self._digit(self.along, "vector", 1, self.width, Place.VECTOR)
        self.runs = RowRuns(crew, reduction, self.choice, self.rows, self.first, self.step) if self.rows else None
        self.number: IndexExpr = ZERO if self.round is None else IndexVar(name=self.round.name)
        extent = constant_value(over.extent)
        together = self.step * self.choice.ahead * self.choice.blocks.get(over.index, 1)
        self.exact = extent is not None and (extent - begin) % together == 0 and crew.rows_origin is None

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
        extent = reach(self.reduction, self.choice, loop.index)
        radix = ceildiv(at_least_zero(subtract(extent, const(begin))), covered * count)
        if radix == ONE:
            return part, None
        name = self.draft.names.fresh(f"{stem(loop.index)}_serial")
        serial = Digit(name=name, index=loop.index, weight=covered * count, radix=radix, stride=ONE, place=Place.SERIAL)
        self.draft.digits.append(serial)
        return part, serial

    def over(self) -> tuple[Node, ...]:
        """What a thread does of the loop that threads share."""
        loads, turns = self.apart()
        return (*loads, *turns)

    def apart(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The same: the loads of the first turn, where they come before all turns, and these."""
        loop, (loads, additions) = self.reduction.over, self._at_once()
        part, serial = self._serial(loop, self.step * self.choice.ahead)
        own = multiply(const(self.choice.widths.get(loop.index, 1)), IndexVar(name=self.crew.team_index))
        own = add(const(self.begin), own)
        if self.crew.rows_origin is not None:
            own = subtract(own, IndexVar(name=self.crew.lead))
        digits = tuple(d for d in (part, serial) if d is not None)
        define = Define(index=self.first, digits=digits, offset=own)
        if self.loaded is not None:
            return (), self._looped(loop, serial, (define, *self._unrolled(self.round, additions)))
        fresh = tuple(Fresh(buffer=name) for name in (*loads.held.values(), *loads.alone.values()))
        if self.next_turn:
            self.loads, begin = loads, self.draft.names.fresh(f"{stem(loop.index)}_first")
            first = add(own, ZERO if part is None else multiply(const(part.weight), IndexVar(name=part.name)))
            rounds = self._unrolled(self.round, (*additions, *self._next_loads(loads)))
            before = (Define(index=begin, digits=(), offset=first), *fresh, *replace(loads, first=begin).nodes())
            return before, self._looped(loop, serial, (define, *rounds))
        across = self.runs.loads(exact=self.exact) if self.runs is not None else ()
        rounds, brought = self._unrolled(self.round, additions), (*fresh, *loads.nodes(), *across)
        if self.idle and not self.exact:
            rounds, brought = self._inside(IndexVar(name=self.first), (*brought, *rounds)), ()
        if serial is None:
            return (define, *brought), rounds
        return (), self._looped(loop, serial, (define, *brought, *rounds))

    def _next_loads(self, loads: RoundLoads) -> tuple[Node, ...]:
        """The loads of this round of the next turn: on their way while other rounds are added."""
        first = self.draft.names.fresh(f"{stem(self.reduction.over.index)}_next")
        blocks = self.choice.blocks.get(self.reduction.over.index, 1)
        turn = const(self.step * self.choice.ahead * blocks)
        define = Define(index=first, digits=(), offset=add(IndexVar(name=self.first), turn))
        return (define, *loads.of_round(first, self.number).nodes())

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

    def _at_once(self) -> tuple[RoundLoads, tuple[Node, ...]]:
        """The loads of a turn, and the additions of a round."""
        over, crew = self.reduction.over, self.crew
        hardware = (*crew.nest.indices, *self.reduction.indices)
        body = changed(self.reduction.body, self.change())
        nodes = Body(self.draft, hardware=hardware, digits=crew.own).nodes(body)
        wide: tuple[Wide, ...] = ()
        if self.width > 1:
            origin = crew.origin or crew.rows_origin
            found = along(self.draft.problem, self.reduction.reading, self.along, hardware, origin=origin)
            wide = found.vectors(self.width).wide
        held = self.loaded.held if self.loaded is not None else {one.element: self._register(one) for one in wide}
        nodes = through(nodes, {element: (name, (self._place(element),)) for element, name in held.items()})
        if self.runs is not None:
            nodes = self.runs.of(nodes, self._addition(), self.begin)
        alone = self.loaded.alone if self.loaded is not None else self._alone(wide)
        nodes = through(nodes, {element: (name, (self.number,)) for element, name in alone.items()})
        loads = RoundLoads(
            crew=crew,
            over=over,
            along=self.along,
            width=self.width,
            step=self.step,
            ahead=self.choice.ahead,
            exact=self.exact,
            rows=self.rows,
            wide=wide,
            held=held,
            alone=alone,
            first=self.first,
        )
        whole = self._ends_whole(over)
        self.idle = self.runs is not None and self._adds_nothing({*held, *alone, *self.runs.held})
        if not self.exact and not whole and not self.idle:
            nodes = self._inside(IndexVar(name=over.index), nodes)
        nodes = self._defined(over.index, self.first, (self.round, self._vector_of(over.index)), nodes)
        if crew.along is not None and self.rows is None:
            first = crew.firsts[self.along]
            nodes = self._defined(self.along, first, (self.vector,), nodes)
        nodes = self._each_row(nodes)
        if not self.exact and whole and not (crew.origin and self._adds_nothing({*held, *alone})):
            ahead = multiply(const(self.step), self.number)
            nodes = self._inside(add(IndexVar(name=self.first), ahead), nodes)
        return loads, nodes

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

    def _alone(self, wide: Sequence[Wide]) -> dict[Element, str]:
        """Registers for what each row has once, by its element: it would else be waited for behind loads in chunks."""
        several = self.crew.along is not None and self.rows is None
        early = self.crew.origin or self.next_turn or any(one.funnel for one in wide)
        if not several or not early:
            return {}
        found = dict[Element, str]()
        for element in rows_alone(self.draft.problem, self.reduction, self.along):
            dtype, layout = self.draft.kernel.buffer(element[0]).dtype, row_major((const(self.choice.ahead),))
            reason, span = f"what a row has of {element[0]}, loaded with it", self.reduction.over.span
            found[element] = self.draft.local(f"{element[0]}_row", dtype, Memory.REG, layout, reason, span=span)
        return found

    def _adds_nothing(self, zeros: Collection[Element]) -> bool:
        """Whether an iteration that reads zeros there leaves all parts as they are."""
        return all(
            isinstance(u, Accumulate) and u.op is AccOp.ADD and is_zero(u.value, zeros) for u in self.reduction.updates
        ) and len(self.reduction.body) == len(self.reduction.updates)

    def _ends_whole(self, loop: Seq) -> bool:
        """Whether neighbours that a thread takes are all there or none of them."""
        if loop.index in self.choice.lines:
            return False
        return linear(loop.extent).is_multiple(self.choice.widths.get(loop.index, 1), self.draft.problem.divisors)

    def _inside(self, index: IndexExpr, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        over = self.reduction.over
        inside: Condition = Compare(op=CompareOp.LT, left=index, right=over.extent)
        if self.crew.rows_origin is not None and index == IndexVar(name=over.index):
            inside = conjunction((Compare(op=CompareOp.LE, left=ZERO, right=index), inside))
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

    def _addition(self) -> IndexExpr:
        """The number of the addition at hand, among those of a turn."""
        here: IndexExpr = ZERO if self.vector is None else IndexVar(name=self.vector.name)
        if self.round is None:
            return here
        return add(multiply(const(self.width), self.number), here)

    def _place(self, element: Element) -> IndexExpr:
        """The element of a register array that an addition takes."""
        here = self._addition()
        if self.rows is not None:
            here = self.rows.place(self.width * self.choice.ahead, element, self.rows.at_hand, here)
        return here

    def _register(self, wide: Wide) -> str:
        rows = self.rows.count(wide.element) if self.rows is not None else 1
        layout = row_major((const(rows * self.width * self.choice.ahead),))
        reason = f"neighbouring elements of {wide.element[0]}, moved {wide.width} at a time"
        return self.draft.local(f"{wide.element[0]}_run", wide.dtype, Memory.REG, layout, reason, span=wide.first.span)
