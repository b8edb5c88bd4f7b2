"""Contraction and expansion: where a local is declared, and with which dimensions, follows the loops around it.

A local that is declared inside loops is a new one in each of their iterations, which is a dimension for each loop that
nobody writes: contraction leaves out dimensions that these tell, expansion writes them out. Neither moves a statement.
"""

from collections.abc import Callable
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    AsmOperand,
    Atomic,
    Bind,
    Buffer,
    Gather,
    IndexExpr,
    Kernel,
    New,
    Node,
    Read,
    Role,
    Subscript,
)
from texpr.grammar.index.expr import ONE, add, index_names, same
from texpr.grammar.index.interval import index_range
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.moves import Contract, Expand
from texpr.polyhedral.schedule.origins import Moved
from texpr.polyhedral.schedule.tree import Block, Loop, Place, index, loop_of, places, unfit, with_block

Touching = Read | Bind | Accumulate | Atomic
Subscripts = tuple[Subscript, ...]


def contract(kernel: Kernel, move: Contract) -> Moved:
    """The local inside the loop, without the dimensions whose subscripts are the same all through an iteration."""
    buffer, home = _local(kernel, move.buffer)
    _, loop = loop_of(kernel, move.loop)
    uses = _uses(kernel, buffer.name)
    inside = _uses(loop, buffer.name)
    if len(uses) != len(inside) or not uses or any(stmt is home.stmt for stmt in _all(loop)):
        raise unfit(f"{buffer.name} is not used inside `{loop.index}` alone", home.stmt.span, "this local")
    told = _loops_of(kernel, loop)
    dropped = tuple(d for d in range(len(buffer.shape)) if _constant([use[d] for use in uses], told))

    def without(subscripts: Subscripts) -> Subscripts:
        return tuple(s for d, s in enumerate(subscripts) if d not in dropped)

    shape = tuple(extent for d, extent in enumerate(buffer.shape) if d not in dropped)
    changed = accessed(_without_new(kernel, home), buffer.name, without)
    place, loop = loop_of(changed, move.loop)
    first = next((n for n, stmt in enumerate(loop.body) if not isinstance(stmt, New)), 0)
    grown = replace(loop, body=(*loop.body[:first], home.stmt, *loop.body[first:]))
    block = (*place.block[: place.at], grown, *place.block[place.at + 1 :])
    return Moved(kernel=with_buffer(with_block(changed, place, block), replace(buffer, shape=shape)))


def expand(kernel: Kernel, move: Expand) -> Moved:
    """The local before the loop, its first dimensions those of the loops that were around it."""
    buffer, home = _local(kernel, move.buffer)
    around = [loop.index for loop in home.loops]
    if move.loop not in around:
        raise unfit(f"{buffer.name} is not declared inside `{move.loop}`", home.stmt.span, "this local")
    loops = home.loops[around.index(move.loop) :]
    extents = _box(home.loops, buffer)[-len(loops) :]
    leading = tuple(index(loop.index) for loop in loops)
    changed = accessed(_without_new(kernel, home), buffer.name, lambda subscripts: (*leading, *subscripts))
    place, _ = loop_of(changed, move.loop)
    block = (*place.block[: place.at], home.stmt, *place.block[place.at :])
    return Moved(
        kernel=with_buffer(with_block(changed, place, block), replace(buffer, shape=(*extents, *buffer.shape)))
    )


def _local(kernel: Kernel, name: str) -> tuple[Buffer, Place]:
    """A local that is declared in plain words, with its `new`."""
    found = next((b for b in kernel.buffers if b.name == name and b.role is Role.LOCAL), None)
    home = next((p for p in places(kernel) if isinstance(p.stmt, New) and p.stmt.buffer == name), None)
    if found is None or home is None:
        raise unfit(f"there is no local {name[:80]!r}", kernel.span)
    if found.memory is not None or found.attrs or found.strides is not None or home.stmt.attrs:
        raise unfit(f"the author says where {name} lies: it stays as it is", home.stmt.span, "this local")
    if any(isinstance(node, AsmOperand) and node.buffer == name for node in walk(kernel)):
        raise unfit(f"hardware uses {name}: it stays as it is", home.stmt.span, "this local")
    return found, home


def _all(loop: Loop) -> list[Node]:
    return list(walk(loop))


def _uses(tree: Node, name: str) -> list[Subscripts]:
    """The subscripts of every access to a buffer."""
    return [node.subscripts for node in walk(tree) if isinstance(node, Touching) and node.buffer == name]


def _loops_of(kernel: Kernel, loop: Loop) -> set[str]:
    """The indices of a loop and of those around it."""
    place, _ = loop_of(kernel, loop.index)
    return {loop.index, *(outer.index for outer in place.loops)}


def _constant(subscripts: list[Subscript], told: set[str]) -> bool:
    """Whether these are one expression of the indices that are told."""
    first = subscripts[0]
    if isinstance(first, Gather) or not index_names(first) <= told:
        return False
    return all(not isinstance(other, Gather) and same(first, other) for other in subscripts)


def _without_new(kernel: Kernel, home: Place) -> Kernel:
    block: Block = (*home.block[: home.at], *home.block[home.at + 1 :])
    return with_block(kernel, home, block)


def accessed(kernel: Kernel, name: str, subscripts: Callable[[Subscripts], Subscripts]) -> Kernel:
    """The kernel with every access to a buffer made by other subscripts."""

    def change(node: Node) -> Node:
        if isinstance(node, Touching) and node.buffer == name:
            return replace(node, subscripts=subscripts(node.subscripts))
        return node

    return rewrite(kernel, change, into=lambda node: not isinstance(node, IndexExpr))


def with_buffer(kernel: Kernel, buffer: Buffer) -> Kernel:
    return replace(kernel, buffers=tuple(buffer if b.name == buffer.name else b for b in kernel.buffers))


def _box(loops: tuple[Loop, ...], buffer: Buffer) -> list[IndexExpr]:
    """The greatest extents of loops, in sizes."""
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    extents: list[IndexExpr] = []
    for loop in loops:
        found = index_range(loop.extent, ranges)
        if found is None or index_names(found[1]):
            raise unfit(f"the iterations of `{loop.index}` have no box for {buffer.name}", loop.span, "this loop")
        ranges[loop.index] = found
        extents.append(add(found[1], ONE))
    return extents
