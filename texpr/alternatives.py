"""Candidates beside one another, for `texpr map --alternatives`: what differs from the first one, and what each costs.

launch    choice                      blocks  waves  idle   sectors
matmul_0  (the compiler's own)          4096      2    0 %   34.1e6
matmul_0  threads=512                   2048      2    0 %   34.1e6
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from texpr.polyhedral.map.cost import Cost, LaunchCost
from texpr.polyhedral.mapped.candidate import Candidate, Choice

PRICED = 200  # candidates that a page or an explanation looks at
HEAD = ("launch", "choice", "blocks", "threads", "waves", "idle", "requests", "sectors")


def priced(mapping: Any) -> Sequence[tuple[Candidate, Cost]]:
    """The compiler's choices and some of their neighbours with what each costs; none of a mapping of several cases."""
    if not isinstance(mapping.candidate, Candidate):
        return ()
    every: Iterator[tuple[Candidate, Cost]] = mapping.alternatives()
    return list(islice(every, PRICED))


def table(found: Iterable[tuple[Candidate, Cost]]) -> str:
    """The candidates as lines, by launch, the first one and then those with the fewest sectors."""
    (first, own), *others = found
    rows: list[tuple[str, ...]] = [HEAD]
    for name, choice in first.launches.items():
        rows.append((name, f"{type(choice).__name__.lower()}, as it is", *_figures(own.launches[name])))
        mine = [(c.launches[name], paid.launches[name]) for c, paid in others if c.launches[name] != choice]
        mine.sort(key=lambda pair: (pair[1].sectors, pair[1].waves))
        rows += ((name, said(choice, other), *_figures(paid)) for other, paid in mine)
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _figures(paid: LaunchCost) -> Iterator[str]:
    yield from (str(paid.blocks), str(paid.threads), str(paid.waves), f"{100 * paid.idle:.0f} %")
    yield from (f"{paid.requests:.3g}", f"{paid.sectors:.3g}")


def said(first: Choice, other: Choice) -> str:
    """What another choice says, in the fields where it differs."""
    same = type(first) is type(other)
    changed = [f.name for f in fields(other) if not same or getattr(first, f.name) != getattr(other, f.name)]
    words = [f"{name} {_text(getattr(other, name))}" for name in changed if name != "memory" or same]
    return ("" if same else f"{type(other).__name__.lower()}, ") + ", ".join(words)


def _text(value: Any) -> str:
    match value:
        case tuple():
            return " ".join(f"{i[0]}*{i[1]}" if isinstance(i, tuple) else str(i) for i in value) or "none"
        case dict():
            return "; ".join(f"{name}: {_text(item)}" for name, item in value.items()) or "none"
        case _:
            return str(value)
