"""The environment, read in one place. Every `TEXPR_*` variable is listed here; an unknown one is warned of once."""

import os
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`cache_dir` is None where `TEXPR_CACHE_DIR=off` or there is no home; `debug` shows the traceback of a defect;
    `device_compiler` is what `TEXPR_DEVICE_COMPILER` names, empty where NVRTC is taken if there is one."""

    cache_dir: Path | None
    debug: bool
    device_compiler: str


KNOWN = ("TEXPR_CACHE_DIR", "TEXPR_DEBUG", "TEXPR_DEVICE_COMPILER")


def unknown_variables() -> tuple[str, ...]:
    """A sentence for each `TEXPR_*` variable that means nothing."""
    found = []
    for name in sorted(os.environ):
        if name.startswith("TEXPR_") and name not in KNOWN:
            near = get_close_matches(name, KNOWN, 1)
            found.append(f"unknown environment variable {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return tuple(found)


def _home_cache() -> Path | None:
    """The user's cache folder for TExpr; None where the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "texpr"
    except RuntimeError:
        return None


@cache
def settings() -> Settings:
    """What the environment says."""
    given = os.environ.get("TEXPR_CACHE_DIR", "")
    if given.lower() in ("off", "none", "0"):
        folder = None
    elif given:
        folder = Path(given)
    else:
        folder = _home_cache()
    return Settings(
        cache_dir=folder,
        debug=os.environ.get("TEXPR_DEBUG", "") not in ("", "0"),
        device_compiler=os.environ.get("TEXPR_DEVICE_COMPILER", ""),
    )
