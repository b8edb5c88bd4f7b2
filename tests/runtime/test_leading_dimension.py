"""A size that is a stride by itself, `#strides(lda, 1)`, is solved from the strides of the arrays of a call."""

from typing import Any

import numpy as np
import pytest

import texpr
from texpr.grammar.interpret.stage import interpret

ROWS = """kernel rows(A: f32[M, N] #strides(lda, 1), out B: f32[M, N] #strides(ldb, 1)) where ldb >= N {
    par M i, N j { B[i, j] = A[i, j] }
}"""
SHARED = """kernel common(A: f32[M, N] #strides(lda, 1), out B: f32[M, N] #strides(lda, 1)) where lda >= N {
    par M i, N j { B[i, j] = A[i, j] }
}"""
TARGETS = ["cpu", pytest.param("cuda-host:sm_90a", marks=pytest.mark.gxx)]


def rows_of(text: str) -> texpr.Kernel:
    return texpr.parse(text).only


def grid(rows: int, columns: int) -> Any:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_lie_apart_as_each_call_says(target: str) -> None:
    compiled = rows_of(ROWS).compile(target)
    assert set(compiled.dynamic) == {"M", "N", "lda", "ldb"}
    for lda, ldb, m, n in ((12, 9, 5, 7), (7, 7, 5, 7), (12, 8, 1, 7), (4, 4, 0, 4), (6, 5, 3, 1)):
        source, target_rows = grid(max(m, 1), lda)[:m, :n], np.zeros((max(m, 1), ldb), np.float32)
        compiled(source, target_rows[:m, :n])
        np.testing.assert_array_equal(target_rows[:m, :n], source)
        assert not target_rows[:, n:].any()


def test_a_bare_call_and_the_interpreter_solve_it_alike() -> None:
    kernel, source, found = rows_of(ROWS), grid(5, 12)[:, :7], np.zeros((5, 9), np.float32)
    kernel(source, found[:, :7])
    np.testing.assert_array_equal(found[:, :7], source)
    arrays = {"A": source, "B": found[:, :7]}
    for done in (interpret(kernel.core(), arrays, mode="fast"), interpret(kernel.core(), arrays, mode="exact")):
        np.testing.assert_array_equal(done.outputs["B"], source)


def refusal(call: Any) -> str:
    with pytest.raises(texpr.TExprError) as caught:
        call()
    return caught.value.diagnostics[0].message


def test_strides_that_conflict_are_refused() -> None:
    compiled, source = rows_of(SHARED).compile("cpu"), grid(5, 12)[:, :7]
    message = refusal(lambda: compiled(source, np.zeros((5, 9), np.float32)[:, :7]))
    assert message == "common: B has strides (9, 1) and needs (12, 1) (elements)"
    message = refusal(lambda: compiled(source, np.zeros((5, 12), np.float32)[:, :7], lda=9))
    assert message == "common: A has strides (12, 1) and needs (9, 1) (elements)"
    message = refusal(lambda: compiled(source[::-1], np.zeros((5, 12), np.float32)[::-1, :7]))
    assert message.startswith("common: lda cannot be found")


def test_rows_that_overlap_are_not_written() -> None:
    compiled = rows_of(ROWS).compile("cpu")
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(40, np.float32), (5, 7), (12, 4))
    assert "`where ldb >= N` does not hold" in refusal(lambda: compiled(grid(5, 7), overlapping))
