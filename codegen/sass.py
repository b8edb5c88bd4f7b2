"""The machine code of a cubin as data: instructions, the line of the program that each comes from, loops.

    (listing,) = listings(nvdisasm's JSON, line_tables(cubin))
    listing.main_loop()         Loop(first=0x0b40, last=0x1180)
    listing.counted(loop)       {"HGMMA.64x256x16.F32": 4, "SYNCS.PHASECHK.TRANS64.TRYWAIT": 1, ...}

A loop is what a backward branch goes around: the instructions from its target to itself. NVIDIA documents the
instruction set by name only (cuda-binary-utilities, "Instruction Set Reference"); the groups here are of those names.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from texpr.codegen.line_table import INSTRUCTION_BYTES, Line, LineTable
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass

LOCAL = "local memory"  # of a thread: registers that were spilled, arrays that found none
GROUPS: dict[str, tuple[str, ...]] = {
    "tensor cores": ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "QMMA", "IMMA", "BMMA", "DMMA"),
    "global memory": (
        *("LD", "ST", "LDG", "STG", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG"),
        *("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"),
    ),
    "shared memory": ("LDS", "STS", "LDSM", "STSM", "ATOMS", "STAS", "REDAS"),
    LOCAL: ("LDL", "STL"),
    "waits": (
        *("BAR", "SYNCS", "MEMBAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "WARPGROUP", "ERRBAR", "FENCE", "NANOSLEEP"),
        *("UCGABAR_ARV", "UCGABAR_WAIT", "ACQBULK", "UTMACMDFLUSH", "CCTL"),
    ),
    "lanes": ("SHFL", "VOTE", "VOTEU", "REDUX", "MATCH"),
    "arithmetic": (
        *("FFMA", "FADD", "FMUL", "FMNMX", "FSETP", "FSEL", "MUFU", "DFMA", "DADD", "DMUL"),
        *("HFMA2", "HADD2", "HMUL2", "HMNMX2", "F2F", "F2FP", "I2F", "F2I"),
    ),
}
OTHERS = "others"  # addresses, conditions, moves
_GROUP = {name: group for group, names in GROUPS.items() for name in names}
_WEIGHT = {"tensor cores": 8, "global memory": 2, "shared memory": 1, "arithmetic": 1}  # of an instruction of a loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction: its byte in the kernel, the text of its predicate (as `@!P0`), opcode and operands, and the line
    of the program that it comes from, None where the compiler names none."""

    address: int
    predicate: str
    opcode: str
    operands: str
    line: Line | None

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def group(self) -> str:
        return _GROUP.get(self.name, OTHERS)

    def __str__(self) -> str:
        return f"{self.predicate} {self.opcode} {self.operands}".strip()


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions from byte `first` to the backward branch at byte `last`."""

    first: int
    last: int

    def holds(self, other: "Loop") -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True, slots=True)
class Listing:
    """The code of one kernel."""

    kernel: str
    instructions: tuple[Instruction, ...]

    def loops(self) -> tuple[Loop, ...]:
        """What backward branches go around, in the order of their beginnings; no branch to itself, which ends a
        kernel."""
        found: dict[int, int] = {}
        for each in self.instructions:
            target = _target(each)
            if target is not None and target < each.address:
                found[target] = max(found.get(target, 0), each.address)
        return tuple(Loop(first, last) for first, last in sorted(found.items()))

    def main_loop(self) -> Loop | None:
        """The innermost loop with the most work; loops that only wait count as instructions of the loop around them.
        None for a kernel without a loop that works."""
        working = [loop for loop in self.loops() if self._work(loop)]
        innermost = [loop for loop in working if not any(loop.holds(other) for other in working)]
        return max(innermost, key=self._work, default=None)

    def within(self, loop: Loop | None) -> tuple[Instruction, ...]:
        """The instructions of a loop; all of the kernel's for None."""
        if loop is None:
            return self.instructions
        return tuple(each for each in self.instructions if loop.first <= each.address <= loop.last)

    def counted(self, loop: Loop | None = None) -> Counter[str]:
        """How often each opcode stands there."""
        return Counter(each.opcode for each in self.within(loop))

    def of(self, group: str, loop: Loop | None = None) -> tuple[Instruction, ...]:
        """The instructions there of one group."""
        return tuple(each for each in self.within(loop) if each.group == group)

    def _work(self, loop: Loop) -> int:
        return sum(_WEIGHT.get(each.group, 0) for each in self.within(loop))


def _target(each: Instruction) -> int | None:
    """Where a branch goes, if its text says so."""
    last = each.operands.rpartition(",")[2].strip()
    return int(last, 16) if each.name == "BRA" and last.startswith("0x") else None


def listings(told: str, tables: Mapping[str, LineTable]) -> tuple[Listing, ...]:
    """The kernels of what `nvdisasm -json` printed. Raises E0606 for another text."""
    try:
        _, functions = json.loads(told)
        return tuple(
            Listing(function["function-name"], tuple(_instructions(function, tables)))
            for function in sorted(functions, key=lambda function: str(function["function-name"]))
        )
    except (ValueError, KeyError, TypeError) as why:
        raise fail("E0606", f"what nvdisasm printed cannot be read: {why}") from None


def _instructions(
    function: Mapping[str, list[dict[str, str]]], tables: Mapping[str, LineTable]
) -> Iterator[Instruction]:
    table = tables.get(str(function["function-name"]))
    for k, told in enumerate(function["sass-instructions"]):
        address = k * INSTRUCTION_BYTES
        yield Instruction(
            address=address,
            predicate=told.get("predicate", ""),
            opcode=told["opcode"],
            operands=told.get("operands", "").replace(",", ", "),
            line=table.at(address) if table else None,
        )
