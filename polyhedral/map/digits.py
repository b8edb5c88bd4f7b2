"""Digits: how a parallel index is split over the threads of a block, the grid and loops.

    share((1024, 1024), order=(1, 0), caps=(8, 32), threads=256)  -> pieces ((1, 32), (0, 8)), fastest thread first
    j_lane: weight 1, radix 32, lane       i_warp: weight 1, radix 8, warp
    j_block: weight 32, radix 32, grid.x   i_block: weight 8, radix 128, grid.y

Every thread place is covered by the digits of a band, so a thread number is an affine form of them and no two
iterations share a thread and a serial digit: what lies beyond an extent is cut by a guard.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from texpr.grammar.ast import IndexConst, IndexExpr
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, at_least_zero, ceildiv, const, multiply, product
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Place
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.names import Names, stem
from texpr.polyhedral.target import Target

ONE_EACH: Mapping[str, int] = MappingProxyType({})
Share = tuple[int, int]
"""(number of the dimension, threads it gets); of several the first has the fastest threads."""


def power_of_two(value: int) -> int:
    """The least power of two that is at least `value` (1 for anything less)."""
    return 1 << max(0, value - 1).bit_length()


def power_of_two_below(value: int) -> int:
    """The greatest power of two that is at most `value` (1 for anything less)."""
    return 1 << max(0, value.bit_length() - 1)


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def share(extents: Sequence[int], order: Sequence[int], caps: Sequence[int], threads: int) -> tuple[Share, ...]:
    """Threads dealt to dimensions in `order`, each at most its cap and extent; the last one gets what is left over.

    Invariant: the pieces' product is `threads`; caps are powers of two. What no extent needs goes to the first one.
    """
    left, pieces = threads, list[Share]()
    for dim in order:
        mine = min(left & -left, caps[dim], power_of_two(extents[dim]))
        if mine > 1:
            pieces.append((dim, mine))
            left //= mine
    for dim in order:
        wanted = power_of_two(extents[dim]) // max((p[1] for p in pieces if p[0] == dim), default=1)
        mine = min(left & -left, wanted)
        if mine > 1:
            pieces.append((dim, mine))
            left //= mine
    if left > 1:
        pieces.append((order[0], left))
    return _merged(pieces)


def _merged(pieces: Sequence[Share]) -> tuple[Share, ...]:
    merged: list[Share] = []
    for dim, radix in pieces:
        if merged and merged[-1][0] == dim:
            merged[-1] = (dim, merged[-1][1] * radix)
        else:
            merged.append((dim, radix))
    return tuple(merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDigits:
    """The thread digits of a band, per dimension, and how many consecutive iterations they cover together."""

    digits: tuple[tuple[Digit, ...], ...]
    covered: tuple[int, ...]

    @property
    def all(self) -> tuple[Digit, ...]:
        return tuple(d for of_dim in self.digits for d in of_dim)

    @property
    def threads(self) -> tuple[str, ...]:
        """The names of those that tell threads of one block apart."""
        return tuple(d.name for d in self.all if d.place is not Place.CLUSTER)


def over_ranks(band: ThreadDigits, ranks: int, names: Names, dim: int = 0) -> ThreadDigits:
    """The digits of a band that the threads of so many blocks of a cluster share, the rank slowest of one dimension."""
    if ranks == 1:
        return band
    own, covered = band.digits[dim], band.covered[dim]
    index = own[0].index
    name = names.fresh(f"{stem(index)}_rank")
    rank = Digit(name=name, index=index, weight=covered, radix=const(ranks), stride=ONE, place=Place.CLUSTER)
    return ThreadDigits(
        digits=(*band.digits[:dim], (*own, rank), *band.digits[dim + 1 :]),
        covered=(*band.covered[:dim], covered * ranks, *band.covered[dim + 1 :]),
    )


def thread_digits(
    indices: Sequence[str],
    pieces: Sequence[Share],
    names: Names,
    warp_size: int,
    each: Mapping[str, int] = ONE_EACH,
) -> ThreadDigits:
    """Lane and warp digits for the pieces; a piece across the warp's edge becomes two digits. `each`: how many
    neighbouring iterations of an index one thread takes."""
    found: list[list[Digit]] = [[] for _ in indices]
    weight = [each.get(index, 1) for index in indices]
    thread = 1
    for dim, radix in pieces:
        while radix > 1:
            on_lanes = thread < warp_size
            mine = min(radix, warp_size // thread) if on_lanes else radix
            assert mine > 1 and radix % mine == 0, "pieces number the threads of a warp"
            place = Place.LANE if on_lanes else Place.WARP
            found[dim].append(
                Digit(
                    name=names.fresh(f"{indices[dim]}_{place.value}"),
                    index=indices[dim],
                    weight=weight[dim],
                    radix=const(mine),
                    stride=const(thread if on_lanes else thread // warp_size),
                    place=place,
                )
            )
            thread, radix, weight[dim] = thread * mine, radix // mine, weight[dim] * mine
    return ThreadDigits(digits=tuple(tuple(d) for d in found), covered=tuple(weight))


def thread_pieces_fit(radices: Sequence[int], threads: int, warp: int) -> bool:
    """Whether pieces, fastest first, number the threads of a block: together all of them, none across a warp's edge
    that it does not divide."""
    done = 1
    for radix in radices:
        while radix > 1:
            mine = min(radix, warp // done) if done < warp else radix
            if radix % mine or (done < warp and warp % (done * mine)):
                return False
            done, radix = done * mine, radix // mine
    return done == threads


def grid_digits(
    indices: Sequence[str],
    extents: Sequence[IndexExpr],
    covered: Sequence[int],
    order: Sequence[int],
    names: Names,
    target: Target,
    span: Span,
) -> tuple[Digit | None, ...]:
    """One grid digit per dimension, None where a single block covers it; the first of `order` varies fastest.

    The first dimension and all whose extent is large or free share grid.x by strides, since grid.y and grid.z hold
    65535 blocks; constant ones go to grid.y and grid.z. Raises E0401 where grid.x would be too large.
    """
    radices = {dim: ceildiv(at_least_zero(extents[dim]), covered[dim]) for dim in order}
    pieces = [Piece(index=indices[dim], radix=radices[dim], weight=covered[dim]) for dim in order]
    found = dict(zip(order, place_on_grid(pieces, names, target, span), strict=True))
    return tuple(found[dim] for dim in range(len(indices)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A digit without its place on the grid."""

    index: str
    radix: IndexExpr
    weight: int


