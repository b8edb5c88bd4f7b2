"""Reading `asm`: operands, and a text of tokens only, so that it can be put between quotes in emitted code without a
surprise."""

import re
from math import prod

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexConst, Role
from texpr.grammar.check.context import Context
from texpr.grammar.check.scope import Part, ViewName
from texpr.grammar.check.typing import settle
from texpr.grammar.check.views import array_of, check_writable, target
from texpr.grammar.refusals import refuse
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


# ---- operands --------------------------------------------------------------------------------------------------


async def asm(ctx: Context, s: syntax.Asm) -> None:
    """`asm`: its operands are whole locals, elements of one, and values through a local."""
    operands: list[ast.AsmOperand] = []
    clobbers: list[Attr] = []
    count: int | None = 0
    for operand in s.operands:
        if operand.label == "clobber":
            clobbers.append(_clobber(operand))
            continue
        read, elements = await _operand(ctx, operand)
        operands.append(read)
        count = None if count is None or elements is None else count + elements
    text = check_asm(s.text, count)
    ctx.emit(
        ast.Asm(
            id="", text=text, operands=tuple(operands), attrs=tuple(clobbers), span=s.span, call_spans=ctx.call_spans
        )
    )  # fmt: skip


def _clobber(operand: syntax.AsmOperand) -> Attr:
    e = operand.value
    if not isinstance(e, syntax.StringLit) or e.text not in ("memory", "cc"):
        raise refuse("E0213", 'a clobber is "memory" or "cc"', operand.span)
    return Attr(name="clobber", args=(e.text,), span=operand.span)


async def _operand(ctx: Context, operand: syntax.AsmOperand) -> tuple[ast.AsmOperand, int | None]:
    """An operand and the number of its elements, where that is known."""
    e, mode = operand.value, operand.label
    if mode not in ("in", "out", "inout"):
        raise refuse("E0213", f"`{mode}` is not a kind of operand", operand.span, help="in, out or inout")
    view = await array_of(ctx, e) if isinstance(e, syntax.Name | syntax.View) else None
    if isinstance(view, ViewName):
        if mode != "in" and isinstance(e, syntax.Name | syntax.View):
            check_writable(ctx, e.name, view, e.span)
        if ctx.buffers[view.buffer].role is not Role.LOCAL or not _is_whole(view):
            raise refuse("E0209", "an operand of `asm` is a whole local", e.span, help="copy it: reg r: f32[4] = …")
        return ast.AsmOperand(mode=mode, buffer=view.buffer, span=operand.span), _count(view)
    if mode == "in":
        kept = ctx.kept("operand", settle(await ctx.value(e)).expr, e.span)
        return ast.AsmOperand(mode="in", buffer=kept.buffer, span=operand.span), 1
    if not isinstance(e, syntax.Name | syntax.View):
        raise refuse("E0209", "what an `asm` writes is a local", e.span)
    buffer, subscripts = await target(ctx, e)
    if ctx.buffers[buffer].role is not Role.LOCAL:
        raise refuse("E0209", "what an `asm` writes is a local", e.span, help="write a `reg` and bind it after")
    return ast.AsmOperand(mode=mode, buffer=buffer, subscripts=subscripts or None, span=operand.span), 1


def _is_whole(view: ViewName) -> bool:
    return all(part == Part(start=IndexConst(value=0), sliced=True) for part in view.parts)


def _count(view: ViewName) -> int | None:
    """The number of elements of a view of constant shape."""
    extents = [extent.value for extent in view.shape if isinstance(extent, IndexConst)]
    return prod(extents) if len(extents) == view.rank else None
