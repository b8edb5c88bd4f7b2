"""Where statements end: brackets are matched, then each run of newlines and `;` becomes one end of statement or none.

A newline is blank inside ( ) [ ], after a binary or assignment operator or a comma, and before `#`, `{`, `else`,
`where`, `reference` or a binary operator. An unclosed ( or [ is reported at itself; `{`, `}` or a statement keyword
closes it, and then it does not make newlines blank. An unclosed `{` is closed at the next declaration or the end.
"""

from dataclasses import field
from typing import Final

from texpr.grammar.diagnostics import Diagnostic, Label, TExprError, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.lexer import BAD, NEWLINE, Token
from texpr.grammar.text.limits import MAX_BLOCK_DEPTH, MAX_BRACKET_DEPTH, MAX_DIAGNOSTICS
from texpr.grammar.text.tables import END
from texpr.grammar.words import STATEMENT_WORDS

_OPERATORS: Final = frozenset(("PLUS", "MINUS", "TIMES", "CMP", "AND", "OR"))
JOINS_BEFORE: Final = _OPERATORS | {"NOT", "EQ", "ACC", "COMMA", "__ANON_0"}
"""After one of these a newline is blank."""
JOINS_AFTER: Final = _OPERATORS | {"HASH", "LBRACE", "ELSE", "WHERE", "REFERENCE"}
"""Before one of these a newline is blank."""
STATEMENT_KINDS: Final = frozenset(word.upper() for word in STATEMENT_WORDS)
_DECLARATIONS: Final = frozenset(("KERNEL", "FN", "IMPORT"))
_OPENER: Final = {"RPAR": "LPAR", "RSQB": "LSQB"}


@dataclass(slots=True)
class _Open:
    """An open bracket: its kind and token number, how many reductions in it await their `{`, and the word that the
    last line in it began with."""

    kind: str
    index: int
    reductions: int = 0
    is_block: bool = True
    line: str = ""


@dataclass(slots=True)
class Brackets:
    """What matching found. `depth_change` has +1 and -1 for the matched ( and [; `closers` how many `}` to add."""

    depth_change: dict[int, int] = field(default_factory=dict)
    unclosed: set[int] = field(default_factory=set)
    closers: dict[int, int] = field(default_factory=dict)
    strays: int = 0
    diagnostics: list[Diagnostic] = field(default_factory=list)


def match_brackets(tokens: list[Token], source: SourceText, *, declarations_close: bool = True) -> Brackets:
    """Pairs the brackets of `tokens`; raises E0103 where they nest too deeply.

    A declaration closes all braces before it, unless `declarations_close` is false.
    """
    found = Brackets()
    stack = [_Open("", -1)]
    crooked: Token | None = None

    def close_down_to(floor: int, before: Token | None) -> int:
        """Reports and removes the open brackets above `floor`; how many of them were blocks."""
        nonlocal crooked
        blocks = 0
        while len(stack) > floor:
            bracket = stack.pop()
            token = tokens[bracket.index]
            secondary: tuple[Label, ...] = ()
            if bracket.kind == "LBRACE" and bracket.is_block:
                blocks += 1
                if crooked is not None and crooked.start > token.start:
                    label = Label(span=_span(source, crooked), text="or this one, whose `}` does not line up with it")
                    secondary, crooked = (label,), None
            else:
                found.unclosed.add(bracket.index)
            if len(found.diagnostics) <= MAX_DIAGNOSTICS:
                until = "the end of the text" if before is None else f"`{before.text}`"
                message, said = f"this `{token.text}` is not closed", f"open until {until}"
                span = _span(source, token)
                found.diagnostics.append(error("E0102", message, span, said, secondary=secondary))
        return blocks

    def floor_of_round(past_reductions: bool) -> int:
        """The height of the stack below the ( and [ (and braces of reductions) that are open here."""
        floor = len(stack)
        while floor > 1 and (stack[floor - 1].kind != "LBRACE" or (past_reductions and not stack[floor - 1].is_block)):
            floor -= 1
        return floor

    last = now = -1  # the last token but newlines, and the one being read
    for index, token in enumerate(tokens):
        kind = token.kind
        if kind != NEWLINE:
            last, now = now, index
        around = stack[-1]
        begins = last == around.index or (index > 0 and tokens[index - 1].kind == NEWLINE)
        if kind == "LPAR" or kind == "LSQB":
            stack.append(_Open(kind, index))
            if len(stack) > MAX_BRACKET_DEPTH and sum(b.kind in ("LPAR", "LSQB") for b in stack) > MAX_BRACKET_DEPTH:
                raise TExprError([*found.diagnostics, _too_deep(source, token, MAX_BRACKET_DEPTH)])
        elif kind == "REDUCE":
            stack[-1].reductions += 1
        elif kind == NEWLINE:
            if stack[-1].kind in ("", "LBRACE") and not (
                index + 1 < len(tokens) and tokens[index + 1].kind in JOINS_AFTER
            ):
                stack[-1].reductions = 0
        elif kind == "LBRACE":
            reduction = stack[-1].reductions > 0
            if reduction:
                stack[-1].reductions -= 1
            else:
                close_down_to(floor_of_round(False), token)
            stack.append(_Open(kind, index, is_block=not reduction))
            if len(stack) > MAX_BLOCK_DEPTH and sum(b.kind == "LBRACE" for b in stack) > MAX_BLOCK_DEPTH:
                raise TExprError([*found.diagnostics, _too_deep(source, token, MAX_BLOCK_DEPTH)])
        elif kind == "RBRACE":
            close_down_to(floor_of_round(False), token)
            if len(stack) > 1:
                opener = tokens[stack.pop().index]
                if crooked is None and not _lines_up(source, opener, token):
                    crooked = opener
            else:
                found.strays += 1
        elif kind in _OPENER:
            floor = floor_of_round(False)
            at = next((n for n in range(len(stack) - 1, floor - 1, -1) if stack[n].kind == _OPENER[kind]), None)
            if at is not None:
                close_down_to(at + 1, token)
                found.depth_change[stack.pop().index] = 1
                found.depth_change[index] = -1
        elif kind == "LET" and floor_of_round(False) > 1 and not stack[floor_of_round(False) - 1].is_block:
            close_down_to(floor_of_round(False), token)
        elif kind in STATEMENT_KINDS and begins and not around.is_block and around.line in ("", "LET"):
            pass  # it stands where a `let` of a reduction may, which the parser knows to refuse
        elif kind in STATEMENT_KINDS and not _is_misused_as_name(tokens, index):
            close_down_to(floor_of_round(True), token)
            if declarations_close and kind in _DECLARATIONS and len(stack) > 1:
                found.closers[index] = close_down_to(1, token)
        if begins and kind != NEWLINE:
            around.line = kind
    if len(stack) > 1:
        found.closers[len(tokens)] = close_down_to(1, None)
    return found


