"""What NVIDIA's profiler ncu counts of a kernel: running it, and reading what it prints.

Two pages of a report are read, both as CSV: `source` has a row for each instruction of a kernel, `raw` a row for each
launch. A report that was made elsewhere is read from files of these (`texpr profile --import`).
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.records import dataclass

MAX_REPORT_BYTES = 256 << 20
MAX_SAID = 400  # characters of what ncu says of an error
HARDWARE = {
    f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum": (what, how)
    for what in ("sectors", "requests")
    for op, how in (("ld", "load"), ("st", "store"))
}
TIME = "gpu__time_duration.sum"
EXECUTED, WITH_LANES = "Instructions Executed", "Predicated-On Thread Instructions Executed"
SECTORS, WAVEFRONTS = "L2 Theoretical Sectors Global", "L1 Wavefronts Shared"
TIMES_NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
OPCODE = re.compile(r"(@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
LANES = 32
# What an instruction does to which memory; an asynchronous copy loads from one and stores to the other.
KINDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "LDG": (("global", "load"),),
    "STG": (("global", "store"),),
    "LDGSTS": (("global", "load"), ("shared", "store")),
    **dict.fromkeys(("RED", "REDG", "ATOM", "ATOMG"), (("global", "update"),)),
    **dict.fromkeys(("LDS", "LDSM"), (("shared", "load"),)),
    **dict.fromkeys(("STS", "STSM"), (("shared", "store"),)),
    "ATOMS": (("shared", "update"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """An instruction that touches memory: at which byte of its kernel it stands, how often warps execute it with a lane
    that takes part, and how many sectors or wavefronts that takes together."""

    offset: int
    memory: str
    how: str
    requests: int
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts:
    """Of all launches of a kernel: `instructions` of its code, those `accesses` among them, and what the hardware
    counted of all together, by memory operation, where the report has it."""

    instructions: int
    accesses: tuple[Counted, ...]
    hardware: Mapping[str, Mapping[str, int]]
    time_us: float | None


def measured(arguments: Sequence[str], symbols: Sequence[str], folder: Path) -> list[str]:
    """The pages of a report about `texpr` with these arguments, of the kernels with these symbols. Raises E0503 where
    ncu is missing, or may not count here."""
    ncu, report = _ncu(arguments), folder / "counted.ncu-rep"
    run = [ncu, "--force-overwrite", "--export", str(report), "--clock-control", "none", "--section", "SourceCounters"]
    run += ["--metrics", ",".join((*HARDWARE, TIME)), "--kernel-name", f"regex:^({'|'.join(map(re.escape, symbols))})$"]
    said = _said([*run, sys.executable, "-m", "texpr", *arguments])
    if not report.exists():
        raise fail("E0503", f"ncu counted nothing: {said[-MAX_SAID:]}", help=elsewhere(arguments))
    return pages(report, ncu)


def elsewhere(arguments: Sequence[str]) -> str:
    """How a report is made where ncu works."""
    return (
        f"where it works: ncu -o counted --clock-control none --section SourceCounters texpr {' '.join(arguments)}; "
        "then ncu -i counted.ncu-rep --page source --csv --print-source sass > counted.csv; then, on a machine with "
        "nvcc, texpr profile … --import counted.csv"
    )


def _ncu(arguments: Sequence[str]) -> str:
    home = os.environ.get("CUDA_HOME", "")
    own = Path(home) / "bin" / "ncu" if home else None
    found = str(own) if own is not None and os.access(own, os.X_OK) else shutil.which("ncu")
    if found is None:
        raise fail("E0503", "NVIDIA's profiler ncu was not found", help=elsewhere(arguments))
    return found


def _said(command: Sequence[str]) -> str:
    """What a command prints. Raises E0503 where it does not run, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as why:
        raise fail("E0503", f"{command[0]} does not run: {why.strerror or why}") from None
    if done.returncode:
        lines = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
        told = "; ".join(line for line in lines if "ERROR" in line or "error" in line) or "; ".join(lines[-3:])
        raise fail("E0503", f"ncu ended with {done.returncode}: {told[:MAX_SAID]}")
    return done.stdout


def pages(report: Path, ncu: str | None = None) -> list[str]:
    """The pages of a report of ncu's own format. Raises E0503 where there is no ncu to print them."""
    show = [ncu or _ncu(["run", "…"]), "--import", str(report), "--csv", "--print-units", "base"]
    return [_said([*show, "--page", "source", "--print-source", "sass"]), _said([*show, "--page", "raw"])]


