"""Walks over the surface tree: all nodes in text order, uses of names, equality."""

import re
from collections.abc import Iterator
from dataclasses import fields

from texpr.grammar import syntax
from texpr.grammar.source import Span


def nodes(root: syntax.Node) -> Iterator[syntax.Node]:
    """The node and all below it, in text order, without recursion; comments are left out."""
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += reversed(node)
        elif isinstance(node, syntax.Node) and not isinstance(node, syntax.Trivia | syntax.Comment):
            yield node
            stack += [
                getattr(node, f.name)
                for f in reversed(fields(node))
                if f.name not in ("span", "trivia", "index_span", "dangling")
            ]


def alike(left: syntax.Node, right: syntax.Node) -> bool:
    """Whether two trees are written alike, wherever they stand; `==` of trees recurses."""
    work: list[tuple[object, object]] = [(left, right)]
    while work:
        a, b = work.pop()
        if isinstance(a, syntax.Node) and type(a) is type(b):
            work += [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.compare]
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            work += zip(a, b, strict=True)
        elif a != b:
            return False
    return True


def name_place(node: syntax.Node, name: str) -> Span:
    """Where a definition spells its name; the definition's own span where the text does not show it."""
    found = re.search(rf"\b{re.escape(name)}\b", node.span.text)
    if found is None:
        return node.span
    return Span(node.span.source, node.span.start + found.start(), node.span.start + found.end())


def names_used(root: syntax.Node) -> dict[str, int]:
    """How often each name is read below a node."""
    count: dict[str, int] = {}
    for node in nodes(root):
        if isinstance(node, syntax.Name | syntax.View):
            count[node.name] = count.get(node.name, 0) + 1
    return count
