"""Launches whose `atomic` updates go to copies that each block has of small arrays, in its shared memory.

    par N i { atomic H[K[i]] += 1 }           1024 threads, 32 copies of H: i32[256]

    every block:    H_own[b, c] = 0           for all b and c
    every thread:   for i_serial: loads of several keys, then   atomic H_own[K[i], team % 32] += 1
    every block:    H_sum = sum of H_own[b, c] over c; if H_sum != 0: atomic H[b] += H_sum      for its b

Neighbouring lanes have copies of their own, which lie one after the other: none waits for another one, whatever the
keys are, neither for a bank of shared memory nor for an element that all of them update. What no iteration of the block
updated is left alone. Iterations are shared out as those of a reduction are (`rounds.py`).
"""

from dataclasses import replace
from math import prod

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Atomic,
    Bind,
    Compare,
    CompareOp,
    Const,
    Expr,
    Fn,
    IndexExpr,
    IndexVar,
    Leaf,
    Op,
    Read,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, combine, const, constant_value
from texpr.grammar.index.operators import IndexOp
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.crew import Crew, parts_of
from texpr.polyhedral.map.digits import grid_digits, grid_size
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import place_in
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.rounds import Rounds
from texpr.polyhedral.map.tally import Tally, tally
from texpr.polyhedral.map.updates import Change
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Tallied
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node


def build_tallied(draft: Draft, region: Region, choice: Tallied) -> Launch:
    """A band of updates whose blocks have copies."""
    nest, ranges = region.nest
    found = tally(draft.problem, nest, choice.over)
    assert found is not None, "the candidate fits"
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    serial = replace(region, stmts=(found.loops[0],))
    crew = Crew(draft, serial, choice.shared_out, Work(reductions=(found,), first=(), last=()))
    block = _grid(crew, found)
    copies = tuple(_Copies(crew, name, found.of[name], count) for name, count in choice.copies.items())
    body: list[Node] = [Define(index=crew.team_index, digits=tuple(reversed(crew.band.digits[-1])))]
    for one in copies:
        body += one.begin()
    body += _Updates(crew, found, copies).nodes()
    for one in copies:
        body += one.end()
    used = (block,) if block is not None else ()
    return Launch(
        name=region.name,
        grid=grid_size(used),
        threads=choice.threads,
        min_blocks=choice.resident,
        digits=used,
        body=tuple(body),
        span=crew.span,
    )


def _grid(crew: Crew, found: Tally) -> Digit | None:
    """The digit of the blocks that share the iterations."""
    index = next((i for i in found.indices if i in crew.choice.blocks), None)
    parts = ONE if index is None else parts_of(found, crew.choice, index, frozenset(found.indices))
    (block,) = grid_digits((crew.part,), (parts,), (1,), (0,), crew.draft.names, crew.draft.target, crew.span)
    if block is not None:
        crew.part_digit, crew.parts = block, block.radix
    return block


