"""Walking core trees without recursion."""

from collections.abc import Iterator
from dataclasses import fields

from texpr.grammar.ast import Node


def walk(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, parents first, in text order."""
    stack: list[object] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        elif isinstance(item, Node):
            yield item
            values = [getattr(item, f.name) for f in fields(item) if f.name not in ("span", "call_spans")]
            stack.extend(value for value in reversed(values) if isinstance(value, Node | tuple))
