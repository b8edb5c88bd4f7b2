"""Reductions: nests of `seq`s that do nothing but update elements which none of their loops tells apart.

    seq M i { seq N k { let x = A[i, k]; s += x * x; t max= x } }      two updates, over i and k
    seq N k { if A[k] > top { top = A[k]; at = k } }                   one, of the pair (`picks.py`)

Their iterations may be made in any order, by any thread, each with a part of its own, but under `#ordered`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Gather,
    If,
    IndexConst,
    IndexExpr,
    IndexVar,
    Kernel,
    New,
    Par,
    Read,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.permissions import keeps_order, unroll_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.find_picks import picks
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.updates import Update, are_apart, changed, components, in_registers, local_of, targets
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.walk import read_accesses, subscript_names, value_reads

MIN_EXTENT = 64  # shorter reductions stay in one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """`loops`, outermost first, of which threads share out the last one, and the `updates` inside."""

    loops: tuple[Seq, ...]
    updates: tuple[Update, ...]

    @property
    def body(self) -> tuple[Stmt, ...]:
        return self.loops[-1].body

    @property
    def reading(self) -> tuple[Stmt, ...]:
        """The body, its updates without an element: they go to registers."""
        return changed(self.body, self._without_elements)

    def _without_elements(self, stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Accumulate) and any(stmt is update for update in self.updates):
            return (replace(stmt, subscripts=()),)
        return in_registers(stmt, self.updates, _some_registers)

    @property
    def over(self) -> Seq:
        return self.loops[-1]

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(loop.index for loop in self.loops)


def _some_registers(pick: Pick) -> tuple[tuple[Read, ...], str]:
    """Those of a pick and the local of its condition, under names of no buffer where the program has none."""
    registers = tuple(Read(buffer=f"#{c.id}", subscripts=(), dtype=c.dtype) for c in components(pick))
    return registers, local_of(pick) or f"#{pick.id}"


def reduction(kernel: Kernel, top: Seq, over: str) -> Reduction | None:
    """The nest from `top` to the index `over` as a reduction, None where it is none that may be shared out."""
    loops = [top]
    while loops[-1].index != over:
        if len(loops[-1].body) != 1 or not isinstance(loops[-1].body[0], Seq):
            return None
        loops.append(loops[-1].body[0])
    if any(keeps_order(loop) or unroll_of(loop) for loop in loops):
        return None
    own = {s.buffer for s in statements(loops[-1].body) if isinstance(s, New)}
    added = tuple(s for s in statements(loops[-1].body) if isinstance(s, Accumulate) and s.buffer not in own)
    found = Reduction(loops=tuple(loops), updates=(*added, *picks(kernel, loops)))
    written = {name for update in found.updates for name, _ in targets(update)}
    inside = tuple(statements(found.reading))
    for registers, local in (_some_registers(u) for u in found.updates if isinstance(u, Pick)):
        own |= {local, *(register.buffer for register in registers)}
    moving = {loop.index for loop in loops} | {s.index for s in inside if isinstance(s, Seq)}
    fits = (
        written
        and are_apart(found.updates)
        and all(_computes_only(kernel, stmt, own) for stmt in inside)
        and all(read.buffer not in written for read in reads_of(inside))
        and not any(keeps_order(stmt) for stmt in inside)
        and all(_told_by_none(update, moving) for update in added)
        and (_runs(loops, inside, added) or all(_exists(kernel, update) for update in added))
    )
    return found if fits else None


def _computes_only(kernel: Kernel, stmt: Stmt, own: set[str]) -> bool:
    """Whether a statement of a reduction's body is an update, or computes scalars that a thread keeps for itself."""
    match stmt:
        case New(buffer=name):
            return name.startswith("#") or is_scalar(kernel.buffer(name))
        case Bind(buffer=name):
            return name in own
        case Seq():
            return unroll_of(stmt) is None
        case Accumulate() | If():
            return True
        case _:
            return False


def is_scalar(buffer: Buffer) -> bool:
    return not buffer.shape and buffer.memory in (None, Memory.REG.value)


def _told_by_none(update: Accumulate, moving: set[str]) -> bool:
    gathered = any(isinstance(s, Gather) for s in update.subscripts)
    return not gathered and subscript_names(update.subscripts).isdisjoint(moving)


