"""Products of matrices on tensor cores from plain programs: recognised, printed, checked, simulated, run as text on the
CPU, compiled; what is none, and candidates that do not fit."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from spoil import spoiled

import texpr
from texpr.codegen import tensor_map
from texpr.codegen.toolchain import INCLUDE, NVCC_FLAGS, NVCC_WERROR, find_nvcc
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.piped import GROUP_NAMES
from texpr.polyhedral.map.product_boxes import MAX_RANK, UNIT_BYTES
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

HEADS = {"nn": "[M, K] [K, N]", "nt": "[M, K] [N, K]", "tn": "[K, M] [K, N]", "tt": "[K, M] [N, K]"}
SIZES = {"M": 136, "N": 72, "K": 72}


def text(case: str, dtype: str = "bf16", body: str = "C[i, j] = sum K k { A[%s] * B[%s] }", result: str = "") -> str:
    """A product whose factors lie as the case says, in three lines."""
    first, second = HEADS[case].split("] ")
    a, b = ("i, k" if case[0] == "n" else "k, i"), ("k, j" if case[1] == "n" else "j, k")
    return (
        f"kernel g(A: {dtype}{first}], B: {dtype}{second}, C: {result or dtype}[M, N]) {{\n"
        f"    par M i, N j {{ {body % (a, b)} }}\n}}"
    )


def mapped(program: str, how: Piped | None = None, **sizes: int) -> MappedProgram:
    kernel = texpr.parse(program).only
    choice = None if how is None else Candidate(launches={"g_0": how})
    found = kernel.compile("cuda:sm_90a", stop_after="map", mapping=choice, **(sizes or SIZES))
    return found.mapping.program


def piped(rows: int, columns: int, **how: int) -> Piped:
    given = {"stages": 2, "persistent": 2, **how}
    return Piped(along="j", across="i", tile={"i": rows, "j": columns}, **given)  # type: ignore[arg-type]  # numbers


def first_form(program: str, **sizes: int) -> Any:
    return texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **sizes).mapping.candidate.launches["g_0"]


@pytest.mark.parametrize("case", HEADS)
def test_a_plain_product_of_matrices_goes_to_the_tensor_cores(case: str) -> None:
    for program in (
        text(case),
        text(case, "f16", "new s: f32; s = 0.0; seq K k { s += A[%s] * B[%s] } C[i, j] = f16(s)"),
    ):
        found = first_form(program, M=4096, N=4096, K=8192)
        assert (found.tile, found.stages, found.persistent, found.cluster) == ({"i": 128, "j": 256}, 4, 132, 2)


@pytest.mark.parametrize(
    ("sizes", "body", "columns", "turns"),
    [
        ((8192, 8192, 1024), "sum K k { A[%s] * B[%s] }", 192, True),  # what is around a tile is much
        ((8192, 8192, 1024), "gelu(f32(sum K k { A[%s] * B[%s] }))", 256, False),  # more than its products: by both
        ((4096, 4096, 4096), "sum K k { A[%s] * B[%s] }", 256, False),  # 192 leaves much of the last tiles empty
    ],
)
def test_groups_alternate_where_what_is_around_products_is_much_and_less_than_they(
    sizes: tuple[int, ...], body: str, columns: int, turns: bool
) -> None:
    found = first_form(text("nt", body=f"C[i, j] = {body}"), **dict(zip("MNK", sizes, strict=True)))
    assert (found.tile, found.alternate) == ({"i": 128, "j": columns}, turns)


BATCHES = (
    (
        "A: bf16[P, M, K], B: bf16[P, K, N], C: bf16[P, M, N]",
        "C[p, i, j] = sum K k { A[p, i, k] * B[p, k, j] }",
        "pik,pkj->pij",
    ),
    (
        "A: bf16[M, P, K], B: bf16[K, P, N], C: bf16[M, P, N]",
        "C[i, p, j] = sum K k { A[i, p, k] * B[k, p, j] }",
        "ipk,kpj->ipj",
    ),
    (
        "A: bf16[P, K, M], B: bf16[N, K], C: bf16[P, M, N]",
        "C[p, i, j] = sum K k { A[p, k, i] * B[j, k] }",
        "pki,jk->pij",
    ),
)


@pytest.mark.parametrize(("head", "leaf", "letters"), BATCHES, ids=lambda text: text[:12])
def test_products_of_a_batch_in_any_place_go_there_as_well(head: str, leaf: str, letters: str) -> None:
    program = f"kernel g({head}) {{ par P p, M i, N j {{ {leaf} }} }}"
    assert isinstance(first_form(program, P=6, M=256, N=256, K=256), Piped)
    sizes = {"P": 3, "M": 72, "N": 136, "K": 40}
    check(mapped(program, piped(64, 64, persistent=5), **sizes), letters)


LARGE = {"M": 512, "N": 512, "K": 512}
LOCAL = (
    "kernel g(A: bf16[M, K], B: bf16[K, N], C: %s[M, N]) {"
    " par M i, N j { new s: %s; s = 0.0; seq K k { s += %s } C[i, j] = %s } }"
)


def test_whole_steps_of_what_arrays_have_go_there_and_rows_that_none_asks_for_stay_out() -> None:
    assert isinstance(first_form(text("nt").replace("sum K k", "sum K - 64 k"), **LARGE), Piped)
    program = "kernel g(A: bf16[M, K], B: bf16[K, N], C: bf16[M - 12, N]) {{ par M - 12 i, N j {{ {leaf} }} }}"
    own = program.format(leaf="C[i, j] = sum K - 64 k { A[i, k] * B[k, j] }")
    assert isinstance(first_form(own, **LARGE), Piped)
    found = mapped(own, piped(64, 64), M=140, N=72, K=192)
    values = arguments(found)
    got = simulate(found, values)["C"]
    short = {"A": values["A"][:128, :128], "B": values["B"][:128]}
    assert not far(short, got, "ik,kj->ij")


def test_a_sum_that_is_rounded_once_goes_there_by_any_casts() -> None:
    for result, own, value in (("bf16", "f32", "bf16(f32(s))"), ("bf16", "bf16", "s"), ("f32", "f32", "s")):
        assert isinstance(first_form(LOCAL % (result, own, "A[i, k] * B[k, j]", value), **LARGE), Piped)


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (text("nn"), {"M": 512, "N": 508, "K": 512}),  # rows of B and C that are no multiples of 16 bytes
        (text("nt"), {"M": 512, "N": 512, "K": 260}),
        (text("nn"), {"M": 512, "N": 32, "K": 512}),  # too few columns, and tiles
        (text("nn"), {"M": 128, "N": 128, "K": 128}),  # too few products
        (text("nn", "f32"), {"M": 512, "N": 512, "K": 512}),
        (LOCAL % ("f32", "f64", "f64(f32(A[i, k]) * f32(B[k, j]))", "f32(s)"), LARGE),
        (text("nn").replace("N j", "N j #tile(128, 128)"), {"M": 512, "N": 512, "K": 512}),
        (text("nn").replace(") {", ") #threads(128) {", 1), {"M": 512, "N": 512, "K": 512}),
        (text("nn"), {"M": 512, "N": 512, "K": 1 << 18}),  # longer than an f32 carries
        (text("nt").replace("sum K k", "sum K - 12 k"), LARGE),  # a box would bring what is not summed
    ],
)
def test_what_tensor_cores_or_boxes_do_not_take_stays_with_other_forms(program: str, sizes: dict[str, int]) -> None:
    assert not isinstance(first_form(program, **sizes), Piped)
    kernel = texpr.parse(text("nn")).only
    other = kernel.compile("cuda:sm_90", stop_after="map", M=512, N=512, K=512).mapping.candidate.launches["g_0"]
    assert not isinstance(other, Piped)


def arguments(program: MappedProgram, seed: int = 3) -> dict[str, Any]:
    random, types = np.random.default_rng(seed), {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
    found: dict[str, Any] = {}
    for buffer in program.kernel.params:
        shape, dtype = [constant_value(extent) for extent in buffer.shape], types[str(buffer.dtype)]
        values = np.full(shape, np.nan) if buffer.name == "C" else random.standard_normal(shape)
        found[buffer.name] = values.astype(dtype)
    return found


def far(values: dict[str, Any], got: Any, letters: str) -> bool:
    want = np.einsum(letters, values["A"].astype(float), values["B"].astype(float))
    return not np.linalg.norm(got.astype(float) - want) < 4e-3 * np.linalg.norm(want)


def check(program: MappedProgram, letters: str) -> None:
    values = arguments(program)
    assert not far(values, simulate(program, values)["C"], letters)


LETTERS = {"nn": "ik,kj->ij", "nt": "ik,jk->ij", "tn": "ki,kj->ij", "tt": "ki,jk->ij"}
FORMS = {
    "alone": piped(64, 64),
    "pairs": piped(128, 128, cluster=2, stages=3, persistent=4),
    "wide": piped(128, 192, band=1),
    "panels": piped(64, 192, cluster=2),
    "halves": piped(64, 96, cluster=2),
    "fours": piped(64, 160, cluster=4, persistent=4, stages=3),
    "by turns": replace(piped(128, 96, cluster=2, stages=3), alternate=True),
    "low, by turns": replace(piped(64, 64, stages=3, persistent=1), alternate=True),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "form"),
    [
        *((case, "alone") for case in HEADS),
        ("nn", "pairs"),
        ("tt", "pairs"),
        ("tn", "wide"),
        ("nn", "panels"),
        ("nt", "halves"),
        ("nn", "fours"),
        ("tt", "fours"),
        ("tn", "by turns"),
        ("nt", "low, by turns"),
    ],
)
def test_a_ragged_product_is_right_in_the_simulator(case: str, form: str) -> None:
    program = mapped(text(case, "f16" if case == "tt" else "bf16"), FORMS[form], M=200, N=136, K=72)
    check(program, LETTERS[case])


def test_sums_that_are_not_rounded_go_back_in_pairs() -> None:
    program = text("nt", "f16", result="f32")
    assert isinstance(first_form(program, M=512, N=512, K=512), Piped)
    values = arguments(own := mapped(program, FORMS["wide"], M=136, N=136, K=72))
    want = np.einsum(LETTERS["nt"], values["A"].astype(float), values["B"].astype(float))
    got = simulate(own, values)["C"]
    assert got.dtype == np.float32 and np.linalg.norm(got - want) < 1e-6 * np.linalg.norm(want)


@pytest.mark.sampled(4)
@pytest.mark.gxx
@pytest.mark.parametrize(
    ("case", "form", "result"),
    [
        ("nn", "pairs", "bf16"),
        ("nn", "fours", "bf16"),
        ("tt", "fours", "bf16"),
        ("tn", "alone", "f32"),
        ("nn", "by turns", "bf16"),
    ],
)
def test_the_text_of_a_product_is_right_on_the_cpu(case: str, form: str, result: str) -> None:
    kernel = texpr.parse(text(case, result=result)).only
    how = Candidate(launches={"g_0": FORMS[form]})
    compiled = kernel.compile("cuda-host:sm_90a", mapping=how, M=136, N=136, K=72)
    values = arguments(kernel.compile("cuda:sm_90a", mapping=how, stop_after="map", M=136, N=136, K=72).mapping.program)
    compiled(**values)
    assert not far(values, values["C"], LETTERS[case])


PRINTED = (
    "S1_A: copy A_tile[x, y] = from A[i_tile + x, 64 * k_taken + y] for x < 128, y < 64  (transaction, ring, own block",
    "S1_B: copy B_tile[2 * rank, y, x] = from B[64 * k_taken + y, j_tile + 64 * (2 * rank) + x] for y < 64, x < 64",
    "S1_B_1: copy B_tile[2 * rank + 1, y, x] = from B[64 * k_taken + y, j_tile + 64 * (2 * rank + 1) + x] for y < 64",
    "S1: contract C_sums[m, n] += from A_tile[64 * group + m, depth], B_tile[n / 64, depth, n % 64] for m < 64, n",
    "S1_out: copy C[i_tile + (64 * group + 16 * warp) + x, j_tile + 64 * chunk + y] = from C_rows[group, warp, chunk",
)


@pytest.mark.parametrize(("k", "apart"), [(1024, False), (2048, True), (4096, True)])
def test_a_long_sum_of_several_tiles_is_not_unrolled_and_a_short_one_as_a_compiler_likes(k: int, apart: bool) -> None:
    found = show(mapped(text("nn"), M=4096, N=4096, K=k))
    steps = [line for line in found.splitlines() if line.strip().startswith("for k_step < ")]
    assert len(steps) >= 2 and all(("(unrolled by 1)" in line) is apart for line in steps)


def test_the_way_in_is_printed_as_boxes_of_which_each_block_of_a_cluster_brings_its_part() -> None:
    kernel = texpr.parse(text("nn")).only
    found = str(kernel.compile("cuda:sm_90a", stop_after="map", M=4096, N=4096, K=4096).mapping)
    assert [line for line in PRINTED if line not in found] == []


@pytest.mark.nvcc
def test_a_product_keeps_its_sums_in_registers(tmp_path: Path) -> None:
    source = texpr.parse(text("tn")).only.compile("cuda:sm_90a", stop_after="emit", M=4096, N=4096, K=4096).source
    (tmp_path / "g.cu").write_text(source)
    flags = [*NVCC_FLAGS, *NVCC_WERROR, "-gencode", "arch=compute_90a,code=sm_90a", "-I", str(INCLUDE), "-Xptxas", "-v"]
    command = [find_nvcc().path, *flags, "-cubin", "-o", str(tmp_path / "g.cubin"), str(tmp_path / "g.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr, done.stderr


HARMLESS = (
    r"earlier acquire ring$",  # a slot is waited for before it must be
    r"double (barrier|drain|fence|close|wait \()",
    r"(earlier fence \(wgmma\)|later wait ring)$",  # a fence of registers is not of what a wait is for
    r"a relaxed barrier of the cluster$",
)


@cache
def short() -> MappedProgram:
    return mapped(text("nn"), piped(64, 256, cluster=2), M=256, N=256, K=128)


def test_the_checker_finds_every_sync_that_is_dropped_or_moved_also_in_few_turns() -> None:
    harmful = [(what, other) for what, other in spoiled(short()) if not any(re.match(p, what) for p in HARMLESS)]
    assert len(harmful) > 20 and faults(short(), {}) == faults(shortened(short()), {}) == ()
    assert [what for what, other in harmful if not faults(shortened(other), {})] == []


EARLY = r"earlier wait \(wgmma, all, done\)$"  # before the other group is told: late, and right


def test_the_checker_finds_every_sync_that_is_dropped_or_moved_where_groups_alternate() -> None:
    turns = replace(piped(64, 64, stages=2, persistent=1), alternate=True)
    program = shortened(mapped(text("nn"), turns, M=64, N=192, K=192))
    assert faults(program, {}) == ()
    touched = ("skip", "wait ring", "release", "barrier first", "barrier second", "wait (wgmma")
    spoilt = [(what, other) for what, other in spoiled(program) if any(name in what for name in touched)]
    harmful = [(what, other) for what, other in spoilt if not any(re.match(p, what) for p in (*HARMLESS, EARLY))]
    dropped = {
        f"drop {at} {which} (block, multiply)" for at in ("barrier", "arrive at barrier") for which in GROUP_NAMES
    }
    assert {"drop skip ring", *dropped} <= {what for what, _ in harmful}
    assert [what for what, other in harmful if not faults(other, {})] == []


def test_few_turns_stand_for_many() -> None:
    program = mapped(text("nn"), M=4096, N=4096, K=4096)
    few = shortened(program)
    assert "for k_step < 9" in show(few) and "for turn < min(" in show(few)


REFUSED = (
    (replace(piped(64, 64), along="i", across="k"), "`across` and `along`: the rows and columns are i and j"),
    (replace(piped(64, 64), tile={"i": 64}), "`tile` gives the rows and the columns of a tile"),
    (piped(256, 64), "`tile`: multiples of 64 rows up to 192"),
    (piped(192, 224), "`tile`: multiples of 64 rows up to 128"),
    (piped(64, 80), "`tile`: multiples of 32 columns up to 256"),
    (replace(piped(128, 224), alternate=True), "`tile`: 448 columns of sums by each warpgroup, which holds 384"),
    (piped(64, 64, cluster=3), "`cluster`: 1, 2 or 4 blocks"),
    (piped(64, 64, stages=1), "`stages` are 2 to 16, and `band` 1 to 65536"),
    (
        piped(64, 128, cluster=2, persistent=3),
        "`persistent`: whole clusters, at most the 132 multiprocessors of the target",
    ),
    (piped(128, 256, stages=5), "its tiles need 278608 bytes of shared memory, and a block has 232448"),
)


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text("nn"), how)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


def test_no_other_program_takes_such_a_candidate() -> None:
    with pytest.raises(texpr.TExprError, match="no product of matrices that tensor cores of sm_90a take"):
        mapped(text("nn", "f32"), piped(64, 64))


def test_the_mapping_knows_the_limits_of_tensor_maps() -> None:
    assert (UNIT_BYTES, MAX_RANK) == (tensor_map.UNIT_BYTES, tensor_map.MAX_RANK)


def test_a_choice_is_read_as_it_was_written() -> None:
    own = Candidate(launches={"g_0": piped(128, 256, cluster=2, persistent=4, stages=4)})
    assert read_choices(choices_json(own)) == own


def test_threads_of_several_warps_that_run_as_one_meet_in_their_warps() -> None:
    program = mapped(text("nn"), FORMS["alone"], M=72, N=72, K=72)
    values = arguments(program)
    for seed in range(8):
        assert not far(values, simulate(program, values, seed=seed)["C"], LETTERS["nn"])
