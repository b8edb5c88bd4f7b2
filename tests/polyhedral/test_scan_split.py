"""Long sums of scans: their tiles are folded in f32 and handed on in f64."""

import numpy as np
from test_scanned import STREAM, narrowed

from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.simulate.stage import simulate


def test_a_long_sum_is_handed_on_in_f64_and_rounded_where_it_is_read() -> None:
    n, tile, big = 1 << 14, 1024, 2.0**40
    x = np.ones(n, np.float32)
    x[:tile] = x[n // 2 : n // 2 + tile] = 0
    x[0], x[n // 2] = big, -big
    exact = x.astype(np.float64).cumsum()
    behind = np.arange(n) >= n // 2 + tile
    for look_back in (False, True):
        program = narrowed(STREAM, {"N": n}, threads=128, ahead=8, widths={}, look_back=look_back)
        got = simulate(program, {"X": x, "Y": np.zeros(n, np.float32)})["Y"]
        assert (got[behind] == exact[behind]).all()
        before = np.arange(n) < n // 2
        assert (np.abs(got[before] - exact[before]) <= np.spacing(np.float32(big))).all()
    assert sums(program, {"N": 1 << 40})["s_before"].chain <= 64
