"""Reserved words where the text declares a name: one message each, and the word is read as that name from there on.

kernel f(A: f32[4], out: f32[4]) { par 4 i { out[i] = A[i] } }
                    ^^^ `out` is a reserved word; its uses are read as a name's, so that they bring no second message
"""

from typing import Final

from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.lexer import NEWLINE, WORD_KINDS, Lexed, Token

_NAMED_NEXT: Final = frozenset(("KERNEL", "FN", "LET"))
"""After one of these stands a name, whatever follows it."""
_NAMED_BEFORE: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("LPAR", "COMMA", "DIR", "NEW", "LEVEL"), frozenset(("COLON",))),
    "REG": frozenset(("COLON", "EQ")),
    "SIZE": frozenset(("EQ",)),
}
"""Between one of these and one of those stands a name."""
_AFTER_A_NAME: Final = frozenset(
    ("LSQB", "RSQB", "RPAR", "RBRACE", "EQ", "ACC", "COMMA", "PLUS", "MINUS", "TIMES", "CMP", "AND", "OR", NEWLINE)
)
"""What follows a name that is used, and hardly a reserved word that means itself."""
_UNCALLED: Final = frozenset(("DIR", "LEVEL", "SIZE"))
"""These mean themselves before no bracket."""
_STAY: Final = frozenset(("RETURN", "ELSE", "CONST"))


def mend_reserved_names(lexed: Lexed, source: SourceText) -> Lexed:
    """The tokens with every reserved word that is declared, and then used, as a name of that text."""
    tokens = list(lexed.tokens)
    found: list[Diagnostic] = []
    taken: set[str] = set()
    last = ""
    assembly = 0  # open brackets since an `asm(`, whose labels are reserved words
    for at, token in enumerate(tokens):
        if assembly or (token.kind == "LPAR" and at and tokens[at - 1].kind == "ASM"):
            assembly += (token.kind == "LPAR") - (token.kind == "RPAR")
        before, last = last, token.kind if token.kind != NEWLINE else last
        if token.text not in WORD_KINDS or token.kind == "NAME":
            continue
        after = tokens[at + 1].kind if at + 1 < len(tokens) else NEWLINE
        index = after == "LBRACE" and token.kind in ("DIR", "LEVEL")
        typed = token.kind != "CONST" and after in _NAMED_BEFORE.get(before, ())  # `f(inf: n)` has a slice
        declared = index or typed or before in _NAMED_NEXT
        used = after in _AFTER_A_NAME or (after == "LPAR" and token.kind in _UNCALLED)
        if declared and not assembly:
            taken.add(token.text)
            found.append(reserved(token, source))
        elif token.text not in taken or token.kind in _STAY or not used:
            continue
        tokens[at] = Token("NAME", token.text, token.start, token.end)
    return Lexed(tokens=tokens, comments=lexed.comments, diagnostics=lexed.diagnostics + found) if found else lexed


def reserved(token: Token, source: SourceText) -> Diagnostic:
    """E0101 for a reserved word in a name's place."""
    message = f"`{token.text}` is a reserved word and cannot be a name"
    return error(
        "E0101", message, Span(source, token.start, token.end), help=f"choose another, such as `{token.text}_`"
    )
