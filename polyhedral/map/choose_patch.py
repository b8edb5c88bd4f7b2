"""The choice of a patch: how many neighbouring rows a thread takes whose reads are shifted copies of one another.

    par 1..M-1 i, 1..N-1 j { Y[i, j] = X[i - 1, j] + X[i, j] + X[i + 1, j] }   2 rows of i: 4 loads of X and not 6

Rows that several iterations read come once from memory and once more for each block that has them at its edge, so a
block has more rows than its threads alone: a warp lies along a row, and the warps under one another.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.windows import Patch, flat_patch
from texpr.polyhedral.mapped.candidate import Flat

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


def _patch(problem: Problem, nest: Nest, flat: Flat, down: str) -> Patch | None:
    """The patch of rows along an index, None where no row is read by several of its iterations."""
    patch = None if down in flat.widths else flat_patch(problem, nest, replace(flat, patch={down: ROWS}))
    return patch if patch is not None and any(window.spread for window in patch.windows) else None
