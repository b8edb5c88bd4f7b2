"""Comments and blank lines: each comment becomes trivia of the statement that it stands by.

A comment on the last line of a statement trails it; one on a line of its own leads the next statement, or dangles at
the end of its block; one in an odd place (inside an expression, between parameters) leads the statement around it, so
that formatting loses none.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from texpr.grammar.source import SourceText, Span
from texpr.grammar.syntax import Comment, Statement, Trivia
from texpr.grammar.text.lexer import RawComment

_S = TypeVar("_S", bound=Statement)


class Comments:
    """The comments of a text, handed to blocks as they close: inner blocks first, each comment once."""

    def __init__(self, source: SourceText, comments: Iterable[RawComment]) -> None:
        self._source = source
        self._text = source.text
        self._coming = iter(comments)
        self._next = next(self._coming, None)
        self._seen: list[RawComment] = []

    def _claim(self, start: int, end: int) -> list[RawComment]:
        """The comments between two offsets that no inner block has claimed, in order."""
        while self._next is not None and self._next.start < end:
            self._seen.append(self._next)
            self._next = next(self._coming, None)
        first = len(self._seen)
        while first > 0 and self._seen[first - 1].start >= start:
            first -= 1
        claimed = self._seen[first:]
        del self._seen[first:]
        return claimed

    def attach(self, statements: list[_S], start: int, end: int) -> tuple[tuple[_S, ...], tuple[Comment, ...]]:
        """The statements between two offsets with their trivia, and the comments that dangle after them."""
        claimed = self._claim(start, end)
        out: list[_S] = []
        at = start  # where the last statement or comment ended
        number = 0
        for statement in statements:
            span = statement.span
            leading: list[Comment] = []
            while number < len(claimed) and claimed[number].start < span.start:
                comment = claimed[number]
                number += 1
                if out and self._trails(out[-1], comment):
                    out[-1] = _with(out[-1], trailing=self._comment(comment, False))
                else:
                    blank = bool(out or leading) and self._blank(at, comment.start)
                    leading.append(self._comment(comment, blank))
                at = comment.end
            blank = bool(out or leading) and self._blank(at, span.start)
            while number < len(claimed) and claimed[number].start < span.end:
                leading.append(self._comment(claimed[number], False))
                number += 1
            if leading or blank:
                statement = replace(statement, trivia=Trivia(leading=tuple(leading), blank_before=blank))
            out.append(statement)
            at = span.end
        dangling: list[Comment] = []
        for comment in claimed[number:]:
            if out and self._trails(out[-1], comment):
                out[-1] = _with(out[-1], trailing=self._comment(comment, False))
            else:
                blank = bool(out or dangling) and self._blank(at, comment.start)
                dangling.append(self._comment(comment, blank))
            at = comment.end
        return tuple(out), tuple(dangling)

    def _trails(self, statement: Statement, comment: RawComment) -> bool:
        return statement.trivia.trailing is None and self._text.find("\n", statement.span.end, comment.start) < 0

    def _blank(self, start: int, end: int) -> bool:
        return self._text.count("\n", start, end) > 1

    def _comment(self, raw: RawComment, blank_before: bool) -> Comment:
        return Comment(text=raw.text, blank_before=blank_before, span=Span(self._source, raw.start, raw.end))


def _with(statement: _S, *, trailing: Comment) -> _S:
    return replace(statement, trivia=replace(statement.trivia, trailing=trailing))
