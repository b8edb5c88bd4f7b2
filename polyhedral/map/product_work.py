"""What the launches of a product of matrices do: tiles in turns of blocks that stay, and those of the rest of its
rows."""

from math import ceil, prod

from texpr.grammar.records import dataclass
from texpr.polyhedral.map.choose_piped import rate_of
from texpr.polyhedral.map.choose_ringed import rate_by_warps
from texpr.polyhedral.map.matrix_product import MatrixProduct
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.tile_rows import rows_of
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.ringed import Ringed


@dataclass(frozen=True, slots=True)
class ProductWork:
    """The `blocks` that run at once, at most; the products that each of them has time for until all are `made`; and the
    part of them that is beyond the result."""

    blocks: int
    made: int
    idle: float


def product_work(problem: Problem, product: MatrixProduct, choice: Piped | Ringed) -> ProductWork:
    """Of a choice that fits the product."""
    _, columns, depth = product.sizes(problem)
    others = prod(problem.representative(par.extent, {}) for par in product.others)
    blocks, made, covered, own = 0, 0, 0, 0
    for part in _parts(choice):
        extent = rows_of(product, part) if isinstance(part, Piped) else product.extents[0]
        sizes = (problem.representative(extent, {}), columns)
        tile = (part.tile[part.across], part.tile[part.along])
        whole = prod(-(-n // size) * size for n, size in zip(sizes, tile, strict=True))
        tiles = whole // prod(tile) * others
        if isinstance(part, Piped):
            at_once, rate = part.persistent // part.split, part.split * rate_of(part, product.sums)
        else:
            at_once, rate = tiles, rate_by_warps(part, product.sums)
        share = tiles / min(at_once, problem.target.multiprocessors)
        turns = share if isinstance(part, Piped) and part.streamed else ceil(share)
        made += int(turns * prod(tile) * depth * product.sums / rate)
        blocks, covered, own = max(blocks, at_once), covered + whole, own + prod(sizes)
    return ProductWork(blocks, made, 1 - own / covered)


def _parts(choice: Piped | Ringed) -> tuple[Piped | Ringed, ...]:
    """The choice of each launch."""
    return (choice,) if isinstance(choice, Ringed) or choice.rest is None else (choice, choice.rest)
