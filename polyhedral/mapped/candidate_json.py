"""Candidates as data, both ways: what `texpr map --json` prints under `candidate`, and `--mapping FILE` reads.

    {"schema": 1, "moves": [], "wide": true, "kept": [], "early": [], "lasting": [], "launches": {
        "vadd_0": {"form": "flat", "threads": 256, "deal": [["i", 256]], "grid": ["i"], "memory": {}}}}
    {"cases": [{"when": "N % 4 == 0", "candidate": {…}}], "otherwise": {…}}

Reading checks the type of every field; what does not fit the kernel is found by `legal.check_candidate`, and by
`cases.resolved` for conditions.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields
from typing import Any

from texpr.grammar.ast import Condition
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.text import in_words
from texpr.polyhedral.mapped.candidate import (
    Blocks,
    Candidate,
    Case,
    Cases,
    Choice,
    Choices,
    Columns,
    Combined,
    Contracted,
    Flat,
    Parted,
    Row,
    Scanned,
    Single,
    Tallied,
    Tiled,
)
from texpr.polyhedral.mapped.on_cores import Cores, Panels
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.when import read_condition
from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Precompute,
    Residues,
    Sink,
    Swap,
    View,
)

CANDIDATE_SCHEMA = 1
MOVES: dict[str, type[Any]] = {
    "fuse": Fuse,
    "swap": Swap,
    "distribute": Distribute,
    "interchange": Interchange,
    "parallelize": Parallelize,
    "sink": Sink,
    "residues": Residues,
    "contract": Contract,
    "expand": Expand,
    "view": View,
    "precompute": Precompute,
}
FORMS: dict[str, type[Choice]] = {
    "single": Single,
    "flat": Flat,
    "blocks": Blocks,
    "columns": Columns,
    "combined": Combined,
    "contracted": Contracted,
    "piped": Piped,
    "ringed": Ringed,
    "tiled": Tiled,
    "parted": Parted,
    "tallied": Tallied,
    "scanned": Scanned,
    "cores": Cores,
    "panels": Panels,
}


def choices_json(choices: Choices) -> dict[str, Any]:
    """A mapping's choices as JSON values."""
    if isinstance(choices, Candidate):
        return candidate_json(choices)
    cases = [{"when": in_words(case.when), "candidate": candidate_json(case.candidate)} for case in choices.cases]
    return {"cases": cases, "otherwise": candidate_json(choices.otherwise)}


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    """The candidate as JSON values."""
    launches = {name: choice_json(choice) for name, choice in candidate.launches.items()}
    return {
        "schema": CANDIDATE_SCHEMA,
        "moves": [_move_json(move) for move in candidate.moves],
        "wide": candidate.wide,
        "kept": sorted(candidate.kept),
        "laid": sorted(candidate.laid),
        "centred": sorted(candidate.centred),
        "jammed": sorted(candidate.jammed),
        "shared": sorted(candidate.shared),
        "early": sorted(candidate.early),
        "lasting": sorted(candidate.lasting),
        "passing": sorted(candidate.passing),
        "launches": launches,
    }


def _move_json(move: Move) -> dict[str, Any]:
    name = next(name for name, kind in MOVES.items() if kind is type(move))
    return {"move": name} | {field.name: getattr(move, field.name) for field in fields(move)}


def choice_json(choice: Choice) -> dict[str, Any]:
    """A launch's choice as JSON values."""
    form = next(name for name, kind in FORMS.items() if kind is type(choice))
    return {"form": form} | {field.name: _plain(getattr(choice, field.name)) for field in fields(choice)}


def _plain(value: Any) -> Any:
    match value:
        case Memory():
            return value.value
        case Piped():
            return choice_json(value)
        case Row():
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case _:
            return value


def read_choices(data: Any) -> Choices:
    """The choices that the JSON values are: a candidate, or cases, whose candidates may be `Candidate`s, too. Raises
    E0607 with the place of what is wrong."""
    if not isinstance(data, Mapping) or not data.keys() & {"cases", "otherwise"}:
        return read_candidate(data)
    if "otherwise" not in data:
        raise _wrong("otherwise", "the candidate of the calls that are none of the cases", None)
    top = _object(data, "the cases", {"cases", "otherwise"})
    if not isinstance(top["cases"], list | tuple):
        raise _wrong("cases", "a list of cases", top["cases"])
    cases = tuple(_case(item, f"cases.{number}") for number, item in enumerate(top["cases"]))
    return Cases(cases=cases, otherwise=read_candidate(top["otherwise"], "otherwise"))


def _case(data: Any, where: str) -> Case:
    own = _object(data, where, {"when", "candidate"})
    return Case(
        when=_condition(own["when"], f"{where}.when"), candidate=read_candidate(own["candidate"], f"{where}.candidate")
    )


def _condition(value: Any, where: str) -> Condition:
    found = read_condition(value) if isinstance(value, str) else None
    if found is None:
        raise _wrong(where, "a condition such as 'M % 128 == 0 and address(A) % 16 == 0'", value)
    return found


def read_candidate(data: Any, where: str = "") -> Candidate:
    """The candidate that the JSON values are, or that stands in their place. Raises E0607 with the place of what is
    wrong."""
    if isinstance(data, Candidate):
        return data
    top = _of_type(Candidate, data, where or "the candidate", {"schema"})
    inside = f"{where}." if where else ""
    if data["schema"] != CANDIDATE_SCHEMA:
        raise _wrong(f"{inside}schema", f"{CANDIDATE_SCHEMA}, the version that this TExpr reads", data["schema"])
    return Candidate(**{name: _PARTS[name](value, f"{inside}{name}") for name, value in top.items()})


