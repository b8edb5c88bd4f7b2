"""The requests of a launch's warps: an access by the lanes of one, and how often some warp makes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from texpr.grammar.ast import Stmt
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.held import NO_ORIGINS, Origins
from texpr.polyhedral.map.lines import origins
from texpr.polyhedral.map.objective import WeightedAccess, lane_values
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.strided import Reading, reading_of
from texpr.polyhedral.map.vectors import Element, along
from texpr.polyhedral.mapped.candidate import Deal, Flat
from texpr.polyhedral.names import Names
from texpr.polyhedral.walk import subscript_names


@dataclass(frozen=True, slots=True)
class Request:
    """An access by lanes, `times` over: how often it is made by some warp."""

    access: WeightedAccess
    lanes: Mapping[str, Any]
    times: int


class Runs:
    """The requests of threads that take several neighbouring iterations of an index: wide ones for all of them
    together, and others in each iteration."""

    def __init__(
        self,
        problem: Problem,
        stmts: tuple[Stmt, ...],
        indices: tuple[str, ...],
        widths: Mapping[str, int],
        begins: Origins = NO_ORIGINS,
        *,
        reading: Reading | None = None,
    ) -> None:
        self.index, self.count = next(((i, widths[i]) for i in indices if i in widths), ("", 1))
        self.widths = dict[Element, int](reading.widths if reading is not None else {})
        if self.count > 1:
            origin = begins.get(self.index)
            plain = along(problem, stmts, self.index, indices, origin=origin) if reading is None else reading.plain
            self.widths |= {wide.element: wide.width for wide in plain.vectors(self.count).wide}

    def requests(self, found: Sequence[WeightedAccess], lanes: Mapping[str, Any]) -> Iterator[Request]:
        for access in found:
            width = self.widths.get((access.buffer, access.subscripts), 0)
            moves = self.index in subscript_names(access.subscripts)
            times = self.count * access.weight // width if width else access.weight * (self.count if moves else 1)
            yield Request(replace(access, width=width or 1), lanes, times)


def flat_runs(problem: Problem, nest: Nest, choice: Flat) -> Runs:
    """Those of a flat launch, whose threads may have strided reads."""
    begin = origins(problem, nest, choice.lines)
    index, count = next(iter(choice.widths.items()), ("", 1))
    reading = reading_of(problem, nest, index, count, origin=begin.get(index)) if index else None
    return Runs(problem, nest.body, nest.indices, choice.widths, begin, reading=reading)


def lanes_of(problem: Problem, indices: Sequence[str], deal: Deal, widths: Mapping[str, int]) -> dict[str, Any]:
    """The value of each index on the lanes of a warp."""
    warp = problem.target.warp_size
    pieces = tuple((list(indices).index(index), threads) for index, threads in deal)
    return lane_values(thread_digits(indices, pieces, Names(()), warp, widths), indices, warp)


def blocks_of(nest: Nest, sizes: Sequence[int], deal: Deal, widths: Mapping[str, int]) -> tuple[int, float]:
    """Blocks of a band, and the share of their threads beyond an extent."""
    covered = {i: prod((n for index, n in deal if index == i), start=widths.get(i, 1)) for i in nest.indices}
    counts = [-(-n // covered[i]) for i, n in zip(nest.indices, sizes, strict=True)]
    return prod(counts), 1 - prod(sizes) / (prod(counts) * prod(covered.values()))
