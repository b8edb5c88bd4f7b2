"""What the times of many products come to: geometric means over those that are large, and the shapes that are behind.

burst of torch: 0.993 over 20 large products, the least 0.951 (2048x2048x2048-tn-bf16)
"""

import statistics
from collections.abc import Iterator, Mapping
from math import exp, log
from typing import Any

LARGE = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (8192, 4096, 4096), (4096, 14336, 4096))
SKINNY = ((16, 4096, 4096), (1, 4096, 4096), (8, 14336, 4096))  # with cold caches
SMALL = ((1024, 1024, 1024), (1000, 1000, 1000), (1023, 1025, 1027), (3001, 5003, 2000))
SUM = "read-only sum"
WAYS = ("burst", "sustained", "single", "chain")


def summary(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each column and peer of the large products, and one for the best peer of each of the others."""
    names = ["x".join(map(str, size)) for size in LARGE]
    large = {name: row for name, row in rows.items() if name.split("-")[0] in names}
    for way in WAYS:
        key = f"{way} ms"
        peers = dict.fromkeys(peer for row in large.values() for peer in row.get(key, {}) if peer != "texpr")
        for peer in peers:
            told = {name: _ratio(row[key], peer) for name, row in large.items() if peer in row.get(key, {})}
            least = min(told, key=lambda name: told[name])
            mean = exp(statistics.fmean(map(log, told.values())))
            yield f"{way} of {peer}: {mean:.3f} over {len(told)} large products, the least {told[least]:.3f} ({least})"
    for name, row in rows.items():
        if name not in large:
            yield f"{name}: {', '.join(_of_best(row))}"


def _of_best(row: Mapping[str, Any]) -> Iterator[str]:
    """The ratio to the fastest peer in each column."""
    for way in ("", *WAYS):
        times = row.get(f"{way} ms".strip(), {})
        found = {peer: _ratio(times, peer) for peer in times if peer != "texpr"}
        if SUM in found:
            yield f"{way or 'graph'} {found.pop(SUM):.3f} of a {SUM}"
        if found:
            best = min(found, key=lambda peer: found[peer])
            yield f"{way or 'graph'} {found[best]:.3f} of {best}"


def _ratio(times: Mapping[str, list[float]], peer: str) -> float:
    """The median of what the peer takes over what we do, by round."""
    return statistics.median(theirs / ours for ours, theirs in zip(times["texpr"], times[peer], strict=True))
