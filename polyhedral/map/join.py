"""The programs of a mapping's cases as one program, in which the host asks which of them a call runs.

    when M % 128 == 0: launch mm_0;  otherwise: launch mm_0
    host if M % 128 == 0: launch mm_0_case0;  host else: launch mm_0_case1

Each of them is whole, ordered and checked by itself. A buffer that they place alike is one buffer; of others, and
of those in the memory of a block, each case has its own, by a name of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from texpr.grammar import ast
from texpr.grammar.ast import Condition
from texpr.grammar.source import Span
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.candidate import Choices
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostIf, HostNode, Launch, MappedBuffer, MappedProgram, Report
from texpr.polyhedral.mapped.walks import map_launches
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.program import ProvedProgram


def join(
    proved: ProvedProgram,
    choices: Choices,
    conditions: Sequence[Condition],
    programs: Sequence[MappedProgram],
) -> MappedProgram:
    """One program for the cases with these conditions, and a last program for all other calls."""
    kernel = proved.program.kernel
    taken = [name for program in programs for name in (*names_taken(program.kernel), *program.buffers)]
    names = Names([*names_taken(kernel), *taken])
    first: dict[str, tuple[int, MappedBuffer]] = {}
    for number, program in enumerate(programs):
        for name, buffer in program.buffers.items():
            first.setdefault(name, (number, buffer))
    buffers: dict[str, MappedBuffer] = {}
    words: dict[str, Words] = {}
    hosts: list[tuple[HostNode, ...]] = []
    for number, program in enumerate(programs):
        apart = [name for name, buffer in program.buffers.items() if not _one(number, buffer, *first[name])]
        own = {name: names.fresh(f"{name}_case{number}") for name in apart}
        for name, buffer in program.buffers.items():
            named = replace(buffer, name=own[name], of=name) if name in own else buffer
            buffers.setdefault(named.name, named)
        for word in program.words:  # one case runs in a call, and leaves them as it found them
            if words.setdefault(word.name, word) != word:
                own[word.name] = f"{word.name}_case{number}"
                words[own[word.name]] = replace(word, name=own[word.name])
        hosts.append(map_launches(program.host, partial(_of_case, number, own)))
    host = hosts.pop()
    for condition, then in zip(reversed(conditions), reversed(hosts), strict=True):
        host = (HostIf(condition=condition, then=then, orelse=host, span=kernel.span),)
    return replace(
        programs[-1],
        kernel=kernel,
        proved=proved,
        host=host,
        buffers=buffers,
        words=tuple(words.values()),
        candidate=choices,
        report=_reports([program.report for program in programs]),
    )


def _one(number: int, own: MappedBuffer, first_number: int, first: MappedBuffer) -> bool:
    """Whether a case's buffer is the one of that name in the first case that has it: what says why they lie where they
    do may differ. In the memory of a block each launch has its own place for it."""
    alike = replace(own, reason="") == replace(first, reason="")
    return alike and (number == first_number or own.memory in (Memory.REG, Memory.GLOBAL))


def _of_case(number: int, names: Mapping[str, str], launch: Launch) -> Launch:
    renamed: Launch = _renamed(launch, names) if names else launch
    return replace(renamed, name=f"{launch.name}_case{number}")


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with other names of buffers in it, wherever a field says that it has one."""
    match value:
        case ast.Node():
            return rewrite(value, lambda node: _with_names(node, names))
        case tuple():
            return tuple(_renamed(item, names) for item in value)
        case _ if is_dataclass(value) and not isinstance(value, type | Span):
            held = {field.name: getattr(value, field.name) for field in fields(value)}
            inside = {name: _renamed(item, names) for name, item in held.items()}
            changed = {name: item for name, item in inside.items() if item != held[name]}
            return _with_names(replace(value, **changed) if changed else value, names)
        case _:
            return value


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    given: dict[str, Any] = {}
    for field in fields(value):
        held = getattr(value, field.name)
        if field.name in ("buffer", "counter") and held in names:
            given[field.name] = names[held]
        if field.name == "buffers" and any(name in names for name in held):
            given["buffers"] = tuple(names.get(name, name) for name in held)
    return replace(value, **given) if given else value


def _reports(reports: Sequence[Report]) -> Report:
    """What is said of the cases, each with its number."""
    accesses = [
        replace(access, statement=f"{access.statement} of case {number}")
        for number, report in enumerate(reports)
        for access in report.accesses
    ]
    moves, notes = (
        own(reports[0])
        if len({own(report) for report in reports}) == 1
        else tuple(f"case {number}: {text}" for number, report in enumerate(reports) for text in own(report))
        for own in (attrgetter("schedule"), attrgetter("notes"))
    )
    return Report(accesses=tuple(accesses), representative=reports[-1].representative, schedule=moves, notes=notes)
