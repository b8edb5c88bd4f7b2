"""What the compiler warns of, as Python warnings of the class TExprWarning at the line of the user who compiled."""

import sys
import warnings
from collections.abc import Iterable
from types import FrameType

from texpr.grammar.diagnostics import Diagnostic, TExprWarning


def warn_users(found: Iterable[Diagnostic]) -> None:
    """Issue a warning for each finding; it points at the nearest caller that is no module of texpr."""
    level = _frames_of_ours()
    for diagnostic in found:
        warnings.warn(TExprWarning(diagnostic), stacklevel=level + 1)


def _frames_of_ours() -> int:
    """How many frames from `warn_users` on outwards belong to texpr."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "texpr":
        frame, count = frame.f_back, count + 1
    return count
