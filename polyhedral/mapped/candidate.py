"""Candidates: the choices that make a mapping, as small data.

    {"matmul_0": Flat(threads=256, deal=(("j", 32), ("i", 8)), grid=("j", "i"), memory={})}

One candidate is one program, byte for byte: `build` decides nothing. `space` says which candidates a problem has, and
refuses one that does not fit it. Indices name loops, for no two loops of a checked kernel share a name.

A mapping is a candidate, or one for each of some cases:
    M % 128 == 0 and address(A) % 16 == 0: one candidate;   otherwise: another one
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import prod

from texpr.grammar.ast import And, Condition, IndexVar
from texpr.grammar.index.expr import conjunction, negation
from texpr.grammar.records import dataclass
from texpr.grammar.strides import address_name
from texpr.polyhedral.mapped.on_cores import OnCores
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.moves import Move

Deal = tuple[tuple[str, int], ...]
"""Threads of a block dealt to indices, fastest first: (("j", 32), ("i", 8)) gives j the lanes and i eight warps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """Plain statements, in one thread of one block. `memory` says where each local of the launch lies."""

    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A band whose iterations are dealt to threads and blocks; one thread runs the body alone.

    `deal` shares out the `threads` of a block; what they do not cover lies on the grid, whose fastest index comes first
    in `grid`. `widths`: of an index a thread takes so many neighbouring iterations at once, with wide accesses; in
    `lines` counted from a line of memory, that of an element which it writes, as the mapping prints it. `turns`: of an
    index it takes so many of these one after the other, each behind those of all threads of the block. `patch`: of
    another index a thread takes so many neighbouring iterations of each of these, and loads once what they read;
    without `widths` it takes them one after the other.
    """

    threads: int
    deal: Deal
    grid: tuple[str, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)
    patch: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def taken(self) -> Mapping[str, int]:
        """How many neighbouring iterations of an index a thread takes at once, where several."""
        return {**self.widths, **self.patch}

    @property
    def runs(self) -> int:
        """How many runs a thread has."""
        return prod((*self.turns.values(), *self.patch.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Indices of one extent, in text order, over each of which the threads of a block go in the same way: what several
    of them read of an array is loaded once, before the first, and held in registers. `line`: runs are counted from the
    last multiple of so many bytes in memory before the row, whatever its alignment; 0: from its first element. In
    `slots` it is held in shared memory, where each thread has its own, and copied there ahead."""

    indices: tuple[str, ...]
    line: int = 0
    slots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """A band each of whose iterations has a block; or a warp of one, where so many iterations of the first index of
    `grid` are `together` in it; or so many blocks, a `cluster`, which share its rows. `inner` deals the threads of a
    block that an iteration has to each nest inside, named by its first index; `shared_out` has the indices of the
    reductions (`seq`s) that they share. `widths`: as in a flat band, of indices of both. `rows`: what of these goes
    over a row that is held in registers. `resident` blocks fit on a multiprocessor together, which bounds registers
    (0: no bound, but the author's)."""

    threads: int
    grid: tuple[str, ...]
    inner: Mapping[str, Deal] = field(default_factory=dict)
    shared_out: tuple[str, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    together: int = 1
    cluster: int = 1
    resident: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def team(self) -> int:
        """The threads of a block that have an iteration."""
        return self.threads // self.together


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """A band of accumulations: the threads of a block share out the index `over`, `rounds` iterations each, and make
    one indivisible update together. `blocks` limits how many blocks an index gets; each then takes several parts.
    `widths`: as in a flat band, of `over`."""

    threads: int
    over: str
    rounds: int
    grid: tuple[str, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    blocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiled:
    """A band in tiles of two indices: a block brings what is `staged` of a tile to shared memory, with lanes `across`,
    and then runs the tile with lanes `along`; one thread runs the body alone.

        B[j, i] = A[i, j]      along i, across j: A[i, j] is staged

    `tile`: iterations of both that a block takes, powers of two; of other indices it takes one. `staged` has reads as
    the mapping prints them. `widths`: along, a thread takes so many neighbouring iterations at once; across, so many
    elements of what is staged. `grid` and `lines` as in a flat band; runs along are counted from sectors, and tiles
    overlap by one, so that no sector is written by two blocks. `phased`: rows of what is staged come in the chunks of
    memory that hold them, and lie in the tile as the rows that are written lie in theirs, so that nothing is shifted;
    the part of a tile that is its block's own has powers of two along. `strips`: a tile so has all of the index along,
    and what is written of it is one run of memory. `resident`: as in a launch of parts. `band`: so many tiles of the
    second index of the grid, of those that have several, come before the next one of the first.
    """

    threads: int
    along: str
    across: str
    tile: Mapping[str, int]
    staged: tuple[str, ...]
    grid: tuple[str, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    phased: bool = False
    strips: bool = False
    resident: int = 0
    band: int = 1
    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contracted:
    """A band of sums of products in tiles of two sides, of which each is of one factor only: a block brings the factors
    of so many products, its `depth`, to shared memory while it computes those before.

        C[i, j] = sum K k { A[i, k] * B[k, j] }      along j, across i, tiles of 128 by 128, 8 deep

    A side is an index, or several of one factor: `joined` has those before the innermost one, after which the side is
    called. `tile`: what a block computes of both sides, `each`: what a thread does, in squares with neighbours `along`
    and `across`; all powers of two. Of other indices a block takes one iteration. `ahead` 2: a thread has what the next
    products need in registers, over the barrier too. `parts`: so many blocks share the products of a tile, and the last
    one to be done adds their sums. `grid`, `resident` as in other bands.
    """

    threads: int
    along: str
    across: str
    tile: Mapping[str, int]
    each: Mapping[str, int]
    depth: int
    grid: tuple[str, ...]
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ahead: int = 1
    parts: int = 1
    resident: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """A band, or plain statements, with reductions (`seq`s) that threads and blocks share out.

    `deal` gives the band's indices threads of a block; the rest of its `threads` share each reduction, whose innermost
    shared index `shared_out` has. Of an index in `blocks`, one of each reduction or none, at most so many blocks share
    the iterations; the last one to be done finishes, in a fixed order. A thread loads `ahead` rounds before it adds
    them. `resident` blocks fit on a multiprocessor together, which bounds registers (0: no bound). `widths`: as in a
    flat band, of one index of the band or of the reductions. `lines`: neighbours of the band are counted from where
    what is read here is aligned, which is alike for all that a thread reads; what neighbouring blocks have, overlaps.
    A block ends a `strip` of so many of them (0: all but the last chunk that its threads read). `patch`: beside runs
    along reductions, a thread takes so many neighbouring iterations of one or two indices of the band, and loads once
    what they read. With `lines` of a reduction they are so far apart that what each has is aligned alike, and runs are
    counted from there. With `next_turn`, each round is loaded for the next turn as soon as it is added.
    """

    threads: int
    grid: tuple[str, ...]
    shared_out: tuple[str, ...]
    deal: Deal = ()
    blocks: Mapping[str, int] = field(default_factory=dict)
    ahead: int = 1
    resident: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    strip: int = 0
    patch: Mapping[str, int] = field(default_factory=dict)
    next_turn: bool = False
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def taken(self) -> Mapping[str, int]:
        """How many neighbouring iterations of an index a thread takes at once, where several."""
        return {**self.widths, **self.patch}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A band over columns that blocks hold: neighbouring threads, so many `lanes`, have neighbouring iterations of the
    index `across`, and the rest of a block's `threads`, a team, share the `loops` of each, which have one extent.

        par B b, N j { t = sum C c { X[b, c, j] } ; par C c { Y[b, c, j] = X[b, c, j] / t } }     across j, over c

    What these read of a column is loaded once, before the first, and held in registers. `widths`: as in a flat band, of
    the index across. `grid` and `resident` as in other bands.
    """

    threads: int
    across: str
    lanes: int
    loops: tuple[str, ...]
    grid: tuple[str, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    resident: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def shared(self) -> Parted:
        """How its loops are shared out: as reductions are, in one block each."""
        return Parted(
            threads=self.threads,
            grid=self.grid,
            shared_out=self.loops,
            deal=((self.across, self.lanes),) if self.lanes > 1 else (),
            resident=self.resident,
            widths=self.widths,
            memory=self.memory,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallied:
    """A band of `atomic` updates, of small arrays among others: each block has `copies` of such an array in shared
    memory, neighbouring lanes update different ones, and at its end it updates the array by what they have together.

        par N i { atomic H[K[i]] += 1 }       over i: 1024 threads, 32 copies of H

    The `threads` of a block go over one index. Of the one in `blocks` at most so many blocks share the iterations.
    `ahead`, `resident` and `widths` are as in `Parted`.
    """

    threads: int
    over: str
    copies: Mapping[str, int]
    blocks: Mapping[str, int] = field(default_factory=dict)
    ahead: int = 1
    resident: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def shared_out(self) -> Parted:
        """How its iterations are shared out: as those of a reduction."""
        return Parted(
            threads=self.threads,
            grid=(),
            shared_out=(self.over,),
            blocks=self.blocks,
            ahead=self.ahead,
            resident=self.resident,
            widths=self.widths,
            memory=self.memory,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A band, or plain statements, with scans (`seq`s that store a running fold) that the threads of a block share out.

        par M i { seq N j { s += X[i, j]; Y[i, j] = s } }     along j, or along i with i in `deal`, which lies across

    `deal` gives the band's indices threads of a block; the rest of its `threads` share each of the scans `shared_out`.
    Lanes lie `along` one of these, and a thread takes `ahead` rounds of `widths` neighbours of each, or along an index
    of the band, of which it takes `widths` neighbours, and `ahead` neighbours of each scan. With `look_back` each tile
    of the only scan has a block of its own, which has what is before from blocks that began earlier; else, with
    `next_tile`, what may be read early is loaded of each tile while the one before it is folded. Where lanes shift what
    they move, or tiles go through a `ring` of so many in shared memory (0: they do not), a block stores a `strip` of so
    many neighbours in each row, from a sector of memory on (0: all that it has, as they are); neighbouring blocks have
    the others, too. `lines` as in a flat band, for scans along which lanes
    lie; `resident` as in `Parted`."""

    threads: int
    grid: tuple[str, ...]
    shared_out: tuple[str, ...]
    along: str
    deal: Deal = ()
    ahead: int = 1
    look_back: bool = False
    next_tile: bool = False
    ring: int = 0
    strip: int = 0
    resident: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, Memory] = field(default_factory=dict)


Multiplied = Piped | Ringed
Choice = (
    Single | Flat | Blocks | Columns | Combined | Contracted | Multiplied | Parted | Tallied | Scanned | Tiled | OnCores
)


def widths_of(choice: Choice) -> Mapping[str, int]:
    """How many neighbouring iterations a thread takes, of the indices of which it takes several."""
    return (
        choice.widths
        if isinstance(choice, Flat | Blocks | Columns | Combined | Parted | Tallied | Scanned | Tiled)
        else {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A choice for every launch of the program after `moves`, by name. `wide`: arrays that carry long sums are in f64,
    too (`long_sums`). For the time of a call memory has the elements of `kept` buffers in f64, and parameters in `laid`
    where tensor maps have their rows, or threads neighbours; launches of their own copy them. Sums of squares in
    `centred` are made with an earlier sum, bands in `jammed` take their rows in pairs, and reductions over the loops in
    `shared` are bands. Launches in `early` begin while the one before ends, and wait for it; long arrays that those in
    `lasting` read the L2 gives up last, of those in `passing` first."""

    launches: Mapping[str, Choice]
    wide: bool = True
    kept: frozenset[str] = frozenset()
    laid: frozenset[str] = frozenset()
    centred: frozenset[str] = frozenset()
    jammed: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()
    passing: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A candidate for the calls of which a condition holds: on sizes, `stride_of` and `address_of` a parameter."""

    when: Condition
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """The first case that holds says how a call runs, `otherwise` where none does: so every call has a candidate."""

    cases: tuple[Case, ...]
    otherwise: Candidate


def first_of(when: Condition, before: Iterable[Case]) -> tuple[Condition, ...]:
    """What is known of a call for which a condition holds, and that of no case before."""
    own = _parts(when)
    left = ([part for part in _parts(case.when) if part not in own] for case in before)
    return (*own, *(negation(conjunction(parts)) for parts in left))


def _parts(condition: Condition) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, And) else (condition,)


Choices = Candidate | Cases


def address_of(parameter: str) -> IndexVar:
    """The address of an array's first element in bytes; conditions ask for its remainder by a number."""
    return IndexVar(name=address_name(parameter))


def stride_of(parameter: str, dim: int) -> IndexVar:
    """The stride of an array in elements, as the kernel declares it over its sizes."""
    return IndexVar(name=f"stride({parameter}, {dim})")
