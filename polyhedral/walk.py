"""Walking the core tree: loops below a statement, reads of a value, and rewriting of a leaf's accesses.

read_accesses(C[i, j] += A[i, k] * B[k, j]) = (Read A[i, k], Read B[k, j])
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from texpr.grammar import walk as tree
from texpr.grammar.ast import (
    Anchor,
    Condition,
    Expr,
    Gather,
    IndexExpr,
    IndexVar,
    Leaf,
    Node,
    Par,
    Read,
    Stmt,
    Subscript,
    operands,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import names

_INDICES = IndexExpr | Condition  # made once: this is asked of every node
AccessRewrite = Callable[[str, tuple[Subscript, ...]], tuple[str, tuple[Subscript, ...]]]


def contains_par(stmts: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Par) for s in statements(stmts))


def adjacent(par: Par) -> tuple[Par, ...]:
    """The `par`s from one inwards that have nothing between them."""
    found = [par]
    while len(found[-1].body) == 1 and isinstance(inner := found[-1].body[0], Par):
        found.append(inner)
    return tuple(found)


def _holds_values(node: Node) -> bool:
    return not isinstance(node, _INDICES)


def value_reads(value: Expr) -> tuple[Read, ...]:
    """The reads of a value in evaluation order, those of gathered subscripts before the read that they index."""
    backwards: list[Read] = []
    work: list[Node] = [value]
    while work:
        node = work.pop()
        if isinstance(node, Read):
            backwards.append(node)
        work += filter(_holds_values, operands(node))
    return tuple(backwards[::-1])


def subscript_reads(subscripts: tuple[Subscript, ...]) -> tuple[Read, ...]:
    """The reads of gathered subscripts."""
    return tuple(read for s in subscripts if isinstance(s, Gather) for read in value_reads(s.value))


def read_accesses(leaf: Leaf) -> tuple[Read, ...]:
    """Every read of a leaf, except an accumulation's reading of its own element."""
    if isinstance(leaf, Anchor):
        return value_reads(leaf.value)
    return value_reads(leaf.value) + subscript_reads(leaf.subscripts)


def written(leaf: Leaf) -> tuple[str, tuple[Subscript, ...]] | None:
    """Buffer and subscripts of the written element, None for an anchor."""
    return None if isinstance(leaf, Anchor) else (leaf.buffer, leaf.subscripts)


def touched(leaf: Leaf) -> Iterator[tuple[str, tuple[Subscript, ...]]]:
    """Buffer and subscripts of every access, the written one last."""
    for read in read_accesses(leaf):
        yield read.buffer, read.subscripts
    write = written(leaf)
    if write is not None:
        yield write


def subscript_names(subscripts: tuple[Subscript, ...]) -> frozenset[str]:
    """Indices and sizes in the subscripts, those inside gathers included."""
    return frozenset[str]().union(*map(names, subscripts))


def map_reads(value: Expr, change: Callable[[Read], Expr]) -> Expr:
    """The value with every read, those in subscripts first, put through `change`."""
    return tree.rewrite(value, lambda node: change(node) if isinstance(node, Read) else node, _holds_values)


def map_subscripts(subscripts: tuple[Subscript, ...], change: Callable[[Read], Expr]) -> tuple[Subscript, ...]:
    """The subscripts with every read in a gather put through `change`."""
    return tuple(replace(s, value=map_reads(s.value, change)) if isinstance(s, Gather) else s for s in subscripts)


def leaf_names(leaf: Leaf) -> frozenset[str]:
    """Indices and sizes in a leaf."""
    write = written(leaf)
    return names(leaf.value) | (subscript_names(write[1]) if write else frozenset())


def rewrite_read(read: Read, rewrite: AccessRewrite) -> Read:
    """The read, and those in its subscripts, passed through `rewrite`."""
    return tree.rewrite(read, _rewritten(rewrite), _holds_values)


def rewrite_value(value: Expr, rewrite: AccessRewrite) -> Expr:
    """The value with every access passed through `rewrite`."""
    return tree.rewrite(value, _rewritten(rewrite), _holds_values)


def _rewritten(rewrite: AccessRewrite) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        if not isinstance(node, Read):
            return node
        buffer, subscripts = rewrite(node.buffer, node.subscripts)
        return replace(node, buffer=buffer, subscripts=subscripts)

    return change


def rewrite_leaf(leaf: Leaf, rewrite: AccessRewrite) -> Leaf:
    """The leaf with every access passed through `rewrite`."""
    value = rewrite_value(leaf.value, rewrite)
    if isinstance(leaf, Anchor):
        return replace(leaf, value=value)
    inner = tuple(tree.rewrite(subscript, _rewritten(rewrite), _holds_values) for subscript in leaf.subscripts)
    buffer, subscripts = rewrite(leaf.buffer, inner)
    return replace(leaf, value=value, buffer=buffer, subscripts=subscripts)


def expand_accesses(expanded: Mapping[str, tuple[str, ...]]) -> AccessRewrite:
    """A rewrite that puts a buffer's expansion indices before its subscripts."""

    def rewrite(buffer: str, subscripts: tuple[Subscript, ...]) -> tuple[str, tuple[Subscript, ...]]:
        leading = tuple(IndexVar(name=name) for name in expanded.get(buffer, ()))
        return buffer, leading + subscripts

    return rewrite
