"""Narrow values: those that leave a kernel only rounded to f16 or bf16, so that their functions may be the faster ones.

    total = sum N j { exp(X[i, j] - top) }       f32, and what reads it is narrow
    Y[i, j] = exp(X[i, j] - top) / total         rounded to bf16

Not where an error could grow or decide something: in what a statement compares, truncates or reads back into itself.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from texpr.grammar.ast import (
    COMPARISONS,
    Accumulate,
    Anchor,
    Atomic,
    Attr,
    Bind,
    Cast,
    Fn,
    If,
    Kernel,
    Leaf,
    New,
    Op,
    Par,
    Read,
    Role,
    Seq,
)
from texpr.grammar.core import statements
from texpr.grammar.permissions import NARROW, may_contract
from texpr.grammar.types import BF16, F16, F32
from texpr.grammar.walk import walk

ROUNDED = (F16, BF16)
_STEPS = frozenset({Fn.FLOOR, Fn.CEIL, Fn.ROUND, *COMPARISONS})


def implied_attributes(kernel: Kernel) -> Mapping[str, tuple[Attr, ...]]:
    """The attributes of statements, by id, that nobody wrote: `NARROW` of those whose values are narrow."""
    return dict.fromkeys(narrow_statements(kernel), (NARROW,))


def narrow_statements(kernel: Kernel) -> frozenset[str]:
    """The statements whose values are narrow, by id."""
    if not may_contract(kernel) or not any(b.dtype in ROUNDED for b in kernel.params):
        return frozenset()
    found = list(statements(kernel.body))
    if not all(isinstance(s, Par | Seq | If | New | Leaf) for s in found):
        return frozenset()
    leaves = [s for s in found if isinstance(s, Leaf)]
    local = {b.name for b in kernel.buffers if b.role is Role.LOCAL and b.dtype == F32}
    narrow = {leaf.id: leaf for leaf in leaves if _may_be(kernel, leaf, local)}
    local -= _recurrent(leaves, local)
    while True:
        wide = {name for leaf in leaves if leaf.id not in narrow for name in _reads(leaf)}
        wide |= {s.condition.buffer for s in found if isinstance(s, If) and isinstance(s.condition, Read)}
        kept = {
            id: leaf
            for id, leaf in narrow.items()
            if kernel.buffer(_target(leaf)).dtype in ROUNDED or _target(leaf) in local - wide
        }
        if len(kept) == len(narrow):
            return frozenset(kept)
        narrow = kept


def _target(leaf: Leaf) -> str:
    return "" if isinstance(leaf, Anchor) else leaf.buffer


def _may_be(kernel: Kernel, leaf: Leaf, local: set[str]) -> bool:
    """Whether a leaf's own text lets its value be narrow."""
    if isinstance(leaf, Anchor) or not may_contract(leaf):
        return False
    target = kernel.buffer(leaf.buffer)
    if target.dtype not in ROUNDED and target.name not in local:
        return False
    inside = list(walk(leaf.value))
    steps = any(isinstance(node, Op) and node.fn in _STEPS for node in inside)
    return not steps and all(node.dtype.is_float for node in inside if isinstance(node, Cast))


def _reads(leaf: Leaf) -> Iterator[str]:
    return (node.buffer for node in walk(leaf) if isinstance(node, Read))


def _recurrent(leaves: list[Leaf], local: set[str]) -> set[str]:
    """The locals whose values come back to themselves, through however many statements."""
    after: dict[str, set[str]] = {name: set() for name in local}
    for leaf in leaves:
        if isinstance(leaf, Bind | Accumulate | Atomic) and leaf.buffer in local:
            after[leaf.buffer].update(name for name in _reads(leaf) if name in local)
    found: set[str] = set()
    while True:
        try:
            TopologicalSorter({n: own - found for n, own in after.items() if n not in found}).prepare()
        except CycleError as cycle:
            found.update(cycle.args[1])
        else:
            return found
