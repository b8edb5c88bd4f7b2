"""A writer of source text: lines with indentation, directives at column 0, and a limit on the whole."""

from collections.abc import Iterator
from contextlib import contextmanager

from texpr.grammar.diagnostics import fail

MAX_EMITTED_BYTES = 8 << 20  # of one file; a larger one is a size bomb, and no compiler would finish it


class Writer:
    """Collects lines; `text()` gives them with a final newline. Raises E0506 beyond MAX_EMITTED_BYTES."""

    def __init__(self, indent: str = "  ") -> None:
        self._lines: list[str] = []
        self._indent = indent
        self._depth = 0
        self._bytes = 0

    @property
    def line_number(self) -> int:
        """The 1-based number of the next line."""
        return len(self._lines) + 1

    def line(self, text: str = "") -> None:
        """One line at the present indentation; an empty one stays empty."""
        self._add(self._indent * self._depth + text if text else "")

    def directive(self, text: str) -> None:
        """One line at column 0, as the preprocessor's lines are written."""
        self._add(text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {`, the lines of the with-body indented, `tail`."""
        self.line(f"{head} {{" if head else "{")
        with self.indented():
            yield
        self.line(tail)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _add(self, line: str) -> None:
        self._bytes += len(line) + 1
        if self._bytes > MAX_EMITTED_BYTES:
            raise fail(
                "E0506",
                f"the emitted text is longer than {MAX_EMITTED_BYTES} bytes",
                help="split the kernel, or unroll less",
            )
        self._lines.append(line)
