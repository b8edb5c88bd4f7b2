"""A sample of random programs in random schedules by random candidates; `drawn.py` runs any number of seeds."""

from collections import Counter

from drawn import run

SEEDS = (1, 3, 4, 5, 9, 13, 21, 23, 39, 61, 87, 113)  # a few of each form
FORMS = ("Scanned", "look back", "picks", "Contracted", "cut tiles", "Tallied", "Parted", "rows", "early", "moved")


def test_candidates_drawn_at_random_compute_what_the_program_says() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        assert run(seed, 3, found) == []
    assert all(found[form] for form in FORMS), found
