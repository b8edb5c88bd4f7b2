"""The lines that a Python function was compiled from.

Python keeps no text of what it imports, and a file may change after that. So `linecache` keeps the text that was read
first, and a text counts only if, compiled again, it holds the function's own code. Of the files that code objects name,
only plain ones of bounded length are read: `exec` may call its text `/dev/zero`.
"""

import __future__

import ast
import linecache
import stat
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

from texpr.grammar.diagnostics import TExprError, fail

MAX_FILE_BYTES = 16 << 20
_FUTURE_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def hold_text(function: FunctionType) -> None:
    """Keep the text of a function's file as it is now, for a kernel that reads the function later."""
    try:
        _held(function)
    except TExprError:
        return  # said when the function is read


def lines_of(function: FunctionType) -> list[str] | None:
    """All lines of the file that `function` was compiled from; empty where there is no text, None where the text is
    another by now. Raises E0106 for what is no plain file, E0103 for one that is too large."""
    code = function.__code__
    lines = _held(function)
    if lines and not _holds(lines, code) and _is_of_disk(code.co_filename):
        linecache.cache.pop(code.co_filename, None)  # it was read before the file was imported once more
        lines = _held(function)
    return lines if not lines or _holds(lines, code) else None


def _is_of_disk(name: str) -> bool:
    """Whether the lines that `linecache` has are a file's, which it knows the time of; those of a cell have none."""
    entry = linecache.cache.get(name, ())
    return len(entry) == 4 and entry[1] is not None


def _held(function: FunctionType) -> list[str]:
    """The lines that `linecache` has, or reads now."""
    name = function.__code__.co_filename
    if len(linecache.cache.get(name, ())) != 4:  # it would open a file
        _check_file(name)
    return linecache.getlines(name, function.__globals__)


def _check_file(name: str) -> None:
    """Refuse what `linecache` would read for a name, if it is no plain file of bounded length."""
    folders = [Path(folder) for folder in sys.path if isinstance(folder, str)]  # where it looks for a relative name
    for place in (Path(name), *(folder / name for folder in folders)):
        try:
            status = place.stat()
        except (OSError, ValueError):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise fail("E0106", f"{name} is named as the source of a function, and is not a file")
        if status.st_size > MAX_FILE_BYTES:
            raise fail("E0103", f"{name} is larger than {MAX_FILE_BYTES} bytes")
        return


def _holds(lines: list[str], code: CodeType) -> bool:
    """Whether a text gives this very code, line numbers and columns included."""
    return code in _codes("".join(lines), code.co_flags & _FUTURE_FLAGS).get((code.co_name, code.co_firstlineno), ())


@lru_cache(maxsize=8)
def _codes(text: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """The code of every function of a text, by name and first line; empty for a text that is no Python."""
    try:
        with warnings.catch_warnings():  # of the text's author, who saw them at the import
            warnings.simplefilter("ignore")
            # A notebook's cell may await.
            module = compile(text, "", "exec", flags=flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, MemoryError):
        return {}
    found: dict[tuple[str, int], list[CodeType]] = {}
    stack = [module]
    while stack:
        code = stack.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        stack += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found
