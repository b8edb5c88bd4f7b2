"""Programs for `sanitize.py` whose threads take runs of random reads in short loops, and tiles in bands."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import test_tiles
from strides import mapped, program

from texpr.polyhedral.mapped.candidate import Candidate


def runs() -> Iterator[tuple[str, str, Any, str, dict[str, int]]]:
    """A group, a program, its candidate, its architecture and sizes."""
    for seed in range(400):
        draw = Random(seed)
        text = program(draw)
        found = mapped(text, draw)
        if found is not None:
            yield "strides", text, found.candidate, "sm_90a", {}
    for t, (m, n, band) in product(("f32", "bf16"), test_tiles.BANDED):
        text = test_tiles.ROWS.format(t=t)
        first = test_tiles.choice(test_tiles.mapped(text, M=m, N=n))
        assert first is not None
        yield "bands", text, Candidate(launches={"k_0": replace(first, band=band)}), "sm_90a", {"M": m, "N": n}
