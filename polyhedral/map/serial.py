"""The body of one thread: statements in order, loops as loops, inner pars too, locals where placement put them."""

from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Compare,
    CompareOp,
    Condition,
    If,
    IndexVar,
    Intrinsic,
    Leaf,
    New,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.index.expr import ZERO, add, ceildiv, const, constant_value, minimum, multiply, subtract
from texpr.grammar.index.interval import least, most
from texpr.grammar.permissions import unroll_of
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.author_tiles import serial_tile
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.scan_pieces import in_pieces
from texpr.polyhedral.map.unrolled import Unrolling, unrolling
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import map_statements
from texpr.polyhedral.walk import expand_accesses, rewrite_leaf, rewrite_read


class Body:
    """Nodes for statements that one thread runs, or (`unused`) one thread or every thread of a block.

    `hardware` are the parallel indices on hardware places around them, `digits` the thread digits that they use.
    """

    def __init__(
        self,
        draft: Draft,
        *,
        hardware: tuple[str, ...],
        digits: tuple[str, ...] = (),
        unused: Unused | None = None,
    ) -> None:
        self.draft = draft
        self.hardware = hardware
        self.digits = digits
        self.unused = unused

    def nodes(self, stmts: tuple[Stmt, ...]) -> tuple[Node, ...]:
        """The nodes of the statements, in order."""
        return tuple(node for stmt in stmts for node in self._node(stmt))

    def _node(self, stmt: Stmt) -> tuple[Node, ...]:
        match stmt:
            case Seq() if not self.draft.target.is_cuda and (pieces := in_pieces(self.draft, stmt, self.nodes)):
                return pieces
            case Par() | Seq():
                return self._looped(stmt, self.nodes(stmt.body))
            case If(condition=condition, then=then, orelse=orelse):
                return (
                    Guard(
                        condition=self.condition(condition),
                        body=self.nodes(then),
                        orelse=self.nodes(orelse),
                        once=self.unused is Unused.ONCE and isinstance(condition, Read),
                        span=stmt.span,
                    ),
                )
            case New(buffer=buffer):
                return (Fresh(buffer=buffer),)
            case Bind() | Accumulate() | Atomic() | Anchor():
                return (self.leaf(stmt),)
            case Intrinsic(reference=reference):
                return self.nodes(reference)
            case Asm():
                raise InternalError("asm is refused before the tree is built")

    def _looped(self, stmt: Par | Seq, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """The loop; of one that has one iteration at most this one, so that what several loops read is read once."""
        known, ranges = constant_value(stmt.extent) is not None, size_ranges(self.draft.kernel)
        if known or stmt.attrs or most(stmt.extent, ranges) != 1:
            return (self.loop(stmt, body),)
        first = (Define(index=stmt.index, digits=(), offset=ZERO), *body)
        if least(stmt.extent, ranges) == 1:
            return first
        some = Compare(op=CompareOp.LT, left=ZERO, right=stmt.extent)
        return (Guard(condition=some, body=first, padding=True, span=stmt.span),)

    def loop(self, stmt: Par | Seq, body: tuple[Node, ...]) -> Loop:
        """The loop of a seq, or of a par that one thread runs. Raises E0401 for an `#unroll` of all of free extent."""
        attr, asked = unroll_of(stmt), unrolling(stmt, stmt.extent)
        if attr is not None and asked == Unrolling():
            raise fail(
                "E0401",
                "a loop of free extent cannot be unrolled as a whole",
                attr.span,
                "this attribute",
                help="bind the size, or say how many iterations at a time: #unroll(4)",
            )
        loop = Loop(
            index=stmt.index,
            extent=stmt.extent,
            body=body,
            parallel=isinstance(stmt, Par),
            unroll=asked.whole,
            unroll_by=asked.by,
            span=stmt.span,
        )
        tile = serial_tile(stmt) if self.draft.target.is_cuda else None
        return loop if tile is None else self._in_tiles(stmt, loop, tile)

    def _in_tiles(self, seq: Par | Seq, loop: Loop, tile: int) -> Loop:
        """The iterations of a loop in their order, so many of them in a loop of their own."""
        each, within = (self.draft.names.fresh(f"{seq.index}_{word}") for word in ("tile", "in_tile"))
        first = multiply(const(tile), IndexVar(name=each))
        known = constant_value(seq.extent)
        whole = known is not None and known % tile == 0
        extent = const(tile) if whole else minimum(const(tile), subtract(seq.extent, first))
        asked = unrolling(seq, const(tile))
        define = Define(index=seq.index, digits=(), offset=add(first, IndexVar(name=within)))
        inside = replace(
            loop,
            index=within,
            extent=extent,
            body=(define, *loop.body),
            unroll=asked.whole and whole,
            unroll_by=asked.by or (tile if asked.whole and not whole else None),
        )
        return Loop(index=each, extent=ceildiv(seq.extent, tile), body=(inside,), span=seq.span)

    def condition(self, condition: Condition | Read) -> Condition | Read:
        """The condition with its read, if it is one, at the buffer's place."""
        expanded = self._expanded()
        if not expanded or not isinstance(condition, Read):
            return condition
        return rewrite_read(condition, expand_accesses(expanded))

    def leaf(self, leaf: Leaf) -> Generic:
        """The statement at its place."""
        draft, expanded = self.draft, self._expanded()
        atomic = False
        if isinstance(leaf, Accumulate | Atomic) and draft.buffers[leaf.buffer].memory is not Memory.REG:
            atomic = shared_updates(draft.proved.program, leaf.id, self.hardware)
        return Generic(
            id=leaf.id,
            leaf=rewrite_leaf(leaf, expand_accesses(expanded)) if expanded else leaf,
            origin=draft.problem.kept.copies.get(leaf.id, Origin.SOURCE),
            digits=self.digits,
            unused=self.unused,
            atomic=atomic,
        )

    def _expanded(self) -> dict[str, tuple[str, ...]]:
        """The buffers with copies of their own for the indices around them, and these."""
        return {name: b.expanded for name, b in self.draft.buffers.items() if b.expanded}


def of_combining(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Nodes made of statements that combine parts, and are none of the program's own."""
    return map_statements(nodes, lambda statement: replace(statement, origin=Origin.COMBINE))
