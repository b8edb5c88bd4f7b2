"""A sample of random programs in random schedules by random candidates; `drawn.py` runs any number of seeds."""

from collections import Counter

import pytest
from drawn import run

SEEDS = (1, 3, 4, 5, 9, 13, 21, 23, 39, 61, 87, 113, 469)  # a few of each form
# What random seeds found: rows of chunks that lanes do not cover, a condition in memory that a warp asks, a conversion
# that saturates, an array of the author's that is another one's copy.
FOUND = (2414439, 2414482, 2414484, 2414830)
FORMS = ("Scanned", "look back", "picks", "Contracted", "cut tiles", "Tallied", "Parted", "rows", "early", "moved")


def test_candidates_drawn_at_random_compute_what_the_program_says() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        assert run(seed, 3, found) == []
    assert all(found[form] for form in FORMS), found


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_wrong_once_is_right(seed: int) -> None:
    found: Counter[str] = Counter()
    assert run(seed, 4, found) == [] and found, "it still draws candidates"
