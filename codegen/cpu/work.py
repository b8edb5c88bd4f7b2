"""How much a launch has to do, counted in operations: whether it is worth waking the other cores.

Threads that have nothing to do sleep, and waking them takes a tenth of a millisecond, or several milliseconds where
other programs use the cores. A launch of fewer than SERIAL_OPERATIONS stays on the caller's thread. The count is an
expression of sizes and host indices, so that it is known at emission where they are bound, and at the call otherwise.

    par N i { C[i] = A[i] + B[i] } in blocks of 4096   ->   4 operations * 4096 for each block
"""

from texpr.grammar.ast import Cast, Fn, IndexConst, IndexExpr, Op, Read
from texpr.grammar.index.expr import add, at_least_zero, multiply, subtract
from texpr.grammar.index.interval import Ranges, bounds, greatest
from texpr.grammar.operators import OPERATORS
from texpr.grammar.types import DType
from texpr.grammar.walk import walk
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.operators import Elementwise, Generic
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node

SERIAL_OPERATIONS = 1 << 19  # 40 to 400 us of one core, by what can be vectorised

_COSTS = {fn: row.cost for fn, row in OPERATORS.items()} | {Fn.FLOORDIV: OPERATORS[Fn.DIV].cost}
_SMALL_FLOAT = 8  # an access to a float of 16 or 8 bits, which is converted by integer arithmetic

_ZERO: IndexExpr = IndexConst(value=0)


def operations(launch: Launch) -> IndexExpr | None:
    """Operations of one core iteration of a launch, at most, in sizes and host indices; None where its loops do not
    say. Guards count as if they held, and a loop in a triangle as if it were as long as the longest."""
    digits = {d.name: (_ZERO, subtract(d.radix, IndexConst(value=1))) for d in launch.hardware}
    return _body(launch.body, digits)


def _body(body: tuple[Node, ...], ranges: Ranges) -> IndexExpr | None:
    total: IndexExpr = _ZERO
    known = dict(ranges)
    for node in body:
        match node:
            case Define(index=index, digits=digits, offset=offset):
                around = bounds(offset, known)
                if around is None:
                    return None
                last = around[1]
                for digit in digits:
                    last = add(last, multiply(IndexConst(value=digit.weight), known[digit.name][1]))
                known[index] = around[0], last
                part: IndexExpr | None = _ZERO
            case Loop(index=index, extent=extent, body=inner):
                most_often = greatest(extent, known)
                if most_often is None:
                    return None
                last = subtract(most_often, IndexConst(value=1))
                part = _body(inner, known | {index: (_ZERO, last)})
                part = None if part is None else multiply(at_least_zero(most_often), part)
            case Guard(body=inner, orelse=orelse):
                part = _body(inner + orelse, known)
            case Generic():
                part = IndexConst(value=_statement(node))
            case Elementwise():
                part = _body((expand(node),), known)
            case Fresh():
                part = _ZERO
            case _:
                return None
        if part is None:
            return None
        total = add(total, part)
    return total


def _statement(node: Generic) -> int:
    """Operations of one instance of a statement."""
    cost = 0
    for part in walk(node.leaf.value):
        match part:
            case Op(fn=fn):
                cost += _COSTS.get(fn, 1)
            case Read(dtype=dtype) | Cast(dtype=dtype):
                cost += _access(dtype)
    if node.store is not None:
        cost += 1 if node.store.op is None else 2
    return max(cost, 1)


def _access(dtype: DType) -> int:
    return _SMALL_FLOAT if dtype.is_float and dtype.bits < 32 else 1
