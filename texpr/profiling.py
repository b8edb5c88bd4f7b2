"""What ncu counts of a kernel beside what its mapping predicts, by line of the program: for `texpr profile`.

    line  memory  how    requests           sectors of each
                         predicted  counted  predicted  counted
    5     global  load   2,408      2,408    15.62      15.62     m = maximum N k { X[i, k] }

An instruction belongs to the line that its cubin names, outside all of our headers, and an access to that of its
statement. Predictions are the means of the mapping's figures (docs/inspection.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from texpr.codegen.cuda.names import kernel_symbol
from texpr.codegen.line_table import INSTRUCTION_BYTES, Line, LineTable
from texpr.counters import KernelCounts
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass
from texpr.inspect import duration

HOW = {"read": "load", "write": "store", "update": "update", "atomic": "update"}
UNITS = {"global": "sectors", "shared": "wavefronts"}
FAR = 0.05  # between what is predicted and what is counted is marked

Key = tuple[str, str, int, str, str]
"""Launch, file, line, memory and how."""


@dataclass(frozen=True, slots=True)
class Requests:
    """So many requests, which take so many sectors or wavefronts together."""

    count: int
    parts: float

    @property
    def each(self) -> float:
        return self.parts / self.count if self.count else 0.0

    def to_json(self) -> dict[str, Any]:
        return {"requests": self.count, "per_request": self.each}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The accesses of a line to a memory: `predicted` is None where the mapping has no figures, and `why` says so;
    `counted` where no instruction does that there."""

    key: Key
    predicted: Requests | None
    counted: Requests | None
    why: str = ""

    @property
    def is_far(self) -> bool:
        one, other = self.predicted, self.counted
        if one is None or other is None or not one.count or not other.count:
            return False
        return abs(one.each - other.each) > FAR * other.each

    def to_json(self) -> dict[str, Any]:
        launch, file, line, memory, how = self.key
        one, other = (None if r is None else r.to_json() for r in (self.predicted, self.counted))
        where = {"launch": launch, "file": file, "line": line, "memory": memory, "how": how, "unit": UNITS[memory]}
        return {**where, "predicted": one, "counted": other, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rows of all launches, and what the hardware counted of each as a whole; `lines` has the program's texts."""

    title: str
    rows: tuple[Row, ...]
    launches: Mapping[str, KernelCounts]
    lines: Mapping[tuple[str, int], str]

    def __str__(self) -> str:
        found = [self.title]
        for launch, counts in self.launches.items():
            time = f": {duration(counts.time_us / 1e6)}" if counts.time_us is not None else ""
            found.append(f"{launch}{time}{_hardware(counts)}")
            found += _table([row for row in self.rows if row.key[0] == launch], self.lines)
        return "\n".join(found)

    def to_json(self) -> dict[str, Any]:
        whole = {name: {"time_us": c.time_us, "hardware": dict(c.hardware)} for name, c in self.launches.items()}
        return {"schema": 1, "launches": whole, "lines": [row.to_json() for row in self.rows]}

    def counted(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was counted of the line, memory and kind of an access of the mapping's data."""
        key = _key(entry)
        found = next((row.counted for row in self.rows if row.key == key), None)
        return None if found is None else found.to_json()


def _hardware(counts: KernelCounts) -> str:
    told = [
        f"{own['sectors'] / own['requests']:.4g} sectors of each of {own['requests']:,} {how}s"
        for how, own in counts.hardware.items()
        if own.get("requests")
    ]
    return f"; the hardware counted {', '.join(told)}" if told else ""


def _table(rows: Sequence[Row], lines: Mapping[tuple[str, int], str]) -> Iterator[str]:
    head = ("line", "memory", "how", "requests", "counted", "each takes", "counted", "", "")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        _, file, line, memory, how = row.key
        one, other = row.predicted, row.counted
        requests = tuple("-" if r is None else f"{r.count:,}" for r in (one, other))
        each = tuple("-" if r is None or not r.count else f"{r.each:.4g}" for r in (one, other))
        text = lines.get((file, line), file)
        cells.append((str(line), memory, how, *requests, *each, "<" if row.is_far else "", row.why or text.strip()))
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row_of_cells in cells:
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(row_of_cells, widths, strict=True)).rstrip()


def profile(
    title: str,
    accesses: Sequence[Mapping[str, Any]],
    tables: Mapping[str, LineTable],
    counts: Mapping[str, KernelCounts],
    lines: Mapping[tuple[str, int], str],
) -> Profile:
    """The accesses of a mapping's data beside the counts of its kernels, whose cubin has these lines. Raises E0606 for
    counts of another program, or of another cubin."""
    names = {kernel_symbol(name): name for name in dict.fromkeys(entry["launch"] for entry in accesses)}
    own = {symbol: found for symbol, found in counts.items() if symbol in names and symbol in tables}
    if not own:
        has, wanted = ", ".join(counts) or "none", ", ".join(names)
        raise fail("E0606", f"the report has no kernel of this program: it has {has}, and not {wanted}")
    for symbol, found in own.items():
        if found.instructions * INSTRUCTION_BYTES != tables[symbol].size_bytes:
            told = f"{found.instructions} instructions, and the kernel {tables[symbol].size_bytes // INSTRUCTION_BYTES}"
            help = "compile it here for the target, sizes and mapping, and with the nvcc, that were profiled"
            raise fail("E0606", f"the report is of another cubin: {symbol} has {told}", help=help)
    predicted, whys = _predicted([entry for entry in accesses if kernel_symbol(entry["launch"]) in own])
    counted: dict[Key, Requests] = {}
    for symbol, found in own.items():
        for one in found.accesses:
            line = tables[symbol].at(one.offset) or Line("", 0)
            key = (names[symbol], line.file, line.number, one.memory, one.how)
            before = counted.get(key, Requests(0, 0))
            counted[key] = Requests(before.count + one.requests, before.parts + one.parts)
    keys = sorted({*predicted, *whys, *(key for key, found in counted.items() if found.count)})
    rows = tuple(
        Row(
            key=key,
            predicted=None if key in whys else predicted.get(key),
            counted=counted.get(key),
            why=whys.get(key, ""),
        )
        for key in keys
    )
    return Profile(title=title, rows=rows, launches={names[symbol]: c for symbol, c in own.items()}, lines=lines)


def _key(entry: Mapping[str, Any]) -> Key:
    line = entry["line"] or {"file": "", "number": 0}
    memory = "global" if entry["memory"] == "global" else "shared"
    return (entry["launch"], line["file"], line["number"], memory, HOW[entry["mode"]])


def _predicted(accesses: Sequence[Mapping[str, Any]]) -> tuple[dict[Key, Requests], dict[Key, str]]:
    """What the accesses of each line take together; why a line has an access of which that is not known."""
    found: dict[Key, Requests] = {}
    whys: dict[Key, str] = {}
    for entry in accesses:
        key, mean = _key(entry), entry["mean"]
        if mean is not None:
            count, parts = mean["requests"], mean["sectors"] * mean["requests"]
        elif entry["per_request"] is not None and entry["requests"] is not None:
            count, parts = entry["requests"], entry["per_request"] * entry["requests"]
        elif entry["requests"] == 0:
            continue
        else:
            whys[key] = entry["why"] or entry["by"]
            continue
        before = found.get(key, Requests(0, 0))
        found[key] = Requests(before.count + count, before.parts + parts)
    return found, whys
