"""Text to surface tree: `parse` runs the LALR tables of `texpr.lark` with reduce actions, and recovers from errors.

    characters -> lexer -> tokens -> newlines -> tokens with ends of statements -> here -> syntax.Module

A syntax error is reported and the rest of its statement skipped; the header of a broken block statement is replaced by
`if true`, so that the mistakes inside the block are reported too. A text with errors gives no tree, only a TExprError.
"""

import re
from bisect import bisect_left
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final

from texpr.grammar.diagnostics import Diagnostic, TExprError, error, first
from texpr.grammar.source import SourceText, Span
from texpr.grammar.syntax import Module
from texpr.grammar.text.builder import Builder
from texpr.grammar.text.foreign_loops import mend_loops
from texpr.grammar.text.lexer import BAD, NEWLINE, Token, tokenise
from texpr.grammar.text.limits import MAX_BLOCK_DEPTH, MAX_DIAGNOSTICS, MAX_EXPRESSION_HEIGHT, MAX_TEXT_BYTES
from texpr.grammar.text.newlines import STATEMENT_KINDS, end_statements, match_brackets
from texpr.grammar.text.reserved_names import mend_reserved_names
from texpr.grammar.text.syntax_errors import Mistake, begins_foreign_block, describe
from texpr.grammar.text.tables import END, NONE, PASS, SPLICE, Tables, load_tables
from texpr.grammar.text.trivia import Comments
from texpr.grammar.words import RESERVED

_GROWS: Final = frozenset(("binary", "unary", "view", "call", "reduce", "slice"))
"""Actions that add one to an expression's height."""
_NESTS: Final = frozenset(("block", "else_if"))
"""Actions that add one to the depth of blocks."""
_BLOCK_OF: Final = frozenset(("par", "seq", "if_", "kernel", "fn", "start"))
"""Actions that keep the depth of blocks; every other statement has none."""
_EXPRESSION: Final = _GROWS | {
    "let",
    "args",
    "exprs",
    "dim",
    "dims",
    "range",
    "attr",
    "attrs",
    "attr_arg",
    "attr_level",
}
_HEADERS: Final = frozenset(("PAR", "SEQ", "FULLY", "IF", "KERNEL", "FN", "ELSE"))
_SYNCHRONISE: Final = STATEMENT_KINDS - {"REG", "ASM"}


