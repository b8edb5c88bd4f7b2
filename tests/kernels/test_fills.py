"""A sample of `fills.py`: the test kernels at sizes that fill lanes, warps and blocks."""

from zlib import crc32

import pytest
from fills import filled, fillings

EVERY = 61
# By name: a case stays in the sample, or out of it, whatever kernels are added before it.
SAMPLE = [case for case in fillings() if crc32("{} {}={}".format(*case).encode()) % EVERY == 0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "size", "value"), SAMPLE, ids=[f"{n}-{s}{v}" for n, s, v in SAMPLE])
def test_the_mapping_is_right_at_sizes_that_fill_lanes_warps_or_blocks(name: str, size: str, value: int) -> None:
    if why := filled(name, size, value):
        pytest.skip(why)
