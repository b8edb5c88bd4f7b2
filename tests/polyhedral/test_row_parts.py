"""Reductions of the rows of a product beside it: parts in registers, left for each tile, added in order by a launch
behind. Told exactly on the simulator and as text on the CPU, at edges that no tile divides, and left to other forms
elsewhere."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Cases
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate

TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
SUM = "sum K k { A[i, k] * B[k, j] }"
LARGE = {"M": 512, "N": 512, "K": 512}


def kernel(head: str, body: str) -> str:
    return f"kernel g(A: bf16[M, K], B: bf16[K, N], {head}) {{ par M i, N j {{ let s = {SUM}; {body} }} }}"


FORMS = {
    "sums": kernel("C: bf16[M, N], inout S: f32[M]", "C[i, j] = s; S[i] += s"),
    "squares": kernel("C: bf16[M, N], inout S: f32[M]", "S[i] += s * s; C[i, j] = s"),
    "greatest": kernel("C: bf16[M, N], inout S: f32[M]", "C[i, j] = s; S[i] max= s"),
    "least of a bias": kernel("b: f32[N], C: bf16[M, N], inout S: f32[M]", "C[i, j] = s; S[i] min= s + b[j]"),
    "several": kernel(
        "b: bf16[N], C: bf16[M, N], inout S: f32[M], inout T: f32[M]",
        "let x = s + b[j]; C[i, j] = max(x, 0.0); S[i] += x; T[i] max= abs(x)",
    ),
    "of what is stored": kernel("C: bf16[M, N], inout S: f32[M]", "C[i, j] = s * 0.3; S[i] += f32(C[i, j]) * 128.0"),
    "in 16 bits": kernel("C: f16[M, N], inout S: bf16[M]", "C[i, j] = s; S[i] max= s"),
    "of columns too": kernel("C: bf16[N, M], inout S: f32[N]", "C[j, i] = s; S[j] += s"),
    "without the product": kernel("inout S: f32[M]", "S[i] += s"),
    "another output": kernel(
        "C: bf16[M, N], D: f32[N, M], inout S: f32[M]", "C[i, j] = s; D[j, i] = s + 1.0; S[i] += 1.0"
    ),
}
BATCHED = (
    "kernel g(A: bf16[P, M, K], B: bf16[P, K, N], C: bf16[P, M, N], inout S: f32[M, P]) {"
    " par P p, M i, N j { let s = sum K k { A[p, i, k] * B[p, k, j] }; C[p, i, j] = s; S[i, p] max= s } }"
)
SIZES = ({"M": 72, "N": 136, "K": 40}, {"M": 40, "N": 40, "K": 24}, {"M": 136, "N": 72, "K": 8})
WAYS = ({}, {"cluster": 2}, {"alternate": True})


def found(program: str) -> Candidate:
    return texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", **LARGE).mapping.candidate


def small(program: str, **how: Any) -> Candidate:
    candidate = found(program)
    ((name, choice),) = candidate.launches.items()
    assert isinstance(choice, Piped)
    given = {"stages": 2, "persistent": 2, "cluster": 1, "alternate": False, **how}
    own = replace(choice, tile={choice.across: 128, choice.along: 64}, **given)
    return replace(candidate, launches={name: own})


def mapped(program: str, candidate: Candidate, **sizes: int) -> MappedProgram:
    return (
        texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", mapping=candidate, **sizes).mapping.program
    )


def arguments(own: MappedProgram) -> dict[str, Any]:
    """Small whole numbers, whose sums are exact in any order."""
    draw, values = np.random.default_rng(7), dict[str, Any]()
    for buffer in own.kernel.params:
        shape = tuple(constant_value(extent) or 0 for extent in buffer.shape)
        values[buffer.name] = draw.integers(-2, 3, shape).astype(TYPES[str(buffer.dtype)])
    return values


def check(got: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert np.array_equal(got[name].astype(float), value.astype(float)), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FORMS)
def test_rows_of_tiles_are_reduced_as_the_program_says(name: str) -> None:
    """In one way and by turns in one of the two others; their texts run in all three."""
    program, ways = FORMS[name], list(zip(SIZES, WAYS, strict=True))
    for sizes, how in (ways[0], ways[1 + list(FORMS).index(name) % 2]):
        own = mapped(program, small(program, **how), **sizes)
        values = arguments(own)
        expected = interpret(own.kernel, {k: np.array(v) for k, v in values.items()}).outputs
        check(simulate(own, values), expected)


def test_rows_of_several_products_are_reduced_each() -> None:
    candidate = texpr.parse(BATCHED).only.compile("cuda:sm_90a", stop_after="map", P=4, **LARGE).mapping.candidate
    ((name, choice),) = candidate.launches.items()
    assert isinstance(choice, Piped)
    tile = {choice.across: 128, choice.along: 64}
    own = replace(choice, tile=tile, stages=2, persistent=2, cluster=1, alternate=False)
    program = mapped(BATCHED, replace(candidate, launches={name: own}), P=3, **SIZES[0])
    values = arguments(program)
    expected = interpret(program.kernel, {k: np.array(v) for k, v in values.items()}).outputs
    check(simulate(program, values), expected)


def test_sizes_that_a_call_decides_have_parts_too() -> None:
    program = FORMS["sums"]
    choices = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    assert isinstance(choices, Cases)
    (first, *_) = choices.cases
    assert any(isinstance(own, Piped) for own in first.candidate.launches.values())


@pytest.mark.gxx
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_their_text_is_right_on_the_cpu(how: dict[str, Any]) -> None:
    program, sizes = FORMS["several"], SIZES[0]
    own = small(program, **how)
    values = arguments(mapped(program, own, **sizes))
    expected = interpret(mapped(program, own, **sizes).kernel, {k: np.array(v) for k, v in values.items()}).outputs
    got = {name: np.array(value) for name, value in values.items()}
    texpr.parse(program).only.compile("cuda-host:sm_90a", mapping=own, **sizes)(**got)
    check(got, expected)


def test_each_thread_has_a_part_of_its_rows_and_a_launch_behind_adds_those_of_all_tiles(golden: Any) -> None:
    program = FORMS["sums"]
    golden("row_parts.txt", show(mapped(program, small(program), M=256, N=256, K=64)))


def test_long_rows_are_added_in_f64_and_need_no_copy() -> None:
    """No part gets more than a partial may, however many columns there are."""
    compiled = texpr.parse(FORMS["sums"]).only.compile("cuda:sm_90a", stop_after="map", M=512, N=16384, K=512)
    assert compiled.mapping.candidate.kept == frozenset()
    assert [type(own) for own in compiled.mapping.candidate.launches.values()] == [Piped]


NONE = {
    "ordered": kernel("C: bf16[M, N], inout S: f32[M]", "C[i, j] = s; S[i] += s #ordered"),
    "two of one array": kernel("C: bf16[M, N], inout S: f32[M + 1]", "C[i, j] = s; S[i] += s; S[i + 1] += s"),
    "of integers": kernel("C: bf16[M, N], inout S: i32[M]", "C[i, j] = s; S[i] += i32(s)"),
    "of all": kernel("C: bf16[M, N], inout S: f32[1]", "C[i, j] = s; S[0] += s"),
    "of columns": kernel("C: bf16[M, N], inout S: f32[N]", "C[i, j] = s; S[j] += s"),
    "in f64": kernel("C: bf16[M, N], inout S: f64[M]", "C[i, j] = s; S[i] += f64(s)"),
}  # fmt: skip


@pytest.mark.parametrize("name", NONE)
def test_what_has_no_such_parts_takes_another_form(name: str) -> None:
    try:
        choices = found(NONE[name]).launches.values()
    except texpr.TExprError as refused:  # another stage has a word against it
        assert refused.diagnostics[0].code.startswith(("E02", "E03"))
        return
    boxed = [own for own in choices if isinstance(own, Piped)]
    assert not boxed or name == "of columns"  # whose rows are the columns of C


def test_blocks_that_share_sums_and_single_warps_have_no_parts() -> None:
    program = FORMS["sums"]
    candidate = small(program, split=2)
    with pytest.raises(texpr.TExprError, match="do not add up rows"):
        mapped(program, candidate, M=64, N=64, K=128)
    ampere = texpr.parse(program).only.compile("cuda:sm_80", stop_after="map", **LARGE).mapping.candidate
    assert not any(type(own).__name__ == "Ringed" for own in ampere.launches.values())
