"""What to say about a token that does not fit: the usual mistakes first, then what could stand there."""

from typing import Final

from texpr.grammar.attributes import ATTRIBUTES
from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.foreign_loops import LOOP_WORDS, loop_help
from texpr.grammar.text.lexer import NEWLINE, WORD_KINDS, Token
from texpr.grammar.text.reserved_names import reserved
from texpr.grammar.text.tables import END

_DECLARATION_WORDS: Final[dict[str, str]] = {
    **dict.fromkeys(("def", "func", "function", "fun", "proc", "void"), "functions are declared by `fn f(…) { … }`"),
    **dict.fromkeys(("var", "const", "auto", "val"), "`let x = e` names a value, `new x: f32` makes a buffer"),
    **dict.fromkeys(("float", "int", "double", "half"), "`let x = e` names a value, `new x: f32` makes a buffer"),
    **dict.fromkeys(("elif", "elsif", "elseif"), "write `else if`"),
    **dict.fromkeys(("include", "from", "use", "using"), "write `import std.mma`"),
}
NAMED_EXTENTS: Final = "an extent has the name that the declaration gives it: `A: f32[N]`, then `par N i`"
_TYPED_WORDS: Final = frozenset(("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u32", "u8", "bool"))
_EXPRESSION_START: Final = frozenset(("NAME", "NUMBER", "LPAR", "MINUS", "CONST", "SELECT", "REDUCE"))
_OPERATORS: Final = frozenset(("PLUS", "MINUS", "TIMES", "CMP", "AND", "OR"))
_NEEDS_OPERAND: Final = _OPERATORS | {"EQ", "ACC", "COMMA", "NOT", "__ANON_0"}
_CLOSERS: Final = frozenset(("RPAR", "RSQB", "RBRACE"))
_STATEMENTS: Final = frozenset(("PAR", "SEQ", "LET", "NEW", "IF", "ANCHOR", "ATOMIC", "ASM", "REG", "FULLY", "RETURN"))
_NAMES: Final[dict[str, str]] = {
    "NAME": "a name",
    "STRING": 'a text such as "…"',
    NEWLINE: "a new line",
    END: "the end of the text",
    "EQ": "`=`",
    "ACC": "an assignment such as `+=`",
    "CMP": "a comparison",
    "DIR": "`in`, `out` or `inout`",
    "LEVEL": "`shared` or `global`",
    "REDUCE": "`sum`",
    "CONST": "a number",
    "NUMBER": "a number",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "TIMES": "`*`",
    "__ANON_0": "`..`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A token that does not fit. `begin` is the first token of its statement; `expected` the terminals that would fit.

    `spelling` gives a terminal's text where it has one; `outer` is true between declarations.
    """

    source: SourceText
    tokens: list[Token]
    at: int
    begin: int
    expected: frozenset[str]
    spelling: dict[str, str]
    outer: bool

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def first(self) -> Token:
        return self.tokens[self.begin]

    def before(self, distance: int = 1) -> Token | None:
        """The token so many places before, within the statement."""
        return self.tokens[self.at - distance] if self.at - distance >= self.begin else None

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)


def begins_foreign_block(first: Token) -> bool:
    """True for a word that opens a block in other languages; what its braces hold is read all the same."""
    return first.text in LOOP_WORDS or first.text in ("def", "func", "function", "elif", "elsif", "elseif")


def describe(mistake: Mistake) -> Diagnostic:
    """The message (E0101) for a mistake."""
    return _foreign_word(mistake) or _usual(mistake) or _plain(mistake)


def _foreign_word(m: Mistake) -> Diagnostic | None:
    """A statement that begins with a keyword of another language."""
    word = m.first.text
    called = m.at > m.begin and m.tokens[m.begin + 1].kind == "LPAR" and word in LOOP_WORDS
    if m.first.kind != "NAME" or m.at == m.begin or (m.at > m.begin + 2 and not called):
        return None
    if m.token.kind in ("EQ", "ACC", "LSQB"):
        return None
    if word in LOOP_WORDS:
        return error("E0101", f"there is no `{word}` in TExpr", m.span(m.first), help=loop_help(word))
    if word in _DECLARATION_WORDS:
        return error("E0101", f"there is no `{word}` in TExpr", m.span(m.first), help=_DECLARATION_WORDS[word])
    if word in _TYPED_WORDS and m.at == m.begin + 1:
        message = "a declaration does not begin with its type"
        help = f"write `new {m.token.text}: {word}` or `let {m.token.text} = …`" if m.token.kind == "NAME" else None
        return error("E0101", message, m.span(m.first), help=help)
    return None


def _usual(m: Mistake) -> Diagnostic | None:
    """The usual mistakes, each with its mend."""
    token, kind, expected = m.token, m.token.kind, m.expected
    previous = m.before()
    ended = kind in (NEWLINE, END) or not token.text
    span = m.span(token) if previous is None or not ended else Span(m.source, previous.end, previous.end)
    loop = m.first.kind in ("PAR", "SEQ", "FULLY")

    def say(message: str, help: str | None = None, label: str = "") -> Diagnostic:
        return error("E0101", message, span, label, help=help)

    if kind == "EQ" and "CMP" in expected | ({"CMP"} if m.first.kind == "IF" else set()) and "EQ" not in expected:
        if m.first.kind in ("IF", "KERNEL") or "RPAR" in expected:
            return say("`=` assigns; it does not compare", "equality is `==`")
        if loop:
            return say("an index is not assigned its range", "the extent stands before the index: `par N i { … }`")
    if kind == "CMP" and "AND" in expected:
        return say("comparisons do not chain", "write `a < b and b < c`")
    if kind == "CMP" and token.text == "==" and "EQ" in expected:
        return say("`==` compares; it does not assign", "write `=`")
    if kind == "HASH" and "HASH" not in expected and m.at == m.begin:
        foreign = _foreign_hash(m)
        return say(*foreign) if foreign else say("an attribute stands behind its construct", "`par N i #block { … }`")
    if kind == "NAME" and token.text in ATTRIBUTES and "HASH" in expected:
        return say(f"`{token.text}` is an attribute, and attributes begin with `#`", f"write `#{token.text}`")
    member = m.before(2)
    if kind == "LSQB" and member is not None and member.kind == "DOT":
        return say("a buffer has no attributes", NAMED_EXTENTS)
    if kind == "STRING":
        return say("text stands only in `asm`")
    if kind in _STATEMENTS - {"LET"} and "LET" in expected and "PAR" not in expected:
        help = "write the loop out: v = 0.0, then seq N i { … v += e }"
        return say("the braces of a reduction hold `let`s and one expression", help)
    if kind == "EQ" and previous is not None and previous.kind == "NAME" and _ends_a_reduction(expected):
        return say("a value in the braces of a reduction is named by `let`", f"write `let {previous.text} = …`")
    if kind == "RBRACE" and NEWLINE in expected and "RBRACE" not in expected and not m.outer:
        return say("this reduction has no expression", "after its `let`s stands what it adds up")
    if kind == "ELSE":
        return say("this `else` has no `if` before it", "`else` follows the `}` of an `if`")
    if kind == "RBRACE" and m.outer and not _opened(m, "LBRACE"):
        return say("this `}` closes nothing")
    if kind == "RPAR" and not m.expected & {"RPAR"} and not _opened(m, "LPAR"):
        return say("this `)` closes nothing")
    if kind == "RSQB" and not m.expected & {"RSQB"} and not _opened(m, "LSQB"):
        return say("this `]` closes nothing")
    if kind == "DIR" and token.text == "in" and loop and m.tokens[m.at + 1].kind != "LBRACE":
        return say("a loop names its extent, not a range", "the extent stands before the index: `par N i { … }`")
    if loop and kind in ("LBRACE", "HASH", "COMMA") and "NAME" in expected and "VBAR" in expected:
        message = "this extent has no index" if kind != "COMMA" else "the extent before this comma has no index"
        return say(message, f"each extent is followed by its index: `{_loop_word(m)} N i {{ … }}`")
    if kind == "DOT" and previous is not None and previous.kind == "NUMBER":
        return say("a number does not end with a point", f"write `{previous.text}.0`")
    if "NAME" in expected and not expected & {"NUMBER", "PAR"} and token.text in WORD_KINDS:
        return reserved(token, m.source)
    if m.at == m.begin and "NAME" in expected and token.text in WORD_KINDS and _is_written(m.tokens[m.at + 1]):
        return reserved(token, m.source)
    if m.at == m.begin + 1 and m.first.text in WORD_KINDS and kind in ("LSQB", "ACC"):
        return reserved(m.first, m.source)
    if kind == "LSQB" and previous is not None and previous.kind == "RSQB" and "LSQB" not in expected:
        return say("a view has one pair of brackets", "`A[i, j]` holds all subscripts")
    if kind == "RSQB" and previous is not None and previous.kind == "LSQB":
        return say("these brackets hold nothing", "a scalar has none: `alpha: f32`, `new s: f32`, `s = e`")
    if kind == "COLON" and "RSQB" in expected:
        return say("a view has one `start : extent` in each subscript", "`A[i:16]` is 16 elements from i on")
    if kind == "COLON" and previous and previous.kind in ("LSQB", "COMMA") and _opened(m, "LSQB"):
        return say("a view names its start and its extent", "`A[0:16]` is the first 16 elements")
    if previous and previous.kind == "COLON" and kind in ("RSQB", "COMMA", "COLON") and _opened(m, "LSQB"):
        return say("a view names its extent", "`A[i:16]` is 16 elements from i on; a bare `:` is not in the language")
    if kind == "COLON" and m.first.kind in ("IF", "PAR", "SEQ", "ELSE"):
        return say("a block stands between braces", "write `{ … }`")
    if kind == "ACC" and m.first.kind in ("LET", "REG", "SIZE"):
        return say(f"`{m.first.text}` gives a name its value once", "write `=`")
    if m.first.kind == "LET" and kind == "COLON":
        return say("`let` takes its value's type", "`reg x: f32 = e` names a type")
    if kind in ("KERNEL", "FN", "IMPORT") and not m.outer:
        return say(f"`{token.text}` stands at the top of a file only")
    if kind in ("RPAR", "COMMA") and m.first.kind in ("KERNEL", "FN") and expected == {"COLON"} and previous:
        return say(f"the parameter `{previous.text}` has no type", f"write `{previous.text}: f32[N]`")
    if kind == "COLON" and m.first.kind == "NEW":
        return say("a buffer's type stands behind its name", "`new acc: f32[16]`")
    if previous and previous.kind in _NEEDS_OPERAND and "NUMBER" in expected and (ended or kind in _CLOSERS):
        message = f"`{previous.text}` has nothing after it"
        return error("E0101", message, m.span(previous), "an expression is missing")
    if ended and m.first.kind == "NAME" and "EQ" in expected and "ACC" in expected:
        whole = Span(m.source, m.first.start, span.end)
        help = "`v = e` binds, `v += e` accumulates, `f(v)` calls"
        return error("E0101", "this is not a statement", whole, help=help)
    if kind in (NEWLINE, END, "RBRACE") and "LBRACE" in expected and m.first.kind in ("PAR", "SEQ", "FULLY", "IF"):
        return error("E0101", "the block of this statement is missing", m.span(m.first), help="write `{ … }` after it")
    if kind == "RPAR" and previous is not None and previous.kind == "LPAR" and _hash_before(m):
        return say("an attribute without arguments has no brackets")
    if kind == "ATOMIC" or (m.first.kind == "ATOMIC" and kind in (NEWLINE, END, "RBRACE") and "ACC" in expected):
        return say("`atomic` stands before one update", "`atomic H[b] += 1`")
    return None


def _ends_a_reduction(expected: frozenset[str]) -> bool:
    """Whether the expression that was read is a reduction's: only its brace may close it."""
    return "RBRACE" in expected and NEWLINE not in expected


def _is_written(following: Token) -> bool:
    return following.kind in ("LSQB", "EQ", "ACC")


_HASH_LINES: Final[dict[str, str]] = {
    "pragma": "attributes stand behind the loop: `seq N i #unroll { … }`",
    "include": "write `import std.mma`",
    "define": "write `size BM = 128`",
}


def _foreign_hash(m: Mistake) -> tuple[str, str] | None:
    """What to say of a line that begins with `#`, where that is a line of the C preprocessor or a comment of Python."""
    following = m.tokens[m.at + 1]
    if following.text in _HASH_LINES:
        return f"there is no `#{following.text}` in TExpr", _HASH_LINES[following.text]
    return ("`#` does not open a comment", "comments begin with `--`") if following.start > m.token.end else None


def _opened(m: Mistake, opener: str) -> bool:
    closer = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}[opener]
    return sum((t.kind == opener) - (t.kind == closer) for t in m.tokens[m.begin : m.at]) > 0