def parse(source: SourceText) -> Module:
    """The surface tree of a text; TExprError with all its syntax errors (E0101 to E0104), at most MAX_DIAGNOSTICS."""
    if len(source.text) > MAX_TEXT_BYTES or len(source.text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        message = f"the text is longer than {MAX_TEXT_BYTES} bytes"
        raise TExprError([error("E0103", message, Span(source, 0, 0), help="split it and use `import`")])
    lexed = mend_reserved_names(mend_loops(tokenise(source), source), source)
    found = lexed.diagnostics
    try:
        brackets = match_brackets(lexed.tokens, source)
        if brackets.strays and brackets.closers:  # the braces agree if a declaration may stand in a block
            nested = match_brackets(lexed.tokens, source, declarations_close=False)
            brackets = brackets if nested.strays or nested.closers else nested
    except TExprError as deep:
        raise _all_of(found + list(deep.diagnostics)) from None
    found += brackets.diagnostics
    tokens = end_statements(lexed.tokens, brackets, len(source.text))
    builder = Builder(source, Comments(source, lexed.comments), _module_name(source.name))
    parser = _Parser(source, tokens, builder, found, brackets.strays)
    module = parser.run()
    found += builder.diagnostics
    if found or module is None:
        raise _all_of(found)
    return module


def parse_text(text: str, name: str = "main") -> Module:
    """`parse` for a text that is in no file; `name` stands in messages and names a kernel of bare statements."""
    return parse(SourceText(name, text))


def _module_name(name: str) -> str:
    """The name of a file's bare kernel: its stem, made an identifier."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", PurePath(name).stem).strip("_") or "main"
    return f"{stem}_" if stem in RESERVED else f"_{stem}" if stem[0].isdigit() else stem


def _all_of(found: list[Diagnostic]) -> TExprError:
    """The error with `found` in text order, cut at MAX_DIAGNOSTICS."""
    found.sort(key=lambda d: d.primary.span.start if d.primary else 0)
    return TExprError(first(found, MAX_DIAGNOSTICS))


class _TooManyError(Exception):
    """Enough was reported."""


class _Parser:
    """One run: the stacks of states, values and places, and the next token."""

    def __init__(
        self, source: SourceText, tokens: list[Token], builder: Builder, found: list[Diagnostic], strays: int
    ) -> None:
        self._source = source
        self._tokens = tokens
        self._found = found
        self._strays = strays
        tables: Tables = load_tables()
        self._tables = tables
        self._rows = tables.rows
        self._actions: list[Callable[[list[Any], Span], Any] | None] = [
            None if p.action in (PASS, SPLICE) else getattr(builder, f"on_{p.action}") for p in tables.productions
        ]
        self._lists = {row[symbol] for row in tables.rows for symbol in ("_stmts", "_items") if symbol in row}
        self._outer = {row["_items"] for row in tables.rows if "_items" in row}
        self._states = [0]
        self._values: list[Any] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._heights: list[int] = []  # of expressions; of statements and blocks minus the depth of blocks
        self._at = 0
        self._told = -1

    def run(self) -> Module | None:
        """The module, or None where errors were found."""
        rows, states, tokens = self._rows, self._states, self._tokens
        end = self._tables.end
        try:
            while True:
                token = tokens[self._at]
                action = rows[states[-1]].get(token.kind)
                if action is None:
                    if token.kind == END and states[-1] == end:
                        result = self._values[-1]
                        return result if isinstance(result, Module) else None
                    if not self._recover():
                        return None
                elif action >= 0:
                    self._shift(action, token)
                    self._at += 1
                else:
                    self._reduce(~action, token)
        except _TooManyError:
            return None

    def _shift(self, state: int, token: Token) -> None:
        self._states.append(state)
        self._values.append(token)
        self._starts.append(token.start)
        self._ends.append(token.end)
        self._heights.append(0)

    def _reduce(self, number: int, lookahead: Token) -> None:
        production = self._tables.productions[number]
        size = production.size
        states, values, starts, ends, heights = self._states, self._values, self._starts, self._ends, self._heights
        plan = production.plan
        action = self._actions[number]
        if size == 0:
            start, height, deepest = lookahead.start, 0, 0
            end = ends[-1] if ends else 0
            parts: list[Any] = []
        else:
            first = len(values) - size
            start, end = starts[first], ends[-1]
            if action is None and production.action == PASS:
                value, height = values[first + plan[0] // 2], heights[first + plan[0] // 2]
                if size > 1:
                    del states[-size:], values[-size:], starts[-size:], ends[-size:], heights[-size:]
                    values.append(value)
                    starts.append(start)
                    ends.append(end)
                    heights.append(height)
                else:
                    states.pop()
                states.append(self._rows[states[-1]][production.origin])
                return
            height, deepest = max(heights[first:]), min(heights[first:])
            if plan and plan[0] & 1 and plan[0] > 0 and production.action == SPLICE:
                parts = values[first + plan[0] // 2]  # the list grows in place: linear in its length
                rest = plan[1:]
            else:
                parts, rest = [], plan
            for entry in rest:
                if entry == NONE:
                    parts.append(None)
                elif entry & 1:
                    parts += values[first + entry // 2]
                else:
                    parts.append(values[first + entry // 2])
            del states[-size:], values[-size:], starts[-size:], ends[-size:], heights[-size:]
        if action is None:
            value = parts
            height = deepest if deepest < 0 else height
        else:
            height = self._height(production.action, height, deepest, start, end)
            value = action(parts, Span(self._source, start, end))
        states.append(self._rows[states[-1]][production.origin])
        values.append(value)
        starts.append(start)
        ends.append(end)
        heights.append(height)

    def _height(self, action: str, height: int, deepest: int, start: int, end: int) -> int:
        """The height of an expression, or minus the depth of blocks, after an action; E0103 for what is too high."""
        if action in _GROWS:
            if height >= MAX_EXPRESSION_HEIGHT:
                message = f"this expression is more than {MAX_EXPRESSION_HEIGHT} operations deep"
                help = "name a part of it by `let`, or accumulate in a loop"
                self._report(error("E0103", message, Span(self._source, start, end), help=help))
                raise _TooManyError
            return height + 1
        if action in _EXPRESSION:
            return height
        if action in _NESTS:
            if -deepest >= MAX_BLOCK_DEPTH:
                message = f"blocks nest more than {MAX_BLOCK_DEPTH} deep here"
                self._report(error("E0103", message, Span(self._source, start, start + 1), help="use a `fn`"))
                raise _TooManyError
            return deepest - 1
        return deepest if action in _BLOCK_OF else 0

    # ---- errors

    def _report(self, diagnostic: Diagnostic) -> None:
        self._found.append(diagnostic)
        if len(self._found) > MAX_DIAGNOSTICS:
            raise _TooManyError

    def _expected(self) -> frozenset[str]:
        """The terminals that may stand here, found by trying each against a copy of the states."""
        return frozenset(t for t in self._tables.terminals if self._accepts(t))

    def _accepts(self, terminal: str) -> bool:
        states = list(self._states)
        while True:
            action = self._rows[states[-1]].get(terminal)
            if action is None:
                return terminal == END and states[-1] == self._tables.end
            if action >= 0:
                return True
            production = self._tables.productions[~action]
            if production.size:
                del states[-production.size :]
            states.append(self._rows[states[-1]][production.origin])

    def _recover(self) -> bool:
        """Reports the token that does not fit and goes to where a statement may begin; False where none may."""
        token = self._tokens[self._at]
        self._settle(token)
        depth, begin = self._statement()
        if depth == 0:
            return False
        opens_block = self._tokens[begin].kind in _HEADERS or self._tokens[begin].kind == "LBRACE"  # of a mended header
        ended = opens_block and self._tokens[self._at - 1].kind == "RBRACE"
        if ended and begin < self._at and token.kind != NEWLINE and self._accepts(NEWLINE):
            self._end_block_statement(token)
            depth, begin = len(self._states), self._at
        told = token.kind == BAD or self._at == self._told or (not token.text and bool(self._found))
        expected = frozenset() if told else self._expected()
        if not told:
            mistake = Mistake(
                source=self._source,
                tokens=self._tokens,
                at=self._at,
                begin=begin,
                expected=expected,
                spelling=self._tables.terminals,
                outer=self._states[depth - 1] in self._outer,
            )
            self._report(describe(mistake))
        self._told = self._at
        popped = self._values[depth - 1 :]
        kinds = [v.kind for v in popped if isinstance(v, Token)]
        braces = kinds.count("LBRACE")
        reductions = kinds.count("REDUCE") - braces
        opening = self._tokens[begin]
        header = opening.kind in _HEADERS or token.kind == "ELSE" or begins_foreign_block(opening)
        del self._states[depth:], self._values[depth - 1 :], self._starts[depth - 1 :]
        del self._ends[depth - 1 :], self._heights[depth - 1 :]
        if header and token.kind == NEWLINE and "LBRACE" in expected and self._strays > 0:
            self._strays -= 1
            self._feed(token, "IF", "CONST", "LBRACE")
            self._at += 1
            return True
        return self._skip(braces, reductions, header, bool(popped))

    def _statement(self) -> tuple[int, int]:
        """The height of the states below the statement that is being read, 0 for none, and its first token."""
        depth = len(self._states)
        while depth and self._states[depth - 1] not in self._lists:
            depth -= 1
        start = self._starts[depth - 1] if 0 < depth <= len(self._starts) else self._tokens[self._at].start
        return depth, min(bisect_left(self._tokens, start, key=lambda t: t.start), self._at)

    def _end_block_statement(self, lookahead: Token) -> None:
        """Ends a statement that its `}` has ended, so that what follows is a mistake of its own."""
        states, rows = self._states, self._rows
        while (action := rows[states[-1]][NEWLINE]) < 0:
            self._reduce(~action, lookahead)
        self._shift(action, Token(NEWLINE, "\n", lookahead.start, lookahead.start))
        self._settle(lookahead)

    def _settle(self, lookahead: Token) -> None:
        """Does the reductions that no token can prevent: a block is whole once its `}` was read."""
        terminals = self._tables.terminals
        while True:
            actions = {action for symbol, action in self._rows[self._states[-1]].items() if symbol in terminals}
            if len(actions) != 1 or (action := actions.pop()) >= 0:
                return
            self._reduce(~action, lookahead)

    def _feed(self, place: Token, *kinds: str) -> None:
        """Shifts words that the text does not have."""
        for kind in kinds:
            token = Token(kind, "true" if kind == "CONST" else "", place.start, place.start)
            while (action := self._rows[self._states[-1]][kind]) < 0:
                self._reduce(~action, token)
            self._shift(action, token)

    def _skip(self, braces: int, reductions: int, header: bool, moved: bool) -> bool:
        """Passes over the rest of a statement; False at the end of the text.

        `braces` are open in what was read of it, and `reductions` still lack theirs; `moved` when anything was read.
        """
        tokens = self._tokens
        outer = self._states[-1] in self._outer
        while True:
            token = tokens[self._at]
            kind = token.kind
            if kind == END:
                return braces == 0 and self._accepts(END)
            if kind == "LBRACE":
                if header and braces == 0 and reductions == 0:
                    self._feed(token, "IF", "CONST")
                    return True
                braces += 1
                reductions = max(0, reductions - 1)
            elif kind == "REDUCE" and self._at != self._told:  # the one that does not fit was meant as a name
                reductions += 1
            elif kind == "RBRACE":
                if braces == 0 and not outer:
                    return True
                braces = max(0, braces - 1)
            elif braces == 0 and kind == NEWLINE:
                self._at += 1
                return True
            elif braces == 0 and moved and kind in _SYNCHRONISE:
                return True
            self._at += 1
            moved = True
