"""A sample of random contractions on the simulator; `contraction_run.py` runs any number, and their text too."""

from collections import Counter

from contraction_run import run
from differential import Tally

import texpr

SEEDS = {"sm_90a": (6, 30, 31, 45, 48), "sm_80": (26, 31)}  # of which each runs briefly


def test_random_contractions_in_tiles_drawn_at_random_are_right() -> None:
    tally, found = Tally(), Counter[str]()
    for target, seeds in SEEDS.items():
        run(seeds, [target], ["simulate"], tally, found)
    assert tally.failures == []
    for form in (
        "sm_90a Piped",
        "sm_90a Piped in clusters",
        "sm_90a Ringed",
        "sm_90a Contracted",
        "sm_90a cases",
        "sm_90a rows laid",
        "sm_90a views",
        "sm_80 Ringed",
        "sm_80 rows laid",
        "sm_80 views",
    ):
        assert found[form], found


def test_windows_whose_bands_have_another_order_than_their_images_are_emitted() -> None:
    text = "kernel g(X: bf16[P, H + 2, V + 2, G], W: bf16[G, 3, 3, O], C: bf16[P, H, V, O]) { par H h, V v, O o, P p {"
    text += " C[p, h, v, o] = sum G c, 3 r, 3 z { X[p, h + r, v + z, c] * W[c, r, z, o] } } }"
    sizes = {"P": 32, "H": 56, "V": 56, "G": 128, "O": 128}
    texpr.parse(text).only.compile("cuda:sm_90a", stop_after="emit", **sizes)
