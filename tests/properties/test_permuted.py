"""A sample of random permuted bands; `permuted.py` runs any number of seeds."""

from differential import Tally
from permuted import run


def test_random_permuted_bands_are_right_on_every_backend() -> None:
    tally = Tally()
    forms = run(range(14), tally)
    assert tally.failures == []
    assert forms["Tiled"] > 3 and forms["Flat"] > 3, forms
