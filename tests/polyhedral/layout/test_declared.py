"""The layouts that attributes give: padded rows, and swizzles that count the bits of byte addresses."""

import numpy as np
import pytest

import texpr
from texpr.grammar.ast import Buffer
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.layout.banks import bank_use
from texpr.polyhedral.layout.declared import declared_layout, shared_layout
from texpr.polyhedral.layout.injective import injective
from texpr.polyhedral.layout.make import padded, row_major, swizzled
from texpr.polyhedral.layout.normal import same
from texpr.polyhedral.target import parse_target

H100 = parse_target("cuda:sm_90a")
BYTES = {"i8": 1, "f8e4m3": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8}


def local(type_: str, attributes: str) -> Buffer:
    text = f"kernel f(A: f32[8]) {{ par 8 i {{ new shared t: {type_} {attributes}; A[i] = 1.0 }} }}"
    return texpr.parse(text).only.core().buffer("t")


@pytest.mark.parametrize(("dtype", "size"), BYTES.items())
def test_one_swizzle_of_the_byte_address_is_the_hardwares_for_every_type(dtype: str, size: int) -> None:
    for width, bits in ((128, 3), (64, 2), (32, 1)):
        tile = f"{dtype}[16, {width // size}]"
        wanted = swizzled((16, width // size), size, width)
        assert same(shared_layout(local(tile, "#swizzle")), wanted)
        assert same(shared_layout(local(tile, f"#swizzle({bits}, 4, 3)")), wanted)


def test_a_bare_swizzle_takes_the_widest_row_that_divides() -> None:
    assert same(shared_layout(local("f16[8, 192]", "#swizzle")), swizzled((8, 192), 2, 128))
    assert same(shared_layout(local("f16[8, 96]", "#swizzle")), swizzled((8, 96), 2, 64))
    assert same(shared_layout(local("f16[8, 48]", "#swizzle")), swizzled((8, 48), 2, 32))
    with pytest.raises(TExprError, match="rows of 50 bytes"):
        shared_layout(local("f16[8, 25]", "#swizzle"))


def test_outside_shared_memory_a_swizzle_is_none() -> None:
    assert declared_layout(local("f16[8, 64]", "#swizzle")) == row_major((8, 64))
    assert declared_layout(local("f16[8, 64]", "#pad")) == padded((8, 64), 1)


@pytest.mark.parametrize(
    ("attributes", "wavefronts"), [("", 32), ("#pad", 1), ("#swizzle(5, 2, 5)", 1), ("#swizzle", 4)]
)
def test_a_column_of_a_tile_is_read_without_conflicts_as_far_as_its_layout_mixes(
    attributes: str, wavefronts: int
) -> None:
    layout = shared_layout(local("f32[32, 32]", attributes))
    assert injective(layout).holds
    assert bank_use(layout, 4, (np.arange(32), np.full(32, 7)), H100).wavefronts == wavefronts
