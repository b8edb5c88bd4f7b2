"""The lines of a kernel's body: what they name, and where in the program they come from.

    out.declare("i", "int", lane)                             const int i = lane;
    out.line(f"C({out.use(i)}) = 1.0f;", at=node.span)        #line 4 "/texpr/fill.tex"
                                                              C(i) = 1.0f;

A declaration that no line names is left out. Every term and value gets into a line through `use`, and into a
declaration through `declare`; what is printed past them counts as unused. A line that can be blamed for something (it
touches memory, or waits) is given `at`, where it comes from; `#line` stands before it where a compiler, which counts on
from the last one, would not say so by itself.
"""

from typing import Protocol

from texpr.codegen.cuda.index import CONDITIONAL
from texpr.codegen.cuda.names import virtual_path
from texpr.codegen.writer import Writer
from texpr.grammar.source import Span


class Printed(Protocol):
    """A text with its precedence, and the variables that it names."""

    @property
    def text(self) -> str: ...
    @property
    def names(self) -> frozenset[str]: ...
    def at(self, level: int) -> str: ...


class Lines(Writer):
    """A writer that keeps account of names and places. Every name is declared once, before the lines that use it."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[str] = set()
        self._declared: list[tuple[int, str, frozenset[str]]] = []
        self._places: dict[int, tuple[str, int]] = {}

    def line(self, text: str = "", at: Span | None = None) -> None:
        """One line at the present indentation, and where it comes from."""
        if at is not None and at.source.text:
            self._places[len(self._lines)] = (at.source.name, at.line)
        super().line(text)

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
            text.append(line)
            counted += 1
        return text
