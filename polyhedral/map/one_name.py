"""One name for a partial result and for what it becomes, where the two are never needed at once.

new v ; new p
p = 0 ; seq K k { p += e(k) } ; p = Sum of p over all threads ; v = p

new v
v = 0 ; seq K k { v += e(k) } ; v = Sum of v over all threads
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from texpr.grammar.ast import Accumulate, Bind, Read
from texpr.grammar.walk import rewrite
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.mapped.operators import Generic, Operator, Origin, Reduce
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Guard, Node
from texpr.polyhedral.mapped.walks import branches, every_node, map_nodes, operator_buffers, tree_buffers, with_branches


def one_name(draft: Draft, body: Sequence[Node]) -> tuple[Node, ...]:
    """The tree without registers that begin, come to a value, and end by being bound to another one."""
    found: list[Node] = [with_branches(node, [one_name(draft, inside) for inside in branches(node)]) for node in body]
    at = 0
    while at < len(found):
        old, new = _bound(found[at])
        begin = _begin(draft, found, at, old, new)
        if begin is None:
            at += 1
            continue
        life = [node for node in found[begin + 1 : at] if not _begins(node, new)]
        late = len(life) < at - begin - 1  # the other one has not begun yet: it does where this one did
        own = (Fresh(buffer=new),) if late else ()
        found[begin : at + 1] = (*own, *map_nodes(life, partial(_renamed, old=old, new=new)))
        del draft.buffers[old]
        at -= 1
    return tuple(found)


def _bound(node: Node) -> tuple[str, str]:
    """The scalar that a combined result is read from, and the one that is bound to it; empty where it is none."""
    match node:
        case Generic(
            origin=Origin.COMBINE,
            atomic=False,
            leaf=Bind(buffer=new, subscripts=(), value=Read(buffer=old, subscripts=())),
        ):
            return old, new
        case _:
            return "", ""


def _begins(node: Node, name: str) -> bool:
    return isinstance(node, Fresh) and node.buffer == name


def _begin(draft: Draft, nodes: Sequence[Node], at: int, old: str, new: str) -> int | None:
    """Where the register `old` begins among the nodes, if all of its life is there before `at`, and `new` may stand for
    it: one that nothing touches as long, whether it has begun or does so meanwhile."""
    if not old or not all(draft.buffers[name].memory is Memory.REG for name in (old, new)):
        return None
    same = (draft.buffers[old].dtype, draft.buffers[old].layout) == (
        draft.buffers[new].dtype,
        draft.buffers[new].layout,
    )
    begins = {node.buffer: number for number, node in enumerate(nodes[:at]) if isinstance(node, Fresh)}
    if not same or old not in begins or new not in begins:
        return None
    life, rest = nodes[begins[old] + 1 : at], nodes[at + 1 :]
    others = [node for node in nodes[min(begins[old], begins[new]) + 1 : at] if not _begins(node, new)]
    untouched = new not in tree_buffers(others) and old not in tree_buffers(rest)
    return begins[old] if untouched and all(_may_rename(node, old) for node in every_node(life)) else None


def _may_rename(node: Node, old: str) -> bool:
    """Whether `_renamed` knows all places where a node has the register."""
    match node:
        case Generic(leaf=Bind() | Accumulate()) | Reduce():
            return True
        case Fresh(buffer=name):
            return name != old
        case _ if isinstance(node, Operator):
            return old not in operator_buffers(node)
        case _:
            return True


def _renamed(node: Node, old: str, new: str) -> Node:
    """The node with another name for a register."""

    def named(at: Any) -> Any:
        return replace(at, buffer=new) if isinstance(at, Read | Bind | Accumulate) and at.buffer == old else at

    match node:
        case Generic(leaf=leaf):
            return replace(node, leaf=rewrite(leaf, named))
        case Reduce(values=values, targets=targets):
            targets = tuple(replace(to, buffer=new) if to.buffer == old else to for to in targets)
            return replace(node, values=tuple(rewrite(value, named) for value in values), targets=targets)
        case Guard(condition=condition):
            return replace(node, condition=rewrite(condition, named))
        case _:
            return node
