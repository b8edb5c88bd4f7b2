"""A sample of random contractions on the simulator; `contraction_run.py` runs any number, and their text too."""

from collections import Counter

from contraction_run import run
from differential import Tally

SEEDS = {"sm_90a": (0, 4, 19, 23, 45), "sm_80": (19, 45)}


def test_random_contractions_in_tiles_drawn_at_random_are_right() -> None:
    tally, found = Tally(), Counter[str]()
    for target, seeds in SEEDS.items():
        run(seeds, [target], ["simulate"], tally, found)
    assert tally.failures == []
    for form in ("sm_90a Piped", "sm_90a Piped in clusters", "sm_90a rows laid", "sm_80 Ringed"):
        assert found[form], found