def _runs(loops: Sequence[Seq], inside: Sequence[Stmt], updates: Sequence[Accumulate]) -> bool:
    """Whether an iteration of each of the loops, whose extents depend on none of them, makes every update."""
    indices = {loop.index for loop in loops}
    fixed = all(names(loop.extent).isdisjoint(indices) for loop in loops)
    surely = all((constant_value(s.extent) or 0) > 0 for s in inside if isinstance(s, Seq))
    asked = {s.id for c in inside if isinstance(c, If) for s in statements((c,)) if isinstance(s, Accumulate)}
    return fixed and surely and not any(update.id in asked for update in updates)


def _exists(kernel: Kernel, update: Accumulate) -> bool:
    """Whether the element is there, also where nothing is added to it."""
    shape = kernel.buffer(update.buffer).shape
    extents = {s.index: s.extent for s in statements(kernel.body) if isinstance(s, Par | Seq)} if shape else {}
    return all(_is_inside(at, extent, extents) for at, extent in zip(update.subscripts, shape, strict=True))


def _is_inside(at: Subscript, extent: IndexExpr, extents: Mapping[str, IndexExpr]) -> bool:
    """Whether a subscript is surely inside of a dimension."""
    match at:
        case IndexConst(value=value):
            return 0 <= value < (constant_value(extent) or 0)
        case IndexVar(name=name):
            return extents.get(name) == extent
        case _:
            return False


def reads_of(stmts: Sequence[Stmt]) -> Iterator[Read]:
    """The reads of these statements themselves."""
    for stmt in stmts:
        match stmt:
            case Bind() | Accumulate() | Atomic():
                yield from read_accesses(stmt)
            case If(condition=Read() as read):
                yield from value_reads(read)
            case _:
                pass


def long_reduction(kernel: Kernel, stmt: Stmt) -> Reduction | None:
    """A statement as a reduction, None where it is none that may be long."""
    if not isinstance(stmt, Seq):
        return None
    nest = list(nest_of_seqs(stmt))
    extents = [constant_value(loop.extent) for loop in nest]
    long = any(extent is None or extent >= MIN_EXTENT for extent in extents)
    return reduction(kernel, stmt, nest[-1].index) if long else None


def nest_of_seqs(top: Seq) -> Iterator[Seq]:
    """The loops from `top` on that have nothing beside the next one in their bodies."""
    yield top
    if len(top.body) == 1 and isinstance(top.body[0], Seq):
        yield from nest_of_seqs(top.body[0])


def combinable(nest: Nest) -> tuple[int, ...]:
    """The dimensions of a band of accumulations over which the threads of a block may combine their updates, before
    one of them makes an atomic one: no element depends on them.

    None for a band with anything else in it, or whose extents depend on one another: there an element that no
    iteration updates need not exist.
    """
    updates = [s for s in nest.body if isinstance(s, Accumulate)]
    rectangular = all(names(p.extent).isdisjoint(nest.indices) for p in nest.pars)
    apart = len({u.buffer for u in updates}) == len(updates) == len(nest.body) > 0
    if not apart or not rectangular:
        return ()
    if any(isinstance(s, Gather) for u in updates for s in u.subscripts):
        return ()
    used = frozenset[str]().union(*(subscript_names(u.subscripts) for u in updates))
    return tuple(d for d, p in enumerate(nest.pars) if p.index not in used)


def as_reduction(nest: Nest, over: str) -> Nest:
    """A band of accumulations as one of the indices that tell their elements, around a reduction over the others, the
    last of which is `over`.

        par K k, N j { S[j] += A[k, j] }      par N j { seq K k { S[j] += A[k, j] } }
    """
    summed = [nest.pars[d] for d in combinable(nest)]
    body = in_seqs(sorted(summed, key=lambda p: p.index != over), nest.body)
    return Nest(pars=tuple(p for p in nest.pars if p not in summed), body=body)


def in_seqs(pars: Sequence[Par], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body in `seq`s in place of these `par`s, the first one innermost."""
    for par in pars:
        loop = Seq(
            index=par.index, source_name=par.source_name, extent=par.extent, body=body, low=par.low, span=par.span
        )
        body = (replace(loop, attrs=par.attrs),)
    return body
