"""The means of figures say what a profiler counts: sectors and requests that ncu counted on an H200."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.polyhedral.figures.mean import SPREAD
from texpr.polyhedral.figures.measure import access_figures
from texpr.polyhedral.figures.value import AccessFigures

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
# By kernel: its sizes and mapping, then sectors of a request and requests of loads and of stores.
COUNTED = json.loads((Path(__file__).parent / "counted.json").read_text(encoding="utf-8"))


def figures(name: str, sizes: dict[str, int], candidate: Any = None) -> tuple[AccessFigures, ...]:
    kernel = texpr.load(KERNELS / f"{name}.tex").only
    compiled = kernel.compile("cuda:sm_90a", sizes=sizes, mapping=candidate, stop_after="map")
    return access_figures(compiled.mapping.program)


@pytest.mark.parametrize("name", COUNTED)
def test_means_are_what_ncu_counts(name: str) -> None:
    case = COUNTED[name]
    sectors, requests = defaultdict[str, float](float), defaultdict[str, int](int)
    for one in figures(name, case["sizes"], case["candidate"]):
        if one.mean is not None:
            assert one.mean.ideal <= one.mean.parts
            sectors[one.mode] += one.mean.parts * one.mean.requests
            requests[one.mode] += one.mean.requests
    for mode, (each, count) in (("read", case["loads"]), ("write", case["stores"])):
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
