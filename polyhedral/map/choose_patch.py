"""The choice of a patch: how many neighbouring rows a thread takes whose reads are shifted copies of one another.

    par 1..M-1 i, 1..N-1 j { Y[i, j] = X[i - 1, j] + X[i, j] + X[i + 1, j] }   2 rows of i: 4 loads of X and not 6

Rows that several iterations read come once from memory and once more for each block that has them at its edge, so a
block has more rows than its threads alone: two warps lie along a row, so that both have what is between them, and four
such pairs under one another; where that leaves warps beyond the ends of rows, four warps, each below the other (jacobi
on an H200: 131072 x 1024 in bf16 .915 of a copy, with eight warps under one another .896; 257 x 100003 in f32 .984,
.959; 32749 x 4093 in bf16, rows of 17 warps, .935 with four, .922 with eight, .916 in pairs). Four warps have all of a
row that needs no more, and eight of one that needs eight, and two such rows lie under one another: blocks have ends of
rows alone (131072 x 1024 in bf16 .922 in place of .907, and no more with four or eight such rows; in f32 .958 in place
of .951; 65536 x 2048 in bf16 .956 in place of .942; by hand, rows of sixteen warps .884 where pairs run at .951).

By hand 131072 x 1024 ran at .944 in bf16 and at .972 in f32, where threads at the ends of rows read the chunk that they
share with the border before all else, and write the whole of it: no sector is written in part then. Four rows of a
thread have .005 to .009 of that in bf16. Read only when it is written, that chunk costs more than it brings (.873 in
bf16), and a prefetch of it brings .004; with no border to be kept the same texts run at .984 and .968.

    par B b, H h, W w { Y[b, h, w] = maximum 3 y, 3 x { X[b, 2 * h + y, 2 * w + x] } }   bf16: 4 rows of h, f32: 2

So does a thread that reads element by element, and few bytes that no other one does: else a multiprocessor has too few
on their way (max pooling of 129 x 129 in bf16 runs at .64 of a copy with one row, at .73 with two, at .80 with four).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Accumulate, Bind, Gather, Leaf, New, Seq
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.block_sizes import DEFAULT_THREADS
from texpr.polyhedral.map.lines import begins, origins
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import arrays_of
from texpr.polyhedral.map.windows import Patch, flat_patch
from texpr.polyhedral.mapped.candidate import Flat
from texpr.polyhedral.walk import read_accesses, subscript_names, written

MANY_ROWS = (4, 2)
ON_THEIR_WAY = 40  # bytes of a thread that reads them one by one
PAIR = 2  # warps that lie along a row
WHOLE = (4, 8)  # warps that have all of a row
BEYOND = 1.05  # times the warps that a row needs
LEAST_READS, MOST_READS = 4, 64  # of an iteration, which are written out
ROWS = 2  # of a thread; with more, fewer threads have room (jacobi of bf16 on an H200: .960, with 4 .945, with 1 .884)


def choose_patch(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat) -> dict[str, int]:
    """Of which index a thread of a flat launch takes several rows, and how many; none where no row is read twice, or
    iterations are too few."""
    extents = dict(zip(nest.indices, sizes, strict=True))
    busy = problem.target.multiprocessors * problem.target.resident_threads
    found: list[tuple[int, str]] = []
    for down in reversed(nest.indices):
        patch = _patch(problem, nest, flat, down)
        if patch is not None and extents[down] >= ROWS and prod(sizes) >= busy * patch.count * ROWS:
            found.append((sum(window.rows for window in patch.windows), down))
    return {min(found, key=lambda one: one[0])[1]: ROWS} if found else {}


def patch_shape(problem: Problem, nest: Nest, extent: int, flat: Flat) -> tuple[int, int]:
    """The threads of a block whose rows are so long, and how many of its warps lie along one."""
    ((index, count),) = flat.widths.items()
    found = origins(problem, nest, flat.lines)
    reached = extent + (begins(problem, found[index], index)[1] if index in found else 0)
    needed = -(-reached // (count * problem.target.warp_size))
    if needed in WHOLE:
        return PAIR * needed * problem.target.warp_size, needed
    return (DEFAULT_THREADS, PAIR) if -(-needed // PAIR) * PAIR <= BEYOND * needed else (DEFAULT_THREADS // 2, 1)


def _patch(problem: Problem, nest: Nest, flat: Flat, down: str) -> Patch | None:
    """The patch of rows along an index, None where no row is read by several of its iterations."""
    patch = None if down in flat.widths else flat_patch(problem, nest, replace(flat, patch={down: ROWS}))
    return patch if patch is not None and any(window.spread for window in patch.windows) else None


def choose_rows_below(problem: Problem, nest: Nest, sizes: Sequence[int], flat: Flat) -> dict[str, int]:
    """Of which index a thread takes several iterations one after the other, and how many, where an iteration reads few
    bytes, one element at a time."""
    if len(flat.grid) < 2 or flat.widths or flat.turns or flat.patch:
        return {}
    new_bytes, down = _new_bytes(problem, nest, sizes), flat.grid[1]
    busy = problem.target.multiprocessors * problem.target.resident_threads
    for rows in MANY_ROWS:
        fits = sizes[nest.indices.index(down)] >= rows and prod(sizes) >= busy * rows
        patch = {down: rows}
        if new_bytes and rows * new_bytes <= ON_THEIR_WAY and fits and are_rows(nest, replace(flat, patch=patch)):
            return patch
    return {}


def are_rows(nest: Nest, flat: Flat) -> bool:
    """Whether a thread of a flat launch takes neighbouring iterations of an index, each by itself."""
    box = not any(names(par.extent) & set(nest.indices) for par in nest.pars)
    return box and flat.patch.keys() <= set(nest.indices) and len(flat.patch) == 1 and not (flat.widths or flat.turns)


def _new_bytes(problem: Problem, nest: Nest, sizes: Sequence[int]) -> int:
    """How many bytes an iteration reads that no other one does, on the average, where it reads several elements of
    arrays that the launch does not write, and does nothing else for long; else 0."""
    extents: dict[str, int] = {}
    for stmt in statements(nest.body):
        if isinstance(stmt, Seq):
            extents[stmt.index] = constant_value(stmt.extent) or MOST_READS + 1
        elif not isinstance(stmt, New | Bind | Accumulate):
            return 0
    if not extents or prod(extents.values()) > MOST_READS:
        return 0
    leaves = [stmt for stmt in statements(nest.body) if isinstance(stmt, Leaf)]
    changed = {target[0] for leaf in leaves if (target := written(leaf)) is not None}
    reads = Counter[str]()
    for leaf in leaves:
        for read in read_accesses(leaf):
            if read.buffer in arrays_of(problem) - changed and not any(isinstance(s, Gather) for s in read.subscripts):
                used = subscript_names(read.subscripts)
                reads[read.buffer] += prod(n for index, n in extents.items() if index in used)
    if max(reads.values(), default=0) < LEAST_READS:
        return 0
    found = 0
    for name, count in reads.items():
        buffer = problem.kernel.buffer(name)
        elements = prod(problem.representative(extent, {}) for extent in buffer.shape)
        found += min(count, -(-elements // max(prod(sizes), 1))) * buffer.dtype.size_bytes
    return found
