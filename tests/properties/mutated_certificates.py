"""Certificates of mappings with one field changed: each is refuted, or d is what the lanes themselves say.

python tests/properties/mutated_certificates.py [COUNT]     10000 by default; exits 1 at the first that is believed
"""

import copy
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import texpr
from texpr.mapping_json import mapping_json
from texpr.polyhedral.verify.certificates import RefutedError
from texpr.polyhedral.verify.integers import FileError
from texpr.polyhedral.verify.stage import distance_of
from texpr.polyhedral.verify.tree import launches

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
NAMES = (
    "matmul_seed",
    "transpose",
    "softmax",
    "conv2d",
    "permute_021",
    "layernorm",
    "scatter_max",
    "block_scan",
    "syrk",
)


def mapping(name: str, target: str = "cuda:sm_90a") -> dict[str, Any]:
    compiled = texpr.load(KERNELS / f"{name}.tex").only.compile(target, stop_after="map")
    return mapping_json(compiled.mapping.program)


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all numbers, truths and texts in some data."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from fields(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from fields(item, (*path, number))
    else:
        yield path


def changed(value: Any, draw: random.Random) -> Any:
    """Another value for a field."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice(
            [value + 1, value - 1, -value if value else 2, 2 * value + 3, 0 if value else 1, f"{value}/2"]
        )
    over, _, under = str(value).partition("/")
    return draw.choice(
        [f"-{over}/{under}", f"{over}/{int(under) + 1}", int(over), f"{over}/0", "x", f"{over}/{under}/1"]
    )


def mutants(entry: dict[str, Any], draw: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """The entry of an access with one field of its certificate, or d, changed."""
    places = [("d",), *(("certificate", *path) for path in fields(entry["certificate"]))]
    for _ in range(count):
        other = copy.deepcopy(entry)
        *around, last = draw.choice(places)
        inside: Any = other
        for name in around:
            inside = inside[name]
        inside[last] = changed(inside[last], draw)
        yield other


def believed(data: dict[str, Any], entry: dict[str, Any]) -> bool:
    launch = next(found for found in launches(data["host"]) if found.name == entry["launch"])
    try:
        distance_of(data, entry, launch, data["representative"])
    except (RefutedError, FileError):
        return False
    return True


def apart(entry: dict[str, Any]) -> int | None:
    """The sum over a warp whose lanes are all there, None where no sample has them all."""
    for sample in entry["samples"]:
        if None not in sample["first"]:
            first = sample["first"]
            return sum(abs(b - a) for a, b in pairwise(first)) // entry["element_bytes"]
    return None


def run(count: int, names: tuple[str, ...] = NAMES, seed: int = 0) -> tuple[int, int]:
    """How many of so many mutants were refuted, and how many were believed and true. AssertionError for another."""
    draw, refuted, true = random.Random(seed), 0, 0
    told = [(data, e) for data in map(mapping, names) for e in data["accesses"] if e["certificate"] and apart(e)]
    for _ in range(count):
        data, entry = draw.choice(told)
        for other in mutants(entry, draw, 1):
            if believed(data, other):
                assert other["d"] == apart(entry), other
                true += 1
            else:
                refuted += 1
    return refuted, true


if __name__ == "__main__":
    refused, right = run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
    print(f"{refused} refuted, {right} believed, whose d is what the lanes say")
