"""What the accesses of a mapped program cost: figures by enumeration of the lanes of some warps.

Addresses are evaluated at the representative sizes, for all lanes of a warp at up to `SAMPLES` places where one stands:
the first, the last, the middle one, then places drawn by a fixed rule; those where no lane is active are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from texpr.grammar.ast import Gather, IndexExpr, IndexVar
from texpr.grammar.index.expr import names
from texpr.grammar.index.linear import atom_names, linear
from texpr.grammar.index.text import in_words
from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.figures.certify import certificate
from texpr.polyhedral.figures.mean import ENGINE_ALIGN_BYTES, SECTOR_BYTES, SPREAD, Array, Draw, Made, mean
from texpr.polyhedral.figures.sites import Site, Sites
from texpr.polyhedral.figures.value import AccessFigures, By, Certificate, Known, LaneDigit, Mean, Sample
from texpr.polyhedral.layout.banks import bank_use_of
from texpr.polyhedral.mapped.places import PLACES, Memory, Place, Where
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram

SAMPLES = 8  # places of a warp, of those that are tried
TRIED = 24
ENUMERATED = 1 << 20  # addresses of one access


def access_figures(program: MappedProgram) -> tuple[AccessFigures, ...]:
    """The figures of every access to shared and global memory, launch by launch, in execution order."""
    found: list[AccessFigures] = []
    for launch, hosts, runs in _launches(program.host, program.report.representative, {}, True):
        sizes = {**program.report.representative}
        walked = Sites(launch, program.buffers, sizes, program.target.warp_size, cpu=not program.target.is_cuda).walk()
        seen = _Launch(program, launch, hosts)
        found += (seen.figures(site, runs) for site in walked)
    return tuple(found)


def _launches(
    nodes: Sequence[HostNode], sizes: Mapping[str, int], hosts: Mapping[str, int], runs: bool
) -> Iterator[tuple[Launch, Mapping[str, int], bool]]:
    """Every launch with how often each host index around it turns, and whether it runs at the sizes."""
    for node in nodes:
        match node:
            case Launch():
                yield node, hosts, runs
            case HostLoop(index=index, extent=extent, body=body):
                turns = int(index_value(extent, {**sizes, **dict.fromkeys(hosts, 0)}))
                yield from _launches(body, sizes, {**hosts, index: turns}, runs and turns > 0)
            case HostIf(condition=condition, then=then, orelse=orelse):
                holds = _decided(condition, {**sizes, **dict.fromkeys(hosts, 0)})
                yield from _launches(then, sizes, hosts, runs and holds is not False)
                yield from _launches(orelse, sizes, hosts, runs and holds is not True)


def _decided(condition: Any, values: Mapping[str, int]) -> bool | None:
    """What the host finds at the sizes; None where addresses decide."""
    if not names(condition) <= values.keys():
        return None
    return bool(condition_value(condition, values))


@dataclass(slots=True)
class _Launch:
    """A launch at the representative sizes."""

    program: MappedProgram
    launch: Launch
    hosts: Mapping[str, int]

    def figures(self, site: Site, runs: bool) -> AccessFigures:
        shown = ", ".join("data" if isinstance(s, Gather) else in_words(s) for s in site.subscripts)
        named = f"{site.buffer.name}[{shown}]" if site.subscripts else site.buffer.name
        common: dict[str, Any] = {
            "launch": self.launch.name,
            "path": site.path,
            "place": (site.span.source.name, site.span.line) if site.span.source.text else None,
            "statement": site.statement,
            "number": site.number,
            "mode": site.mode,
            "buffer": site.buffer.name,
            "memory": site.buffer.memory,
            "subscripts": site.subscripts,
            "relation": named,
            "element_bytes": site.buffer.dtype.size_bytes,
            "width": site.width,
            "by": site.by,
        }
        if site.address is None or site.by is not By.THREADS:
            why = site.why or "a core has no lanes"
            composed = None if site.address is None else _shown(site.address)
            requests = None if site.by not in (By.THREADS, By.CORE) else self._requests(site)
            return AccessFigures(**common, composed=composed, requests=requests, why=why)
        distance, known, proof = self._distance(site, site.address)
        samples = self._samples(site, site.address) if runs else ()
        why = "" if samples else "no warp comes here at these sizes"
        if not runs:
            why = "its launch does not run at these sizes"
        if site.unasked and samples:
            why = "as if all lanes came that data lets come"
        return AccessFigures(
            **common,
            composed=_shown(site.address),
            distance=distance,
            known=known,
            certificate=proof,
            samples=samples,
            mean=self._mean(site, site.address) if samples and site.buffer.memory is Memory.GLOBAL else None,
            requests=self._requests(site) if samples else 0,
            why=why,
        )

    # ---- d ---------------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        return min(self.launch.threads, self.program.target.warp_size)

    def _distance(self, site: Site, address: IndexExpr) -> tuple[int | None, Known, Certificate | None]:
        if site.alone:
            return 0, Known.CERTIFICATE, certificate((), 1)
        weights = self._weights(address)
        digits = lane_digits(weights, self.lanes) if weights is not None else None
        if digits is not None:
            proof = certificate(digits, self.lanes)
            return int(proof.distance), Known.CERTIFICATE, proof
        return self._enumerated(site, address)

    def _weights(self, address: IndexExpr) -> list[tuple[int, int, int]] | None:
        """Stride, radix and weight of each digit of lanes in an address; None where it is not affine in them."""
        own = {d.name: d for d in self.launch.hardware if d.place is Place.LANE}
        found: list[tuple[int, int, int]] = []
        for monomial, factor in linear(address).terms.items():
            if not any(name in own for atom in monomial for name in atom_names(atom)):
                continue
            if len(monomial) > 1 or not isinstance(monomial[0], IndexVar):
                return None
            digit = own[monomial[0].name]
            found.append((int(index_value(digit.stride, {})), int(index_value(digit.radix, {})), factor))
        return found

    def _enumerated(self, site: Site, address: IndexExpr) -> tuple[int | None, Known, None]:
        """The greatest sum over all values of what its steps depend on, or over some places."""
        lanes = {d.name for d in self.launch.hardware if d.place is Place.LANE}
        moving = [
            {name for atom in monomial for name in atom_names(atom)} for monomial in linear(address).terms if monomial
        ]
        depends = sorted(set[str]().union(*(own for own in moving if own & lanes)) - lanes)
        extents = self._extents(site)
        counts = [extents.get(name) for name in depends]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts) or prod(known) * self.lanes > ENUMERATED:
            values = self._places(site, _TRIED)
            steps = np.abs(np.diff(self._at(address, values), axis=1)).sum(axis=1)
            return int(steps.max()), Known.SAMPLES, None
        grid = np.meshgrid(*(np.arange(max(1, count)) for count in known), indexing="ij")
        columns = {name: axis.reshape(-1, 1) for name, axis in zip(depends, grid, strict=True)}
        others = dict.fromkeys(names(address) - lanes - set(depends), np.zeros((1, 1), dtype=np.int64))
        steps = np.abs(np.diff(self._at(address, {**others, **self._lane_values(), **columns}), axis=1)).sum(axis=1)
        return int(steps.max()), Known.ENUMERATION, None

    def _extents(self, site: Site) -> dict[str, int]:
        """How many values each variable has whose number does not depend on another one."""
        found = dict(self.hosts)
        fixed = {**self.program.report.representative}
        for digit in self.launch.hardware:
            if names(digit.radix) <= fixed.keys():
                found[digit.name] = int(index_value(digit.radix, fixed))
        for loop in site.loops:
            if not names(loop.extent):
                found[loop.name] = int(index_value(loop.extent, {}))
        return found

    # ---- places ----------------------------------------------------------------------------------------------------

    def _lane_values(self) -> dict[str, Array]:
        lane = np.arange(self.lanes, dtype=np.int64)[None, :]
        return {
            d.name: lane // int(index_value(d.stride, {})) % int(index_value(d.radix, {}))
            for d in self.launch.hardware
            if d.place is Place.LANE
        }

    def _places(self, site: Site, draw: Draw) -> dict[str, Array]:
        """The values of all variables: a row for each place that is tried, a column for each lane where they differ."""
        sizes = {**self.program.report.representative}
        values: dict[str, Array] = {name: np.asarray(value, dtype=np.int64) for name, value in sizes.items()}
        for number, (name, turns) in enumerate(self.hosts.items()):
            values[name] = draw.below(turns, 101 + number)
        grid = [int(index_value(extent, {**sizes, **dict.fromkeys(self.hosts, 0)})) for extent in self.launch.grid]
        blocks = [draw.below(extent, 7 + number) for number, extent in enumerate(grid)]
        warp = draw.below(1 if site.alone else site.warps, 3)
        values |= {"@" + place: at for place, at in zip(("grid.x", "grid.y", "grid.z"), blocks, strict=True)}
        values["@warp"] = warp
        cluster = self.launch.cluster
        (bx, by, bz), (cx, cy, cz) = blocks, cluster
        where = Where(
            axes=(bx, by, bz),
            rank=lambda: bx % cx + cx * (by % cy + cy * (bz % cz)),
            thread=warp[:, None] * self.program.target.warp_size + np.arange(self.lanes)[None, :],
            warp_size=self.program.target.warp_size,
        )
        for digit in self.launch.hardware:
            coordinate = PLACES[digit.place].coordinate
            assert coordinate is not None, "no loop runs over digits of the hardware"
            at, stride = coordinate(where), np.maximum(index_value(digit.stride, values), 1)
            found = np.asarray(at // stride % np.maximum(index_value(digit.radix, values), 1))
            values[digit.name] = found if found.ndim == 2 else found[:, None]
        values |= {name: values[name][:, None] for name in self.hosts}
        for number, loop in enumerate(site.loops):
            extent = np.asarray(index_value(loop.extent, values))
            column = np.broadcast_to(extent.min(axis=-1) if extent.ndim == 2 else extent, (draw.places,))
            values[loop.name] = draw.below(column, 1009 + 13 * number)[:, None]
            values["@turns"] = values.get("@turns", np.ones(draw.places, dtype=np.int64)) * np.maximum(column, 0)
        return values

    def _at(self, address: IndexExpr, values: Mapping[str, Array]) -> Array:
        rows = max((np.shape(v)[0] for v in values.values() if np.ndim(v)), default=1)
        return np.broadcast_to(np.asarray(index_value(address, values)), (rows, self.lanes))

    def _made(self, site: Site, address: IndexExpr, values: Mapping[str, Array], places: int) -> Made:
        """Who makes the access at each place."""
        shape = (places, self.lanes)
        active = np.broadcast_to(np.asarray(values.get("@turns", np.ones(places)) > 0)[:, None], shape).copy()
        for condition in site.where:
            active &= np.broadcast_to(np.asarray(condition_value(condition, values)), shape)
        wanted: tuple[Array, Array] | None = None
        if site.reach is not None:
            begin, end = (np.broadcast_to(np.asarray(index_value(e, values)), shape) for e in site.reach)
            wanted = (begin, end)
            active &= (np.maximum(begin, 0) < np.minimum(end, site.width)) & (begin < end)
        if site.alone:
            active &= np.arange(self.lanes)[None, :] == 0
        for at, extent in site.inside:
            found_at = np.broadcast_to(np.asarray(index_value(at, values)), shape)
            active &= (found_at >= 0) & (found_at < index_value(extent, values))
        first = self._at(address, values) * site.buffer.dtype.size_bytes
        return Made(active=active, first=np.broadcast_to(first, shape), wanted=wanted)

    def _samples(self, site: Site, address: IndexExpr) -> tuple[Sample, ...]:
        values = self._places(site, _TRIED)
        made = self._made(site, address, values, TRIED)
        active, first = made.active, made.aligned(site)
        told = [name for name in values if name.startswith("@") and name != "@turns"]
        told += [*self.hosts, *(loop.name for loop in site.loops)]
        found: dict[tuple[Any, ...], Sample] = {}
        for row in np.flatnonzero(active.any(axis=1)):
            if len(found) == SAMPLES:
                break
            here = {name.removeprefix("@"): int(np.reshape(values[name], -1)[row]) for name in told}
            bytes_at = first[row][active[row]]
            parts, ideal = self._parts(site, bytes_at)
            lanes = tuple(int(b) if on else None for b, on in zip(first[row], active[row], strict=True))
            found.setdefault(tuple(here.values()), Sample(at=here, first=lanes, parts=parts, ideal=ideal))
        return tuple(found.values())

    def _mean(self, site: Site, address: IndexExpr) -> Mean | None:
        """The means over places that are spread evenly, each with the turns of its loops; None where none is made."""
        values = self._places(site, SPREAD)
        made = self._made(site, address, values, SPREAD.places)
        turns = values.get("@turns", np.ones(SPREAD.places, dtype=np.int64))
        return mean(site, made, turns, self._warps(site))

    def _parts(self, site: Site, first: Array) -> tuple[int, int]:
        """Sectors, or wavefronts, of a request, and the least number for as many bytes."""
        lane_bytes = ENGINE_ALIGN_BYTES if site.funnel else site.width * site.buffer.dtype.size_bytes
        if site.buffer.memory is not Memory.GLOBAL:
            use = bank_use_of(first, lane_bytes, self.program.target)
            return use.wavefronts, use.ideal
        each = np.unique(first[:, None] + np.arange(lane_bytes)[None, :])
        return len(np.unique(each // SECTOR_BYTES)), -(-len(each) // SECTOR_BYTES)

    def _requests(self, site: Site) -> int:
        """The requests of all warps of the launch, as if all loops had their extents at the first place."""
        sizes = {**self.program.report.representative, **dict.fromkeys(self.hosts, 0)}
        values: dict[str, int] = {**sizes, **{d.name: 0 for d in self.launch.hardware}}
        turns = 1
        for loop in site.loops:
            turns *= max(0, int(index_value(loop.extent, values)))
            values[loop.name] = 0
        return self._warps(site) * turns

    def _warps(self, site: Site) -> int:
        """How often warps of the launch come to the loops around an access, twice where each asks for two chunks."""
        sizes = {**self.program.report.representative, **dict.fromkeys(self.hosts, 0)}
        values = {**sizes, **{d.name: 0 for d in self.launch.hardware}, **{loop.name: 0 for loop in site.loops}}
        blocks = prod(max(0, int(index_value(extent, sizes))) for extent in self.launch.grid)
        blocks //= max(1, int(index_value(site.shared_by, values)))
        return blocks * (1 if site.alone else site.warps) * (2 if site.funnel else 1) * prod(self.hosts.values())


def lane_digits(found: Sequence[tuple[int, int, int]], lanes: int) -> tuple[LaneDigit, ...] | None:
    """Digits of the lane number, fastest first, that each of some digits (stride, radix, weight) is a sum of; None
    where they do not nest."""
    if not any(weight for _, _, weight in found):
        return (LaneDigit(stride=1, radix=lanes, weight=0),) if lanes > 1 else ()
    cuts = {1, lanes}.union(*({s, min(s * r, lanes)} for s, r, _ in found if s < lanes))
    ends = sorted(cuts)
    if any(b % a for a, b in pairwise(ends)):
        return None
    digits: list[LaneDigit] = []
    for low, high in pairwise(ends):
        weight = sum(w * (low // s) for s, r, w in found if s <= low and high <= s * r)
        digits.append(LaneDigit(stride=low, radix=high // low, weight=weight))
    return tuple(digits)


def _drawn(extents: Array, salt: int) -> Array:
    """0, the last, the middle, then by a fixed rule."""
    number = np.arange(len(extents), dtype=np.int64)
    most = np.maximum(extents - 1, 0)
    mixed = (number * 2654435761 + salt * 40503 * (number + 1)) % 1_000_003 * 7919 % np.maximum(extents, 1)
    return np.select([number == 0, number == 1, number == 2], [most * 0, most, most // 2], mixed)


_TRIED = Draw(TRIED, _drawn)


def _shown(address: IndexExpr) -> str:
    return in_words(linear(address).expression())
