"""A sample of `task_stress.py`; the script runs any number of seeds."""

import sys
from collections.abc import Iterator

import pytest
from task_stress import ENGINES, try_seed


@pytest.fixture(autouse=True)
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("seed", range(2 * len(ENGINES)))
def test_random_programs_of_tasks_are_what_a_sequential_run_gives(seed: int) -> None:
    try_seed(seed, 60)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(2 * len(ENGINES), 3 * len(ENGINES)))
def test_many_tasks_in_memories_for_a_tenth_of_the_blocks_are_what_a_sequential_run_gives(seed: int) -> None:
    """On every engine; the script has 1000000 tasks on 10000 blocks for a change of these."""
    try_seed(seed, 6_000, 300)