def _is_misused_as_name(tokens: list[Token], index: int) -> bool:
    """Whether a statement's keyword stands where a name does: `new reg x`, or a parameter called `size: f32[N]`."""
    if tokens[index].kind == "REG" and index and tokens[index - 1].kind == "NEW":
        return True
    return index + 1 < len(tokens) and tokens[index + 1].kind == "COLON"


def _span(source: SourceText, token: Token) -> Span:
    return Span(source, token.start, token.end)


def _too_deep(source: SourceText, token: Token, limit: int) -> Diagnostic:
    return error(
        "E0103",
        f"{'blocks' if token.text == '{' else 'brackets'} nest more than {limit} deep here",
        _span(source, token),
        help="use `let` or a `fn`",
    )


def _lines_up(source: SourceText, opener: Token, closer: Token) -> bool:
    """False where `}` begins its line at another column than the line of its `{`."""
    text = source.text
    line = text.rfind("\n", 0, closer.start) + 1
    if text[line : closer.start].strip(" \t"):
        return True
    first = text.rfind("\n", 0, opener.start) + 1
    indent = text[first : opener.start]
    return len(indent) - len(indent.lstrip(" \t")) == closer.start - line


def end_statements(tokens: list[Token], brackets: Brackets, length: int) -> list[Token]:
    """The tokens as the grammar reads them: at most one `_NL` between statements, END last, BAD for unclosed ( and [.

    `length` is the text's, for the place of END.
    """
    out: list[Token] = []
    pending: Token | None = None
    depth = 0
    outside: list[int] = []  # depths outside the open braces: a reduction's may stand in brackets
    unclosed, closers = brackets.unclosed, brackets.closers
    previous = "LBRACE"  # nothing ends at the start of the text either
    for index, token in enumerate(tokens):
        kind = token.kind
        if kind == NEWLINE:
            if pending is None or token.text == ";":
                pending = token
            continue
        if index in closers:
            end = out[-1].end
            out += [Token("RBRACE", "", end, end)] * closers[index]
            previous = "RBRACE"
            depth = 0
        if pending is not None:
            joined = depth > 0 or previous in JOINS_BEFORE or kind in JOINS_AFTER
            blank = previous == "LBRACE" or kind == "RBRACE" or (joined and pending.text != ";")
            if not blank:
                out.append(pending)
            pending = None
        if index in unclosed:
            token = Token(BAD, token.text, token.start, token.end)
        depth += brackets.depth_change.get(index, 0)
        if kind == "LBRACE":
            outside.append(depth)
            depth = 0
        elif kind == "RBRACE":
            depth = outside.pop() if outside else 0
        out.append(token)
        previous = kind
    end = out[-1].end if out else 0
    out += [Token("RBRACE", "", end, end)] * closers.get(len(tokens), 0)
    out.append(Token(END, "", length, length))
    return out
