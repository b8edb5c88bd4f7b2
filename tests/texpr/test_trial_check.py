"""What `texpr run --check` claims: a run that compared too little is not right, and what is wrong is seen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr import samples, trial
from texpr.codegen.artifact import signature
from texpr.grammar.interpret.stage import interpret
from texpr.runtime.compare import compare
from texpr.trial import make_arguments, run_trial
from texpr.version import VERSION

HISTOGRAM = """kernel histogram(A: f32[N], inout H: i32[256]) {
    par N i { atomic H[i32((A[i] + 1.0) * 128.0)] += 1 }
}
"""
OPEN_KEYS = """kernel keys(A: f32[N], inout H: i32[4]) {
    par N i { atomic H[i32(exp(A[i]) / exp(A[i]))] += 1 }
}
"""
SUM = "kernel total(A: f32[N], S: f32[1]) { S[0] = sum N i { A[i] } }"
DOT = "kernel dot(A: f32[N], B: f32[N], S: f32[1]) { S[0] = sum N i { A[i] * B[i] } }"


def test_keys_from_float_data_are_decided() -> None:
    report = run_trial(texpr.parse(HISTOGRAM).only, "cpu", sizes={"N": 5000}, check=True)
    assert report.passed
    assert (report.outputs[0].elements, report.outputs[0].undecided) == (256, 0)
    assert np.count_nonzero(report.arrays["H"]) > 200


def test_a_run_of_undecided_elements_is_not_right(tmp_path: Path, command) -> None:
    path = tmp_path / "keys.tex"
    path.write_text(OPEN_KEYS)
    code, said, _ = command("run", path, "-D", "N=100", "--check")
    assert code == 1
    assert "4 of 4 elements of H are undecided, and were not compared" in said
    assert not said.rstrip().endswith(": right")
    code, said, _ = command("run", path, "-D", "N=100", "--check", "--json")
    assert code == 1
    found = json.loads(said)
    assert found["passed"] is False
    assert "undecided" in found["objections"][0]


def test_a_run_that_compares_no_element_is_not_right() -> None:
    empty = texpr.parse("kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }").only
    assert not run_trial(empty, "cpu", sizes={"N": 0}, check=True).passed
    assert run_trial(empty, "cpu", sizes={"N": 0}).passed


@pytest.mark.parametrize("terms", [10**3, 10**4, 10**5, 10**6])
@pytest.mark.parametrize("text", [SUM, DOT], ids=["sum", "dot"])
def test_a_dropped_term_of_average_size_is_seen(text: str, terms: int) -> None:
    core = texpr.parse(text).only.core()
    manifest = signature(core, "cpu", VERSION)
    arrays = make_arguments(core, manifest, {"N": terms}, 0, {})
    arrays = {name: np.abs(values) for name, values in arrays.items()}
    done = interpret(core, arrays, float64=True)
    total = np.float32(done.outputs["S"])
    dropped = np.float32(done.outputs["S"] - done.outputs["S"] / terms)

    def wrong(got: Any) -> int:
        return compare("S", got, done.outputs["S"], done.bounds["S"], done.undecided["S"]).wrong

    assert wrong(total) == 0
    assert wrong(dropped) == 1


def test_the_longest_sum_decides_how_fine_samples_are() -> None:
    def bits(text: str, **sizes: int) -> int | None:
        return samples.sample_bits(texpr.parse(text).only.core(), sizes)

    assert [bits(SUM, N=n) for n in (1, 10**5, 10**6, 10**9)] == [10, 7, 4, 2]
    assert [bits(DOT, N=n) for n in (64, 10**5, 10**6, 10**9)] == [9, 3, 2, 2]
    assert bits(HISTOGRAM, N=10**6) == 10
    assert bits("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = exp(A[i]) } }", N=10**6) is None
    assert bits("kernel k(A: f32[N, M], B: f32[N]) { par N i { seq i + 1 j { B[i] += A[i, j] } } }", N=2**16, M=9) == 8


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
def test_samples_are_multiples_in_every_float_type(dtype: str) -> None:
    kernel = texpr.parse(f"kernel k(A: {dtype}[N], S: f32[1]) {{ S[0] = sum N i {{ f32(A[i]) }} }}").only
    parameter = signature(kernel.core(), "cpu", VERSION).parameters[0]
    values = samples.random_array(parameter, (4096,), 0, bits=4).astype(np.float64)
    assert np.all(values * 16 == np.rint(values * 16))
    assert np.all(values != 0)
    assert values.min() == -1.0
    assert values.max() <= 1.0
    assert len(np.unique(values)) > 8


def test_all_memory_is_counted_before_an_array_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "random_array", lambda *_, **__: pytest.fail("an array was made"))
    monkeypatch.setattr("texpr.trial_memory.host_memory_bytes", lambda: 10**6)
    add = texpr.parse("kernel add(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }").only
    with pytest.raises(texpr.TExprError, match=r"E0602.*add would need 0\.001\d* GB for its arrays, most of it for"):
        run_trial(add, "cpu", sizes={"N": 41_000})  # each fits alone
    filled = "new W: f32[N, 64] ; par N i, 64 j { W[i, j] = 1.0 }"
    local = f"kernel k(A: f32[N]) {{ {filled} ; par N i {{ A[i] = W[N - 1 - i, 3] }} }}"
    with pytest.raises(texpr.TExprError, match="E0602"):
        run_trial(texpr.parse(local).only, "cpu", sizes={"N": 8000})  # the workspace does not
    monkeypatch.setattr("texpr.trial_memory.host_memory_bytes", lambda: 10**7)
    with pytest.raises(texpr.TExprError, match=r"E0602.*and their check"):
        run_trial(add, "cpu", sizes={"N": 41_000}, check=True)
