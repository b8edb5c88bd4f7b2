"""Workspaces that stand for parameters for the time of a call: what copies their elements, before and after.

    par M at { if K >= 1 { S_sum[at] = f64(S[at]) } }      the elements that the kernel touches; none of an `out` S
    …
    par M at { if K >= 1 { S[at] = f32(S_sum[at]) } }      the elements that it writes

Only `touched_elements` are copied; where data tells which are, the others come back as they were.
"""

from collections.abc import Mapping, Sequence

from texpr.grammar.ast import Always, Bind, Buffer, If, Par, Read, Stmt
from texpr.grammar.core import statements
from texpr.polyhedral.map.elements import touched_elements
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.program import Access, ProvedProgram


class Copies:
    """The copies of one program; `origins` says of their statements, by id, what they are for."""

    def __init__(self, proved: ProvedProgram) -> None:
        self.proved = proved
        self.program = proved.program
        self.names = Names((*names_taken(self.program.kernel), *(s.id for s in self.program.statements)))
        self.bands = max((s.band for s in statements(self.program.kernel.body) if isinstance(s, Par)), default=-1)
        self.origins: dict[str, Origin] = {}

    def around(
        self, spaces: Mapping[str, Buffer], orders: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """What stands before and after the kernel's body, for the workspace of each parameter; `orders` are those of
        its dimensions where a workspace has them in another."""
        starts, ends = list[Stmt](), list[Stmt]()
        for name, space in spaces.items():
            array = self.program.kernel.buffer(name)
            accesses = [a for s in self.program.statements for a in s.accesses if a.buffer == name]
            writes = [s.write for s in self.program.statements if s.write is not None and s.write.buffer == name]
            order = (orders or {}).get(name)
            if self.proved.directions[name] != "out":
                starts.append(self._copy(array, space, accesses, Origin.COPY_IN, order))
            if writes:
                ends.append(self._copy(space, array, writes, Origin.COPY_OUT, order))
        return tuple(starts), tuple(ends)

    def _copy(
        self,
        source: Buffer,
        target: Buffer,
        accesses: Sequence[Access],
        origin: Origin,
        order: tuple[int, ...] | None,
    ) -> Stmt:
        """Loops that copy the elements of these accesses."""
        span = accesses[0].span
        found = touched_elements(self.program, accesses, self.names)
        id = self.names.fresh(f"{accesses[0].buffer}_{'in' if origin is Origin.COPY_IN else 'out'}")
        self.origins[id] = origin
        there = found.subscripts if order is None else tuple(found.subscripts[dim] for dim in order)
        read, bound = (found.subscripts, there) if origin is Origin.COPY_IN else (there, found.subscripts)
        value = Read(buffer=source.name, subscripts=read, dtype=source.dtype, span=span)
        stmt: Stmt = Bind(id=id, buffer=target.name, subscripts=bound, value=as_type(value, target.dtype), span=span)
        if found.condition != Always(value=True):
            stmt = If(condition=found.condition, then=(stmt,), span=span)
        self.bands += 1
        for index, extent in reversed(found.loops):
            stmt = Par(index=index, source_name=index, extent=extent, band=self.bands, body=(stmt,), span=span)
        return stmt
