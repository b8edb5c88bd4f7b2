"""TExpr text inside Python strings: extents, attributes and `where` conditions, with spans in the Python file.

The text parser reads them inside a statement that is put around them; what comes back has the spans of the string's
own characters, or of the whole literal where escapes or pieces make the two differ.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

from texpr.grammar import syntax
from texpr.grammar.diagnostics import Diagnostic, Label, TExprError, error
from texpr.grammar.source import Span
from texpr.grammar.words import RESERVED

MAX_TEXT = 4096  # characters of one string

_PLAIN = re.compile(r"""[rRuU]?("(?!"")[^"\\\n]*"|'(?!'')[^'\\\n]*')""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")

Tree = TypeVar("Tree")


def read_extent(text: str, literal: Span) -> syntax.Expr | syntax.Range:
    """An extent such as `N - 2` or `1..N`. TExprError with the parser's findings."""
    simple = _simple(text, literal)
    if simple is not None:
        return simple
    items = _parse("par ", text, " |_i| {}\n", literal)
    match items:
        case (syntax.Par(dims=(dim,), attrs=(), body=syntax.Block(body=())),) if dim.index == "_i":
            return dim.extent
        case _:
            raise _malformed(text, "one extent", literal)


def read_index(text: str, literal: Span) -> syntax.Expr:
    """An index expression, as in a shape. TExprError with the parser's findings."""
    extent = read_extent(text, literal)
    if isinstance(extent, syntax.Range):
        raise _malformed(text, "one index expression", literal)
    return extent


def read_attributes(text: str, literal: Span) -> tuple[syntax.Attr, ...]:
    """Attributes such as `#tile(64, 64) #unroll`. TExprError with the parser's findings."""
    items = _parse("par 1 |_i| ", text, " {}\n", literal)
    match items:
        case (syntax.Par(dims=(_,), attrs=(_, *_) as attrs, body=syntax.Block(body=())),):
            return tuple(attrs)
        case _:
            raise _malformed(text, "attributes", literal)


def read_conditions(text: str, literal: Span) -> tuple[syntax.Expr, ...]:
    """The conditions of a `where`, separated by commas. TExprError with the parser's findings."""
    items = _parse("kernel _k() where ", text, " {}\n", literal)
    match items:
        case (syntax.KernelDef(where=(_, *_) as where, attrs=(), body=syntax.Block(body=())),):
            return tuple(where)
        case _:
            raise _malformed(text, "conditions", literal)


def _simple(text: str, literal: Span) -> syntax.Expr | None:
    """A name or an integer, which need no parser; None for anything else."""
    word = text.strip()
    lead = len(text) - len(text.lstrip())
    if _INTEGER.fullmatch(word):
        return syntax.IntLit(value=int(word), text=word, span=_placed(literal, lead, lead + len(word)))
    if _NAME.fullmatch(word) and word not in RESERVED:
        return syntax.Name(name=word, span=_placed(literal, lead, lead + len(word)))
    return None


def _placed(literal: Span, start: int, end: int) -> Span:
    """The span in the Python file of characters start..end of a literal's value."""
    written = literal.text
    if _PLAIN.fullmatch(written) is None:
        return literal
    opening = len(written) - len(written.lstrip("rRuU")) + 1
    inner_end = literal.end - 1
    first = min(literal.start + opening + max(start, 0), inner_end)
    return Span(literal.source, first, max(min(literal.start + opening + max(end, 0), inner_end), first))


def _malformed(text: str, wanted: str, literal: Span) -> TExprError:
    return TExprError([error("E0101", f"the string is not {wanted} of TExpr", literal, f"`{_shown(text)}`")])


def _parse(prefix: str, text: str, suffix: str, literal: Span) -> tuple[syntax.Item, ...]:
    from texpr.grammar.text.parser import parse_text  # the parser's tables are loaded where a string needs them

    if len(text) > MAX_TEXT:
        raise TExprError([error("E0103", f"the string is longer than {MAX_TEXT} characters", literal)])
    if "\n" in text or "\r" in text or "--" in text or ";" in text:
        raise TExprError([error("E0101", "a string of TExpr has one line, no `;` and no comment", literal)])

    def place(span: Span) -> Span:
        return _placed(literal, span.start - len(prefix), span.end - len(prefix))

    def moved(old: Diagnostic) -> Diagnostic:
        """A finding of the parser in the Python file; it says nothing of the text around the string."""
        if old.primary is None or not 0 <= old.primary.span.start - len(prefix) < len(text):
            return error("E0101", "the string ends where more is expected", literal, f"in `{_shown(text)}`")
        primary = Label(span=place(old.primary.span), text="" if old.code == "E0102" else old.primary.text)
        secondary = tuple(Label(span=place(label.span), text=label.text) for label in old.secondary)
        return dataclasses.replace(old, primary=primary, secondary=secondary)

    try:
        module = parse_text(prefix + text + suffix, name=literal.source.name)
    except TExprError as failure:
        raise TExprError(moved(diagnostic) for diagnostic in failure.diagnostics) from None
    return tuple(_respanned(item, place) for item in module.items)


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _respanned(tree: Tree, place: Callable[[Span], Span]) -> Tree:
    """The same tree with every span moved; its height is bounded by the parser's own limit."""
    changes: dict[str, Any] = {}
    if not dataclasses.is_dataclass(tree) or isinstance(tree, type):
        return tree
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        if isinstance(value, Span):
            changes[field.name] = place(value)
        elif isinstance(value, syntax.Node):
            changes[field.name] = _respanned(value, place)
        elif isinstance(value, tuple) and any(isinstance(part, syntax.Node) for part in value):
            changes[field.name] = tuple(_respanned(part, place) for part in value)
    return dataclasses.replace(tree, **changes)
