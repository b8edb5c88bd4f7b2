"""What a comparison with the reference passes and what it counts as wrong."""

from typing import Any

import numpy as np
import pytest

from texpr.runtime.compare import Comparison, compare, objections


def compared(got: Any, reference: Any, bound: float = 0.5, undecided: Any = False) -> Comparison:
    got, reference = np.atleast_1d(got), np.atleast_1d(np.asarray(reference, np.float64))
    return compare("A", got, reference, np.full(got.shape, bound), np.broadcast_to(undecided, got.shape))


@pytest.mark.parametrize(("got", "wrong", "ratio"), [(1.0, 0, 0.0), (3.0, 0, 4.0), (-1.0, 0, 4.0), (3.01, 1, 4.02)])
def test_floats_may_differ_by_four_bounds(got: float, wrong: int, ratio: float) -> None:
    found = compared(np.float64(got), 1.0)
    assert (found.wrong, found.elements) == (wrong, 1)
    assert found.ratio == pytest.approx(ratio)
    assert found.greatest_error == pytest.approx(abs(got - 1.0))


def test_without_a_bound_floats_are_equal() -> None:
    assert compared(np.float32(1.0), 1.0, bound=0.0).wrong == 0
    assert compared(np.nextafter(np.float32(1.0), np.float32(2.0)), 1.0, bound=0.0).wrong == 1


def test_specials_are_equal_to_themselves_only() -> None:
    special = [np.nan, np.inf, -np.inf]
    for got in special:
        for reference in [*special, 1.0]:
            same = got == reference or (np.isnan(got) and np.isnan(reference))
            assert compared(np.float32(got), reference).wrong == (not same)


def test_integers_are_equal_and_bounds_are_nothing_to_them() -> None:
    found = compared(np.array([1, 2, 4], np.int32), [1, 2, 3], bound=100.0)
    assert (found.wrong, found.elements, found.greatest_error, found.ratio) == (1, 3, 1.0, np.inf)
    assert compared(np.array([True, False]), [1, 1]).wrong == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_what_is_undecided_is_counted_and_not_compared(dtype: Any) -> None:
    found = compared(np.array([1, 50], dtype), [1, 3], undecided=[False, True])
    assert (found.wrong, found.undecided, found.greatest_error, found.ratio) == (0, 1, 0.0, 0.0)


def test_a_run_with_more_than_one_undecided_element_in_a_hundred_is_not_right() -> None:
    def half(undecided: int) -> Comparison:
        return compared(np.ones(200), np.ones(200), undecided=np.arange(200) < undecided)

    assert objections([half(2)]) == ()
    assert objections([half(2), half(3)]) == ("3 of 200 elements of A are undecided, and were not compared",)
    assert objections([]) == ("nothing was compared: the kernel writes no element",)
    assert objections([compared(np.zeros(0), np.zeros(0)), half(0)]) == ()
    assert objections([compared(1.0, 9.0)]) == ("A is wrong in 1 elements",)
