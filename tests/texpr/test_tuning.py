"""`texpr tune`: what is measured and what is taken, what is kept, and when nothing of it is used."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import texpr
from texpr import tuned, tuning
from texpr.cache import change
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.alternatives import LaunchAlternatives
from texpr.settings import settings
from texpr.tuning import Tuning, case_of, contenders

COPY = "kernel turned(A: f32[M, N], B: f32[N, M]) { par M i, N j { B[j, i] = A[i, j] } }"
TWO = """kernel two(A: f32[M], B: f32[M], C: f32[N], D: f32[N]) {
    par M i { B[i] = A[i] }
    par N j { D[j] = C[N - 1 - j] }
}"""
SIZES = {"M": 40, "N": 70}
Seconds = Callable[[Any, int], float]
"""The seconds of a burst by the launches of a candidate and the number of the burst."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TEXPR_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


class FakeWatch:
    """Tells what a test says that bursts take; nothing runs."""

    def __init__(self, seconds: Seconds) -> None:
        self.seconds, self.bursts = seconds, list[Any]()

    def warm(self, call: Any) -> float:
        launches = call.func.__self__.compiled.mapping.candidate.launches
        self.bursts.append(launches)
        return self.seconds(launches, len(self.bursts))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], FakeWatch]:
    """Tunings from here on are told by a fake watch; the interpreter is not asked."""

    def use(seconds: Seconds) -> FakeWatch:
        watch = FakeWatch(seconds)

        @contextmanager
        def started(trial: Any) -> Iterator[Any]:
            yield watch, trial.values, {}

        monkeypatch.setattr(tuning, "_started", started)
        monkeypatch.setattr("texpr.kernels.Compiled.make_ready", lambda self: None)
        monkeypatch.setattr(tuning, "run_trial", lambda *_, **__: SimpleNamespace(passed=True))
        return watch

    return use


def kept_anyway(body: bytes, before: bytes | None) -> bytes:
    return body


def refused(run: Callable[[], object]) -> str:
    with pytest.raises(TExprError) as caught:
        run()
    (found,) = caught.value.diagnostics
    assert found.code == "E0609"
    return found.message


def by_lanes(fast: str) -> Seconds:
    """Mappings whose innermost index is `fast` take half of the time."""
    return lambda launches, number: 1e-3 if launches["turned_0"].vector == fast else 2e-3


def test_the_fastest_is_kept_and_taken_only_where_it_is_asked_for(fake: Callable[[Seconds], FakeWatch]) -> None:
    kernel = texpr.parse(COPY).only
    own = kernel.compile("cpu", sizes=SIZES).mapping.candidate
    other = "i" if own.launches["turned_0"].vector != "i" else "j"
    fake(by_lanes(other))
    found = texpr.tune(kernel, "cpu", **SIZES)
    assert isinstance(found, Tuning) and found.kept and found.best.ratio == 0.5
    assert found.measured[0].choices == own and found.choices.launches["turned_0"].vector == other
    assert kernel.compile("cpu", sizes=SIZES, tuned=True).mapping.candidate == found.choices
    assert kernel.compile("cpu", sizes=SIZES).mapping.candidate == own
    assert "not" not in str(found).splitlines()[-1] and "taken" in str(found)
    assert found.to_json()["best"] == found.measured.index(found.best)
    again = texpr.parse(COPY.replace("{", "{ -- the same\n", 1)).only
    assert again.compile("cpu", sizes=SIZES, tuned=True).mapping.candidate == found.choices
    assert "nothing is tuned of turned for cpu, M = 40, N = 71" in refused(
        lambda: kernel.compile("cpu", sizes={**SIZES, "N": 71}, tuned=True)
    )


def test_noise_takes_nothing(fake: Callable[[Seconds], FakeWatch]) -> None:
    kernel = texpr.parse(COPY).only
    fake(lambda launches, number: 1e-3 * (1 + 0.2 * (number * 2654435761 % 97) / 97))
    found = texpr.tune(kernel, "cpu", **SIZES, rounds=15)
    assert found.best is found.measured[0]
    assert kernel.compile("cpu", sizes=SIZES, tuned=True).mapping.candidate == found.choices


