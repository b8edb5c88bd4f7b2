"""`texpr map`: where everything runs, as words, as data, as a page, as pictures; why an access is made as it is."""

import shutil
from pathlib import Path
from textwrap import fill
from typing import Any, Unpack

from texpr.command_line import Command, option, say
from texpr.command_options import AS_JSON, COMPILED, usage
from texpr.commands import Given, compiled_of, say_findings


def map_command(
    alternatives: bool,
    explain: str | None,
    html: Path | None,
    svg: Path | None,
    as_json: bool,
    **given: Unpack[Given],
) -> None:
    """Show where everything runs: grid, block, digits, buffers, access relations, required orders."""
    compiled = compiled_of(given, "map")
    if explain is not None and as_json:
        raise usage("--explain is in words, and --json has the figures of every access")
    if html is not None or svg is not None:
        _draw(compiled, html, svg)
    if as_json:
        from texpr.mapping_json import mapping_text

        say(mapping_text(_data(compiled)))
    elif explain is not None:
        _explain(compiled, explain)
    elif html is None and svg is None:
        say_findings(compiled.warnings, compiled.dynamic)
        say(str(compiled.mapping))
        if alternatives:
            from texpr.alternatives import table

            say(table(compiled.mapping.alternatives()))


def _data(compiled: Any) -> dict[str, Any]:
    from texpr.ran import findings

    return {**compiled.mapping.data(), **findings(compiled.dynamic, compiled.warnings)}


def _draw(compiled: Any, html: Path | None, svg: Path | None) -> None:
    """Write the page and the pictures, each whole."""
    from texpr.inspect import write_whole
    from texpr.page import drawing

    if svg is not None:
        write_whole(svg, drawing(compiled.mapping.data()).encode())
    if html is not None:
        write_whole(html, compiled.mapping.page().encode())
    say(", ".join(str(path) for path in (html, svg) if path is not None))


def _explain(compiled: Any, name: str) -> None:
    from texpr.explain_access import explained, found_accesses, next_best

    data = compiled.mapping.data()
    found = found_accesses(data, name)
    launches = {entry["launch"] for entry in found}
    parts = [explained(data, entry) for entry in found]
    parts += [next_best(one) for one in compiled.mapping.alternatives() if one.launch in launches]
    columns = max(20, shutil.get_terminal_size().columns - 1)
    for number, part in enumerate(parts):
        if number:
            say("")
        for head, paragraph in enumerate(part):
            more = "  " if head else ""
            say(fill(paragraph, columns, initial_indent=more, subsequent_indent="    ", break_long_words=False))


MAP = Command(
    name="map",
    run=map_command,
    options=(
        *COMPILED,
        option("--alternatives", action="store_true", help="what else could be chosen, and what it costs"),
        option("--explain", metavar="ACCESS", help="why an access is made so: `A[i, j]`, a statement or a buffer"),
        option("--html", type=Path, metavar="FILE", help="write one page with figures and pictures"),
        option("--svg", type=Path, metavar="FILE", help="write the pictures"),
        AS_JSON,
    ),
)
