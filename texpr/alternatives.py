"""The choices of a mapping beside others, for `texpr map`: what differs from those of each launch, and what each costs.

launch    choice                      time     memory   requests  …  blocks  waves  idle   sectors
matmul_0  contracted, as it is        68 us    0.75 us  65 us         32      1      0 %    1.07e+06
matmul_0  parts 1                     110 us   0.75 us  110 us        8       1      0 %    1.07e+06
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from texpr.grammar.index.text import in_words
from texpr.inspect import duration
from texpr.polyhedral.mapped.candidate import Row

if TYPE_CHECKING:
    from texpr.polyhedral.map.alternatives import LaunchAlternatives, Priced
    from texpr.polyhedral.mapped.candidate import Choice

LISTED = 16  # of a launch in the data, those of the least price
HEAD = ("launch", "choice", "time", "bytes", "requests", "blocks", "threads", "waves", "idle", "sectors")
PS_PER_S = 10**12


def table(found: "Iterable[LaunchAlternatives]") -> str:
    """The choices as lines, by launch, the one that is taken and then the others by their time."""
    rows: list[tuple[str, ...]] = [HEAD]
    for one in found:
        rows.append((one.launch, f"{form(one.own.choice)}, as it is", *_figures(one.own)))
        rows += ((one.launch, said(one.own.choice, other.choice), *_figures(other)) for other in one.others)
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _figures(one: "Priced") -> Iterator[str]:
    terms, paid = one.terms, one.paid
    yield from (duration(ps / PS_PER_S) for ps in (terms.total, terms.bytes, terms.requests))
    yield from (str(paid.blocks), str(paid.threads), str(paid.waves), f"{100 * paid.idle:.0f} %", f"{paid.sectors:.3g}")


def alternatives_json(found: "Sequence[LaunchAlternatives]") -> list[dict[str, Any]]:
    """The choices of each launch as data, of the others those of the least price; docs/schemas.md describes it."""
    return [
        {
            "launch": one.launch,
            "case": one.case,
            "when": None if one.when is None else in_words(one.when),
            "own": {"choice": form(one.own.choice), **cost_json(one.own)},
            "count": len(one.others),
            "others": [_other_json(one.own, other) for other in one.others[:LISTED]],
        }
        for one in found
    ]


def _other_json(own: "Priced", other: "Priced") -> dict[str, Any]:
    from texpr.polyhedral.mapped.candidate_json import choice_json

    return {"choice": said(own.choice, other.choice), **cost_json(other), "fields": choice_json(other.choice)}


def cost_json(one: "Priced") -> dict[str, Any]:
    """What one run of a launch costs, item by item; times in microseconds."""
    terms = {f.name: getattr(one.terms, f.name) / 1e6 for f in fields(one.terms)}
    paid = {f.name: getattr(one.paid, f.name) for f in fields(one.paid)}
    return {"time_us": one.terms.total / 1e6, "terms_us": terms, "cost": paid}


def itemised(one: "Priced") -> str:
    """What one run of a launch costs, in words: its time, what that is made of, and what is counted for it."""
    items = {f.name: getattr(one.terms, f.name) for f in fields(one.terms)}
    begin, paid = items.pop("begin"), one.paid
    longest = ", ".join(f"{duration(ps / PS_PER_S)} for {name}" for name, ps in items.items() if ps)
    time = f"{duration(one.terms.total / PS_PER_S)} = {duration(begin / PS_PER_S)} to begin"
    blocks = f"{paid.blocks} blocks of {paid.threads} threads in {paid.waves} waves"
    counted = f"{blocks}, {100 * paid.idle:.0f} % idle, {paid.requests:.3g} requests, {paid.sectors:.3g} sectors"
    return f"{time}{f' + the longest of {longest}' if longest else ''}; {counted}"


def form(choice: "Choice") -> str:
    return type(choice).__name__.lower()


def said(first: "Choice", other: "Choice") -> str:
    """What another choice says, in the fields where it differs."""
    same = type(first) is type(other)
    words = [f"{name} {_text(getattr(other, name))}" for name in changed(first, other) if name != "memory" or same]
    return ("" if same else f"{form(other)}, ") + ", ".join(words)


def changed(first: "Choice", other: "Choice") -> tuple[str, ...]:
    """The fields in which another choice differs, all of them where its form does."""
    same = type(first) is type(other)
    return tuple(f.name for f in fields(other) if not same or getattr(first, f.name) != getattr(other, f.name))


def _text(value: Any) -> str:
    match value:
        case Row(indices=indices, line=line):
            return f"{' '.join(indices)}" + (f" from lines of {line} bytes" if line else "")
        case tuple():
            return " ".join(f"{i[0]}*{i[1]}" if isinstance(i, tuple) else str(i) for i in value) or "none"
        case Mapping():
            return "; ".join(f"{name}: {_text(item)}" for name, item in value.items()) or "none"
        case _:
            return str(value)
