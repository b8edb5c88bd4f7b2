"""Splitting by residue: a loop whose iterations differ by their remainder becomes one loop for each."""

from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    If,
    IndexBinary,
    IndexExpr,
    IndexOp,
    Kernel,
    New,
    Node,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.core import children, statements
from texpr.grammar.index.decide import decide
from texpr.grammar.index.expr import add, ceildiv, const, constant_value, multiply, subtract
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.walk import rewrite
from texpr.polyhedral.moves import Residues
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.schedule.origins import Moved, Origin
from texpr.polyhedral.schedule.tree import (
    Block,
    Loop,
    index,
    leaves,
    loop_of,
    movable,
    plain,
    unfit,
    with_block,
    with_values,
)

MAX_PHASES = 16


def residues(kernel: Kernel, move: Residues) -> Moved:
    """A loop for each remainder; one in which nothing is left is left out."""
    place, loop = loop_of(kernel, move.loop)
    plain(loop, or_ordered=True)
    movable((loop,))
    if not 1 < move.phases <= MAX_PHASES:
        raise unfit(f"a loop has 2 to {MAX_PHASES} phases, not {move.phases}", loop.span, "this loop")
    copies = _Copies(kernel, loop)
    found = [copy for r in range(move.phases) if (copy := copies.phase(move.phases, r)) is not None]
    block = (*place.block[: place.at], *found, *place.block[place.at + 1 :])
    if not block:
        raise unfit("no phase of the loop does anything", loop.span, "this loop")
    changed = replace(kernel, buffers=(*kernel.buffers, *copies.buffers))
    return Moved(kernel=with_block(changed, place, block), origins=copies.origins)


class _Copies:
    def __init__(self, kernel: Kernel, loop: Loop) -> None:
        self.kernel, self.loop = kernel, loop
        self.names = Names(names_taken(kernel))
        self.ids = Names([leaf.id for leaf in leaves(kernel.body)])
        self.buffers: list[Buffer] = []
        self.origins: dict[str, Origin] = {}

    def phase(self, phases: int, remainder: int) -> Loop | None:
        """The iterations with that remainder."""
        loop = self.loop
        quotient = self.names.fresh(f"{loop.index}_q")
        whole = add(multiply(const(phases), index(quotient)), const(remainder))
        body = _decided(replace(loop, body=_simpler(with_values(loop.body, {loop.index: whole}))))
        values: dict[str, IndexExpr] = {loop.index: whole}
        if remainder:
            body = self._renamed(body, values)
        else:
            self.origins |= {leaf.id: Origin(statement=leaf.id, values=values) for leaf in leaves(body)}
        if not any(True for _ in leaves(body)):
            return None
        extent = ceildiv(subtract(loop.extent, const(remainder)), phases)
        return replace(loop, index=quotient, extent=extent, body=body)

    def _renamed(self, body: Block, values: dict[str, IndexExpr]) -> Block:
        """A copy with loops, locals and statements of its own."""
        loops = {s.index: self.names.fresh(s.index) for s in statements(body) if isinstance(s, Par | Seq)}
        locals = {s.buffer: self.names.fresh(s.buffer) for s in statements(body) if isinstance(s, New)}
        self.buffers += [replace(self.kernel.buffer(old), name=new) for old, new in locals.items()]
        inner = {old: index(new) for old, new in loops.items()}

        def change(node: Node) -> Node:
            match node:
                case Par(index=name) | Seq(index=name):
                    return replace(node, index=loops[name])
                case New(buffer=name) | Read(buffer=name):
                    return replace(node, buffer=locals.get(name, name))
                case Bind() | Accumulate() | Atomic():
                    id = self.ids.fresh(node.id)
                    self.origins[id] = Origin(statement=node.id, values={**values, **inner})
                    return replace(node, id=id, buffer=locals.get(node.buffer, node.buffer))
                case _:
                    return node

        whole = with_values(body, inner)
        return tuple(rewrite(stmt, change, into=lambda node: not isinstance(node, IndexExpr)) for stmt in whole)


def _decided(loop: Loop) -> Block:
    """The loop's body without conditions that always hold, and without what never runs."""

    def change(node: Node) -> Node:
        match node:
            case Par(body=body) | Seq(body=body):
                return replace(node, body=_flat(body))
            case If(then=then, orelse=orelse):
                return replace(node, then=_flat(then), orelse=_flat(orelse))
            case _:
                return node

    return rewrite(loop, change, into=lambda node: isinstance(node, Par | Seq | If)).body


def _flat(body: Block) -> Block:
    found: list[Stmt] = []
    for stmt in body:
        match stmt:
            case If(condition=condition) if (
                not isinstance(condition, Read) and (holds := decide(condition)) is not None
            ):
                found += stmt.then if holds else stmt.orelse
            case If() | Par() | Seq() if not any(True for _ in leaves(children(stmt))):
                pass
            case _:
                found.append(stmt)
    return tuple(found)


def _simpler(body: Block) -> Block:
    """The statements with quotients and remainders of multiples worked out."""

    def change(node: Node) -> Node:
        return _reduced(node) if isinstance(node, IndexExpr) else node

    return tuple(rewrite(stmt, change, into=lambda node: not isinstance(node, IndexExpr)) for stmt in body)


def _reduced(expression: IndexExpr) -> IndexExpr:
    """(2 * a + 1) % 2 is 1, and (2 * a + 1) / 2 is a."""

    def change(node: Node) -> Node:
        if not isinstance(node, IndexBinary) or node.op not in (IndexOp.MOD, IndexOp.DIV):
            return node
        left, divisor = linear(node.left), constant_value(node.right) or 0
        if divisor <= 0 or any(c % divisor for monomial, c in left.terms.items() if monomial):
            return node
        if node.op is IndexOp.MOD:
            return const(left.constant % divisor)
        return Linear({monomial: c // divisor for monomial, c in left.terms.items() if c // divisor}).expression()

    return rewrite(expression, change)
