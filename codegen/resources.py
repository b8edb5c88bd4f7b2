"""What the kernels of a cubin take of a multiprocessor, read from the cubin itself: registers, stack, shared memory.

resources(cubin)["matmul_0"]     Resources(registers=168, stack_bytes=0, shared_bytes=1024)

A cubin is an ELF file; section `.nv.info` has a list of attributes, each with the number of a function's symbol.
`stack_bytes` is a thread's local memory: registers that were spilled, and arrays that found none. 0 says that nothing
was spilled.
"""

import struct
from collections.abc import Iterator

from texpr.codegen.elf import sections, symbols
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass
from texpr.polyhedral.target import Target

REGISTERS = 0x2F  # attributes of a function
FRAME = 0x11
OF_TWO_WORDS = 4  # attributes with a symbol and a value
MULTIPROCESSOR_REGISTERS = 65536  # of every GPU from sm_80 on
WARP_REGISTERS = 256  # are given to a warp at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Of one kernel: registers and stack bytes of a thread, and shared bytes of a block that its text declares,
    those that the hardware keeps for itself included."""

    registers: int
    stack_bytes: int
    shared_bytes: int


def resources(cubin: bytes) -> dict[str, Resources]:
    """The resources of every kernel by its symbol. Raises E0606 for what is no cubin."""
    try:
        return _read(cubin)
    except (struct.error, IndexError, UnicodeDecodeError, KeyError) as why:
        raise fail("E0606", f"the cubin cannot be read: {why}") from None


def _read(cubin: bytes) -> dict[str, Resources]:
    by_name = sections(cubin)
    names = [name for name, _ in symbols(cubin, by_name[".symtab"], by_name[".strtab"])]
    told: dict[int, dict[int, int]] = {}
    info = by_name[".nv.info"]
    for attribute, symbol, value in _attributes(cubin[info.offset : info.offset + info.size]):
        told.setdefault(attribute, {})[symbol] = value
    found: dict[str, Resources] = {}
    for symbol, registers in told.get(REGISTERS, {}).items():
        name = names[symbol]
        if f".text.{name}" in by_name:
            shared = by_name.get(f".nv.shared.{name}")
            found[name] = Resources(
                registers=registers,
                stack_bytes=told.get(FRAME, {}).get(symbol, 0),
                shared_bytes=shared.size if shared is not None else 0,
            )
    return found


def _attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    """Attributes of two words: which, of which symbol, and its value."""
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == OF_TWO_WORDS:
            if size == 8:
                yield (attribute, *struct.unpack_from("<II", info, at))
            at += size


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """A kernel at its launch: `blocks` of `threads` have room on a multiprocessor at once, with `shared_bytes` each."""

    taken: Resources
    threads: int
    shared_bytes: int
    blocks: int
    share: float

    def __str__(self) -> str:
        spilt = f"{self.taken.stack_bytes} bytes of stack" if self.taken.stack_bytes else "no spills"
        return (
            f"{self.taken.registers} registers, {spilt}, {self.shared_bytes} bytes of shared memory; {self.blocks} "
            f"block{'s' * (self.blocks != 1)} of {self.threads} threads on a multiprocessor, "
            f"{100 * self.share:.0f} % of those it has room for"
        )


def occupancy(taken: Resources, threads: int, dynamic_bytes: int, target: Target) -> Occupancy:
    """How many blocks of so many threads, with so much shared memory beside what their text declares, a multiprocessor
    has room for."""
    warps = -(-threads // target.warp_size)
    per_warp = -(-taken.registers * target.warp_size // WARP_REGISTERS) * WARP_REGISTERS
    reserved_bytes = target.resident_bytes - target.shared_bytes
    own_bytes = max(0, taken.shared_bytes - reserved_bytes) + dynamic_bytes
    blocks = min(
        MULTIPROCESSOR_REGISTERS // max(1, per_warp * warps),
        target.resident_bytes // (own_bytes + reserved_bytes),
        target.resident_threads // threads,
        target.resident_blocks,
    )
    share = blocks * threads / target.resident_threads
    return Occupancy(taken=taken, threads=threads, shared_bytes=own_bytes, blocks=blocks, share=share)
