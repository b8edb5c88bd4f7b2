"""First sums: a reduction that the threads combine, into an element that was just bound to what it starts from.

    S[i] = 0 ; p = Sum of p over all threads ; S[i] += p
    p = Sum of p over all threads ; S[i] = p

The partials start from the same identity, so the result is theirs, and the element is neither stored nor read before. A
reduction that may have nothing to reduce stands under a condition; the bind is its other arm then. A register stays as
it is there: its bind costs nothing, and a variable that two arms define is harder to read.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Bind, Const
from texpr.grammar.identities import first_of
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.walks import tree_buffers


def bound_once(draft: Draft, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The tree in which what is combined is bound where nothing else is there to combine it with."""
    found: list[Node] = []
    for node in body:
        match node:
            case Generic() if (at := _start_of(node, found)) is not None:
                del found[at]
                found.append(_bound(draft, node))
            case Guard(orelse=()):
                found.append(_under(draft, node, found))
            case Guard(body=inside, orelse=orelse):
                found.append(replace(node, body=bound_once(draft, inside), orelse=bound_once(draft, orelse)))
            case Loop(body=inside):
                found.append(replace(node, body=bound_once(draft, inside)))
            case _:
                found.append(node)
    return tuple(found)


def _under(draft: Draft, guard: Guard, before: list[Node]) -> Guard:
    """A condition whose statements combine what was bound before it: it is bound in one arm or in the other."""
    inside, orelse = list(guard.body), list[Node]()
    for number, node in enumerate(inside):
        if isinstance(node, Generic) and _is_alone(draft, node, inside):
            at = _start_of(node, before)
            if at is not None:
                orelse.append(before.pop(at))
                inside[number] = _bound(draft, node)
    return replace(guard, body=bound_once(draft, tuple(inside)), orelse=tuple(orelse))


def _is_alone(draft: Draft, node: Generic, inside: Sequence[Node]) -> bool:
    """Whether nothing else under the condition touches the element, which lies in memory."""
    store = node.store
    if store is None or draft.buffers[store.buffer].memory is Memory.REG:
        return False
    return store.buffer not in tree_buffers([other for other in inside if other is not node])


def _start_of(node: Generic, before: Sequence[Node]) -> int | None:
    """Where the bind stands whose element a combined reduction updates, in the same threads, and nothing else since."""
    leaf = node.leaf
    if node.origin is not Origin.COMBINE or not isinstance(leaf, Accumulate) or node.atomic:
        return None
    for at in reversed(range(len(before))):
        if leaf.buffer in tree_buffers((before[at],)):
            return at if _starts(before[at], node, leaf) else None
    return None


def _starts(first: Node, node: Generic, leaf: Accumulate) -> bool:
    if not isinstance(first, Generic) or not isinstance(first.leaf, Bind):
        return False
    start, same = first.leaf, (first.digits, first.unused) == (node.digits, node.unused)
    same = same and (start.buffer, start.subscripts) == (leaf.buffer, leaf.subscripts)
    return same and isinstance(start.value, Const) and _is_identity(leaf, start.value)


def _is_identity(leaf: Accumulate, start: Const) -> bool:
    return bool(start.value == first_of(leaf.op, start.dtype))


def _bound(draft: Draft, node: Generic) -> Generic:
    leaf = node.leaf
    assert isinstance(leaf, Accumulate), "only accumulations are combined"
    value = as_type(leaf.value, draft.buffers[leaf.buffer].dtype)
    bind = Bind(id=leaf.id, buffer=leaf.buffer, subscripts=leaf.subscripts, value=value, span=leaf.span)
    return replace(node, leaf=bind)
