"""Addresses in shared memory: byte offsets of the shared buffers of one launch.

Buffers are laid one after another, each at a multiple of its alignment; a buffer's bytes are those from its first to
its last element. Lifetimes are not shared yet: two buffers never overlap.

    a: f32[10] align 16, b: f16[8] align 128   ->   a at 0, b at 128, total 144
"""

from collections.abc import Mapping, Sequence

from texpr.codegen.layout import room
from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.permissions import blocks_per_sm_of
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.target import RESERVED_BYTES, Target

WORD_BYTES = 4  # the total is whole words: an indivisible update of a byte reads the word around it


def stage_bytes(buffer: MappedBuffer) -> int:
    """The bytes from one slot of a pipe's buffer to the next, which are aligned alike."""
    align = max(buffer.align, buffer.dtype.size_bytes)
    return -(-room(buffer) * buffer.dtype.size_bytes // align) * align


def place_shared(
    buffers: Sequence[MappedBuffer], target: Target, stages: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Offsets in bytes of every shared buffer among those of a block, and their sum; those of a pipe have as many
    `stages`. Raises E0403 when the sum is beyond `target.shared_bytes`."""
    offsets: dict[str, int] = {}
    end = 0
    for buffer in buffers:
        if buffer.memory in (Memory.SHARED, Memory.CLUSTER):
            align = max(buffer.align, buffer.dtype.size_bytes)
            offsets[buffer.name] = -(-end // align) * align
            last = room(buffer) * buffer.dtype.size_bytes
            end = offsets[buffer.name] + (stages.get(buffer.name, 1) - 1) * stage_bytes(buffer) + last
            if target.is_cuda and end > target.shared_bytes:
                raise fail(
                    "E0403",
                    f"the shared buffers of this kernel take at least {end} bytes; "
                    f"{target.name} has {target.shared_bytes} per block",
                    buffer.span,
                    f"{buffer.name} does not fit",
                    help="use smaller tiles, or place a buffer with `new global`",
                )
    return offsets, -(-end // WORD_BYTES) * WORD_BYTES


def check_resident(program: MappedProgram, launch: Launch, total_bytes: int) -> None:
    """Raises E0403 where the blocks that the author wants on a multiprocessor have no room for their shared memory."""
    attr, target = blocks_per_sm_of(program.kernel), program.target
    needed = launch.min_blocks * (total_bytes + RESERVED_BYTES)
    if attr is not None and target.is_cuda and needed > target.resident_bytes:
        raise fail(
            "E0403",
            f"{launch.min_blocks} blocks of {launch.name} take {needed} bytes of shared memory, with {RESERVED_BYTES} "
            f"that each has beside its own; a multiprocessor of {target.name} has {target.resident_bytes}",
            attr.span,
            "this attribute",
            help="write a smaller number, or use smaller tiles",
        )


def check_shared(
    name: str,
    buffers: Sequence[MappedBuffer],
    offsets: Mapping[str, int],
    total_bytes: int,
    stages: Mapping[str, int],
) -> int:
    """Verify a plan pair by pair: InternalError for an overlap, a misaligned or missing buffer, or a wrong total. Where
    the last buffer ends."""
    shared = [b for b in buffers if b.memory not in (Memory.REG, Memory.GLOBAL)]
    if {b.name for b in shared} != set(offsets):
        raise InternalError(f"{name}: the shared plan and the shared buffers differ")
    ranges: list[tuple[int, int, str]] = []
    for buffer in shared:
        start = offsets[buffer.name]
        size = room(buffer) * buffer.dtype.size_bytes
        slots = stages.get(buffer.name, 1)
        if slots > 1 and stage_bytes(buffer) < size:
            raise InternalError(f"{name}: the slots of {buffer.name} overlap")
        size += (slots - 1) * stage_bytes(buffer)
        if start < 0 or start % buffer.align or start % buffer.dtype.size_bytes or start + size > total_bytes:
            raise InternalError(f"{name}: {buffer.name} is misplaced at byte {start}")
        ranges.append((start, start + size, buffer.name))
    for number, (start, stop, first) in enumerate(ranges):
        for other_start, other_stop, second in ranges[number + 1 :]:
            if max(start, other_start) < min(stop, other_stop):
                raise InternalError(f"{name}: {first} and {second} overlap in shared memory")
    return max((stop for _, stop, _ in ranges), default=0)
