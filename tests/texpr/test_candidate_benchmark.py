"""The benchmark of candidates: what it draws, and what it says of measured times, by a timer that a test sets."""

import json
from collections.abc import Sequence
from pathlib import Path

import candidates
import pytest
from candidates import OWN, Subject, build, correlation, judged, ranks, run

SMALL = Subject(
    name="scaled",
    text="kernel scaled(A: f32[M, N], C: f32[M, N]) { par M i, N j { C[i, j] = A[i, j] * 2.0 } }",
    sizes={"M": 64, "N": 256},
    expected=lambda n, a: a["A"] * 2.0,
)


class Set:
    """Times and errors that are given."""

    def __init__(self, ms: dict[str, float], errors: dict[str, float]) -> None:
        self.ms, self.wrong = ms, errors
        self.asked: list[str] = []

    def errors(self, subject: Subject, artifacts: Sequence[Path]) -> dict[str, float]:
        return {path.name: self.wrong.get(path.name, 0.0) for path in artifacts}

    def times(self, subject: Subject, artifacts: Sequence[Path], rounds: int) -> dict[str, list[float]]:
        self.asked = [path.name for path in artifacts]
        return {name: [self.ms[name]] * rounds for name in self.asked}


def drawn(out: Path, seed: int, count: int = 4) -> list[str]:
    assert build(out, SMALL, count=count, seed=seed, arch="sm_90a", source_only=True) == count + 1
    found = json.loads((out / "scaled.json").read_text(encoding="utf-8"))
    assert found["seed"] == seed and found["space"] > count and found["candidates"][0]["artifact"] == OWN
    assert all(row["predicted us"] > 0 for row in found["candidates"])
    assert all((out / "scaled" / row["artifact"] / "manifest.json").exists() for row in found["candidates"])
    return [json.dumps(row["candidate"]) for row in found["candidates"]]


def test_a_seed_draws_the_same_candidates_behind_the_compilers_own(tmp_path: Path) -> None:
    one, again, other = (drawn(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert one == again and len(set(one)) == len(one)
    assert one[0] == other[0] and one[1:] != other[1:]


def test_the_run_times_what_is_right_and_tells_the_share_of_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn(tmp_path, 1)
    bench = Set({OWN: 0.012, "01": 0.010, "02": 0.020, "03": 0.040, "04": 9.0}, {"04": 0.5})
    assert run(tmp_path, [SMALL], bench, 3) == 1  # one is wrong
    assert bench.asked == [OWN, "01", "02", "03"]
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["scaled"]
    assert found["own of best"] == pytest.approx(10 / 12) and found["best"] == "01"
    assert [row["right"] for row in found["candidates"]] == [True, True, True, True, False]
    assert [len(row["ms"]) for row in found["candidates"]] == [3, 3, 3, 3, 0]
    said = capsys.readouterr().out
    assert "0.833 of the best (01)" in said and "WRONG: 04" in said
    bench = Set(dict.fromkeys((OWN, "01", "02", "03", "04"), 0.01), {})
    assert run(tmp_path, [SMALL], bench, 1) == 0
    assert run(tmp_path / "nothing", [SMALL], bench, 1) == 1


def test_ranks_of_equal_values_are_their_mean_and_the_correlation_is_spearmans() -> None:
    assert ranks([3.0, 1.0, 2.0, 1.0]) == [3.0, 0.5, 2.0, 0.5]
    assert correlation(ranks([1, 2, 3]), ranks([10, 20, 40])) == pytest.approx(1.0)
    assert correlation(ranks([1, 2, 3]), ranks([40, 20, 10])) == pytest.approx(-1.0)
    assert correlation(ranks([1, 1, 1]), ranks([1, 2, 3])) is None
    rows = [{"artifact": name, "predicted us": p, "ms": [m]} for name, p, m in ((OWN, 1.0, 5.0), ("01", 2.0, 4.0))]
    assert judged(rows)["own of best"] == 0.8 and judged(rows)["rank correlation"] == pytest.approx(-1.0)
    assert judged(rows[1:])["own of best"] is None


def test_six_kernels_are_asked_for() -> None:
    names = [subject.name for subject in candidates.subjects()]
    assert sorted(names) == sorted([*candidates.NAMES, "matmul"]) and len(names) == 6
