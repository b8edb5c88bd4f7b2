"""Room for long rows: how much of one the threads of a block, or of a cluster of blocks, hold in registers.

f32     450 kB in 8 blocks of 256 threads, three on a multiprocessor     2 MB in 16 of 512, each alone on one
bf16    450 kB; 1.1 MB in 16 blocks of 512 threads, two on a multiprocessor
"""

from typing import NamedTuple

from texpr.grammar.attributes import WARP
from texpr.polyhedral.target import REGISTERS

BESIDE = 30  # registers that a thread does well with beside those of its row; unbound, each element has one to itself
BESIDE_READ = 12  # of a thread that only reads
HELD_BYTES = 256  # of one thread's registers
FOUR_BYTES = 112  # of narrow elements of a row, of a thread with 64 registers: 7 runs
NARROW_BYTES = 220  # of elements below 32 bits: with 256 of them a thread spilled up to 68 registers


class Long(NamedTuple):
    """Blocks of so many threads, so many of them on a multiprocessor, and those that share a row, which lies in
    registers, with so many `beside` it in each thread, or in `slots` of shared memory. `idle`: only rows that leave no
    more than one part in so many of these empty (0: any row)."""

    threads: int
    resident: int
    ranks: int
    slots: bool = False
    beside: int = BESIDE
    idle: int = 0

    @property
    def room_bytes(self) -> int:
        """Of a thread, beside what else it needs."""
        return 4 * (REGISTERS // (self.threads * self.resident) - self.beside)

    @property
    def unpacked_bytes(self) -> int:
        """Room for a row whose narrow elements a thread unpacks as it writes."""
        return max(self.room_bytes * 2 // 3, FOUR_BYTES if self.resident >= 4 else 0)

    def takes(self, size_bytes: int, width: int) -> bool:
        """Whether a thread holds runs of so many elements of that size well: of few bytes it has many registers to
        compute with, and where it reads them one by one, many to read into."""
        return (size_bytes >= 4 and (width > 1 or self.resident > 1)) or (width > 1 and self.resident > 1)

    def is_filled(self, elements: int | None, slots: int) -> bool:
        """Whether a row of so many elements, if that is known, leaves few of so many slots empty."""
        return self.idle == 0 or (elements is not None and (slots - elements) * self.idle <= slots)


FEW = 4 * WARP  # threads of a small block
# Narrow rows that are only read, the first where they are aligned.
READ = (Long(FEW, 8, 4), Long(FEW, 8, 8, beside=BESIDE_READ), Long(FEW, 6, 8))
# Narrow rows that are written, their runs counted from a line.
UNPACKED = (Long(256, 4, 4), Long(FEW, 8, 8, True), Long(256, 4, 8))
ALIGNED = (Long(512, 4, 4, True), Long(512, 2, 2, True))  # of whole words beside vectors: two loops, or more
WORDS = (Long(512, 3, 8, True),)  # those of them whose runs are counted from a line
HALVES = (Long(256, 6, 8, True), Long(512, 2, 2, True))  # such narrow ones, or narrow ones that one loop reads
FILLED = (Long(224, 6, 8, True, idle=16),)  # narrow ones that three loops read, and that fill it
ALONE = (Long(256, 4, 4, True),)  # these latter, where there is room for them
READ_WORDS = (Long(256, 4, 8, beside=BESIDE_READ),)  # whole words that are only read, their runs counted from a line
BESIDE_HALVES = (Long(640, 2, 1, beside=20),)  # narrow rows beside vectors, of three loops
PAIRS = (Long(224, 4, 8, True, idle=16),)  # two such narrow ones of an array, of three loops, that fill it
LONG = (
    Long(256, 3, 1), READ[0], *BESIDE_HALVES, Long(512, 2, 1), Long(256, 3, 2), *ALONE, *FILLED, *HALVES, *PAIRS,
    ALIGNED[0], *UNPACKED, *READ[1:], Long(256, 3, 4), Long(256, 2, 4), *WORDS, *READ_WORDS, Long(256, 3, 8),
    Long(512, 1, 4), Long(512, 1, 8), Long(512, 1, 16), Long(512, 2, 16),
)  # fmt: skip
"""On an H200 rows of 2 MB run at .73 of a copy in 16 blocks, at .50 where they are read again; those of 1 MB in bf16
at .79 to .84 with two blocks on a multiprocessor, at .56 with one, and at .49 where they are read again. A thread
that is bound to 64 registers has 64 such elements in 32 of them, and spills where these are unpacked before the
loop that reads them (.57). Many small blocks read narrow rows best: cross entropy of 8192 x 32000 in bf16 runs at
.98 of a read in 4 of 128 threads, at .96 in 2 of 256 and at .80 in one of 512, that of 100003 columns at .86 in 8
with eight on a multiprocessor, at .82 with six, at .80 in 4 of 256; in f32 that runs at .87 in 8 of 256 with four
on a multiprocessor, at .81 with three. Rows beside vectors wait for these, too: LayerNorm of 8192 x 32000 in f32
runs at .94 with four blocks in registers, at .96 in slots of two, in bf16 at .973 with 640 threads, at .966 with
512, and RMSNorm, which has a loop less, at 1.00 in slots, at .97 in registers; sums of 257 x 100003 in bf16 at .95
in four blocks of 256 threads and in eight, and argmax, which computes more, at .93 and .86; LayerNorm of that runs
in slots at .68 in bf16 and .71 in f32 (.58 and .64 in registers), in bf16 at .70 in eight blocks of 224 threads, of
which seven fit on a multiprocessor (.65 in eight of 256, with an eighth of their slots empty; two rows at once in each
cluster, which load the vectors once, .718), RMSNorm at .83 and .86 (.73 and .82). Softmax of
it does better in registers in f32 (.88); in bf16 it runs at .90 in slots of eight blocks of 128 threads, at .86 in
registers, at .83 in slots of two blocks of 512. Cross entropy does no better in slots (.74 in bf16, .84 in f32)."""


def usable(*, narrow: bool, reads: bool, writes: bool, line: int, beside: int, pairs: bool = False) -> tuple[Long, ...]:
    """What a row may have, the best of what has room for it first: one that several loops only read, or that is
    written, its runs counted from a line, by so many loops `beside` vectors of all rows."""
    own = set[Long]()
    if reads:
        own.update(READ[bool(line) :] if narrow else READ_WORDS if line else ())
    if narrow and writes and line:
        own.update(UNPACKED)
    if beside and line:
        own.update((HALVES[beside > 2], *(ALONE if beside == 1 else ())) if narrow else WORDS)
    if beside > 2 and line and narrow and writes:
        own.update(FILLED)
    if pairs and narrow and beside > 2 and line:
        own.update(PAIRS)
    if beside and not line and not narrow:
        own.add(ALIGNED[beside > 2])
    if beside > 2 and not line and narrow and writes:
        own.update(BESIDE_HALVES)
    told = {*READ, *READ_WORDS, *UNPACKED, *ALIGNED, *WORDS, *HALVES, *PAIRS, *ALONE, *FILLED, *BESIDE_HALVES} - own
    return tuple(long for long in LONG if long not in told)


def most_bytes(size_bytes: int, max_cluster: int) -> int:
    """The longest row of elements of that size that has room."""
    found = (
        one.threads * one.ranks * one.room_bytes
        for one in LONG
        if one.ranks <= max_cluster and one.takes(size_bytes, 2)
    )
    return max(found)
