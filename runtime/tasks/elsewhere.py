"""Failures as ranks tell them each other."""

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.task import Phase


class Failed:
    """A child that failed at another rank, as it is told when somebody waits."""

    __slots__ = ("error", "name", "phase")

    def __init__(self, name: str, phase: Phase, error: TExprError) -> None:
        self.name, self.phase, self.error = name, phase, error

    def __str__(self) -> str:
        return self.name


def said(why: BaseException) -> str:
    """An error as one line for other ranks."""
    if isinstance(why, TExprError):
        return why.diagnostics[0].message[:500]
    return f"{type(why).__name__}: {why}"[:500]
