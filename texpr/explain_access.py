"""`texpr map --explain ACCESS`: why an access is made as it is, and what the next best choices would cost."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from texpr.command_options import usage
from texpr.grammar.diagnostics import did_you_mean
from texpr.pictures import told

if TYPE_CHECKING:
    from texpr.polyhedral.map.alternatives import LaunchAlternatives

SHOWN = 3  # other choices of a launch


def found_accesses(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The accesses that a name means: an access `A[i, j]` of the mapping or of the program (then all to its buffer), a
    statement's or a buffer's name. Exit 2 where there is none."""
    every = data["accesses"]
    wanted = "".join(name.split())
    for field in ("relation", "statement", "buffer"):
        own = [entry for entry in every if "".join(str(entry[field]).split()) == wanted]
        if own:
            return own
    of_program = {text.partition("[")[0] for text in _in_program(data) if "".join(text.split()) == wanted}
    own = [entry for entry in every if entry["buffer"] in of_program]
    if own:
        return own
    named = [str(entry[field]) for field in ("relation", "statement", "buffer") for entry in every]
    known = list(dict.fromkeys((*named, *_in_program(data))))
    close = did_you_mean(name[:80], known, f"there are {', '.join(known[:12])}{' …' if len(known) > 12 else ''}")
    raise usage(f"the mapping has no access {name[:80]!r} to shared or global memory; {close}")


def _in_program(data: Mapping[str, Any]) -> Iterator[str]:
    """The accesses as the program has them."""
    for statement in data["statements"].values():
        yield from statement["reads"]
        if statement["writes"] is not None:
            yield statement["writes"]["text"]


def explained(data: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of an access, a paragraph each."""
    buffer = data["buffers"][entry["buffer"]]
    yield f"{told(entry)} in {entry['launch']}"
    yield f"memory: {buffer['memory']}, {buffer['reason'] or 'as the program says'}"
    yield f"address: {entry['composed'] or 'told by data'}"
    if entry["certificate"] is not None:
        yield from _distance(entry)
    elif entry["d"] is not None:
        least = "at least " if entry["d_by"] == "samples" else ""
        yield f"d: {least}{entry['d']}, by {entry['d_by']}: the address is not affine in the digits of the lane"
    if entry["samples"]:
        yield _cost(entry)
    if entry["why"]:
        yield f"note: {entry['why']}"


def _distance(entry: Mapping[str, Any]) -> Iterator[str]:
    proof = entry["certificate"]
    if proof["lanes"] == 1:
        yield "lanes: one thread makes it"
        return
    shown = [f"{_digit(d, proof['lanes'])} moves it by {d['weight']}" for d in proof["digits"]]
    yield f"lanes: {'; '.join(shown)}"
    steps = " + ".join(f"{step['count']} * {step['bound']}" for step in proof["steps"] if Fraction(step["bound"]))
    yield f"d: {steps + ' = ' if steps else ''}{entry['d']}, by its certificate"


def _digit(digit: Mapping[str, int], lanes: int) -> str:
    """A digit of the lane number in words: lane / 8 % 4."""
    stride, radix = digit["stride"], digit["radix"]
    return "lane" + (f" / {stride}" if stride > 1 else "") + (f" % {radix}" if stride * radix < lanes else "")


def _cost(entry: Mapping[str, Any]) -> str:
    unit, per, ideal = entry["unit"], entry["per_request"], entry["ideal"]
    why = "as few as its bytes take" if per <= ideal else f"{per / ideal:.3g} times as many as its bytes take"
    wide = f", {entry['width']} elements of a lane together" if entry["width"] > 1 else ""
    return f"{unit}: {per:g} a request, {why}{wide}; {entry['requests']:,} requests"


def next_best(own: "LaunchAlternatives") -> Iterator[str]:
    """What a launch costs, and what the choices of the least price beside its own would."""
    from texpr.alternatives import itemised, said

    yield f"{own.launch}: {itemised(own.own)}"
    if not own.others:
        yield "next best: nothing else fits"
    for number, other in enumerate(own.others[:SHOWN]):
        head = "next best" if number == 0 else "then"
        yield f"{head}: {said(own.own.choice, other.choice)}: {itemised(other)}"
