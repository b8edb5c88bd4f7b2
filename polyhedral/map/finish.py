"""What a thread does with each sum that it holds, before it goes back to memory: an epilogue's leaves, in registers.

    C[i, j] = relu(b + s)                     C_sums[16*warp + 8*h + lane/4, …]  becomes  relu(b + it), unrounded
    D[i, j] = s                               D[i, j] = rounded s                 by the thread itself

An element of an array that an iteration writes is a scalar of that thread meanwhile, so that it is read as what was
bound, rounded to the array's type as often as the program says. What tiles write beyond arrays is read from nowhere: a
condition says which of a tile's elements there are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    Leaf,
    Op,
    Read,
)
from texpr.grammar.types import F32, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.epilogue import SUM, Epilogue, Output
from texpr.polyhedral.map.long_sums import as_type, direct, narrow
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Guard, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.walk import map_reads, map_subscripts, touched, written

COMBINES = {AccOp.ADD: Fn.ADD, AccOp.MUL: Fn.MUL, AccOp.MAX: Fn.MAX, AccOp.MIN: Fn.MIN}


class Finish:
    """The leaves of an epilogue for the sums of one iteration, which `of` has; the output that is `kept` goes to
    `place`, that of the first where nothing is said, the others to their arrays.

    What is `near` is read where it was brought to; `parts` is where a thread has its own of what is over the band, by
    the leaf. `reads` are the ids of the statements that read arrays of an output
    as they were, by array; `first` are those that read the sums, `last` is that which leaves the kept output in its
    place ("": none).
    """

    def __init__(
        self,
        draft: Draft,
        epilogue: Epilogue,
        kept: Output | None,
        of: tuple[View, ...],
        near: Mapping[Element, View],
        place: View | None = None,
        parts: Mapping[str, View] | None = None,
    ) -> None:
        self.place, self.parts = place or of[0], parts or {}
        self.draft, self.epilogue, self.kept, self.of, self.last = draft, epilogue, kept, of, ""
        self.near = near
        self.held: dict[Element, tuple[str, DType]] = {}  # the scalar that stands for an element, and its type there
        self.bound = set[Element]()
        self.reads: list[tuple[str, str]] = []
        kernel = draft.kernel
        self.totals = [e for e in map(written, epilogue.sums) if e is not None]
        scalars = (*self.totals, *(output.element for output in epilogue.outputs))
        for element in dict.fromkeys(scalars):
            declared = draft.proved.program.kernel.buffer(element[0]).dtype
            carried = F32 if declared.is_float and declared.bits <= F32.bits else declared
            reason, span = "what an iteration leaves", kernel.buffer(element[0]).span
            name = draft.local(f"{element[0]}_new", carried, Memory.REG, row_major(()), reason, span=span)
            self.held[element] = name, declared
        self.body = tuple(self._nodes())

    def where(self, condition: Condition | None) -> tuple[Node, ...]:
        """The nodes, where there is such an element, if they ask for anything of arrays."""
        leaves = [node.leaf for node in self.body if isinstance(node, Generic)]
        names = {name for leaf in leaves for name, _ in touched(leaf)}
        alone = not self.parts and all(self.draft.buffers[name].memory is Memory.REG for name in names)
        if condition is None or alone:
            return self.body
        span = self.epilogue.sums[0].span
        return (Guard(condition=condition, body=self.body, orelse=self.nothing, padding=True, span=span),)

    @property
    def nothing(self) -> tuple[Node, ...]:
        """What stands in a place of its own where there is no such element, which goes along with the others."""
        if self.kept is None or self.place == self.of[0]:
            return ()
        zero = Const(value=0.0 if self.place.dtype.is_float else 0, dtype=self.place.dtype)
        id = self.draft.names.fresh(f"{self.kept.leaf.id}_none")
        leaf = Bind(id=id, buffer=self.place.buffer, subscripts=self.place.subscripts, value=zero)
        return (Generic(id=id, leaf=leaf, origin=Origin.INIT),)

    # ---- the leaves ----

    def _nodes(self) -> Iterator[Node]:
        own = {name for name, _ in self.held.values()}
        carried = {name for name, _ in self.totals}
        for name in (*(n for n in self.epilogue.locals if n not in carried), *sorted(own)):
            yield Fresh(buffer=name)
        ids = {leaf.id: self.draft.names.fresh(f"{leaf.id}_sum") for leaf in self.epilogue.sums}
        self.first = tuple(ids.values())
        for leaf in self.epilogue.leaves:
            own_id = ids.get(leaf.id, leaf.id)
            yield Generic(id=own_id, leaf=replace(self._leaf(leaf), id=own_id))
        for output in self.epilogue.outputs:
            if output is not self.kept:
                yield self._out(output, output.element, output.dtype)
        if self.kept is not None:
            out = self._out(self.kept, (self.place.buffer, self.place.subscripts), self.place.dtype)
            self.last = out.id
            yield out

    def _out(self, output: Output, target: Element, dtype: DType) -> Generic:
        name, _ = self.held[output.element]
        held = Read(buffer=name, subscripts=(), dtype=self.draft.buffers[name].dtype, span=output.leaf.span)
        id = self.draft.names.fresh(f"{output.leaf.id}_out")
        leaf = Bind(id=id, buffer=target[0], subscripts=target[1], value=as_type(held, dtype), span=output.leaf.span)
        return Generic(id=id, leaf=leaf, origin=Origin.COPY_OUT)

    def _leaf(self, leaf: Leaf) -> Leaf:
        element = written(leaf)
        assert element is not None and isinstance(leaf, Bind | Accumulate), "a bind or an accumulation"
        value = direct(map_reads(leaf.value, self._reader(leaf.id)))
        if leaf.id in self.parts:
            part = self.parts[leaf.id]
            return replace(leaf, buffer=part.buffer, subscripts=part.subscripts, value=as_type(narrow(value), F32))
        if element not in self.held:
            return replace(leaf, value=value, subscripts=map_subscripts(leaf.subscripts, self._reads_held))
        name, declared = self.held[element]
        if isinstance(leaf, Accumulate):
            before = self._reader(leaf.id)(
                Read(buffer=element[0], subscripts=element[1], dtype=self._declared(element[0]), span=leaf.span)
            )
            combined = value.dtype
            value = Op(fn=COMBINES[leaf.op], args=(as_type(before, combined), value), dtype=combined, span=leaf.span)
        self.bound.add(element)
        carried = self.draft.buffers[name].dtype
        return Bind(
            id=leaf.id,
            buffer=name,
            subscripts=(),
            value=direct(_carried(as_type(value, declared), carried)),
            attrs=leaf.attrs,
            span=leaf.span,
            call_spans=leaf.call_spans,
        )

    def _declared(self, buffer: str) -> DType:
        return self.draft.kernel.buffer(buffer).dtype

    def _reader(self, id: str) -> Callable[[Read], Expr]:
        """What a read of a statement stands for, which is noted where it is of an array that the launch writes."""

        def value(read: Read) -> Expr:
            if (read.buffer, read.subscripts) in self.held and (read.buffer, read.subscripts) not in self.bound:
                self.reads.append((id, read.buffer))
            return self._reads_held(read)

        return value

    def _reads_held(self, read: Read) -> Expr:
        element = (read.buffer, read.subscripts)
        if read.buffer.startswith(SUM):
            of = self.of[int(read.buffer.removeprefix(SUM))]
            return replace(read, buffer=of.buffer, subscripts=of.subscripts)
        if element in self.near:
            return replace(read, buffer=self.near[element].buffer, subscripts=self.near[element].subscripts)
        if element not in self.bound:
            return read
        name, declared = self.held[element]
        held = Read(buffer=name, subscripts=(), dtype=self.draft.buffers[name].dtype, span=read.span)
        return as_type(as_type(held, declared), read.dtype)


def _carried(value: Expr, dtype: DType) -> Expr:
    """A value in the type that holds all of its type's: not rounded where reading it rounds it."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Cast) and value.operand.dtype == dtype:
        return value.operand
    return Cast(operand=value, dtype=dtype, span=value.span)
