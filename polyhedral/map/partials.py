"""Partials: a long sum's register is filled by f32 sums of at most 4096 terms.

    for k < K                                     for k_chunk < ceildiv(K, 4096)
      C_acc += f64(A[i, k] * B[k, j])               C_chunk = 0.0
                                                    for k_step < min(4096, K - 4096*k_chunk)
                                                      k = 4096*k_chunk + k_step
                                                      C_chunk += A[i, k] * B[k, j]
                                                    C_acc += f64(C_chunk)

Input: a launch's body whose long sums are carried in f64 (`long_sums`, `promote`). Output: the same with the additions
of each loop that makes more than a few of them in f32, its chunks so long that a partial gets at most `CHAIN` of them.
A register of some shape has partials of that shape. On CUDA, long updates of what is no f64 register go back to f32:
there is nothing to carry. On a CPU emission carries them (`codegen/cpu/carry.py`), in f64.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from texpr.grammar.ast import AccOp, Accumulate, Atomic, Bind, Cast, Const, IndexVar, Read
from texpr.grammar.index.expr import ONE, at_least_zero, ceildiv, const, constant_value, minimum, multiply, subtract
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.grammar.types import F32, F64
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import narrow
from texpr.polyhedral.mapped.operators import Generic, Operator, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import (
    every_node,
    map_nodes,
    map_statements,
    node_reads,
    of_kind,
    statements,
    tree_buffers,
    tree_writes,
)
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.walk import touched, written


def add_partials(draft: Draft, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The body with its long sums in partials; new buffers go to the draft."""
    if not draft.long:
        return body
    body = _unwidened(draft, body)
    for name in dict.fromkeys(leaf.buffer for leaf in map(partial(_long, draft), statements(body)) if leaf is not None):
        extents = [constant_value(extent) for extent in draft.buffers[name].shape]
        buffer = draft.buffers[name]
        if buffer.memory is Memory.REG and buffer.dtype == F64 and all(extent is not None for extent in extents):
            body = _Partials(draft, name).nodes(body, {})
    return body


def _long(draft: Draft, statement: Generic) -> Accumulate | Atomic | None:
    """The update, if it is one of a long sum."""
    leaf = statement.leaf
    return leaf if isinstance(leaf, Accumulate | Atomic) and statement.id in draft.long else None


