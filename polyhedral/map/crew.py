"""The threads and blocks that share reductions out: where each stands, and what they have of a sum.

512 threads, 528 blocks        a team of 512 for one element, in 528 parts
32 x 8 threads, 33 blocks      32 threads have 4 elements each, a team of 8 for each of them, in 33 parts
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Compare,
    CompareOp,
    Expr,
    IndexExpr,
    IndexVar,
    Par,
    Read,
    Stmt,
)
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    const,
    minimum,
    multiply,
    names,
    subtract,
)
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import BOOL, F32, F64, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lines import lead_of
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.part_lines import own_columns, part_origin, row_origin
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.serial import Body, of_combining
from texpr.polyhedral.map.updates import (
    Change,
    Component,
    Update,
    components,
    in_registers,
    local_of,
    monoid_of,
)
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.map.work import Work, shared_nest
from texpr.polyhedral.mapped.candidate import Parted, Scanned
from texpr.polyhedral.mapped.operators import Generic, Origin, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Loop, Node
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.names import stem


def parts_of(reduction: Reduction, choice: Parted, index: str, moving: frozenset[str]) -> IndexExpr:
    """How many blocks share an index of a reduction, at least one: as many as there is work for, where its extent
    depends on no index that is `moving` in the launch."""
    most_of, loop = choice.blocks[index], next(s for s in reduction.loops if s.index == index)
    covered = covered_by_block(reduction, choice, index)
    needed = ceildiv(reach(reduction, choice, index), covered)
    if moving & names(loop.extent):
        return const(most_of)
    return add(ONE, at_least_zero(subtract(minimum(const(most_of), needed), ONE)))


def team_of(choice: Parted | Scanned) -> int:
    """The threads of a block that share a reduction, or a scan, of one element."""
    return choice.threads // prod(threads for _, threads in choice.deal)


def covered_by_block(reduction: Reduction, choice: Parted, index: str) -> int:
    """How many iterations of an index a block takes at a time."""
    return team_of(choice) * choice.widths.get(index, 1) * choice.ahead if index == reduction.over.index else 1


def reach(reduction: Reduction, choice: Parted, index: str) -> IndexExpr:
    """How many iterations of an index there are from where the first thread may begin."""
    extent = next(s for s in reduction.loops if s.index == index).extent
    return add(extent, const(choice.widths[index] - 1)) if index in choice.lines else extent


def turns_of(choice: Parted, reduction: Reduction) -> tuple[IndexExpr, ...]:
    """How often a thread comes to each loop of a reduction."""
    found: list[IndexExpr] = []
    for loop in reduction.loops:
        together = covered_by_block(reduction, choice, loop.index) * choice.blocks.get(loop.index, 1)
        found.append(ceildiv(at_least_zero(reach(reduction, choice, loop.index)), together))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The partial result of an update in a thread's registers, one for each component of its monoid, with an element
    for each neighbour that the thread takes; `local` has the condition of a pick."""

    update: Update
    registers: tuple[str, ...]
    local: str
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Two numbers of a thread in its block, their digits, and the nodes that define them."""

    inner: str
    outer: str
    digits: tuple[str, ...]
    nodes: tuple[Node, ...]


def cut_of(problem: Problem, par: Par, width: int) -> IndexExpr | None:
    """Where an index of which threads take so many neighbours ends inside those of a thread; None where it does not."""
    return None if linear(par.extent).is_multiple(width, problem.divisors) else par.extent


class Crew:
    """What the parts of a launch in the making share. `team` threads share an element, `own` are the digits of a thread
    in the band and in its team; of the index `along`, if any, or of two that are `taken`, a thread has `width`
    neighbours, from the values of the names in `firsts` on, and the last ones end at `cut` where that is no multiple.
    Where they are counted from chunks of
    the `origin`, the first of a team lies `lead` elements before a block's first one; what its threads read ends where
    its last one does, before `strip_end`. Where runs along a reduction are counted from chunks of `rows_origin`, the
    first one begins `lead` iterations before the first, and rows of a thread lie `apart`, first those of the block of
    the number `group`. `part`, one of `parts`, numbers
    the blocks that share the elements of one, at `tile` among `tiles`: who deals blocks to the grid says where these
    stand, and which digit each index of which threads have neighbours has there (`block`)."""

    def __init__(self, draft: Draft, region: Region, choice: Parted, found: Work) -> None:
        self.draft, self.choice, self.work = draft, choice, found
        self.nest, self.ranges = shared_nest(region, choice.shared_out)
        self.span = region.stmts[0].span.to(region.stmts[-1].span)
        self.warp = draft.target.warp_size
        self.team = team_of(choice)
        self.elements = choice.threads // self.team
        self.taken = tuple(p for p in self.nest.pars if p.index in choice.taken)
        self.along = self.taken[0] if self.taken else None
        self.width = prod(choice.taken[par.index] for par in self.taken)
        self.origin = part_origin(draft.problem, self.nest, found, choice, self.team)
        alike = row_origin(draft.problem, self.nest, found, choice)
        self.rows_origin = None if alike is None else alike[0]
        self.apart = 1 if alike is None else alike[1]
        fresh = draft.names.fresh
        self.lead = fresh("lead") if self.origin is not None or self.rows_origin is not None else ""
        self.strip_end = fresh("strip_end") if choice.strip else ""
        self.team_index, self.part = fresh("team"), fresh("part")
        self.part_digit: Digit | None = None
        self.block: Mapping[str, Digit] = {}
        self.parts: IndexExpr = ONE
        self.tile: tuple[IndexExpr, ...] = ()
        self.tiles: tuple[IndexExpr, ...] = ()
        self.firsts = {p.index: fresh(f"{stem(p.index)}_first") for p in self.nest.pars if p.index in choice.taken}
        self.group = fresh(f"{stem(self.taken[0].index)}_group") if self.apart > 1 else ""
        own = tuple((self.nest.indices.index(index), n) for index, n in choice.deal)
        rest = ((len(self.nest.indices), self.team),) if self.team > 1 else ()
        self.band = self.digits((*self.nest.indices, self.team_index), (*own, *rest), choice.taken)
        self.own = tuple(d.name for d in self.band.all)

    def lead_of(self, name: str, member: str) -> Lead:
        """How far the rows of a member of the team begin behind a chunk, all alike."""
        assert self.origin is not None and self.along is not None, "neighbours are counted from chunks"
        row: dict[str, IndexExpr] = {loop.index: ZERO for r in self.work.reductions for loop in r.loops}
        row |= {r.over.index: IndexVar(name=member) for r in self.work.reductions}
        return lead_of(self.draft.problem, name, self.origin, self.along.index, ACCESS_BYTES, row)

    def lead_of_rows(self) -> Lead:
        """How far the rows of a thread begin behind a chunk, all alike."""
        assert self.rows_origin is not None and self.along is not None, "runs are counted from chunks"
        row: dict[str, IndexExpr] = {loop.index: ZERO for r in self.work.reductions for loop in r.loops[:-1]}
        row |= {self.along.index: IndexVar(name=self.firsts[self.along.index])}
        (one,) = self.work.reductions
        return lead_of(self.draft.problem, self.lead, self.rows_origin, one.over.index, ACCESS_BYTES, row)

    @property
    def cut(self) -> IndexExpr | None:
        """Where the neighbours along end."""
        return self.cut_of(self.along.index) if self.along is not None else None

    def cut_of(self, index: str) -> IndexExpr | None:
        """Where an index of which threads take neighbours ends inside those of a thread; None where it does not."""
        par = next(par for par in self.taken if par.index == index)
        return cut_of(self.draft.problem, par, self.choice.taken[index] * self.apart)

    @property
    def covered(self) -> dict[str, int]:
        """How many iterations of each index of the band a block has."""
        found = dict(zip(self.nest.indices, self.band.covered, strict=False))
        if self.along is not None and self.origin is not None:
            found[self.along.index] = own_columns(self.choice, self.elements, self.width)
        if self.along is not None and self.apart > 1:
            found[self.along.index] = 1  # each block has a group of rows
        return found

    def digits(
        self, indices: Sequence[str], pieces: Sequence[tuple[int, int]], each: Mapping[str, int] | None = None
    ) -> ThreadDigits:
        band = thread_digits(indices, pieces, self.draft.names, self.warp, each or {})
        self.draft.digits += band.all
        return band

    def stand(self, words: tuple[str, str], pieces: tuple[int, int]) -> Stand:
        """Where threads stand that exchange what they have: two numbers with names of their own, the first faster."""
        inner, outer = map(self.draft.names.fresh, words)
        band = self.digits((inner, outer), tuple(enumerate(pieces)))
        nodes = tuple(
            Define(index=name, digits=tuple(reversed(mine)))
            for name, mine in zip((inner, outer), band.digits, strict=True)
        )
        return Stand(inner=inner, outer=outer, digits=tuple(d.name for d in band.all), nodes=nodes)

    def each(self, name: str, body: Sequence[Node], update: Update) -> tuple[Node, ...]:
        """The body for every element of a thread's registers."""
        if self.width == 1:
            return tuple(body)
        count = const(self.width)
        return (Loop(index=name, extent=count, body=tuple(body), unroll=True, span=update.span),)

    def element(self, name: str) -> tuple[IndexExpr, ...]:
        return (IndexVar(name=name),) if self.width > 1 else ()

    def neighbour(self) -> tuple[str, tuple[IndexExpr, ...]]:
        """A name for one of a thread's elements, and where it lies in registers; none where it has one alone."""
        name = self.draft.names.fresh("element") if self.width > 1 else ""
        return name, self.element(name)

    def of_each(self, element: str, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """The nodes for each of a thread's neighbours, by their number: those that are iterations of the band."""
        body: tuple[Node, ...] = tuple(nodes)
        number: IndexExpr = ZERO
        names_ = [element if len(self.taken) == 1 else self.draft.names.fresh(element) for _ in self.taken]
        for par, name in zip(self.taken, names_, strict=True):
            number = add(multiply(number, const(self.choice.taken[par.index])), IndexVar(name=name))
        if len(self.taken) > 1:
            body = (Define(index=element, digits=(), offset=number), *body)
        for par, name in reversed(list(zip(self.taken, names_, strict=True))):
            radix, cut = const(self.choice.taken[par.index]), self.cut_of(par.index)
            digit = Digit(name=name, index=par.index, weight=self.apart, radix=radix, stride=ONE, place=Place.VECTOR)
            self.draft.digits.append(digit)
            if cut is not None:
                there = Compare(op=CompareOp.LT, left=IndexVar(name=par.index), right=cut)
                body = (Guard(condition=there, body=body, padding=True, span=par.span),)
            define = Define(index=par.index, digits=(digit,), offset=IndexVar(name=self.firsts[par.index]))
            body = (define, *body)
            body = (Loop(index=name, extent=radix, body=body, digit=digit, unroll=True, span=par.span),)
        return body

    def is_long(self, update: Update) -> bool:
        return update.id in self.draft.long

    def into(self, parts: Mapping[str, Part], updates: Sequence[Update], at: tuple[IndexExpr, ...]) -> Change:
        """How a statement of a reduction is run: its updates go to these parts' registers."""

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            if isinstance(stmt, Accumulate | Atomic):
                return (self._into(parts.get(stmt.id), stmt, at),)
            return in_registers(stmt, updates, lambda pick: (self.read(parts[pick.id], at=at), parts[pick.id].local))

        return change

    def _into(self, part: Part | None, stmt: Accumulate | Atomic, at: tuple[IndexExpr, ...]) -> Stmt:
        if part is None:
            return stmt
        (register,) = self.read(part, at=at)
        narrowed = self.is_long(part.update) and register.dtype != F64
        value = narrow(stmt.value) if narrowed else stmt.value
        return replace(stmt, buffer=register.buffer, subscripts=register.subscripts, value=value)

    def final(self, body: Body, total: Part, element: str) -> tuple[Node, ...]:
        """The program's own update, by all parts together."""
        update, values = total.update, self.read(total, at=self.element(element))
        if isinstance(update, Pick):
            return of_combining(body.nodes(update.at_end(values, total.local)))
        value: Expr = values[0]
        if self.is_long(update):
            value = as_type(value, F64 if self.draft.buffers[update.buffer].dtype == F64 else F32)
        final = body.leaf(replace(update, value=value))
        return (replace(final, id=f"{update.id}_out", origin=Origin.COMBINE),)

    def registers(self, update: Update, what: str, dtype: DType | None = None) -> Part:
        """Registers of an update, an accumulation's of this type, if any."""
        found, shape = components(update, dtype), (const(self.width),) if self.width > 1 else ()
        registers = tuple(self.buffer(f"{c.word}_{what}", c.dtype, shape, Memory.REG) for c in found)
        own = local_of(update)
        local = self.buffer("picked", BOOL, (), Memory.REG) if own is None else own
        return Part(update=update, registers=registers, components=found, local=local)

    def buffer(self, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...], memory: Memory) -> str:
        reason = {
            Memory.REG: "a thread's part of a reduction",
            Memory.SHARED: "where the parts of a block's threads meet",
            Memory.GLOBAL: self._why(),
        }[memory]
        return self.draft.local(wanted, dtype, memory, row_major(shape), reason)

    def _why(self) -> str:
        most = max(self.choice.blocks.values(), default=1)
        return f"the parts of at most {most} blocks, as many as run at a time with all elements; the last one adds them"

    def started(self, part: Part, suffix: str) -> tuple[Node, ...]:
        """The registers of a part without elements."""
        name = self.draft.names.fresh("element")
        first = tuple(
            self.bind(part.update, f"{c.id}_{suffix}", Origin.INIT, register, self.element(name), c.start, self.own)
            for register, c in zip(part.registers, part.components, strict=True)
        )
        return (*(Fresh(buffer=register) for register in part.registers), *self.each(name, first, part.update))

    def read(
        self, part: Part, buffers: Sequence[str] | None = None, at: tuple[IndexExpr, ...] = ()
    ) -> tuple[Read, ...]:
        """The components of a part, from its registers or elsewhere."""
        named = zip(part.registers if buffers is None else buffers, part.components, strict=True)
        span = part.update.span
        return tuple(Read(buffer=name, subscripts=at, dtype=c.dtype, span=span) for name, c in named)

    def put(
        self,
        part: Part,
        suffix: str,
        buffers: Sequence[str],
        at: tuple[IndexExpr, ...],
        values: Sequence[Expr],
        digits: tuple[str, ...],
    ) -> tuple[Generic, ...]:
        """The components of a part, where others see them."""
        return tuple(
            self.bind(part.update, f"{c.id}_{suffix}", Origin.COMBINE, name, at, value, digits)
            for name, c, value in zip(buffers, part.components, values, strict=True)
        )

    def reduce(
        self,
        part: Part,
        suffix: str,
        values: tuple[Read, ...],
        *,
        over: Box = (),
        lanes: int = 1,
        at: tuple[IndexExpr, ...] = (),
        digits: tuple[str, ...] = (),
    ) -> Reduce:
        named = zip(part.registers, part.components, strict=True)
        return Reduce(
            id=f"{part.update.id}_{suffix}",
            monoid=monoid_of(part.update),
            values=values,
            targets=tuple(View(buffer=name, subscripts=at, dtype=c.dtype) for name, c in named),
            over=over,
            lanes=lanes,
            digits=digits,
            unused=None if digits else Unused.REPLICATED,
            span=part.update.span,
        )

    def bind(
        self,
        update: Update,
        id: str,
        origin: Origin,
        buffer: str,
        subscripts: tuple[IndexExpr, ...],
        value: Expr,
        digits: tuple[str, ...],
    ) -> Generic:
        leaf = Bind(id=id, buffer=buffer, subscripts=subscripts, value=value, span=update.span)
        return Generic(id=id, leaf=leaf, origin=origin, digits=digits)
