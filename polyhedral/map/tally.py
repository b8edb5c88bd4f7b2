"""Tallies: bands of `atomic` updates of small arrays, of which each block may keep copies of its own.

    par N i { if K[i] >= 0 { atomic H[K[i]] += W[i] } }      H: i32[256]

The iterations of a band stand in no order, and an `atomic` gives no value back, so its updates of one array, with one
operator, in the array's own type, may be made in any order and in any groups. What a band of them does beside is to
compute scalars of an iteration. Not under `#ordered`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import prod

from texpr.grammar.ast import AccOp, Accumulate, Atomic, Bind, Buffer, Gather, If, Kernel, New, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.permissions import keeps_order, unroll_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest, has_block_level
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction, in_seqs, is_scalar, nest_of_seqs, reads_of

WORD_BYTES = (4, 8)  # of elements that the machine updates by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Reduction):
    """The loops of a band, and the operator of each array of which blocks may have copies."""

    of: Mapping[str, AccOp]

    @property
    def reading(self) -> tuple[Stmt, ...]:
        """What an iteration reads: each update adds what it reads to no element."""
        return tuple(reader for stmt in self.body for reader in _readers(stmt))


def _readers(stmt: Stmt) -> Iterator[Stmt]:
    match stmt:
        case Atomic():
            for value in (stmt.value, *(s.value for s in stmt.subscripts if isinstance(s, Gather))):
                yield Accumulate(id=stmt.id, op=stmt.op, buffer=stmt.buffer, subscripts=(), value=value, span=stmt.span)
        case If(then=then, orelse=orelse):
            arms = (tuple(r for inner in arm for r in _readers(inner)) for arm in (then, orelse))
            yield replace(stmt, then=next(arms), orelse=next(arms))
        case _:
            yield stmt


def tally(problem: Problem, nest: Nest, over: str) -> Tally | None:
    """A band as a tally whose threads go over one of its indices; None where it is none."""
    kernel, inside = problem.kernel, tuple(statements(nest.body))
    own = {s.buffer for s in inside if isinstance(s, New)}
    fixed = all(names(par.extent).isdisjoint(nest.indices) for par in nest.pars)
    if over not in nest.indices or not fixed or has_block_level(kernel, nest):
        return None
    if any(keeps_order(s) for s in (*nest.pars, *inside)) or not all(_is_own(kernel, s, own) for s in inside):
        return None
    read = {access.buffer for access in reads_of(inside)}
    updates = [s for s in inside if isinstance(s, Atomic)]
    found: dict[str, AccOp] = {}
    for name in dict.fromkeys(update.buffer for update in updates):
        mine = [update for update in updates if update.buffer == name]
        same = {(update.op, update.value.dtype) for update in mine} == {(mine[0].op, kernel.buffer(name).dtype)}
        if same and name not in read | own and elements(kernel.buffer(name)) is not None:
            found[name] = mine[0].op
    if not found:
        return None
    (top,) = in_seqs(sorted(nest.pars, key=lambda par: par.index != over), nest.body)
    assert isinstance(top, Seq), "a band has a loop"
    return Tally(loops=tuple(islice(nest_of_seqs(top), len(nest.pars))), updates=(), of=found)


def _is_own(kernel: Kernel, stmt: Stmt, own: set[str]) -> bool:
    """Whether a statement is an update, or computes scalars that a thread keeps for itself."""
    match stmt:
        case New(buffer=name):
            return is_scalar(kernel.buffer(name))
        case Bind(buffer=name) | Accumulate(buffer=name):
            return name in own
        case Atomic(buffer=name):
            return name not in own
        case Seq():
            return unroll_of(stmt) is None
        case _:
            return isinstance(stmt, If)


def elements(buffer: Buffer) -> int | None:
    """How many elements an array has, None where sizes leave it open, or it has none that is updated by itself."""
    counts = [constant_value(extent) for extent in buffer.shape]
    known = [count for count in counts if count is not None]
    able = buffer.dtype.size_bytes in WORD_BYTES and not buffer.dtype.is_bool
    return prod(known) if able and len(known) == len(counts) and min(known, default=1) > 0 else None


def copied_bytes(problem: Problem, copies: Mapping[str, int]) -> int:
    """The shared memory of a block with so many copies of each array."""
    total = 0
    for name, count in copies.items():
        buffer = problem.kernel.buffer(name)
        total += count * (elements(buffer) or 0) * buffer.dtype.size_bytes
    return total
