"""The device headers, as files beside this one: which of them a text needs, and what they say."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

INCLUDE = Path(__file__).resolve().parent / "include"


@cache
def included(headers: tuple[str, ...]) -> tuple[str, ...]:
    """These include files and all that they include on a device, by name: what a text that names them needs."""
    reached: set[str] = set()
    work = list(headers)
    while work:
        path = work.pop()
        if path not in reached:
            reached.add(path)
            work += re.findall(r'^#include "(texpr/[^/"]+\.cuh)"$', _header(path), re.MULTILINE)
    return tuple(sorted(reached))


def header_files(paths: Sequence[str]) -> dict[str, str]:
    """The texts of our include files by path, for an artifact that is to be complete."""
    return {path: _header(path) for path in paths}


@cache
def _header(path: str) -> str:
    return (INCLUDE / path).read_text(encoding="utf-8")
