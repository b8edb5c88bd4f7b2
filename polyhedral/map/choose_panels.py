"""The first candidate of sums of products in panels, and which bands have such: those with sides long enough for them.

    f32 1024 x 1024 x 1024     16 tiles of 258 by 256, in panels of 6 by 64, 256 products deep

Registers hold 6 by 4 vectors of 64 bytes of sums, beside the vectors of one product, or as many in another shape where
that leaves less of the last panel empty; a machine with fewer registers takes a panel in pieces. Tiles are as large as
the second nearest cache has room for their panels, for each element that is packed is then used for as many products,
and smaller where there are few of them for many cores, or calls tell how many.
"""

from math import prod

from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.bands import has_block_level
from texpr.polyhedral.map.contracted_tiles import nearest
from texpr.polyhedral.map.contraction import Contraction, contracted_nest, contractions
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.summed import stride
from texpr.polyhedral.map.triangle import Boxed
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.mapped.on_cores import Panels
from texpr.polyhedral.prove.additions import CHAIN

VECTOR_BYTES = 64
EACH = ((6, 4), (8, 3), (12, 2), (12, 1))  # rows of sums in registers, and vectors of a row
FULLER = 0.95  # another shape than the first one has that much less to do
DEPTH = 256  # products: a panel of the longer side is then as large as the nearest cache, one of the other half of it
TILES = ((264, 2048), (264, 1024), (132, 1024))  # rows, and bytes of a row
ENOUGH_TILES = 16  # that keep many cores busy
LEAST_SIDE, LEAST_PRODUCTS = 24, 100_000  # or packing takes longer than the products


def panel_products(problem: Problem, nest: Boxed) -> tuple[Contraction, ...]:
    """The sums of products that a nest is, of single indices over a box, as panels want them."""
    if has_block_level(problem.kernel, nest) or nest.domain is not None:
        return ()
    found = contractions(problem, nest)
    return tuple(one for one in found if len(one.reduction.loops) == 1 and not any(side.joins for side in one.sides))


def panel_product(problem: Problem, nest: Boxed, choice: Panels) -> Contraction | None:
    """The one with the sides of a choice."""
    sides = {choice.along, choice.across}
    found = panel_products(problem, nest)
    return next((one for one in found if {side.index for side in one.sides} == sides), None)


def choose_panels(problem: Problem, region: Region) -> Panels | None:
    """Panels for a band of sums of products; None where it is none, or where its sides are too short."""
    found = panel_products(problem, contracted_nest(region))
    return _panels(problem, region, found[0]) if found else None


def _panels(problem: Problem, region: Region, one: Contraction) -> Panels | None:
    sizes = {side.index: problem.representative(side.extent, {}) for side in one.blocked}
    length = problem.representative(one.extent, {})
    own = [sizes[side.index] for side in one.sides]
    if min(*own, length) < LEAST_SIDE or prod(own) * length < LEAST_PRODUCTS:
        return None
    along = nearest(problem, one)
    across = next(side.index for side in one.sides if side.index != along)
    rows, columns = _each(sizes[along], one.dtype.size_bytes)
    each = {across: rows, along: columns}
    free = any(constant_value(side.extent) is None for side in one.sides)
    for rows, row_bytes in TILES[-1:] if free else TILES:  # calls of any size have tiles for several cores
        most = {across: rows, along: row_bytes // one.dtype.size_bytes}
        counts = {index: -(-sizes[index] // most.get(index, 1)) for index in sizes}
        if prod(counts.values()) >= ENOUGH_TILES:
            break
    tile = {index: _multiple(-(-sizes[index] // counts[index]), each[index]) for index in (across, along)}
    ranges = plain_nest(region)[1]
    memory = memory_of(problem, one.nest.body, block_level=False, outer=one.nest.indices, ranges=ranges)
    return Panels(along=along, across=across, tile=tile, each=each, depth=DEPTH, memory=memory)


def _each(extent: int, size_bytes: int) -> tuple[int, int]:
    """Rows and columns of a panel, for so many columns."""
    shapes = [(rows, vectors * VECTOR_BYTES // size_bytes) for rows, vectors in EACH]
    found = shapes[0]
    for shape in shapes[1:]:
        if _multiple(extent, shape[1]) < FULLER * _multiple(extent, found[1]):
            found = shape
    return found


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of


def panel_fault(problem: Problem, nest: Boxed, choice: Panels) -> str | None:
    """What does not fit, None where all does; where locals may lie, others say."""
    sides = {choice.along, choice.across}
    one = panel_product(problem, nest, choice)
    if one is None or len(sides) != 2:
        return f"`along` and `across`: {choice.along} and {choice.across} are no sides of a sum of products"
    for name, numbers in (("tile", choice.tile), ("each", choice.each)):
        if numbers.keys() != sides or min(numbers.values()) < 1:
            return f"`{name}` gives {' and '.join(sorted(sides))} numbers from 1"
    if any(choice.tile[side] % choice.each[side] for side in sides):
        return "`tile` is no multiple of `each`"
    if CHAIN % choice.depth:
        return f"`depth`: {CHAIN} is no multiple of {choice.depth}"
    if prod(choice.each.values()) * one.dtype.size_bytes > MOST_EACH_BYTES:
        return f"`each`: registers hold {MOST_EACH_BYTES} bytes of sums"
    if _tile_bytes(one, choice) > MOST_TILE_BYTES:
        return f"`tile`: a core has {MOST_TILE_BYTES} bytes for its panels and sums"
    return None


MOST_EACH_BYTES, MOST_TILE_BYTES = 4096, 1 << 25


def _tile_bytes(one: Contraction, choice: Panels) -> int:
    """What a core has beside itself."""
    return (sum(choice.tile.values()) * choice.depth + 3 * prod(choice.tile.values())) * one.dtype.size_bytes


def panel_accesses(problem: Problem, region: Region, choice: Panels) -> tuple[int, int, int]:
    """Tiles, the accesses that pack factors, and those of them that go from line to line."""
    one = panel_product(problem, contracted_nest(region), choice)
    assert one is not None, "the candidate fits"
    sizes = {side.index: problem.representative(side.extent, {}) for side in one.blocked}
    tiles = prod(-(-n // choice.tile.get(index, 1)) for index, n in sizes.items())
    length, made, far = problem.representative(one.extent, {}), 0, 0
    for factor in (one.first, one.second):
        index = factor.side.index
        packed = tiles * min(sizes[index], choice.tile[index]) * length
        ways = [stride(problem, factor.element, way) for way in (index, one.summed.index)]
        made += packed
        far += 0 if {0, 1} & set(ways) else packed
    return tiles, made, far
