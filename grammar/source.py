"""Source texts and spans.

A `Span` is a half-open range of character offsets in one `SourceText`. Every node of every tree carries one,
out of equality, so two programs that differ only in white space are equal.
"""

from bisect import bisect_right
from dataclasses import field
from functools import cached_property

from texpr.grammar.records import dataclass


@dataclass(frozen=True, eq=False)
class SourceText:
    """One text with a name for messages. `first_line` shifts line numbers (a Python function inside its file)."""

    name: str
    text: str
    first_line: int = 1

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offsets at which lines begin; a line ends at `\\n` only, as in every editor we emit for."""
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return tuple(starts)

    def line_column(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        index = bisect_right(self.line_starts, offset) - 1
        return index + self.first_line, offset - self.line_starts[index] + 1

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, without its end."""
        start = self.line_starts[line - self.first_line]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` (inclusive) to `end` (exclusive) of `source`."""

    source: SourceText = field(repr=False)
    start: int
    end: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it begins, and in which text of a file: one place for all copies of what stands there."""
        return self.source.name, self.source.first_line, self.start

    @property
    def line(self) -> int:
        return self.source.line_column(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.line_column(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def holds(self, other: "Span") -> bool:
        """Whether all characters of `other` are among these."""
        return other.source is self.source and self.start <= other.start and other.end <= self.end

    def to(self, other: "Span") -> "Span":
        """The least span that holds both; spans of two texts give the first."""
        if other.source is not self.source:
            return self
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))


BUILTIN = SourceText("<builtin>", "")
NO_SPAN = Span(BUILTIN, 0, 0)
