"""Flat arrays seen with dimensions: products of them are on tensor cores, and callers pass what they declared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.ast import Node, Read
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import index_value
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Move, View
from texpr.polyhedral.schedule.check import check
from texpr.polyhedral.schedule.draft import Draft
from texpr.polyhedral.schedule.stage import Schedules, schedule
from texpr.polyhedral.simulate.stage import simulate

ROOT = Path(__file__).resolve().parents[2]
SEED = (ROOT / "tests/kernels/matmul_seed.tex").read_text(encoding="utf-8")
SIZES = {"M": 72, "N": 40, "K": 72}
LARGE = {"M": 2048, "N": 2048, "K": 2048}
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
SEEN: tuple[Move, ...] = tuple(View(buffer=name) for name in "ABC")

# A band, and the lengths of its arrays.
PROGRAMS = {
    "plain": ("par M i, N j { C[i * N + j] = sum K k { A[i * K + k] * B[k * N + j] } }", "M * K", "K * N", "M * N"),
    "turned": ("par M i, N j { C[j * M + i] = sum K k { A[k * M + i] * B[j * K + k] } }", "K * M", "N * K", "N * M"),
    "added to": (
        "par M i, N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } }",
        *("M * K", "K * N", "M * N"),
    ),
    "batched": (
        "par 3 b, M i, N j { C[(b * M + i) * N + j] = sum K k { A[(b * M + i) * K + k] * B[k * N + j] } }",
        *("3 * M * K", "K * N", "3 * M * N"),
    ),
    "with a bias and one row more": (
        "par M i, N j { C[(i + 1) * N + j] = v[j] + sum K k { A[i * K + k] * B[k * N + j] } }",
        *("M * K", "K * N", "(M + 1) * N"),
    ),
}


def kernel_of(name: str, dtype: str = "bf16") -> texpr.Kernel:
    body, a, b, c = PROGRAMS[name]
    bias = ", v: f32[N]" if "v[" in body else ""
    return texpr.parse(f"kernel g(A: {dtype}[{a}], B: {dtype}[{b}], C: f32[{c}]{bias}) {{ {body} }}").only


def arrays_of(kernel: texpr.Kernel, seed: int = 5) -> dict[str, Any]:
    """Flat arrays of small integers: their sums are exact in any order."""
    rng = np.random.default_rng(seed)
    params = kernel.core(sizes=SIZES).params
    return {b.name: rng.integers(-3, 4, index_value(b.shape[0], SIZES)).astype(NUMPY[b.dtype.name]) for b in params}


def form_of(kernel: texpr.Kernel, target: str, **sizes: int) -> Candidate:
    candidate = kernel.compile(target, stop_after="map", sizes=sizes).mapping.candidate
    assert isinstance(candidate, Candidate)
    return candidate


def test_the_flat_and_bare_product_of_the_seed_is_two_copies_a_product_and_a_store() -> None:
    kernel = texpr.parse(SEED, "matmul_seed").only
    compiled = kernel.compile("cuda:sm_90a", types={"A": "f16", "B": "f16", "C": "f32"}, sizes=LARGE)
    (form,) = compiled.mapping.candidate.launches.values()
    assert isinstance(form, Piped) and set(compiled.mapping.candidate.moves) == set(SEEN)
    printed = str(compiled.graph)
    body = [line.strip() for line in printed.splitlines()]
    kinds = [
        word for line in body for word in ("copy A_tile", "copy B_tile", "contract C_sums", "copy C[") if word in line
    ]
    assert list(dict.fromkeys(kinds)) == ["copy A_tile", "copy B_tile", "contract C_sums", "copy C["]
    assert "saw A with the dimensions of its flat subscripts" in str(compiled.mapping)
    assert [(p.name, p.shape, p.flat) for p in compiled.manifest.parameters] == [
        (name, (2048 * 2048,), True) for name in "CAB"
    ]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("target", "form"), [("cuda:sm_90a", Piped), ("cuda:sm_80", Ringed)])
def test_products_of_flat_arrays_go_to_the_tensor_cores(name: str, target: str, form: type) -> None:
    candidate = form_of(kernel_of(name), target, **LARGE)
    assert isinstance(next(iter(candidate.launches.values())), form)


def small(kernel: texpr.Kernel, target: str) -> texpr.Compiled:
    """The kernel at small sizes in the form that it has at large ones."""
    chosen = form_of(kernel, f"cuda:{target.partition(':')[2]}", **LARGE)
    (form,) = chosen.launches.values()
    if isinstance(form, Piped):
        tile = {form.across: 64, form.along: 64}
        form = replace(form, tile=tile, stages=2, persistent=2, cluster=1, split=1, alternate=False)
    return kernel.compile(target, sizes=SIZES, mapping=Candidate(moves=chosen.moves, launches={"g_0": form}))


@pytest.mark.parametrize(("name", "target"), [*((name, "cuda:sm_90a") for name in PROGRAMS), ("plain", "cuda:sm_80")])
def test_the_simulator_takes_flat_arrays_and_gives_what_the_program_says(name: str, target: str) -> None:
    kernel = kernel_of(name)
    arrays = arrays_of(kernel)
    wanted = {n: a.copy() for n, a in arrays.items()}
    kernel.interpret(**wanted, sizes=SIZES)
    found = simulate(small(kernel, target).build.result("plan"), arrays)["C"]
    np.testing.assert_array_equal(found, wanted["C"])


@pytest.mark.gxx
@pytest.mark.parametrize(("name", "target"), [("batched", "sm_80"), ("turned", "sm_90a")])
def test_the_text_of_such_a_product_takes_flat_arrays(name: str, target: str) -> None:
    kernel = kernel_of(name)
    arrays, wanted = (arrays_of(kernel) for _ in range(2))
    kernel.interpret(**wanted, sizes=SIZES)
    small(kernel, f"cuda-host:{target}")(**arrays)
    np.testing.assert_array_equal(arrays["C"], wanted["C"])


def test_sizes_that_a_call_decides_are_those_of_the_flat_arrays() -> None:
    kernel = kernel_of("plain")
    made = kernel.compile("cuda:sm_90a", sizes={"N": 72}, stop_after="emit")
    assert made.dynamic == ("M", "K") and [len(p.shape) for p in made.manifest.parameters] == [1, 1, 1]


def test_what_other_units_multiply_stays_flat() -> None:
    for dtype in ("f32", "f64"):
        assert not schedule_of(kernel_of("plain", dtype)).others
    body, a, b, c = PROGRAMS["plain"]
    rounded = texpr.parse(f"kernel g(A: f32[{a}], B: f32[{b}], C: f32[{c}]) #tf32 {{ {body} }}").only
    assert any(View(buffer="A") in draft.moves for draft in schedule_of(rounded).others)


def schedule_of(kernel: texpr.Kernel) -> Schedules:
    proved = kernel.compile("cuda:sm_90a", sizes=LARGE, stop_after="prove").build.result("prove")
    return schedule(proved)


REFUSED = {
    "of digits that carry": ("par M i, K k { if k >= 1 { C[i * K + k - 1] = A[i * K + k] } }", "M * K", "M * K"),
    "of no whole rows": ("par M i, K k { C[i * K + k] = A[i * K + k] }", "M * K + 3", "M * K"),
    "of no digits": ("par M i { C[i] = A[i] }", "M", "M"),
    "of several dimensions": ("par M i { C[i] = A[i, 0] }", "M, K", "M"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_view_that_does_not_fit_is_refused(why: str) -> None:
    body, a, c = REFUSED[why]
    kernel = texpr.parse(f"kernel g(A: f32[{a}], C: f32[{c}]) {{ {body} }}").only
    choice = Candidate(moves=(View(buffer="C" if "carry" in why else "A"),), launches={})
    with pytest.raises(TExprError) as caught:
        kernel.compile("cuda:sm_90a", sizes={"M": 8, "K": 8} if "K" in a else {"M": 8}, mapping=choice)
    assert [d.code for d in caught.value.diagnostics] == ["E0404"], str(caught.value)


def test_a_mapping_with_views_goes_through_json() -> None:
    kernel = kernel_of("plain")
    candidate = form_of(kernel, "cuda:sm_90a", **LARGE)
    data = json.loads(json.dumps(choices_json(candidate)))
    assert data["moves"][0] == {"move": "view", "buffer": "A"}
    again = kernel.compile("cuda:sm_90a", sizes=LARGE, mapping=data, stop_after="map").mapping.candidate
    assert again == candidate


def test_the_check_of_schedules_finds_a_view_of_other_elements() -> None:
    proved = kernel_of("plain").compile("cuda:sm_90a", sizes=LARGE, stop_after="prove").build.result("prove")
    draft = Draft(program=proved.program).then(View(buffer="A"))
    assert check(proved.program, draft.program, draft.origins) is None
    buffers = draft.program.kernel.buffers
    for shape in ((2048, 1024), (1024, 2048)):
        other = tuple(const(extent) for extent in shape)
        wrong = replace(draft.program.kernel, buffers=tuple(replace(b, shape=other) if b.given else b for b in buffers))
        found = check(proved.program, build_program(wrong, beside=proved.program), draft.origins)
        assert found is not None and found.why == "A is seen with other elements"
    changed = rewrite(draft.program.kernel, turned)
    found = check(proved.program, build_program(changed, beside=proved.program), draft.origins)
    assert found is not None and found.why == "A has other elements"


def turned(node: Node) -> Node:
    if isinstance(node, Read) and node.buffer == "A":
        return replace(node, subscripts=tuple(reversed(node.subscripts)))
    return node
