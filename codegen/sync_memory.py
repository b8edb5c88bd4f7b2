"""What the synchronisation of a launch keeps in the shared memory of a block after the buffers: two mbarriers for each
slot of a pipe, and the turn that a block took, for its threads to read.

    ring: 3 slots, buffers up to byte 772   ->   mbarriers of ring at byte 776, total 824
"""

from collections.abc import Mapping

from texpr.grammar.diagnostics import InternalError, fail
from texpr.polyhedral.mapped.between import Turn
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.target import Target

MBARRIER_BYTES = 8
SLOT_BYTES = 2 * MBARRIER_BYTES  # full and empty
TURN_BYTES = 4


def place_syncs(launch: Launch, end: int, target: Target) -> tuple[dict[str, int], int]:
    """Byte offsets by the names of pipes and of the counters of turns, and the bytes of the block with them. `end` is
    where its buffers end. Raises E0403 when the sum is beyond `target.shared_bytes`."""
    sizes = {pipe.name: SLOT_BYTES * pipe.stages for pipe in launch.pipes}
    turns = {node.counter for node in of_kind(launch.body, Turn)} | ({launch.turns} if launch.turns else set())
    if len(sizes) < len(launch.pipes) or turns & set(sizes):
        raise InternalError(f"{launch.name}: pipes and counters share a name")
    sizes |= dict.fromkeys(sorted(turns), TURN_BYTES)
    offsets: dict[str, int] = {}
    for name, size in sizes.items():
        offsets[name] = -(-end // MBARRIER_BYTES) * MBARRIER_BYTES
        end = offsets[name] + size
    if end > target.shared_bytes and offsets:
        why = f"the shared buffers and pipes of {launch.name} take {end} bytes; {target.name} has {target.shared_bytes}"
        raise fail("E0403", f"{why} per block", launch.span, help="use smaller tiles, or fewer stages")
    return offsets, end


def check_syncs(launch: Launch, end: int, offsets: Mapping[str, int], total_bytes: int) -> None:
    """Verify the places of what synchronises: InternalError where it lies in the buffers, which end at `end`, behind
    the block's bytes, at no multiple of an mbarrier, or where something else of it lies."""
    sizes = {pipe.name: SLOT_BYTES * pipe.stages for pipe in launch.pipes}
    free = end
    for name, at in sorted(offsets.items(), key=lambda placed: placed[1]):
        size = sizes.get(name, TURN_BYTES)
        if at < free or at % MBARRIER_BYTES or at + size > total_bytes:
            raise InternalError(f"{launch.name}: {name} is misplaced at byte {at}, behind what ends at {free}")
        free = at + size
    if not sizes.keys() <= offsets.keys():
        raise InternalError(f"{launch.name}: a pipe has no place in shared memory")
