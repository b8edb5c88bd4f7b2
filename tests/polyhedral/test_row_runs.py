"""Rows beside one another of which what is read lies along them: a thread reads them as they lie in memory, and ends
one element of its block."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.by_columns import rows_apart
from texpr.polyhedral.mapped.candidate import Candidate, Parted
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.simulate.stage import simulate

SCALES = {  # of a weight, by what is written there
    "column": ("f32[N]", "s[n]"),
    "group": ("f32[K / 32, N]", "s[k / 32, n]"),
    "row": ("f32[K]", "s[k]"),
}
TARGET = "cuda:sm_90a"


def text(scale: str = "group", rows: str = "m, k") -> str:
    shape, value = SCALES[scale]
    body = f"Y[m, n] = sum K k {{ f32(X[{rows}]) * (f32(W[k, n]) * {value}) }}"
    arrays = f"X: bf16[{rows.upper()}], W: i8[K, N], s: {shape}, Y: f32[M, N]"
    return f"kernel g({arrays}) {{ par M m, N n {{ {body} }} }}"


def across(patch: dict[str, int], lanes: int = 4, **how: Any) -> Candidate:
    grid = tuple(index for index in ("n", "m") if index in patch)
    own = {"threads": 64, "grid": grid, "shared_out": ("k",), "widths": {"k": 8}, "patch": patch, **how}
    return Candidate(launches={"g_0": Parted(**{"deal": (("n", lanes),), **own})})


def mapped(program: str, choice: Candidate, m: int, n: int, k: int) -> MappedProgram:
    made = texpr.parse(program).only.compile(TARGET, stop_after="map", mapping=choice, M=m, N=n, K=k)
    return made.mapping.program


def arguments(scale: str, rows: str, m: int, n: int, k: int) -> tuple[dict[str, Any], Any]:
    """Arrays whose products and sums are exact, and the result."""
    random = np.random.default_rng(m * n + k)
    x, w = random.integers(-4, 5, (m, k)), random.integers(-128, 128, (k, n))
    shapes: dict[str, tuple[int, ...]] = {"column": (n,), "group": (k // 32, n), "row": (k,)}
    s = 2.0 ** random.integers(-2, 3, shapes[scale])
    of_all = {"column": s, "group": np.repeat(s, 32, 0), "row": s.reshape(-1, 1)}[scale]
    values = {
        "X": (x if rows == "m, k" else x.T.copy()).astype(ml_dtypes.bfloat16),
        "W": w.astype(np.int8),
        "s": s.astype(np.float32),
        "Y": np.full((m, n), np.nan, np.float32),
    }
    return values, x @ (w * of_all)


CASES = [
    ("group", (8, 64, 128), {"m": 8, "n": 4}, {"lanes": 2}),
    ("group", (7, 72, 256), {"m": 4, "n": 4}, {"blocks": {"k": 2}}),
    ("group", (5, 24, 96), {"m": 2, "n": 8}, {"widths": {"k": 64}, "threads": 128}),
    ("column", (5, 40, 77), {"m": 4, "n": 4}, {"widths": {"k": 4}, "blocks": {"k": 2}}),
    ("column", (1, 80, 160), {"n": 8}, {}),
    ("row", (3, 36, 101), {"m": 2, "n": 4}, {"widths": {"k": 4}, "ahead": 2}),
    ("row", (2, 16, 999), {"m": 2, "n": 8}, {"blocks": {"k": 12}, "threads": 256}),
]


@pytest.mark.parametrize("rows", ["m, k", "k, m"])
@pytest.mark.parametrize(("scale", "sizes", "patch", "how"), CASES)
def test_sums_of_rows_that_lie_across_are_right(
    scale: str, sizes: tuple[int, int, int], patch: dict[str, int], how: dict[str, Any], rows: str
) -> None:
    values, want = arguments(scale, rows, *sizes)
    program = mapped(text(scale, rows), across(patch, **how), *sizes)
    np.testing.assert_array_equal(simulate(program, values)["Y"], want)


@pytest.mark.gxx
def test_their_text_is_right_on_the_cpu() -> None:
    sizes: dict[str, Any] = {"M": 7, "N": 44, "K": 288}
    values, want = arguments("group", "m, k", *sizes.values())
    choice = across({"m": 4, "n": 4}, blocks={"k": 2})
    texpr.parse(text()).only.compile("cuda-host:sm_90a", mapping=choice, **sizes)(**values)
    np.testing.assert_array_equal(values["Y"], want)


def test_an_element_is_loaded_once_for_all_that_take_it() -> None:
    """Weights for each iteration, scales for all of a turn, whose quotients are alike."""
    (launch,) = launches(mapped(text(), across({"m": 8, "n": 4}, 2), 8, 64, 4096).host)
    loads = {copy.source.buffer: [str(count) for _, count in copy.over] for copy in of_kind(launch.body, Copy)}
    assert {name: len(over) for name, over in loads.items()} == {"X": 2, "W": 2, "s": 1}


def test_a_turn_that_has_several_scales_reads_one_for_each_iteration() -> None:
    (launch,) = launches(mapped(text(), across({"m": 8, "n": 4}, 2, widths={"k": 64}), 8, 64, 4096).host)
    assert [len(copy.over) for copy in of_kind(launch.body, Copy) if copy.source.buffer == "s"] == [2]


def test_a_thread_ends_one_element_and_finds_it_in_a_bank_of_its_own() -> None:
    program = mapped(text(), across({"m": 8, "n": 4}, 2), 8, 64, 4096)
    (parts,) = (buffer for buffer in program.buffers.values() if buffer.memory is Memory.SHARED)
    choice = across({"m": 8, "n": 4}, 2).launches["g_0"]
    assert isinstance(choice, Parted) and rows_apart(choice) == 64 + 8
    banks = [(column % 4 * rows_apart(choice) + column % 8 // 4) % 32 for column in range(8)]
    assert len({*banks}) == len(banks) and parts.name == "Y_parts"


def chosen(program: str, **sizes: int) -> Candidate:
    how: dict[str, Any] = {"stop_after": "map", "N": 4096, "K": 4096, **sizes}
    found = texpr.parse(program).only.compile(TARGET, **how).mapping.candidate
    assert isinstance(found, Candidate)
    return found


@pytest.mark.parametrize("scale", ["column", "group", "row"])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 13, 16])
def test_few_rows_take_weights_that_lie_across(scale: str, m: int) -> None:
    """One launch, which writes no array of factors."""
    candidate = chosen(text(scale), M=m)
    (choice,) = candidate.launches.values()
    assert isinstance(choice, Parted) and choice.deal and choice.patch.get("m", 1) == m and not candidate.moves


PLAIN = (
    "kernel g(X: f32[M, K], W: f32[K, N], Y: f32[M, N]) { par M m, N n { Y[m, n] = sum K k { X[m, k] * W[k, n] } } }"
)


@pytest.mark.parametrize(("m", "rows"), [(2, 2), (5, 5), (8, 8), (16, 8)])
def test_few_rows_of_a_product_on_fma_units_are_such(m: int, rows: int) -> None:
    """So many that a thread has registers for."""
    (choice,) = chosen(PLAIN, M=m).launches.values()
    assert isinstance(choice, Parted) and choice.patch["m"] == rows


@pytest.mark.parametrize("m", [4, 8, 16])
def test_so_are_those_whose_factors_lie_along_the_sum(m: int) -> None:
    turned = PLAIN.replace("W: f32[K, N]", "W: f32[N, K]").replace("W[k, n]", "W[n, k]")
    (choice,) = chosen(turned, M=m).launches.values()
    assert isinstance(choice, Parted) and choice.patch == {"m": min(m, 8), "n": 4} and not choice.deal


def test_rows_of_another_index_are_none_of_one() -> None:
    """Each of them would read all weights again."""
    for m, n in ((13, 4), (64, 1024)):
        for choice in chosen(text(), M=m, N=n, K=1024).launches.values():
            assert not isinstance(choice, Parted) or not choice.patch


def test_more_rows_and_short_sums_are_others() -> None:
    for sizes in ({"M": 17}, {"M": 8, "K": 96}, {"M": 1}):
        (choice,) = chosen(PLAIN, **sizes).launches.values()
        assert not isinstance(choice, Parted) or not choice.patch


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"threads": 64, "lanes": 16}, "`patch`: all threads of a block share the reductions, or those to which rows"),
        (
            {"deal": (("n", 4), ("m", 2))},
            "`patch`: all threads of a block share the reductions, or those to which rows",
        ),
        ({"widths": {"n": 4}}, "`patch`: the runs of a thread lie along the reductions"),
    ],
)
def test_rows_that_no_thread_ends_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        mapped(text(), across(**{"patch": {"m": 8, "n": 4}, **change}), 8, 64, 256)
