"""A check of a large run compares whole blocks of it, and what it says of them is what the full check says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr import sampling
from texpr.codegen.artifact import signature
from texpr.grammar.index.expr import const
from texpr.grammar.interpret.stage import interpret
from texpr.inspect import Progress
from texpr.sampling import BLOCK, Sample, choose_sample, cost
from texpr.trial import make_arguments, run_trial, trial_sizes
from texpr.version import VERSION

PRODUCT = """kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}
"""
FLAT = "par M i { par N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } } }"
STAGES = """kernel k(A: f32[M, N], B: f32[M, N], C: f32[M, N]) {
    par M i, N j { B[i, j] = A[i, j] * 0.5 }
    par M i { par N j { if j < i { C[i, j] = B[i, j] } else { C[i, j] = exp(B[i, j]) } } }
}"""
TOTAL = "kernel k(A: f32[N], S: f32[1]) { par 1 z { S[z] = 0.0 }\n par N i { S[0] += A[i] } }"
SIZES = {"product": {"M": 100, "N": 150, "K": 5}, "flat": {"M": 100, "N": 150, "K": 5}, "stages": {"M": 100, "N": 150}}
TEXTS = {"product": PRODUCT, "flat": FLAT, "stages": STAGES}


@pytest.fixture(autouse=True)
def few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "LEAST_ELEMENTS", 2000)


def sample_of(text: str, sizes: dict[str, int], seed: int = 0) -> Sample:
    compiled = texpr.parse(text).only.compile("cpu", stop_after="prove")
    return choose_sample(compiled.build.result("prove").program, sizes, seed, above=100)


@pytest.mark.parametrize("name", TEXTS)
def test_a_sample_says_what_the_full_check_says(name: str) -> None:
    core, sizes = texpr.parse(TEXTS[name]).only.core(), SIZES[name]
    manifest = signature(core, "cpu", VERSION)
    arrays = make_arguments(core, manifest, trial_sizes(manifest, sizes, {}), 0, {})
    sample = sample_of(TEXTS[name], sizes)
    assert sample.buffers == {"C"}
    whole = interpret(core, arrays, float64=True, sizes=sizes)
    part = interpret(core, arrays, float64=True, sizes=sizes, chosen=sample.indices, sampled=sample.buffers)
    compared = part.compared["C"]
    assert 2000 <= compared.sum() < compared.size / 2
    assert compared.reshape(100, 150)[0, 0]
    assert compared.reshape(100, 150)[-1, -1]
    for what in ("outputs", "bounds", "undecided"):
        assert np.array_equal(getattr(part, what)["C"][compared], getattr(whole, what)["C"][compared])


def test_the_seed_chooses_whole_blocks() -> None:
    chosen = [sample_of(PRODUCT, {"M": 1000, "N": 1000, "K": 2}, seed).indices["i"] for seed in range(3)]
    assert all(set(some // BLOCK * BLOCK) <= set(some) for some in chosen)
    assert len({tuple(some) for some in chosen}) == 3
    assert np.array_equal(chosen[0], sample_of(PRODUCT, {"M": 1000, "N": 1000, "K": 2}, 0).indices["i"])


def test_what_others_read_or_add_to_is_computed_in_full() -> None:
    assert not sample_of(TOTAL, {"N": 50_000}).indices
    assert "checked in full" in sample_of(TOTAL, {"N": 50_000}).sentence(100)
    assert set(sample_of(STAGES, {"M": 100, "N": 150}).indices) <= {"i_1", "j_1"}
    assert not sample_of(PRODUCT, {"M": 40, "N": 40, "K": 100}).indices  # all of its elements


def test_nothing_is_left_out_below_the_cost() -> None:
    program = texpr.parse(PRODUCT).only.compile("cpu", stop_after="prove").build.result("prove").program
    sizes = {"M": 500, "N": 500, "K": 3}
    assert choose_sample(program, sizes, 0, above=10**6).indices == {}
    assert choose_sample(program, sizes, 0, above=10**6).whole == 10**6
    assert choose_sample(program, sizes, 0, above=10**6 - 1).indices


def test_a_wrong_element_of_the_sample_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("texpr.trial.SAMPLE_ABOVE", 100)
    kernel = texpr.parse(PRODUCT).only
    right = run_trial(kernel, "cpu", sizes=SIZES["product"], check=True)
    assert right.passed
    assert (right.outputs[0].elements, right.outputs[0].of) == (int(right.outputs[0].elements), 15000)
    assert right.outputs[0].elements < 15000
    run = texpr.Compiled.__call__

    def spoiled(self: Any, *args: Any, **keywords: Any) -> None:
        run(self, *args, **keywords)
        args[2][99, 149] += 0.25  # the last element is in every sample

    monkeypatch.setattr(texpr.Compiled, "__call__", spoiled)
    assert run_trial(kernel, "cpu", sizes=SIZES["product"], check=True).outputs[0].wrong == 1


def test_the_command_says_what_was_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command) -> None:
    monkeypatch.setattr("texpr.trial.SAMPLE_ABOVE", 100)
    path = tmp_path / "k.tex"
    path.write_text(PRODUCT)
    sizes = [part for name, value in SIZES["product"].items() for part in ("-D", f"{name}={value}")]
    code, said, _ = command("run", path, *sizes, "--check")
    assert code == 0
    assert "of 15000 elements, greatest error" in said
    assert "a sample: " in said
    part = json.loads(command("run", path, *sizes, "--check", "--json")[1])
    whole = json.loads(command("run", path, *sizes, "--check=full", "--json")[1])
    assert "--check=full" in part["coverage"]
    assert whole["coverage"] == ""
    assert part["outputs"][0]["compared"] < part["outputs"][0]["elements"] == whole["outputs"][0]["compared"]
    assert command("run", path, *sizes, "--check=most")[0] == 2


def test_the_bar_ends_at_the_counted_cost() -> None:
    program = texpr.parse(PRODUCT).only.compile("cpu", stop_after="prove").build.result("prove").program
    core, sizes = texpr.parse(PRODUCT).only.core(), SIZES["product"]
    manifest = signature(core, "cpu", VERSION)
    shown: list[tuple[int, int]] = []
    bar = Progress(lambda done, total: shown.append((done, total)))
    bar.expect(cost(program.kernel.body, {n: (const(v), const(v)) for n, v in sizes.items()}))
    arrays = make_arguments(core, manifest, trial_sizes(manifest, sizes, {}), 0, {})
    interpret(core, arrays, float64=True, sizes=sizes, advance=bar.advance)
    assert shown[-1] == (100 * 150 * 6, 100 * 150 * 6)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
