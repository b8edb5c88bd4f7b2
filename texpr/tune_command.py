"""`texpr tune`: measures the best few mappings of a kernel on this machine, and keeps the fastest."""

import json
from argparse import ArgumentTypeError
from pathlib import Path

from texpr.command_line import Command, option, say
from texpr.command_options import (
    AS_JSON,
    FILE,
    INPUTS,
    KERNEL,
    RUN_DEFINES,
    SEED,
    definitions,
    kernel_of,
    print_json,
    target_option,
)
from texpr.commands import say_findings


def tune(
    file: Path,
    define: list[str] | None,
    kernel: str | None,
    target: str,
    seed: int,
    inputs: Path | None,
    dynamic: list[str] | None,
    count: int,
    rounds: int,
    unchecked: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure the best few mappings on this machine, and keep the fastest for --tuned."""
    from texpr.inspect import progress, write_whole
    from texpr.polyhedral.mapped.candidate_json import choices_json
    from texpr.tuning import tune as tuned

    program = kernel_of(file, kernel)
    sizes, types, scalars = definitions(define, program.scalars)
    with progress(f"tuning {file}") as bar:
        found = tuned(
            program,
            target,
            sizes=sizes,
            types=types,
            scalars=scalars,
            inputs=inputs,
            dynamic=dynamic or (),
            count=count,
            rounds=rounds,
            seed=seed,
            check=not unchecked,
            bar=bar,
            warned=None if as_json else say_findings,
        )
    if output is not None:
        write_whole(output, (json.dumps(choices_json(found.choices), indent=1) + "\n").encode())
    if as_json:
        print_json(found.to_json())
    else:
        say(str(found))


def _few(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 1000 and len(text) < 9):
        raise ArgumentTypeError(f"{text[:40]!r} is no number from 1 to 1000")
    return int(text)


TUNE = Command(
    name="tune",
    run=tune,
    options=(
        FILE,
        RUN_DEFINES,
        KERNEL,
        target_option("cpu"),
        SEED,
        INPUTS,
        option("--dynamic", action="append", metavar="NAME", help="a size that stays dynamic, measured at its value"),
        option("--count", type=_few, default=8, metavar="NUMBER", help="how many are measured beside the usual one"),
        option("--rounds", type=_few, default=9, metavar="NUMBER", help="in which all take turns, in a random order"),
        option("--no-check", dest="unchecked", action="store_true", help="do not compare it with the interpreter"),
        option("--output", "-o", type=Path, metavar="FILE", help="write the fastest mapping, for --mapping FILE"),
        AS_JSON,
    ),
)
