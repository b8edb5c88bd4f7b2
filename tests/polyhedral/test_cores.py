"""Bands on a CPU: which loop is innermost, tiles of two indices, locals as rows, values that are computed once."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from stages import mapped, program

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.simulate.stage import simulate

pytestmark = pytest.mark.usefixtures("threads")  # who shares out what is what these tests are about

PERMUTE = "kernel k(X: f32[P, Q, R], Y: f32[R, Q, P]) { par P i, Q j, R k { Y[k, j, i] = X[i, j, k] } }"
ADD_ACROSS = "kernel k(X: f32[P, R], inout Y: f32[R, P]) { par P i, R k { Y[k, i] += 2.0 * X[i, k] } }"
GATHER = "kernel k(I: i64[P], X: f32[9, R], Y: f32[P, R]) { par P i, R j { Y[i, j] = X[I[i], j] } }"
POOL = """kernel k(X: f32[P, 2 * R + 1], Y: f32[P, R]) {
    par P i, R j { Y[i, j] = maximum 3 s { X[i, 2 * j + s] } }
}"""
CHANNELS = """kernel k(X: f32[P, Q, R], Y: f32[P, Q, R]) where Q >= 1 {
    par P b, R w {
        new top: f32
        new total: f32
        top = maximum Q c { X[b, c, w] }
        total = sum Q c { exp(X[b, c, w] - top) }
        par Q c { Y[b, c, w] = exp(X[b, c, w] - top) / total }
    }
}"""
RUNNING = """kernel k(X: f32[Q, R], Y: f32[Q, R]) {
    par R j {
        new total: f32
        total = 0.0
        seq Q i { total += X[i, j]; Y[i, j] = total }
    }
}"""
ABREAST = """kernel k(X: f32[P, R], Y: f32[P, R]) {
    par P i {
        new total: f32
        total = 0.0
        seq R j #ordered { total += X[i, j]; Y[i, j] = total }
    }
}"""
SOFTMAX = """kernel k(X: f32[P, R], Y: f32[P, R]) where R >= 1 {
    par P i {
        new total: f32
        total = sum R j { exp(X[i, j]) }
        par R j { Y[i, j] = exp(X[i, j]) / total }
    }
}"""
GREATEST = """kernel k(X: f32[Q, R], Y: i64[R]) {
    par R j {
        new top: f32
        new at: i64
        top = -inf
        at = -1
        seq Q i { if X[i, j] > top { top = X[i, j]; at = i } }
        Y[j] = at
    }
}"""
TOTALS = """kernel k(X: f32[R], Y: f32[2]) {
    new top: f32
    Y[0] = 1.0
    top = -inf
    seq R i { Y[0] += X[i]; top max= X[i] }
    Y[1] = top
}"""
COUNTS = "kernel k(I: i64[R], inout Y: i64[9]) { par R i { atomic Y[I[i]] += i } }"
TEXTS = {
    "greatest": GREATEST,
    "totals": TOTALS,
    "counts": COUNTS,
    "permute": PERMUTE,
    "across": ADD_ACROSS,
    "gather": GATHER,
    "pool": POOL,
    "channels": CHANNELS,
    "running": RUNNING,
    "abreast": ABREAST,
    "softmax": SOFTMAX,
}
SIZES = ({"P": 3, "Q": 2, "R": 5}, {"P": 33, "Q": 17, "R": 301}, {"P": 1, "Q": 19, "R": 1}, {"P": 65, "Q": 40, "R": 31})


def choice_of(text: str, **sizes: int) -> Cores:
    (choice,) = mapped(text, "cpu", **sizes).candidate.launches.values()
    assert isinstance(choice, Cores)
    return choice


def arrays(text: str, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(list(sizes.values()))
    found: dict[str, Any] = {}
    for buffer in program(text, **sizes).kernel.params:
        shape = tuple(extent.value for extent in buffer.shape)  # type: ignore[union-attr]  # sizes are bound
        whole = rng.integers(0, 9, shape) if buffer.dtype.is_integer else rng.integers(-8, 9, shape)
        found[buffer.name] = whole.astype(np.int64 if buffer.dtype.is_integer else np.float32)
    return found


def bound(text: str, sizes: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name in text.partition("{")[0][7:]}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_results_are_the_programs(name: str, sizes: dict[str, int]) -> None:
    text = TEXTS[name]
    sizes = bound(text, sizes)
    given = arrays(text, sizes)
    wanted = interpret(program(text, **sizes).kernel, given).outputs
    found = simulate(mapped(text, "cpu", **sizes), given)
    np.testing.assert_allclose(found["Y"], wanted["Y"], rtol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["across", "channels", "abreast", "counts"])
def test_compiled_text_is_right_at_every_size(name: str) -> None:
    text = TEXTS[name]
    free = texpr.parse(text).only.compile("cpu")
    for sizes in (bound(text, each) for each in ({"P": 33, "Q": 17, "R": 301}, {"P": 0, "Q": 1, "R": 4})):
        given = arrays(text, sizes)
        wanted = interpret(program(text, **sizes).kernel, given).outputs["Y"]
        for made in (free, texpr.parse(text).only.compile("cpu", sizes=sizes)):
            again = {key: array.copy() for key, array in given.items()}
            made(**again)
            np.testing.assert_allclose(again["Y"], wanted, rtol=1e-6)


def test_what_is_read_along_one_index_and_written_along_another_runs_in_tiles() -> None:
    choice = choice_of(PERMUTE, P=100, Q=100, R=100)
    assert (choice.cores, choice.vector, dict(choice.tile)) == (("j", "k"), "i", {"k": 64, "i": 64})
    assert dict(choice_of(ADD_ACROSS, P=100, R=100).tile) == {"k": 64, "i": 64}
    along = choice_of("kernel k(X: f32[P, R], Y: f32[P, R]) { par P i, R j { Y[i, j] = X[i, j] } }", P=100, R=100)
    assert (along.vector, dict(along.tile)) == ("j", {})


def test_what_a_tile_reads_across_comes_to_a_square_first() -> None:
    source = texpr.parse(ADD_ACROSS).only.compile("cpu", sizes={"P": 100, "R": 100}).source
    assert "X_square[i_vector * 64 + k_vector] = X[i * 100 + k]" in source
    assert "mul_c(np.float32(2.0), X_square[i_vector * 64 + k_vector])" in source


def test_running_sums_of_neighbouring_rows_advance_side_by_side() -> None:
    choice = choice_of(ABREAST, P=67, R=100)
    assert (choice.vector, choice.chunk, choice.local_rows) == ("i", 4, True)
    assert choice_of(ABREAST, P=10, R=100).vector is None  # few rows have a core each
    assert choice_of(ABREAST.replace("#ordered", ""), P=67, R=100).vector is None  # a scan is made in pieces
    alone = ABREAST.replace("; Y[i, j] = total", "").replace("} }", "} Y[i, 0] = total }")
    assert choice_of(alone, P=67, R=100).vector is None  # a loop that only sums is LLVM's to split
    decided = ABREAST.replace("total += X[i, j];", "if X[i, j] > 0.0 { total += X[i, j] }")
    assert choice_of(decided, P=67, R=100).vector is None


def test_loops_inside_a_band_are_fused_and_those_of_the_band_are_dealt_to_cores() -> None:
    text = """kernel k(X: f32[P, Q, R], Y: f32[P, Q, R]) where Q * R >= 1 {
        par P b { new s: f32; s = sum Q h, R w { X[b, h, w] }; par Q h, R w { Y[b, h, w] = X[b, h, w] / s } }
    }"""
    source = texpr.parse(text).only.compile("cpu", sizes={"P": 8, "Q": 30, "R": 31}).source
    assert "X[b * 930 + h_w]" in source
    assert choice_of(CHANNELS, P=8, Q=4, R=100).cores == ("b",)


def test_a_pick_of_each_column_is_made_in_rows() -> None:
    assert choice_of(GREATEST, Q=100, R=1000).local_rows
    placed = GREATEST.replace("at = i }", "at = i64(X[at + 1, j]) }")
    assert not choice_of(placed, Q=100, R=1000).local_rows
    sums = GREATEST.replace("at = i }", "at += i }")
    assert not choice_of(sums, Q=100, R=1000).local_rows


@cache
def of_free_sizes(text: str) -> texpr.Compiled:
    return texpr.parse(text).only.compile("cpu")


@pytest.mark.parametrize("size", [1 << 15, 40_009])
def test_cores_share_out_long_reductions_and_counts(size: int) -> None:
    for text, launches in ((TOTALS, 3), (COUNTS, 1)):
        own = mapped(text, "cpu", R=size)
        assert len(own.candidate.launches) == launches
        assert any(isinstance(c, Cores) and c.cores == ("i",) for c in own.candidate.launches.values())
        given = arrays(text, {"R": size})
        wanted = interpret(program(text, R=size).kernel, given).outputs["Y"]
        for made in (texpr.parse(text).only.compile("cpu", R=size), of_free_sizes(text)):
            again = {key: array.copy() for key, array in given.items()}
            made(**again)
            np.testing.assert_allclose(again["Y"], wanted, rtol=1e-6)


def test_what_is_short_or_in_order_stays_on_one_core() -> None:
    assert len(mapped(TOTALS, "cpu", R=1 << 13).candidate.launches) == 1
    same = TOTALS.replace("top max= X[i]", "Y[1] += X[i] * X[i]")
    assert not any(
        isinstance(c, Cores) and c.cores == ("i",) for c in mapped(same, "cpu", R=1 << 15).candidate.launches.values()
    )
    ordered = TOTALS.replace("seq R i", "seq R i #ordered")
    assert len(mapped(ordered, "cpu", R=1 << 15).candidate.launches) == 1
    (few,) = mapped(COUNTS, "cpu", R=100).candidate.launches.values()
    assert isinstance(few, Cores) and not few.cores


def test_reductions_to_share_are_of_those_that_there_are() -> None:
    own = mapped(TOTALS, "cpu", R=1 << 15).candidate
    assert isinstance(own, Candidate) and own.shared == {"i"}
    again = mapped(TOTALS, "cpu", own, R=1 << 15)
    assert again.candidate == own
    with pytest.raises(TExprError, match="shares out the loops j"):
        mapped(TOTALS, "cpu", replace(own, shared=frozenset({"j"})), R=1 << 15)


def test_an_index_that_data_does_not_place_is_innermost() -> None:
    assert choice_of(GATHER, P=100, R=100).vector == "j"
    assert choice_of("kernel k(I: i64[R], X: f32[9, P], Y: f32[P, R]) { par P i, R j { Y[i, j] = X[I[j], i] } }",
                     P=100, R=100).vector == "j"  # fmt: skip


def test_a_window_is_inside_the_innermost_loop() -> None:
    assert choice_of(POOL, P=100, R=100).vector == "j"
    source = texpr.parse(POOL).only.compile("cpu", sizes={"P": 64, "R": 64}).source
    assert source.index("for j in range(64)") < source.index("X_next0 = X_next1")


def test_locals_are_rows_and_values_are_computed_once() -> None:
    choice = choice_of(CHANNELS, P=100, Q=100, R=100)
    assert (choice.vector, choice.local_rows, choice.once) == ("w", True, True)
    assert not choice_of(CHANNELS, P=100, Q=1000, R=100).once  # 256 rows of 1000 have no room
    assert choice_of(RUNNING, Q=100, R=1000).local_rows
    source = texpr.parse(SOFTMAX).only.compile("cpu", sizes={"P": 64, "R": 64}).source
    assert source.count("exp_f32(") == 1


@pytest.mark.parametrize(
    "body",
    [
        "total = sum R j { exp(X[i, j]) }; par R j { X[i, j] = 1.0 }; par R j { Y[i, j] = exp(X[i, j]) / total }",
        "total = sum R j { exp(X[i, j]) }; par R j { Y[i, j] = exp(X[i, R - 1 - j]) / total }",
        "total = sum R - 1 j { exp(X[i, j]) }; par R j { Y[i, j] = exp(X[i, j]) / total }",
        "total = sum R j { select(j > 0, exp(X[i, max(j - 1, 0)]), 0.0) }"
        "; par R j { Y[i, j] = select(j > 0, exp(X[i, max(j - 1, 0)]), 0.0) }",
        "total = sum R j { exp(X[i, j] + Y[i, j]) }; par R j { Y[i, j] = exp(X[i, j] + Y[i, j]) / total }",
        "total = sum R j { -X[i, j] }; par R j { Y[i, j] = -X[i, j] / total }",
        "total = 0.0; seq R j { total += exp(X[i, j] + total) }; par R j { Y[i, j] = exp(X[i, j] + total) }",
    ],
)
def test_what_only_looks_alike_is_computed_again(body: str) -> None:
    text = f"kernel k(inout X: f32[P, R], inout Y: f32[P, R]) {{ par P i {{ new total: f32; {body} }} }}"
    sizes = {"P": 3, "R": 7}
    choice = choice_of(text, **sizes)
    given = {name: array / 8 for name, array in arrays(text, sizes).items()}
    wanted = interpret(program(text, **sizes).kernel, given).outputs
    for way in (choice, *([replace(choice, once=False)] if choice.once else [])):
        found = mapped(text, "cpu", Candidate(launches={"k_0": way}), **sizes)
        result = simulate(found, given)
        for name, expected in wanted.items():
            np.testing.assert_allclose(result[name], expected, rtol=1e-5)


@pytest.mark.parametrize("term", ["exp(A[i, c])", "exp(A[i, c] + B[c, j])"])
def test_a_row_keeps_nothing_of_iterations_beside_one_another(term: str) -> None:
    text = f"""kernel k(A: f32[P, Q], B: f32[Q, R], C: f32[P, R], D: f32[P, R]) {{
        par P i, R j {{ C[i, j] = sum Q c {{ {term} * B[c, j] }}; D[i, j] = sum Q c {{ {term} + B[c, j] }} }}
    }}"""
    sizes = {"P": 9, "Q": 21, "R": 33}
    choice = choice_of(text, **sizes)
    assert choice.vector == "j" and not choice.once
    given = {name: array / 8 for name, array in arrays(text, sizes).items()}
    found = simulate(mapped(text, "cpu", **sizes), given)
    for name, expected in interpret(program(text, **sizes).kernel, given).outputs.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)
    with pytest.raises(TExprError, match="iterations of the vector run beside"):
        mapped(text, "cpu", Candidate(launches={"k_0": replace(choice, once=True)}), **sizes)


def test_ways_from_outside_are_of_those_that_there_are() -> None:
    sizes = {"P": 8, "Q": 8, "R": 8}
    for text, change, said in (
        (PERMUTE, {"tile": {"j": 4, "i": 4}}, "are not run in tiles"),
        (PERMUTE, {"tile": {"k": 0, "i": 4}}, "less than one iteration"),
        (PERMUTE, {"once": True}, "run beside one another"),
        (PERMUTE, {"local_rows": True}, "without `jam` and `tile`"),
        (RUNNING, {"local_rows": True}, "the locals of an iteration"),
        (SOFTMAX, {"local_rows": True}, "the locals of an iteration"),
    ):
        own = bound(text, sizes)
        wrong = replace(choice_of(text, **own), **change)
        with pytest.raises(TExprError, match=said):
            mapped(text, "cpu", Candidate(launches={"k_0": wrong}), **own)
