"""Blocks in groups of rows, as the author asks by `#raster(n)`: each block of the band once, in that order."""

from typing import Any

import pytest

import texpr
from texpr.grammar.index.expr import ONE, constant_value
from texpr.polyhedral.mapped.places import Digit, Place

MATMUL = (
    "kernel f(A: f32[512, 64], B: f32[64, 512], C: f32[512, 512]) %s {\n"
    "par 512 i, 512 j { C[i, j] = sum 64 k { A[i, k] * B[k, j] } } }"
)

WIDE = (
    "kernel f(A: f32[512, 8], B: f32[8, 64000], C: f32[512, 64000]) %s {\n"
    "par 512 i, 64000 j { C[i, j] = sum 8 k { A[i, k] * B[k, j] } } }"
)


@pytest.mark.parametrize("rows", [3, 4, 7, 16, 100])
def test_blocks_in_groups_of_rows_are_each_of_the_band_once(rows: int) -> None:
    """The grid of 512 x 512 iterations has 64 rows and 16 columns of blocks: groups of 3 and 7 leave some without."""
    kernel = next(iter(texpr.parse(MATMUL % f"#raster({rows})")))
    program = kernel.compile("cuda-host:sm_90a", stop_after="map").mapping.program
    (launch,) = program.host
    blocks = [digit for digit in launch.digits if digit.place is Place.GRID_X]
    total = constant_value(launch.grid[0])
    assert total is not None and launch.grid[1:] == (ONE, ONE)
    found = [
        tuple(sum(_at(block, d) * d.weight for d in blocks if d.index == i) for i in "ij") for block in range(total)
    ]
    assert len(set(found)) == total
    inside = [block for block in found if block[0] < 512 and block[1] < 512]
    assert len(inside) == len({i for i, _ in inside}) * len({j for _, j in inside})
    group = min(rows, len({i for i, _ in inside}))
    assert len({i for i, _ in found[:group]}) == group and len({j for _, j in found[:group]}) == 1


@pytest.mark.parametrize(
    "attributes",
    [
        "#persistent #raster(4)",
        "#persistent #cluster_shape(5)",
        "#raster(16)",
        "#raster(1000)",
        "#threads(1) #cluster_shape(2)",
        "#threads(1) #blocks_per_sm(4)",
    ],
)
def test_what_changed_the_blocks_is_not_called_idle_however_they_came_to_be(attributes: str) -> None:
    def mapping(asked: str) -> Any:
        return texpr.parse(WIDE % asked).only.compile("cuda:sm_90a", stop_after="map").mapping

    every = attributes.split()
    without = [" ".join(other for other in every if other != one) for one in every]
    assert "changes nothing" not in str(mapping(attributes))
    assert all(mapping(attributes).program.host != mapping(fewer).program.host for fewer in without)


def _at(block: int, digit: Digit) -> int:
    stride, radix = constant_value(digit.stride), constant_value(digit.radix)
    assert stride is not None and radix is not None
    return block // stride % radix
