"""Every fault that is planted is found twice: by the checkers or the simulator, and by `cuda-host`. The
table of all is `tests/golden/planted_faults.md`, which `planted_found.py` prints; some are found here."""

from collections import Counter
from pathlib import Path

from planted import CLASSES, KERNELS, Fault, faults
from planted_found import MISSED, by_checkers, by_simulator

TABLE = Path(__file__).resolve().parents[1] / "golden" / "planted_faults.md"
SAMPLE = {
    ("multicast", "no swizzle of C_rows"), ("multicast", "ring begins where A_tile does"),
    ("multicast", "slots of A_tile overlap"), ("tiles", "rows exchanged"),
    ("shared", "drop wait at barrier (cluster)"), ("rows across", "the last is one too early"),
    ("first", "what is before is waited for too late"), ("high", "tile is one further"),
}  # fmt: skip
ROWS = [line.strip("| \n").split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines()[2:] if "|" in line]


def test_the_table_has_every_fault_and_who_found_it() -> None:
    named = {(kernel, f"{fault.kind}: {fault.text}") for kernel in KERNELS for fault in faults(kernel)}
    assert {(row[0], row[1]) for row in ROWS} == named and len(named) == len(ROWS) >= 40
    assert [row for row in ROWS if row[2:4] == [MISSED, MISSED] or row[4] == MISSED] == []


def test_each_class_is_planted_in_three_kernels_and_more() -> None:
    kernels = {kind: {row[0] for row in ROWS if row[1].startswith(kind)} for kind in CLASSES}
    assert all(len(found) >= 3 for found in kernels.values()), kernels
    counts = Counter(row[1].partition(":")[0] for row in ROWS)
    assert min(counts.values()) >= 3 and sum(row[0] == "multicast" for row in ROWS) > 10


def found(fault: Fault) -> bool:
    return by_checkers(fault.planned) != MISSED or by_simulator(fault.kernel, fault.planned) != MISSED


def test_some_faults_are_found_now() -> None:
    every = (fault for kernel in dict.fromkeys(kernel for kernel, _ in SAMPLE) for fault in faults(kernel))
    chosen = [fault for fault in every if (fault.kernel, fault.text) in SAMPLE]
    assert len(chosen) == len(SAMPLE) and [fault.name for fault in chosen if not found(fault)] == []