def _loop_word(m: Mistake) -> str:
    return m.tokens[m.begin + 1].text if m.first.kind == "FULLY" and m.at > m.begin + 1 else m.first.text


def _hash_before(m: Mistake) -> bool:
    name, sign = m.before(2), m.before(3)
    return name is not None and sign is not None and sign.kind == "HASH"


def _plain(m: Mistake) -> Diagnostic:
    """What was found and what could stand there."""
    wanted = _wanted(m.expected, m.spelling)
    token = m.token
    found = _found(token)
    previous = m.tokens[m.at - 1] if m.at else None
    if m.at == m.begin:
        help = "a statement begins with a view such as `C[i]`, a name, or a word such as `par`, `seq`, `let` or `new`"
        return error("E0101", f"a statement does not begin with {found}", m.span(token), help=help)
    ended = token.kind in (NEWLINE, END) or not token.text
    if NEWLINE in m.expected and not ended and _may_begin(token):
        message = f"a new line or `;` is missing before {found}"
        return error("E0101", message, m.span(token))
    if ended and previous is not None:
        span = Span(m.source, previous.end, previous.end)
        return error("E0101", f"the statement ends too early: {wanted} is missing", span, "here")
    return error("E0101", f"{found} does not fit here", m.span(token), f"expected {wanted}")


