"""A sample of soup, of seeds whose programs run briefly; `soup_run.py` runs any number of seeds."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from differential import Tally
from soup import brew
from soup_run import taste


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", [0, 40])
def test_soup_is_right_or_refused_by_a_diagnostic_at_every_stage(first: int) -> None:
    tally = Tally()
    taste([brew(seed) for seed in range(first, first + 25)], ("exact", "fast", "simulate"), tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["emitted"] >= 12, dict(tally.counts)


def test_soup_is_right_on_the_cpu() -> None:
    tally = Tally()
    taste([brew(seed) for seed in range(1000, 1007)], ("cpu",), tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["ran on cpu"] >= 4


@pytest.mark.gxx
def test_soup_is_right_on_the_host_build() -> None:
    tally = Tally()
    taste([brew(seed) for seed in range(2002, 2016)], ("cuda-host",), tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["ran on cuda-host"] >= 7


@pytest.mark.nvcc
def test_the_cuda_text_of_soup_compiles_without_a_warning() -> None:
    tally = Tally()
    taste([brew(seed) for seed in range(3000, 3010)], (), tally, ("sm_90a",))
    assert not tally.failures, tally.failures[0]
    assert tally.counts["nvcc sm_90a"] >= 5
