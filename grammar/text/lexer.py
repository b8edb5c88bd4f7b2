"""Text to raw tokens: words, numbers, signs, newlines; comments apart.

One linear regular expression reads the whole text. What other languages write (`&&`, `//`, `16u`) is reported here with
TExpr's own word for it and repaired, so that the parser goes on; what cannot be repaired becomes a BAD token, at which
the parser recovers without a second message.
"""

import re
from typing import Final, NamedTuple

from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.limits import MAX_DIAGNOSTICS
from texpr.grammar.words import FUNCTION_NAMES, KEYWORDS, TYPE_NAMES

BAD: Final = "$BAD"
"""The kind of a token that was already reported."""
NEWLINE: Final = "_NL"


class Token(NamedTuple):
    """A terminal of the grammar with its characters `start` to `end`."""

    kind: str
    text: str
    start: int
    end: int


class RawComment(NamedTuple):
    """A comment: its text after the two minus signs, right-stripped, and its characters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexed:
    tokens: list[Token]
    comments: list[RawComment]
    diagnostics: list[Diagnostic]


SHARED_KINDS: Final[dict[str, str]] = {
    **dict.fromkeys(("in", "out", "inout"), "DIR"),
    **dict.fromkeys(("shared", "global"), "LEVEL"),
    **dict.fromkeys(("sum", "prod", "maximum", "minimum"), "REDUCE"),
    **dict.fromkeys(("inf", "nan", "true", "false"), "CONST"),
}
WORD_KINDS: Final[dict[str, str]] = {word: SHARED_KINDS.get(word, word.upper()) for word in KEYWORDS}
SIGN_KINDS: Final[dict[str, str]] = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE",
    ",": "COMMA", ":": "COLON", "|": "VBAR", "#": "HASH", ".": "DOT", "..": "__ANON_0",
    "+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "TIMES", "%": "TIMES", "=": "EQ", ";": NEWLINE,
    **dict.fromkeys(("+=", "-=", "*=", "max=", "min="), "ACC"),
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), "CMP"),
}  # fmt: skip

# No group is possessive: Python before 3.11.5 goes on from a wrong place behind one that was tried in vain.
_SCAN: Final = re.compile(
    r"""(?P<blank>[ \t]+)
      | (?P<newline>\r?\n)
      | (?P<comment>(?<![^ \t\n])--[^\n]*)
      | (?P<foreign>//[^\n]*|/\*|&&?|\|\||!==|!(?!=)|\*\*|\+\+|<<|>>|<>|->|=>|===|:=|[/%]=|\.[0-9]+
                   |[\^~?@$\\'`]|"(?![^\\"\n]*(?:\\[^\n][^\\"\n]*)*")[^\n]*|[^\x00-\x7f]+)
      | (?P<sign>(?:max|min|[-+*])=(?!=)|[=!<>]=|\.\.|[-+*/%=<>()\[\]{},:|\#.;])
      | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
      | (?P<number>(?:0x[0-9a-fA-F]+|[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)(?![A-Za-z_0-9])
                  |[0-9]+(?![A-Za-z_0-9]|\.[0-9]))
      | (?P<malformed>[0-9][A-Za-z_0-9]*(?:\.(?=[A-Za-z0-9])[A-Za-z_0-9]*)*)
      | (?P<string>"[^\\"\n]*(?:\\[^\n][^\\"\n]*)*")
    """,
    re.VERBOSE,
)

FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]|\r(?!\n)"
)
"""Control characters, bidirectional controls, line separators and lone surrogates."""

_FOREIGN: Final[dict[str, tuple[str, str, Token | None]]] = {
    "&&": ("`&&` is not an operator of TExpr", "write `and`", Token("AND", "and", 0, 0)),
    "||": ("`||` is not an operator of TExpr", "write `or`", Token("OR", "or", 0, 0)),
    "!": ("`!` is not an operator of TExpr", "write `not`", Token("NOT", "not", 0, 0)),
    "&": ("`&` is not an operator of TExpr", "write `bitand(a, b)`, or `and` between conditions", None),
    "^": ("`^` is not an operator of TExpr", "write `bitxor(a, b)`, or `pow(a, b)` for a power", None),
    "~": ("`~` is not an operator of TExpr", "write `bitxor(a, -1)`", None),
    "**": ("`**` is not an operator of TExpr", "write `pow(a, b)`", None),
    "++": ("`++` is not an operator of TExpr", "write `x += 1`", None),
    "<<": ("`<<` is not an operator of TExpr", "write `shl(a, b)`", None),
    ">>": ("`>>` is not an operator of TExpr", "write `shr(a, b)`", None),
    "<>": ("`<>` is not an operator of TExpr", "write `!=`", Token("CMP", "!=", 0, 0)),
    "===": ("`===` is not an operator of TExpr", "write `==`", Token("CMP", "==", 0, 0)),
    "!==": ("`!==` is not an operator of TExpr", "write `!=`", Token("CMP", "!=", 0, 0)),
    "=>": ("`=>` is not an operator of TExpr", "write `>=`", Token("CMP", ">=", 0, 0)),
    ":=": ("`:=` is not an operator of TExpr", "write `=`", Token("EQ", "=", 0, 0)),
    "->": ("`->` is not a sign of TExpr", "a function's result type stands after a colon: `fn f(a: f32): f32`", None),
    "/=": ("there is no `/=`", "write `v = v / e`", None),
    "%=": ("there is no `%=`", "write `v = v % e`", None),
    "?": ("`?` is not an operator of TExpr", "write `select(condition, a, b)`", None),
    "'": ("`'` is not a sign of TExpr", "text stands only in `asm`, between double quotes", None),
}


def _foreign(text: str, source: SourceText, start: int) -> tuple[Diagnostic, Token | None]:
    """The message for a sign that TExpr does not have, and the token that mends it."""
    end = start + len(text)
    if text in _FOREIGN:
        message, help, mended = _FOREIGN[text]
        token = None if mended is None else Token(mended.kind, mended.text, start, end)
        return error("E0101", message, Span(source, start, end), help=help), token
    if text.startswith(("//", "/*")):
        span = Span(source, start, start + 2)
        return error("E0101", f"`{text[:2]}` does not open a comment", span, help="comments begin with `--`"), None
    if text.startswith("."):
        span = Span(source, start, end)
        message = "a number does not begin with a point"
        return error("E0101", message, span, help=f"write `0{text}`"), Token("NUMBER", "0", start, end)
    if text.startswith('"'):
        message = "this text has no closing quote on its line"
        return error("E0101", message, Span(source, start, start + 1)), None
    span = Span(source, start, end)
    if text.isascii():
        return error("E0101", f"`{text}` is not a sign of TExpr", span), None
    message = "names and signs are ASCII; other letters may stand in comments only"
    return error("E0101", message, span), Token("NAME", "_", start, end)


def check_characters(source: SourceText) -> list[Diagnostic]:
    """E0104 for each forbidden character; one more than MAX_DIAGNOSTICS at most."""
    found: list[Diagnostic] = []
    for match in FORBIDDEN.finditer(source.text):
        message = f"the character U+{ord(match.group()):04X} is not allowed in a program"
        found.append(error("E0104", message, Span(source, match.start(), match.end()), help="remove it"))
        if len(found) > MAX_DIAGNOSTICS:
            break
    return found


def tokenise(source: SourceText) -> Lexed:
    """All tokens of `source` in order, newlines and `;` included as NEWLINE; total on any text."""
    found = check_characters(source)
    text = FORBIDDEN.sub(" ", source.text) if found else source.text
    if text.startswith("\ufeff"):  # a byte order mark that an editor left
        text = " " + text[1:]
    tokens: list[Token] = []
    comments: list[RawComment] = []
    position = 0
    length = len(text)
    match_at = _SCAN.match
    while position < length:
        match = match_at(text, position)
        assert match is not None, "the scanner's alternatives cover every character"
        start, position = position, match.end()
        kind = match.lastgroup
        if kind == "blank":
            continue
        word = match.group()
        if kind == "word":
            tokens.append(Token(WORD_KINDS.get(word, "NAME"), word, start, position))
        elif kind == "sign":
            tokens.append(Token(SIGN_KINDS[word], word, start, position))
        elif kind == "number":
            tokens.append(Token("NUMBER", word, start, position))
        elif kind == "newline":
            tokens.append(Token(NEWLINE, "\n", start, position))
        elif kind == "comment":
            comments.append(RawComment(word[2:].rstrip(), start, position))
        elif kind == "string":
            tokens.append(Token("STRING", word, start, position))
        elif kind == "malformed":
            span = Span(source, start, position)
            message = "a number is not followed by a letter"
            help = "types are given by a cast, `f32(1.0)`; hexadecimal numbers begin with `0x`"
            found.append(error("E0101", message, span, help=help))
            tokens.append(Token("NUMBER", "0", start, position))
        else:
            diagnostic, mended = _foreign(word, source, start)
            found.append(diagnostic)
            if word == "/*":
                close = text.find("*/", position)
                position = length if close < 0 else close + 2
            elif mended is not None:
                tokens.append(mended)
            elif not word.startswith("//"):
                tokens.append(Token(BAD, word, start, position))
        if len(found) > MAX_DIAGNOSTICS:
            break
    return Lexed(tokens=tokens, comments=comments, diagnostics=found)


def is_type_or_function(word: str) -> bool:
    """True for the reserved words that the grammar reads as names."""
    return word in TYPE_NAMES or word in FUNCTION_NAMES
