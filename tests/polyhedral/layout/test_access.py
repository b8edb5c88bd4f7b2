"""What an access of a layout costs: vector widths and banks; and layouts as text and data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_oracle import elements_of, everything, layouts, mixed_radix, number, place_of

from texpr.grammar.ast import IndexVar, SizeVar
from texpr.grammar.index.expr import add, const, multiply
from texpr.grammar.index.linear import NO_DIVISORS
from texpr.polyhedral.layout.banks import bank_use, bank_use_of
from texpr.polyhedral.layout.compose import tile
from texpr.polyhedral.layout.make import fragment, padded, row_major, strided, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.place import variable
from texpr.polyhedral.layout.text import MAX_DEPTH, from_json, show, to_json
from texpr.polyhedral.layout.value import Layout, Term, Unit
from texpr.polyhedral.layout.vector import vector_width
from texpr.polyhedral.target import parse_target

M, N = SizeVar(name="M"), SizeVar(name="N")
H100 = parse_target("cuda:sm_90a")


# ---- vectors -----------------------------------------------------------------------------------------------------


def width_along(layout: Layout, dim: int, most: int, divisors: Mapping[str, int] = NO_DIVISORS) -> int:
    """The vector width of the elements themselves."""
    return vector_width(layout, [variable(d) for d in range(layout.rank)], variable(dim).name, most, divisors)


def whole_groups(layout: Layout, dim: int, width: int) -> bool:
    """Whether every whole group of `width` elements lies aligned, one after another, with one holder."""
    for element in elements_of(layout):
        start = element[dim]
        if start % width or start + width > number(layout.shape[dim]):
            continue
        group = [place_of(layout, (*element[:dim], start + k, *element[dim + 1 :])) for k in range(width)]
        first = group[0]
        if first[Unit.ADDRESS] % width:
            return False
        if any(p != {**first, Unit.ADDRESS: first[Unit.ADDRESS] + k} for k, p in enumerate(group)):
            return False
    return True


@settings(max_examples=60)
@given(st.one_of(layouts(copies=False), layouts(digits=True, copies=False), mixed_radix()))
def test_a_vector_width_holds_for_every_group(layout: Layout) -> None:
    for dim in range(layout.rank):
        assert whole_groups(layout, dim, width_along(layout, dim, 8))


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from((2, 4, 8, 16, 32)), min_size=1, max_size=3),
    st.lists(st.sampled_from((1, 2, 3, 4, 8, 12, 24, 40)), min_size=3, max_size=3),
    st.integers(0, 1),
)
def test_of_strides_the_vector_width_is_the_greatest(shape: list[int], steps: list[int], shift: int) -> None:
    layout = strided(shape, steps[: len(shape)])
    layout = replace(layout, terms=(*layout.terms, Term(dim=None, stride=const(4), offset=const(shift))))
    for dim, count in enumerate(shape):
        widths = [w for w in (2, 4, 8) if w <= count and whole_groups(layout, dim, w)]
        assert width_along(layout, dim, min(8, count)) == max(widths, default=1)


def test_vector_widths_of_tiles_and_arrays() -> None:
    assert [width_along(row_major((M, 64)), d, 8) for d in (0, 1)] == [1, 8]
    assert width_along(padded((128, 64), 4), 1, 8) == 4
    assert width_along(padded((128, 64), 1), 1, 8) == 1
    assert width_along(canonical(swizzled((8, 64), 2, 128)), 1, 64) == 8
    assert width_along(canonical(swizzled((8, 64), 2, 128)), 0, 64) == 1
    assert width_along(row_major((M, N)), 1, 8) == 1
    assert width_along(row_major((M, N)), 1, 8, {"N": 24}) == 8
    assert width_along(row_major((M, 64)), 1, 4) == 4
    assert width_along(tile(row_major((M, 64)), (const(1), const(4)), (const(8), const(8))), 1, 8) == 4


def test_the_width_of_an_access_is_that_of_its_subscripts() -> None:
    lane, v = IndexVar(name="lane"), IndexVar(name="v")
    subscripts = (const(3), add(multiply(lane, const(8)), v))
    assert vector_width(padded((128, 256), 8), subscripts, "v", 8) == 8
    assert vector_width(padded((128, 256), 8), (const(3), add(subscripts[1], const(2))), "v", 8) == 2
    assert vector_width(padded((128, 256), 8), subscripts, "lane", 8) == 1


# ---- banks -------------------------------------------------------------------------------------------------------


def wavefronts_of(byte_addresses: Sequence[int], lane_bytes: int) -> int:
    """Word by word: in groups of as many lanes as 128 bytes serve, the most different words of one bank."""
    total = 0
    for start in range(0, len(byte_addresses), min(32, 128 // max(lane_bytes, 4))):
        banks: dict[int, set[int]] = {}
        for address in byte_addresses[start : start + min(32, 128 // max(lane_bytes, 4))]:
            for byte in range(address, address + lane_bytes):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, banks.values()))
    return total


@settings(max_examples=60)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=32), st.sampled_from((1, 2, 4, 8, 16)))
def test_wavefronts_are_counted_by_words_and_banks(places: list[int], lane_bytes: int) -> None:
    addresses = [place * lane_bytes for place in places]
    found = bank_use_of(np.array(addresses), lane_bytes, H100)
    assert found.wavefronts == wavefronts_of(addresses, lane_bytes)
    assert 1 <= found.ideal <= found.wavefronts


def test_padding_and_swizzles_take_conflicts_away() -> None:
    lane = np.arange(32)
    column = (lane, np.full(32, 5))
    assert bank_use(row_major((32, 32)), 4, column, H100).wavefronts == 32
    assert bank_use(padded((32, 32), 1), 4, column, H100).wavefronts == 1
    assert bank_use(row_major((32, 32)), 4, (np.full(32, 5), lane), H100).degree == 1.0
    assert bank_use(row_major((32, 32)), 4, (np.full(32, 5), np.full(32, 7)), H100).wavefronts == 1
    rows = (lane, np.full(32, 8))  # ldmatrix: 16 bytes of each row
    assert bank_use(row_major((32, 64)), 2, rows, H100, width=8).degree == 8.0
    assert bank_use(swizzled((32, 64), 2, 128), 2, rows, H100, width=8).degree == 1.0
    assert bank_use(padded((32, 64), 8), 2, rows, H100, width=8).degree == 1.0
    halves = (np.zeros(32, np.int64), lane)
    assert bank_use(row_major((1, 32)), 2, halves, H100).wavefronts == 1


# ---- text and data -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.one_of(layouts(), mixed_radix()))
def test_a_layout_is_the_same_from_its_data(layout: Layout) -> None:
    assert from_json(to_json(layout)) == layout


def test_data_and_text_of_layouts() -> None:
    assert to_json(padded((128, N), 8)) == {
        "shape": [128, "N"],
        "terms": [{"dim": 0, "stride": ["+", "N", 8]}, {"dim": 1, "stride": 1}],
    }
    moved = tile(row_major((M, N)), (IndexVar(name="i"), const(0)), (const(8), N))
    assert to_json(moved)["terms"][0] == {"dim": 0, "stride": "N", "offset": ["index", "i"]}
    assert from_json(to_json(moved)) == moved
    assert show(padded((128, 64), 8)) == "(128, 64): address x0 * 72 + x1"
    assert show(row_major(())) == "(): address 0"
    assert show(swizzled((8, 64), 2, 128), ("i", "j")) == "(8, 64): address i * 64 + j, xor(bits 3, base 3, shift 3)"
    assert from_json(to_json(fragment("mma16816", "b"))) == fragment("mma16816", "b")
    assert everything(from_json(to_json(swizzled((4, 16), 2, 32)))) == everything(swizzled((4, 16), 2, 32))


def nested(depth: int) -> object:
    return "N" if depth == 0 else ["+", nested(depth - 1), 1]


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"shape": [1]}, {"shape": 3, "terms": []}, {"shape": [True], "terms": []},
        {"shape": [], "terms": [], "more": 1}, {"shape": [2], "terms": [{"dim": 1, "stride": 1}]},
        {"shape": [2], "terms": [{"dim": 0, "stride": 1, "unit": "block"}]},
        {"shape": [2], "terms": [{"dim": 0, "stride": 1, "unit": []}]},
        {"shape": [2], "terms": [{"dim": 0, "stride": 1, "divisor": 0}]},
        {"shape": [2], "terms": [{"dim": 0, "stride": 1.5}]}, {"shape": [2], "terms": [{"dim": "0", "stride": 1}]},
        {"shape": [["^", 1, 2]], "terms": []}, {"shape": [["+", 1]], "terms": []},
        {"shape": [nested(MAX_DEPTH + 9)], "terms": []},
        {"shape": [], "terms": [], "xor": {"bits": 3, "base": 3}}, {"shape": [], "terms": [], "copies": [0]},
        {"shape": [], "terms": [], "xor": {"bits": 3, "base": 3, "shift": 1}}, {"shape": [], "terms": [], "copies": 2},
    ],
)  # fmt: skip
def test_data_that_is_no_layout_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"layout|list|integer|expression"):
        from_json(data)
