"""Diagnostics: what the compiler says to people, and the exceptions that carry it.

A `Diagnostic` has a stable code of `CODES`, a sentence in the language's words, labelled spans, and where it can a
counterexample (`witness`) and a mend (`help`). Three kinds of failure exist: the author's error (a `Diagnostic` of
severity error), a limitation (the same, with `help` naming the way round), and a defect of ours (`InternalError`).
A stage collects diagnostics and raises one `TExprError` with all of them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum

from texpr.grammar.codes import CODES
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A span and what is to be said of it under its carets."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding. `witness` holds the counterexample as names and numbers, e.g. {"i": (0, 1), "C": (0,)}."""

    code: str
    message: str
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    severity: Severity = Severity.ERROR
    witness: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unknown diagnostic code {self.code}")

    def __str__(self) -> str:
        return render(self)

    def to_json(self) -> dict[str, object]:
        """The object that `texpr check --json` prints: code, severity, message, file, line, column, witness, help."""
        span = self.primary.span if self.primary else None
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "file": span.source.name if span else None,
            "line": span.line if span else None,
            "column": span.column if span else None,
            "label": self.primary.text if self.primary else "",
            "secondary": [
                {"file": s.span.source.name, "line": s.span.line, "column": s.span.column, "label": s.text}
                for s in self.secondary
            ],
            "witness": json.loads(json.dumps(dict(self.witness), default=str)),
            "notes": list(self.notes),
            "help": self.help,
        }


MAX_TOLD = 100  # findings that one error carries


def first(found: Iterable[Diagnostic], count: int = MAX_TOLD) -> tuple[Diagnostic, ...]:
    """At most `count` findings, errors before warnings where some are left out; then the last one says so."""
    every = tuple(found)
    if len(every) <= count:
        return every
    *kept, last = sorted(every, key=lambda d: d.severity is Severity.WARNING)[:count]
    return (*kept, replace(last, notes=(*last.notes, f"more was found than these {count}: mend them first")))


class TExprError(Exception):
    """The base of every error that TExpr raises to its users; `diagnostics` has all of them, in text order, or the
    first MAX_TOLD and a note that there are more."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = first(diagnostics)
        super().__init__("\n\n".join(render(d) for d in self.diagnostics))


class TExprWarning(UserWarning):
    """What the compiler warns of when Python compiles a kernel; `diagnostic` has its code, place and mend."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(render(diagnostic))


class InternalError(Exception):
    """A defect of TExpr itself: the only failure that shows a traceback and exits with 70."""


def error(
    code: str,
    message: str,
    span: Span | None = None,
    label: str = "",
    *,
    secondary: tuple[Label, ...] = (),
    notes: tuple[str, ...] = (),
    help: str | None = None,
    witness: Mapping[str, object] | None = None,
) -> Diagnostic:
    """A `Diagnostic` of severity error; the short form that passes use."""
    return Diagnostic(
        code=code,
        message=message,
        primary=Label(span=span, text=label) if span is not None else None,
        secondary=secondary,
        notes=notes,
        help=help,
        witness=witness or {},
    )


def fail(code: str, message: str, span: Span | None = None, label: str = "", *, help: str | None = None) -> TExprError:
    """A `TExprError` of one diagnostic, to be raised by the caller: `raise fail("E0601", …)`."""
    return TExprError([error(code, message, span, label, help=help)])


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that differs least from a misspelt name, for the help line."""
    import difflib  # not needed by what only launches

    close = difflib.get_close_matches(name, sorted(set(candidates)), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str | None = None) -> str | None:
    close = nearest(name, candidates)
    return f"did you mean `{close}`?" if close else otherwise


def _printable(text: str) -> str:
    """Source text made safe for a terminal: tabs become blanks, control characters become U+FFFD."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\ufffd" for c in text)


MAX_LINE = 160  # characters of one source line that a message shows


def _excerpt(label: Label, width: int, mark: str) -> list[str]:
    span = label.span
    line, column = span.source.line_column(span.start)
    text = span.source.line_text(line)
    shift = max(0, column - 1 - MAX_LINE // 2) if len(text) > MAX_LINE else 0
    shown = _printable(text[shift : shift + MAX_LINE])
    length = max(1, min(span.end - span.start, len(shown) - (column - 1 - shift)))
    carets = " " * (column - 1 - shift) + mark * length
    said = f" {_printable(label.text)}" if label.text else ""
    return [f"{line:>{width}} | {shown}".rstrip(), f"{'':>{width}} | {carets}{said}".rstrip()]


def render(diagnostic: Diagnostic) -> str:
    """The text of a diagnostic: headline, place, source with carets, second places, notes and mend."""
    lines = [f"{diagnostic.severity.value}[{diagnostic.code}]: {_printable(diagnostic.message)}"]
    labels = ([diagnostic.primary] if diagnostic.primary else []) + list(diagnostic.secondary)
    width = max((len(str(label.span.line)) for label in labels), default=1) + 1
    for number, label in enumerate(labels):
        line, column = label.span.source.line_column(label.span.start)
        arrow = "-->" if number == 0 else ":::"
        lines.append(f"{'':>{width}}{arrow} {_printable(label.span.source.name)}:{line}:{column}")
        if number == 0:
            lines.append(f"{'':>{width}} |")
        lines += _excerpt(label, width, "^" if number == 0 else "-")
    lines += [f"{'':>{width}} = note: {_printable(note)}" for note in diagnostic.notes]
    if diagnostic.help:
        lines.append(f"{'':>{width}} = help: {_printable(diagnostic.help)}")
    return "\n".join(lines)
