"""What is before each thread of a tile, by columns: between barriers a thread has one, whatever it has of the rows.

    total_slots[e, unit, group] = total_part[e]                                 each thread, for its columns
    total_given[e, group] = total_before[e]                                     those of the first unit; barrier
    column = group of 32, e of 8                                                each thread, for one column
    for each unit: total_starts[e, unit, group] = total_column ;  total_column += total_slots[e, unit, group]
    look back from total_given[e, group], with total_column
    total_highs[e, group] = f32(total_found)                                    barrier
    total_start[e] = total_starts[e, unit, group] ;  total_high[e] = total_highs[e, group]

A thread with 8 columns would add what 16 units have of each, look back for 8 values of f64 and convert them: more than
it does with its own terms. Neighbouring threads have neighbouring slots, and look back for neighbouring values.
"""

from collections.abc import Callable, Sequence

from texpr.grammar.ast import And, Compare, CompareOp, Condition, Expr, IndexExpr, IndexVar
from texpr.grammar.index.expr import ZERO, add, const, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.scan_split import rest_of, split, widened
from texpr.polyhedral.map.scan_team import Chain, Fold, Team, by_columns
from texpr.polyhedral.map.scan_units import starts_of
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View


def before_each(team: Team, folds: Sequence[Fold], chunks: int, *, handed_on: bool) -> tuple[Node, ...]:
    """What is before each of a thread's chunks: by columns, or found by each thread for all of its own."""
    chain = team.chain
    if chain is not None and not handed_on and by_columns(team.choice, team.draft.target):
        return Columns(team, chain).nodes(folds)
    nodes: list[Node] = [node for fold in folds for node in starts_of(team, fold, chunks)]
    if chain is not None:
        nodes += [node for fold in folds for node in widened(team, fold)]
        nodes += [team.look_back_of_threads(fold, chain) for fold in folds]
    return (*nodes, *(node for fold in folds for node in split(team, fold)))


