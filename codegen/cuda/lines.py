"""The lines of a kernel's body, and what they name: a declaration that no line names is left out.

    out.declare("i", "int", lane)                      const int i = i_lane;
    out.line(f"C.store({out.use(offset)}, 1.0f);")     C.store(i, 1.0f);        names i, which names i_lane

Every term and value gets into a line through `use`, and into a declaration through `declare`; what is printed past them
counts as unused.
"""

from typing import Protocol

from texpr.codegen.cuda.index import CONDITIONAL
from texpr.codegen.writer import Writer


class Printed(Protocol):
    """A text with its precedence, and the variables that it names."""

    @property
    def text(self) -> str: ...
    @property
    def names(self) -> frozenset[str]: ...
    def at(self, level: int) -> str: ...


class Lines(Writer):
    """A writer that keeps account of names. Every name is declared once, before the lines that use it."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[str] = set()
        self._declared: list[tuple[int, str, frozenset[str]]] = []

    def use(self, part: Printed, level: int = CONDITIONAL) -> str:
        """The text of a part of the line that is written next, in brackets where it binds less tightly than `level`.
        Its names are used from here on."""
        self._used |= part.names
        return part.at(level)

    def declare(self, name: str, kind: str, value: Printed) -> None:
        """`const KIND NAME = value;`, which is left out again where nothing uses the name."""
        self._declared.append((len(self._lines), name, value.names))
        self.line(f"const {kind} {name} = {value.text};")

    def finish(self) -> tuple[list[str], frozenset[str]]:
        """The lines without the declarations that nothing uses, and all names that these use."""
        used, idle = set(self._used), set[int]()
        for line, name, names in reversed(self._declared):
            if name in used:
                used |= names
            else:
                idle.add(line)
        return [line for number, line in enumerate(self._lines) if number not in idle], frozenset(used)
