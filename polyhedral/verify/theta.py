"""θ checked: which thread has which digits is one to one, and indices count up from their digits.

For the digits that an operator uses, the threads of a block (or of the part that it stands in) and the blocks of the
grid are counted: each combination of digits must be had by some of them, by as many as every other; by one, where the
operator says nothing of those that have it too. An index is one to one where the digits of less weight never reach the
next weight, and leaves nothing out where they come to one less.

Blocks that read aligned chunks have some elements beside their own, too, which their neighbours have: such an index is
one to one in each block, and whatever it says the place of stays in registers, so that each iteration is some block's;
what leaves a block does so by an index that is one to one, in which blocks are as far apart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from texpr.polyhedral.verify.certificates import RefutedError
from texpr.polyhedral.verify.integers import FileError, Values, names_in, number
from texpr.polyhedral.verify.tree import OWN, Define, Launch, Place, expression, extents_of, field_of, written

WARPGROUP = 4  # warps
BY_THREAD = ("lane", "warp", "warpgroup")


def check_theta(launch: Launch, sizes: Values, warp_size: int) -> int:
    """How many operators share out their iterations one to one. RefutedError where one does not."""
    seen: dict[tuple[Any, ...], bool] = {}
    hosts = {loop.index: 0 for loop in launch.hosts}
    values = {**sizes, **hosts}
    for place in launch.places():
        if place.node.get("kind") in OWN and place.node.get("digits"):
            own = tuple(sorted(place.node["digits"]))
            key = (own, place.warps, place.node.get("unused"))
            if key not in seen:
                shared = _one_to_one(launch, own, place, values, warp_size)
                seen[key] = shared or place.node.get("unused") is not None
    return len(seen)


def _one_to_one(launch: Launch, own: tuple[str, ...], place: Place, values: Values, warp_size: int) -> bool:
    digits = [launch.digits[name] for name in own if name in launch.digits]
    threads = place.warps * warp_size if place.warps else launch.threads
    told = [(_of(d, "stride", values), _of(d, "radix", values), d) for d in digits if d["place"] in BY_THREAD]
    had = Counter(
        tuple(_coordinate(d, thread, warp_size) // stride % radix for stride, radix, d in told)
        for thread in range(threads)
    )
    radices = prod(radix for _, radix, _ in told)
    if len(had) != radices or len(set(had.values())) > 1:
        raise RefutedError(f"{', '.join(own)}: {threads} threads do not share out {radices} values of their digits")
    return max(had.values(), default=1) == 1


def _coordinate(digit: Mapping[str, Any], thread: int, warp_size: int) -> int:
    warp = thread // warp_size
    return {"lane": thread % warp_size, "warp": warp, "warpgroup": warp // WARPGROUP}[str(digit["place"])]


def _of(digit: Mapping[str, Any], name: str, values: Values) -> int:
    return max(1, number(expression(digit[name]), values))


def check_blocks(launch: Launch, sizes: Values) -> str:
    """How the digits of the grid share out blocks: empty where each index has all of them, one to one, else why that is
    not known. RefutedError where blocks leave digits out."""
    values = {**sizes, **{loop.index: 0 for loop in launch.hosts}}
    grid = extents_of(field_of(launch.node, "grid"), values)
    if not all(grid):
        return ""
    asked = _asked(launch, values)
    for axis, place in enumerate(("grid.x", "grid.y", "grid.z")):
        used = [d for name, d in launch.digits.items() if d["place"] == place and name in asked]
        for d in used:
            stride, radix = number(expression(d["stride"]), values), number(expression(d["radix"]), values)
            if stride > 0 and radix > 0 and stride * radix > grid[axis]:
                raise RefutedError(f"{d['name']} has {radix} values, for which {grid[axis]} blocks are too few")
    return ""


def _asked(launch: Launch, values: Values) -> set[str]:
    """The digits of the grid that an index has, where none of that place's has no values: nothing runs there."""
    found: set[str] = set()
    for place in launch.places():
        if place.node.get("kind") in OWN:
            steps = [step for step in place.steps if isinstance(step, Define)]
            own = {name for step in steps for name, _ in step.digits if _is_of_grid(launch, name)}
            if all(number(expression(launch.digits[name]["radix"]), values) for name in own):
                found |= own
    return found


def check_index(step: Define, launch: Launch, values: Values, loops: Mapping[str, int]) -> bool:
    """Whether an index leaves nothing out below its greatest value. RefutedError where it is not one to one."""
    known: list[tuple[int, int]] = []
    for name, weight in step.digits:
        if name in launch.digits:
            radix = _of(launch.digits[name], "radix", values)
        elif name in loops:
            radix = max(1, loops[name])
        else:
            raise FileError(f"{step.index} has a digit {name[:40]} that there is not")
        if radix > 1:
            known.append((abs(weight), radix))
    reach, whole = 0, True
    for weight, radix in sorted(known):
        if weight <= reach:
            raise RefutedError(f"{step.index} is not one to one: two values of its digits give the same")
        whole = whole and weight == reach + 1
        reach += weight * (radix - 1)
    return whole


def check_overlap(step: Define, launch: Launch, values: Values, loops: Mapping[str, int], buffers: Any) -> None:
    """Whether blocks alone have values of an index that others have, and keep in registers what these decide.
    RefutedError where not."""
    blocks = {name: weight for name, weight in step.digits if _is_of_grid(launch, name)}
    own = tuple(digit for digit in step.digits if digit[0] not in blocks)
    check_index(Define(step.index, own, step.offset), launch, values, loops)
    ends: set[tuple[str, int]] = set()
    for place in launch.places():
        behind: set[str] = set()
        for inner in place.steps:
            if isinstance(inner, Define) and (inner == step or names_in(inner.offset) & behind):
                behind.add(inner.index)
            else:
                behind.discard(inner.index)
                ends |= set(inner.digits) if isinstance(inner, Define) else set()
        for buffer, subscripts in written(place.node):
            used = set[str]().union(*map(names_in, subscripts))
            if used & behind and field_of(field_of(buffers, buffer), "memory") != "reg":
                raise RefutedError(f"{step.index} is not one to one, and says where {buffer} is written")
    for name, weight in blocks.items():
        if (name, weight) not in ends:
            raise RefutedError(f"{step.index} is not one to one, and blocks end nothing {weight} apart")


def _is_of_grid(launch: Launch, name: str) -> bool:
    return name in launch.digits and str(launch.digits[name]["place"]).startswith("grid")


def indices(launch: Launch) -> Iterator[tuple[Place, Define]]:
    """Every index that is a sum of digits, once, with a place behind it."""
    seen: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
    for place in launch.places():
        for step in place.steps:
            if isinstance(step, Define) and step.digits and (step.index, step.digits) not in seen:
                seen.add((step.index, step.digits))
                yield place, step
