"""`verify`: what a mapping's JSON proves of itself, and what it does not.

    verify(json.loads(text))     [Finding(Verdict.PROVED, "S0: each of 4096 iterations runs once"), …]

Everything is computed anew from the launches' trees, the digits and the layouts in the file, at its representative
sizes, or at sizes that are given; nothing of the compiler takes part. What the file cannot tell, such as what data
decides, is OPEN, with the reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from texpr.polyhedral.verify.certificates import Claim, RefutedError, check_certificate
from texpr.polyhedral.verify.coverage import OpenError
from texpr.polyhedral.verify.integers import FileError, Tree, number, truth
from texpr.polyhedral.verify.runs import check_statements, check_stores
from texpr.polyhedral.verify.sectors import check_samples
from texpr.polyhedral.verify.theta import check_blocks, check_index, check_overlap, check_theta, indices
from texpr.polyhedral.verify.tree import Define, Launch, Loop, Place, launches

SCHEMA = 6
MAX_WARP = 64  # lanes
MAX_THREADS, MAX_WIDTH = 1024, 64
FIELDS = ("kernel", "target", "warp_size", "representative", "buffers", "host", "statements", "accesses")


class Verdict(StrEnum):
    PROVED = "proved"
    OPEN = "open"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was asked of the file, and the answer."""

    verdict: Verdict
    about: str
    text: str


def verify(data: Any, sizes: Mapping[str, int] | None = None) -> list[Finding]:
    """The findings on a mapping. FileError for data that is none."""
    try:
        return _answers(data, sizes or {})
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError) as why:
        raise FileError(f"it is edited, or was cut off: {type(why).__name__} {str(why)[:80]}") from None


def _answers(data: Any, sizes: Mapping[str, int]) -> list[Finding]:
    known = _sizes(data, sizes)
    found = [launch for launch in launches(data["host"]) if _runs(launch, known)]
    answers = [
        *_theta(found, known, data["warp_size"], data["buffers"]),
        *check_all("iterations", check_statements(data, found, known)),
        *check_all("stores", check_stores(data, found, known)),
    ]
    if not sizes or all(known[name] == data["representative"].get(name) for name in known):
        answers += _accesses(data, known)
    return answers


