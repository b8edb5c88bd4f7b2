"""The command line: which commands there are, what each is given, and how it ends.

Exit codes: 0 right, 1 the program is wrong, 2 wrong usage, 3 the environment lacks something, 70 our defect;
`texpr/entry.py` adds 128 + n for signal n.
"""

import errno
import traceback
import warnings
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from pathlib import Path

from texpr.cache_commands import CACHE_COMMANDS
from texpr.command_line import Command, called, complain, option
from texpr.command_options import (
    AS_JSON,
    COMPILED,
    DEFINES,
    FILE,
    INPUTS,
    KERNEL,
    MAPPING,
    RUN_DEFINES,
    SEED,
    TUNED,
    target_option,
)
from texpr.commands import RIGHT, WRONG, bench, build, check, doctor, explain, fmt, graph, run, version
from texpr.compare_command import COMPARE
from texpr.grammar.diagnostics import TExprError, TExprWarning
from texpr.grammar.paths import NO_ROOM
from texpr.map_command import MAP
from texpr.profile_command import PROFILE
from texpr.sass_command import SASS
from texpr.trace_command import TRACE
from texpr.tune_command import TUNE
from texpr.verify_command import VERIFY
from texpr.version import VERSION

ENVIRONMENT, DEFECT = 3, 70
_ENVIRONMENT_CODES = ("E0503", "E0505", "E0605", "E0608", "E0609")
_DEFECT_CODES = ("E0504",)

_TRIED = (FILE, RUN_DEFINES, KERNEL, target_option("cpu"), MAPPING, TUNED, SEED, INPUTS)
_COMPARED = "compare with the interpreter in float64; --check=full: all of a large run"
COMMANDS = (
    Command(name="check", run=check, options=(FILE, DEFINES, AS_JSON)),
    Command(
        name="fmt",
        run=fmt,
        options=(
            option("files", nargs="+", type=Path, metavar="FILE", help="files to format in place"),
            option(
                "--check", dest="only_check", action="store_true", help="write nothing; exit 1 if a file would change"
            ),
        ),
    ),
    MAP,
    VERIFY,
    COMPARE,
    Command(name="graph", run=graph, options=COMPILED),
    Command(
        name="build",
        run=build,
        options=(
            *COMPILED,
            option(
                "--output",
                "-o",
                type=Path,
                required=True,
                metavar="FOLDER",
                help="the artifact's folder; an older one is replaced",
            ),
            option("--source-only", action="store_true", help="write text, no binary"),
        ),
    ),
    Command(
        name="run",
        run=run,
        options=(
            *_TRIED,
            option("--output", type=Path, metavar="FILE", help="write all arrays to this .npz"),
            option("--check", action="store_true", help=_COMPARED),
            option("--check-full", dest="full", action="store_true", help=SUPPRESS),
            AS_JSON,
        ),
        spelled={"--check=full": "--check-full"},
    ),
    Command(name="bench", run=bench, options=(*_TRIED, AS_JSON)),
    TUNE,
    PROFILE,
    SASS,
    Command(name="explain", run=explain, options=(option("code", metavar="CODE", help="a code such as E0301"),)),
    TRACE,
    *CACHE_COMMANDS,
    Command(name="doctor", run=doctor, options=(AS_JSON,)),
    Command(name="version", run=version),
)


def run_command(arguments: Sequence[str]) -> int | None:
    """The exit code of the command that the arguments of a process name; SystemExit for wrong use."""
    about = "TExpr: tensor kernels, proved, mapped and compiled ahead of time."
    return called(COMMANDS, about, VERSION, arguments)


def _exit_code(wrong: TExprError) -> int:
    codes = [d.code for d in wrong.diagnostics]
    if any(code in _DEFECT_CODES for code in codes):
        return DEFECT
    return ENVIRONMENT if codes and all(code in _ENVIRONMENT_CODES for code in codes) else WRONG


def guarded(run: Callable[[], int | None]) -> int:
    """The exit code of a command: diagnostics are printed, a defect of ours says so and exits 70."""
    from texpr.settings import settings, unknown_variables

    for sentence in unknown_variables():
        complain(f"warning: {sentence}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TExprWarning)  # the commands print them as diagnostics
            return run() or RIGHT
    except TExprError as wrong:
        complain(str(wrong))
        return _exit_code(wrong)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else RIGHT if stop.code is None else WRONG
    except MemoryError:
        complain("error: this machine has not enough memory for it")
        return ENVIRONMENT
    except Exception as defect:  # whatever is left is a defect of TExpr, and is said to be one
        if isinstance(defect, OSError) and defect.errno in NO_ROOM | {errno.EBADF, errno.EAGAIN}:  # printing failed
            complain(f"error: the output cannot be written: {defect.strerror}")
            return ENVIRONMENT
        if settings().debug:
            traceback.print_exc()
        kind = type(defect).__name__
        complain(f"internal error: {kind}: {str(defect)[:500]}\nThis is a defect of TExpr; please report it.")
        complain("TEXPR_DEBUG=1 prints where it happened.")
        return DEFECT
