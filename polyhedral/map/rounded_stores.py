"""Stores that round: what a run computes in f32 for an array of f16 or bf16 stays in f32 until it is stored.

    Y_run[j_vector] = bf16(a * f32(X_run[j_vector]))        Y_run[j_vector] = a * f32(X_run[j_vector])
    copy Y[j_first + e] = Y_run[e] for e < 8                copy Y[j_first + e] = bf16(Y_run[e]) for e < 8

One instruction rounds two neighbours to a word; of elements that are rounded one by one compilers do not make it, and
add what puts two together. On an H200 softmax of 257 x 100003 in bf16 runs at .928 of a copy so, at .901 without,
LayerNorm of 32749 x 4093, whose rate is that of its instructions, at .933 and .903.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Bind, Cast, Read, Stmt
from texpr.grammar.types import BF16, F16, F32
from texpr.polyhedral.map.vectors import Element, Wide
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Guard, Node
from texpr.polyhedral.mapped.walks import map_nodes, of_kind
from texpr.polyhedral.walk import read_accesses, written


def rounded_stores(moved: Sequence[Wide], body: tuple[Node, ...]) -> frozenset[Element]:
    """The elements that every statement of a run which writes them rounds from f32, and none reads."""
    leaves = [node.leaf for node in of_kind(body, Generic)]
    reads = {(read.buffer, read.subscripts) for leaf in leaves for read in read_accesses(leaf)}
    reads |= {(c.buffer, c.subscripts) for c in (g.condition for g in of_kind(body, Guard)) if isinstance(c, Read)}

    def rounds(wide: Wide) -> bool:
        writes = [leaf for leaf in leaves if written(leaf) == wide.element]
        return bool(writes) and wide.element not in reads and all(rounds_f32(leaf) for leaf in writes)

    pairs = [w for w in moved if w.stores and not w.loads and not w.shifted and w.width % 2 == 0]
    return frozenset(wide.element for wide in pairs if wide.dtype in (F16, BF16) and rounds(wide))


def rounds_f32(leaf: Stmt) -> bool:
    """Whether a statement binds a value that it rounds from f32."""
    return isinstance(leaf, Bind) and isinstance(leaf.value, Cast) and leaf.value.operand.dtype == F32


def unrounded(body: tuple[Node, ...], elements: frozenset[Element]) -> tuple[Node, ...]:
    """The body, which leaves what it writes of these elements in f32."""

    def change(node: Node) -> Node:
        if not isinstance(node, Generic) or written(node.leaf) not in elements:
            return node
        assert isinstance(node.leaf, Bind) and isinstance(node.leaf.value, Cast)
        return replace(node, leaf=replace(node.leaf, value=node.leaf.value.operand))

    return map_nodes(body, change) if elements else body
