"""Loop headers of other languages, `for (int i = 0; i < n; i++)` and `for i in range(n):`, each as one mistake.

They are found among the raw tokens, before brackets are matched, and said with TExpr's loop over the same range. What
the lexer found inside such a header is not said again, and the header is taken out (before braces, `if true` stands in
its place), so that the mistakes of the loop's body are reported and its end is no mistake.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.lexer import NEWLINE, Lexed, Token
from texpr.grammar.text.limits import MAX_DIAGNOSTICS

COUNTING_WORDS: Final = frozenset(("for", "foreach", "forall", "parallel"))
WAITING_WORDS: Final = frozenset(("while", "until", "loop", "repeat", "do"))
LOOP_WORDS: Final = COUNTING_WORDS | WAITING_WORDS
MAX_HEADER: Final = 200  # tokens of one header
MAX_SHOWN: Final = 40  # characters of an extent that the help repeats

_BEFORE_STATEMENT: Final = frozenset((NEWLINE, "LBRACE", "RBRACE"))
_CHANGE: Final = {"LPAR": 1, "RPAR": -1}


def loop_help(word: str, index: str = "i", extent: str = "N") -> str:
    """What to write instead of a loop that begins with `word`."""
    if word in WAITING_WORDS:
        return "a loop's extent is known before it begins: `seq N i { … }`, with an `if` inside"
    loop = f"{extent} {index} {{ … }}"
    return f"`par {loop}` where iterations are independent, `seq {loop}` where they run in order"


@dataclass(frozen=True, slots=True)
class _Header:
    """A header of another language: its tokens from `begin` up to `end`, and the range it means, if that is known."""

    begin: int
    end: int
    index: str = "i"
    extent: str = "N"


def mend_loops(lexed: Lexed, source: SourceText) -> Lexed:
    """The tokens without foreign loop headers, and the messages for them in place of those inside them."""
    headers = list(_headers(lexed.tokens, source))
    if not headers:
        return lexed
    tokens: list[Token] = []
    found: list[Diagnostic] = []
    places: list[tuple[int, int]] = []
    after = 0
    for header in headers:
        first, last = lexed.tokens[header.begin], lexed.tokens[header.end - 1]
        places.append((first.start, last.end))
        found.append(_described(first, header, source))
        tokens += lexed.tokens[after : header.begin]
        after = header.end
        following = next((t for t in lexed.tokens[after : after + 2] if t.text != "\n"), None)
        if following is not None and following.kind == "LBRACE":
            tokens += [Token("IF", "if", last.end, last.end), Token("CONST", "true", last.end, last.end)]
    tokens += lexed.tokens[after:]
    kept = [d for d in lexed.diagnostics if d.code != "E0101" or not _within(d, places)]
    return Lexed(tokens=tokens, comments=lexed.comments, diagnostics=kept + found)


def _described(word: Token, header: _Header, source: SourceText) -> Diagnostic:
    help = loop_help(word.text, header.index, header.extent)
    span = Span(source, word.start, word.end)
    if word.kind != "NAME":
        return error("E0101", "a loop names its extent, not its steps", span, help=help)
    return error("E0101", f"there is no `{word.text}` in TExpr", span, help=help)


def _within(diagnostic: Diagnostic, places: Sequence[tuple[int, int]]) -> bool:
    start = diagnostic.primary.span.start if diagnostic.primary else -1
    return any(begin <= start < end for begin, end in places)


def _headers(tokens: list[Token], source: SourceText) -> Iterator[_Header]:
    """The foreign headers in text order, one more than MAX_DIAGNOSTICS at most."""
    count = after = 0
    for number, token in enumerate(tokens):
        if number < after or (token.text not in LOOP_WORDS and token.kind not in ("PAR", "SEQ")):
            continue
        header = _c_header(tokens, number, source)
        if header is None and token.kind == "NAME" and (number == 0 or tokens[number - 1].kind in _BEFORE_STATEMENT):
            header = _python_header(tokens, number, source)
        if header is not None:
            yield header
            after = header.end
            count += 1
            if count > MAX_DIAGNOSTICS:
                return


def _c_header(tokens: list[Token], begin: int, source: SourceText) -> _Header | None:
    """`for ( … ; … ; … )`: no bracket of TExpr holds a `;`."""
    if begin + 1 >= len(tokens) or tokens[begin + 1].kind != "LPAR":
        return None
    depth = 0
    parts: list[list[Token]] = [[]]
    for number in range(begin + 1, min(begin + MAX_HEADER, len(tokens))):
        token = tokens[number]
        depth += _CHANGE.get(token.kind, 0)
        if token.kind in ("LBRACE", "RBRACE"):
            return None
        if depth == 0:
            if len(parts) == 1:
                return None
            index, extent = _c_range(parts, source) or ("i", "N")
            return _Header(begin, number + 1, index, extent)
        if token.kind == NEWLINE:
            if token.text == ";":
                parts.append([])
        elif number > begin + 1:
            parts[-1].append(token)
    return None


def _c_range(parts: list[list[Token]], source: SourceText) -> tuple[str, str] | None:
    """Index and extent of `int i = a; i < b; i++`."""
    if len(parts) != 3:
        return None
    start, condition, step = parts
    assigned = next((n for n, token in enumerate(start) if token.kind == "EQ"), 0)
    if assigned == 0 or start[assigned - 1].kind != "NAME" or len(condition) < 3:
        return None
    index = start[assigned - 1].text
    steps = " ".join(token.text for token in step)
    compared = condition[0].text == index and condition[1].text in ("<", "<=", "!=")
    if not compared or steps not in (f"{index} ++", f"++ {index}", f"{index} += 1", f"{index} = {index} + 1"):
        return None
    low, high = _text(start[assigned + 1 :], source), _text(condition[2:], source)
    if condition[1].text == "<=" and high is not None:
        high = f"{high} + 1"
    return _range(index, low, high)


def _python_header(tokens: list[Token], begin: int, source: SourceText) -> _Header | None:
    """`for … in … :` or `while … :` to the end of its line."""
    line: list[Token] = []
    for token in tokens[begin : begin + MAX_HEADER]:
        if token.kind == NEWLINE:
            break
        line.append(token)
    if len(line) < 3 or line[-1].kind != "COLON" or any(token.kind in ("LBRACE", "RBRACE") for token in line):
        return None
    if line[0].text in COUNTING_WORDS and all(token.text != "in" for token in line):
        return None
    index, extent = _python_range(line, source) or ("i", "N")
    return _Header(begin, begin + len(line), index, extent)


def _python_range(line: list[Token], source: SourceText) -> tuple[str, str] | None:
    """Index and extent of `for i in range(a, b):`."""
    if len(line) < 7 or [t.text for t in line[2:5]] != ["in", "range", "("] or line[-2].kind != "RPAR":
        return None
    inside = line[5:-2]
    commas = [n for n, token in enumerate(inside) if token.kind == "COMMA"]
    if any(token.kind in _CHANGE for token in inside) or len(commas) > 1 or line[1].kind != "NAME":
        return None
    low = _text(inside[: commas[0]], source) if commas else "0"
    return _range(line[1].text, low, _text(inside[commas[0] + 1 :] if commas else inside, source))


def _text(tokens: Sequence[Token], source: SourceText) -> str | None:
    """The tokens as they are written, on one line; None where there is nothing, too much to repeat, or a number such as
    `0u`, which the lexer has mended."""
    if not tokens or any(token.text != source.text[token.start : token.end] for token in tokens):
        return None
    text = " ".join(source.text[tokens[0].start : tokens[-1].end].split())
    return text if len(text) <= MAX_SHOWN else None


def _range(index: str, low: str | None, high: str | None) -> tuple[str, str] | None:
    if low is None or high is None or len(index) > MAX_SHOWN:
        return None
    return index, high if low == "0" else f"{low}..{high}"
