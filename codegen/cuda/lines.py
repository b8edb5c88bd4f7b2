"""The lines of a kernel's body: what they name, and where in the program they come from.

    out.declare("i", "int", lane)                             const int i = lane;
    out.line(f"C({out.use(i)}) = 1.0f;", at=node.span)        #line 4 "/texpr/fill.tex"
                                                              C(i) = 1.0f;

A declaration that no line names is left out. Every term and value gets into a line through `use`, and into a
declaration through `declare`; what is printed past them counts as unused. A line that can be blamed for something (it
touches memory, or waits) is given `at`, where it comes from; `#line` stands before it where a compiler, which counts on
from the last one, would not say so by itself. The lines between are then counted to lines of the program that they are
not of: a text that is made to tell where machine code comes from is `exact`, and says of them that they are BETWEEN.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from texpr.codegen.cuda.index import CONDITIONAL
from texpr.codegen.cuda.names import virtual_path
from texpr.codegen.writer import Writer
from texpr.grammar.source import Span

MAX_WIDTH = 90  # of a condition and the statement behind it
BETWEEN = "between statements"  # the file that lines of no statement are of, in an exact text


class Printed(Protocol):
    """A text with its precedence, and the variables that it names."""

    @property
    def text(self) -> str: ...
    @property
    def names(self) -> frozenset[str]: ...
    def at(self, level: int) -> str: ...


class Lines(Writer):
    """A writer that keeps account of names and places. Every name is declared once, before the lines that use it."""

    def __init__(self, *, exact: bool = False) -> None:
        super().__init__()
        self._exact = exact
        self._used: set[str] = set()
        self._declared: list[tuple[int, str, frozenset[str]]] = []
        self._places: dict[int, tuple[str, int]] = {}

    def line(self, text: str = "", at: Span | None = None) -> None:
        """One line at the present indentation, and where it comes from."""
        if at is not None and at.source.text:
            self._places[len(self._lines)] = (at.source.name, at.line)
        super().line(text)

    @contextmanager
    def condition(self, head: str, at: Span | None = None, *, ends: bool = True) -> Iterator[None]:
        """`head {`, the lines of the with-body, `}`; one short statement stands behind its condition. `ends` says that
        no other branch follows."""
        begin = len(self._lines)
        self.line(f"{head} {{", at)
        with self.indented():
            yield
        body = [line.strip() for line in self._lines[begin + 1 :]]
        if ends and not head.startswith("}") and len(body) == 1 and self._is_short(begin, head, body[0]):
            indent = self._lines[begin][: -len(head) - 2]
            self._lines[begin:] = [f"{indent}{head} {body[0]}"]
            place = self._places.pop(begin + 1, None)
            if place is not None:
                self._places[begin] = place
        elif ends:
            super().line("}")

    def _is_short(self, begin: int, head: str, line: str) -> bool:
        """Whether the line behind a condition is one statement, and no declaration, that fits behind it."""
        declared = any(number == begin + 1 for number, _, _ in self._declared)
        single = line.endswith(";") and line.count(";") == 1 and not line.startswith(("if ", "for "))
        return single and not declared and len(head) + len(line) <= MAX_WIDTH

    def use(self, part: Printed, level: int = CONDITIONAL) -> str:
        """The text of a part of the line that is written next, in brackets where it binds less tightly than `level`.
        Its names are used from here on."""
        self._used |= part.names
        return part.at(level)

    def declare(self, name: str, kind: str, value: Printed, at: Span | None = None) -> None:
        """`const KIND NAME = value;`, which is left out again where nothing uses the name."""
        self._declared.append((len(self._lines), name, value.names))
        self.line(f"const {kind} {name} = {value.text};", at)

    def finish(self) -> tuple[list[str], frozenset[str]]:
        """The lines without the declarations that nothing uses, and all names that these use."""
        used, idle = set(self._used), set[int]()
        for line, name, names in reversed(self._declared):
            if name in used:
                used |= names
            else:
                idle.add(line)
        return self._placed(idle), frozenset(used)

    def _placed(self, idle: set[int]) -> list[str]:
        """The lines that are not idle, and `#line` before those that a compiler would place elsewhere."""
        text: list[str] = []
        file, counted = "", 0  # where a compiler thinks that the next line is; "": in the emitted text itself
        for number, line in enumerate(self._lines):
            if number in idle:
                continue
            wanted = self._places.get(number)
            if wanted is not None and wanted != (file, counted):
                named = "" if wanted[0] == file else f' "{virtual_path(wanted[0])}"'
                file, counted = wanted
                text.append(f"#line {counted}{named}")
            elif wanted is None and self._exact and file != BETWEEN:
                file = BETWEEN
                text.append(f'#line 1 "{BETWEEN}"')
            text.append(line)
            counted += 1
        return text
