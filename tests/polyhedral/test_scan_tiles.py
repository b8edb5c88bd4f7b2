"""Tiles of scans: how wide they are, and that the next one is loaded while one is folded where it may be so early."""

import numpy as np
import pytest
from stages import mapped
from test_scanned import INCLUSIVE, choice, narrowed, of, results, same

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.candidate import Scanned
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate

EARLY = {
    "inclusive": of(INCLUSIVE),
    "exclusive": of("Y[i, j] = s; s += X[i, j]"),
    "of a constant": of("s += X[i, j] + 1.0; Y[i, j] = s"),
    "reversed": of("s += X[i, N - 1 - j]; Y[i, N - 1 - j] = s"),
    "greatest": of("s max= X[i, j]; Y[i, j] = s"),
    "two arrays": of("s += X[i, j] * Z[i, j]; Y[i, j] = s").replace("(X", "(Z: f32[M, N], X"),
}
LATE = {
    "read again": of("s += X[i, j]; Y[i, j] = s * X[i, j]"),
    "in place": of("s += Y[i, j]; Y[i, j] = s").replace("X: f32[M, N], Y", "inout Y"),
    "under a condition": of("if X[i, j] > 0.0 { s += X[i, j] }; Y[i, j] = s"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [1300, 1301, 1536])
@pytest.mark.parametrize("name", [*EARLY, *LATE])
def test_a_scan_in_several_tiles_is_what_its_loop_computes(name: str, n: int) -> None:
    text = (EARLY | LATE)[name]
    program = narrowed(text, {"N": n}, next_tile=True)
    assert ("_next = " in show(program)) is (name in EARLY and name != "reversed")
    same(*results(program, n))


def test_the_next_tile_is_loaded_where_rows_are_few() -> None:
    few, many = (choice(mapped(of(INCLUSIVE), M=m, N=100003)) for m in (257, 8192))
    assert isinstance(few, Scanned) and isinstance(many, Scanned)
    assert few.next_tile and not many.next_tile


def test_tiles_with_a_block_of_their_own_have_no_next_one() -> None:
    with pytest.raises(TExprError, match="next_tile"):
        narrowed(of(INCLUSIVE), {"N": 100003}, look_back=True, next_tile=True)


@pytest.mark.parametrize(("dtype", "across", "width"), [("bf16", 32, 8), ("f32", 32, 4), ("f64", 64, 1)])
def test_tiles_of_ragged_columns_are_as_wide_in_bytes(dtype: str, across: int, width: int) -> None:
    text = f"""kernel k(X: {dtype}[M, N], Y: {dtype}[M, N]) {{
        par N j {{ new s: {dtype}; s = 0.0; seq M i {{ s += X[i, j]; Y[i, j] = s }} }}
    }}"""
    found = choice(mapped(text, M=32749, N=4093))
    assert isinstance(found, Scanned) and found.look_back
    assert (found.deal, found.threads, found.widths.get("j", 1)) == ((("j", across),), 256, width)


@pytest.mark.parametrize("ahead", [1, 2])
def test_what_lies_before_a_row_in_its_first_chunk_is_no_term(ahead: int) -> None:
    """Zeros come in its place, which are none of the least of positive numbers."""
    text = """kernel k(X: i32[M, N], Y: i32[M, N]) where N >= 1 {
        par M i { new s: i32; s = 9; seq N j { s min= X[i, j]; Y[i, j] = s } }
    }"""
    program = narrowed(text, {}, ahead=ahead, threads=32, look_back=False)
    values = {"X": np.array([[5, 4], [3, 2], [7, 8]], np.int32), "Y": np.zeros((3, 2), np.int32)}
    got = simulate(program, values, sizes={"M": 3, "N": 2})
    np.testing.assert_array_equal(got["Y"], np.minimum.accumulate(values["X"], axis=1))
