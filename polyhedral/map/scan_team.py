"""The threads that share scans out: where each stands, and what they have of a fold.

256 threads, lanes along j       a team of 256: 8 units of 32 lanes, which scan by shuffles
32 x 8 threads, lanes across     32 groups, each a team of 8 units of one thread
"""

from collections.abc import Sequence
from math import prod

from texpr.grammar.ast import (
    Accumulate,
    And,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    Expr,
    IndexExpr,
    IndexVar,
    Read,
    Subscript,
)
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import ZERO, const, constant_value, multiply, product
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.crew import team_of
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.problem import Region, plain_nest
from texpr.polyhedral.map.scan import Carrier, Scan
from texpr.polyhedral.map.scan_shifted import Strip
from texpr.polyhedral.map.scan_work import Scans, is_rounded
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.mapped.candidate import Scanned
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Loop, Node
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.names import stem
from texpr.polyhedral.target import Target

COLUMNS = 4  # of a thread, from which on each thread has one of them between barriers
CROWDED = 8  # blocks of the same scans for each that other scans have, at a time
REASONS = {
    Memory.REG: "a thread's part of a scan",
    Memory.GLOBAL: "what blocks have of a scan, and all up to each of them",
    Memory.SHARED: "where a block's threads tell one another of a scan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The digits of statements that every thread of a team runs, on what one of them may have written: a band of their
    own, apart from that of what each thread does for itself."""

    digits: tuple[str, ...]
    unused: Unused | None

    @staticmethod
    def of(band: ThreadDigits) -> "Alike":
        *others, member = ([d.name for d in mine] for mine in band.digits)
        shared = [name for mine in others for name in mine]
        if shared:
            return Alike(digits=(*member, *shared), unused=None)
        return Alike(digits=(), unused=Unused.REPLICATED if member else None)


def covered_by_team(choice: Scanned, index: str) -> int:
    """How many iterations of a scan's index a block takes at a time."""
    return team_of(choice) * choice.widths.get(index, 1) * choice.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The registers of a carrier: the fold `before` a tile, the `terms` of a thread's iterations, what it has of them
    in its `part`s, what the `lanes` before it have, what a tile has before its unit (`start`) and as a whole (`tile`),
    and the fold `now`. Units put what they have in `slots` in shared memory. Where tiles hand on a wider type, `whole`
    is a tile's fold in it; what is before is `high`, rounded, and a `rest`, with which `now` begins, or, where all that
    asks for it `is_rounded`, `high` alone."""

    carrier: Carrier
    before: str
    terms: str
    part: str
    lanes: str
    slots: str
    start: str
    tile: str
    now: str
    whole: str
    high: str
    rest: str
    is_rounded: bool

    @property
    def is_split(self) -> bool:
        return self.carrier.within != self.carrier.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Where a block stands among those that look back: at one of the `tiles` of the band, with a `part` of `parts`."""

    part: str
    parts: IndexExpr
    at: tuple[IndexExpr, ...]
    tiles: tuple[IndexExpr, ...]


class Team:
    """What the parts of a launch in the making share. A `team` of threads shares each scan: `lanes` of a warp by
    shuffles, `units` of them by slots in shared memory; a block has `groups` of teams. `own` are the digits of
    a thread, `alike` those of what a team does alike. A thread has `width` neighbours of the index `across`, if any,
    from the value of the name in `firsts` on."""

    chain: Chain | None = None

    def __init__(self, draft: Draft, region: Region, choice: Scanned, strip: Strip | None = None) -> None:
        self.draft, self.choice = draft, choice
        self.nest, self.ranges = plain_nest(region)
        self.span = region.stmts[0].span.to(region.stmts[-1].span)
        fresh, warp = draft.names.fresh, draft.target.warp_size
        self.team = team_of(choice)
        self.is_along = choice.along in choice.shared_out
        self.lanes = min(self.team, warp) if self.is_along else 1
        self.units = self.team // self.lanes
        self.groups = choice.threads // self.team
        self.across = next((p for p in self.nest.pars if p.index in choice.widths), None)
        self.width = choice.widths[self.across.index] if self.across is not None else 1
        self.strip = strip or (self._strip() if choice.strip else None)
        self.firsts = {p.index: fresh(f"{stem(p.index)}_first") for p in self.nest.pars if p is self.across}
        self.member = fresh("member")
        own = tuple((self.nest.indices.index(index), n) for index, n in choice.deal)
        rest = ((len(self.nest.indices), self.team),) if self.team > 1 else ()
        pieces = (*rest, *own) if self.is_along else (*own, *rest)
        self.band = thread_digits((*self.nest.indices, self.member), pieces, draft.names, warp, choice.widths)
        self.own = tuple(d.name for d in self.band.all)
        self.alike = Alike.of(self.band)
        self.lane, self.unit, self.group = map(fresh, ("in_lanes", "unit", "group"))
        numbers = (self.lane, self.unit, self.group)
        counts = ((0, self.lanes), (1, self.units), (2, self.groups))
        stand = thread_digits(numbers, counts if self.is_along else (counts[2], counts[1]), draft.names, warp)
        self.stand = tuple(
            Define(index=index, digits=tuple(reversed(mine))) for index, mine in zip(numbers, stand.digits, strict=True)
        )
        self.standing = tuple(d.name for d in stand.all)
        draft.digits += (*self.band.all, *(stand.all if self.team > 1 else ()))

    def _strip(self) -> Strip:
        assert self.across is not None, "a thread has neighbours of the band"
        first, count = self.draft.names.fresh(f"{stem(self.across.index)}_strip"), self.width * self.choice.deal[0][1]
        return Strip(self.draft, self.across, first, count, self.choice.strip)

    def of_thread(self, name: str) -> tuple[IndexExpr, ...]:
        """The place of one of a thread's elements in registers."""
        return (IndexVar(name=name),) if self.width > 1 else ()

    def each(self, name: str, count: int, body: Sequence[Node]) -> tuple[Node, ...]:
        """The body so many times, unrolled."""
        if count == 1:
            return tuple(body)
        return (Loop(index=name, extent=const(count), body=tuple(body), unroll=True, span=self.span),)

    def digit(self, index: str, word: str, weight: int, radix: int, place: Place) -> Digit | None:
        if radix == 1:
            return None
        name = self.draft.names.fresh(f"{stem(index)}_{word}")
        digit = Digit(name=name, index=index, weight=weight, radix=const(radix), stride=const(1), place=place)
        self.draft.digits.append(digit)
        return digit

    def unrolled(self, digit: Digit | None, body: Sequence[Node]) -> tuple[Node, ...]:
        if digit is None:
            return tuple(body)
        nodes = tuple(body)
        return (Loop(index=digit.name, extent=digit.radix, body=nodes, digit=digit, unroll=True, span=self.span),)

    @property
    def is_first(self) -> Condition:
        """Whether a thread is the first one of its team."""
        return Compare(op=CompareOp.EQ, left=IndexVar(name=self.member), right=ZERO)

    # ---- registers, and statements of the launch's own ----

    def fold(self, scan: Scan, carrier: Carrier) -> Fold:
        """Registers for a carrier."""
        wide = choice_width(self.choice, scan)
        ahead, neighbours = self.choice.ahead, self.width if self.across is not None else wide
        chunks, mine = (ahead if self.is_along else self.width), self.width
        of = {
            "before": (mine,),
            "terms": (ahead, neighbours),
            "part": (chunks,),
            "lanes": (chunks,),
            "start": (chunks,),
            "tile": (mine,),
            "now": (mine,),
            "whole": (mine,),
            "high": (mine,),
            "rest": (mine,),
        }
        base = carrier.every[0]
        types = {"terms": carrier.term.dtype, "before": carrier.dtype, "whole": carrier.dtype}
        names = {
            word: self.buffer(f"{base}_{word}", types.get(word, carrier.within), shape) for word, shape in of.items()
        }
        slots = (chunks, self.units, self.groups)
        shared = self.buffer(f"{base}_slots", carrier.within, slots, Memory.SHARED)
        return Fold(carrier=carrier, slots=shared, is_rounded=is_rounded(self.draft.kernel, scan, carrier), **names)

    def buffer(self, wanted: str, dtype: DType, shape: Sequence[int], memory: Memory = Memory.REG) -> str:
        layout = row_major(tuple(const(n) for n in shape if n > 1 or memory is Memory.SHARED))
        return self.draft.local(wanted, dtype, memory, layout, REASONS[memory])

    def read(self, fold: Fold, buffer: str, at: tuple[IndexExpr, ...]) -> Read:
        dtype, span = self.draft.buffers[buffer].dtype, fold.carrier.update.span
        return Read(buffer=buffer, subscripts=at, dtype=dtype, span=span)

    def term(self, fold: Fold, at: tuple[IndexExpr, ...]) -> Expr:
        """A term in the type in which it is folded."""
        carrier = fold.carrier
        read = Read(buffer=fold.terms, subscripts=at, dtype=carrier.term.dtype, span=carrier.update.span)
        return as_type(read, carrier.within)

    def bind(
        self,
        fold: Fold,
        what: str,
        buffer: str,
        at: tuple[Subscript, ...],
        value: Expr,
        origin: Origin = Origin.COMBINE,
        digits: tuple[str, ...] | None = None,
    ) -> Generic:
        update = fold.carrier.update
        id = self.draft.names.fresh(f"{update.id}_{what}")
        leaf = Bind(id=id, buffer=buffer, subscripts=at, value=value, span=update.span)
        return Generic(id=id, leaf=leaf, origin=origin, digits=self.own if digits is None else digits)

    def combine(
        self, fold: Fold, what: str, buffer: str, at: tuple[IndexExpr, ...], value: Expr,
        digits: tuple[str, ...] | None = None,
    ) -> Generic:  # fmt: skip
        """The value combined into a register."""
        update = fold.carrier.update
        id = self.draft.names.fresh(f"{update.id}_{what}")
        leaf = Accumulate(id=id, op=update.op, buffer=buffer, subscripts=at, value=value, span=update.span)
        return Generic(id=id, leaf=leaf, origin=Origin.COMBINE, digits=self.own if digits is None else digits)

    def look_back_of_threads(self, fold: Fold, chain: Chain) -> LookBack:
        """What the blocks before have, onto what is before the first, for all elements of a thread."""
        zeros = tuple(i for i, n in ((self.lane, self.lanes), (self.unit, self.units)) if n > 1)
        index = self.draft.names.fresh("element")
        at, dtype = self.of_thread(index), fold.carrier.dtype
        return self.look_back(
            fold,
            chain,
            value=View(buffer=fold.whole if fold.is_split else fold.tile, subscripts=at, dtype=dtype),
            target=View(buffer=fold.before, subscripts=at, dtype=dtype),
            element=multiply(const(self.width), IndexVar(name=self.group)),
            holds=And(parts=tuple(Compare(op=CompareOp.EQ, left=IndexVar(name=name), right=ZERO) for name in zeros)),
            over=((index, const(self.width)),) if self.width > 1 else (),
        )

    def look_back(
        self,
        fold: Fold,
        chain: Chain,
        *,
        value: View,
        target: View,
        element: IndexExpr,
        holds: Condition,
        over: Box = (),
        own: DType | None = None,
    ) -> LookBack:
        """What the blocks before have, onto what is before the first."""
        update, elements = fold.carrier.update, self.groups * self.width
        fresh, base = self.draft.names.fresh, fold.carrier.every[0]
        flags = fresh(f"{base}_flags")
        self.draft.words.append(Words(name=flags, shape=(*chain.tiles, chain.parts), init=Init.ZERO_EACH_CALL))
        one_asks = _one_asks(elements, chain, self.draft.target)
        held = product((*chain.tiles, chain.parts, const(2 * elements)))
        return LookBack(
            id=fresh(f"{update.id}_look"),
            monoid=OF_UPDATE[update.op],
            value=value,
            target=target,
            over=over,
            at=chain.at,
            part=IndexVar(name=chain.part),
            element=element,
            elements=elements,
            holds=holds,
            flags=flags,
            space=self.array(f"{base}_folds", fold.carrier, held, Memory.GLOBAL),
            hand=self.array(f"{base}_hand", fold.carrier, const(elements + one_asks), Memory.SHARED),
            one_asks=one_asks,
            own=own,
            span=update.span,
        )

    def array(self, wanted: str, carrier: Carrier, extent: IndexExpr, memory: Memory) -> str:
        """Memory of one dimension, of the block or of all."""
        return self.draft.local(wanted, carrier.dtype, memory, row_major((extent,)), REASONS[memory])

    def nothing(self, fold: Fold, dtype: DType | None = None) -> Const:
        """The fold of no terms, in the type of a tile's folds or another one."""
        carrier, own = fold.carrier, dtype or fold.carrier.within
        return Const(value=first_of(carrier.update.op, own), dtype=own)


def _one_asks(elements: int, chain: Chain, target: Target) -> bool:
    """Whether one warp asks how far the blocks before are, for all that have elements: where that would be more than
    two, or many blocks with parts of the same scans do so at a time. On an H200 131072 x 1024 runs at .829 of a copy in
    bf16 (.790 where both warps ask) and at .892 in f32 (.856), but 8192 x 32000 at .815 (.846)."""
    beside = constant_value(product(chain.tiles))
    crowded = beside is not None and target.multiprocessors >= CROWDED * beside
    return elements > 2 * target.warp_size or (elements > target.warp_size and crowded)


def by_columns(choice: Scanned, target: Target) -> bool:
    """Whether between barriers each thread has one column, where it has more of them among its own: as many as make
    that fewer additions than what units have of them, and whole warps."""
    columns = choice.threads // team_of(choice) * prod(choice.widths.values())
    several = choice.look_back and choice.along not in choice.shared_out and team_of(choice) > 1
    some = prod(choice.widths.values()) >= COLUMNS
    return several and some and columns % target.warp_size == 0 and choice.threads % columns == 0


def slot_bytes(choice: Scanned, found: Scans, target: Target) -> int:
    """The shared memory in which teams meet, and hand on what is before them."""
    team, is_along = team_of(choice), choice.along in choice.shared_out
    neighbours = 1 if is_along else prod(choice.widths.values())
    slots = (choice.ahead if is_along else neighbours) * choice.threads if team > 1 else 0
    hands = choice.threads // team * neighbours + 1 if choice.look_back else 0
    told = 0
    if by_columns(choice, target):
        hands, told, slots = 2 * hands, 2 * hands, 2 * slots
    carriers = [carrier for one in found.scans for carrier in one.carriers]
    return sum((slots + told) * c.within.size_bytes + hands * c.dtype.size_bytes for c in carriers)


def choice_width(choice: Scanned, scan: Scan) -> int:
    """How many neighbouring iterations of a scan a thread takes."""
    return choice.widths.get(scan.index, 1)