def _may_begin(token: Token) -> bool:
    return token.kind in _STATEMENTS or token.kind == "NAME"


def _found(token: Token) -> str:
    if token.kind == NEWLINE:
        return "the end of the line" if token.text != ";" else "`;`"
    if token.kind == END or not token.text:
        return "the end of the text"
    return f"`{token.text}`" if len(token.text) <= 40 else f"`{token.text[:40]}…`"


def _wanted(expected: frozenset[str], spelling: dict[str, str]) -> str:
    """The expected terminals in words, at most four of them."""
    rest = set(expected)
    said: list[str] = []
    if rest >= _EXPRESSION_START:
        said.append("an expression")
        rest -= _EXPRESSION_START | {"NOT", "STRING"}
    if rest >= {"PLUS", "MINUS", "TIMES"}:
        said.append("an operator")
        rest -= _OPERATORS
    if len(rest & _STATEMENTS) > 4:
        said.append("a statement")
        rest -= _STATEMENTS | {"NAME", "SIZE", "KERNEL", "FN", "IMPORT"}
    if rest & {"LBRACE", "RPAR", "RSQB"}:
        rest -= {"COMMA", "HASH"}
    if NEWLINE in rest:
        rest -= {END, "RBRACE"}
    order = ["NAME", "COLON", "EQ", "ACC", "RPAR", "RSQB", "LBRACE", "RBRACE", "COMMA"]
    for kind in sorted(rest, key=lambda k: (order.index(k) if k in order else len(order), k)):
        said.append(_NAMES.get(kind) or f"`{spelling.get(kind) or kind.lower()}`")
    said = said[:4]
    return said[0] if len(said) == 1 else ", ".join(said[:-1]) + " or " + said[-1]
