"""The benchmark of free sizes: what it builds, and what it says of measured times, by a timer that a test sets."""

import json
from collections.abc import Sequence
from pathlib import Path

import dynamic_sizes
import numpy as np
import pytest
from candidates import Subject, error_from
from dynamic_sizes import FREE, SIZES, UNTIMED, build, families, folder, run


class Set:
    """A size's own artifact takes 1 ms, that of free sizes what is given."""

    def __init__(self, free_ms: float, wrong: str = "") -> None:
        self.free_ms, self.wrong = free_ms, wrong
        self.timed: list[str] = []

    def errors(self, subject: Subject, artifacts: Sequence[Path]) -> dict[str, float]:
        assert all(path.exists() for path in artifacts)
        return {path.name: float(subject.name.endswith(self.wrong)) if self.wrong else 0.0 for path in artifacts}

    def times(self, subject: Subject, artifacts: Sequence[Path], rounds: int) -> dict[str, list[float]]:
        self.timed.append(subject.name)
        return {path.name: [self.free_ms if path.name == FREE else 1.0] * rounds for path in artifacts}


def test_one_artifact_of_free_sizes_is_compared_at_every_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_sizes, "SIZES", ((64, 31), (64, 96)))
    chosen = list(families(["row_sum"], ["f32"]))
    assert build(tmp_path, chosen, "sm_90a", source_only=True) == 3
    bench = Set(1.25, wrong="0x4096")
    assert run(tmp_path, chosen, bench, 3) == 1
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["row_sum-f32"]
    assert rows["64x96"]["share"] == pytest.approx(0.8) and rows["257x100003"]["share"] is None
    assert [size for size, row in rows.items() if not row["right"]] == ["0x4096"]
    assert bench.timed == ["row_sum-f32-64x31", "row_sum-f32-64x96"]
    said = capsys.readouterr().out
    assert "0.800 of the size's own  LOW" in said and "0x4096  WRONG" in said
    assert run(tmp_path, chosen, Set(1.0), 1) == 0 and "LOW" not in capsys.readouterr().out
    assert run(tmp_path / "nothing", chosen, Set(1.0), 1) == 1


def test_lengths_of_every_case_and_those_without_an_element_are_asked_for() -> None:
    assert {columns for _, columns in (*UNTIMED, *SIZES)} >= {0, 1, 31, 4093, 4096, 100003}
    assert len(list(families())) == 6 and not any("where" in family.text for family in families())
    assert folder(Path("x"), next(families()), None).name == FREE


def test_an_error_is_told_where_there_is_nothing_or_only_zeros() -> None:
    nothing, zeros = np.zeros((3, 0)), np.zeros(3)
    assert error_from(np, nothing, nothing, exact=False) == 0.0
    assert error_from(np, zeros, zeros, exact=False) == 0.0
    assert error_from(np, np.array([0.0, np.nan, 0.0]), zeros, exact=False) == np.inf
    assert error_from(np, zeros + 1.0, zeros + 2.0, exact=False) == pytest.approx(0.5)
