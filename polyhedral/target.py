"""Targets as data: the places that a machine offers and their limits.

`cuda:sm_90a` emits CUDA C++, `cuda-host:sm_90a` runs the same text on the CPU with checks, `cpu` is Numba.
"""

import re
from enum import StrEnum

from texpr.grammar.attributes import MAX_CLUSTER, MAX_THREADS, WARP
from texpr.grammar.diagnostics import fail, nearest
from texpr.grammar.records import dataclass

WARPGROUP = 4  # warps
FIRST_WITH_CLUSTERS = 90  # compute capability
CPU_TASKS = 64  # parts of a parallel launch on a CPU, each on one thread
CPU_SCAN_LANES = 16  # elements of a vector that a CPU folds: one of f32 where registers are widest
CPU_TALLY_ELEMENTS = 4096  # of an array that each part has for itself, at most
RESERVED_BYTES = 1024  # of shared memory, for each block that is resident
REGISTERS = 65536  # of 32 bits, of a multiprocessor of every part


class Family(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    CUDA_HOST = "cuda-host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`arch` is the compiler's name of the architecture (empty for a CPU); bytes and counts are per thread block.
    Shared memory gives one word of `bank_bytes` from each of its `banks` at a time. A multiprocessor has room for
    `resident_threads` in `resident_blocks`, where neither registers nor shared memory are short; `max_cluster` blocks
    can be one cluster. `memory_gb_s` is the rate of global memory by which choices are compared, behind an L2 of
    `l2_bytes`."""

    name: str
    family: Family
    arch: str = ""
    warp_size: int = WARP
    max_threads: int = MAX_THREADS
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_bytes: int = 0
    banks: int = 32
    bank_bytes: int = 4
    multiprocessors: int = 1
    resident_threads: int = 1
    resident_blocks: int = 1
    max_cluster: int = 1
    memory_gb_s: int = 20
    l2_bytes: int = 0

    @property
    def is_cuda(self) -> bool:
        """Whether it runs grids of blocks of threads, as CUDA does on a device and under the host header."""
        return self.family is not Family.CPU

    @property
    def resident_bytes(self) -> int:
        """The shared memory of a multiprocessor; every block there takes `RESERVED_BYTES` beside its own."""
        return self.shared_bytes + RESERVED_BYTES


# By compute capability: opt-in shared memory of one block in bytes, multiprocessors of a typical part, the threads and
# blocks that one of them has room for, the GB/s that a copy reaches on the part (of an H200 measured; of others nine
# tenths of what its data sheet says), and the MB of its L2.
_CUDA_PARTS: dict[int, tuple[int, int, int, int, int, int]] = {
    80: (163 * 1024, 108, 2048, 32, 1750, 40),
    86: (99 * 1024, 84, 1536, 16, 840, 6),
    87: (163 * 1024, 16, 1536, 16, 180, 4),
    88: (99 * 1024, 16, 1536, 16, 180, 4),
    89: (99 * 1024, 128, 1536, 24, 900, 72),
    90: (227 * 1024, 132, 2048, 32, 4200, 50),
    100: (227 * 1024, 148, 2048, 32, 7200, 126),
    103: (227 * 1024, 148, 2048, 32, 7200, 126),
    110: (227 * 1024, 20, 1536, 24, 245, 32),
    120: (99 * 1024, 170, 1536, 24, 1600, 96),
    121: (99 * 1024, 48, 1536, 24, 245, 24),
}
_OF_PARTS = tuple(family for family in Family if family is not Family.CPU)
TARGETS = (
    f"targets are cpu, cuda (this machine's GPU), {' and '.join(f'{family}:sm_XX' for family in _OF_PARTS)}, "
    f"with sm_XX one of {', '.join(f'sm_{n}' for n in _CUDA_PARTS)} (a or f may follow)"
)
"""The names of all targets, in a sentence."""
_PATTERN = re.compile(rf"({'|'.join(_OF_PARTS)}):sm_([0-9]{{2,3}})([af]?)")


def parse_target(name: str) -> Target:
    """The target of that name: `cpu`, `cuda:sm_XX`, `cuda-host:sm_XX`. Raises E0501 for any other."""
    if name == "cpu":
        return Target(name="cpu", family=Family.CPU, max_threads=1, max_grid=(2**62, 1, 1))
    match = _PATTERN.fullmatch(name)
    if match is None or int(match[2]) not in _CUDA_PARTS:
        named = [f"{family}:sm_{n}{a}" for family in _OF_PARTS for n in _CUDA_PARTS for a in ("", "a")]
        close = nearest(name[:80], ["cpu", *named])
        meant = f"did you mean `{close}`? " if close else ""
        raise fail("E0501", f"unknown target {name[:80]!r}", help=f"{meant}{TARGETS}")
    shared_bytes, multiprocessors, threads, blocks, memory_gb_s, l2_mb = _CUDA_PARTS[int(match[2])]
    return Target(
        name=name,
        family=Family(match[1]),
        arch=f"sm_{match[2]}{match[3]}",
        shared_bytes=shared_bytes,
        multiprocessors=multiprocessors,
        resident_threads=threads,
        resident_blocks=blocks,
        max_cluster=MAX_CLUSTER if int(match[2]) >= FIRST_WITH_CLUSTERS else 1,
        memory_gb_s=memory_gb_s,
        l2_bytes=l2_mb * 1_000_000,
    )