def _sizes(data: Any, given: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(data, Mapping) or "schema" not in data or "host" not in data:
        raise FileError("it is no mapping that `texpr map --json` printed")
    if data["schema"] != SCHEMA:
        raise FileError(f"it is of schema {str(data['schema'])[:20]}, and this TExpr reads schema {SCHEMA}")
    if missing := [name for name in FIELDS if name not in data]:
        raise FileError(f"it has no {', '.join(missing)}")
    if foreign := sorted(set(given) - set(data["sizes"])):
        free = ", ".join(data["sizes"]) or "none"
        raise FileError(f"the mapping has no free size {foreign[0][:40]}; free sizes: {free}")
    if type(data["warp_size"]) is not int or not 1 <= data["warp_size"] <= MAX_WARP:
        raise FileError(f"no target has warps of {str(data['warp_size'])[:20]} lanes")
    for launch in launches(data["host"]):
        if not 1 <= launch.threads <= MAX_THREADS:
            raise FileError(f"{launch.name[:40]} has {str(launch.threads)[:20]} threads")
    known = {**data["representative"], **given}
    if wrong := [name for name, value in known.items() if type(value) is not int or value < 0]:
        raise FileError(f"the size {wrong[0][:40]} is no natural number")
    return known


def _runs(launch: Launch, sizes: Mapping[str, int]) -> bool:
    """Whether the host comes to a launch at these sizes, as far as sizes tell."""
    for tree in launch.when:
        try:
            if not truth(tree, sizes):
                return False
        except FileError:  # addresses decide, or turns of a loop
            continue
    return True


def check_all(about: str, checks: Iterator[tuple[str, Any]]) -> Iterator[Finding]:
    """The findings of checks: each has a subject, and a function that says what it proved."""
    for subject, check in checks:
        try:
            yield Finding(Verdict.PROVED, about, f"{subject}: {check()}")
        except OpenError as why:
            yield Finding(Verdict.OPEN, about, f"{subject}: {why}")
        except RefutedError as why:
            yield Finding(Verdict.REFUTED, about, f"{subject}: {why}")
        except FileError as why:
            yield Finding(Verdict.REFUTED, about, f"{subject}: {why}")


def _theta(found: list[Launch], sizes: Mapping[str, int], warp_size: int, buffers: Any) -> Iterator[Finding]:
    def checks() -> Iterator[tuple[str, Any]]:
        for launch in found:
            yield launch.name, partial(_theta_of, launch, sizes, warp_size, buffers)

    yield from check_all("theta", checks())


def _theta_of(launch: Launch, sizes: Mapping[str, int], warp_size: int, buffers: Any) -> str:
    check_blocks(launch, sizes)
    shared = check_theta(launch, sizes, warp_size)
    values, whole, count, overlap = {**sizes, **{loop.index: 0 for loop in launch.hosts}}, 0, 0, 0
    for place, step in indices(launch):
        extents, known = _loop_extents(place, values)
        try:
            whole += check_index(step, launch, known, extents)
            count += 1
        except RefutedError:
            check_overlap(step, launch, known, extents, buffers)
            overlap += 1
    said = f"{shared} ways to share out threads are one to one, {count} indices too, {whole} of them without a gap"
    beside = f"; blocks overlap in {overlap}, of which they keep what is beside their own in registers"
    return said + beside * (overlap > 0)


def _loop_extents(place: Place, values: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The extents of loops, and what is known of indices, at the first turn of those around."""
    known, found = dict(values), dict[str, int]()
    for step in place.steps:
        if isinstance(step, Loop):
            found[step.index] = _first(step.extent, known, 1)
            known[step.index] = 0
        elif isinstance(step, Define):
            known[step.index] = 0 if step.digits else _first(step.offset, known)
    return found, known


def _first(tree: Tree, known: Mapping[str, int], otherwise: int = 0) -> int:
    """What is known of a number at the first turn of the loops around it."""
    try:
        return number(tree, known)
    except FileError:  # addresses decide
        return otherwise


def _accesses(data: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[Finding]:
    every = {launch.name: launch for launch in launches(data["host"])}
    for entry in data["accesses"]:
        subject = f"{entry.get('statement')} {entry.get('mode')} {entry.get('relation')}"
        if entry.get("launch") not in every:
            yield Finding(Verdict.REFUTED, "access", f"{subject}: there is no launch {entry.get('launch')}")
            continue
        launch = every[entry["launch"]]
        if entry["by"] != "threads":
            why = entry["why"] or entry["by"]
            yield Finding(Verdict.OPEN, "other", f"{subject}: {why}")
            continue
        yield from check_all("d", iter([(subject, partial(distance_of, data, entry, launch, sizes))]))
        if entry["samples"]:
            checks = [(subject, partial(_samples, data, entry, launch, sizes))]
            yield from check_all(str(entry["unit"]), iter(checks))


def claim_of(data: Mapping[str, Any], entry: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> Claim:
    place = launch.at(tuple(entry["path"]))
    if type(entry["width"]) is not int or not 1 <= entry["width"] <= MAX_WIDTH:
        raise RefutedError("no request moves so many elements of a lane")
    if not _made(place.node, entry):
        raise RefutedError("the node at its path makes no such access")
    lanes = min(launch.threads, int(data["warp_size"]))
    alone = place.once or place.node.get("unused") == "once" or _by_engine(place.node)
    return Claim(entry, launch, place, sizes, data["buffers"], 1 if alone else lanes)


def _by_engine(node: Mapping[str, Any]) -> bool:
    return node.get("kind") == "Copy" and node.get("completion") in ("transaction", "bulk")


def _made(node: Any, entry: Mapping[str, Any]) -> bool:
    """Whether a node, or what is inside it but other nodes, has the access."""
    if isinstance(node, Mapping):
        subscripts = node.get("subscripts")
        if node.get("buffer") == entry["buffer"] and isinstance(subscripts, list):
            return bool([s.get("tree") for s in subscripts] == entry["subscripts"])
        return any(_made(part, entry) for name, part in node.items() if name not in ("body", "orelse", "parts"))
    return isinstance(node, list) and any(_made(part, entry) for part in node)


def distance_of(data: Mapping[str, Any], entry: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> str:
    """What is proved of an access's d. RefutedError, OpenError, FileError otherwise."""
    claim = claim_of(data, entry, launch, sizes)
    if entry["certificate"] is None:
        more = f", {entry['why']}" if entry["why"] else ""
        raise OpenError(f"d has no certificate: it is known by {entry['d_by']}{more}")
    try:
        check_certificate(claim)
    except (KeyError, TypeError, IndexError, AttributeError) as why:
        raise RefutedError(f"its certificate is no such thing: {type(why).__name__} {str(why)[:60]}") from None
    return f"d = {entry['d']}, by its certificate and lane by lane"


def _samples(data: Mapping[str, Any], entry: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> str:
    claim = claim_of(data, entry, launch, sizes)
    try:
        count = check_samples(claim, int(data["warp_size"]))
    except (KeyError, TypeError, IndexError, AttributeError) as why:
        raise RefutedError(f"its samples are no such thing: {type(why).__name__} {str(why)[:60]}") from None
    return f"{entry['per_request']:g} {entry['unit']} a request, at {count} places"
