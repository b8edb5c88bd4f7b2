"""Room for long rows: how much of one the threads of a block, or of a cluster of blocks, hold in registers.

f32     450 kB in 8 blocks of 256 threads, three on a multiprocessor     2 MB in 16 of 512, each alone on one
bf16    450 kB; 1.1 MB in 16 blocks of 512 threads, two on a multiprocessor
"""

from typing import NamedTuple

from texpr.polyhedral.target import REGISTERS

BESIDE = 30  # registers that a thread does well with beside those of its row; unbound, each element has one to itself
HELD_BYTES = 256  # of one thread's registers
NARROW_BYTES = 220  # of elements below 32 bits: with 256 of them a thread spilled up to 68 registers


class Long(NamedTuple):
    """Blocks of so many threads, so many of them on a multiprocessor, and those that share a row."""

    threads: int
    resident: int
    ranks: int

    @property
    def room_bytes(self) -> int:
        """Of a thread, beside what else it needs."""
        return 4 * (REGISTERS // (self.threads * self.resident) - BESIDE)

    def takes(self, size_bytes: int, width: int) -> bool:
        """Whether a thread holds runs of so many elements of that size well: of few bytes it has many registers to
        compute with, and where it reads them one by one, many to read into."""
        return (size_bytes >= 4 and (width > 1 or self.resident > 1)) or (width > 1 and self.resident > 1)


MANY = 3  # blocks on a multiprocessor, of which one or another has its loads on their way
READ = (Long(256, 4, 2),)  # narrow rows that are only read: cross entropy of 8192 x 32000 runs at .96 so, at .81 in 512
LONG = (
    Long(256, 3, 1), *READ, Long(512, 2, 1), Long(256, 3, 2), Long(256, 3, 4), Long(256, 2, 4), Long(256, 3, 8),
    Long(512, 1, 4), Long(512, 1, 8), Long(512, 1, 16), Long(512, 2, 16),
)  # fmt: skip
"""On an H200 rows of 2 MB run at .73 of a copy in 16 blocks, at .50 where they are read again; those of 1 MB in bf16 at
.79 to .84 with two blocks on a multiprocessor, at .56 with one, and at .49 where they are read again. A thread that is
bound to 64 registers has 64 such elements in 32 of them, and spills where these are unpacked before the loop that reads
them (.57)."""


def most_bytes(size_bytes: int, max_cluster: int) -> int:
    """The longest row of elements of that size that has room."""
    found = (
        one.threads * one.ranks * one.room_bytes
        for one in LONG
        if one.ranks <= max_cluster and one.takes(size_bytes, 2)
    )
    return max(found)
