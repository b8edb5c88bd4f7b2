"""Products of matrices by single warps, from sm_80 on: chosen, checked, simulated, run as text on the CPU, compiled;
with what programs say around them; candidates that do not fit."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spoil import spoiled
from test_epilogues import EDGE, FORMS, same
from test_epilogues import arguments as exact_arguments
from test_piped import HEADS, LETTERS, arguments, far, text

import texpr
from texpr.codegen.toolchain import INCLUDE, NVCC_FLAGS, NVCC_WERROR, find_nvcc
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Cases
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

SMALL = Ringed(along="j", across="i", tile={"i": 64, "j": 64}, each={"i": 32, "j": 32}, depth=64, stages=3, band=2)


def ringed(rows: int, columns: int, high: int, wide: int, **how: Any) -> Ringed:
    return replace(SMALL, tile={"i": rows, "j": columns}, each={"i": high, "j": wide}, **how)


def mapped(program: str, how: Ringed | None = None, target: str = "sm_80", **sizes: int) -> MappedProgram:
    choice = None if how is None else Candidate(launches={"g_0": how})
    kernel = texpr.parse(program).only
    return kernel.compile(f"cuda:{target}", stop_after="map", mapping=choice, **sizes).mapping.program


def form(program: str, target: str = "sm_80", **sizes: int) -> Any:
    return mapped(program, None, target, **sizes).candidate.launches["g_0"]


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_120a"])
def test_targets_without_wgmma_multiply_by_warps(target: str) -> None:
    found = form(text("nn"), target, M=4096, N=4096, K=4096)
    assert isinstance(found, Ringed) and found.tile["i"] * found.tile["j"] >= 128 * 128


def test_rows_that_begin_at_no_word_are_copied_first() -> None:
    assert isinstance(form(text("nn"), M=1024, N=1026, K=1028), Ringed)
    found = mapped(
        text("nn"), M=1024, N=1025, K=1024
    ).candidate  # rows of 2050 bytes, of C too, which go back one by one
    assert isinstance(found, Candidate) and found.laid == {"B"}
    assert [isinstance(choice, Ringed) for choice in found.launches.values()] == [False, True]


def test_sizes_that_a_call_decides_have_cases() -> None:
    found = mapped(text("nn")).candidate
    assert isinstance(found, Cases) and not found.otherwise.laid
    assert [sorted(case.candidate.laid) for case in found.cases] == [[], [], ["A", "B", "C"]]
    assert all(any(isinstance(c, Ringed) for c in case.candidate.launches.values()) for case in found.cases)


SHALLOW = replace(SMALL, depth=32, stages=2)
PRODUCTS = {
    "nn": ("bf16", "bf16", SHALLOW, (40, 56, 72)),
    "nt": ("f16", "f32", ringed(64, 128, 64, 32, depth=32, stages=2), (34, 131, 34)),  # rows of words, C one by one
    "tn": ("bf16", "bf16", replace(SMALL, depth=32), (68, 36, 36)),
    "tt": ("f16", "f16", SMALL, (10, 68, 4)),
}


def product(case: str) -> tuple[str, Ringed, dict[str, int]]:
    dtype, result, how, sizes = PRODUCTS[case]
    return text(case, dtype, result=result), how, dict(zip("MNK", sizes, strict=True))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", HEADS)
def test_a_ragged_product_is_right_in_the_simulator(case: str) -> None:
    program, how, sizes = product(case)
    own = mapped(program, how, **sizes)
    values = arguments(own)
    assert not far(values, simulate(own, values)["C"], LETTERS[case])


@pytest.mark.gxx
@pytest.mark.parametrize("case", ["nn", "tt"])
def test_the_text_of_a_product_is_right_on_the_cpu(case: str) -> None:
    program, how, sizes = product(case)
    values = arguments(mapped(program, how, **sizes))
    choice = Candidate(launches={"g_0": how})
    texpr.parse(program).only.compile("cuda-host:sm_80", mapping=choice, **sizes)(**values)
    assert not far(values, values["C"], LETTERS[case])


def test_nan_and_infinity_go_through() -> None:
    program, how, _ = product("nn")
    own = mapped(program, how, M=40, N=24, K=20)
    values = arguments(own)
    values["A"][3, 5], values["A"][30, 0], values["B"][0, :] = np.inf, np.nan, np.abs(values["B"][0, :]) + 1
    got = simulate(own, values)["C"].astype(np.float64)
    with np.errstate(all="ignore"):
        want = values["A"].astype(np.float64) @ values["B"].astype(np.float64)
    assert (np.isnan(got) == np.isnan(want)).all() and np.isnan(got[30]).all()
    assert (np.isposinf(got) == np.isposinf(want)).all() and np.isinf(got[3]).all()


def test_products_of_a_batch_and_of_parts_of_arrays_are_right() -> None:
    program = (
        (
            "kernel g(A: f16[K, P, L], B: bf16[P, N, 100] #align(4), C: f32[N, P, L]) {"
            " par P p, 60 i, N j { C[j, p, i] = sum 50 k { A[k, p, i] * f16(B[p, j, k]) } } }"
        )
        .replace("bf16[P, N, 100]", "f16[P, N, 100]")
        .replace("f16(B[p, j, k])", "B[p, j, k]")
    )
    how = Ringed(along="i", across="j", tile={"i": 64, "j": 64}, each={"i": 32, "j": 64}, depth=32, stages=2)
    own = mapped(program, how, P=2, N=34, K=60, L=70)
    values = arguments(own)
    got = simulate(own, values)["C"]
    want = np.einsum("kpi,pjk->jpi", values["A"][:50, :, :60].astype(float), values["B"][:, :, :50].astype(float))
    np.testing.assert_allclose(got[:, :, :60], want, rtol=1e-4, atol=1e-4)
    assert np.isnan(got[:, :, 60:]).all()  # nobody writes there


AROUND = (
    "scaled", "rounded on the way", "in place", "two outputs", "integers", "chosen by place", "another type",
    "three products into one element", "two products, turned",
)  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", AROUND)
def test_what_is_around_a_product_is_done_with_its_sums(name: str) -> None:
    wanted = form(FORMS[name], M=512, N=512, K=512)
    assert isinstance(wanted, Ringed)
    how = replace(wanted, tile=SMALL.tile, each=SMALL.each, depth=32, stages=2, resident=1)
    program = mapped(FORMS[name], how, **EDGE)
    values = exact_arguments(program)
    expected = interpret(program.kernel, {n: np.array(a) for n, a in values.items()}).outputs
    same(simulate(program, values), expected)


@cache
def short() -> MappedProgram:
    return mapped(text("nn"), replace(SMALL, depth=32), M=64, N=64, K=192)


HARMLESS = (
    r"double (barrier|close|wait \()",
    r"later close group",  # past the products of the thread itself
    r"(drop|earlier|later) wait \(cp_async, all, done\)",  # the last groups have no copies
)


def test_the_checker_finds_every_sync_that_is_dropped_or_moved() -> None:
    harmful = [(what, other) for what, other in spoiled(short()) if not any(re.match(p, what) for p in HARMLESS)]
    assert len(harmful) > 8 and faults(short(), {}) == faults(shortened(short()), {}) == ()
    assert [what for what, other in harmful if not faults(shortened(other), {})] == []


def test_few_steps_stand_for_many() -> None:
    program = mapped(text("nn"), SMALL, M=4096, N=4096, K=4096)
    assert "for k_step < 64" in show(program) and "for k_step < 7" in show(shortened(program))


REFUSED = (
    (replace(SMALL, along="i", across="j"), "`across` and `along`: the rows and columns are i and j"),
    (replace(SMALL, tile={"i": 64}), "`tile` and `each` give the rows and the columns of a tile"),
    (ringed(64, 64, 16, 32), "`each`: 32, 64, 128 rows or columns"),
    (ringed(96, 64, 32, 32), "`tile`: 64, 128 or 256 rows or columns, whole warps of them"),
    (ringed(128, 128, 128, 64), "`each`: at most 128 sums for each lane"),
    (replace(SMALL, depth=48), "`depth`: 32 or 64 products"),
    (replace(SMALL, stages=1), "`stages` are 2 to 8, and `band` 1 to 65536"),
    (replace(SMALL, resident=99), "`resident`: 99 blocks of 128 threads do not fit"),
    (ringed(256, 256, 64, 64, stages=4), "its tiles need 294912 bytes of shared memory, and a block has 166912"),
)


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(how: Ringed, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text("nn"), how, M=136, N=72, K=72)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


def test_no_other_program_takes_such_a_candidate() -> None:
    with pytest.raises(texpr.TExprError, match="no product of matrices for tensor cores"):
        mapped(text("nn", "f32"), SMALL, M=136, N=72, K=72)
    with pytest.raises(texpr.TExprError, match="rows of B do not begin at multiples of 4 bytes"):
        mapped(text("nn"), SMALL, M=136, N=71, K=72)


def test_a_choice_is_read_as_it_was_written() -> None:
    own = Candidate(launches={"g_0": SMALL})
    assert read_choices(choices_json(own)) == own


@pytest.mark.nvcc
def test_a_product_keeps_its_sums_in_registers(tmp_path: Path) -> None:
    source = texpr.parse(text("tn")).only.compile("cuda:sm_80", stop_after="emit", M=4096, N=4096, K=4096).source
    (tmp_path / "g.cu").write_text(source)
    flags = [*NVCC_FLAGS, *NVCC_WERROR, "-arch=sm_80", "-I", str(INCLUDE), "-Xptxas", "-v"]
    command = [find_nvcc().path, *flags, "-cubin", "-o", str(tmp_path / "g.cubin"), str(tmp_path / "g.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr, done.stderr
