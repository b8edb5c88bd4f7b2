"""Tiles of which each warpgroup has 128 rows, clusters of blocks side by side, and rows of tiles that go back under no
swizzle: simulated, checked, run as text on the CPU; what does not fit."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from spoil import spoiled
from test_piped import HARMLESS, LETTERS, arguments, check, far, first_form, mapped, piped, text

import texpr
from texpr.polyhedral.map.way_back import lies_apart
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate


def high(rows: int, columns: int, **how: Any) -> Piped:
    return replace(piped(rows, columns), high=2, **how)


FORMS = {
    "alone": high(128, 64),
    "two groups": high(256, 96, persistent=1),
    "odd rows": high(256, 112, abreast=2, persistent=4),
    "three chunks": high(256, 192, stages=3, abreast=2, persistent=2),
    "pairs below": high(128, 96, cluster=2, persistent=4, stages=3),
    "abreast": replace(piped(128, 64, persistent=4, stages=3), abreast=2),
    "abreast and odd": replace(piped(64, 80, persistent=2), abreast=2),
    "by turns and odd": replace(piped(128, 80, persistent=1, stages=3), alternate=True),
}
AROUND = "C[i, j] = bf16(max(f32(bias[j]) + sum K k { A[%s] * B[%s] }, 0.0))"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "form"),
    [
        ("nn", "alone"),
        ("tt", "alone"),
        ("nt", "two groups"),
        ("tn", "two groups"),
        ("nt", "odd rows"),
        ("tt", "odd rows"),
        ("tn", "three chunks"),
        ("nn", "pairs below"),
        ("tn", "abreast"),
        ("nt", "abreast"),
        ("tt", "abreast and odd"),
        ("nt", "by turns and odd"),
    ],
)
def test_a_ragged_product_is_right_in_the_simulator_and_its_syncs_are_enough(case: str, form: str) -> None:
    program = mapped(text(case, "f16" if case == "tt" else "bf16"), FORMS[form], M=264, N=200, K=136)
    check(program, LETTERS[case])
    assert faults(program, {}) == ()


@pytest.mark.parametrize("sizes", [(8, 8, 8), (256, 224, 64), (520, 232, 72)])
def test_other_sizes(sizes: tuple[int, int, int]) -> None:
    check(mapped(text("nt"), FORMS["odd rows"], **dict(zip("MNK", sizes, strict=True))), LETTERS["nt"])


def test_the_second_block_of_a_pair_may_have_no_tile() -> None:
    check(mapped(text("nt"), FORMS["odd rows"], M=256, N=112, K=64), LETTERS["nt"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["two groups", "odd rows"])
def test_what_is_around_sums_is_done_in_each_block_of_rows(form: str) -> None:
    body = text("nt", body=AROUND).replace("C: bf16", "bias: bf16[N], C: bf16")
    how = replace(FORMS[form], memory={"sum": Memory.REG})
    program = mapped(body, how, M=136, N=120, K=72)
    values = arguments(program)
    a, b, bias = (values[name].astype(float) for name in ("A", "B", "bias"))
    want, got = np.maximum(a @ b.T + bias, 0), simulate(program, values)["C"].astype(float)
    assert np.linalg.norm(got - want) < 4e-3 * np.linalg.norm(want) and faults(program, {}) == ()


@pytest.mark.sampled(4)
@pytest.mark.gxx
@pytest.mark.parametrize(
    ("case", "form"), [("nt", "odd rows"), ("tn", "two groups"), ("nn", "abreast"), ("nt", "by turns and odd")]
)
def test_the_text_is_right_on_the_cpu(case: str, form: str) -> None:
    kernel, sizes = texpr.parse(text(case)).only, {"M": 264, "N": 136, "K": 72}
    how = Candidate(launches={"g_0": FORMS[form]})
    values = arguments(kernel.compile("cuda:sm_90a", mapping=how, stop_after="map", **sizes).mapping.program)
    kernel.compile("cuda-host:sm_90a", mapping=how, **sizes)(**values)
    assert not far(values, values["C"], LETTERS[case])


def test_the_checker_finds_every_sync_that_is_dropped_or_moved() -> None:
    program = shortened(mapped(text("nt"), high(256, 144, abreast=2, stages=2), M=512, N=288, K=320))
    harmful = [(what, other) for what, other in spoiled(program) if not any(re.match(p, what) for p in HARMLESS)]
    assert len(harmful) > 20 and faults(program, {}) == ()
    assert [what for what, other in harmful if not faults(other, {})] == []


def test_large_products_whose_columns_lie_along_what_is_summed_have_them() -> None:
    found = first_form(text("nt"), M=4096, N=14336, K=4096)
    assert (found.tile, found.high, found.abreast, found.stages) == ({"i": 256, "j": 176}, 2, 2, 3)
    other = first_form(text("nt"), M=4096, N=4096, K=4096)
    assert (other.tile, other.high, other.abreast) == ({"i": 128, "j": 256}, 1, 1)


def test_of_eight_rows_that_lie_apart_no_more_than_two_begin_in_the_same_banks() -> None:
    for columns in range(8, 257, 8):
        places = Counter(row * 2 * columns // 16 % 8 for row in range(8))
        assert lies_apart(2 * columns) == (max(places.values()) <= 2 and columns != 16)  # that one has a swizzle


REFUSED = (
    ("nt", high(192, 64), "`tile`: multiples of 128 rows up to 384"),
    ("nt", high(256, 224), "`tile`: 448 columns of sums by each warpgroup, which holds 416"),
    ("nn", high(256, 208), "`tile`: multiples of 32 columns up to 256"),
    ("nt", replace(high(128, 64), high=3), "`high`: 1, or 2 of rows that are one index"),
    ("nt", replace(high(128, 64), alternate=True), "`high`: 1, or 2 of rows that are one index, of which no two"),
    ("nt", replace(piped(64, 64), abreast=2, cluster=2, persistent=4), "`abreast`: 1, or 2 blocks of a cluster"),
    ("nt", replace(piped(64, 64), abreast=2, persistent=3), "`persistent`: whole clusters"),
    ("nt", replace(piped(64, 64), abreast=2, split=2), "`split`: 2, 4, 8 blocks of a cluster that share nothing else"),
)


@pytest.mark.parametrize(("case", "how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(case: str, how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text(case), how)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message
