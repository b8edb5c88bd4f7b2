"""Rows whose length a call decides: each length has the choice of a kernel that is compiled for it, or one near it."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import texpr
from texpr.grammar.index.value import condition_value
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Case, Cases, Choice, Flat

PROGRAMS = Path(__file__).parent.parent.parent / "benchmarks" / "kernels" / "memory"
NAMES = ("softmax", "rmsnorm", "row_sum")


def text_of(name: str) -> str:
    return (PROGRAMS / f"{name}.tex").read_text(encoding="utf-8").replace("where N >= 1 ", "")


@cache
def choices(name: str, columns: int | None) -> Candidate | Cases:
    sizes = {} if columns is None else {"M": 262144, "N": columns}
    found: Candidate | Cases = (
        texpr.parse(text_of(name)).only.compile("cuda:sm_90a", sizes=sizes, stop_after="map").mapping.candidate
    )
    return found


def only(candidate: Candidate) -> Choice:
    (choice,) = candidate.launches.values()
    return choice


def of_call(name: str, columns: int) -> Choice:
    """What a call of the free kernel runs."""
    free = choices(name, None)
    assert isinstance(free, Cases)
    holding = (case.candidate for case in free.cases if condition_value(case.when, {"N": columns}))
    return only(next(holding, free.otherwise))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [2, 8, 9, 31, 32, 512, 1000, 1024, 1023, 2048, 3000, 4093, 4096, 8191, 8192, 32000])
def test_a_call_runs_what_is_chosen_for_its_size(name: str, columns: int) -> None:
    own = choices(name, columns)
    assert isinstance(own, Candidate)
    wanted, found = only(own), of_call(name, columns)
    assert type(found) is type(wanted)
    if isinstance(wanted, Blocks) and isinstance(found, Blocks):
        assert bool(found.rows) == bool(wanted.rows), "held, or read again"
        assert bool(found.shared_out) == bool(wanted.shared_out)
        team, usual = found.threads // found.together, wanted.threads // wanted.together
        assert team <= 4 * usual and usual <= 2 * team
        if columns <= 8192:
            assert [row.line for row in found.rows] == [row.line for row in wanted.rows], "whole runs, or any"
    else:
        assert found == wanted


@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_of_short_rows_lanes_have_an_element_each_and_of_shorter_ones_a_thread_has_all(name: str) -> None:
    held = only(choices(name, 31))
    assert isinstance(held, Blocks) and held.rows and held.shared_out and not held.widths
    assert held.threads == 32 * held.together
    assert isinstance(only(choices(name, 8)), Flat) and isinstance(only(choices(name, 9)), Blocks)


@pytest.mark.parametrize("columns", [8192, 12288, 16384, 20480, 32768])
@pytest.mark.parametrize("name", NAMES)
def test_long_rows_of_whole_runs_have_cases_of_their_own(name: str, columns: int) -> None:
    whole, ragged = of_call(name, columns), of_call(name, columns - 1)
    assert isinstance(whole, Blocks) and isinstance(ragged, Blocks)
    assert [row.line for row in whole.rows] == [0] and [row.line for row in ragged.rows] == [128]
    again = of_call(name, 32769)
    assert isinstance(again, Blocks) and not again.rows, "a longer one is read again"


@pytest.mark.parametrize(("dtype", "call"), [("bf16", "fast_div_whole"), ("f32", "")])
def test_a_quotient_by_the_length_of_a_row_takes_its_inverse_where_it_is_rounded_to_16_bits(dtype, call) -> None:
    text = text_of("rmsnorm").replace("f32[", f"{dtype}[")
    free = texpr.parse(text).only.compile("cuda:sm_90a", stop_after="emit").source
    assert (call in free) if call else "fast_div" not in free
    own = texpr.parse(text).only.compile("cuda:sm_90a", sizes={"M": 99, "N": 4093}, stop_after="emit").source
    assert "fast_div_whole" not in own, "a number's inverse is the compiler's business"


@pytest.mark.gxx
@pytest.mark.parametrize("name", NAMES)
def test_one_artifact_is_right_at_every_length(name: str) -> None:
    kernel = texpr.parse(text_of(name)).only.compile("cuda-host:sm_90a")
    for columns in (0, 1, 31, 33, 513, 1024, 2047, 4093, 4096, 8193, 12288, 16383, 30001, 32768, 100003):
        rng = np.random.default_rng(columns)
        x, g = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, columns), (columns,)))
        out = np.full(2 if name == "row_sum" else (2, columns), np.nan, np.float32)
        wide = x.astype(np.float64)
        if name == "softmax":
            kernel(x, out)
            top = wide.max(axis=1, keepdims=True, initial=-np.inf)
            wanted = np.exp(wide - top) / np.exp(wide - top).sum(axis=1, keepdims=True) if columns else wide
        elif name == "rmsnorm":
            kernel(x, g, out)
            wanted = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * g if columns else wide
        else:
            kernel(x, out)
            wanted = wide.sum(axis=1)
        np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=1e-4 if name == "row_sum" else 1e-7)


@cache
def texts_of_softmax() -> tuple[list[tuple[Case, str]], str]:
    """The cases with their kernels, and the last kernel."""
    built = texpr.parse(text_of("softmax")).only.compile("cuda:sm_90a", stop_after="emit")
    *texts, last = re.findall(r"^texpr_softmax_0_case\d+\(.*?^TX_EXPORT", built.source, re.MULTILINE | re.DOTALL)
    free = choices("softmax", None)
    assert isinstance(free, Cases)
    return list(zip(free.cases, texts, strict=True)), last


def test_a_case_knows_how_long_its_rows_are() -> None:
    cases, last = texts_of_softmax()
    for case, text in cases:
        long = condition_value(case.when, {"N": 4100})
        assert ("tx::f64" in text) is long, "a sum of at most 4096 terms is no long one"
        if condition_value(case.when, {"N": 4093}) and not condition_value(case.when, {"N": 2048}):
            assert ".cut(row_part < 1, 2 <= row_part)" in text, "two rounds of 896 are in every row above 2048"
    assert "tx::f64" in last
    assert not any("if (N > 0)" in text for _, text in cases), "rows without an element are those of the first case"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_of_elements_where_what_lies_outside_changes_nothing(name: str) -> None:
    sizes = {"M": 65536, "N": 4093}
    source = texpr.parse(text_of(name)).only.compile("cuda:sm_90a", sizes=sizes, stop_after="emit").source
    assert not re.search(r"if \(.*\bj(_\d+)? < 4093", source), "zeros, or in softmax -inf"
    assert ("tx::bf16{0xff80}" in source or "-tx::f32_infinity())" in source) is (name == "softmax")


def test_runs_of_aligned_rows_are_loaded_whole_or_not_at_all() -> None:
    aligned = [text for case, text in texts_of_softmax()[0] if not condition_value(case.when, {"N": 31})]
    assert aligned and not any("tx::load_inside" in text or "tx::fill" in text for text in aligned)


def test_a_row_of_one_element_has_no_loop() -> None:
    case, text = texts_of_softmax()[0][0]
    assert [n for n in range(3) if condition_value(case.when, {"N": n})] == [1]
    text = re.sub("//.*", "", text)
    assert "for (" not in text and "N" not in re.findall(r"\w+", text)
    one = (
        "kernel k(X: f32[M], S: f32[M]) where K <= 1 { par M i { S[i] = 0.0; seq K j { S[i] += X[i] * f32(j + 1) } } }"
    )
    asked = texpr.parse(one).only.compile("cuda:sm_90a", stop_after="emit").source
    assert "for (" not in asked and "if (0 < K)" in asked


def test_the_report_names_the_case_of_every_length() -> None:
    shown = str(texpr.parse(text_of("softmax")).only.compile("cuda:sm_90a", stop_after="map").mapping)
    assert len(re.findall(r"if N <= \d+", shown)) >= 7 and "N % 4 == 0" in shown
