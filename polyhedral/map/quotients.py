"""Quotients and remainders of an index, for neighbouring values of it that begin at a multiple of their number.

X[i / 64, c, i % 64] at i = 4*k + e    X[4*k / 64, c, 4*k % 64 + e]     one wide access, e < 4
G[i / 64]                              G[4*k / 64]                      read once for all four
"""

from dataclasses import replace

from texpr.grammar.ast import Expr, Gather, IndexBinary, IndexConst, IndexExpr, IndexVar, Subscript
from texpr.grammar.ast import Node as Tree
from texpr.grammar.index.expr import add, combine, constant_value, names
from texpr.grammar.index.operators import IndexOp
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import map_nodes, of_kind

SELDOM = 64  # neighbours from which on another element is looked up seldom


def moves_seldom(subscripts: tuple[Subscript, ...], index: str) -> bool:
    """Whether many neighbouring values of an index, which stands in quotients alone, have one element."""
    moving = [s for s in subscripts if index in names(s)]
    return bool(moving) and all((_divisor(s, index) or 0) >= SELDOM for s in moving)


def in_turn(subscripts: tuple[Subscript, ...], index: str, start: IndexExpr, here: IndexExpr) -> tuple[Subscript, ...]:
    """The subscripts with quotients and remainders of an index at `start + here`, of the neighbours of one wide access:
    none of them begins another turn (`layout/vector.py`)."""

    def change(node: Tree) -> Tree:
        if not isinstance(node, IndexBinary) or node.left != IndexVar(name=index):
            return node
        match node.op:
            case IndexOp.DIV:
                return combine(IndexOp.DIV, start, node.right)
            case IndexOp.MOD:
                return add(combine(IndexOp.MOD, start, node.right), here)
            case _:
                return node

    return tuple(s if isinstance(s, Gather) else rewrite(s, change) for s in subscripts)


def of_first(value: Expr, index: str, first: str, count: int) -> Expr:
    """What a value is for `count` neighbours, with the quotients of the first one where all of them have these."""

    def change(node: Tree) -> Tree:
        divisor = _divisor(node, index)
        if divisor is None or divisor % count:
            return node
        return combine(IndexOp.DIV, IndexVar(name=first), IndexConst(value=divisor))

    return rewrite(value, change)


def divides(value: Expr, index: str) -> bool:
    """Whether a quotient of the index stands in a value."""
    return any(_divisor(node, index) is not None for node in walk(value))


def quotients_of(subscripts: tuple[Subscript, ...], index: str) -> tuple[int, ...]:
    """The divisors of an index that stands in plain quotients alone; none where it stands elsewhere, too."""
    found = [_divisor(s, index) for s in subscripts if index in names(s)]
    return tuple(d for d in found if d is not None) if None not in found else ()


def _divisor(node: Tree, index: str) -> int | None:
    """By what number an index is divided."""
    if isinstance(node, IndexBinary) and node.op is IndexOp.DIV and node.left == IndexVar(name=index):
        return constant_value(node.right)
    return None


def quotients_of_first(body: tuple[Node, ...], index: str, first: str, count: int) -> tuple[Node, ...]:
    """The body with quotients that all of a run have as those of its first iteration: what they tell is read once."""

    def change(node: Node) -> Node:
        if not isinstance(node, Generic):
            return node
        value = of_first(node.leaf.value, index, first, count)
        return replace(node, leaf=replace(node.leaf, value=value))

    told = any(divides(node.leaf.value, index) for node in of_kind(body, Generic))
    return map_nodes(body, change) if told else body
