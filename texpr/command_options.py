"""What the commands of `texpr` are given: arguments and options, sizes and scalars by `-D`, a kernel of a file."""

import json
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from texpr.command_line import USAGE, Option, complain, option, say
from texpr.grammar.diagnostics import TExprError, fail

if TYPE_CHECKING:
    from texpr.kernels import Kernel
    from texpr.modules import Module
    from texpr.polyhedral.mapped.candidate import Choices

MAX_JSON_BYTES = 64 << 20  # of a mapping: one of many launches has as many trees
MAX_NUMBER = 400  # characters of a scalar's value
NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|inf|nan)")
Number = int | float | bool

T = TypeVar("T")

FILE = option("file", type=Path, metavar="FILE[:KERNEL]", help="a .tex, .texpr or .py file; a .py is read, never run")
DEFINES = option("-D", dest="define", action="append", metavar="NAME=VALUE", help="a size, or a buffer's type")
RUN_DEFINES = option(
    "-D",
    dest="define",
    action="append",
    metavar="NAME=VALUE",
    help="a size, a scalar parameter's value, or a buffer's type",
)
KERNEL = option("--kernel", "-k", metavar="NAME", help="the kernel, where a file has several")
AS_JSON = option("--json", dest="as_json", action="store_true", help="print data as JSON")
MAPPING = option(
    "--mapping", type=Path, metavar="FILE", help="choices of the mapping: what `map --json` printed, or edited"
)
TUNED = option("--tuned", action="store_true", help="the mapping that `texpr tune` kept for this machine")
INPUTS = option("--input", dest="inputs", type=Path, metavar="FILE", help="an .npz with arrays by parameter name")
HINTS = option("--hint", dest="hint", action="append", metavar="NAME=VALUE", help="cost of a dynamic size")

OBJECTIVE = option(
    "--objective",
    default="time",
    metavar="time|distance|milp",
    help="what lanes are chosen for: the least time, or neighbours that touch what is nearest (milp: by a solver)",
)


def target_option(default: str) -> Option:
    """Which target a command compiles for, where none is said."""
    help = f"cpu, cuda (this machine's GPU), cuda:sm_XX or cuda-host:sm_XX; {default} where none is said"
    return option("--target", "-t", default=default, metavar="TARGET", help=help)


COMPILED = (FILE, DEFINES, KERNEL, target_option("cuda:sm_90a"), HINTS, OBJECTIVE, MAPPING, TUNED)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ArgumentTypeError(f"{text[:40]!r} is no natural number")
    return int(text)


SEED = option("--seed", type=_natural, default=0, metavar="NUMBER", help="of the random inputs")


def print_json(value: object) -> None:
    say(json.dumps(value, indent=1))


def usage(why: str) -> SystemExit:
    """Wrong use, said; to be raised."""
    complain(f"usage: {why}")
    return SystemExit(USAGE)


def definitions(
    given: list[str] | None, scalars: Collection[str] = ()
) -> tuple[dict[str, int], dict[str, str], dict[str, Number]]:
    """Sizes, types and scalars from `-D NAME=VALUE`: for a name of `scalars` any number; else an integer is a size, and
    a type name a buffer's type. Exit 2 otherwise."""
    from texpr.grammar.types import ELEMENT_TYPES

    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    values: dict[str, Number] = {}
    for text in given or ():
        name, equal, value = text.partition("=")
        if not equal or not name.isidentifier() or not name.isascii():
            raise usage(f"-D wants NAME=VALUE, not {text[:80]!r}")
        if name in scalars:
            number = _number(value)
            if number is None:
                raise usage(f"-D {name[:40]}: {value[:40]!r} is no number, and {name[:40]} is a scalar parameter")
            _set_once(values, name, number)
        elif value in ELEMENT_TYPES:
            _set_once(types, name, value)
        elif value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20:
            _set_once(sizes, name, int(value))
        else:
            help = "; `texpr run` takes other numbers for scalar parameters" if _number(value) is not None else ""
            raise usage(f"-D {name[:40]}: {value[:40]!r} is neither an integer nor an element type{help}")
    return sizes, types, values


