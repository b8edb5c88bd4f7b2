"""What a simulation refuses to go on from: E0604, at the node where it was noticed."""

from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.source import NO_SPAN, Span


def failure(message: str, span: Span | None = None) -> TExprError:
    return TExprError([error("E0604", message, None if span is NO_SPAN else span)])