def test_turns_are_shuffled_and_what_is_slow_is_left_out(fake: Callable[[Seconds], FakeWatch]) -> None:
    own = texpr.parse(COPY).only.compile("cpu", sizes=SIZES).mapping.candidate.launches
    watch = fake(lambda launches, number: 1e-3 if launches == own else 5e-3)
    found = texpr.tune(texpr.parse(COPY).only, "cpu", **SIZES, rounds=5, count=3)
    assert [len(m.times_s) for m in found.measured] == [5] + [1] * (len(found.measured) - 1)
    assert len(watch.bursts) == 5 + len(found.measured) - 1
    orders = set()
    for seed in range(4):
        watch = fake(lambda launches, number: 1e-3)
        texpr.tune(texpr.parse(COPY).only, "cpu", **SIZES, rounds=1, count=3, seed=seed)
        orders.add(tuple(map(str, watch.bursts)))
    assert len(orders) > 1


def test_faster_choices_of_several_launches_are_measured_together(fake: Callable[[Seconds], FakeWatch]) -> None:
    kernel = texpr.parse(TWO).only
    own = kernel.compile("cpu", **SIZES).mapping.candidate.launches
    assert len(own) == 2
    watch = fake(lambda launches, number: 4e-3 - sum(1e-3 for name in own if launches[name] != own[name]))
    found = texpr.tune(kernel, "cpu", **SIZES, rounds=3)
    assert found.best is found.measured[-1] and found.best.launch == "two_0, two_1"
    assert all(found.choices.launches[name] != own[name] for name in own)
    assert found.best.ratio == 0.5 and watch.bursts[-1] in (found.choices.launches, own)


def test_what_is_stale_is_refused(fake: Callable[[Seconds], FakeWatch], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = texpr.parse(COPY).only
    fake(lambda launches, number: 1e-3)
    texpr.tune(kernel, "cpu", **SIZES, count=1, rounds=1)
    here = partial(kernel.compile, "cpu", sizes=SIZES, tuned=True)
    with monkeypatch.context() as other:
        other.setattr(tuned, "compiler", lambda: "another")
        assert "another version of the compiler" in refused(here)
    with monkeypatch.context() as other:
        other.setattr(tuned, "_processor", lambda: "a 6502")
        assert "and this machine has a 6502" in refused(here)
        texpr.tune(kernel, "cpu", **SIZES, count=1, rounds=1)  # beside what is there
        here()
    here()
    with monkeypatch.context() as other:
        other.setenv("TEXPR_CACHE_DIR", "off")
        settings.cache_clear()
        assert "the cache is off" in refused(here)
        assert not texpr.tune(kernel, "cpu", **SIZES, count=1, rounds=1).kept
    settings.cache_clear()
    target = here().build.target
    key = tuned._key(kernel.core(sizes=SIZES), target, SIZES)
    wrong = {"compiler": tuned.compiler(), "choices": {"launches": 1}}
    damaged = json.dumps({"schema": 1, "devices": {tuned.device_of(target): wrong}}).encode()
    for body in (b"", b"{", b"[]", b'{"schema": 2, "devices": {}}', b'{"schema": 1, "devices": [1]}', damaged):
        change("tuned", key, partial(kept_anyway, body))
        assert ("cannot be read" if body == damaged else "nothing is tuned") in refused(here)


def test_a_tuning_that_ends_early_keeps_nothing(
    fake: Callable[[Seconds], FakeWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = texpr.parse(COPY).only

    def interrupted(launches: Any, number: int) -> float:
        if number == 5:
            raise KeyboardInterrupt
        return 1e-3

    fake(interrupted)
    with pytest.raises(KeyboardInterrupt):
        texpr.tune(kernel, "cpu", **SIZES)
    refused(lambda: kernel.compile("cpu", sizes=SIZES, tuned=True))
    own = kernel.compile("cpu", sizes=SIZES).mapping.candidate.launches
    fake(lambda launches, number: 2e-3 if launches == own else 1e-3)
    wrong = SimpleNamespace(passed=False, objections=("B has 3 wrong elements",))
    monkeypatch.setattr(tuning, "run_trial", lambda *_, **__: wrong)
    with pytest.raises(TExprError, match="B has 3 wrong elements") as caught:
        texpr.tune(kernel, "cpu", **SIZES)
    assert caught.value.diagnostics[0].code == "E0604"
    refused(lambda: kernel.compile("cpu", sizes=SIZES, tuned=True))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"target": "cuda-host:sm_90a"}, "E0502"),
        ({"count": -1}, "E0607"),
        ({"rounds": "many"}, "E0607"),
        ({"count_": 1}, "E0607"),
        ({"dynamic": 3}, "E0211"),
        ({"M": 3.5}, "E0211"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], code: str) -> None:
    with pytest.raises(TExprError) as caught:
        texpr.tune(texpr.parse(COPY).only, **{**SIZES, **options})
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_mapping_and_tuned_are_one_or_the_other() -> None:
    kernel = texpr.parse(COPY).only
    own = kernel.compile("cpu", sizes=SIZES).mapping.candidate
    for options in ({"mapping": own, "tuned": True}, {"tuned": 1}):
        with pytest.raises(TExprError) as caught:
            kernel.compile("cpu", sizes=SIZES, **options)
        assert [d.code for d in caught.value.diagnostics] == ["E0607"]


