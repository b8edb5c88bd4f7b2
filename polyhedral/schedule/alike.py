"""Whether two leaves compute the same: trees of one shape, whose indices differ as an origin says.

Which elements they read and write is not asked here, but what a gathered subscript reads is.
"""

from texpr.grammar.ast import (
    And,
    Compare,
    IndexExpr,
    IndexValue,
    IndexVar,
    Node,
    Not,
    Or,
    Select,
    SizeVar,
    Statement,
    operands,
)
from texpr.grammar.index.expr import substitute
from texpr.grammar.index.linear import difference
from texpr.polyhedral.schedule.origins import Origin


def alike(old: Node, new: Node, origin: Origin) -> bool:
    """Whether `new` is `old` where the old indices are the new ones' `origin`, affine subscripts aside."""

    def value(leaf: IndexVar | SizeVar) -> IndexExpr | None:
        return origin.values.get(leaf.name) if isinstance(leaf, IndexVar) else None

    work: list[tuple[Node, Node]] = [(old, new)]
    while work:
        a, b = work.pop()
        if isinstance(a, IndexExpr) and isinstance(b, IndexExpr):
            if difference(substitute(a, value), b) != 0:
                return False
            continue
        if type(a) is not type(b) or _said(a) != _said(b):
            return False
        inside = [_inside(node) for node in (a, b)]
        if len(inside[0]) != len(inside[1]):
            return False
        work += zip(*inside, strict=True)
    return True


def _said(node: Node) -> tuple[object, ...]:
    """What a node says beside the nodes in it, names of buffers and statements aside."""
    match node:
        case Statement():
            return getattr(node, "op", None), node.attrs
        case _:
            return tuple(
                getattr(node, name, None) for name in ("fn", "op", "dtype", "value") if not _is_node(node, name)
            )


def _is_node(node: Node, name: str) -> bool:
    return isinstance(getattr(node, name, None), Node)


def _inside(node: Node) -> list[Node]:
    """The nodes in a node, affine subscripts left out."""
    whole = isinstance(node, IndexValue | Compare | And | Or | Not | Select)
    return [part for part in operands(node) if whole or not isinstance(part, IndexExpr)]
