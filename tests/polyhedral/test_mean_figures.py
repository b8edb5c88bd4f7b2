"""The means of figures say what a profiler counts: sectors and requests that ncu counted on an H200."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import texpr
from texpr.polyhedral.figures.mean import SPREAD
from texpr.polyhedral.figures.measure import access_figures
from texpr.polyhedral.figures.value import AccessFigures

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
# Kernel, sizes, then sectors of a request and requests of loads and of stores.
COUNTED = [
    ("ragged", {"M": 1000, "N": 1003}, (16.0, 7836), (16.0, 7836)),
    ("softmax", {"M": 301, "N": 1000}, (15.625, 2408), (15.625, 2408)),
    ("conv2d", {"B": 2, "C": 3, "K": 4, "H": 66, "V": 99}, (4.006, 14784), (3.800, 7920)),
    ("transpose", {"M": 1000, "N": 700}, (16.909, 5500), (15.625, 5600)),
    ("triangle_copy", {"N": 523}, (30.186, 4522), (4.752, 4522)),
    ("layernorm", {"M": 206, "N": 1065}, (12.484, 11436), (11.354, 2472)),
    ("deep_nest", {"P": 30, "Q": 10, "R": 77}, (10.5, 300), (3.056, 1350)),
    ("strided_params", {"M": 409, "N": 314}, (15.379, 3515), (8.346, 2041)),
    ("gesummv", {"N": 290}, (9.137, 6094), (1.0, 290)),
    ("modular", {"M": 110, "N": 3001}, (4.312, 13700), (12.822, 3245)),
]


def figures(name: str, sizes: dict[str, int]) -> tuple[AccessFigures, ...]:
    kernel = texpr.load(KERNELS / f"{name}.tex").only
    return access_figures(kernel.compile("cuda:sm_90a", sizes=sizes, stop_after="map").mapping.program)


@pytest.mark.parametrize(("name", "sizes", "loads", "stores"), COUNTED, ids=[row[0] for row in COUNTED])
def test_means_are_what_ncu_counts(
    name: str, sizes: dict[str, int], loads: tuple[float, int], stores: tuple[float, int]
) -> None:
    sectors, requests = defaultdict[str, float](float), defaultdict[str, int](int)
    for one in figures(name, sizes):
        if one.mean is not None:
            assert one.mean.ideal <= one.mean.parts
            sectors[one.mode] += one.mean.parts * one.mean.requests
            requests[one.mode] += one.mean.requests
    for mode, (each, count) in (("read", loads), ("write", stores)):
        assert sectors[mode] / requests[mode] == pytest.approx(each, rel=0.05)
        assert requests[mode] == pytest.approx(count, rel=0.11)


def test_places_are_spread_evenly_alone_and_together() -> None:
    one, other = (SPREAD.below(8, salt) for salt in (7, 1009))
    assert {int(n) for n in np.bincount(one)} <= set(range(125, 132))
    pairs = np.bincount(8 * one + other, minlength=64)
    assert pairs.min() >= 8 and pairs.max() <= 24
    assert not SPREAD.below(0, 3).any() and not SPREAD.below(1, 3).any()


def test_empty_launches_and_shared_memory_have_no_mean() -> None:
    assert all(one.mean is None for one in figures("ragged", {"M": 0, "N": 7}))
    found = figures("transpose_shared", {"M": 48, "N": 32})
    assert all((one.mean is None) == (one.memory.value == "shared") for one in found)
