"""Tiled spaces, tensors, slices and blocks."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.tasks.spaces import TiledSpace, tiled
from texpr.runtime.tasks.tensors import Block, Slice, Tensor


def refused(code: str, said: str, call: Callable[[], Any]) -> None:
    with pytest.raises(TExprError) as caught:
        call()
    [told] = caught.value.diagnostics
    assert told.code == code and said in str(told), str(told)


def test_regular_tiles_start_anew_at_the_bounds_of_subranges() -> None:
    space = tiled(20, 4, {"occ": (0, 6), "virt": (6, 20), "core": (0, 4), "none": (6, 6)})
    assert space.bounds == (0, 4, 6, 10, 14, 18, 20)
    assert space.tiles_of("virt") == range(2, 6) and space.tiles_of("none") == range(2, 2)
    occ = space["occ"]
    assert occ.bounds == (0, 4, 6) and occ.tiles_of("core") == range(1)
    assert space["virt"].bounds == (0, 4, 8, 12, 14)


@given(st.integers(0, 40), st.integers(1, 9), st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_tiles_cover_a_space_once(extent: int, tile: int, pair: tuple[int, int]) -> None:
    low, high = (min(bound, extent) for bound in sorted(pair))
    space = tiled(extent, tile, {"part": (low, high)})
    extents = [space.tile_extent(t) for t in range(space.n_tiles)]
    assert sum(extents) == space.extent == extent and all(0 < e <= tile for e in extents)
    assert sum(extents[t] for t in space.tiles_of("part")) == high - low == space["part"].extent


WRONG_SPACES: list[tuple[Callable[[], Any], str]] = [
    (lambda: tiled(-1, 4), "number of indices"),
    (lambda: tiled(True, 4), "number of indices"),
    (lambda: tiled(10, 0), "at least one index"),
    (lambda: tiled(10, (5, 0, 5)), "at least one index each"),
    (lambda: tiled(10, (5, 4)), "the tiles hold 9 indices, and the space has 10"),
    (lambda: tiled(10, (5, 5), {"p": (0, 6)}), "subrange `p` has a bound at 6, inside a tile"),
    (lambda: tiled(10, 5, {"p": (6, 3)}), "0 <= start <= stop <= 10"),
    (lambda: tiled(10, 5, {"p": (0, 11)}), "0 <= start <= stop <= 10"),
    (lambda: Tensor("A", (10,)), "dimensions are tiled spaces"),
    (lambda: Tensor("A", (tiled(4, 2),), "f65"), "'f65' is no element type"),
    (lambda: Tensor("A", (tiled(4, 2),), None), "no element type"),
    (lambda: Tensor("A", (tiled(4, 2),), numpy.complex64), "no element type"),
    (lambda: Tensor("A", (tiled(4, 2),), ">f8"), "no element type"),
    (lambda: Tensor("A", (tiled(4, 2),), data=numpy.zeros(5)), "the data is float64[5], not a NumPy array float64[4]"),
    (lambda: Tensor("A", (tiled(4, 2),), "f32", data=numpy.zeros(4)), "the data is float64[4]"),
    (lambda: Tensor("A", (tiled(4, 2),), data=[0.0] * 4), "the data is a list"),
    (lambda: Tensor("A", (tiled(4, 2),), data=numpy.broadcast_to(1.0, (4,))), "cannot be written"),
    (lambda: Tensor("A", (tiled(4, 2),), zero=lambda i: i == 1, data=numpy.arange(4.0)), "zero block A[1]"),
]


@pytest.mark.parametrize(("call", "said"), WRONG_SPACES)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], said: str) -> None:
    refused("E0701", said, call)


def grid() -> Tensor:
    return Tensor("A", (tiled(10, 4, {"occ": (0, 6)}), tiled(6, (1, 2, 3))), "i32")


def test_subscripts_name_blocks_and_slices() -> None:
    a = grid()
    assert a.n_tiles == (3, 3) and a.shape == (10, 6) and a.n_blocks == 9
    block = a[1, 2]
    assert isinstance(block, Block) and block.shape == (2, 3) and a[1, 2] is block and repr(block) == "A[1, 2]"
    assert block.size_bytes == 24
    part = a["occ", 1:]
    assert isinstance(part, Slice) and [b.index for b in part.blocks()] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert repr(part) == "A[0:2, 1:3]"
    row = a[0]
    assert isinstance(row, Slice) and not row.is_whole and [b.number for b in row.blocks()] == [0, 1, 2]
    assert isinstance(a[:], Slice) and a[:].is_whole
    scalar = Tensor("s", ())
    assert isinstance(scalar[()], Block) and scalar.block(()).shape == ()


WRONG_SUBSCRIPTS: list[tuple[Any, str]] = [
    ((3, 0), "A[3, 0]: dimension 0 has 3 tiles"),
    ((0, -1), "A[0, -1]: dimension 1 has 3 tiles"),
    ((0, 0, 0), "A has 2 dimensions, not 3"),
    ((slice(0, 4), 0), "leaves its 3 tiles"),
    ((slice(2, 1), 0), "leaves its 3 tiles"),
    ((slice(0, 3, 2), 0), "tiles are a number, `start:stop` or a name"),
    ((1.5, 0), "tiles are a number"),
    (([0], 0), "tiles are a number"),
    (("virt", 0), "A, dimension 0: the space has no subrange `virt`"),
    (("ocd", 0), "did you mean `occ`?"),
]


@pytest.mark.parametrize(("key", "said"), WRONG_SUBSCRIPTS, ids=str)
def test_subscripts_that_name_nothing_are_refused(key: Any, said: str) -> None:
    refused("E0702", said, lambda: grid()[key])


def test_blocks_are_memory_of_their_own_or_views_of_the_data() -> None:
    a = grid()
    block = a.block((1, 2))
    block.home[...] = 7
    whole = a.at_home()
    assert whole[4:6, 3:].tolist() == [[7] * 3] * 2 and whole.sum() == 42
    assert numpy.shares_memory(numpy.from_dlpack(block.home), block.home)
    data = numpy.arange(60, dtype=numpy.int32).reshape(10, 6)
    on = Tensor("B", a.spaces, "i32", data=data)
    on.block((2, 0)).home[...] = -1
    assert data[6:, 0].tolist() == [-1] * 4
    assert Tensor("C", (tiled(2, 2),), "bf16").dtype.itemsize == 2


def test_zero_blocks_read_as_zeros_and_cannot_be_written() -> None:
    lower = Tensor("L", (tiled(6, 2), tiled(6, 2)), zero=lambda i, j: j > i)
    block = lower.block((0, 1))
    assert block.is_zero and not lower.block((1, 1)).is_zero
    assert block.home.shape == (2, 2) and not block.home.any()
    with pytest.raises(ValueError, match="read-only"):
        block.home[...] = 1.0


def test_a_space_may_be_empty() -> None:
    empty = Tensor("E", (tiled(0, 3), tiled(4, 2)))
    assert empty.n_blocks == 0 and list(empty.blocks()) == [] and empty.at_home().shape == (0, 4)
    assert TiledSpace((0,)).n_tiles == 0


def test_a_tensor_without_dimensions_works_on_its_data_in_place() -> None:
    data = numpy.array(3.0)
    scalar = Tensor("S", (), data=data)
    scalar.block(()).home[...] += 1
    assert data == 4.0 and scalar.at_home() == 4.0
    assert Tensor("S", (), data=data, packed=True).at_home() == 4.0


def test_packed_data_is_copied_to_contiguous_blocks() -> None:
    data = numpy.arange(12.0).reshape(3, 4)
    data.flags.writeable = False
    packed = Tensor("A", (tiled(3, 2), tiled(4, 2)), data=data, packed=True)
    block = packed.block((1, 1)).home
    assert block.flags.c_contiguous and block.tolist() == [[10.0, 11.0]] and not packed.is_view
    block[...] = 0
    assert packed.at_home()[2].tolist() == [8.0, 9.0, 0.0, 0.0] and data[2, 3] == 11.0
    refused("E0701", "only data can be packed", lambda: Tensor("A", (tiled(3, 2),), packed=True))
