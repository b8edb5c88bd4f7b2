"""Reductions outside all bands, on a CPU: their loops become bands, which cores share out.

    S[0] = 0.0                                        S[0] = 0.0
    seq N i { S[0] += X[i] * Y[i] }                   par N i { S[0] += X[i] * Y[i] }

A `seq` is one core's; each core of a band leaves its part of the sum, and the parts are added in their order
(`codegen/cpu/launch.py`). Only totals are shared: an element of an array, outside the loops, of 32 bits or more, in the
type that it is computed in; a pick stays, and so does what is surely short.

Input: a kept program, and the outermost loops of such reductions. Output: the program with `par`s in their places. It
is proved too: its statements and accesses are the same, and a reduction may be made in any order (`reducible.py`).
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Accumulate, Kernel, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.polyhedral.map.kept import Kept, rebuilt
from texpr.polyhedral.map.reducible import nest_of_seqs, reduction
from texpr.polyhedral.map.updates import targets

SHORT = 1 << 14  # iterations that one core makes sooner than two


def to_share(kept: Kept) -> frozenset[str]:
    """The outermost loops of the reductions that cores could share out, by index."""
    kernel = kept.proved.program.kernel
    return frozenset(stmt.index for stmt in kernel.body if isinstance(stmt, Seq) and _is_total(kernel, stmt, kept.long))


def share(kept: Kept, loops: Collection[str]) -> Kept:
    """The program with these reductions as bands. Raises E0307 where its model takes too many steps."""
    if not loops:
        return kept
    kernel = kept.proved.program.kernel
    bands = iter(range(max((s.band for s in statements(kernel.body) if isinstance(s, Par)), default=-1) + 1, 1 << 30))
    body = tuple(_band(s, next(bands)) if isinstance(s, Seq) and s.index in loops else s for s in kernel.body)
    return replace(kept, proved=rebuilt(kept, replace(kernel, body=body)), shared=frozenset(loops))


def _is_total(kernel: Kernel, top: Seq, long: frozenset[str]) -> bool:
    loops = list(nest_of_seqs(top))
    found = reduction(kernel, top, loops[-1].index)
    if found is None or any(loop.attrs for loop in loops):
        return False
    extents = [constant_value(loop.extent) for loop in loops]
    if prod(extent for extent in extents if extent is not None) < SHORT and None not in extents:
        return False
    arrays = {name for update in found.updates for name, _ in targets(update)}
    if len(arrays) < len(found.updates):  # no core carries two elements of one
        return False
    free = not any(names(loop.extent) & {other.index for other in loops} for loop in loops)
    return free and all(isinstance(u, Accumulate) and _is_wide(kernel, u, long) for u in found.updates)


def _is_wide(kernel: Kernel, update: Accumulate, long: frozenset[str]) -> bool:
    stored = kernel.buffer(update.buffer).dtype
    return stored.bits >= 32 and (update.value.dtype == stored or update.id in long)


def _band(stmt: Seq, band: int) -> Par:
    inner: tuple[Stmt, ...] = stmt.body
    if len(stmt.body) == 1 and isinstance(stmt.body[0], Seq):
        inner = (_band(stmt.body[0], band),)
    return Par(
        index=stmt.index,
        source_name=stmt.source_name,
        extent=stmt.extent,
        body=inner,
        band=band,
        low=stmt.low,
        span=stmt.span,
    )
