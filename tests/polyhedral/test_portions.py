"""Products of f8 on tensor cores: sums in portions, each of as many products as 14 bits are said to be enough for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import LARGEST_PORTION
from texpr.polyhedral.mapped.candidate import Candidate, Piped
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, operators
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

LARGE = {"M": 512, "N": 512, "K": 512}
TYPES: dict[str, Any] = {
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
}  # fmt: skip
KINDS = [(a, b) for a in ("f8e4m3", "f8e5m2") for b in ("f8e4m3", "f8e5m2")]


def text(a: str = "f8e4m3", b: str = "f8e4m3", head: str = "C: f32[M, N]", body: str = "") -> str:
    body = body or "C[i, j] = sum K k { A[i, k] * B[j, k] }"
    return f"kernel g(A: {a}[M, K], B: {b}[N, K], {head}) {{ par M i, N j {{ {body} }} }}"


def chosen(program: str, target: str = "cuda:sm_90a", **sizes: int) -> Candidate:
    found = texpr.parse(program).only.compile(target, stop_after="map", **(sizes or LARGE)).mapping.candidate
    assert isinstance(found, Candidate)
    return found


def is_piped(program: str, **sizes: int) -> bool:
    return isinstance(list(chosen(program, **sizes).launches.values())[-1], Piped)


def small(candidate: Candidate, rows: int = 64, columns: int = 64, **how: Any) -> Candidate:
    """The same in tiles for small sizes."""
    tiles = {"tile": {"i": rows, "j": columns}, "stages": 2, "persistent": 2, "cluster": 1, **how}
    launches = {n: replace(c, **tiles) if isinstance(c, Piped) else c for n, c in candidate.launches.items()}
    return replace(candidate, launches=launches)


def arguments(program: MappedProgram, seed: int = 3) -> dict[str, Any]:
    random, found = np.random.default_rng(seed), dict[str, Any]()
    for buffer in program.kernel.params:
        shape = [constant_value(extent) for extent in buffer.shape]
        found[buffer.name] = random.standard_normal(shape).astype(TYPES[str(buffer.dtype)])
    return found


def mapped(program: str, candidate: Candidate, sizes: Mapping[str, int]) -> MappedProgram:
    made = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", mapping=candidate, sizes=sizes)
    return made.mapping.program


def right(program: str, candidate: Candidate, sizes: dict[str, int], target: str = "") -> None:
    """The result is within the bound of the float64 interpreter, and nearer than one product of a portion is; on a
    target it is that of the simulator."""
    kernel = texpr.parse(program).only
    found = mapped(program, candidate, sizes)
    values = arguments(found)
    reference = kernel.interpret(**{name: value.copy() for name, value in values.items()}, float64=True)
    got = simulate(found, values)
    for name, bound in reference.bounds.items():
        off = np.abs(got[name].astype(float) - reference.outputs[name])
        assert (off <= 4 * bound).all(), name
        near = 2.0 ** -(2 if "8" in str(got[name].dtype) or "s: f8" in program else 7)  # what f8 rounds, or portions
        assert (off <= near * np.abs(reference.outputs[name]).max()).all(), name
    if target:
        kernel.compile(target, mapping=candidate, sizes=sizes)(**values)
        for name in reference.bounds:
            np.testing.assert_array_equal(values[name].view(np.uint8), np.asarray(got[name]).view(np.uint8))


@pytest.mark.parametrize(("a", "b"), KINDS)
def test_both_kinds_of_f8_go_to_tensor_cores_with_one_another(a: str, b: str) -> None:
    program = text(a, b)
    assert is_piped(program)
    assert chosen(
        text(a, b).replace("B: " + b + "[N, K]", "B: " + b + "[K, N]").replace("B[j, k]", "B[k, j]")
    ).laid == {"B"}
    if a != b:
        right(program, small(chosen(program)), {"M": 50, "N": 40, "K": 176})


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [(64, 64, 16), (64, 32, 256), (64, 128, 272), (128, 32, 528), (64, 160, 144), (64, 256, 272)],
)
def test_portions_of_any_number_and_width_are_added_to_their_columns(rows: int, columns: int, depth: int) -> None:
    right(text(), small(chosen(text()), rows, columns), {"M": rows - 6, "N": columns - 4, "K": depth})


@pytest.mark.parametrize("depth", [16, 144, 272, 400])
def test_a_call_may_decide_how_many_portions_there_are(depth: int) -> None:
    program = text().replace(") {", ") where K % 16 == 0, K >= 16, K <= 4096 {", 1)
    sizes = {"M": 50, "N": 40}
    made = mapped(program, small(chosen(program, M=512, N=512)), sizes)
    random = np.random.default_rng(depth)
    a, b = (random.standard_normal((n, depth)).astype(TYPES["f8e4m3"]) for n in sizes.values())
    got = simulate(made, {"A": a, "B": b, "C": np.full((50, 40), np.nan, np.float32)}, sizes={"K": depth})
    wanted = a.astype(float) @ b.astype(float).T
    assert (np.abs(got["C"] - wanted) <= 2.0**-7 * np.abs(wanted).max()).all()


AROUND = {
    "scaled": ("C: bf16[M, N], r: f32[M], s: f32[N]", "let t = sum K k { A[i, k] * B[j, k] }; "
               "C[i, j] = t * r[i] * s[j]"),
    "added": ("inout C: f32[M, N]", "C[i, j] += sum K k { f32(A[i, k]) * f32(B[j, k]) }"),
    "of f8": ("C: f8e5m2[M, N]", ""),
    "held in f8": ("C: f32[M, N]", "new s: f8e4m3; s = 0.0; seq K k { s += A[i, k] * B[j, k] } C[i, j] = s"),
    "scaled to f8": ("C: f8e4m3[M, N], s: f32[N]", "let t = sum K k { A[i, k] * B[j, k] }; C[i, j] = 0.1 * t * s[j]"),
    "two": ("D: f8e5m2[N, K], C: f32[M, N]", "let t = sum K k { A[i, k] * B[j, k] }; "
            "let u = sum K k { A[i, k] * D[j, k] }; C[i, j] = t * sigmoid(u)"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", AROUND)
def test_what_is_around_such_sums_is_done_with_them(what: str) -> None:
    program = text("f8e4m3", "f8e4m3", *AROUND[what])
    candidate = small(chosen(program))
    assert [type(choice) for choice in candidate.launches.values()] == [Piped]
    right(program, candidate, {"M": 50, "N": 48, "K": 144})


@pytest.mark.gxx
def test_the_text_of_portions_is_right_on_the_cpu() -> None:
    program = text("f8e4m3", "f8e5m2", "C: f32[M, N]")
    for columns, depth in ((64, 272), (256, 144)):
        right(program, small(chosen(program), 64, columns), {"M": 50, "N": 80, "K": depth}, "cuda-host:sm_90a")


@pytest.mark.parametrize("what", AROUND)
def test_portions_are_ordered(what: str) -> None:
    program = text("f8e4m3", "f8e4m3", *AROUND[what])
    for columns in (256 if what != "two" else 128, 64):
        found = mapped(program, small(chosen(program), 128, columns, stages=3), {"M": 128, "N": 256, "K": 272})
        assert faults(shortened(found), {}) == ()


def test_no_product_has_more_terms_than_a_portion() -> None:
    found = mapped(text(), small(chosen(text())), {"M": 64, "N": 64, "K": 512})
    depths = [
        constant_value(node.over[2][1]) or 0
        for launch in launches(found.host)
        for node in operators(launch.body)
        if isinstance(node, Contract)
    ]
    assert depths and all(depth <= LARGEST_PORTION for depth in depths)


@pytest.mark.parametrize(
    "body",
    [
        "C[i, j] = sum K k { let a = f32(A[i, k]); a * B[j, k] }",  # what is bound is f32
        "C[i, j] = sum K k { A[i, k] * B[j, k] * 2.0 }",
        "C[i, j] = f32(sum K k { f64(A[i, k]) * f64(B[j, k]) })",
        "C[i, j] = sum K k { f32(f8e4m3(A[i, k] * 3.0)) * B[j, k] }",
    ],
)
def test_what_keeps_all_bits_stays_with_other_forms(body: str) -> None:
    assert not is_piped(text(body=body))


def test_f8_with_another_type_and_other_targets_stay_with_other_forms() -> None:
    assert not is_piped(text("f8e4m3", "bf16"))
    assert not any(isinstance(c, Piped) for c in chosen(text(), "cuda:sm_90").launches.values())


def test_the_longest_sum_of_portions() -> None:
    assert is_piped(text(), M=256, N=256, K=1 << 18)
    assert not is_piped(text(), M=256, N=256, K=1 << 19)


@pytest.mark.parametrize(
    "how",
    [{"alternate": True, "tile": {"i": 128, "j": 64}}, {"split": 2, "persistent": 128, "tile": {"i": 64, "j": 64}}],
)
def test_forms_without_registers_for_portions_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(texpr.TExprError, match="sums of f8 are made in portions"):
        mapped(text(), small(chosen(text()), **how), LARGE)
