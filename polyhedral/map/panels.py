"""Launches of sums of products on a CPU, as a candidate says: cores pack factors into panels, and multiply these.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      along j, across i, 264 by 256, 6 by 64 each, 256 deep

    core: i_tile = 264*i_core ; j_tile = 256*j_core
    C_sum[…] = 0
    for k_step < ceildiv(K, 256)
      for p, k, i < 6:   A_panel[p, k, i] = A[i_tile + 6*p + i, 256*k_step + k]
      for q, k, j < 64:  B_panel[q, k, j] = B[256*k_step + k, j_tile + 64*q + j]
      for q, p: each k, i < 6, j < 64: C_sum[p, i, q, j] += A_panel[p, k, i] * B_panel[q, k, j]
    for i, for j (vector): C[i, j] = C_sum[…]

Panels have zeros beyond the extents, so that all products are of whole panels; their sums are stored as far as there
are elements. The products of an element come in the order of the program. A long sum goes over chunks of products; the
sum of each is added to one in f64. This is the way of Goto and van de Geijn (Anatomy of High-Performance Matrix
Multiplication, 2008), with panels of both factors for each tile.
"""

from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Cast,
    Compare,
    CompareOp,
    Expr,
    IndexExpr,
    IndexVar,
    Leaf,
    Par,
    Read,
    Select,
)
from texpr.grammar.index.expr import (
    ONE,
    add,
    ceildiv,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.brought import zero
from texpr.polyhedral.map.choose_panels import panel_product
from texpr.polyhedral.map.contraction import Contraction, Factor, contracted_nest
from texpr.polyhedral.map.digits import core_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.launches import band_of, place_in
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.rows import Piece, piece_of
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.side import at_condition
from texpr.polyhedral.map.summed import stride
from texpr.polyhedral.map.vectors import at_places
from texpr.polyhedral.mapped.on_cores import Panels
from texpr.polyhedral.mapped.operators import Elementwise, Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.names import stem
from texpr.polyhedral.prove.additions import CHAIN

ALIGN_BYTES = 64  # a line, and the widest vector


def build_panels(draft: Draft, region: Region, choice: Panels) -> Launch:
    """A band of sums of products in tiles, each of them a core's."""
    _, ranges, _ = band_of(region)
    nest = contracted_nest(region)
    one = panel_product(draft.problem, nest, choice)
    assert one is not None, "the candidate fits"
    indices = tuple(side.index for side in one.blocked)
    covered = [choice.tile.get(index, 1) for index in indices]
    digits, total = core_digits(indices, [side.extent for side in one.blocked], covered, draft.names)
    place_in(draft, nest.body, choice.memory, block_level=False, outer=nest.indices, ranges=ranges)
    of_index = {index: tuple(digit for digit in digits if digit.index == index) for index in indices}
    others = tuple(Define(index=i, digits=of_index[i]) for i in indices if i not in choice.tile)
    own = _Tile(draft, one, choice, of_index)
    body = (*others, *own.nodes())
    return Launch(
        name=region.name,
        grid=(total, ONE, ONE),
        threads=1,
        digits=digits,
        body=body,
        span=nest.pars[0].span,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A side of a tile: its `piece` of the index, of which the panels have `each`, and where panels of it lie."""

    par: Par
    factor: Factor
    piece: Piece
    each: int
    panel: str
    number: str
    own: str

    @property
    def panels(self) -> IndexExpr:
        """How many panels there are of a tile."""
        return ceildiv(self.piece.extent, self.each)

    @property
    def first(self) -> IndexExpr:
        """The first index of the panel at hand."""
        return add(IndexVar(name=self.piece.start.index), multiply(const(self.each), IndexVar(name=self.number)))

    @property
    def sum(self) -> tuple[IndexExpr, IndexExpr]:
        """The place of the sum of an element of the panel at hand."""
        return IndexVar(name=self.number), IndexVar(name=self.own)

    def loops(self, body: tuple[Node, ...], span: Span) -> tuple[Node, ...]:
        """All elements of all panels of a tile."""
        inner = Loop(index=self.own, extent=const(self.each), body=body, vector=True, span=span)
        return (Loop(index=self.number, extent=self.panels, body=(inner,), span=span),)


class _Tile:
    """What a core does of a tile."""

    def __init__(self, draft: Draft, one: Contraction, choice: Panels, above: dict[str, tuple[Digit, ...]]) -> None:
        self.draft, self.one, self.choice = draft, one, choice
        self.span, self.id = one.update.span, one.update.id
        fresh, word = draft.names.fresh, stem(one.summed.index)
        self.deep, self.step, self.chunk = (fresh(f"{word}_{name}") for name in ("deep", "step", "chunk"))
        self.across, self.along = (self._way(side, above[side]) for side in (choice.across, choice.along))
        name = one.update.buffer
        self.sums = self._local(f"{name}_sum", one.dtype, self._shape, "the sums of a tile")
        long = self.id in draft.long and one.dtype == F32
        self.chunked = long and (constant_value(one.extent) or CHAIN + 1) > CHAIN
        self.total = self.sums
        if self.chunked:
            reason = f"the sums of {CHAIN} products at a time, added up"
            self.total = self._local(f"{name}_total", F64, self._shape, reason)

    def _way(self, side: str, above: tuple[Digit, ...]) -> _Way:
        fresh, word, factor = self.draft.names.fresh, stem(side), self.one.of(side)
        par = factor.side.loops[0]
        assert isinstance(par, Par), "an index of the band"
        each, tile = self.choice.each[side], self.choice.tile[side]
        panel = self._local(
            f"{factor.element[0]}_panel",
            self.one.dtype,
            (tile // each, self.choice.depth, each),
            f"what {self.choice.depth} products of each sum of a tile need of {factor.element[0]}",
        )
        return _Way(
            par=par,
            factor=factor,
            piece=piece_of(self.draft, par, above, tile),
            each=each,
            panel=panel,
            number=fresh(f"{word}_panel"),
            own=fresh(f"{word}_own"),
        )

    @property
    def _shape(self) -> tuple[int, ...]:
        tile = self.choice.tile
        return tuple(n for way in (self.across, self.along) for n in (tile[way.par.index] // way.each, way.each))

    def _local(self, name: str, dtype: DType, shape: tuple[int, ...], reason: str) -> str:
        layout = row_major(tuple(map(const, shape)))
        return self.draft.local(name, dtype, Memory.REG, layout, reason, align=ALIGN_BYTES, span=self.span)

    def nodes(self) -> tuple[Node, ...]:
        """Everything."""
        ways = (self.across, self.along)
        starts = (way.piece.start for way in ways)
        fresh = (Fresh(buffer=name) for name in dict.fromkeys((*(w.panel for w in ways), self.sums, self.total)))
        return (*starts, *fresh, *self._summed(), self._stored())

    # ---- the products ----

    def _summed(self) -> tuple[Node, ...]:
        """All sums: long ones in f64, a chunk of products after the other."""
        start = self._each_sum("zero", Bind, self.sums, zero(self.one.dtype))
        if not self.chunked:
            return (start, self._stepped(self.one.extent))
        done = multiply(const(CHAIN), IndexVar(name=self.chunk))
        left = minimum(const(CHAIN), subtract(self.one.extent, done))
        here = Read(buffer=self.sums, subscripts=self._sum_places, dtype=self.one.dtype, span=self.span)
        more = self._each_sum("add", Accumulate, self.total, Cast(operand=here, dtype=F64))
        chunks = Loop(
            index=self.chunk,
            extent=ceildiv(self.one.extent, CHAIN),
            body=(start, self._stepped(left), more),
            span=self.span,
        )
        return (self._each_sum("start", Bind, self.total, zero(F64)), chunks)

    def _stepped(self, products: IndexExpr) -> Loop:
        """So many products, a panel's depth at a time."""
        first = multiply(const(self.choice.depth), IndexVar(name=self.step))
        deep = minimum(const(self.choice.depth), subtract(products, first))
        if self.chunked:
            first = add(multiply(const(CHAIN), IndexVar(name=self.chunk)), first)
        packed = (node for way in (self.across, self.along) for node in self._packed(way, first, deep))
        body: tuple[Node, ...] = (self._products(deep),)
        for way in (self.across, self.along):
            body = (Loop(index=way.number, extent=way.panels, body=body, span=self.span),)
        return Loop(
            index=self.step,
            extent=ceildiv(products, self.choice.depth),
            body=(*packed, *body),
            span=self.span,
        )

    def _products(self, deep: IndexExpr) -> Elementwise:
        """The products of two panels."""
        one, across, along = self.one, self.across, self.along
        args = tuple(
            Read(buffer=way.panel, subscripts=self._packed_at(way), dtype=one.dtype, span=self.span)
            for factor in (one.first, one.second)
            for way in (across if factor is across.factor else along,)
        )
        leaf = Accumulate(
            id=self.id,
            op=AccOp.ADD,
            buffer=self.sums,
            subscripts=self._sum_places,
            value=replace(one.value, args=args),
            attrs=one.update.attrs,
            span=self.span,
        )
        over = ((self.deep, deep), (across.own, const(across.each)), (along.own, const(along.each)))
        return Elementwise(id=self.id, leaves=(leaf,), over=over)

    def _packed_at(self, way: _Way) -> tuple[IndexExpr, ...]:
        return IndexVar(name=way.number), IndexVar(name=self.deep), IndexVar(name=way.own)

    # ---- the panels ----

    def _packed(self, way: _Way, first: IndexExpr, deep: IndexExpr) -> tuple[Node, ...]:
        """The panels of a factor: read along the side, or along what is summed where that is nearer."""
        problem, own = self.draft.problem, IndexVar(name=way.own)
        element, par = way.factor.element, way.par
        place = add(way.first, own)
        here = {par.index: place, self.one.summed.index: add(first, IndexVar(name=self.deep))}
        value: Expr = Read(
            buffer=element[0], subscripts=at_places(element[1], here), dtype=way.factor.dtype, span=self.span
        )
        value = as_type(value, self.one.dtype)
        nothing = zero(self.one.dtype)
        if way.factor.where is not None:
            condition = at_condition(way.factor.where, here)
            value = Select(condition=condition, then=value, other=nothing, dtype=self.one.dtype, span=self.span)
        filled, empty = self._pack(way, "pack", value), self._pack(way, "zeros", nothing)
        inside = Compare(op=CompareOp.LT, left=place, right=par.extent)

        def each_deep(*body: Node) -> Loop:
            return Loop(index=self.deep, extent=deep, body=body, vector=True, span=self.span)

        def each_own(*body: Node) -> Loop:
            return Loop(index=way.own, extent=const(way.each), body=body, span=self.span)

        turned = stride(problem, element, self.one.summed.index) in (0, 1)
        if turned and stride(problem, element, par.index) not in (0, 1):
            some = Guard(condition=inside, body=(each_deep(filled),), orelse=(each_deep(empty),), span=self.span)
            body: Node = each_own(some)
        else:
            beyond = Compare(op=CompareOp.LE, left=par.extent, right=place)
            part = each_deep(
                each_own(Guard(condition=inside, body=(filled,), padding=True, span=self.span)),
                each_own(Guard(condition=beyond, body=(empty,), padding=True, span=self.span)),
            )
            last = add(way.first, const(way.each))
            whole = Compare(op=CompareOp.LE, left=last, right=par.extent)
            body = Guard(condition=whole, body=(each_deep(each_own(filled)),), orelse=(part,), span=self.span)
        return (Loop(index=way.number, extent=way.panels, body=(body,), span=self.span),)

    def _pack(self, way: _Way, word: str, value: Expr) -> Generic:
        id = self.draft.names.fresh(f"{self.id}_{way.factor.element[0]}_{word}")
        leaf = Bind(id=id, buffer=way.panel, subscripts=self._packed_at(way), value=value, span=self.span)
        return Generic(id=id, leaf=leaf, origin=Origin.COPY_IN)

    # ---- the sums ----

    @property
    def _sum_places(self) -> tuple[IndexExpr, ...]:
        return (*self.across.sum, *self.along.sum)

    def _each_sum(self, word: str, kind: type[Bind | Accumulate], name: str, value: Expr) -> Node:
        """What is done to each sum of a tile."""
        id, places = self.draft.names.fresh(f"{self.id}_{word}"), self._sum_places
        leaf: Leaf = Bind(id=id, buffer=name, subscripts=places, value=value, span=self.span)
        if kind is Accumulate:
            leaf = Accumulate(id=id, op=AccOp.ADD, buffer=name, subscripts=places, value=value, span=self.span)
        body: tuple[Node, ...] = (
            Generic(id=id, leaf=leaf, origin=Origin.COMBINE if kind is Accumulate else Origin.INIT),
        )
        for way in (self.along, self.across):
            body = way.loops(body, self.span)
        return body[0]

    def _stored(self) -> Node:
        """What the program says around its sums, for the elements that there are."""
        dtype = self.draft.buffers[self.total].dtype
        body = self._around(Read(buffer=self.total, subscripts=self._sum_places, dtype=dtype, span=self.span))
        for way in (self.along, self.across):
            index, digits = way.par.index, way.piece.define.digits
            place = add(multiply(const(way.each), IndexVar(name=way.number)), IndexVar(name=way.own))
            inside = Compare(op=CompareOp.LT, left=IndexVar(name=index), right=way.par.extent)
            guard = Guard(condition=inside, body=body, padding=True, span=self.span)
            body = way.loops((Define(index=index, digits=digits, offset=place), guard), way.par.span)
        return body[0]

    def _around(self, sum_: Read) -> tuple[Node, ...]:
        one, draft = self.one, self.draft
        body = Body(draft, hardware=one.nest.indices)
        nodes: list[Node] = []
        for stmt in one.work.last:
            if one.work.at(stmt) is None:
                nodes += body.nodes((stmt,))
                continue
            stored = draft.buffers[one.update.buffer].dtype
            final = body.leaf(replace(one.update, value=as_type(sum_, F64 if stored == F64 else one.dtype)))
            out: Node = replace(final, id=f"{one.update.id}_out", origin=Origin.COMBINE)
            some = one.some
            nodes.append(out if some is None else Guard(condition=some, body=(out,), span=stmt.span))
        return tuple(nodes)
