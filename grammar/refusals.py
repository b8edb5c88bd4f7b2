"""The refusal of a part of a program: raised where it is found, reported where reading can go on."""

from texpr.grammar.diagnostics import Diagnostic, Label, error
from texpr.grammar.source import Span


class RefusedError(Exception):
    """A part was refused; `diagnostic` is None where the cause was told before."""

    def __init__(self, diagnostic: Diagnostic | None = None) -> None:
        super().__init__(diagnostic.message if diagnostic else "")
        self.diagnostic = diagnostic


class LimitError(RefusedError):
    """A counted limit was passed: the kernel is given up."""


def refuse(
    code: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    help: str | None = None,
    secondary: tuple[Label, ...] = (),
    notes: tuple[str, ...] = (),
) -> RefusedError:
    """A refusal, to be raised by the caller."""
    return RefusedError(error(code, message, span, label, help=help, secondary=secondary, notes=notes))
