"""Products of matrices of f32 under `#tf32`, of i8 and of u8 by single warps, from sm_80 on."""

from dataclasses import replace

import pytest
from test_piped_types import AROUND, LARGE, around, right, text

import texpr
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.ringed import Ringed


def chosen(program: str, target: str = "sm_80") -> Candidate:
    found = texpr.parse(program).only.compile(f"cuda:{target}", stop_after="map", sizes=LARGE).mapping.candidate
    assert isinstance(found, Candidate)
    return found


def small(candidate: Candidate, depth: int) -> Candidate:
    """The same in tiles for small sizes."""
    tiles = {"tile": {"i": 64, "j": 64}, "each": {"i": 32, "j": 32}, "depth": depth, "stages": 2, "resident": 1}
    launches = {n: replace(c, **tiles) if isinstance(c, Ringed) else c for n, c in candidate.launches.items()}
    return replace(candidate, launches=launches)


@pytest.mark.parametrize("target", ["sm_80", "sm_120a"])
def test_warps_take_factors_along_what_is_summed(target: str) -> None:
    """Of f32 they load one of both along its side, too."""
    for dtype, result, attr in (("f32", "f32", " #tf32"), ("i8", "i32", "")):
        for case, laid in (("nt", frozenset[str]()), ("nn", frozenset({"B"} if dtype == "i8" else ()))):
            found = chosen(text(case, dtype, result, attr), target)
            assert found.laid == laid
            assert [isinstance(choice, Ringed) for choice in found.launches.values()] == [False] * len(laid) + [True]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("program", "depth", "sizes"),
    [
        (text("nn", "f32", "f32", " #tf32"), 16, {"M": 66, "N": 36, "K": 20}),
        (text("nt", "u8", "i32"), 64, {"M": 72, "N": 48, "K": 144}),
        (around(*AROUND["scaled"]), 128, {"M": 66, "N": 40, "K": 132}),
    ],
)
def test_ragged_products_by_warps_are_right_in_the_simulator(program: str, depth: int, sizes: dict[str, int]) -> None:
    right(program, small(chosen(program), depth), sizes, on="cuda:sm_80")


@pytest.mark.gxx
def test_the_text_of_such_products_by_warps_is_right_on_the_cpu() -> None:
    program = around(*AROUND["scaled"])
    right(program, small(chosen(program), 64), {"M": 66, "N": 48, "K": 80}, "cuda-host:sm_80", on="cuda:sm_80")


def test_factors_along_another_index_are_refused() -> None:
    program = text("nn", "i8", "i32")
    choice = small(replace(chosen(text("nt", "i8", "i32")), laid=frozenset()), 64)
    with pytest.raises(texpr.TExprError, match="tensor cores take B along k, and not along another index"):
        texpr.parse(program).only.compile("cuda:sm_80", stop_after="map", mapping=choice, sizes=LARGE)
