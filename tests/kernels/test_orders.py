"""The test kernels lack no order between threads of a block, at all their sizes and with sizes left free."""

import sys
from pathlib import Path

import pytest
from test_kernels import CASES, IDS, VARIANTS, compiled_variant

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "polyhedral"))

from order_oracle import missing


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "index", "free"), VARIANTS, ids=IDS)
def test_enumeration_of_threads_and_accesses_finds_no_order_that_is_missing(
    name: str, index: int, free: tuple[str, ...]
) -> None:
    program = compiled_variant(name, index, free, "cuda:sm_90a", "map").mapping.program
    assert missing(program, CASES[name]["sizes"][index]) == []
