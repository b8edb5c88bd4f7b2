"""Tiles: what a block stages in shared memory of two indices of a band, so that all accesses find neighbours on lanes.

    par M i, N j { B[j, i] = A[i, j] + C[j, i] }     along i, across j

    A[i, j]   staged: lanes across j bring a tile of it, and lanes along i read that
    C[j, i]   from memory with lanes along i, where it is a read of neighbours

What is staged is the value that each iteration of the tile reads, so any read will do that is surely made, and of what
no iteration writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from types import MappingProxyType
from typing import Any

from texpr.grammar.ast import Accumulate, Atomic, Bind, IndexVar, Node, Read
from texpr.grammar.core import statements
from texpr.grammar.index.expr import const, constant_value, names
from texpr.grammar.permissions import raster_of
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.make import row_major, strided
from texpr.polyhedral.layout.value import Layout, Xor
from texpr.polyhedral.map.bands import Nest, has_loop
from texpr.polyhedral.map.digits import Share, is_power_of_two, power_of_two_below, share, thread_digits
from texpr.polyhedral.map.lines import LINE_BYTES, countable, origins
from texpr.polyhedral.map.objective import SECTOR_BYTES, footprint, lane_values
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.vectors import (
    ACCESS_BYTES,
    MOST,
    Element,
    Wide,
    address,
    along,
    is_run,
    printed,
    sure_reads,
)
from texpr.polyhedral.mapped.candidate import Tiled
from texpr.polyhedral.names import Names
from texpr.polyhedral.walk import subscript_names

TILE_ALIGN_BYTES = 128  # of a tile in shared memory
BANKS_BYTES = 128  # what the banks of shared memory give at once
Lanes = Mapping[str, Any]
"""The value of each index on the lanes of a warp."""

ROW_BYTES = 256  # that lanes bring at once of a row whose tile is in phase
MOST_SIDE = 256  # iterations of a side of a tile
MOST_BAND = 64  # tiles of an index before the next one of another
SIDE = 8  # elements of a side of the square that a thread turns in its registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A read that goes through a tile. A thread brings `across` elements that are neighbours in memory, `along` times,
    turns the square in its registers, and puts `along` elements at a time into the tile. `funnel`: they begin at any
    address, so that they lie in two aligned chunks."""

    wide: Wide
    along: int
    across: int
    funnel: bool

    @property
    def element(self) -> Element:
        return self.wide.element


def stageable(problem: Problem, nest: Nest, across: str) -> dict[str, Wide]:
    """The reads of a band that may be staged, as the mapping prints them, with the width that each has across."""
    found = sure_reads(problem, nest.body, across, nest.indices)
    return {printed(*wide.element): wide for wide in found}


