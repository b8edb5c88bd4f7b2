"""Loads of what each row of a reduction has once, beside those of its neighbours, behind which it would be waited for.

for i_row_ahead < 4: X_row[i_row_ahead] = X[i_first + 8*i_row_ahead]
"""

from texpr.grammar.ast import Bind, Compare, CompareOp, Expr, IndexVar, Read, Seq
from texpr.grammar.index.expr import ZERO, add, const, multiply
from texpr.polyhedral.map.crew import Crew
from texpr.polyhedral.map.runs import nothing
from texpr.polyhedral.map.vectors import Element, at
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.tree import Guard, Loop, Node


def row_load(
    crew: Crew, over: Seq, element: Element, register: str, first: str, step: int, ahead: int, asks: bool
) -> Node:
    """The loads of what each row has once: in rounds so far apart, from the row `first` on; `asks`: whether there is
    one."""
    (name, subscripts), q, span = element, crew.draft.names.fresh("row_ahead"), over.span
    at_round = IndexVar(name=q) if ahead > 1 else ZERO
    row = add(IndexVar(name=first), multiply(const(step), at_round))
    dtype = crew.draft.kernel.buffer(name).dtype

    def bind(value: Expr) -> tuple[Generic]:
        id = crew.draft.names.fresh(f"{over.index}_row_load")
        leaf = Bind(id=id, buffer=register, subscripts=(at_round,), value=value, span=span)
        return (Generic(id=id, leaf=leaf, origin=Origin.COPY_IN, digits=crew.own),)

    body: tuple[Node, ...] = bind(Read(buffer=name, subscripts=at(subscripts, over.index, row), dtype=dtype, span=span))
    if asks:
        there = Compare(op=CompareOp.LT, left=row, right=over.extent)
        body = (Guard(condition=there, body=body, orelse=bind(nothing(dtype, span)), padding=True, span=span),)
    if ahead == 1:
        return body[0]
    return Loop(index=q, extent=const(ahead), body=body, unroll=True, span=span)
