"""How long a launch takes by what limits it: a roofline, in picoseconds, by which choices are compared.

    softmax_0   268 MB from memory at 4.2 TB/s: 64 µs   268 MB in requests: 32 µs   2.5 µs to launch   67 µs

Bytes that must move are the distinct elements that a launch reads, and those that it writes; sectors that requests
touch more than once come from the caches, at their rate; updates of elements that data tells go one by one. A launch
whose threads have too few bytes on their way to keep memory or caches busy waits longer by as much (Little's law), but
not where the copy engine asks for them all. Two significant digits are kept, so that what is nearly the same is the
same, and other reasons decide.
"""

from collections.abc import Iterator, Mapping
from math import prod

from texpr.grammar.ast import Accumulate, Anchor, Atomic, Bind, Gather, Par, Seq, Stmt, Subscript
from texpr.grammar.core import children
from texpr.grammar.index.expr import names
from texpr.grammar.index.interval import Ranges, bounds, index_range
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.cost import LaunchCost
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import MAX_WEIGHT, Problem, Region, declared
from texpr.polyhedral.walk import touched

LAUNCH_PS = 2_500_000  # from the end of one launch to the begin of the next, a guess
TASKS_PS = 5_000_000  # to hand tasks to the cores of a CPU
CACHE = 2  # times the memory's rate is that of the caches behind it, about
PRODUCTS_PER_PS = 3  # on the tensor cores of a multiprocessor of an H200
UPDATE_PS = 260  # an update of one element of global memory among some hundreds
LATENCY_NS = 700  # of global memory under load: so many bytes must be on their way to keep it busy
IN_FLIGHT = 4  # accesses of one thread, at once, at least
CORES = 4  # of a CPU, at least
NEXT_PS, FAR_PS = 300, 4_000  # an element on a core: beside the last one, or elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a launch waits for, in picoseconds: for itself to begin, then for the longest of its bytes from memory, its
    requests from the caches (on a CPU its accesses), its updates one by one and its products on tensor cores."""

    begin: int
    bytes: int = 0
    requests: int = 0
    updates: int = 0
    products: int = 0

    @property
    def total(self) -> int:
        return rounded(self.begin + max(self.bytes, self.requests, self.updates, self.products))


def time(problem: Problem, region: Region, paid: LaunchCost) -> int:
    """Picoseconds of one launch of a region with that cost."""
    return terms(problem, region, paid).total


def terms(problem: Problem, region: Region, paid: LaunchCost) -> Terms:
    """What one launch of a region with that cost waits for."""
    if not problem.target.is_cuda:
        work = NEXT_PS * (paid.requests - paid.sectors) + FAR_PS * paid.sectors
        return Terms(begin=TASKS_PS, requests=work * CORES // min(CORES, paid.blocks))
    rate = problem.target.memory_gb_s  # bytes in a nanosecond
    moved = 1000 * moved_bytes(problem, region) // rate
    asked = 1000 * SECTOR_BYTES * paid.sectors // (CACHE * rate)
    busy = rate * LATENCY_NS
    at_once = min(paid.blocks * paid.threads, problem.target.multiprocessors * problem.target.resident_threads)
    several = max(IN_FLIGHT, paid.ahead if paid.sectors <= paid.ideal else 0)  # scattered ones wait in the caches
    on_their_way = min(busy, at_once * several * _access_bytes(problem, paid)) if paid.requests else busy
    return Terms(
        begin=LAUNCH_PS,
        bytes=moved * busy // on_their_way,
        requests=asked * busy // on_their_way,
        updates=UPDATE_PS * paid.updates,
        products=paid.made // PRODUCTS_PER_PS,
    )


def _access_bytes(problem: Problem, paid: LaunchCost) -> int:
    """What one thread asks for at once, on the average of all requests."""
    lanes = problem.target.warp_size * max(1, paid.requests)
    return max(1, SECTOR_BYTES * paid.ideal // lanes)


def rounded(picoseconds: int) -> int:
    """Two significant digits."""
    unit: int = 10 ** max(0, len(str(picoseconds)) - 2)
    return (picoseconds + unit // 2) // unit * unit


def moved_bytes(problem: Problem, region: Region) -> int:
    """The bytes of the distinct elements of a region's arrays, at the representative sizes; those read and written."""
    return sum(moved(problem, region).values())


def moved(problem: Problem, region: Region) -> Mapping[tuple[str, bool], int]:
    """The same of each array, by its name and whether it is written."""
    return problem.once(("moved", region.name), lambda: _moved(problem, region))


_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Touch:
    buffer: str
    subscripts: tuple[Subscript, ...]
    writes: bool
    ranges: Ranges


def _moved(problem: Problem, region: Region) -> dict[tuple[str, bool], int]:
    own = declared(region.stmts)
    boxes: dict[tuple[str, bool], list[_Span]] = {}
    for touch in _touches(region.stmts, problem.host_ranges):
        if touch.buffer not in own:
            here = _box(problem, touch)
            known = boxes.setdefault((touch.buffer, touch.writes), here)
            boxes[touch.buffer, touch.writes] = [
                (min(a, c), max(b, d)) for (a, b), (c, d) in zip(known, here, strict=True)
            ]
    return {
        key: problem.kernel.buffer(key[0]).dtype.size_bytes * prod(last - first + 1 for first, last in box)
        for key, box in boxes.items()
    }


def _touches(stmts: tuple[Stmt, ...], ranges: Ranges) -> Iterator[_Touch]:
    """Every access, with the ranges of the indices around it as far as they have any."""
    for stmt in stmts:
        match stmt:
            case Bind() | Accumulate() | Atomic() | Anchor():
                accesses = list(touched(stmt))
                for number, (name, subscripts) in enumerate(accesses):
                    last = not isinstance(stmt, Anchor) and number == len(accesses) - 1
                    yield _Touch(name, subscripts, last, ranges)
            case Par(index=index, extent=extent, body=body) | Seq(index=index, extent=extent, body=body):
                found = index_range(extent, ranges)
                yield from _touches(body, {**ranges, index: found} if found else ranges)
            case _:
                yield from _touches(children(stmt), ranges)


def _box(problem: Problem, touch: _Touch) -> list[_Span]:
    """The first and the last element of each dimension that an access touches, none beyond the array."""
    shape = (problem.representative(extent, {}) for extent in problem.kernel.buffer(touch.buffer).shape)
    spans = (_span(problem, sub, touch.ranges) for sub in touch.subscripts)
    return [(min(max(0, low), n - 1), min(max(0, high), n - 1)) for n, (low, high) in zip(shape, spans, strict=True)]


def _span(problem: Problem, subscript: Subscript, ranges: Ranges) -> _Span:
    """The least and the greatest value of a subscript; anything where that is not known."""
    found = None if isinstance(subscript, Gather) else bounds(subscript, ranges)
    if found is None:
        return (0, MAX_WEIGHT)
    low, high = (int(index_value(e, dict.fromkeys(names(e), 0) | dict(problem.sizes))) for e in found)
    return low, max(low, high)
