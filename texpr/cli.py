"""The command line: check, fmt, map, graph, build, run, bench, explain, cache, doctor, version.

Exit codes: 0 right, 1 the program is wrong, 2 wrong usage, 3 the environment lacks something, 70 our defect;
`texpr/entry.py` adds 128 + n for signal n. Libraries load inside the commands: `texpr version` needs none of them.
"""

import errno
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from texpr.cache_commands import cache_app
from texpr.command_options import (
    AsJson,
    Defines,
    File,
    Hints,
    Inputs,
    KernelName,
    MappingFile,
    RunDefines,
    Seed,
    TargetName,
    choices_in,
    definitions,
    kernel_of,
    print_json,
    usage,
    with_own_sizes,
)
from texpr.grammar.diagnostics import Diagnostic, TExprError, TExprWarning, did_you_mean, fail, first
from texpr.grammar.paths import NO_ROOM

RIGHT, WRONG, ENVIRONMENT, DEFECT = 0, 1, 3, 70
_ENVIRONMENT_CODES = ("E0503", "E0505", "E0605", "E0608")
_DEFECT_CODES = ("E0504",)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cache_app, name="cache")


def _print_version(asked: bool) -> None:
    if asked:
        from texpr.version import VERSION

        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """TExpr: tensor kernels, proved, mapped and compiled ahead of time."""


def _say(found: Iterable[Diagnostic], dynamic: tuple[str, ...] = ()) -> None:
    """Print warnings, and which sizes a launch solves."""
    for warning in found:
        typer.echo(f"{warning}\n", err=True)
    if dynamic:
        which = f"sizes {', '.join(dynamic)} are" if len(dynamic) > 1 else f"size {dynamic[0]} is"
        typer.echo(f"note: {which} dynamic: solved at launch; -D NAME=VALUE binds a size", err=True)


@app.command()
def check(file: File, define: Defines = None, as_json: AsJson = False) -> None:
    """Prove every kernel of a file free of races, undefined reads and accesses out of bounds."""
    sizes, types, _ = definitions(define)
    found: list[Diagnostic] = []
    names: list[str] = []
    try:
        for kernel, own in with_own_sizes(file, types, sizes):
            names.append(kernel.name)
            try:
                made = kernel.compile(types=types, sizes=own, stop_after="prove")
                found += [warning for warning in made.warnings if warning not in found]
            except TExprError as wrong:
                found += [d for d in wrong.diagnostics if d not in found]
    except TExprError as wrong:
        found += wrong.diagnostics
    errors = sum(d.severity.value == "error" for d in found)
    found = list(first(found))
    if as_json:
        print_json({"file": str(file), "kernels": names, "diagnostics": [d.to_json() for d in found]})
    else:
        for diagnostic in found:
            typer.echo(str(diagnostic) + "\n", err=True)
        if not errors:
            typer.echo(
                f"{file}: {', '.join(names)}: no races, all accesses in bounds" if names else f"{file}: no kernel"
            )
    raise typer.Exit(WRONG if errors else RIGHT)


@app.command()
def fmt(
    files: Annotated[list[Path], typer.Argument(help="files to format in place")],
    only_check: Annotated[bool, typer.Option("--check", help="write nothing; exit 1 if a file would change")] = False,
) -> None:
    """Format files in place; comments stay."""
    from texpr.frontends import read_text
    from texpr.grammar.source import SourceText
    from texpr.grammar.text.parser import parse
    from texpr.grammar.text.printer import print_module

    changed = 0
    for file in files:
        if file.suffix == ".py":
            raise fail(
                "E0606", f"{file} is Python, and fmt formats .tex and .texpr files", help="use a formatter of Python"
            )
        text = read_text(file)
        formatted = print_module(parse(SourceText(str(file), text)))
        if formatted == text:
            continue
        changed += 1
        if only_check:
            typer.echo(f"would format {file}")
        else:
            from texpr.inspect import write_whole

            write_whole(file, formatted.encode())
            typer.echo(f"formatted {file}")
    raise typer.Exit(WRONG if only_check and changed else RIGHT)


