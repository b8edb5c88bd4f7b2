"""What an operator means: the `Generic`s of every thread, in loops over what one thread does alone.

S2: copy a[i] = A[k, i] for i < 64      for i < 64 { S2: a[i] = A[k, i] }
S3: each e < 48: p[e] = exp(v[e])       for e < 48 { S3: p[e] = exp(v[e]) }
S8: unload d[x, y] = c[x, y] for …      for x < 16, y < 64 { if 4 * (x % 8) + y % 8 / 2 == @thread { S8: … } }

Of what a team does together, each thread does what it holds by the atom's layouts; `@thread` is its number in the team.
What a `Reduce` or `Scan` means its monoid says (`monoids.py`): lanes see one another's values, as no statement does.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from texpr.grammar.ast import And, Compare, CompareOp, Condition, IndexOp, IndexVar, Not, Or, Read
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ONE, ZERO, combine, const
from texpr.polyhedral.layout.place import owner
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import (
    Contract,
    Copy,
    Elementwise,
    Generic,
    Operator,
    Reduce,
    Scan,
    Unload,
)
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box, Within

IN_TEAM = IndexVar(name="@thread")
"""The number of a thread in the team of an atom."""


Unfolded = tuple[Generic, Box, tuple[Condition, ...]]


def expand(operator: Operator) -> Node:
    """The operator as loops around `Generic`s; when its effect is seen is not told by them."""
    match operator:
        case Generic() | Reduce() | Scan() | LookBack():
            return operator
        case Copy():
            return _only(_loops(operator.over, (_wanted_only(operator),), operator))
        case Elementwise():
            return _only(_loops(operator.over, operator.each, operator))
        case Contract():
            (row, column, depth), c = operator.over, operator.atom.operands["c"]
            start = Guard(condition=operator.accumulate, body=(), orelse=(operator.start,))
            (step,) = _loops((depth,), (operator.each,), operator, parallel=False)
            held = Guard(condition=holds(c.layout, (row, column)), body=(start, step))
            return _only(_loops((row, column), (held,), operator))
        case Unload():
            held = Guard(condition=holds(operator.atom.held.layout, operator.over), body=(operator.each,))
            return _only(_loops(operator.over, (held,), operator))
        case _:
            assert_never(operator)


def unfolded(node: Node, over: Box = (), where: tuple[Condition, ...] = ()) -> Iterator[Unfolded]:
    """The statements of an expansion, each with the indices that it runs over and the conditions on them."""
    match node:
        case Generic():
            yield node, over, where
        case Loop(index=index, extent=extent, body=body):
            for inner in body:
                yield from unfolded(inner, (*over, (index, extent)), where)
        case Guard(condition=condition, body=body, orelse=orelse) if not isinstance(condition, Read):
            for branch, holds in ((body, condition), (orelse, Not(part=condition))):
                for inner in branch:
                    yield from unfolded(inner, over, (*where, holds))
        case _:
            raise InternalError(f"an expansion has a {type(node).__name__}")


def _wanted_only(copy: Copy) -> Node:
    if copy.within is None:
        return copy.each
    other = copy.otherwise
    return Guard(condition=wanted(copy.over, copy.within), body=(copy.each,), orelse=(other,) if other else ())


def wanted(over: Box, within: Within) -> Condition:
    """Which values of a copy's last index are wanted."""
    last = IndexVar(name=over[-1][0])
    lower = Compare(op=CompareOp.LE, left=within.begin, right=last)
    return And(parts=(lower, Compare(op=CompareOp.LT, left=last, right=within.end)))


def uncut(over: Box, within: Within) -> Condition:
    """What is said of the accesses between the first and the last of those that follow one another."""
    assert within.part is not None, "accesses that are numbered"
    count = over[-1][1]
    first = Compare(op=CompareOp.LT, left=within.part, right=ONE)
    last = Compare(op=CompareOp.LE, left=const(within.whole), right=within.part)
    begins = Or(parts=(first, Compare(op=CompareOp.LE, left=within.begin, right=ZERO)))
    return And(parts=(begins, Or(parts=(last, Compare(op=CompareOp.LE, left=count, right=within.end)))))


def holds(layout: Layout, over: Box) -> Condition:
    """Whether a thread of the team holds the element of a tile at the first two indices, or of one that repeats it."""
    inside = [
        combine(IndexOp.MOD, IndexVar(name=index), extent)
        for (index, _), extent in zip(over, layout.shape, strict=True)
    ]
    return Compare(op=CompareOp.EQ, left=owner(layout, inside)[Unit.LANE], right=IN_TEAM)


def _loops(over: Box, inside: Sequence[Node], operator: Operator, *, parallel: bool = True) -> tuple[Node, ...]:
    """The nodes for every value of the indices."""
    body = tuple(inside)
    for index, extent in reversed(over):
        body = (Loop(index=index, extent=extent, body=body, parallel=parallel, span=operator.span),)
    return body


def _only(nodes: tuple[Node, ...]) -> Node:
    """A single node, which stands alone."""
    if len(nodes) > 1:
        raise InternalError(f"{len(nodes)} statements, over no index")
    return nodes[0]
