"""Scopes and units that the author gives to loops: what cannot be is refused with the reason, and no candidate from
outside contradicts what can."""

import re
from dataclasses import replace

import pytest

import texpr
from texpr.grammar.diagnostics import TExprError

ROWS = "kernel f(A: f32[8], C: f32[8, 64]) %s { par 8 b %s { par 64 j %s { C[b, j] = A[b] } } }"
WARPS = "kernel f(A: f32[8], C: f32[8, 4, 64]) %s { par 8 b { par 4 w %s { par 64 j %s { C[b, w, j] = A[b] } } } }"
COPY = "kernel f(A: f32[N], C: f32[N]) { par %s i #cluster { C[i] = A[i] } }"
BETWEEN = (
    "kernel f(A: f32[8], C: f32[8, 4, 64]) { par 8 b { new s: f32; s = A[b]\n"
    "par 4 w { new t: f32; t = s + f32(w); par 64 j %s { C[b, w, j] = t } } } }"
)


@pytest.mark.parametrize(
    ("program", "target", "code", "said"),
    [
        (ROWS % ("", "#warp", ""), "cuda:sm_90a", "E0402", "an outermost `par` runs over the blocks"),
        (
            ROWS % ("", "", "#block #warp"),
            "cuda:sm_90a",
            "E0402",
            "nothing directly inside runs on the threads of a warp",
        ),
        (WARPS % ("", "#block #warpgroup", "#warp"), "cuda:sm_90a", "E0402", "has 128 threads, of several warps"),
        (BETWEEN % "#block", "cuda:sm_90a", "E0402", "one thread runs the `par` around it"),
        (BETWEEN % "#cluster", "cuda:sm_90a", "E0402", "a `par` inside another runs within one block"),
        (
            ROWS % ("#threads(64)", "", "#warp"),
            "cuda:sm_90a",
            "E0401",
            "32 threads, and it has 64",
        ),
        (ROWS % ("", "#grid #warpgroup", "#warp"), "cuda:sm_90a", "E0401", "#warp gives the block 32 threads"),
        (
            WARPS % ("#threads(64)", "#block #warpgroup", ""),
            "cuda:sm_90a",
            "E0401",
            "a block of 64 threads has no whole warpgroups",
        ),
        (ROWS % ("", "#cluster", ""), "cuda:sm_80", "E0401", "cuda:sm_80 has no clusters"),
        (COPY % "N", "cuda:sm_90a", "E0401", "is not known"),
        (COPY.replace("N]", "64]") % "64", "cuda:sm_90a", "E0401", "clusters of at most 16 blocks"),
        (ROWS % ("#cluster_shape(2)", "#cluster", ""), "cuda:sm_90a", "E0402", "says otherwise"),
        (
            "kernel f(A: f32[N], s: f32[1]) #persistent { s[0] = sum N i { A[i] } }",
            "cuda:sm_90a",
            "E0402",
            "share reductions or scans, and may be more than run at once",
        ),
    ],
)
def test_a_scope_or_unit_that_cannot_be_is_refused_with_the_reason(
    program: str, target: str, code: str, said: str
) -> None:
    with pytest.raises(TExprError, match=re.escape(said)) as caught:
        next(iter(texpr.parse(program))).compile(target, stop_after="map")
    assert {d.code for d in caught.value.diagnostics} == {code} and all(d.help for d in caught.value.diagnostics)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inner": {"w": (("w", 4), ("j", 32))}}, "inner of w: one iteration of w has 32 threads"),
        ({"inner": {"w": (("j", 16), ("w", 8))}}, "inner of w: one iteration of w has 32 threads, and not 16"),
    ],
)
def test_a_candidate_from_outside_keeps_the_units_of_the_author(change: dict[str, object], said: str) -> None:
    kernel = next(iter(texpr.parse(WARPS % ("#threads(128)", "#block #warp", "#warp"))))
    first = kernel.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    (choice,) = first.launches.values()
    assert choice.inner == {"w": (("j", 32), ("w", 4))}
    other = replace(first, launches={"f_0": replace(choice, **change)})
    with pytest.raises(TExprError, match=re.escape(said)):
        kernel.compile("cuda:sm_90a", mapping=other, stop_after="map")


def test_a_candidate_from_outside_has_the_threads_of_the_author_s_unit() -> None:
    kernel = next(iter(texpr.parse(ROWS % ("", "#grid #warpgroup", ""))))
    first = kernel.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    (choice,) = first.launches.values()
    other = replace(first, launches={"f_0": replace(choice, threads=256)})
    with pytest.raises(TExprError, match="`threads`: the author gives a block 128"):
        kernel.compile("cuda:sm_90a", mapping=other, stop_after="map")


def test_the_blocks_of_a_cluster_come_first_on_the_grid() -> None:
    kernel = next(iter(texpr.parse(WARPS % ("", "#cluster", ""))))
    first = kernel.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    (choice,) = first.launches.values()
    other = replace(first, launches={"f_0": replace(choice, grid=tuple(reversed(choice.grid)))})
    with pytest.raises(TExprError, match=r"`grid`: the blocks of a cluster come first, those of w"):
        kernel.compile("cuda:sm_90a", mapping=other, stop_after="map")