def staged(problem: Problem, nest: Nest, choice: Tiled) -> tuple[Staged, ...]:
    """What a choice stages, in its order. KeyError for what cannot be."""
    able = stageable(problem, nest, choice.across)
    wanted = choice.widths.get(choice.across, 1)
    found: list[Staged] = []
    for wide in map(able.__getitem__, choice.staged):
        size = wide.dtype.size_bytes
        if choice.phased:
            found.append(Staged(wide=wide, along=1, across=ACCESS_BYTES // size, funnel=False))
            continue
        funnel = wide.width < wanted and wanted * size == ACCESS_BYTES and is_run(problem, wide.element, choice.across)
        across = wanted if funnel else min(wide.width, wanted)
        found.append(Staged(wide=wide, along=square(size, choice.tile[choice.along]), across=across, funnel=funnel))
    return tuple(found)


def greatest_width(problem: Problem, wide: Wide, across: str) -> int:
    """How many elements a thread may bring at once: a whole access where they are neighbours, whatever the address."""
    whole = ACCESS_BYTES // wide.dtype.size_bytes
    return whole if whole <= SIDE and is_run(problem, wide.element, across) else min(SIDE, wide.width)


def overlap(problem: Problem, nest: Nest, choice: Tiled) -> int:
    """By how many iterations neighbouring tiles overlap along: those of a sector, where runs are counted from them."""
    if choice.strips:
        return 0
    sizes = (problem.kernel.buffer(name).dtype.size_bytes for name, _ in origins(problem, nest, choice.lines).values())
    return max((SECTOR_BYTES // size for size in sizes), default=0)


def chunk(problem: Problem, nest: Nest, choice: Tiled) -> int:
    """The elements of a chunk of the array from which runs are counted."""
    return max(
        ACCESS_BYTES // problem.kernel.buffer(n).dtype.size_bytes
        for n, _ in origins(problem, nest, choice.lines).values()
    )


def owned(problem: Problem, nest: Nest, choice: Tiled) -> dict[str, int]:
    """The iterations of each index that a block runs."""
    shared = {choice.along: overlap(problem, nest, choice)}
    return {index: choice.tile.get(index, 1) - shared.get(index, 0) for index in nest.indices}


def square(element_bytes: int, tile: int) -> int:
    """How many elements one access puts into a tile, at most all of a row."""
    return min(SIDE, ACCESS_BYTES // element_bytes, tile)


def load_units(choice: Tiled, one: Staged) -> dict[str, int]:
    """The shares of a tile that threads bring one of what is staged in: so many along each index, fastest first."""
    tile = choice.tile
    return {
        choice.across: tile[choice.across] // one.across,
        choice.along: tile[choice.along] // one.along,
    }


def run_units(choice: Tiled) -> dict[str, int]:
    """The shares of a tile that threads run, along each index, fastest first."""
    tile = dict(choice.tile)
    if choice.phased:
        tile[choice.along] = power_of_two_below(tile[choice.along])
    return {choice.along: tile[choice.along] // choice.widths.get(choice.along, 1), choice.across: tile[choice.across]}


def dealt(
    nest: Nest, units: Mapping[str, int], threads: int, lanes: Mapping[str, int] = MappingProxyType({})
) -> tuple[Share, ...]:
    """The threads of a block dealt to shares of a tile, at first no more `lanes` to an index than are given."""
    order = tuple(nest.indices.index(index) for index in units)
    extents = [units.get(index, 1) for index in nest.indices]
    return share(extents, order, [lanes.get(index, threads) for index in nest.indices], threads)


def load_lanes(problem: Problem, nest: Nest, choice: Tiled) -> dict[str, int]:
    """How many lanes bring chunks of one row of a tile that is in phase, and how many rows: of strips so many that what
    they put there at once lies in other banks. Chunks that are neighbours are put as far apart as they have rows, and
    rows lie beside one another. Other tiles are read in whole lines of memory, more of one row at once, though two
    lanes then meet in a bank (257 x 307 x 331 in bf16 on an H200: .836 of a copy, .819 in 128 bytes of each row)."""
    if not choice.phased:
        return {}
    warp, apart = problem.target.warp_size, ACCESS_BYTES * pitch(problem, nest, choice)
    across = min(BANKS_BYTES // gcd(apart, BANKS_BYTES), warp)
    if not choice.strips:
        across = max(across, min(ROW_BYTES // ACCESS_BYTES, choice.tile[choice.across] // chunk(problem, nest, choice)))
    return {choice.across: across, choice.along: warp // across}


def tile_lanes(
    problem: Problem,
    nest: Nest,
    units: Mapping[str, int],
    threads: int,
    each: Mapping[str, int],
    lanes: Mapping[str, int] = MappingProxyType({}),
) -> Lanes:
    """The value of each index on the lanes of a warp, of threads dealt to shares of a tile."""
    warp = problem.target.warp_size
    digits = thread_digits(nest.indices, dealt(nest, units, threads, lanes), Names(()), warp, each)
    return lane_values(digits, nest.indices, warp)


def tile_layout(problem: Problem, nest: Nest, choice: Tiled, one: Staged) -> Layout:
    """Rows across, neighbours along. Neighbouring lanes put their accesses into neighbouring rows, or rows a square
    apart, so the number of an access in its row is mixed with that of the row."""
    rows, columns = choice.tile[choice.across], choice.tile[choice.along]
    if choice.phased:
        return row_major((const(_room(problem, nest, choice)),))
    bits = min(_log2(BANKS_BYTES // (one.along * one.wide.dtype.size_bytes)), _log2(columns // one.along))
    base = _log2(one.along)
    shift = _log2(columns * one.across) - base
    xor = Xor(bits=bits, base=base, shift=shift) if bits else None
    return strided((rows, columns), (columns, 1), xor)


def pitch(problem: Problem, nest: Nest, choice: Tiled) -> int:
    """How far apart the rows of a tile lie that lie in chunks as those that are written do: with room for the place of
    its first element in a chunk. Rows that lie apart by no multiple of a chunk spread what lanes put there over the
    banks."""
    if choice.strips:
        return choice.tile[choice.along]
    (origin,), whole = origins(problem, nest, choice.lines).values(), chunk(problem, nest, choice)
    step = address(problem, origin).coefficient(choice.across) or 0
    least = choice.tile[choice.along] + whole - 1
    return least + (step - least) % whole


def tile_begin(problem: Problem, nest: Nest, choice: Tiled) -> int:
    """Where the first row of a tile in phase lies in it, some chunks from its beginning: before it are those of the
    first chunks of rows, which nobody reads."""
    whole = chunk(problem, nest, choice)
    return -(-(whole - 1) * pitch(problem, nest, choice) // whole) * whole


def _room(problem: Problem, nest: Nest, choice: Tiled) -> int:
    """The elements of a tile in phase, that of a strip with its place in a line of memory: lines of them."""
    line = chunk(problem, nest, choice) * LINE_BYTES // ACCESS_BYTES
    rows = choice.tile[choice.across] + chunk(problem, nest, choice) - 1
    room = tile_begin(problem, nest, choice) + rows * pitch(problem, nest, choice) + line
    return -(-room // line) * line


def shares(problem: Problem, nest: Nest, choice: Tiled) -> tuple[Mapping[str, int], ...]:
    """The shares of a tile that threads take in turn: to bring each of what is staged, and to run it."""
    return (*(load_units(choice, one) for one in staged(problem, nest, choice)), run_units(choice))


def reason(problem: Problem, nest: Nest, choice: Tiled, one: Staged) -> str:
    """Why a read is staged."""
    ends = (choice.along, choice.across)
    before, after = (sectors(problem, nest, one.element, on_lanes(problem, nest, index)) for index in ends)
    return (
        f"a tile of {printed(*one.element)}, in which 32 neighbours along {choice.along} touch {before} sectors, "
        f"and across {choice.across} {after}"
    )


def on_lanes(problem: Problem, nest: Nest, index: str) -> Lanes:
    """The indices on a warp of iterations along one of them."""
    warp = problem.target.warp_size
    digits = thread_digits(nest.indices, ((nest.indices.index(index), warp),), Names(()), warp)
    return lane_values(digits, nest.indices, warp)


def sectors(problem: Problem, nest: Nest, element: Element, lanes: Lanes) -> int:
    """The sectors that a warp touches of an element."""
    fixed = {**dict.fromkeys(nest.indices, 0), **problem.sizes}
    found = footprint(problem.access(*element), lanes, fixed)
    return problem.target.warp_size if found is None else found.sectors


def tile_fault(problem: Problem, nest: Nest, choice: Tiled) -> str | None:
    """What is wrong with a choice of tiles, None where they fit the band: its threads then have equal shares."""
    pair = (choice.along, choice.across)
    if len(set(pair)) != 2 or not set(pair) <= set(nest.indices):
        return f"`along` and `across` are two of {', '.join(nest.indices)}"
    if not is_tileable(problem, nest):
        return "its band is none of plain statements over a box, each with an element of its own to write"
    sides = dict(choice.tile)
    if choice.strips and choice.along in sides:
        del sides[choice.along]
    elif choice.phased and choice.along in sides:
        sides[choice.along] = power_of_two_below(sides[choice.along])
    if choice.tile.keys() != set(pair) or not all(is_power_of_two(n) and n <= MOST_SIDE for n in sides.values()):
        return f"`tile` gives {' and '.join(pair)} powers of two up to {MOST_SIDE}"
    if choice.resident < 0 or choice.resident * choice.threads > problem.target.resident_threads:
        return f"`resident`: a multiprocessor has no room for {choice.resident} blocks of {choice.threads} threads"
    if not 1 <= choice.band <= (MOST_BAND if raster_of(problem.kernel) is None else 1):
        return f"`band`: 1 to {MOST_BAND} tiles, 1 where the author says how blocks lie, by #raster"
    able = stageable(problem, nest, choice.across)
    if not choice.staged or len(set(choice.staged)) != len(choice.staged) or not set(choice.staged) <= able.keys():
        what, which = (", ".join(names) or "nothing" for names in (choice.staged, able))
        return f"`staged` has {what}; what can be staged is {which}"
    fit = all(is_power_of_two(n) and 1 < n <= MOST for n in choice.widths.values())
    if not choice.widths.keys() <= set(pair) or not fit:
        return f"`widths` gives {' or '.join(pair)} 2, 4, 8 or 16"
    if any(n > choice.tile[index] for index, n in choice.widths.items()):
        return "`widths` has more iterations of an index than the tile"
    if choice.strips and not choice.phased:
        return "`strips`: its tiles are not in phase"
    wrong = phase_fault(problem, nest, choice) if choice.phased else None
    if wrong is not None:
        return wrong
    found = staged(problem, nest, choice)
    run, across = choice.widths.get(choice.along, 1), choice.widths.get(choice.across, 1)
    held = [one.element for one in found]
    wrong = _line_fault(problem, nest, choice, found) if choice.lines and not choice.phased else None
    if wrong is not None:
        return wrong
    origin = origins(problem, nest, choice.lines).get(choice.along)
    if run > 1 and not along(problem, nest.body, choice.along, nest.indices, held, origin).vectors(run).wide:
        return f"`widths`: no access is wide where a thread takes {run} iterations of {choice.along}"
    if across > max(greatest_width(problem, one.wide, choice.across) for one in found):
        return f"`widths`: nothing that is staged is read {across} elements of {choice.across} at a time"
    given = () if choice.strips else shares(problem, nest, choice)[-1 if choice.phased else 0 :]
    counts = [prod(units.values()) for units in given]
    if any(count < 1 or count % choice.threads for count in counts):
        return f"a tile has no equal shares for {choice.threads} threads"
    needed = sum(tile_bytes(problem, nest, choice, one) for one in found)
    if needed > problem.target.shared_bytes:
        return f"its tiles need {needed} bytes of shared memory, and a block has {problem.target.shared_bytes}"
    return None


def tile_bytes(problem: Problem, nest: Nest, choice: Tiled, one: Staged) -> int:
    """What the tile of a read takes of shared memory."""
    room = _room(problem, nest, choice) if choice.phased else prod(choice.tile.values())
    return room * one.wide.dtype.size_bytes


def phase_fault(problem: Problem, nest: Nest, choice: Tiled) -> str | None:
    """What is wrong with tiles whose rows lie in chunks as those do that are written, None where they may."""
    found, able = list(origins(problem, nest, choice.lines).values()), stageable(problem, nest, choice.across)
    if not found:
        return "`phased`: runs are counted from no sectors"
    (origin,) = found
    if address(problem, origin).coefficient(choice.across) is None:
        return f"`phased`: rows of {origin[0]} lie apart by no number"
    size, own = problem.kernel.buffer(origin[0]).dtype.size_bytes, owned(problem, nest, choice)[choice.along]
    for wide in map(able.__getitem__, choice.staged):
        array = problem.kernel.buffer(wide.element[0])
        near = is_run(problem, wide.element, choice.across) and array.align >= ACCESS_BYTES
        if not near or array.dtype.size_bytes != size:
            return f"`phased`: {printed(*wide.element)} is not read in chunks of as many elements as are written"
    chunks = choice.tile[choice.across] * size // ACCESS_BYTES
    if chunks < 2 or choice.threads % chunks:
        return f"`phased`: {choice.threads} threads bring no rows of {chunks} chunks"
    if choice.strips:
        return strip_fault(problem, nest, choice, origin)
    if own != power_of_two_below(choice.tile[choice.along]):
        return "`phased`: what a block has of a tile along is no power of two"
    return None


def strip_fault(problem: Problem, nest: Nest, choice: Tiled, origin: Element) -> str | None:
    """What is wrong with strips: rows that lie one behind the other, of which an iteration writes an element that only
    what is staged tells of."""
    along = next(par for par in nest.pars if par.index == choice.along)
    size = constant_value(along.extent)
    if size is None or size != choice.tile[choice.along]:
        return f"`strips`: a tile has not all iterations of {choice.along}"
    if address(problem, origin).coefficient(choice.across) != size:
        return f"`strips`: rows of {origin[0]} do not lie one behind the other"
    held = {
        origin,
        *(wide.element for name, wide in stageable(problem, nest, choice.across).items() if name in choice.staged),
    }

    def left(node: Node) -> Node:
        match node:
            case Read() | Bind() if (node.buffer, node.subscripts) in held:
                return replace(node, subscripts=())
            case _:
                return node

    for stmt in statements(nest.body):
        if not isinstance(stmt, Bind) or (stmt.buffer, stmt.subscripts) != origin:
            return "`strips`: an iteration does more than write one element"
        if any(isinstance(n, IndexVar) and n.name in choice.tile for n in walk(rewrite(stmt, left))):
            return f"`strips`: what is written depends on {choice.along} or {choice.across}"
    return None


def _line_fault(problem: Problem, nest: Nest, choice: Tiled, found: Sequence[Staged]) -> str | None:
    """What is wrong with runs that are counted from sectors: they are read at any place of a tile, 16 bytes at once."""
    able = countable(problem, nest, choice.along)
    if choice.lines.keys() != {choice.along} or choice.lines[choice.along] not in able:
        return f"`lines`: runs of {choice.along} are counted from {', '.join(able) or 'nothing'}"
    run = choice.widths.get(choice.along, 1)
    if any(one.along != run or run * one.wide.dtype.size_bytes != ACCESS_BYTES for one in found):
        return f"`lines`: what is staged is not read by runs of {ACCESS_BYTES} bytes"
    return None if owned(problem, nest, choice)[choice.along] >= run else "`lines`: a tile is no longer than a sector"


def is_tileable(problem: Problem, nest: Nest) -> bool:
    """Whether a band is of plain statements over a box, each of which updates an element of its own."""
    updates = [s for s in statements(nest.body) if isinstance(s, Accumulate | Atomic)]
    own = declared(nest.body)
    return (
        problem.target.is_cuda
        and len(nest.pars) > 1
        and not has_loop(nest.body)
        and all(names(par.extent).isdisjoint(nest.indices) for par in nest.pars)
        and all(u.buffer in own or set(nest.indices) <= subscript_names(u.subscripts) for u in updates)
    )


def _log2(number: int) -> int:
    return number.bit_length() - 1
