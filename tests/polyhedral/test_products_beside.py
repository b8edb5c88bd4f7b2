"""Few rows times many along one reduction: a thread adds several rows of both, and makes what the program says of an
element once for all that it is added to."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import texpr
from texpr.grammar.ast import IndexExpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.text import in_words
from texpr.polyhedral.mapped.candidate import Candidate, Contracted, Parted
from texpr.polyhedral.mapped.operators import Copy, Generic
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Guard
from texpr.polyhedral.mapped.walks import every_node, launches, of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.walk import read_accesses

SCALES = {  # of a weight, by what is written there
    "column": ("f32[N]", "s[n]"),
    "group": ("f32[N, K / 32]", "s[n, k / 32]"),
    "row": ("f32[K]", "s[k]"),
}
TARGET = "cuda:sm_90a"


def text(scale: str = "column", weights: str = "i8", at: str = "n, k") -> str:
    shape, value = SCALES[scale]
    sizes = at.upper()
    body = f"Y[m, n] = sum K k {{ f32(X[m, k]) * (f32(W[{at}]) * {value}) }}"
    return f"kernel g(X: bf16[M, K], W: {weights}[{sizes}], s: {shape}, Y: f32[M, N]) {{ par M m, N n {{ {body} }} }}"


def chosen(program: str, m: int = 8, n: int = 4096, k: int = 4096, target: str = TARGET) -> Candidate:
    found = texpr.parse(program).only.compile(target, stop_after="map", M=m, N=n, K=k).mapping.candidate
    assert isinstance(found, Candidate)
    return found


def beside(patch: dict[str, int], **how: Any) -> Candidate:
    own = {"threads": 32, "grid": ("n", "m"), "shared_out": ("k",), "widths": {"k": 16}, "patch": patch, **how}
    return Candidate(launches={"g_0": Parted(**own)})


def mapped(program: str, choice: Candidate, m: int, n: int, k: int) -> MappedProgram:
    made = texpr.parse(program).only.compile(TARGET, stop_after="map", mapping=choice, M=m, N=n, K=k)
    return made.mapping.program


def arguments(scale: str, m: int, n: int, k: int) -> tuple[dict[str, Any], Any]:
    """Arrays whose products and sums are exact, and the result."""
    random = np.random.default_rng(m * n)
    x, w = random.integers(-4, 5, (m, k)), random.integers(-128, 128, (n, k))
    shapes: dict[str, tuple[int, ...]] = {"column": (n,), "group": (n, k // 32), "row": (k,)}
    s = 2.0 ** random.integers(-2, 3, shapes[scale])
    of_all = {"column": lambda: s[:, None], "group": lambda: np.repeat(s, 32, 1), "row": lambda: s}[scale]()
    values = {
        "X": x.astype(ml_dtypes.bfloat16),
        "W": w.astype(np.int8),
        "s": s.astype(np.float32),
        "Y": np.full((m, n), np.nan, np.float32),
    }
    return values, x @ (w * of_all).T


@pytest.mark.parametrize(
    ("scale", "sizes", "patch", "how"),
    [
        ("column", (8, 8, 64), {"m": 8, "n": 4}, {}),
        ("column", (7, 10, 528), {"m": 4, "n": 2}, {"ahead": 2, "threads": 64}),
        ("group", (3, 6, 96), {"m": 2, "n": 4}, {"widths": {"k": 8}}),
        ("row", (5, 5, 37), {"m": 4, "n": 4}, {"widths": {"k": 4}}),
        ("row", (4, 6, 1040), {"m": 4, "n": 2}, {"blocks": {"k": 2}}),
    ],
)
def test_sums_of_both_rows_are_right(
    scale: str, sizes: tuple[int, int, int], patch: dict[str, int], how: dict[str, Any]
) -> None:
    values, want = arguments(scale, *sizes)
    program = mapped(text(scale), beside(patch, **how), *sizes)
    np.testing.assert_array_equal(simulate(program, values)["Y"], want)


@pytest.mark.gxx
def test_their_text_is_right_on_the_cpu() -> None:
    sizes = {"M": 7, "N": 9, "K": 544}
    values, want = arguments("group", *sizes.values())
    choice = beside({"m": 4, "n": 4})
    texpr.parse(text("group")).only.compile("cuda-host:sm_90a", mapping=choice, **sizes)(**values)
    np.testing.assert_array_equal(values["Y"], want)


def test_a_row_of_either_is_loaded_once_for_all_of_the_other() -> None:
    program = mapped(text(), beside({"m": 8, "n": 4}), 8, 64, 4096)
    (launch,) = launches(program.host)
    loads = {copy.source.buffer: copy.over for copy in of_kind(launch.body, Copy)}  # rows, accesses, elements
    assert {name: len(over) for name, over in loads.items()} == {"X": 3, "W": 2}


def test_a_scale_of_all_neighbours_is_told_by_the_first_of_them() -> None:
    """So that compilers read it once for all of these."""
    (launch,) = launches(mapped(text("group"), beside({"m": 8, "n": 4}), 8, 64, 4096).host)
    reads = {r.subscripts[1] for g in of_kind(launch.body, Generic) for r in read_accesses(g.leaf) if r.buffer == "s"}
    assert {in_words(one) for one in reads if isinstance(one, IndexExpr)} == {"k_first / 32"}
    (wide,) = launches(mapped(text("group"), beside({"m": 8, "n": 4}, ahead=2), 8, 64, 4096).host)
    reads = {r.subscripts[1] for g in of_kind(wide.body, Generic) for r in read_accesses(g.leaf) if r.buffer == "s"}
    assert {in_words(one) for one in reads if isinstance(one, IndexExpr)} == {"k / 32"}


def test_rows_that_are_none_are_asked_for_where_memory_is_read_at_them_alone() -> None:
    """Of m all comes by registers, and s[n] does not."""

    def asked(m: int, n: int) -> int:
        (launch,) = launches(mapped(text(), beside({"m": 4, "n": 4}), m, n, 512).host)
        return sum(isinstance(node, Guard) and node.padding for node in every_node(launch.body))

    assert asked(8, 64) == 0
    assert asked(8, 63) == asked(7, 64) + 1, "of each addition, too"


@pytest.mark.parametrize("scale", ["column", "group"])
@pytest.mark.parametrize("m", [2, 3, 8, 13, 16])
def test_few_rows_take_weights_as_they_lie_in_memory(scale: str, m: int) -> None:
    """One launch, which writes no array of factors."""
    candidate = chosen(text(scale), m)
    (choice,) = candidate.launches.values()
    rows = {2: 2, 3: 3, 8: 8, 13: 7, 16: 8}[m]
    assert isinstance(choice, Parted) and choice.patch == {"m": rows, "n": 4} and not candidate.moves


def test_one_row_of_weights_that_have_a_scale_in_common_is_such() -> None:
    (choice,) = chosen(text("group"), 1).launches.values()
    assert isinstance(choice, Parted) and choice.patch == {"n": 4}
    (alone,) = chosen(text("column"), 1).launches.values()
    assert not isinstance(alone, Parted) or not alone.patch


def test_others_have_their_factors_made_before() -> None:
    many, short = chosen(text(), 64), chosen(text(), 8, 128, 128)
    assert any(isinstance(choice, Contracted) for choice in many.launches.values())
    for candidate in (many, short, chosen(text(at="k, n"), 8, 128, 96)):
        assert not any(isinstance(choice, Parted) and choice.patch for choice in candidate.launches.values())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"patch": {"m": 8, "k": 4}}, "`patch` has m, k, not 2 to 16 of one or two of m, n"),
        ({"patch": {"m": 16, "n": 8}}, "`patch`: a thread has at most 64 rows of two indices"),
        ({"patch": {"m": 8, "n": 4}, "widths": {"n": 4}}, "`patch`: the runs of a thread lie along the reductions"),
    ],
)
def test_rows_that_no_thread_takes_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        mapped(text(), beside(change.pop("patch"), **change), 8, 64, 256)
