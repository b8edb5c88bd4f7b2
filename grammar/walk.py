"""The walkers of core trees and the rewriter, none of which recurses: trees may be as deep as memory lets them.

fold(i * 4 + 1, value)   calls   value(i, []) value(4, []) value(i * 4, [a, b]) value(1, []) value(…, [c, d])
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar, cast

from texpr.grammar.ast import Node, operands, parts_of

T = TypeVar("T")
N = TypeVar("N", bound=Node)


def walk(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, parents first, in text order."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(operands(node)))


def fold(root: N, value: Callable[[Any, list[T]], T], into: Callable[[Any], bool] = lambda node: True) -> T:
    """The value of a tree: `value(node, values of its operands)`, operands first, in text order. A node for which
    `into` is false is given whole, without values."""
    done: list[T] = []
    work: list[tuple[Node, int]] = [(root, -1)]
    while work:
        node, count = work.pop()
        inside = operands(node) if count < 0 and into(node) else ()
        if inside:
            work.append((node, len(inside)))
            work.extend((part, -1) for part in reversed(inside))
        elif count < 0:
            done.append(value(node, []))
        else:
            values = done[-count:]
            del done[-count:]
            done.append(value(node, values))
    return done.pop()


def rewrite(root: N, change: Callable[[Any], Node], into: Callable[[Any], bool] = lambda node: True) -> N:
    """The tree with every node passed through `change`, operands first. What changes nowhere stays the same object."""
    return cast(N, fold(root, lambda node, parts: change(with_operands(node, parts)), into))


def with_operands(node: N, parts: list[Node]) -> N:
    """The node with other operands, as many as it has."""
    if all(new is old for new, old in zip(parts, operands(node), strict=False)):
        return node
    rest = iter(parts)
    given: dict[str, Any] = {}
    for name in parts_of(type(node)):
        held = getattr(node, name)
        if isinstance(held, Node):
            given[name] = next(rest)
        elif isinstance(held, tuple):
            given[name] = tuple(next(rest) if isinstance(item, Node) else item for item in held)
    others = {f.name: getattr(node, f.name) for f in fields(node) if f.name not in given}
    return type(node)(**given, **others)
