"""Rows in registers: the loads before the loops over a row, and these loops with registers in place of elements.

    for k_serial < 2  (unrolled)                          4 threads, 4 neighbours each, two runs: N = 32
      k_first = 16*k_serial + 4*k_lane
      copy X_row[4*k_serial + e] = X[i, k_first + e] for e < 4
    …
    for k_1_serial < 2  (unrolled)
      for k_1_vector < 4  (unrolled)
        S1: s_part += exp(X_row[4*k_1_serial + k_1_vector] - m)

The loops over a row give every thread the same iterations, so it reads what it loaded itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from texpr.grammar.ast import Compare, CompareOp, IndexVar, Par, Read, Role, Seq, Stmt
from texpr.grammar.ast import Node as Tree
from texpr.grammar.index.expr import ONE, ZERO, add, const, constant_value, multiply
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import ROW, Held, RowElement, along_row
from texpr.polyhedral.map.runs import Copies, Run, is_cut, make_run
from texpr.polyhedral.map.vectors import Element, Wide, at, element_width
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTile:
    """`rounds` runs of `width` neighbours of each element, in the registers of that name."""

    registers: Mapping[RowElement, str]
    rounds: int
    width: int

    def elements(self, index: str) -> tuple[Element, ...]:
        """What is in registers, as a loop over the row names it."""
        return tuple((name, at(subscripts, ROW.name, IndexVar(name=index))) for name, subscripts in self.registers)

    def through(
        self, stmts: tuple[Stmt, ...], index: str, serial: tuple[Digit, ...], run: Run | None
    ) -> tuple[Stmt, ...]:
        """The statements of a loop over the row, which reads registers: those of the digit at hand and of its run."""
        part = IndexVar(name=serial[0].name) if serial else ZERO
        neighbour = IndexVar(name=run.vector.name) if run is not None else ZERO
        place = (add(multiply(const(self.width), part), neighbour),)

        def change(node: Tree) -> Tree:
            if not isinstance(node, Read):
                return node
            name = self.registers.get(along_row((node.buffer, node.subscripts), index))
            return node if name is None else replace(node, buffer=name, subscripts=place)

        return tuple(rewrite(stmt, change) for stmt in stmts)


def make_tile(draft: Draft, held: Held, width: int) -> RowTile:
    """The registers of a row, in the draft."""
    registers: dict[RowElement, str] = {}
    for element in held.elements:
        buffer = draft.kernel.buffer(element[0])
        name = registers[element] = draft.names.fresh(f"{buffer.name}_row")
        draft.buffers[name] = MappedBuffer(
            name=name,
            dtype=buffer.dtype,
            memory=Memory.REG,
            scope=Scope.THREAD,
            layout=row_major((const(held.rounds * width),)),
            role=Role.LOCAL,
            reason=f"a thread's part of a row of {buffer.name}, read from memory once",
        )
    return RowTile(registers=registers, rounds=held.rounds, width=width)


def load_row(draft: Draft, tile: RowTile, loop: Seq | Par, threads: int, outer: tuple[str, ...]) -> tuple[Node, ...]:
    """The loads of all elements of a row, before the first loop over it. Those of one array come after one another:
    none waits for another one."""
    row, extent, covered = draft.names.fresh("row"), loop.extent, threads * tile.width
    band = thread_digits((row,), ((0, threads),), draft.names, draft.target.warp_size, {row: tile.width})
    run = make_run(draft, row, extent, tile.width, loop.span)
    digits = tuple(d.name for d in band.all)
    serial: tuple[Digit, ...] = ()
    if tile.rounds > 1:
        name = draft.names.fresh(f"{row}_serial")
        radix = const(tile.rounds)
        serial = (Digit(name=name, index=row, weight=covered, radix=radix, stride=ONE, place=Place.SERIAL),)
    base = multiply(const(tile.width), IndexVar(name=serial[0].name)) if serial else ZERO
    load = Copies(draft, run, digits, cut=is_cut(draft, extent, tile.width), base=base).load
    nodes: tuple[Node, ...] = tuple(
        load(_wide(draft, loop, element, tile.width, row, outer), name) for element, name in tile.registers.items()
    )
    known = constant_value(extent)
    if known is None or known % covered:
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=run.first), right=extent)
        nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
    nodes = (Define(index=run.first, digits=(*serial, *reversed(band.all))), *nodes)
    for digit in serial:
        nodes = (Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=True, span=loop.span),)
    draft.digits += (*band.all, *serial)
    return (*(Fresh(buffer=name) for name in tile.registers.values()), *nodes)


def _wide(draft: Draft, loop: Seq | Par, element: RowElement, width: int, row: str, outer: tuple[str, ...]) -> Wide:
    """The access that brings `width` neighbours of an element: as wide as the layout lets it be."""
    name, subscripts = element
    here = (name, at(subscripts, ROW.name, IndexVar(name=row)))
    return Wide(
        element=here,
        dtype=draft.kernel.buffer(name).dtype,
        width=min(width, element_width(draft.problem, here, row)),
        loads=True,
        stores=False,
        first=loop,
    )
