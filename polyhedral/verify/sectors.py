"""Sectors and wavefronts checked: addresses of the sampled warps, lane by lane, and what they touch."""

from collections.abc import Mapping
from typing import Any

from texpr.polyhedral.verify.certificates import Claim, RefutedError
from texpr.polyhedral.verify.integers import compiled, compiled_condition, number
from texpr.polyhedral.verify.layouts import address_tree, element_bytes, shape_of
from texpr.polyhedral.verify.tree import Define, Launch, Lead, Loop, Place, expression, field_of, moved_together

SECTOR_BYTES, ANY_ADDRESS_BYTES = 32, 16
BANKS, WORD_BYTES = 32, 4
WARPGROUP = 4


def check_samples(claim: Claim, warp_size: int) -> int:
    """How many warps were counted again. RefutedError where a count, an address or the mean is another one."""
    entry = claim.entry
    samples = entry["samples"]
    for sample in samples:
        first = addresses(claim, sample["at"], warp_size)
        active = [lane for lane, byte in enumerate(sample["first"]) if byte is not None]
        if not active or len(sample["first"]) != len(first):
            raise RefutedError("a sample has no lanes, or too many")
        for lane in range(len(first)):
            said, found = sample["first"][lane], first[lane]
            if (said is None) != (found is None) or said != found:
                raise RefutedError(f"at {_shown(sample['at'])} lane {lane} begins at byte {found}, and not at {said}")
        funnel = claim.place.node.get("access") == "funnel" and entry["memory"] == "global"
        lane_bytes = ANY_ADDRESS_BYTES if funnel else entry["width"] * element_bytes(claim.buffers, entry["buffer"])
        own = [byte for byte in first if byte is not None]
        parts, ideal = _parts(own, lane_bytes, entry["memory"] == "global")
        if (parts, ideal) != (sample["parts"], sample["ideal"]):
            raise RefutedError(f"at {_shown(sample['at'])} there are {parts} {entry['unit']}, {ideal} at best")
    for name in ("parts", "ideal"):
        mean = sum(sample[name] for sample in samples) / len(samples)
        said = entry["per_request" if name == "parts" else "ideal"]
        if type(said) not in (int, float) or abs(mean - said) > 1e-9 * mean:
            raise RefutedError(f"the mean over {len(samples)} samples is {mean}, and is said to be {said}")
    return len(samples)


def _shown(at: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in at.items())


def _parts(first: list[int], lane_bytes: int, in_memory: bool) -> tuple[int, int]:
    if in_memory:
        touched = {byte for start in first for byte in range(start, start + lane_bytes)}
        return len({byte // SECTOR_BYTES for byte in touched}), -(-len(touched) // SECTOR_BYTES)
    group, total, ideal = max(1, BANKS * WORD_BYTES // max(lane_bytes, WORD_BYTES)), 0, 0
    for begin in range(0, len(first), group):
        words = {
            byte // WORD_BYTES
            for start in first[begin : begin + group]
            for byte in range(start, start + lane_bytes, min(WORD_BYTES, lane_bytes))
        }
        banks = [word % BANKS for word in words]
        total += max(banks.count(bank) for bank in set(banks))
        ideal += -(-len(words) // BANKS)
    return total, ideal


def addresses(claim: Claim, at: Mapping[str, int], warp_size: int) -> list[int | None]:
    """The byte at which each lane's request begins, None for a lane that does not come there."""
    entry, place = claim.entry, claim.place
    size = element_bytes(claim.buffers, entry["buffer"])
    address = compiled(address_tree(claim.buffers, entry["buffer"], list(entry["subscripts"])))
    funnel = place.node.get("access") == "funnel" and entry["memory"] == "global"
    conditions = [(count, compiled_condition(tree)) for count, tree in place.where]
    lanes = min(claim.launch.threads, warp_size)
    alone = claim.lanes == 1 and lanes > 1
    found: list[int | None] = []
    for lane in range(lanes):
        values = _values(claim.launch, place, {**claim.sizes, **at}, lane, warp_size, claim.buffers, conditions)
        wanted = values is not None and not (alone and lane) and _wanted(claim, values)
        if not wanted or values is None:
            found.append(None)
            continue
        byte = address(values) * size
        found.append(byte // ANY_ADDRESS_BYTES * ANY_ADDRESS_BYTES if funnel else byte)
    return found


def _wanted(claim: Claim, values: dict[str, int]) -> bool:
    """Whether the lane moves anything: some element of its copy is wanted, and, as all accesses are proved to be in
    bounds, one that lies outside is never touched."""
    node = claim.place.node
    within = node.get("within") if node.get("kind") == "Copy" else None
    together = moved_together(node)
    if together:
        index, extent = together
        values[index] = 0
        if within is not None:
            begin, end = (number(expression(within[name]), values) for name in ("begin", "end"))
            return max(begin, 0) < min(end, number(extent, values))
    elif within is not None:
        here = values[str(node["over"][-1][0])]
        begin, end = (number(expression(within[name]), values) for name in ("begin", "end"))
        if not begin <= here < end:
            return False
    for subscript, extent in zip(
        claim.entry["subscripts"], shape_of(claim.buffers, claim.entry["buffer"]), strict=True
    ):
        if not 0 <= number(subscript, values) < number(extent, values):
            return False
    return True


def _values(
    launch: Launch,
    place: Place,
    values: dict[str, int],
    lane: int,
    warp_size: int,
    buffers: Mapping[str, Any],
    conditions: list[tuple[int, Any]],
) -> dict[str, int] | None:
    """All values that a lane has at a place, None where it does not come there."""
    for name, digit in launch.digits.items():
        at = _coordinate(launch, str(digit["place"]), values, lane)
        if at is not None:
            stride, radix = (max(1, number(expression(digit[what]), values)) for what in ("stride", "radix"))
            values[name] = at // stride % radix
    waiting = list(conditions)
    for count, step in enumerate((*place.steps, None)):
        while waiting and waiting[0][0] == count:
            if not waiting.pop(0)[1](values):
                return None
        match step:
            case Loop(index=index, extent=extent):
                if not 0 <= values[index] < number(extent, values):
                    return None
            case Define(index=index, digits=digits, offset=offset):
                values[index] = number(offset, values) + sum(weight * values[name] for name, weight in digits)
            case Lead(index=index, subscripts=subscripts):
                each = max(1, step.bytes // element_bytes(buffers, step.buffer))
                tree = 0 if subscripts is None else address_tree(buffers, step.buffer, list(subscripts))
                values[index] = number(tree, values) % each
    return values


def _coordinate(launch: Launch, place: str, at: Mapping[str, int], lane: int) -> int | None:
    match place:
        case "lane":
            return lane
        case "warp":
            return int(at["warp"])
        case "warpgroup":
            return at["warp"] // WARPGROUP
        case "grid.x" | "grid.y" | "grid.z":
            return int(at[place])
        case "cluster":
            cx, cy, cz = map(int, field_of(launch.node, "cluster"))
            return at["grid.x"] % cx + cx * (at["grid.y"] % cy + cy * (at["grid.z"] % cz))
    return None
