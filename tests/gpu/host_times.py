"""How long the host is busy with a call that enqueues work for a GPU."""

import time
from collections.abc import Callable

import numpy as np


def median_us(call: Callable[[], object], wait: Callable[[], object] = lambda: None) -> float:
    """Median host time of one call, in batches short enough not to fill the GPU's queue."""
    times = []
    for _ in range(40):
        for _ in range(50):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        wait()
    return float(np.median(times) * 1e6)