def _compile(
    file: Path,
    name: str | None,
    target: str,
    define: list[str] | None,
    hints: list[str] | None,
    mapping: Path | None,
    stop_after: str | None,
) -> Any:
    sizes, types, _ = definitions(define)
    values, wrong, _ = definitions(hints)
    if wrong:
        raise usage("--hint wants NAME=INTEGER")
    program, choices = kernel_of(file, name), choices_in(mapping)
    return program.compile(target, types=types, sizes=sizes, hints=values, mapping=choices, stop_after=stop_after)


@app.command(name="map")
def map_command(
    file: File,
    define: Defines = None,
    kernel: KernelName = None,
    target: TargetName = "cuda:sm_90a",
    hint: Hints = None,
    mapping: MappingFile = None,
    alternatives: Annotated[
        bool, typer.Option("--alternatives", help="what else could be chosen, and what it costs")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show where everything runs: grid, block, digits, buffers, access relations, required orders."""
    compiled = _compile(file, kernel, target, define, hint, mapping, "map")
    if as_json:
        from texpr.mapping_json import mapping_json
        from texpr.ran import findings

        print_json({**mapping_json(compiled.mapping.program), **findings(compiled.dynamic, compiled.warnings)})
    else:
        _say(compiled.warnings, compiled.dynamic)
        typer.echo(str(compiled.mapping))
        if alternatives:
            from texpr.alternatives import table

            typer.echo(table(compiled.mapping.alternatives()))


@app.command()
def graph(
    file: File,
    define: Defines = None,
    kernel: KernelName = None,
    target: TargetName = "cuda:sm_90a",
    hint: Hints = None,
    mapping: MappingFile = None,
) -> None:
    """Show the planned program: the mapping with whole statements, and where every buffer lies."""
    compiled = _compile(file, kernel, target, define, hint, mapping, "plan")
    _say(compiled.warnings, compiled.dynamic)
    typer.echo(str(compiled.graph))


@app.command()
def build(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", help="the artifact's folder; an older one is replaced")],
    define: Defines = None,
    kernel: KernelName = None,
    target: TargetName = "cuda:sm_90a",
    hint: Hints = None,
    mapping: MappingFile = None,
    source_only: Annotated[bool, typer.Option("--source-only", help="write text, no binary")] = False,
) -> None:
    """Compile a kernel and write its artifact: text, headers, C header, cubin, manifest."""
    compiled = _compile(file, kernel, target, define, hint, mapping, None)
    _say(compiled.warnings, compiled.dynamic)
    folder = compiled.save(output, source_only=source_only)
    typer.echo(f"{compiled.name} for {compiled.target} in {folder}")


class RunCommand(TyperCommand):
    """`run`, where the flag `--check` may have the value `full`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--check-full" if given == "--check=full" else given for given in args])


@app.command(cls=RunCommand)
def run(
    file: File,
    define: RunDefines = None,
    kernel: KernelName = None,
    target: TargetName = "cpu",
    mapping: MappingFile = None,
    seed: Seed = 0,
    inputs: Inputs = None,
    output: Annotated[Path | None, typer.Option("--output", help="write all arrays to this .npz")] = None,
    verify: Annotated[
        bool, typer.Option("--check", help="compare with the interpreter in float64; --check=full: all of a large run")
    ] = False,
    full: Annotated[bool, typer.Option("--check-full", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Run a kernel on seeded random arrays and scalars, or on those of an .npz and of -D."""
    from texpr.inspect import progress
    from texpr.trial import run_trial

    program = kernel_of(file, kernel)
    sizes, types, scalars = definitions(define, program.scalars)
    with progress(f"running {file}") as bar:
        report = run_trial(
            program,
            target,
            sizes=sizes,
            types=types,
            scalars=scalars,
            mapping=choices_in(mapping),
            seed=seed,
            inputs=inputs,
            output=output,
            check=verify or full,
            full=full,
            bar=bar,
            warned=None if as_json else _say,
        )
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(str(report))
    raise typer.Exit(RIGHT if report.passed else WRONG)


@app.command()
def bench(
    file: File,
    define: RunDefines = None,
    kernel: KernelName = None,
    target: TargetName = "cpu",
    mapping: MappingFile = None,
    seed: Seed = 0,
    inputs: Inputs = None,
    as_json: AsJson = False,
) -> None:
    """Time a kernel with warm and cold caches, beside a copy of as many bytes and the roofline."""
    from texpr.bench import run_bench
    from texpr.inspect import progress

    if target.startswith("cuda-host"):
        raise usage("bench times the targets cpu and cuda; a cuda-host kernel runs with checks, one thread at a time")
    program = kernel_of(file, kernel)
    sizes, types, scalars = definitions(define, program.scalars)
    with progress(f"timing {file}"):
        report = run_bench(
            program,
            target,
            sizes=sizes,
            types=types,
            scalars=scalars,
            mapping=choices_in(mapping),
            seed=seed,
            inputs=inputs,
            warned=None if as_json else _say,
        )
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(str(report))


@app.command()
def explain(code: Annotated[str, typer.Argument(help="a code such as E0301")]) -> None:
    """Say what a diagnostic code means and how to mend it."""
    from textwrap import indent

    from texpr.grammar.codes import CODES
    from texpr.grammar.explanations import EXPLANATIONS, Explanation

    entry = CODES.get(code.upper())
    if entry is None:
        close = did_you_mean(code[:20].upper(), CODES, f"codes run from {min(CODES)} to {max(CODES)}")
        raise usage(f"there is no code {code[:20]!r}; {close}")
    more = EXPLANATIONS.get(code.upper(), Explanation(entry.text))
    parts = [f"{code.upper()}: {entry.title}", more.text]
    for wrong, right in more.pairs:
        parts += [f"wrong:\n\n{indent(wrong, '    ')}", f"right:\n\n{indent(right, '    ')}"]
    typer.echo("\n\n".join(part for part in parts if part))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine offers: compilers, GPU, libraries, cache, settings."""
    from texpr.inspect import doctor_report

    report = doctor_report()
    if as_json:
        print_json(report)
    else:
        for name, value in report.items():
            typer.echo(f"{name:<14} {value}")


@app.command()
def version() -> None:
    """Print the version."""
    _print_version(True)


def _exit_code(wrong: TExprError) -> int:
    codes = [d.code for d in wrong.diagnostics]
    if any(code in _DEFECT_CODES for code in codes):
        return DEFECT
    return ENVIRONMENT if codes and all(code in _ENVIRONMENT_CODES for code in codes) else WRONG


def guarded(run: Callable[[], object]) -> int:
    """The exit code of a command: diagnostics are printed, a defect of ours says so and exits 70."""
    from texpr.settings import settings, unknown_variables

    for sentence in unknown_variables():
        typer.echo(f"warning: {sentence}", err=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TExprWarning)  # the commands print them as diagnostics
            run()
    except TExprError as wrong:
        typer.echo(str(wrong), err=True)
        return _exit_code(wrong)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else RIGHT if stop.code is None else WRONG
    except MemoryError:
        typer.echo("error: this machine has not enough memory for it", err=True)
        return ENVIRONMENT
    except Exception as defect:  # whatever is left is a defect of TExpr, and is said to be one
        if isinstance(defect, OSError) and defect.errno in NO_ROOM | {errno.EBADF, errno.EAGAIN}:  # printing failed
            typer.echo(f"error: the output cannot be written: {defect.strerror}", err=True)
            return ENVIRONMENT
        if settings().debug:
            traceback.print_exc()
        kind = type(defect).__name__
        typer.echo(
            f"internal error: {kind}: {str(defect)[:500]}\nThis is a defect of TExpr; please report it.", err=True
        )
        typer.echo("TEXPR_DEBUG=1 prints where it happened.", err=True)
        return DEFECT
    return RIGHT