def _launches(value: Any, where: str) -> dict[str, Choice]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object by launch", value)
    return {_text(name, where): _choice(item, f"{where}.{name}") for name, item in value.items()}


def _moves(value: Any, where: str) -> tuple[Move, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(where, "a list of moves", value)
    return tuple(_move(item, f"{where}.{number}") for number, item in enumerate(value))


def _move(data: Any, where: str) -> Move:
    name = data.get("move") if isinstance(data, Mapping) else None
    if not isinstance(name, str) or name not in MOVES:
        raise _wrong(f"{where}.move", f"one of {', '.join(MOVES)}", name)
    kind = MOVES[name]
    _object(data, where, {"move", *(field.name for field in fields(kind))})
    values = {f.name: (_count if f.type is int else _text)(data[f.name], f"{where}.{f.name}") for f in fields(kind)}
    found: Move = kind(**values)
    return found


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise _wrong(where, "a number from 0", value)
    return value


def _choice(data: Any, where: str) -> Choice:
    form = data.get("form") if isinstance(data, Mapping) else None
    if not isinstance(form, str) or form not in FORMS:
        raise _wrong(f"{where}.form", f"one of {', '.join(FORMS)}", form)
    own = _of_type(FORMS[form], data, where, {"form"})
    return FORMS[form](**{name: _READERS[name](value, f"{where}.{name}") for name, value in own.items()})


def _object(data: Any, where: str, keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or set(data) != keys:
        raise _wrong(where, f"an object of {', '.join(sorted(keys))}", data)
    return data


def _of_type(kind: type, data: Any, where: str, tag: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """The values of a type's fields that an object has beside its tag. Those with a default may be absent, and mean it:
    what was saved before a field was there is read as it was."""
    names = {field.name for field in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if not isinstance(data, Mapping) or not needed | tag <= set(data) <= names | tag:
        raise _wrong(where, f"an object of {', '.join(sorted(names | tag))}", data)
    return {name: data[name] for name in data if name in names}


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a name", value)
    return value


def _number(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise _wrong(where, "a number from 1", value)
    return value


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(where, "a list of names", value)
    return tuple(_text(item, where) for item in value)


def _deal(value: Any, where: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list | tuple) or any(not isinstance(p, list | tuple) or len(p) != 2 for p in value):
        raise _wrong(where, "a list of pairs of an index and a number of threads", value)
    return tuple((_text(index, where), _number(threads, where)) for index, threads in value)


def _rows(value: Any, where: str) -> tuple[Row, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(where, "a list of rows", value)
    return tuple(_row(item, f"{where}.{number}") for number, item in enumerate(value))


def _row(value: Any, where: str) -> Row:
    read: dict[str, Callable[[Any, str], Any]] = {"indices": _names, "line": _count, "slots": _flag}
    return Row(**{name: read[name](item, f"{where}.{name}") for name, item in _of_type(Row, value, where).items()})


def _rest(value: Any, where: str) -> Piped:
    found = _choice(value, where)
    if not isinstance(found, Piped):
        raise _wrong(where, "a choice of the form piped", value)
    return found


def _by_name(read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    def mapping(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(where, "an object by name", value)
        return {_text(name, where): read(item, f"{where}.{name}") for name, item in value.items()}

    return mapping


def _memory(value: Any, where: str) -> Memory:
    if value not in (Memory.REG.value, Memory.SHARED.value, Memory.GLOBAL.value):
        raise _wrong(where, "reg, shared or global", value)
    return Memory(value)


def _or_none(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: None if value is None else read(value, where)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "threads": _number,
    "deal": _deal,
    "grid": _names,
    "inner": _by_name(_deal),
    "shared_out": _names,
    "lines": _by_name(_text),
    "turns": _by_name(_number),
    "patch": _by_name(_number),
    "box": _by_name(_number),
    "along": _text,
    "across": _text,
    "lanes": _number,
    "strip": _count,
    "loops": _names,
    "tile": _by_name(_number),
    "each": _by_name(_number),
    "depth": _number,
    "joined": _by_name(_names),
    "parts": _number,
    "staged": _names,
    "over": _text,
    "rounds": _number,
    "copies": _by_name(_number),
    "blocks": _by_name(_number),
    "widths": _by_name(_number),
    "rows": _rows,
    "cores": _names,
    "vector": _or_none(_text),
    "chunk": _or_none(_number),
    "jam": _by_name(_number),
    "local_rows": _flag,
    "once": _flag,
    "ahead": _number,
    "look_back": _flag,
    "next_tile": _flag,
    "next_turn": _flag,
    "ring": _count,
    "stages": _number,
    "persistent": _number,
    "band": _number,
    "alternate": _flag,
    "streamed": _flag,
    "together": _number,
    "cluster": _number,
    "split": _number,
    "abreast": _number,
    "high": _number,
    "begin": _count,
    "rest": _or_none(_rest),
    "resident": _count,
    "phased": _flag,
    "strips": _flag,
    "memory": _by_name(_memory),
}


def _wrong(where: str, wanted: str, found: Any) -> TExprError:
    said = repr(found)[:60] if isinstance(found, str | int | float | None) else f"a {type(found).__name__[:40]}"
    return fail("E0607", f"`mapping`: {where[:80]} is {wanted}, not {said}")


def _set_of_names(value: Any, where: str) -> frozenset[str]:
    return frozenset(_names(value, where))


_PARTS: dict[str, Callable[[Any, str], Any]] = {
    "moves": _moves,
    "wide": _flag,
    "kept": _set_of_names,
    "laid": _set_of_names,
    "centred": _set_of_names,
    "jammed": _set_of_names,
    "shared": _set_of_names,
    "early": _set_of_names,
    "lasting": _set_of_names,
    "passing": _set_of_names,
    "launches": _launches,
}