def read_report(texts: Sequence[str]) -> dict[str, KernelCounts]:
    """The counts of every kernel by its symbol, from pages as CSV. Raises E0606 for what holds none."""
    rows: dict[str, list[Mapping[str, str]]] = {}
    raw: list[Mapping[str, str]] = []
    try:
        for text in texts:
            for symbol, own in _source_tables(text):
                rows.setdefault(symbol, []).extend(own)
            raw += _raw_rows(text)
        return {symbol: _counts(own, [r for r in raw if r["Kernel Name"] == symbol]) for symbol, own in rows.items()}
    except TExprError:
        raise
    except (ValueError, KeyError, csv.Error) as why:
        raise fail("E0606", f"the report cannot be read: {type(why).__name__} {str(why)[:200]}") from None


def _source_tables(text: str) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """The instructions of each launch: a line with the kernel's name, then a table."""
    symbol, lines = "", list[str]()
    for line in (*text.splitlines(), '"Kernel Name",""'):
        if line.startswith('"Kernel Name",'):
            if symbol and lines:
                yield symbol, list(csv.DictReader(lines, strict=True))
            symbol, lines = next(csv.reader([line]))[1], []
        elif symbol and line.startswith('"'):
            lines.append(line)


def _raw_rows(text: str) -> list[Mapping[str, str]]:
    """The launches of a raw page, numbers in base units: the row below the heads has what they are given in."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith('"ID",')]
    rows = list(csv.DictReader(lines[heads[0] :])) if heads else []
    units = next((row for row in rows if not row["ID"]), {})
    found = list[Mapping[str, str]]()
    for row in (row for row in rows if row["ID"]):
        own = {name: row[name] for name in (*HARDWARE, TIME) if row.get(name)}
        scaled = {name: str(_scale(units.get(name, "")) * float(value.replace(",", ""))) for name, value in own.items()}
        found.append({**row, **scaled})
    return found


def _scale(unit: str) -> float:
    """How many nanoseconds, or counts, a unit is."""
    if unit in TIMES_NS:
        return TIMES_NS[unit]
    return {"K": 1e3, "M": 1e6, "G": 1e9}.get(unit[:1], 1.0)


def _counts(rows: Sequence[Mapping[str, str]], raw: Sequence[Mapping[str, str]]) -> KernelCounts:
    """Of several launches of a kernel the tables follow one another."""
    base = min(int(row["Address"], 16) for row in rows)
    found: dict[tuple[int, str, str], _Tally] = {}
    for row in rows:
        name = OPCODE.match(row["Source"].strip())
        for memory, how in KINDS.get(name[2] if name else "", ()):
            tally = found.setdefault((int(row["Address"], 16) - base, memory, how), _Tally())
            made, lanes = _number(row[EXECUTED]), _number(row[WITH_LANES])
            tally.executed += made if lanes else 0
            tally.full += -(-lanes // LANES) if name and name[1] else made if lanes else 0
            tally.parts += _number(row[SECTORS] if memory == "global" else row.get(WAVEFRONTS) or "0")  # if any is
    hardware: dict[str, dict[str, int]] = {}
    for metric, (what, how) in HARDWARE.items():
        values = [_number(row[metric]) for row in raw if row.get(metric)]
        if values:
            hardware.setdefault(how, {})[what] = sum(values)
    times = [float(row[TIME]) for row in raw if row.get(TIME)]
    whole = _warps_are_whole(found, hardware)
    return KernelCounts(
        instructions=len({row["Address"] for row in rows}),
        accesses=tuple(
            Counted(offset=o, memory=m, how=h, requests=t.full if whole else t.executed, parts=t.parts)
            for (o, m, h), t in found.items()
        ),
        hardware=hardware,
        time_us=sum(times) / 1e3 if times else None,
    )


@dataclass(slots=True)
class _Tally:
    """Of an instruction: how often warps execute it, one with a predicate also where that holds for none of their
    lanes; how many warps the lanes would fill for which it holds; and what that takes."""

    executed: int = 0
    full: int = 0
    parts: int = 0


def _warps_are_whole(found: Mapping[tuple[int, str, str], _Tally], hardware: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether predicates hold for whole warps rather than for some lanes, as far as the hardware's requests tell."""
    off = {True: 0, False: 0}
    for how, counted in hardware.items():
        own = [tally for (_, memory, kind), tally in found.items() if (memory, kind) == ("global", how)]
        off[True] += abs(sum(tally.full for tally in own) - counted.get("requests", 0))
        off[False] += abs(sum(tally.executed for tally in own) - counted.get("requests", 0))
    return off[True] <= off[False]


def _number(text: str) -> int:
    return int(float(text.replace(",", "")))
