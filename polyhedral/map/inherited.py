"""Attributes that statements take over from what is around them, put on every leaf of a mapped program.

`#strict`, `#fast` and `#tf32` come from the kernel, `#ordered` from a `seq`; a statement's own `#unique` gets the
indices of the `par`s around it, whose iterations are promised to reach different elements; and each gets what is
`implied`: what nobody wrote, but its values imply (`grammar/narrow.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Attr,
    Bind,
    If,
    IndexVar,
    Intrinsic,
    Kernel,
    Par,
    Seq,
    Stmt,
)
from texpr.grammar.attributes import inherited
from texpr.grammar.permissions import promises_unique
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.program import HostNode, Launch
from texpr.polyhedral.mapped.walks import map_launches, map_statements

Implied = Mapping[str, tuple[Attr, ...]]
UNIQUE_OVER = "unique over"  # not a name that the language has: `#unique` with its parallel indices


def _inherited(kernel: Kernel, implied: Implied) -> dict[str, tuple[Attr, ...]]:
    """For every leaf statement, by id, the attributes that it takes over."""
    found: dict[str, tuple[Attr, ...]] = {}
    general = inherited(kernel.attrs)
    pending: list[tuple[Stmt, tuple[Attr, ...], tuple[IndexVar, ...]]] = [(s, general, ()) for s in kernel.body]
    while pending:
        statement, attrs, pars = pending.pop()
        match statement:
            case Seq(body=body):
                inner = attrs + inherited(statement.attrs)
                pending.extend((s, inner, pars) for s in body)
            case Par(body=body, index=index):
                pending.extend((s, attrs, (*pars, IndexVar(name=index))) for s in body)
            case If(then=then, orelse=orelse):
                pending.extend((s, attrs, pars) for s in then + orelse)
            case Intrinsic(reference=reference):
                pending.extend((s, attrs, pars) for s in reference)
            case Bind() | Accumulate() | Atomic() | Anchor():
                unique = (Attr(name=UNIQUE_OVER, args=pars),) if promises_unique(statement) else ()
                found[statement.id] = attrs + unique + implied.get(statement.id, ())
            case _:
                pass
    return found


def inherit_attributes(kernel: Kernel, implied: Implied, host: Sequence[HostNode]) -> tuple[HostNode, ...]:
    """The launches with the attributes of the kernel's loops on their statements, the mapping's own copies included."""
    taken_over = _inherited(kernel, implied)
    if not any(taken_over.values()):
        return tuple(host)

    def statement(node: Generic) -> Generic:
        leaf = node.leaf
        extra = tuple(a for a in taken_over.get(leaf.id, ()) if not leaf.has(a.name))
        return replace(node, leaf=replace(leaf, attrs=leaf.attrs + extra)) if extra else node

    def launch(node: Launch) -> Launch:
        return replace(node, body=map_statements(node.body, statement))

    return map_launches(host, launch)
