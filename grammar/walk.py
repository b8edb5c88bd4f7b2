"""The walkers of core trees and the rewriter, none of which recurses: trees may be as deep as memory lets them.

fold(i * 4 + 1, value)   calls   value(i, []) value(4, []) value(i * 4, [a, b]) value(1, []) value(…, [c, d])
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import is_
from typing import Any, TypeVar, cast

from texpr.grammar.ast import IndexBinary, Node, operands, parts_of

T = TypeVar("T")
N = TypeVar("N", bound=Node)


def walk(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, parents first, in text order."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(operands(node)))


def fold(root: N, value: Callable[[Any, list[T]], T], into: Callable[[Any], bool] | None = None) -> T:
    """The value of a tree: `value(node, values of its operands)`, operands first, in text order. A node for which
    `into` is false is given whole, without values."""
    done: list[T] = []
    work: list[Node | tuple[Node, int]] = [root]
    while work:
        item = work.pop()
        if isinstance(item, tuple):
            node, count = item
            values = done[-count:]
            del done[-count:]
            done.append(value(node, values))
        elif into is not None and not into(item):
            done.append(value(item, []))
        elif type(item) is IndexBinary:  # most nodes are index expressions
            work += ((item, 2), item.right, item.left)
        elif inside := operands(item):
            work.append((item, len(inside)))
            work += inside[::-1]
        else:
            done.append(value(item, []))
    return done.pop()


def rewrite(root: N, change: Callable[[Any], Node], into: Callable[[Any], bool] | None = None) -> N:
    """The tree with every node passed through `change`, operands first. What changes nowhere stays the same object."""
    return cast(N, fold(root, lambda node, parts: change(with_operands(node, parts) if parts else node), into))


def with_operands(node: N, parts: list[Node]) -> N:
    """The node with other operands, as many as it has."""
    if all(map(is_, parts, operands(node))):
        return node
    rest = iter(parts)
    given: dict[str, Any] = {}
    for f in fields(node):
        held = getattr(node, f.name)
        if f.name not in parts_of(type(node)):
            given[f.name] = held
        elif isinstance(held, Node):
            given[f.name] = next(rest)
        elif isinstance(held, tuple):
            given[f.name] = tuple(next(rest) if isinstance(item, Node) else item for item in held)
        else:
            given[f.name] = held
    return type(node)(**given)