class Columns:
    """The columns of a block, and the threads that have one each: those of the first `elements` hold it."""

    def __init__(self, team: Team, chain: Chain) -> None:
        assert by_columns(team.choice, team.draft.target), "a thread for each column"
        self.team, self.chain = team, chain
        fresh = team.draft.names.fresh
        self.group, self.place, self.again = map(fresh, ("column", "column_place", "column_again"))
        names, elements = (self.group, self.place, self.again), team.groups * team.width
        pieces = tuple(enumerate((team.groups, team.width, team.choice.threads // elements)))
        found = thread_digits(names, pieces, team.draft.names, team.draft.target.warp_size)
        self.defines = tuple(
            Define(index=index, digits=tuple(reversed(mine))) for index, mine in zip(names, found.digits, strict=True)
        )
        self.standing = tuple(digit.name for digit in found.all)
        self.several = team.choice.threads > elements
        team.draft.digits += found.all

    @property
    def holds(self) -> Condition:
        """Whether a thread is the first one that has its column."""
        first = Compare(op=CompareOp.EQ, left=IndexVar(name=self.again), right=ZERO)
        return And(parts=(first,) if self.several else ())

    def given(self, fold: Fold) -> "Given":
        """Registers and shared memory for a fold."""
        team, base, carrier = self.team, fold.carrier.every[0], fold.carrier
        columns, here = (team.width, team.groups), (team.width, team.units, team.groups)

        def shared(word: str, dtype: DType, shape: Sequence[int]) -> str:
            return team.buffer(f"{base}_{word}", dtype, shape, Memory.SHARED)

        return Given(
            fold=fold,
            given=shared("given", carrier.dtype, columns),
            starts=shared("starts", carrier.within, here),
            column=team.buffer(f"{base}_column", carrier.within, ()),
            whole=team.buffer(f"{base}_whole", carrier.dtype, ()) if fold.is_split else "",
            found=team.buffer(f"{base}_found", carrier.dtype, ()),
            high=team.buffer(f"{base}_all", carrier.within, ()),
            highs=shared("highs", carrier.within, columns),
            rests=shared("rests", carrier.within, columns) if fold.is_split and not fold.is_rounded else "",
        )

    def nodes(self, folds: Sequence[Fold]) -> tuple[Node, ...]:
        """What is before each thread's terms, behind what all of them put into slots."""
        found = [self.given(fold) for fold in folds]
        body: list[Node] = [*self.defines]
        for part in (self._given, self._starts, self._look_back, self._told, self._taken):
            body += [node for given in found for node in part(given)]
        return tuple(body)

    def _at(self, *unit: IndexExpr) -> tuple[IndexExpr, ...]:
        """The place of a thread's column."""
        return (IndexVar(name=self.place), *unit, IndexVar(name=self.group))

    def _held(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """What one of the threads does that have a column."""
        return (Guard(condition=self.holds, body=tuple(nodes), span=self.team.span),) if self.several else tuple(nodes)

    def _each(self, node: Callable[[tuple[IndexExpr, ...], IndexExpr], Sequence[Node]]) -> tuple[Node, ...]:
        """Nodes for each of the columns of a thread: in its registers, and by which number."""
        name = self.team.draft.names.fresh("element")
        return self.team.each(name, self.team.width, node(self.team.of_thread(name), IndexVar(name=name)))

    def _own(self, given: "Given", what: str, buffer: str, at: tuple[IndexExpr, ...], value: Expr) -> Generic:
        return self.team.bind(given.fold, what, buffer, at, value, digits=self.standing)

    def _given(self, given: "Given") -> tuple[Node, ...]:
        """What the program has before the first iteration."""
        team, fold = self.team, given.fold

        def put(at: tuple[IndexExpr, ...], number: IndexExpr) -> Sequence[Node]:
            place, value = (number, IndexVar(name=team.group)), team.read(fold, fold.before, at)
            return (team.bind(fold, "give", given.given, place, value, digits=team.standing),)

        first = Compare(op=CompareOp.EQ, left=IndexVar(name=team.unit), right=ZERO)
        return Fresh(buffer=given.given), Guard(condition=first, body=self._each(put), span=team.span)

    def _starts(self, given: "Given") -> tuple[Node, ...]:
        """What the tile has of a column before each unit, and as a whole, added from left to right."""
        team, fold = self.team, given.fold
        unit = team.draft.names.fresh("each_unit")
        at = self._at(IndexVar(name=unit))
        so_far = team.read(fold, given.column, ())
        init = team.bind(fold, "column", given.column, (), team.nothing(fold), Origin.INIT, digits=self.standing)
        start = self._own(given, "starts", given.starts, at, so_far)
        slot = team.combine(fold, "slot", given.column, (), team.read(fold, fold.slots, at), digits=self.standing)
        loop = Loop(
            index=unit, extent=const(team.units), body=(*self._held((start,)), slot), unroll=True, span=team.span
        )
        return Fresh(buffer=given.starts), Fresh(buffer=given.column), init, loop

    def _look_back(self, given: "Given") -> tuple[Node, ...]:
        team, fold, dtype = self.team, given.fold, given.fold.carrier.dtype
        found = self._own(given, "found", given.found, (), team.read(fold, given.given, self._at()))
        nodes: list[Node] = [Fresh(buffer=given.found), found]
        if given.whole:
            value = as_type(team.read(fold, given.column, ()), dtype)
            nodes += [Fresh(buffer=given.whole), self._own(given, "whole", given.whole, (), value)]
        element = add(multiply(const(team.groups), IndexVar(name=self.place)), IndexVar(name=self.group))
        look = team.look_back(
            fold,
            self.chain,
            value=View(buffer=given.whole or given.column, subscripts=(), dtype=dtype),
            target=View(buffer=given.found, subscripts=(), dtype=dtype),
            element=element,
            holds=self.holds,
            own=fold.carrier.within if given.whole else None,
        )
        return (*nodes, look)

    def _told(self, given: "Given") -> tuple[Node, ...]:
        """What is before the tile, for all threads that have a part of the column."""
        team, fold, within = self.team, given.fold, given.fold.carrier.within
        found, high = (team.read(fold, name, ()) for name in (given.found, given.high))
        nodes: list[Node] = [Fresh(buffer=given.high), self._own(given, "high", given.high, (), as_type(found, within))]
        told: list[Node] = [self._own(given, "highs", given.highs, self._at(), high)]
        shared = [Fresh(buffer=given.highs)]
        if given.rests:
            told.append(self._own(given, "rests", given.rests, self._at(), rest_of(fold, found, high)))
            shared.append(Fresh(buffer=given.rests))
        return (*nodes, *shared, *self._held(told))

    def _taken(self, given: "Given") -> tuple[Node, ...]:
        """The same in the registers of each thread."""
        team, fold = self.team, given.fold
        before = [(fold.high if fold.is_split else fold.before, given.highs)]
        before += [(fold.rest, given.rests)] if given.rests else []

        def take(at: tuple[IndexExpr, ...], number: IndexExpr) -> Sequence[Node]:
            group, unit = IndexVar(name=team.group), IndexVar(name=team.unit)
            start = team.read(fold, given.starts, (number, unit, group))
            nodes = [team.bind(fold, "start", fold.start, at, start, digits=team.standing)]
            for register, shared in before:
                value = team.read(fold, shared, (number, group))
                nodes.append(team.bind(fold, "take", register, at, value, digits=team.standing))
            return nodes

        fresh = [Fresh(buffer=name) for name in (fold.start, *(n for n, _ in before if n != fold.before))]
        return (*fresh, *self._each(take))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What threads tell one another of a fold: what was `given` before the first iteration, the `starts` of units, and
    before the tile the `highs` and, where they are added up apart, the `rests`. Of its own column a thread has what the
    tile has (`column`, also as a `whole` of the wider type), what was `found` before it, and its `high`."""

    fold: Fold
    given: str
    starts: str
    column: str
    whole: str
    found: str
    high: str
    highs: str
    rests: str