def _unwidened(draft: Draft, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Long updates of what stayed narrow, back in f32."""

    def change(statement: Generic) -> Generic:
        leaf = _long(draft, statement)
        if leaf is None or draft.buffers[leaf.buffer].dtype == F64 or not draft.target.is_cuda:
            return statement
        return replace(statement, leaf=replace(leaf, value=narrow(leaf.value)))

    return map_statements(body, change)


class _Partials:
    """Puts the partials of one f64 register into a body."""

    def __init__(self, draft: Draft, name: str) -> None:
        self.draft = draft
        self.name = name

    def nodes(self, body: Sequence[Node], ranges: Ranges) -> tuple[Node, ...]:
        """The body, its loops over additions with partials."""
        found: list[Node] = []
        for node in body:
            match node:
                case Loop():
                    found += self._loop(node, ranges)
                case Guard(body=inside, orelse=orelse):
                    found.append(replace(node, body=self.nodes(inside, ranges), orelse=self.nodes(orelse, ranges)))
                case _:
                    found.append(node)
        return tuple(found)

    def _loop(self, loop: Loop, ranges: Ranges) -> tuple[Node, ...]:
        updates = self._updates(loop)
        known = index_range(loop.extent, ranges)
        inside = ranges if known is None else {**ranges, loop.index: known}
        each = self._count(loop.body, inside)
        turns = 1 if self._is_subscript(loop, updates) else most(loop.extent, ranges)
        if not updates or each == 0:
            return (loop,)
        if self._only_updates(loop) and each is not None:
            if turns is not None and each * turns <= CHAIN:
                return self._with_partial(updates[0], (loop,)) if each * turns > 1 else (loop,)
            if each <= CHAIN // 2 and turns != 1 and self._is_private(loop):
                return (self._chunked(loop, updates[0], CHAIN // each),)
        return (replace(loop, body=self.nodes(loop.body, inside)),)

    def _chunked(self, loop: Loop, update: Generic, length: int) -> Loop:
        """The loop in chunks, each with a partial."""
        fresh = self.draft.names.fresh
        chunk, step = fresh(f"{loop.index}_chunk"), fresh(f"{loop.index}_step")
        extent = at_least_zero(loop.extent)
        whole = constant_value(extent)
        start = multiply(const(length), IndexVar(name=chunk))
        parts = tuple(
            Digit(name=name, index=loop.index, weight=weight, radix=radix, stride=ONE, place=Place.SERIAL)
            for name, weight, radix in ((chunk, length, ceildiv(extent, length)), (step, 1, const(length)))
        )
        if loop.digit is None:
            body: tuple[Node, ...] = (Define(index=loop.index, digits=parts), *loop.body)
        else:
            body = _substituted(loop.body, loop.digit.name, parts)
            self.draft.digits += parts
        inner = replace(
            loop,
            index=step,
            extent=minimum(const(length), subtract(extent, start))
            if whole is None or whole % length
            else const(length),
            digit=parts[1] if loop.digit else None,
            body=body,
        )
        return Loop(
            index=chunk,
            extent=ceildiv(extent, length),
            body=self._with_partial(update, (inner,)),
            digit=parts[0] if loop.digit else None,
            span=loop.span,
        )

    def _with_partial(self, update: Generic, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """A partial that starts from 0, the body adding to it, and its sum added to the register."""
        buffer = self.draft.buffers[self.name]
        local = self.draft.names.fresh(f"{self.name.removesuffix('_acc').removesuffix('_part')}_chunk")
        self.draft.buffers[local] = replace(
            buffer, name=local, dtype=F32, reason=f"at most {CHAIN} terms of {self.name}, in f32"
        )
        defined = {d.name for d in _digits_defined(body)}
        if update.unused is None and defined & set(update.digits):
            update = replace(update, digits=(), unused=Unused.REPLICATED)

        def change(statement: Generic) -> Generic:
            leaf = statement.leaf
            if isinstance(leaf, Accumulate | Atomic) and leaf.buffer == self.name:
                return replace(statement, leaf=replace(leaf, buffer=local, value=narrow(leaf.value)))
            return statement

        span = update.span
        zero = Const(value=0.0, dtype=F32, span=span)
        indices = tuple(IndexVar(name=self.draft.names.fresh("part")) for _ in buffer.shape)
        fresh = self.draft.names.fresh
        start = Bind(id=fresh(f"{update.id}_zero"), buffer=local, subscripts=indices, value=zero, span=span)
        total = Cast(operand=Read(buffer=local, subscripts=indices, dtype=F32, span=span), dtype=F64, span=span)
        end = Accumulate(
            id=fresh(f"{update.id}_sum"), op=AccOp.ADD, buffer=self.name, subscripts=indices, value=total, span=span
        )

        unroll = self.draft.target.is_cuda  # so that the elements can be registers

        def over(leaf: Bind | Accumulate, origin: Origin) -> Node:
            node: Node = replace(update, id=leaf.id, leaf=leaf, origin=origin, atomic=False)
            for index, extent in reversed(list(zip(indices, buffer.shape, strict=True))):
                node = Loop(index=index.name, extent=extent, body=(node,), unroll=unroll, vector=True, span=span)
            return node

        return (
            Fresh(buffer=local),
            over(start, Origin.INIT),
            *map_statements(body, change),
            over(end, Origin.COMBINE),
        )

    # ---- what a tree does with the register ------------------------------------------------------------------------

    def _updates(self, loop: Loop) -> list[Generic]:
        return [s for s in statements((loop,)) if self._is_update(s)]

    def _is_update(self, statement: Generic) -> bool:
        leaf = _long(self.draft, statement)
        return leaf is not None and leaf.buffer == self.name

    def _only_updates(self, loop: Loop) -> bool:
        """Whether the loop does nothing else with the register, and does not let it begin."""
        for node in every_node((loop,)):
            match node:
                case Fresh(buffer=self.name):
                    return False
                case Guard() as guard if any(read.buffer == self.name for read in node_reads(guard)):
                    return False
                case Generic(leaf=leaf) as statement:
                    if [name for name, _ in touched(leaf)].count(self.name) > self._is_update(statement):
                        return False
                case node if isinstance(node, Operator) and self.name in tree_buffers((node,)):
                    return False
                case _:
                    pass
        return True

    def _is_private(self, loop: Loop) -> bool:
        """Whether the loop stays within a thread: it writes registers only, and no barrier is needed inside."""
        return all(self.draft.buffers[name].memory is Memory.REG for name in tree_writes((loop,)))

    def _is_subscript(self, loop: Loop, updates: Sequence[Generic]) -> bool:
        """Whether different iterations update different elements of the register."""
        own = {loop.index} | {d.index for d in _digits_defined(loop.body, loop.index)}
        return all(
            isinstance(u.leaf, Accumulate | Atomic)
            and any(isinstance(s, IndexVar) and s.name in own for s in u.leaf.subscripts)
            for u in updates
        )

    def _count(self, body: Sequence[Node], ranges: Ranges) -> int | None:
        """Additions to one element, at most; None where sizes leave it open."""
        total = 0
        for node in body:
            match node:
                case Loop():
                    known = index_range(node.extent, ranges)
                    each = self._count(node.body, ranges if known is None else {**ranges, node.index: known})
                    if each == 0:
                        continue
                    turns = 1 if self._is_subscript(node, self._updates(node)) else most(node.extent, ranges)
                    if each is None or turns is None:
                        return None
                    total += each * turns
                case Guard(body=inside, orelse=orelse):
                    sides = (self._count(inside, ranges), self._count(orelse, ranges))
                    if sides[0] is None or sides[1] is None:
                        return None
                    total += sides[0] + sides[1]
                case Generic(leaf=leaf):
                    write = written(leaf)
                    total += write is not None and write[0] == self.name
                case _:
                    pass
        return total


def _digits_defined(body: Sequence[Node], name: str | None = None) -> list[Digit]:
    """The digits of the `Define`s below, or of those that use the digit `name`, standing for their index."""
    defines = list(of_kind(body, Define))
    return [
        d for define in defines if name is None or any(x.name == name for x in define.digits) for d in define.digits
    ]


def _substituted(body: tuple[Node, ...], name: str, parts: tuple[Digit, ...]) -> tuple[Node, ...]:
    """The body with a digit that is now the sum of two."""

    def digits(define: Define) -> tuple[Digit, ...]:
        return tuple(
            part
            for digit in define.digits
            for part in (
                tuple(replace(p, index=digit.index, weight=digit.weight * p.weight) for p in parts)
                if digit.name == name
                else (digit,)
            )
        )

    return map_nodes(body, lambda node: replace(node, digits=digits(node)) if isinstance(node, Define) else node)
