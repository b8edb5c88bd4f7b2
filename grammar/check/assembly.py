"""Checking the text of `asm`: tokens only, so that it can be put between quotes in emitted code without a surprise."""

import re

from texpr.grammar import syntax
from texpr.grammar.check.scope import refuse
from texpr.grammar.source import Span

_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+|\\n|\\t)
    |(?P<operand>%\d+)
    |(?P<register>%%[A-Za-z_][A-Za-z0-9_.]*)
    |(?P<number>[0-9][0-9A-Za-z_]*(?:\.[0-9]+)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:(?:\.|::)[A-Za-z0-9_]+)*)
    |(?P<directive>\.[A-Za-z_]+)
    |(?P<mark>[,;:(){}\[\]+\-*@!|<>=&])""",
    re.VERBOSE,
)
MAX_TEXT = 4096


def check_asm(text: syntax.StringLit, operands: int | None) -> str:
    """The text, where it is made of instructions, operands `%0` to `%n` and marks only; E0213 else."""
    if len(text.text) > MAX_TEXT:
        raise refuse("E0213", f"the text of an `asm` is at most {MAX_TEXT} characters", text.span, help="split it")
    position = 0
    while position < len(text.text):
        match = _TOKEN.match(text.text, position)
        if match is None:
            shown = text.text[position]
            raise refuse(
                "E0213", f"`{shown}` is not allowed in the text of an `asm`", _at(text, position, 1),
                help="quotes, comments, preprocessor characters and escapes but \\n and \\t are refused",
            )  # fmt: skip
        if match.lastgroup == "directive":
            raise refuse(
                "E0213", f"the directive `{match.group()}` is not allowed in the text of an `asm`",
                _at(text, position, len(match.group())), help="take registers as operands: reg r: i32 = 0",
            )  # fmt: skip
        if match.lastgroup == "operand" and operands is not None and int(match.group()[1:]) >= operands:
            raise refuse(
                "E0213", f"`{match.group()}` has no operand: there {'is' if operands == 1 else 'are'} {operands}",
                _at(text, position, len(match.group())), help="operands count from %0, an array has one per element",
            )  # fmt: skip
        position = match.end()
    return text.text


def _at(text: syntax.StringLit, position: int, length: int) -> Span:
    """The place of a token: the literal's span starts with a quote."""
    if not text.span.source.text:
        return text.span
    start = min(text.span.start + 1 + position, text.span.end)
    return Span(text.span.source, start, min(start + length, text.span.end))
