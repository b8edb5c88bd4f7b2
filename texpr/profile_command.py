"""`texpr profile`: what ncu counts of a kernel on a GPU, beside what the mapping predicts, by line."""

import tempfile
from pathlib import Path
from typing import Any

from texpr.command_line import Command, option, say
from texpr.command_options import (
    AS_JSON,
    FILE,
    INPUTS,
    KERNEL,
    MAPPING,
    RUN_DEFINES,
    SEED,
    TUNED,
    choices_in,
    definitions,
    kernel_of,
    print_json,
    target_option,
    usage,
)
from texpr.commands import say_findings

IMPORTED = option(
    "--import",
    dest="imported",
    type=Path,
    action="append",
    metavar="FILE",
    help="a report made elsewhere: ncu's source page as CSV (and its raw page), or an .ncu-rep",
)


def profile(
    file: Path,
    define: list[str] | None,
    kernel: str | None,
    target: str,
    mapping: Path | None,
    tuned: bool,
    seed: int,
    inputs: Path | None,
    imported: list[Path] | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Count requests and sectors by line with ncu, beside the mapping's predictions."""
    from texpr.codegen.line_table import line_tables
    from texpr.counters import read_report
    from texpr.execute import cubin_of
    from texpr.figures_json import figures_json
    from texpr.profiling import profile as profiled

    program = kernel_of(file, kernel)
    sizes, types, _ = definitions(define, program.scalars)
    compiled = program.compile(target, types=types, sizes=sizes, mapping=choices_in(mapping), tuned=tuned)
    if not compiled.target.startswith("cuda:"):
        raise usage("profile counts on a GPU: the target is cuda, or cuda:sm_XX of this machine")
    tables = line_tables(cubin_of(compiled.build))
    if imported is None:
        pages = _measured(compiled, tables, file, define, kernel, mapping, tuned, seed, inputs)
    else:
        pages = [page for path in imported for page in _pages(path)]
    if not as_json:
        say_findings(compiled.warnings, compiled.dynamic)
    counts, title = read_report(pages), f"{compiled.name} on {compiled.target}"
    accesses = figures_json(compiled.mapping.program)["accesses"]
    found = profiled(title, accesses, tables, counts, lines_of(compiled))
    if html is not None:
        from texpr.inspect import write_whole

        counted = [{**entry, "counted": found.counted(entry)} for entry in accesses]
        write_whole(html, compiled.mapping.page({**compiled.mapping.data(), "accesses": counted}).encode())
    if as_json:
        print_json({"kernel": compiled.name, "target": compiled.target, **found.to_json()})
    else:
        say(str(found))


def _measured(
    compiled: Any,
    tables: Any,
    file: Path,
    define: list[str] | None,
    kernel: str | None,
    mapping: Path | None,
    tuned: bool,
    seed: int,
    inputs: Path | None,
) -> list[str]:
    """The pages of a report that is made here, of `texpr run` with the same arguments."""
    from texpr.counters import measured
    from texpr.inspect import progress

    arguments = ["run", str(file), "--target", compiled.target, "--seed", str(seed)]
    arguments += [f"-D{text}" for text in define or ()]
    for name, value in (("--kernel", kernel), ("--mapping", mapping), ("--input", inputs)):
        arguments += [name, str(value)] if value is not None else []
    arguments += ["--tuned"] if tuned else []
    with tempfile.TemporaryDirectory() as folder, progress(f"profiling {file}"):
        return measured(arguments, list(tables), Path(folder))


def _pages(path: Path) -> list[str]:
    from texpr.counters import MAX_REPORT_BYTES, pages
    from texpr.frontends import read_text

    return pages(path) if path.suffix == ".ncu-rep" else [read_text(path, MAX_REPORT_BYTES)]


def lines_of(compiled: Any) -> dict[tuple[str, int], str]:
    """The lines of the program's own text."""
    from texpr.codegen.cuda.names import file_name

    source = compiled.build.kernel.span.source
    lines = enumerate(source.text.splitlines(), source.first_line)
    return {(file_name(source.name), number): text for number, text in lines}


PROFILE = Command(
    name="profile",
    run=profile,
    options=(
        FILE,
        RUN_DEFINES,
        KERNEL,
        target_option("cuda"),
        MAPPING,
        TUNED,
        SEED,
        INPUTS,
        IMPORTED,
        option("--html", type=Path, metavar="FILE", help="write the mapping's page with what was counted"),
        AS_JSON,
    ),
)