def place_on_grid(
    pieces: Sequence[Piece], names: Names, target: Target, span: Span, *, together: int = 1
) -> tuple[Digit | None, ...]:
    """The grid digits of pieces, fastest first, the first few `together` on grid.x; None for what has one block."""
    found: list[Digit | None] = []
    on_x: list[IndexExpr] = []
    free = [Place.GRID_Y, Place.GRID_Z]
    for number, piece in enumerate(pieces):
        if piece.radix == ONE:
            found.append(None)
            continue
        small = isinstance(piece.radix, IndexConst) and piece.radix.value <= min(target.max_grid[1:])
        place = free.pop(0) if on_x and small and free and number >= together else Place.GRID_X
        stride: IndexExpr = product(on_x) if place is Place.GRID_X else ONE
        if place is Place.GRID_X:
            on_x.append(piece.radix)
        name = names.fresh(f"{piece.index}_block")
        found.append(
            Digit(name=name, index=piece.index, weight=piece.weight, radix=piece.radix, stride=stride, place=place)
        )
    total = product(on_x)
    if isinstance(total, IndexConst) and total.value > target.max_grid[0]:
        raise fail(
            "E0401",
            f"the launch needs {total.value} blocks along grid.x, and {target.name} has {target.max_grid[0]}",
            span,
            "this par is too large for one launch",
            help="split the outermost par in two, with a seq around the inner part",
        )
    return tuple(found)


def numbered(grid: Sequence[Digit | None], names: Names, word: str = "tile") -> tuple[Define, ...]:
    """The number of a block along each digit of the grid, counted in blocks."""
    found: list[Define] = []
    for digit in (digit for digit in grid if digit is not None):
        own = names.fresh(f"{stem(digit.index)}_{word}")
        again = replace(digit, name=names.fresh(f"{own}_block"), index=own, weight=1)
        found.append(Define(index=own, digits=(again,)))
    return tuple(found)


def grid_size(digits: Sequence[Digit]) -> tuple[IndexExpr, IndexExpr, IndexExpr]:
    """Blocks along the three axes: the product of the radices on each."""
    x, y, z = (product(d.radix for d in digits if d.place is place) for place in GRID_PLACES)
    return x, y, z


def core_digits(
    indices: Sequence[str], extents: Sequence[IndexExpr], covered: Sequence[int], names: Names
) -> tuple[tuple[Digit, ...], IndexExpr]:
    """One core digit per dimension, the last dimension fastest, and their product."""
    found: list[Digit] = []
    stride: IndexExpr = ONE
    for dim in reversed(range(len(indices))):
        radix = ceildiv(at_least_zero(extents[dim]), covered[dim])
        if radix == ONE:
            continue
        name = names.fresh(f"{indices[dim]}_core")
        found.append(
            Digit(name=name, index=indices[dim], weight=covered[dim], radix=radix, stride=stride, place=Place.CORE)
        )
        stride = multiply(stride, radix)
    return tuple(reversed(found)), stride