def _set_once(found: dict[str, T], name: str, value: T) -> None:
    if repr(found.setdefault(name, value)) != repr(value):  # a NaN is not equal to itself
        raise usage(f"-D {name[:40]} has two values, {found[name]} and {value}")


def _number(text: str) -> Number | None:
    """The number, or the truth, that a short text writes."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) > MAX_NUMBER or not NUMBER.fullmatch(text):
        return None
    number = int(text) if text.removeprefix("-").isdigit() else float(text)
    return None if abs(number) == math.inf and not text.endswith("inf") else number


def kernels_of(file: Path, name: str | None = None) -> "tuple[Kernel, ...]":
    """The kernels of FILE, or the one that FILE:KERNEL or `name` names. Exit 2 where they name two."""
    path, colon, own = str(file).rpartition(":")
    if colon and own.isidentifier() and not file.exists():
        if name not in (None, own):
            raise usage(f"{file} names {own}, and --kernel {name}")
        file, name = Path(path), own
    module = _loaded(file, name)
    return tuple(module) if name is None else (module[name],)


def _loaded(file: Path, name: str | None) -> "Module":
    """The kernels of a file; only what reads its language is loaded."""
    if file.suffix == ".py":
        from texpr.python_files import load_python

        return load_python(file, name)
    from texpr.frontends import load

    return load(file)


def with_own_sizes(
    file: Path, types: Mapping[str, str], sizes: Mapping[str, int]
) -> "Iterator[tuple[Kernel, dict[str, int]]]":
    """The kernels of FILE, each with those of the given sizes that it has and does not leave dynamic. Raises E0211 for
    a size that no kernel has."""
    kernels = kernels_of(file)
    apart = file.suffix == ".py"  # its kernels know nothing of one another
    known = {kernel.name: _sizes_of(kernel, otherwise=sizes) for kernel in kernels} if apart else {}
    for kernel in kernels:
        foreign = set().union(*known.values()) - known.get(kernel.name, set())
        given = {name: value for name, value in sizes.items() if name not in foreign}
        own = _sizes_of(kernel, otherwise=given, types=types, sizes=given) - set(kernel.dynamic)
        yield kernel, {name: value for name, value in given.items() if name in own}


def _sizes_of(kernel: "Kernel", *, otherwise: Iterable[str], **given: Any) -> set[str]:
    """The names of a kernel's sizes; `otherwise` where it is wrong: compiling says why."""
    try:
        return {size.name for size in kernel.core(**given).sizes}
    except TExprError:
        return set(otherwise)


def kernel_of(file: Path, name: str | None) -> "Kernel":
    """The one kernel that a command works on. Exit 2 where the file has none, or several and none is named."""
    kernels = kernels_of(file, name)
    if not kernels:
        raise usage(f"{file} has no kernel")
    if len(kernels) != 1:
        names = ", ".join(kernel.name for kernel in kernels)
        raise usage(f"{file} has {names}; name one: {file}:{kernels[0].name}")
    return kernels[0]


def json_in(path: Path) -> Any:
    """What a JSON file holds. Raises E0606 for a file that is no JSON."""
    from texpr.frontends import read_text

    text = read_text(path, MAX_JSON_BYTES)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as why:
        raise fail("E0606", f"{path} is not JSON: {str(why)[:200]}") from None


def choices_in(path: Path | None) -> "Choices | None":
    """The choices in a JSON file, their own or those of `texpr map --json`. Raises E0606 for a file that is no JSON,
    and E0607 for one that holds something else."""
    if path is None:
        return None
    from texpr.polyhedral.mapped.candidate_json import read_choices

    data = json_in(path)
    return read_choices(data["candidate"] if isinstance(data, Mapping) and "candidate" in data else data)
