"""Products of matrices of other types than 16 bits on tensor cores: f32 under `#tf32`, i8 and u8 with sums in i32."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.mapped.candidate import Candidate, Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

HEADS = {"nn": "[M, K] [K, N]", "nt": "[M, K] [N, K]", "tn": "[K, M] [K, N]", "tt": "[K, M] [N, K]"}
LARGE = {"M": 512, "N": 512, "K": 512}
TYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "i64": np.int64, "i32": np.int32, "i16": np.int16,
    "i8": np.int8, "u8": np.uint8,
}  # fmt: skip


def text(case: str, dtype: str, result: str, attr: str = "") -> str:
    first, second = HEADS[case].split("] ")
    a, b = ("i, k" if case[0] == "n" else "k, i"), ("k, j" if case[1] == "n" else "j, k")
    return (
        f"kernel g(A: {dtype}{first}], B: {dtype}{second}, C: {result}[M, N]) {{\n"
        f"    par M i, N j {{ C[i, j] = sum K k {{ A[{a}] * B[{b}] }}{attr} }}\n}}"
    )


def around(head: str, body: str, dtype: str = "i8") -> str:
    return f"kernel g(A: {dtype}[M, K], B: {dtype}[N, K], {head}) {{ par M i, N j {{ {body} }} }}"


def chosen(program: str, **sizes: int) -> Candidate:
    found = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **(sizes or LARGE)).mapping.candidate
    assert isinstance(found, Candidate)
    return found


def small(candidate: Candidate, **how: Any) -> Candidate:
    """The same in tiles for small sizes."""
    tiles = {"tile": {"i": 64, "j": 64}, "stages": 2, "persistent": 2, "cluster": 1, **how}
    launches = {n: replace(c, **tiles) if isinstance(c, Piped) else c for n, c in candidate.launches.items()}
    return replace(candidate, launches=launches)


def arguments(program: MappedProgram) -> dict[str, Any]:
    random, found = np.random.default_rng(3), dict[str, Any]()
    for buffer in program.kernel.params:
        shape, dtype = [constant_value(extent) for extent in buffer.shape], np.dtype(TYPES[str(buffer.dtype)])
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            found[buffer.name] = random.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        else:
            found[buffer.name] = random.standard_normal(shape).astype(dtype)
    return found


def cut(values: Any) -> Any:
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize(
    ("case", "laid"), [("nt", frozenset()), ("nn", {"B"}), ("tt", {"A"}), ("tn", {"A", "B"})], ids=lambda v: str(v)[:2]
)
def test_factors_go_to_tensor_cores_that_take_them_along_what_is_summed(case: str, laid: frozenset[str]) -> None:
    """Of f32 one of them comes by registers, along any index."""
    for dtype, result, attr in (("f32", "f32", " #tf32"), ("i8", "i32", ""), ("u8", "i32", "")):
        own = laid if dtype != "f32" else frozenset({"B"} if len(laid) > 1 else ())
        found = chosen(text(case, dtype, result, attr))
        assert found.laid == own
        assert [isinstance(c, Piped) for c in found.launches.values()] == [False] * len(own) + [True]


def right(program: str, candidate: Candidate, sizes: dict[str, int], target: str = "", on: str = "cuda:sm_90a") -> None:
    """The result of the mapping is that of the loops on a CPU, bit by bit; of factors of f32 that of cut ones."""
    kernel = texpr.parse(program).only
    mapped = kernel.compile(on, stop_after="map", mapping=candidate, sizes=sizes).mapping.program
    values = arguments(mapped)
    wanted = {name: value.copy() for name, value in values.items()}
    kernel.compile("cpu", sizes=sizes)(
        **{n: cut(v) if v.dtype == np.float32 and n in "AB" else v for n, v in wanted.items()}
    )
    if target:
        kernel.compile(target, mapping=candidate, sizes=sizes)(**values)
        got = values
    else:
        got = simulate(mapped, values)
    for name in {"C", "D"} & got.keys():
        if got[name].dtype == np.float32 and "A: f32" in program:
            np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-4)
        else:
            assert (got[name] == wanted[name]).all(), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "dtype", "sizes"),
    [
        ("nt", "f32", {"M": 72, "N": 68, "K": 44}),
        ("tt", "f32", {"M": 72, "N": 36, "K": 20}),  # rows by registers, of one step
        ("nn", "f32", {"M": 36, "N": 68, "K": 100}),  # and of two at a time
        ("nt", "i8", {"M": 136, "N": 80, "K": 208}),
        ("nn", "u8", {"M": 2, "N": 67, "K": 131}),
    ],
)
def test_ragged_products_are_right_in_the_simulator(case: str, dtype: str, sizes: dict[str, int]) -> None:
    result, attr = ("f32", " #tf32") if dtype == "f32" else ("i32", "")
    program = text(case, dtype, result, attr)
    large = {"M": 513, "N": 515, "K": 517} if sizes["K"] % 4 else LARGE
    right(program, small(chosen(program, **large), tile={"i": 64, "j": 128}), sizes)


AROUND = {
    "scaled": ("C: bf16[M, N], s: f32[N]", "let t = sum K k { A[i, k] * B[j, k] }; C[i, j] = bf16(f32(t) * s[j])"),
    "added": ("inout C: i32[M, N]", "C[i, j] += sum K k { A[i, k] * B[j, k] }"),
    "saturated": ("C: i8[M, N]", "C[i, j] = i8(clamp(f32(sum K k { A[i, k] * B[j, k] }) * 0.01, -100.0, 99.0))"),
    "wrapped on its way": ("C: i32[M, N]", "new t: i8; t = 0; seq K k { t += A[i, k] * B[j, k] } C[i, j] = t"),
    "two": ("C: f32[M, N], D: i32[M, N]", "let t = sum K k { A[i, k] * B[j, k] }; C[i, j] = f32(t); D[i, j] = t"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", AROUND)
def test_what_is_around_sums_of_integers_is_done_with_them(what: str) -> None:
    program = around(*AROUND[what])
    candidate = chosen(program)
    assert [type(choice) for choice in candidate.launches.values()] == [Piped]
    how = {"tile": {"i": 128, "j": 64}, "alternate": True} if what in ("two", "added") else {}
    right(program, small(candidate, **how), {"M": 66, "N": 48, "K": 32})


@pytest.mark.gxx
def test_the_text_of_such_products_is_right_on_the_cpu() -> None:
    program = around(*AROUND["scaled"])
    right(program, small(chosen(program)), {"M": 66, "N": 48, "K": 32}, "cuda-host:sm_90a")


@pytest.mark.parametrize(
    "program",
    [
        text("nt", "f32", "f32"),  # exact without the attribute
        around("C: i64[M, N]", "C[i, j] = sum K k { i64(A[i, k]) * i64(B[j, k]) }"),  # sums that do not wrap
        around("C: i64[M, N]", "C[i, j] = sum K k { A[i, k] * B[j, k] }"),
        around("C: i32[M, N]", "new t: i16; t = 0; seq K k { t += i16(A[i, k] * B[j, k]) } C[i, j] = t"),
        around("C: i32[M, N]", "C[i, j] = sum K k { i8(A[i, k] * B[j, k]) }"),
        around("C: i32[M, N]", "C[i, j] = sum K k { -A[i, k] * B[j, k] }"),
        around("C: i32[M, N]", "C[i, j] = sum K k { A[i, k] * B[j, k] }", "i16"),
        text("nt", "i8", "i32").replace("B: i8", "B: u8"),  # of two types
        text("nt", "f32", "f32", " #tf32").replace("B: f32", "B: bf16"),
    ],
)
def test_other_sums_stay_with_other_forms(program: str) -> None:
    assert not any(isinstance(choice, Piped) for choice in chosen(program).launches.values())


def test_a_long_sum_of_tf32_stays_with_other_forms_and_one_of_integers_does_not() -> None:
    longest = {"M": 256, "N": 256, "K": 1 << 16}
    for dtype, result, attr, within in (("f32", "f32", " #tf32", False), ("i8", "i32", "", True)):
        program = text("nt", dtype, result, attr)
        assert isinstance(chosen(program, **longest).launches["g_0"], Piped)
        found = chosen(program, **{**longest, "K": 1 << 17}).launches
        assert isinstance(found["g_0"], Piped) is within


def notes(program: str, target: str = "cuda:sm_90a", **sizes: int) -> tuple[str, ...]:
    found = texpr.parse(program).only.compile(target, stop_after="map", **(sizes or LARGE))
    return tuple(found.mapping.program.report.notes)


def test_the_report_says_where_tf32_changes_nothing() -> None:
    for program in (text("nt", "f32", "f32", " #tf32"), text("nt", "f32", "f32").replace(") {", ") #tf32 {", 1)):
        assert notes(program) == ()
        (told,) = notes(program, M=8, N=8, K=8)
        assert "changes nothing: tensor cores of the target multiply nothing of it as f32" in told
        (told,) = notes(program, "cpu")
        assert told.endswith("changes nothing: a CPU has no tensor cores")


def test_what_holds_the_results_of_a_chunk_is_ordered() -> None:
    kernel = texpr.parse(around(*AROUND["scaled"])).only
    choice = small(chosen(around(*AROUND["scaled"])), tile={"i": 64, "j": 128})
    mapped = kernel.compile("cuda:sm_90a", stop_after="map", mapping=choice, M=64, N=128, K=256).mapping.program
    assert faults(shortened(mapped), {}) == ()


@pytest.mark.parametrize(
    "program",
    [
        text("nt", "f64", "f64", " #tf32"),
        text("nt", "f32", "f64", " #tf32").replace("A[i, k] *", "f64(A[i, k]) *"),
        text("nt", "f64", "f64").replace(") {", ") #tf32 {", 1),
        text("nt", "i8", "i32", " #tf32"),
    ],
)
def test_tf32_of_other_products_is_refused(program: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        chosen(program)
    (told,) = caught.value.diagnostics
    assert told.code == "E0402" and "#tf32 is not mapped here: nothing that it stands on multiplies f32" in told.message