def test_contenders_are_of_all_launches_and_of_several_kinds() -> None:
    found = texpr.parse(TWO).only.compile("cuda:sm_90a", M=1 << 20, N=1 << 10, stop_after="map").mapping.alternatives()
    picked = contenders(found, 10)
    launches = [one.launch for one, _ in picked]
    assert launches.count("two_0") > launches.count("two_1") > 0 and len(picked) == 10
    first: LaunchAlternatives = found[0]
    kinds = [type(other.choice) for one, other in picked if one is first]
    assert len({id(other) for _, other in picked}) == 10 and len(kinds) >= 5
    assert not contenders(found, 0) and len(contenders(found, 10**6)) == sum(len(one.others) for one in found)


def test_the_case_that_a_call_runs_is_the_one_that_is_tuned() -> None:
    kernel = texpr.parse(COPY).only
    own = kernel.compile("cpu", sizes=SIZES).mapping.candidate
    other = kernel.compile("cpu", sizes=SIZES).mapping.alternatives()[0].others[0].choices
    cases = [{"when": "address(A) % 64 == 16", "candidate": other}, {"when": "address(A) % 64 == 32", "candidate": own}]
    compiled = kernel.compile("cpu", sizes=SIZES, mapping={"cases": cases, "otherwise": own})
    trial: Any = SimpleNamespace(solved=SIZES, compiled=compiled)
    memory = np.zeros(40 * 70 * 4 + 128, np.uint8)
    for offset, case in ((16, 0), (32, 1), (0, 2)):
        begin = (offset - memory.ctypes.data) % 64
        array = memory[begin : begin + 40 * 70 * 4].view(np.float32).reshape(40, 70)
        assert case_of(compiled.mapping.candidate, trial, {"A": array, "B": array}) == case
    assert case_of(own, trial, {}) is None


def test_the_command_measures_keeps_and_writes(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    program, mapping = tmp_path / "turned.tex", tmp_path / "mapping.json"
    program.write_text(COPY, encoding="utf-8")
    given = (program, "-DM=40", "-DN=70")
    code, out, _ = command("tune", *given, "--count", 1, "--rounds", 1, "--json", "-o", mapping)
    assert code == 0
    found = json.loads(out)
    assert found["kept"] and found["sizes"] == SIZES and len(found["measured"]) == 2
    assert json.loads(mapping.read_text(encoding="utf-8")) == found["measured"][found["best"]]["candidate"]
    code, out, _ = command("run", *given, "--tuned", "--check")
    assert code == 0 and "right" in out
    assert (
        command("map", *given, "-t", "cpu", "--tuned")[1]
        == command("map", *given, "-t", "cpu", "--mapping", mapping)[1]
    )
    code, _, said = command("map", program, "-DM=41", "-t", "cpu", "--tuned")
    assert code == 3 and "E0609" in said and "`texpr tune` measures what fits" in said
    code, _, said = command("tune", *given, "-t", "cuda:sm_90a", "--count", 0)
    assert code == 2 and "no number from 1 to 1000" in said
