"""Rows in slots: what threads read of a row lies in shared memory, where each thread has slots of its own.

    copy X_row[part, thread, e] = X[i, row + 8192*part + e] for part < 13, e < 4    (cp_async), and wait for all of them
    …
    copy X_now[e] = X_row[k_serial, thread, e] for e < 4                            in each loop over the row

In registers a row needs all of these while loops compute with one run of it; in slots it leaves them to more threads.
On an H200 LayerNorm of 257 x 100003 runs at .67 in bf16 and .71 in f32 so, at .57 and .64 in registers, RMSNorm of
8192 x 32000 in f32 at 1.00 and .97.
"""

from texpr.polyhedral.map.held import ROW, Held, named
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import ACCESS_BYTES, element_width
from texpr.polyhedral.target import RESERVED_BYTES, Target

PARTS_BYTES = 2048  # of a block, for partial results, but of each thread no more than
PART_BYTES = 8
MOST_SLOTS = 16  # of a thread: loops over them are written out


def slot_bytes(problem: Problem, held: Held, width: int, threads: int) -> int:
    """What the slots of a block take."""
    return sum(
        held.rounds * threads * width * problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements
    )


def slot_room(target: Target, resident: int, threads: int) -> int:
    """What each of so many blocks on a multiprocessor has for slots."""
    room = min(target.shared_bytes, target.resident_bytes // resident - RESERVED_BYTES)
    return room - min(PARTS_BYTES, PART_BYTES * threads)


def in_chunks(problem: Problem, held: Held, width: int, line: int) -> bool:
    """Whether all that a row holds is brought in aligned chunks, by a target that copies them."""
    first = named(held.elements[0], ROW.name) if line else None
    return problem.target.shared_bytes > 0 and all(
        width * problem.kernel.buffer(element[0]).dtype.size_bytes == ACCESS_BYTES
        and problem.kernel.buffer(element[0]).align % ACCESS_BYTES == 0
        and element_width(problem, named(element, ROW.name), ROW.name, first) >= width
        for element in held.elements
    )