class _Copies:
    """The copies of one array, [elements, copies]."""

    def __init__(self, crew: Crew, name: str, op: AccOp, count: int) -> None:
        self.crew, self.name, self.op, self.count = crew, name, op, count
        array = crew.draft.buffers[name]
        self.shape = tuple(constant_value(extent) or 0 for extent in array.shape)
        self.dtype, self.elements = array.dtype, prod(self.shape)
        self.identity = Const(value=first_of(op, self.dtype), dtype=self.dtype)
        why = "the copies of a block, which it adds to the array at its end"
        self.own = self._buffer(f"{name}_own", self.dtype, (*self.shape, count), why)
        inside = statements(crew.work.reductions[0].body)
        self.first = next(s for s in inside if isinstance(s, Atomic) and s.buffer == name)

    def _buffer(self, wanted: str, dtype: DType, shape: tuple[int, ...], reason: str) -> str:
        memory = Memory.SHARED if shape else Memory.REG
        return self.crew.draft.local(wanted, dtype, memory, row_major(tuple(map(const, shape))), reason)

    def of_lane(self) -> IndexExpr:
        """The copy of a thread."""
        return combine(IndexOp.MOD, IndexVar(name=self.crew.team_index), const(self.count))

    def begin(self) -> list[Node]:
        """All elements of all copies, as nothing was added to them yet."""
        every = self._every("slot", self.elements * self.count)
        at = self._place(IndexVar(name=every.index), (*self.shape, self.count))
        start = self._leaf("begin", Origin.INIT, Bind, self.own, at, self.identity, every)
        return [Fresh(buffer=self.own), *every.nodes((start,))]

    def end(self) -> list[Node]:
        """Each element of the array, by what the copies have of it, where that is anything."""
        span, copy = self.first.span, self.crew.draft.names.fresh("copy")
        every = self._every("bin", self.elements)
        total = self._buffer(f"{self.name}_sum", self.dtype, (), "what the copies of a block have of an element")
        some = self._buffer(f"{self.name}_some", BOOL, (), "whether that changes the element")
        at = self._place(IndexVar(name=every.index), self.shape)
        here = combine(IndexOp.MOD, add(IndexVar(name=copy), IndexVar(name=every.index)), const(self.count))
        one = Read(buffer=self.own, subscripts=(*at, here), dtype=self.dtype, span=span)
        both = self._leaf("copy", Origin.COMBINE, Accumulate, total, (), one, every)
        has = Read(buffer=total, subscripts=(), dtype=self.dtype, span=span)
        changes = Op(fn=Fn.NE, args=(has, self.identity), dtype=BOOL, span=span)
        update = self._leaf("end", Origin.COMBINE, Atomic, self.name, at, has, every)
        condition = Read(buffer=some, subscripts=(), dtype=BOOL, span=span)
        nodes: tuple[Node, ...] = (
            Fresh(buffer=total),
            self._leaf("total", Origin.INIT, Bind, total, (), self.identity, every),
            Loop(index=copy, extent=const(self.count), body=(both,), unroll=True, span=span),
            Fresh(buffer=some),
            self._leaf("some", Origin.COMBINE, Bind, some, (), changes, every),
            Guard(condition=condition, body=(update,), span=span),
        )
        return every.nodes(nodes)

    def _every(self, wanted: str, count: int) -> "_Every":
        return _Every(self.crew, wanted, count, self.first.span)

    def _place(self, number: IndexExpr, shape: tuple[int, ...]) -> tuple[IndexExpr, ...]:
        """The subscripts of the element of that number."""
        found: list[IndexExpr] = []
        for dim, extent in enumerate(shape):
            behind = prod(shape[dim + 1 :])
            at = number if behind == 1 else combine(IndexOp.DIV, number, const(behind))
            found.append(at if dim == 0 else combine(IndexOp.MOD, at, const(extent)) if extent > 1 else ZERO)
        return tuple(found)

    def _leaf(
        self,
        what: str,
        origin: Origin,
        kind: type[Bind | Accumulate | Atomic],
        buffer: str,
        at: tuple[IndexExpr, ...],
        value: Expr,
        every: "_Every",
    ) -> Generic:
        id, span = self.crew.draft.names.fresh(f"{self.first.id}_{what}"), self.first.span
        if kind is Bind:
            leaf: Leaf = Bind(id=id, buffer=buffer, subscripts=at, value=value, span=span)
        else:
            update = Accumulate if kind is Accumulate else Atomic
            leaf = update(id=id, op=self.op, buffer=buffer, subscripts=at, value=value, span=span)
        return Generic(id=id, leaf=leaf, origin=origin, digits=every.digits)


class _Every:
    """So many values of an index, which the threads of a block share out."""

    def __init__(self, crew: Crew, wanted: str, count: int, span: Span) -> None:
        self.crew, self.count, self.threads, self.span = crew, count, crew.choice.threads, span
        self.index = crew.draft.names.fresh(wanted)
        (own,) = crew.digits((self.index,), ((0, self.threads),)).digits
        self.digits = tuple(digit.name for digit in own)
        radix = ceildiv(const(count), self.threads)
        name = crew.draft.names.fresh(f"{self.index}_serial")
        self.serial = Digit(
            name=name, index=self.index, weight=self.threads, radix=radix, stride=ONE, place=Place.SERIAL
        )
        self.own = own

    def nodes(self, body: tuple[Node, ...]) -> list[Node]:
        """The body for each of them."""
        if self.count % self.threads:
            inside = Compare(op=CompareOp.LT, left=IndexVar(name=self.index), right=const(self.count))
            body = (Guard(condition=inside, body=body, padding=True, span=self.span),)
        serial, own = self.serial, tuple(reversed(self.own))
        if serial.radix == ONE:
            return [Define(index=self.index, digits=own), *body]
        self.crew.draft.digits.append(serial)
        body = (Define(index=self.index, digits=(serial, *own)), *body)
        return [Loop(index=serial.name, extent=serial.radix, body=body, digit=serial, span=self.span)]


class _Updates(Rounds):
    """What a thread adds to its copies."""

    def __init__(self, crew: Crew, found: Tally, copies: tuple[_Copies, ...]) -> None:
        super().__init__(crew, found, {})
        self.copies = {one.name: one for one in copies}

    def change(self) -> Change:
        return self._in_copies

    def _in_copies(self, stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Accumulate | Atomic):
            return None
        one = self.copies.get(stmt.buffer)
        if one is None:
            return (stmt,)
        return (replace(stmt, buffer=one.own, subscripts=(*stmt.subscripts, one.of_lane())),)
