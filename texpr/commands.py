"""What the commands of `texpr` do; each returns its exit code, None for 0. Libraries load inside them: `texpr version`
needs none."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from texpr.command_line import complain, say
from texpr.command_options import choices_in, definitions, kernel_of, print_json, usage, with_own_sizes
from texpr.grammar.diagnostics import Diagnostic, TExprError, did_you_mean, fail, first
from texpr.version import VERSION

RIGHT, WRONG = 0, 1


def say_findings(found: Iterable[Diagnostic], dynamic: tuple[str, ...] = ()) -> None:
    """Print warnings, and which sizes a launch solves."""
    for warning in found:
        complain(f"{warning}\n")
    if dynamic:
        which = f"sizes {', '.join(dynamic)} are" if len(dynamic) > 1 else f"size {dynamic[0]} is"
        complain(f"note: {which} dynamic: solved at launch; -D NAME=VALUE binds a size")


def check(file: Path, define: list[str] | None, as_json: bool) -> int:
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
            complain(str(diagnostic) + "\n")
        if not errors:
            say(f"{file}: {', '.join(names)}: no races, all accesses in bounds" if names else f"{file}: no kernel")
    return WRONG if errors else RIGHT


def fmt(files: list[Path], only_check: bool) -> int:
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
            say(f"would format {file}")
        else:
            from texpr.inspect import write_whole

            write_whole(file, formatted.encode())
            say(f"formatted {file}")
    return WRONG if only_check and changed else RIGHT


class Given(TypedDict):
    """What the options of `COMPILED` give."""

    file: Path
    define: list[str] | None
    kernel: str | None
    target: str
    hint: list[str] | None
    objective: Literal["time", "distance", "milp"]
    mapping: Path | None
    tuned: bool


def compiled_of(given: Given, stop_after: str | None = None) -> Any:
    """The kernel that the options name, compiled up to a stage."""
    sizes, types, _ = definitions(given["define"])
    values, wrong, _ = definitions(given["hint"])
    if wrong:
        raise usage("--hint wants NAME=INTEGER")
    program, choices = kernel_of(given["file"], given["kernel"]), choices_in(given["mapping"])
    return program.compile(
        given["target"],
        types=types,
        sizes=sizes,
        hints=values,
        objective=given["objective"],
        mapping=choices,
        tuned=given["tuned"],
        stop_after=stop_after,
    )


def graph(**given: Unpack[Given]) -> None:
    """Show the planned program: the mapping with whole statements, and where every buffer lies."""
    compiled = compiled_of(given, "plan")
    say_findings(compiled.warnings, compiled.dynamic)
    say(str(compiled.graph))


def build(output: Path, source_only: bool, **given: Unpack[Given]) -> None:
    """Compile a kernel and write its artifact: text, headers, C header, cubin, manifest."""
    compiled = compiled_of(given, "emit" if source_only else None)
    say_findings(compiled.warnings, compiled.dynamic)
    folder = compiled.save(output, source_only=source_only)
    say(f"{compiled.name} for {compiled.target} in {folder}")
    if compiled.target.startswith("cuda:") and not source_only:
        from texpr.execute import occupancy_of

        for symbol, taken in occupancy_of(compiled.build).items():
            say(f"  {symbol}: {taken}")


def run(
    file: Path,
    define: list[str] | None,
    kernel: str | None,
    target: str,
    mapping: Path | None,
    tuned: bool,
    seed: int,
    inputs: Path | None,
    output: Path | None,
    check: bool,
    full: bool,
    as_json: bool,
) -> int:
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
            tuned=tuned,
            seed=seed,
            inputs=inputs,
            output=output,
            check=check or full,
            full=full,
            bar=bar,
            warned=None if as_json else say_findings,
        )
    if as_json:
        print_json(report.to_json())
    else:
        say(str(report))
    return RIGHT if report.passed else WRONG


def bench(
    file: Path,
    define: list[str] | None,
    kernel: str | None,
    target: str,
    mapping: Path | None,
    tuned: bool,
    seed: int,
    inputs: Path | None,
    as_json: bool,
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
            tuned=tuned,
            seed=seed,
            inputs=inputs,
            warned=None if as_json else say_findings,
        )
    if as_json:
        print_json(report.to_json())
    else:
        say(str(report))


def explain(code: str) -> None:
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
    say("\n\n".join(part for part in parts if part))


def doctor(as_json: bool) -> None:
    """Say what this machine offers: compilers, GPU, libraries, cache, settings."""
    from texpr.inspect import doctor_report

    report = doctor_report()
    if as_json:
        print_json(report)
    else:
        for name, value in report.items():
            say(f"{name:<14} {value}")


def version() -> None:
    """Print the version."""
    say(VERSION)
