"""High tiles whose rows and columns are exchanged, and go back in boxes across: simulated, checked, run as text on the
CPU; where they are chosen, and what does not fit."""

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from spoil import spoiled
from test_piped import HARMLESS, LETTERS, arguments, check, far, first_form, mapped, text

import texpr
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate


def crossed(rows: int, columns: int, **how: Any) -> Piped:
    """Tiles of so many j by so many i."""
    given = {"stages": 2, "persistent": 2, "high": 2, **how}
    return Piped(along="i", across="j", tile={"j": rows, "i": columns}, **given)


FORMS = {
    "alone": crossed(128, 64),
    "one slot": crossed(256, 112, persistent=1),
    "two slots": crossed(256, 128, persistent=1),
    "odd rows": crossed(256, 208, abreast=2, persistent=4),
    "pairs below": crossed(128, 96, cluster=2, persistent=4, stages=3),
}
AROUND = "C[i, j] = bf16(max(f32(bias[%s]) + f32(R[i, j]) + sum K k { A[%%s] * B[%%s] }, 0.0))"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "form"),
    [*(("nn", form) for form in FORMS), ("nt", "odd rows"), ("tn", "two slots"), ("tt", "alone")],
)
def test_a_ragged_product_is_right_in_the_simulator_and_its_syncs_are_enough(case: str, form: str) -> None:
    program = mapped(text(case, "f16" if form == "alone" else "bf16"), FORMS[form], M=264, N=200, K=136)
    assert "stmatrix.x4.trans" in show(program) and "barrier (warpgroup)" in show(program)
    check(program, LETTERS[case])
    assert faults(program, {}) == ()


@pytest.mark.parametrize("sizes", [(8, 8, 8), (224, 256, 64), (232, 520, 72), (113, 264, 24)])
def test_other_sizes(sizes: tuple[int, int, int]) -> None:
    check(mapped(text("nn"), FORMS["one slot"], **dict(zip("MNK", sizes, strict=True))), LETTERS["nn"])


def test_products_of_a_batch() -> None:
    program = (
        "kernel g(A: bf16[P, M, K], B: bf16[P, K, N], C: bf16[M, P, N]) {"
        " par P p, M i, N j { C[i, p, j] = sum K k { A[p, i, k] * B[p, k, j] } } }"
    )
    check(mapped(program, FORMS["alone"], P=3, M=72, N=136, K=40), "pik,pkj->ipj")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("side", "form"), [("i", "one slot"), ("j", "two slots")])
def test_what_is_around_sums_is_done_in_each_block_of_rows(side: str, form: str) -> None:
    given = f"bias: bf16[{'M' if side == 'i' else 'N'}], R: bf16[M, N], C: bf16"
    body = text("nn", body=AROUND % side).replace("C: bf16", given)
    program = mapped(body, replace(FORMS[form], memory={"sum": Memory.REG}), M=136, N=200, K=72)
    values = arguments(program)
    a, b, bias, beside = (values[name].astype(float) for name in ("A", "B", "bias", "R"))
    want = np.maximum(a @ b + (bias[:, None] if side == "i" else bias) + beside, 0)
    got = simulate(program, values)["C"].astype(float)
    assert np.linalg.norm(got - want) < 4e-3 * np.linalg.norm(want) and faults(program, {}) == ()


def test_what_the_result_was_is_read_before_its_boxes_are_written() -> None:
    body = text("nn", body="C[i, j] = bf16(f32(C[i, j]) + sum K k { A[%s] * B[%s] })")
    program = mapped(body, replace(FORMS["one slot"], memory={"sum": Memory.REG}), M=136, N=200, K=72)
    values = arguments(program)
    values["C"] = np.random.default_rng(1).standard_normal((136, 200)).astype(ml_dtypes.bfloat16)
    want = values["C"].astype(float) + values["A"].astype(float) @ values["B"].astype(float)
    got = simulate(program, values)["C"].astype(float)
    assert np.linalg.norm(got - want) < 4e-3 * np.linalg.norm(want) and faults(program, {}) == ()


@pytest.mark.sampled(4)
@pytest.mark.gxx
@pytest.mark.parametrize(("case", "form"), [("nn", "odd rows"), ("nn", "two slots"), ("tn", "alone")])
def test_the_text_is_right_on_the_cpu(case: str, form: str) -> None:
    kernel, sizes = texpr.parse(text(case)).only, {"M": 264, "N": 136, "K": 72}
    how = Candidate(launches={"g_0": FORMS[form]})
    values = arguments(kernel.compile("cuda:sm_90a", mapping=how, stop_after="map", **sizes).mapping.program)
    kernel.compile("cuda-host:sm_90a", mapping=how, **sizes)(**values)
    assert not far(values, values["C"], LETTERS[case])


def test_the_checker_finds_every_sync_that_is_dropped_or_moved() -> None:
    program = shortened(mapped(text("nn"), crossed(256, 144, abreast=2, stages=2), M=288, N=512, K=320))
    harmful = [(what, other) for what, other in spoiled(program) if not any(re.match(p, what) for p in HARMLESS)]
    assert "drop barrier (warpgroup)" in [what for what, _ in harmful] and faults(program, {}) == ()
    assert [what for what, other in harmful if not faults(other, {})] == []


def test_large_products_of_which_columns_lie_along_their_side_have_them() -> None:
    found = first_form(text("nn"), M=8192, N=8192, K=8192)
    assert (found.across, found.tile, found.high, found.abreast) == ("j", {"j": 256, "i": 208}, 2, 2)
    for case, sizes in (("tn", (8192, 8192, 8192)), ("nn", (4096, 4096, 4096)), ("nn", (2048, 2048, 2048))):
        assert first_form(text(case), **dict(zip("MNK", sizes, strict=True))).across == "i"


def test_few_rows_that_are_columns_of_tiles_are_stored_by_threads() -> None:
    program = mapped(text("nn"), crossed(64, 32, high=1), M=24, N=136, K=72)
    assert "stmatrix" not in show(program)
    check(program, LETTERS["nn"])


REFUSED = (
    (text("nn"), crossed(256, 224), "`tile`: 448 columns of sums by each warpgroup, which holds 416"),
    (text("tn"), crossed(256, 208), "`tile`: multiples of 32 columns up to 256"),
    (text("nn", result="f32"), crossed(128, 64), "`high`: 1, or 2 of rows that are one index"),
    (
        text("nn", body="C[i, 2 * j] = sum K k { A[%s] * B[%s] }").replace("[M, N]", "[M, 2 * N]"),
        crossed(128, 64),
        "`h",
    ),
)


@pytest.mark.parametrize(("program", "how", "said"), REFUSED, ids=lambda value: str(value)[-20:])
def test_what_does_not_fit_is_refused(program: str, how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(program, how)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message
