"""Integers of arrays in memory agree with NumPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from texpr.grammar.strides import dense, reach


@given(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
def test_dense_strides_are_those_of_a_new_array_with_elements(shape: tuple[int, ...]) -> None:
    if 0 not in shape:
        assert dense(shape) == np.zeros(shape, np.int8).strides
    assert reach(shape, dense(shape)) == (0, int(np.prod(shape)))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=3))
def test_the_reach_is_from_the_least_address_to_one_after_the_greatest(dims: list[tuple[int, int]]) -> None:
    shape, strides = [n for n, _ in dims], [s for _, s in dims]
    addresses = [sum(i * s for i, s in zip(element, strides, strict=True)) for element in np.ndindex(*shape)]
    assert reach(shape, strides) == ((min(addresses), max(addresses) + 1) if addresses else (0, 0))
