"""Functions of emitted text that others call by their address."""

from typing import Any

import numpy as np
import pytest
from numba import float64, int64, njit, void

from texpr.codegen.cpu.apart import apart


def made() -> Any:
    @apart
    @njit(void(int64, float64[::1]))
    def faraway(task: int, values: Any) -> None:
        if task == 7:
            raise ValueError("seven")
        values[task] = task + 0.5

    @njit(int64(int64, float64[::1]))
    def every(tasks: int, values: Any) -> int:
        for task in range(tasks):
            faraway(task, values)
        return 1

    return every


def test_a_caller_has_an_address_in_place_of_the_function() -> None:
    every, values = made(), np.zeros(5)
    assert every(5, values) == 1
    np.testing.assert_array_equal(values, np.arange(5) + 0.5)
    (text,) = every.inspect_llvm().values()
    assert "inttoptr" in text and "7faraway" not in text


def test_what_it_raises_comes_through() -> None:
    with pytest.raises(ValueError, match="seven"):
        made()(8, np.zeros(8))
