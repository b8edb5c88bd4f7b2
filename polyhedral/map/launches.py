"""Launches for CUDA: one band of pars over the grid and its blocks, or plain statements in one thread.

A *flat* band has no parallelism inside: its dimensions are dealt to grid, warps and lanes, and each thread runs the
body alone. A *two-level* band gives every outer iteration a block; the nests inside share out its threads:

    par M/64 bi { new t: f32[64] ; par 64 a { t[a] = … } ; par 64 b { … t[63 - b] … } }
    block: bi_block on grid.x;   a = a_lane + 32*a_warp;   b = b_lane + 32*b_warp;   a barrier between

Statements between the nests run once per block, or in every thread where they write its registers.
"""

from collections.abc import Mapping, Sequence

from texpr.grammar.ast import (
    Accumulate,
    And,
    Bind,
    Compare,
    CompareOp,
    Condition,
    If,
    IndexExpr,
    IndexVar,
    New,
    Par,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, add, at_least_zero, ceildiv, const, constant_value, minimum
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.polyhedral.map.bands import (
    Nest,
    block_statements,
    bounded_nest,
    has_block_level,
    inner_nests,
    is_serial_par,
    nest_of,
)
from texpr.polyhedral.map.digits import grid_digits, grid_size, power_of_two, share, thread_digits
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.long_sums import CHAIN, size_ranges
from texpr.polyhedral.map.placement import place_locals, size_bytes
from texpr.polyhedral.map.reductions import (
    Splitter,
    prefers_blocks,
    reduced_dim,
    reductions,
    shared_bytes,
    split,
    splits,
)
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.session import Session
from texpr.polyhedral.map.uses import local_uses
from texpr.polyhedral.mapped.operators import Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.walk import subscript_names, walk

DEFAULT_THREADS = 256
MIN_THREADS = 32
MAX_ROUNDS = 16  # iterations of a reduction that one thread accumulates before the block combines


def padding_guard(nest: Nest, covered: Mapping[str, int], ranges: Ranges) -> Condition | None:
    """The condition that cuts what lies beyond the extents: None where the digits cover them exactly."""
    parts: list[Condition] = []
    for par in nest.pars:
        boxed = add(ranges[par.index][1], ONE)
        value = constant_value(boxed)
        exact = covered[par.index] == 1 or (value is not None and value % covered[par.index] == 0)
        if boxed != par.extent or not exact:
            parts.append(Compare(op=CompareOp.LT, left=IndexVar(name=par.index), right=par.extent))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(parts=tuple(parts))


def block_limits(counts: Mapping[int, int | None], budget: int) -> dict[int, int]:
    """So many blocks along each dimension that there are at most `budget` together: few and known counts in full, the
    others alike. None is a count that sizes leave open."""
    limits: dict[int, int] = {}
    waiting = sorted(counts, key=lambda d: (counts[d] is None, counts[d] or 0))
    while waiting:
        share = 1
        while (share + 1) ** len(waiting) <= budget:
            share += 1
        first, count = waiting[0], counts[waiting[0]]
        limits[first] = share if count is None else max(1, min(count, share))
        budget //= limits[first]
        waiting = waiting[1:]
    return limits


class LaunchBuilder:
    """Builds one launch of a band; `host` names the host indices in scope."""

    def __init__(self, session: Session, host: tuple[str, ...]) -> None:
        self.session = session
        self.host = host
        self.digits: list[Digit] = []
        self.threads = 1
        self.shared_left = session.target.shared_bytes

    def band(self, par: Par, name: str) -> Launch:
        """The launch of an outermost band."""
        nest, ranges = bounded_nest(nest_of(par))
        sizes = [self.session.representative(add(ranges[p.index][1], ONE), {}) for p in nest.pars]
        if has_block_level(self.session.kernel, nest) or prefers_blocks(
            self.session, nest, sizes, DEFAULT_THREADS, ranges
        ):
            return self._two_level(nest, ranges, name)
        reduced = reduced_dim(self.session, nest, sizes, DEFAULT_THREADS, ranges)
        if reduced is not None:
            return self._reduced(nest, ranges, name, sizes, reduced)
        return self._flat(nest, ranges, name)

    def single(self, stmts: tuple[Stmt, ...], name: str) -> Launch:
        """A launch of one thread for statements outside any par."""
        self._place(stmts, block_level=False, outer=(), ranges={})
        body = Body(self.session, self.host, hardware=()).nodes(stmts)
        return Launch(
            name=name, grid=(ONE, ONE, ONE), threads=1, digits=(), body=body, span=stmts[0].span.to(stmts[-1].span)
        )

    def _place(self, stmts: tuple[Stmt, ...], *, block_level: bool, outer: tuple[str, ...], ranges: Ranges) -> None:
        uses, all_ranges = local_uses(self.session.kernel, stmts, block_level=block_level, outer=outer, ranges=ranges)
        placed = place_locals(uses, all_ranges, self.session.target, self.session.host_ranges)
        self.session.buffers.update(placed)
        sizes = (size_bytes(u.buffer) or 0 for u in uses if placed[u.buffer.name].memory is Memory.SHARED)
        self.shared_left -= sum(sizes)

    def _launch(self, nest: Nest, grid: tuple[Digit, ...], body: tuple[Node, ...], name: str) -> Launch:
        return Launch(
            name=name,
            grid=grid_size(grid),
            threads=self.threads,
            digits=(*grid, *self.digits),
            body=body,
            span=nest.pars[0].span,
        )

    def _flat(self, nest: Nest, ranges: Ranges, name: str) -> Launch:
        session = self.session
        extents = [add(ranges[p.index][1], ONE) for p in nest.pars]
        sizes = [session.representative(e, {}) for e in extents]
        threads = threads_asked(session.kernel, session.target) or _threads_for(sizes, DEFAULT_THREADS)
        order, caps = choose_lanes(session, nest, sizes, threads, ranges)
        band = thread_digits(nest.indices, share(sizes, order, caps, threads), session.names, session.target.warp_size)
        grid = grid_digits(nest.indices, extents, band.covered, order, session.names, session.target, nest.pars[0].span)
        self.threads = threads
        self.digits += band.all
        self._place(nest.body, block_level=False, outer=nest.indices, ranges=ranges)
        worker = Body(session, self.host, hardware=nest.indices, digits=tuple(d.name for d in band.all))
        worker.band = (nest.indices, band)
        body = worker.nodes(nest.body)
        condition = padding_guard(nest, dict(zip(nest.indices, band.covered, strict=True)), ranges)
        if condition is not None:
            body = (Guard(condition=condition, body=body, padding=True, span=nest.pars[0].span),)
        defines = tuple(
            Define(index=index, digits=(*((block,) if block else ()), *reversed(mine)))
            for index, block, mine in zip(nest.indices, grid, band.digits, strict=True)
        )
        return self._launch(nest, tuple(d for d in grid if d), (*defines, *body), name)

    def _reduced(self, nest: Nest, ranges: Ranges, name: str, sizes: list[int], dim: int) -> Launch:
        """A band of accumulations: blocks take rounds of the reduced dimension and make one atomic update each."""
        session = self.session
        self.threads = threads_asked(session.kernel, session.target) or _threads_for([sizes[dim]], DEFAULT_THREADS)
        rounds = max(1, min(MAX_ROUNDS, -(-sizes[dim] // self.threads)))
        covered = [self.threads * rounds if d == dim else 1 for d in range(len(nest.pars))]
        extents = [add(ranges[p.index][1], ONE) for p in nest.pars]
        order = (dim, *(d for d in reversed(range(len(nest.pars))) if d != dim))
        span = nest.pars[0].span
        updates = [s for s in nest.body if isinstance(s, Accumulate)]
        strides = self._strides(nest, extents, covered, updates)
        reached = {d: stride.weight if stride else covered[d] for d, stride in enumerate(strides)}
        inside = padding_guard(nest, {nest.indices[d]: reach for d, reach in reached.items()}, ranges)
        bounded = [minimum(e, const(s.weight)) if s else e for e, s in zip(extents, strides, strict=True)]
        grid = grid_digits(nest.indices, bounded, covered, order, session.names, session.target, span)
        places = [tuple(d for d in (block, stride) if d) for block, stride in zip(grid, strides, strict=True)]
        defines = {d: Define(index=nest.indices[d], digits=places[d]) for d in range(len(places)) if d != dim}
        splitter = Splitter(session, self.host, nest.indices, self.threads)
        around = tuple((define, stride) for d, define in defines.items() if (stride := strides[d]) is not None)
        body = splitter.whole(nest.pars[dim], updates, places[dim], const(rounds), inside, around, strides[dim])
        self.digits += splitter.digits
        outer = (define for d, define in defines.items() if strides[d] is None)
        return self._launch(nest, tuple(d for d in grid if d), (*outer, *body), name)

    def _strides(
        self, nest: Nest, extents: Sequence[IndexExpr], covered: Sequence[int], updates: Sequence[Accumulate]
    ) -> list[Digit | None]:
        """A serial digit for each dimension of a long sum that has more blocks than may add to one element, together
        `CHAIN` of them: its weight is what those blocks reach."""
        found: list[Digit | None] = [None] * len(extents)
        if not any(u.id in self.session.long for u in updates):
            return found
        ranges = size_ranges(self.session.kernel)
        used = frozenset[str]().union(*(subscript_names(u.subscripts) for u in updates))
        blocks = {
            d: most(ceildiv(at_least_zero(extents[d]), covered[d]), ranges)
            for d, index in enumerate(nest.indices)
            if index not in used
        }
        for d, limit in block_limits(blocks, CHAIN).items():
            count, reach = blocks[d], covered[d] * limit
            if count is None or count > limit:
                name, radix = self.session.names.fresh(f"{nest.indices[d]}_stride"), at_least_zero(extents[d])
                found[d] = Digit(
                    name=name, index=nest.indices[d], weight=reach, radix=ceildiv(radix, reach), stride=ONE,
                    place=Place.SERIAL,
                )  # fmt: skip
        return found

    def _two_level(self, nest: Nest, ranges: Ranges, name: str) -> Launch:
        session = self.session
        extents = [add(ranges[p.index][1], ONE) for p in nest.pars]
        order = tuple(reversed(range(len(nest.pars))))
        grid = grid_digits(
            nest.indices, extents, [1] * len(extents), order, session.names, session.target, nest.pars[0].span
        )
        inner = [
            [session.representative(p.extent, {**ranges, **_seq_ranges(nest.body)}) for p in n.pars]
            for n in inner_nests(nest.body)
        ]
        seqs = reductions(session, block_statements(nest.body), {**ranges, **_seq_ranges(nest.body)})
        inner += [[session.representative(s.extent, {**ranges, **_seq_ranges(nest.body)})] for s in seqs]
        self.threads = threads_asked(session.kernel, session.target) or max(
            (_threads_for(sizes, DEFAULT_THREADS) for sizes in inner), default=MIN_THREADS
        )
        self._place(nest.body, block_level=True, outer=nest.indices, ranges=ranges)
        body = self._block(nest.body, nest.indices, ranges)
        condition = padding_guard(nest, dict.fromkeys(nest.indices, 1), ranges)
        if condition is not None:
            body = (Guard(condition=condition, body=body, padding=True, uniform=Scope.BLOCK, span=nest.pars[0].span),)
        defines = tuple(
            Define(index=index, digits=(block,) if block else ())
            for index, block in zip(nest.indices, grid, strict=True)
        )
        return self._launch(nest, tuple(d for d in grid if d), (*defines, *body), name)

    def _block(self, stmts: tuple[Stmt, ...], outer: tuple[str, ...], ranges: Ranges) -> tuple[Node, ...]:
        """The nodes of statements at block level: nests over the threads, loops and conditions around them."""
        found: list[Node] = []
        level = Body(self.session, self.host, hardware=outer)
        for stmt in stmts:
            match stmt:
                case Par() if not is_serial_par(stmt):
                    found += self._inner(nest_of(stmt), outer, ranges)
                case Seq() if self._shares(stmt, ranges):
                    found += self._split(stmt, outer)
                case Seq(index=index, extent=extent, body=body):
                    inside = index_range(extent, ranges)
                    known = {**ranges, index: inside} if inside else ranges
                    found.append(level.loop(stmt, self._block(body, outer, known)))
                case If(condition=condition, then=then, orelse=orelse):
                    found.append(
                        Guard(
                            condition=level.condition(condition),
                            body=self._block(then, outer, ranges),
                            orelse=self._block(orelse, outer, ranges),
                            uniform=Scope.BLOCK,
                            span=stmt.span,
                        )
                    )
                case Par():
                    found += Body(self.session, self.host, hardware=outer, unused=self._unused(stmt)).nodes((stmt,))
                case New():
                    found += level.nodes((stmt,))
                case _:
                    found += Body(self.session, self.host, hardware=outer, unused=self._unused(stmt)).nodes((stmt,))
        return tuple(found)

    def _shares(self, seq: Seq, ranges: Ranges) -> bool:
        """Whether the threads share out a reduction: it pays, and its partial results fit beside the shared buffers."""
        fits = shared_bytes(seq, self.threads) <= self.shared_left
        return self.threads > 1 and fits and splits(self.session, seq, ranges)

    def _split(self, seq: Seq, outer: tuple[str, ...]) -> tuple[Node, ...]:
        self.shared_left -= shared_bytes(seq, self.threads)
        shared_out = split(self.session, self.host, seq, outer, self.threads)
        self.digits += shared_out.digits
        return shared_out.nodes

    def _unused(self, stmt: Stmt) -> Unused | None:
        """Replicated where the statement writes registers that every thread keeps, else once."""
        if self.threads == 1:
            return None
        if isinstance(stmt, Bind | Accumulate) and self.session.buffers[stmt.buffer].memory is Memory.REG:
            return Unused.REPLICATED
        return Unused.ONCE

    def _inner(self, nest: Nest, outer: tuple[str, ...], ranges: Ranges) -> tuple[Node, ...]:
        """One nest over the threads of the block, with a serial digit for what they do not cover."""
        session = self.session
        nest, known = bounded_nest(nest)
        extents = [add(known[p.index][1], ONE) for p in nest.pars]
        sizes = [session.representative(e, ranges) for e in extents]
        order, caps = choose_lanes(session, nest, sizes, self.threads, {**ranges, **known})
        pieces = share(sizes, order, caps, self.threads)
        band = thread_digits(nest.indices, pieces, session.names, session.target.warp_size)
        self.digits += band.all
        worker = Body(session, self.host, hardware=outer + nest.indices, digits=tuple(d.name for d in band.all))
        worker.band = (nest.indices, band)
        nodes = worker.nodes(nest.body)
        covered = dict(zip(nest.indices, band.covered, strict=True))
        condition = padding_guard(nest, covered, known)
        if condition is not None:
            nodes = (Guard(condition=condition, body=nodes, padding=True, span=nest.pars[0].span),)
        serial = [self._serial_digit(p, e, covered[p.index]) for p, e in zip(nest.pars, extents, strict=True)]
        defines = tuple(
            Define(index=p.index, digits=(*((own,) if own else ()), *reversed(mine)))
            for p, own, mine in zip(nest.pars, serial, band.digits, strict=True)
        )
        nodes = (*defines, *nodes)
        for par, digit in reversed(list(zip(nest.pars, serial, strict=True))):
            if digit is not None:
                self.digits.append(digit)
                unroll = par.has("unroll") and constant_value(digit.radix) is not None
                nodes = (
                    Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=unroll, span=par.span),
                )
        return nodes

    def _serial_digit(self, par: Par, extent: IndexExpr, covered: int) -> Digit | None:
        radix = ceildiv(at_least_zero(extent), covered)
        if radix == ONE:
            return None
        return Digit(
            name=self.session.names.fresh(f"{par.index}_serial"),
            index=par.index,
            weight=covered,
            radix=radix,
            stride=ONE,
            place=Place.SERIAL,
        )


def _seq_ranges(stmts: tuple[Stmt, ...]) -> dict[str, tuple[IndexExpr, IndexExpr]]:
    """Ranges of the seq indices below, as far as they are bounded without outer indices."""
    found: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for stmt in walk(stmts):
        if isinstance(stmt, Seq):
            inside = index_range(stmt.extent, found)
            if inside is not None:
                found[stmt.index] = inside
    return found


def _threads_for(sizes: list[int], most: int) -> int:
    """Threads for that many iterations: a power of two from 32 to `most`."""
    total = 1
    for size in sizes:
        total = min(most, total * power_of_two(size))
    return max(MIN_THREADS, min(most, total))
