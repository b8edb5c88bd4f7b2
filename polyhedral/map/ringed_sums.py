"""The sums of a warp in a product by single warps, element by element as its lanes hold them; of f8 with portions.

    c[x, y] = 0
    for k_step < ceildiv(K, 128)
      p[x, y] = 0 ;  p += a * b of the 128 products of the step ;  c[x, y] += p[x, y]

An instruction of f8 keeps 14 bits of what it adds to, so a portion has the products of one step (`portions.py` says the
same of warpgroups), and is added in f32.
"""

from collections.abc import Callable
from dataclasses import field

from texpr.grammar.ast import AccOp, Accumulate, Bind, Const, IndexExpr, Leaf, Read
from texpr.grammar.index.expr import add, const, multiply
from texpr.grammar.permissions import LARGEST_PORTION
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR, lane_column, lane_row
from texpr.polyhedral.map.ringed_fits import UNIT
from texpr.polyhedral.map.ringed_ways import Site
from texpr.polyhedral.map.way_back import var
from texpr.polyhedral.mapped.atoms import warp_sums
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Memory, Place
from texpr.polyhedral.mapped.tree import Loop, Node

Element = tuple[IndexExpr, IndexExpr]


@dataclass(slots=True)
class WarpSums:
    """The sums of a warp, one buffer for each factor of columns; `made` are those that products are added to."""

    site: Site
    all: tuple[str, ...] = field(init=False)
    made: tuple[str, ...] = field(init=False)
    lane: str = field(init=False)

    def __post_init__(self) -> None:
        product = self.site.product
        assert not product.in_portions or self.site.choice.depth <= LARGEST_PORTION, "a step is a portion"
        beside = product.factors[1:]
        self.all = tuple(self._held("sums", "the sums of a warp") for _ in beside)
        self.made = self.all
        if product.in_portions:
            self.made = tuple(self._held("portion", "a portion of the sums of a warp") for _ in beside)
        self.lane = self.site.fresh("lane")

    @property
    def _each(self) -> tuple[int, int]:
        rows, columns = (self.site.choice.each[factor.index] for factor in self.site.product.factors[:2])
        return rows, columns

    @property
    def _dtype(self) -> DType:
        return self.site.product.one.dtype

    def _held(self, word: str, reason: str) -> str:
        name = f"{self.site.product.result[0]}_{word}"
        return self.site.draft.local(name, self._dtype, Memory.REG, warp_sums(*self._each), reason, span=self.site.span)

    def begun(self) -> tuple[Node, ...]:
        """What all sums begin with."""
        lane = self.site.define(self.lane, (Place.LANE, self.site.draft.target.warp_size, 1, 1))
        return lane, *self._zeros(self.all)

    def begun_step(self) -> tuple[Node, ...]:
        """What the sums of a step begin with, where it has its own."""
        return self._zeros(self.made) if self.made != self.all else ()

    def ended_step(self) -> tuple[Node, ...]:
        """What a step has made, added to all."""
        if self.made == self.all:
            return ()

        def added(id: str, sums: str, portion: str) -> Callable[[Element], Leaf]:
            def leaf(at: Element) -> Leaf:
                value = Read(buffer=portion, subscripts=at, dtype=self._dtype, span=self.site.span)
                return Accumulate(id=id, buffer=sums, subscripts=at, op=AccOp.ADD, value=value, span=self.site.span)

            return leaf

        ids = [self.site.fresh(f"{self.site.id}_added") for _ in self.all]
        of = list(zip(ids, self.all, self.made, strict=True))
        return self._over(Origin.COMBINE, [(id, added(id, sums, portion)) for id, sums, portion in of])

    def _zeros(self, buffers: tuple[str, ...]) -> tuple[Node, ...]:
        zero = Const(value=0.0 if self._dtype.is_float else 0, dtype=self._dtype)

        def begun(id: str, sums: str) -> Callable[[Element], Leaf]:
            return lambda at: Bind(id=id, buffer=sums, subscripts=at, value=zero, span=self.site.span)

        ids = [self.site.fresh(f"{self.site.id}_zero") for _ in buffers]
        of = zip(ids, buffers, strict=True)
        return self._over(Origin.INIT, [(id, begun(id, sums)) for id, sums in of])

    def _over(self, origin: Origin, leaves: list[tuple[str, Callable[[Element], Leaf]]]) -> tuple[Node, ...]:
        """Leaves for each element that a lane holds."""
        site, (rows, columns) = self.site, self._each
        high, half, column, one = (site.fresh(name) for name in ("high", "half", "eight", "one"))
        row = add(multiply(const(UNIT), var(high)), lane_row(self.lane, var(half)))
        at = row, lane_column(self.lane, var(column), var(one))
        body: tuple[Node, ...] = tuple(Generic(id=id, leaf=leaf(at), origin=origin) for id, leaf in leaves)
        for index, extent in ((one, PAIR), (half, 2), (column, columns // EIGHT), (high, rows // UNIT)):
            body = (Loop(index=index, extent=const(extent), body=body, unroll=True, span=site.span),)
        return body
