"""`texpr compare`: two mappings beside one another, from what `texpr map --json` printed of them."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from texpr.command_line import Command, option, say
from texpr.command_options import AS_JSON, json_in, print_json

KEPT = ("statement", "mode", "relation")
SHOWN = ("d", "per_request", "requests", "width", "memory")
Row = tuple[str, str, str]


def compare(first: Path, second: Path, as_json: bool) -> None:
    """Compare two mappings: their choices, launches, bytes and accesses, where they differ."""
    found = list(differences(*(_mapping(path) for path in (first, second))))
    if as_json:
        print_json([{"what": what, "first": one, "second": other} for what, one, other in found])
        return
    if not found:
        say("the mappings are alike")
        return
    for line in _lines([("", str(first), str(second)), *found], shutil.get_terminal_size().columns):
        say(line)


def _mapping(path: Path) -> Mapping[str, Any]:
    from texpr.grammar.diagnostics import fail
    from texpr.polyhedral.verify.stage import FIELDS, SCHEMA

    data = json_in(path)
    wanted = (*FIELDS, "bytes", "candidate")
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or any(name not in data for name in wanted):
        raise fail("E0606", f"{path} is no mapping of schema {SCHEMA}", help="write it anew: texpr map … --json")
    return data


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Row]:
    """What differs, and how it is in either; of an access that only one has, the other is empty."""
    for name in ("kernel", "target", "representative"):
        yield from _row(name, _words(first[name]), _words(second[name]))
    yield from _of_choices(first["candidate"], second["candidate"])
    for name in dict.fromkeys((*first["bytes"], *second["bytes"])):
        one, other = (data["bytes"].get(name, {}) for data in (first, second))
        for memory in dict.fromkeys((*one, *other)):
            yield from _row(f"{name}: bytes of {memory}", _words(one.get(memory)), _words(other.get(memory)))
    yield from _of_accesses(first, second)


def _of_choices(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Row]:
    mine, theirs = (_launches(c) for c in (one, other))
    if "cases" in one or "cases" in other:
        asked = [[case["when"] for case in c.get("cases", ())] for c in (one, other)]
        yield from _row("cases", *(_words(whens) for whens in asked))
    for name in dict.fromkeys((*mine, *theirs)):
        a, b = mine.get(name, {}), theirs.get(name, {})
        for field in dict.fromkeys((*a, *b)):
            yield from _row(f"{name}: {field}", _words(a.get(field)), _words(b.get(field)))


def _launches(choices: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The launches of all cases, by their names in the mapping."""
    if "cases" not in choices:
        return dict(choices["launches"])
    candidates = [*(case["candidate"] for case in choices["cases"]), choices["otherwise"]]
    every = enumerate(candidates)
    return {f"{name}_case{n}": own for n, candidate in every for name, own in candidate["launches"].items()}


def _of_accesses(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Row]:
    mine, theirs = (_by_name(data) for data in (first, second))
    for name in dict.fromkeys((*mine, *theirs)):
        a, b = mine.get(name), theirs.get(name)
        if a is None or b is None:
            yield f"{name}", _access(a), _access(b)
            continue
        for field in SHOWN:
            yield from _row(f"{name}: {field.replace('_', ' ')}", _words(a[field]), _words(b[field]))


def _by_name(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for entry in data["accesses"]:
        found.setdefault(" ".join(str(entry[name]) for name in KEPT), entry)
    return found


def _access(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return ""
    per = "" if entry["per_request"] is None else f"{entry['per_request']:g} {entry['unit']}"
    return per or str(entry["why"])


def _row(what: str, one: str, other: str) -> Iterator[Row]:
    if one != other:
        yield what, one, other


def _words(value: Any) -> str:
    match value:
        case None:
            return "-"
        case dict():
            return ", ".join(f"{name} {_words(item)}" for name, item in value.items()) or "none"
        case list():
            return " ".join(map(_words, value)) or "none"
        case int() if not isinstance(value, bool):
            return f"{value:,}" if abs(value) > 9999 else str(value)
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def _lines(rows: list[Row], columns: int) -> Iterator[str]:
    """A table where the terminal is wide enough; else what differs over the two of them."""
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    if sum(widths) + 4 <= columns:
        yield from ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return
    for what, one, other in rows:
        if what:
            yield what
        yield f"  {one or '(none)'}"
        yield f"  {other or '(none)'}"


COMPARE = Command(
    name="compare",
    run=compare,
    options=(
        option("first", type=Path, metavar="A.json", help="what `texpr map --json` printed"),
        option("second", type=Path, metavar="B.json", help="the other one"),
        AS_JSON,
    ),
)
