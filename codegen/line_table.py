"""Which line of the source each instruction of a cubin comes from, read from the cubin itself.

line_tables(cubin)["softmax_0"].at(0x90)     Line(file="softmax.tex", number=5)

Section `.debug_line` is a line program of DWARF 2. What is inlined has an extension of NVIDIA's: an opcode names the
row of the table where it is called from, so that rows are a chain from the function that holds an instruction to the
text outside all functions; that is the line wanted here, for our headers are inlined everywhere.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field

from texpr.codegen.elf import in_order, sections, symbols
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass

INSTRUCTION_BYTES = 16  # from sm_70 on
END, SET_ADDRESS, INLINED_CALL = 1, 2, 0x90  # extended opcodes
CONTINUES, NEGATIVE = 0x80, 0x40  # bits of a number's bytes
MAX_CHAIN = 1000
RELOCATIONS = {".rela.debug_line": 24, ".rel.debug_line": 16}  # and the bytes of an entry; the latter before sm_90


@dataclass(frozen=True, slots=True)
class Line:
    file: str
    number: int


@dataclass(frozen=True, slots=True)
class LineTable:
    """Of one kernel: `size_bytes` of its code, and from which byte on each of `lines` is the source."""

    size_bytes: int
    starts: tuple[int, ...]
    lines: tuple[Line, ...]

    def at(self, offset: int) -> Line | None:
        number = bisect_right(self.starts, offset) - 1
        return self.lines[number] if number >= 0 else None


def line_tables(cubin: bytes) -> dict[str, LineTable]:
    """The lines of every kernel by its symbol. Raises E0606 for what is no cubin with lines."""
    try:
        return dict(_tables(cubin))
    except (struct.error, IndexError, KeyError, StopIteration, ValueError) as why:
        raise fail("E0606", f"the lines of the cubin cannot be read: {why}") from None


def _tables(cubin: bytes) -> Iterator[tuple[str, LineTable]]:
    by_name, ordered = sections(cubin), in_order(cubin)
    program = by_name[".debug_line"]
    moved, entry_bytes = next((by_name[n], size) for n, size in RELOCATIONS.items() if n in by_name)
    owners = [
        ordered[n].name if n < len(ordered) else "" for _, n in symbols(cubin, by_name[".symtab"], by_name[".strtab"])
    ]
    texts: dict[int, str] = {}  # where the program has the address of a kernel's code
    for k in range(moved.size // entry_bytes):
        at, _, symbol = struct.unpack_from("<QII", cubin, moved.offset + entry_bytes * k)
        texts[at] = owners[symbol]
    data = _Bytes(cubin[program.offset : program.offset + program.size])
    while data.at < len(data.content):
        for text, table in _unit(data, texts):
            if text.startswith(".text."):
                starts, lines = zip(*sorted(table.items()), strict=True)
                yield text.removeprefix(".text."), LineTable(by_name[text].size, starts, lines)


@dataclass(slots=True)
class _Bytes:
    content: bytes
    at: int = 0

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self) -> str:
        begin = self.at
        self.at = self.content.index(b"\0", begin) + 1
        return self.content[begin : self.at - 1].decode()

    def number(self, *, signed: bool = False) -> int:
        """A number of DWARF, of seven bits a byte."""
        value = shift = 0
        while True:
            (byte,) = self.take("<B")
            value |= (byte & ~CONTINUES) << shift
            shift += 7
            if not byte & CONTINUES:
                return value - (1 << shift) if signed and byte & NEGATIVE else value


@dataclass(slots=True)
class _Row:
    """The state of the line program; `caller` is the number of the row that this one is inlined at, 0 for none."""

    address: int = 0
    file: int = 1
    line: int = 1
    caller: int = 0


@dataclass(slots=True)
class _Table:
    """The rows of one sequence, and the section that they are of."""

    text: str = ""
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)


def _unit(data: _Bytes, texts: dict[int, str]) -> Iterator[tuple[str, dict[int, Line]]]:
    """The line program of one unit, from its head on: the first line of each address, by section."""
    (length,) = data.take("<I")
    end = data.at + length
    version, _, step, _, base, span, first = data.take("<HIBBbBB")
    if version not in (2, 3):
        raise ValueError(f"its line program is of version {version}")
    operands = data.take(f"<{first - 1}B")
    while data.text():
        pass  # folders
    files = [""]
    while name := data.text():
        files.append(name)
        for _ in range(3):
            data.number()
    state, table = _Row(), _Table()

    def add() -> None:
        table.rows.append((state.address, state.file, state.line, state.caller))

    while data.at < end:
        (opcode,) = data.take("<B")
        if opcode >= first:
            state.address += (opcode - first) // span * step
            state.line += base + (opcode - first) % span
            add()
        elif opcode == 0:
            size = data.number()
            after = data.at + size
            (extended,) = data.take("<B")
            if extended == SET_ADDRESS:
                table.text = texts.get(data.at, "")
                (state.address,) = data.take("<Q")
            elif extended == INLINED_CALL:
                state.caller = data.number()
            elif extended == END:
                yield table.text, dict(_outermost(table.rows, files))
                state, table = _Row(), _Table()
            data.at = after
        elif opcode == 1:
            add()
        elif opcode == 2:
            state.address += data.number() * step
        elif opcode == 3:
            state.line += data.number(signed=True)
        elif opcode == 4:
            state.file = data.number()
        elif opcode == 8:
            state.address += (255 - first) // span * step
        elif opcode == 9:
            state.address += data.take("<H")[0]
        else:
            for _ in range(operands[opcode - 1]):
                data.number()


def _outermost(rows: list[tuple[int, int, int, int]], files: list[str]) -> Iterator[tuple[int, Line]]:
    """The line outside all functions of each row; the last row of an address is that of its instruction."""
    for address, file, line, caller in rows:
        for _ in range(MAX_CHAIN):
            if not caller:
                break
            _, file, line, caller = rows[caller - 1]
        yield address, Line(files[file], line)
