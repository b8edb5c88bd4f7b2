"""Windows: loops of few iterations inside another one, written out; what the next window reads, too, it is handed.

    for w: for x in 3: t = max(t, X[2 * w + x])

    x0 = X[0]
    for w: x2 = X[2 * w + 2]; t = max(t, x0); t = max(t, X[2 * w + 1]); t = max(t, x2); x0 = x2

So vectors load whole pairs of neighbours, and shift what they have by an element, where each third element of a window
would be gathered. Few iterations that are no whole vectors read all of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from texpr.codegen.cpu.context import Context, CpuTensor
from texpr.codegen.cpu.ranges import Branch, CpuNode, Range
from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Gather,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    Node,
    Read,
    Select,
)
from texpr.grammar.index.expr import substitute
from texpr.grammar.index.linear import Linear, constant, linear
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.tree import Fresh

WIDEST = 4  # elements from a window to the next, at most: beyond that its elements are no neighbours
VECTOR = 16  # elements of a wide vector: of no use to know what else an extent divides by
SHORT = 8 * VECTOR  # iterations: a loop of fewer is short
MOST = 30  # statements of a window that is written out: 5 x 5, and what is around them


def written_out(loop: Range, context: Context) -> tuple[tuple[CpuNode, ...], Range]:
    """What is before the loop, and the loop with its windows written out, where they are small; of those that overlap
    iterations hand on what the next ones read, too, unless they read by choice, or write what they read."""
    if loop.cores or loop.unroll or not any(isinstance(node, Range) for node in loop.body):
        return (), loop
    body = _written_out(loop.body, {})
    statements = [node for node in body or () if isinstance(node, Generic)]
    values = [part for node in statements for part in walk(node.leaf.value)]
    if body is None or any(not isinstance(node.leaf, Bind | Accumulate) for node in statements):
        return (), loop
    sums = {name for node in statements if isinstance(node.leaf, Accumulate) for name, _ in node.writes}
    if any(isinstance(part, Gather) for part in values) or not all(context.tensors[name].scalar for name in sums):
        return (), loop
    following = _following(loop, statements, values, context) if not _is_short(loop) else {}
    return _handed_on(loop, body, following, context) if following else ((), replace(loop, body=body))


def _is_short(loop: Range) -> bool:
    """Whether a loop has so few iterations, and some beside whole vectors, that each had better read all of its own."""
    if not isinstance(loop.low, IndexConst) or not isinstance(loop.high, IndexConst):
        return False
    turns = loop.high.value - loop.low.value
    return turns < SHORT and turns % VECTOR != 0


def _following(
    loop: Range, statements: Sequence[Generic], values: Sequence[Node], context: Context
) -> Mapping[Read, Read]:
    """Reads of an iteration, and those of it that are the same elements in the next one."""
    if any(isinstance(part, Select) for part in values):
        return {}
    written = {name for node in statements for name, _ in node.writes}
    places = {
        (part.buffer, _place(part, context.tensors[part.buffer])): part
        for part in values
        if isinstance(part, Read) and part.buffer not in written and not context.tensors[part.buffer].scalar
    }
    found: dict[Read, Read] = {}
    for (name, place), read in places.items():
        step = place.coefficient(loop.index)
        after = places.get((name, place + step)) if step is not None and 2 <= step <= WIDEST else None
        if after is not None:
            found[read] = after
    return found


def _handed_on(
    loop: Range, body: tuple[CpuNode, ...], following: Mapping[Read, Read], context: Context
) -> tuple[tuple[CpuNode, ...], Range]:
    """The loop with variables for reads that have others `following` one iteration later."""
    held: dict[Read, Read] = {}
    for read in (*following, *following.values()):
        if read not in held:
            name = context.names.fresh(f"{context.tensors[read.buffer].identifier}_next")
            context.tensors[name] = CpuTensor(
                name=name, identifier=name, dtype=read.dtype, layout=row_major(()), scalar=True
            )
            held[read] = Read(buffer=name, subscripts=(), dtype=read.dtype, span=read.span)

    def kept(read: Read, value: Read) -> Generic:
        name = held[read].buffer
        leaf = Bind(id=name, buffer=name, subscripts=(), value=value, span=read.span)
        return Generic(id=name, leaf=leaf, origin=Origin.COPY_IN)

    def through(node: CpuNode) -> CpuNode:
        if not isinstance(node, Generic):
            return node
        value: Any = rewrite(node.leaf.value, lambda part: held.get(part, part) if isinstance(part, Read) else part)
        return replace(node, leaf=replace(node.leaf, value=value))

    first: tuple[CpuNode, ...] = tuple(kept(read, _at(read, {loop.index: loop.low})) for read in following)
    fresh = tuple(Fresh(buffer=value.buffer) for value in held.values())
    loaded = tuple(kept(read, read) for read in held if read not in following)
    order = sorted(following, key=lambda read: _place(read, context.tensors[read.buffer]).constant)
    passed = tuple(kept(read, held[following[read]]) for read in order)
    if not (
        isinstance(loop.low, IndexConst) and isinstance(loop.high, IndexConst) and loop.low.value < loop.high.value
    ):
        some = Compare(op=CompareOp.LT, left=loop.low, right=loop.high)
        first = (Branch(condition=some, body=first, span=loop.span),)
    return (*fresh, *first), replace(loop, body=(*loaded, *map(through, body), *passed))


def _place(read: Read, tensor: CpuTensor) -> Linear:
    """The offset of an element."""
    total = constant(0)
    for subscript, stride in zip(read.subscripts, tensor.strides, strict=True):
        assert not isinstance(subscript, Gather)
        total += linear(IndexBinary(op=IndexOp.MUL, left=subscript, right=stride))
    return total


def _written_out(body: tuple[CpuNode, ...], at: Mapping[str, IndexExpr]) -> tuple[CpuNode, ...] | None:
    """The statements of all iterations of the loops in a body; None for too many, or for anything else."""
    found: list[CpuNode] = []
    for node in body:
        match node:
            case Fresh():
                found.append(node)
            case Generic():
                found.append(replace(node, leaf=_at(node.leaf, at)))
            case Range(low=IndexConst(value=low), high=IndexConst(value=high), unroll=False) if high - low <= MOST:
                for turn in range(low, high):
                    inside = _written_out(node.body, {**at, node.index: IndexConst(value=turn)})
                    if inside is None or len(found) + len(inside) > MOST:
                        return None
                    found += inside
            case _:
                return None
    return tuple(found)


def _at(tree: Any, at: Mapping[str, IndexExpr]) -> Any:
    """The tree with indices replaced."""

    def change(node: Any) -> Any:
        return substitute(node, lambda leaf: at.get(leaf.name)) if isinstance(node, IndexExpr) else node

    return rewrite(tree, change, lambda node: not isinstance(node, IndexExpr)) if at else tree
