"""The choice of rows: which loops inside a block go over one row that its threads hold, and how many threads these are.

    softmax of 4096 columns   f32: 512 threads, 2 runs of 16 bytes each   bf16: 192 threads, 3 runs each
    of 4093                   f32: 288 threads, 4 runs each               bf16: 160 threads, 4 runs each

Measured on an H200, relative to a device copy, at some 30 lengths each: softmax of aligned rows in bf16 runs at .98 to
.99 with 3 runs of 16 bytes in each thread, with 2 at .97 to .99, in f32 with 2 at .97 to .99; RMSNorm with 3 at .97 to
.99, with 2 at .94 to .99; LayerNorm in bf16 with 4 at .97 to .98 (8192: .93), with 2 at .89 to .99. Rows whose runs are
counted from a line do best with 4 (RMSNorm in bf16 .97, .96 with 5 or 6), but LayerNorm in bf16, whose threads take too
many registers (.80 to .95). One run each is never enough (.81, .62). Threads without a run cost little, as long as no
load waits for another (`Within.ahead`). A row that one warp holds needs no barrier.

    softmax of 32000 columns  bf16: 512 threads, 8 runs each, 2 blocks on a multiprocessor

A block that has a multiprocessor for itself leaves memory idle while it computes: rows of 32000 in bf16 run at .65 with
800 threads, of which each takes 71 registers. So blocks of long rows are bound to the registers with which several are
there, and have as many of a row's runs as leave each thread enough beside them (by hand rows of 100003 run at .80 with
three blocks on a multiprocessor, at .76 with one).

    of 100003                 bf16: clusters of 8 blocks of 256 threads, 7 runs each     f32: 13 runs each
    of 524288                 both: clusters of 16 blocks of 512 threads, of bf16 two on a multiprocessor

A row for which no block has room in its registers, or room for itself alone, has a cluster of blocks (`row_clusters`):
with parts as long as leave several blocks room (softmax of 257 x 100003 in bf16 runs at .86 with eight blocks and four
on a multiprocessor, at .81 with four and two).

Where one loop alone reads a row, a vector that every block reads stays in the L1: held beside the row it took as many
registers again, and a matrix of 8192 x 32000 in f32 times a vector ran at .81, with runs of it in the loop at .99.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from texpr.grammar.ast import Leaf, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.interval import Ranges
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest, inner_nests, nest_of
from texpr.polyhedral.map.hardware_attributes import width_asked
from texpr.polyhedral.map.held import (
    Held,
    Member,
    held_by,
    held_bytes,
    row_origins,
    siblings,
    touches,
)
from texpr.polyhedral.map.lines import LINE_BYTES
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.row_blocks import TWO_EACH, few_blocks
from texpr.polyhedral.map.row_pairs import in_pairs, is_pair
from texpr.polyhedral.map.row_pieces import NORM_LOOPS, in_pieces
from texpr.polyhedral.map.row_room import BESIDE, HELD_BYTES, NARROW_BYTES, Long, usable
from texpr.polyhedral.map.row_slots import MOST_SLOTS, in_chunks, slot_bytes, slot_room
from texpr.polyhedral.map.sharing import shared_loops
from texpr.polyhedral.map.vectors import ACCESS_BYTES, along, arrays_of, element_width
from texpr.polyhedral.mapped.candidate import Row
from texpr.polyhedral.target import REGISTERS
from texpr.polyhedral.walk import read_accesses, subscript_names, written

LEAST_RUNS, MOST_RUNS = 2, 8  # of 16 bytes for a thread, so that several loads are on their way
SHORT_RUNS = 1024  # of an aligned row
LINED_RUNS = 1536  # of one in narrow elements that is counted from a line, a third more in others
FEW_RUNS = 640  # of an aligned one, in narrow elements, that no vectors lie beside
IDLE_PARTS = 8  # shares of idle threads are told apart by one part in so many, and from none
BOUND_THREADS = 1280  # of a multiprocessor, each with 48 registers
NORMED = 64  # registers of a thread that makes a norm of means and variances
LONG_ROW = 1 << 15  # elements: no block has room for such a row, or it has for nothing else


class Aim(NamedTuple):
    """How many runs a thread is to have, whether up to a quarter of the threads may lack one for that, whether the
    threads of a multiprocessor are `BOUND_THREADS`, and how many blocks it is to have registers for (0: any)."""

    runs: int
    spare: bool = False
    bound: bool = False
    blocks: int = 0


USUAL = Aim(5)


class Use(NamedTuple):
    """Whether loops over a row write along it, how many go over it beside vectors of all rows, which one of them reads
    (0: there are none), whether elements are below 32 bits, and how many such vectors there are."""

    writes: bool
    beside: int
    narrow: bool
    vectors: int

    @staticmethod
    def of(problem: Problem, loops: Sequence[Member], width: int) -> "Use":
        vectors = set[str]().union(*(_beside(problem, loop, loops) for loop in loops))
        writes = any(isinstance(loop, Par) for loop in loops)
        return Use(writes, len(loops) if vectors else 0, width * 4 > ACCESS_BYTES, len(vectors))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """Loops over a row, the neighbours that a thread takes at once, and the threads that hold it."""

    loops: tuple[Member, ...]
    width: int
    threads: int
    line: int = 0
    resident: int = 0
    cluster: int = 1
    slots: bool = False

    @property
    def row(self) -> Row:
        return Row(indices=tuple(loop.index for loop in self.loops), line=self.line, slots=self.slots)


def choose_rows(
    problem: Problem, nest: Nest, ranges: Ranges, widths: Mapping[str, int], asked: int | None, most_ranks: int
) -> tuple[ChosenRow, ...]:
    """The rows of a block, or of a cluster of at most `most_ranks`; `asked` are the threads that the author wants."""
    nests = [inner.pars[0].index for inner in inner_nests(nest.body) if len(inner.pars) == 1]
    shared = [seq.index for seq in shared_loops(problem, nest, ranges)]
    found: list[ChosenRow] = []
    for loops in siblings(nest.body, nests + shared):
        if len(loops) > 1 or (loops and isinstance(loops[0], Seq)):
            width = min(widths.get(loop.index, 1) for loop in loops)
            free = not any(width_asked((loop,)) for loop in loops)
            if free and problem.representative(loops[0].extent, ranges) <= problem.target.warp_size:
                free, width = False, 1  # a lane for each element
            row = _from_line(problem, nest, loops, width, ranges, asked, most_ranks) if free else None
            row = row or _row(problem, nest.body, loops, width, ranges, asked, most_ranks)
            found += [row] if row is not None else []
    return tuple(found)


def _from_line(
    problem: Problem,
    nest: Nest,
    loops: Sequence[Member],
    width: int,
    ranges: Ranges,
    asked: int | None,
    most_ranks: int,
) -> ChosenRow | None:
    """The row with runs counted from a line of memory, where its first element is not known to be aligned, and all that
    is written along it is wide then."""
    row = Row(indices=tuple(loop.index for loop in loops), line=LINE_BYTES)
    begins = row_origins(problem, nest.body, (row,))
    if not begins:
        return None
    count = ACCESS_BYTES // problem.kernel.buffer(begins[loops[0].index][0]).dtype.size_bytes
    if width >= count <= element_width(problem, begins[loops[0].index], loops[0].index):
        return None
    for loop in loops:
        body = nest_of(loop).body if isinstance(loop, Par) else loop.body
        hardware = (*nest.indices, loop.index)
        found = along(problem, body, loop.index, hardware, origin=begins[loop.index]).vectors(count)
        stored = {wide.element for wide in found.wide if wide.stores}
        moved = (target for s in statements(body) if isinstance(s, Leaf) and (target := written(s)) is not None)
        if not found.wide or any(loop.index in subscript_names(t[1]) and t not in stored for t in moved):
            return None
    return _row(problem, nest.body, loops, count, ranges, asked, most_ranks, LINE_BYTES)


def _row(
    problem: Problem,
    stmts: tuple[Stmt, ...],
    loops: Sequence[Member],
    width: int,
    ranges: Ranges,
    asked: int | None,
    most_ranks: int,
    line: int = 0,
) -> ChosenRow | None:
    """The loops that hold something, with threads for them."""
    warp, found = problem.target.warp_size, list[tuple[tuple[int, bool, int, int], ChosenRow]]()
    runs = -(-problem.representative(loops[0].extent, ranges) // width)
    use = Use.of(problem, loops, width)
    aim = _aim(use, runs, line, is_known=constant_value(loops[0].extent) is not None)
    blocks = few_blocks(problem, stmts, loops, width, use.vectors) if use.writes and not line else 0
    aim = Aim(TWO_EACH, blocks=blocks) if blocks else aim
    told = asked is not None or blocks_asked(problem.kernel, problem.target) is not None
    for threads in (asked,) if asked is not None else range(warp, problem.target.max_threads + 1, warp):
        held = _holding(problem, stmts, loops, threads, width, line)
        if held is None:
            continue
        size = max(width * problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements)
        rounds, scale = held.rounds, max(1, min(4, ACCESS_BYTES // size))
        places = threads * rounds
        free = aim.spare and 4 * (places - runs) <= places
        idle = 0 if free else -((runs - places) * IDLE_PARTS // places)
        many = max(0, rounds - MOST_RUNS * scale)
        alone = threads == warp and not many
        few = not alone and rounds < LEAST_RUNS * scale
        price = (many, few, 0 if alone else 1 + idle, abs(rounds - aim.runs * scale))
        bound = aim.bound and not alone and len(held.elements) == 1 and not told
        row = ChosenRow(
            loops=_touching(loops, held),
            width=width,
            threads=threads,
            line=line,
            resident=0 if told else BOUND_THREADS // threads if bound else aim.blocks,
        )
        found.append((price, row))
    usual = min(found, key=lambda one: one[0])[1] if found else None
    if asked is not None:
        return usual
    better = _pieces(problem, stmts, loops, use, width, line, most_ranks)
    better = better or _long(problem, stmts, loops, use, width, line, usual, most_ranks)
    return _bound(problem, use, usual) if better is None and usual is not None else better


def _aim(use: Use, runs: int, line: int, *, is_known: bool) -> Aim:
    """What was measured for rows that are written, with and without vectors of all rows beside them; others have
    several runs in flight. A case is of many lengths where a call decides that of a row (not `is_known`)."""
    beside, moments = use.beside > 1, use.beside >= NORM_LOOPS
    if not use.writes or not (line or runs <= SHORT_RUNS):
        return USUAL
    if line:
        fits = runs <= (LINED_RUNS if use.narrow else 4 * LINED_RUNS // 3) and not (moments and use.narrow)
        return Aim(4, spare=True) if fits else USUAL
    if beside and is_known:
        return Aim(4 if moments and use.narrow else 3, spare=True, bound=use.narrow and not moments)
    if not beside and use.narrow and runs <= FEW_RUNS:
        return Aim(3, spare=True, bound=True)
    return Aim(2)


def _pieces(
    problem: Problem,
    stmts: tuple[Stmt, ...],
    loops: Sequence[Member],
    use: Use,
    width: int,
    line: int,
    most_ranks: int,
) -> ChosenRow | None:
    """The row in pieces, in slots or registers, where several loops go over it and write it."""
    if not use.writes or len(loops) < 2 or blocks_asked(problem.kernel, problem.target) is not None:
        return None
    found = in_pairs(problem, stmts, loops, width, line) if use.narrow and use.beside >= NORM_LOOPS else None
    found = found or in_pieces(problem, stmts, loops, width, line, most_ranks, beside=use.beside > 0)
    if found is None:
        return None
    return ChosenRow(
        loops=_touching(loops, found.held),
        width=width,
        threads=found.threads,
        line=line,
        resident=found.resident,
        cluster=found.ranks,
        slots=found.slots,
    )


def _bound(problem: Problem, use: Use, row: ChosenRow) -> ChosenRow:
    """The row with so many blocks on a multiprocessor that its threads have `NORMED` registers each, where a loop
    writes it in narrow elements, counted from a line, and two loops before have made numbers of it: such a thread takes
    more unbound, for what vectors of all rows have beside it (LayerNorm of 32749 x 4093 in bf16 runs at .93 of a copy
    with 64 registers, at .89 with the 78 that it takes; RMSNorm, with a loop less, takes 66 and is as fast)."""
    if not (row.line and use.narrow and use.writes and use.beside) or len(row.loops) < NORM_LOOPS:
        return row
    if blocks_asked(problem.kernel, problem.target) is not None or row.threads == problem.target.warp_size:
        return row
    return replace(row, resident=REGISTERS // (row.threads * NORMED))


def _holding(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], threads: int, width: int, line: int
) -> Held | None:
    """What so many threads hold, where they have room for it."""
    held = held_by(problem, stmts, loops, threads * width, line)
    return held if held and held_bytes(problem, held, width) <= HELD_BYTES and threads * width >= line else None


def _touching(loops: Sequence[Member], held: Held) -> tuple[Member, ...]:
    return tuple(loop for loop in loops if any(touches(loop, name) for name, _ in held.elements))


def _long(
    problem: Problem,
    stmts: tuple[Stmt, ...],
    loops: Sequence[Member],
    use: Use,
    width: int,
    line: int,
    usual: ChosenRow | None,
    most_ranks: int,
) -> ChosenRow | None:
    """Few threads with long parts of a row, in one block or a cluster of them, where the usual number of threads leaves
    no room for another block, or none have room. Of elements below 32 bits whose runs are counted from a line, a thread
    that writes such a row has less room: it spilled up to 60 registers with 52 of a row (one that only reads does not:
    cross entropy of 100003 columns runs at .73 with three blocks, at .67 with two). Where one loop alone reads a row it
    needs nobody else meanwhile, but runs that are counted from a line, which is read one element at a time where it is
    not held."""
    target = problem.target
    own = None if usual is None else held_by(problem, stmts, usual.loops, usual.threads * width, line)
    room_beside = usual is not None and own is not None and _is_room_beside(usual.threads, own, width)
    streams = not line or (own is not None and own.rounds <= MOST_RUNS)
    alone = len(loops if usual is None else usual.loops) == 1
    writes, beside, narrow, _ = use
    if room_beside or (alone and streams) or blocks_asked(problem.kernel, target) is not None:
        return None
    own = held_by(problem, stmts, loops, width, line)
    pairs = own is not None and is_pair(own)
    for long in usable(
        narrow=narrow, reads=not writes and not alone, writes=writes, line=line, beside=beside, pairs=pairs
    ):
        held = _in_slots(problem, stmts, loops, long, width, line) or _in_registers(
            problem, stmts, loops, long, width, line, unpacked=bool(line) and narrow and writes
        )
        fits = long.threads * long.resident <= target.resident_threads
        if held is not None and fits and long.ranks <= min(target.max_cluster, most_ranks):
            return ChosenRow(
                loops=_touching(loops, held),
                width=width,
                threads=long.threads,
                line=line,
                resident=long.resident,
                cluster=long.ranks,
                slots=long.slots,
            )
    return None


def _in_registers(
    problem: Problem,
    stmts: tuple[Stmt, ...],
    loops: Sequence[Member],
    long: Long,
    width: int,
    line: int,
    *,
    unpacked: bool,
) -> Held | None:
    """What blocks hold in registers, where they have room for it."""
    held = None if long.slots else _holding(problem, stmts, loops, long.threads * long.ranks, width, line)
    if held is None:
        return None
    sizes = [problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements]
    room = long.unpacked_bytes if unpacked else long.room_bytes
    room = min(room, NARROW_BYTES) if min(sizes) < 4 else room
    fits = held_bytes(problem, held, width) <= room and all(long.takes(size, width) for size in sizes)
    return held if fits else None


def _in_slots(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], long: Long, width: int, line: int
) -> Held | None:
    """What blocks hold in slots, where they have room for it."""
    held = held_by(problem, stmts, loops, long.threads * long.ranks * width, line) if long.slots else None
    if held is None or held.rounds > MOST_SLOTS or not in_chunks(problem, held, width, line):
        return None
    room = slot_room(problem.target, long.resident, long.threads)
    fits = slot_bytes(problem, held, width, long.threads) <= room
    return held if fits and long.is_filled(constant_value(loops[0].extent), held.rounds * held.covered) else None


def _beside(problem: Problem, loop: Member, loops: Sequence[Member]) -> set[str]:
    """The arrays that a loop over a row reads along it, and no other loop of the row: vectors of all rows."""
    arrays = arrays_of(problem)

    def read(one: Member) -> set[str]:
        leaves = [stmt for stmt in statements(one.body) if isinstance(stmt, Leaf)]
        found = [r for leaf in leaves for r in read_accesses(leaf) if one.index in subscript_names(r.subscripts)]
        return {access.buffer for access in found if access.buffer in arrays}

    return read(loop).difference(*(read(other) for other in loops if other is not loop))


def _is_room_beside(threads: int, held: Held, width: int) -> bool:
    """Whether a multiprocessor has room for another block beside one of so many threads that hold a row."""
    elements = held.rounds * width * len(held.elements)
    return 2 * threads * (elements + BESIDE) <= REGISTERS
