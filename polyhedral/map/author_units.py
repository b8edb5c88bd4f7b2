"""Warps and warpgroups that the author asks for: which threads of a block run one iteration of a loop.

par M b #grid #warp { … }                       a block for each b, of one warp
par 8 w #block #warp { par 32 l #warp { … } }   w on the warps of the block, l on the lanes of each
par 64 j #warp { … }                            j on the lanes of one warp, so the block has no other

Inside a block the loops of a nest fall into parts, each of which ends with the loops of one unit: what stands inside
has just the threads of that unit.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from texpr.grammar.ast import Attr, Par
from texpr.grammar.attributes import ATTRIBUTES
from texpr.grammar.diagnostics import Diagnostic, error, fail
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest, asked_scope, inner_nests
from texpr.polyhedral.map.digits import Share, share
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.target import WARPGROUP, Target

WARPS = {"warp": 1, "warpgroup": WARPGROUP}  # of a unit


def unit_of(par: Par) -> Attr | None:
    """The attribute that says which unit runs one iteration, a warp or a warpgroup: it stands after a scope."""
    scopes = [attr for attr in par.attrs if attr.name in ATTRIBUTES and ATTRIBUTES[attr.name].fineness is not None]
    return next((attr for attr in scopes[1:] if attr.name in WARPS), None)


def _threads(attr: Attr, target: Target) -> int:
    return WARPS[attr.name] * target.warp_size


@dataclass(frozen=True, slots=True)
class Part:
    """Loops of a nest, by number, one iteration of which has so many threads."""

    dims: tuple[int, ...]
    threads: int


def parts_of(nest: Nest, target: Target) -> tuple[Part, ...]:
    """The parts of a nest, outermost first; the last one's iterations have a thread each."""
    found, dims = list[Part](), list[int]()
    for dim, par in enumerate(nest.pars):
        dims.append(dim)
        unit = unit_of(par)
        after = unit_of(nest.pars[dim + 1]) if dim + 1 < len(nest.pars) else None
        if unit is not None and (after is None or after.span.place != unit.span.place):
            found.append(Part(tuple(dims), _threads(unit, target)))
            dims = []
    return (*found, Part(tuple(dims), 1))


def unit_sizes(nest: Nest, sizes: Sequence[int], target: Target) -> list[int]:
    """The sizes that say how many threads a nest has work for: what runs inside a unit has all of its threads."""
    first = parts_of(nest, target)[0]
    return [first.threads, *(sizes[dim] for dim in first.dims)] if first.threads > 1 else list(sizes)


def unit_share(
    nest: Nest, sizes: Sequence[int], order: Sequence[int], caps: Sequence[int], threads: int, target: Target
) -> tuple[Share, ...]:
    """Threads dealt to the loops of a nest, fastest first, each part's among its own."""
    pieces, room = list[Share](), threads
    for part in parts_of(nest, target):
        own = [dim for dim in order if dim in part.dims]
        if own:
            pieces[:0] = share(sizes, own, caps, room // part.threads)
        room = part.threads
    return tuple(pieces)


def block_threads(nest: Nest, target: Target, asked: int | None) -> int | None:
    """The threads of a block that has one iteration of an outer nest, where the author says so: `asked` by `#threads`,
    one unit, or those of the loops inside that run on the lanes of one warp. Raises E0401 where two say different
    numbers, or a unit is no part of the block."""
    outer = [attr for par in nest.pars if (attr := unit_of(par)) is not None]
    inside = inner_nests(nest.body)
    alone = [attr for inner in inside if (attr := _lanes_alone(inner)) is not None]
    found = [(attr, _threads(attr, target)) for attr in (*outer, *alone)]
    threads = asked if asked is not None or not found else found[0][1]
    for attr, own in found:
        if own != threads:
            message = f"#{attr.name} gives the block {own} threads, and it has {threads}"
            raise fail("E0401", message, attr.span, "this attribute", help="remove one of what says so")
    for attr in (attr for inner in inside for par in inner.pars if (attr := unit_of(par)) is not None):
        unit = _threads(attr, target)
        if threads is not None and threads % unit:
            message = f"a block of {threads} threads has no whole {attr.name}s, of {unit} threads"
            raise fail("E0401", message, attr.span, "this attribute", help=f"write #threads({unit}), or a multiple")
    return threads


def _lanes_alone(nest: Nest) -> Attr | None:
    """The `#warp` of a nest that begins with the lanes of a warp."""
    first = nest.pars[0]
    return next(attr for attr in first.attrs if attr.name == "warp") if asked_scope(first) is Scope.WARP else None


def unit_faults(outer: Nest, inside: Sequence[Par], target: Target) -> Iterator[Diagnostic]:
    """Why the units and scopes of the loops inside an outermost nest cannot be."""
    nests = inner_nests(outer.body)
    shared = {par.index for nest in nests for par in nest.pars}
    for par in inside:
        scope = asked_scope(par)
        if par.index not in shared and scope in (Scope.BLOCK, Scope.WARP):
            name = next(attr for attr in par.attrs if attr.name == scope.value)
            yield _refused(name, "one thread runs the `par` around it, and statements stand between", HELP_BETWEEN)
    for nest in nests:
        parts = parts_of(nest, target)
        if not parts[-1].dims:
            attr = unit_of(nest.pars[-1])
            assert attr is not None, "a part that is empty follows a unit"
            yield _refused(attr, f"nothing directly inside runs on the threads of a {attr.name}", HELP_LANES)
        for before, part in pairwise(parts):
            lanes = [nest.pars[dim] for dim in part.dims if asked_scope(nest.pars[dim]) is Scope.WARP]
            if lanes and before.threads > target.warp_size:
                attr = next(attr for attr in lanes[0].attrs if attr.name == "warp")
                yield _refused(attr, f"the `par` around it has {before.threads} threads, of several warps", HELP_WARPS)


HELP_BETWEEN = "write the `par` directly inside the other one, or remove the attribute"
HELP_LANES = "write `par 32 l #warp { … }` directly inside, or leave the unit out"
HELP_WARPS = "write `par 4 w #block #warp` between the two, or remove #warp"


def _refused(attr: Attr, why: str, help: str) -> Diagnostic:
    return error("E0402", f"#{attr.name} is not mapped here: {why}", attr.span, "this attribute", help=help)


def unit_fault(nest: Nest, deal: Sequence[tuple[str, int]], target: Target) -> str | None:
    """What is wrong with threads dealt to the loops of a nest, for its units; None where they are obeyed."""
    numbers = [(nest.indices.index(index), threads) for index, threads in deal]
    parts = parts_of(nest, target)
    for before, part in pairwise(parts):
        inner = {dim for later in parts[parts.index(part) :] for dim in later.dims}
        own = prod(threads for dim, threads in numbers if dim in inner)
        if own != before.threads or any(dim not in inner for dim, _ in numbers[: _count(numbers, own)]):
            return f"one iteration of {nest.indices[before.dims[-1]]} has {before.threads} threads, and not {own}"
    return None


def _count(numbers: Sequence[Share], threads: int) -> int:
    """How many of the first pieces have so many threads together."""
    for count in range(len(numbers) + 1):
        if prod(n for _, n in numbers[:count]) >= threads:
            return count
    return len(numbers)
