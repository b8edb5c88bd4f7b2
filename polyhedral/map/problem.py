"""The problem of a mapping: what the proved program, the target and representative sizes leave open.

A kernel's host structure is its outline: each outermost band of `par`s is a region, as are runs of statements outside
any `par`; a region becomes one launch. A `seq` around `par`s is a loop of launches, an `if` around them a condition on
the host, or, where it depends on data, one that every launch inside asks for itself (`saved`). A reduction that waits
for plain statements before it begins a region of its own, since blocks may share it out.

    seq T t { par M i { … } ; if t < 3 { par N j { … } } }
    loop t: region k_0 (i) ; if t < 3: region k_1 (j)
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Bind,
    Buffer,
    Condition,
    If,
    IndexExpr,
    Kernel,
    New,
    Par,
    Read,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import names
from texpr.grammar.index.interval import Ranges, bounds, index_range
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.facts import size_divisors, size_least
from texpr.polyhedral.layout.declared import declared_layout
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.bands import Nest, bounded_nest
from texpr.polyhedral.map.flattened import flattened
from texpr.polyhedral.map.fused import fused
from texpr.polyhedral.map.hardware_attributes import check_host_loop
from texpr.polyhedral.map.joined import joined
from texpr.polyhedral.map.kept import Kept
from texpr.polyhedral.map.objective import Objective, WeightedAccess
from texpr.polyhedral.map.reducible import long_reduction, reads_of
from texpr.polyhedral.map.single import without_single
from texpr.polyhedral.mapped.program import HostIf, HostLoop
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target
from texpr.polyhedral.walk import contains_par, touched

DEFAULT_SIZE = 1024  # what a free size is taken to be where a choice needs a number
MAX_WEIGHT = 1 << 40  # weights of accesses in loops stop growing here

Saved = tuple[tuple[Read, bool], ...]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What one launch runs: an outermost `par`, or statements outside any `par`. `host` has the host indices around it,
    `saved` the data-dependent conditions around it and whether each must hold."""

    name: str
    stmts: tuple[Stmt, ...]
    host: tuple[str, ...]
    saved: Saved

    @property
    def is_alone(self) -> bool:
        """Whether a call runs it once, and asks no data whether to: what a call clears is clear when it begins."""
        return not self.host and not self.saved

    @property
    def band(self) -> Par | None:
        """The outermost `par`, None for plain statements."""
        first = self.stmts[0]
        return first if isinstance(first, Par) else None

    @property
    def nest(self) -> tuple[Nest, Ranges]:
        """The nest of the outermost `par` as far as a box bounds it, and the ranges of its indices."""
        assert self.band is not None, "plain statements have no nest"
        return bounded_nest(self.band)


def plain_nest(region: Region) -> tuple[Nest, Ranges]:
    """The nest of a region, without a `par` where it has plain statements."""
    return region.nest if region.band is not None else (Nest(pars=(), body=region.stmts), {})


Outline = tuple[Region | HostLoop[Region] | HostIf[Region], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`kernel` is the `kept` one with its long sums carried as they are to be and indices fused or joined, `whole` the
    same with the indices and shapes of the author; `sizes` has the representative values;
    `host_ranges` the inclusive ranges of host loops, where known; `layouts` the declared ones of all buffers;
    `divisors` by what free sizes are divisible and `least` what they are at least, `objective` by what lanes are
    chosen."""

    kernel: Kernel
    whole: Kernel
    kept: Kept
    target: Target
    sizes: Mapping[str, int]
    outline: Outline
    host_ranges: Ranges
    layouts: Mapping[str, Layout]
    divisors: Mapping[str, int]
    least: Mapping[str, int]
    objective: Objective = Objective.TIME
    answers: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, question: Hashable, ask: Callable[[], Answer]) -> Answer:
        """The answer to a question about the problem, looked for the first time only."""
        if question not in self.answers:
            self.answers[question] = ask()
        found: Answer = self.answers[question]
        return found

    @property
    def proved(self) -> ProvedProgram:
        return self.kept.proved

    @property
    def long(self) -> frozenset[str]:
        """The updates that are carried in f64, by id."""
        return self.kept.long

    def regions(self) -> Iterator[Region]:
        """Every region in text order."""
        return _regions(self.outline)

    def representative(self, extent: IndexExpr, ranges: Ranges) -> int:
        """The extent's greatest value at the representative sizes, at least 1; an index without range counts as 0."""
        found = bounds(extent, {**self.host_ranges, **ranges})
        expr = extent if found is None else found[1]
        values = dict.fromkeys(names(expr), 0) | dict(self.sizes)
        return max(1, int(index_value(expr, values)))

    def loop_sizes(self, loops: Iterable[Seq], ranges: Ranges) -> tuple[dict[str, int], Ranges]:
        """The representative extent of each of some loops, each inside the one before; and the ranges inside all."""
        sizes: dict[str, int] = {}
        for loop in loops:
            sizes[loop.index] = self.representative(loop.extent, ranges)
            if (known := index_range(loop.extent, ranges)) is not None:
                ranges = {**ranges, loop.index: known}
        return sizes, ranges

    def access(
        self,
        buffer: str,
        subscripts: tuple[Subscript, ...],
        *,
        weight: int = 1,
        update: bool = False,
        writes: bool = False,
        width: int = 1,
    ) -> WeightedAccess:
        """An access to a buffer of the kernel."""
        return WeightedAccess(
            buffer=buffer,
            layout=self.layouts[buffer],
            element_bytes=self.kernel.buffer(buffer).dtype.size_bytes,
            subscripts=subscripts,
            weight=weight,
            update=update,
            writes=writes,
            width=width,
        )

    def accesses(
        self, stmts: tuple[Stmt, ...], ranges: Ranges, *, without: frozenset[str] = frozenset(), weight: int = 1
    ) -> list[WeightedAccess]:
        """Accesses below the statements, weighted by the loops around them; those to the buffers `without` left out."""
        found: list[WeightedAccess] = []
        for stmt in stmts:
            match stmt:
                case Bind() | Accumulate() | Atomic() | Anchor():
                    accesses = list(touched(stmt))
                    for number, (name, subscripts) in enumerate(accesses):
                        writes = not isinstance(stmt, Anchor) and number == len(accesses) - 1
                        update = writes and isinstance(stmt, Accumulate | Atomic)
                        if name not in without:
                            own = self.access(name, subscripts, weight=weight, update=update, writes=writes)
                            found.append(own)
                case Par(extent=extent, body=body) | Seq(extent=extent, body=body):
                    times = min(MAX_WEIGHT, weight * self.representative(extent, ranges))
                    found += self.accesses(body, ranges, without=without, weight=times)
                case _:
                    found += self.accesses(children(stmt), ranges, without=without, weight=weight)
        return found


def workspaces(kernel: Kernel) -> tuple[Buffer, ...]:
    """The locals of kernel level, which launches share: those declared outside any region."""
    return tuple(kernel.buffer(name) for name in _outside(kernel.body))


def _outside(stmts: tuple[Stmt, ...]) -> Iterator[str]:
    yield from (s.buffer for s in stmts if isinstance(s, New))
    for stmt in stmts:
        if not isinstance(stmt, Par | New) and contains_par((stmt,)):
            match stmt:
                case If(then=then, orelse=orelse):
                    yield from _outside(then)
                    yield from _outside(orelse)
                case _:
                    yield from _outside(children(stmt))


def declared(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The locals that begin to live below the statements."""
    return frozenset(s.buffer for s in statements(stmts) if isinstance(s, New))


def make_problem(
    kept: Kept,
    kernel: Kernel,
    target: Target,
    hints: Mapping[str, int],
    given: Sequence[Condition] = (),
    objective: Objective = Objective.TIME,
    single: Collection[str] = (),
) -> Problem:
    """The problem of a kernel, the kept one or one that carries its long sums otherwise, for the calls of which the
    conditions `given` hold; parallel loops of one iteration are none, but those in `single`. Raises E0402 for an
    attribute on a host loop."""
    kernel = replace(kernel, facts=(*kernel.facts, *given)) if given else kernel
    whole = kernel
    kernel = fused(without_single(kernel, single)) if target.is_cuda else fused(kernel, bands=False)
    if target.is_cuda and not objective.by_distance:  # which is of the author's indices
        kernel = flattened(joined(kernel), target.max_cluster)
    outliner = _Outliner(kernel, target)
    outline = outliner.nodes(kernel.body, (), ())
    return Problem(
        kernel=kernel,
        whole=whole,
        kept=kept,
        target=target,
        sizes={s.name: hints.get(s.name, s.default or DEFAULT_SIZE) for s in kernel.sizes},
        outline=outline,
        host_ranges=outliner.ranges,
        layouts={buffer.name: declared_layout(buffer) for buffer in kernel.buffers},
        divisors=size_divisors(kernel),
        least=size_least(kernel),
        objective=objective,
    )


class _Outliner:
    """Reads the host structure; regions are numbered in text order."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.count = 0
        self.ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}

    def nodes(self, stmts: tuple[Stmt, ...], host: tuple[str, ...], saved: Saved) -> Outline:
        """The outline of statements outside any par, `host` being the host indices around them."""
        found: list[Region | HostLoop[Region] | HostIf[Region]] = []
        plain: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, New):
                continue
            if not contains_par((stmt,)) and not self._is_choice(stmt):
                if self._waits(stmt, plain):
                    found += self._region(plain, host, saved)
                    plain = []
                plain.append(stmt)
                continue
            found += self._region(plain, host, saved)
            plain = []
            match stmt:
                case Par():
                    found += self._region([stmt], host, saved)
                case Seq(index=index, extent=extent, body=body):
                    check_host_loop(stmt)
                    known = index_range(extent, self.ranges)
                    if known is not None:
                        self.ranges[index] = known
                    inside = self.nodes(body, (*host, index), saved)
                    found.append(HostLoop(index=index, extent=extent, body=inside, span=stmt.span))
                case If():
                    found += self._if(stmt, host, saved)
                case _:
                    found += self.nodes(children(stmt), host, saved)
        found += self._region(plain, host, saved)
        return tuple(found)

    def _waits(self, stmt: Stmt, before: Sequence[Stmt]) -> bool:
        """Whether a statement is a reduction that blocks may share out, of what those before it leave."""
        found = long_reduction(self.kernel, stmt) if self.target.is_cuda else None
        if found is None:
            return False
        left = {s.buffer for s in statements(tuple(before)) if isinstance(s, Bind | Accumulate | Atomic)}
        return any(read.buffer in left for read in reads_of(tuple(statements(found.reading))))

    def _is_choice(self, stmt: Stmt) -> bool:
        """Whether the host may ask the condition of a statement, under which there are reductions that blocks share."""
        inside = tuple(statements((stmt,)))
        asked = isinstance(stmt, If) and not isinstance(stmt.condition, Read) and self.target.is_cuda
        local = any(isinstance(s, New) for s in inside)
        return asked and not local and any(long_reduction(self.kernel, s) is not None for s in inside)

    def _region(self, stmts: list[Stmt], host: tuple[str, ...], saved: Saved) -> tuple[Region, ...]:
        if not stmts:
            return ()
        self.count += 1
        name = f"{self.kernel.name}_{self.count - 1}"
        return (Region(name=name, stmts=tuple(stmts), host=host, saved=saved),)

    def _if(self, stmt: If, host: tuple[str, ...], saved: Saved) -> Outline:
        condition: Condition | Read = stmt.condition
        if isinstance(condition, Read):
            then = self.nodes(stmt.then, host, (*saved, (condition, True)))
            return then + self.nodes(stmt.orelse, host, (*saved, (condition, False)))
        then, orelse = self.nodes(stmt.then, host, saved), self.nodes(stmt.orelse, host, saved)
        return (HostIf(condition=condition, then=then, orelse=orelse, span=stmt.span),)


def _regions(outline: Outline) -> Iterator[Region]:
    for node in outline:
        match node:
            case Region():
                yield node
            case HostLoop(body=body):
                yield from _regions(body)
            case HostIf(then=then, orelse=orelse):
                yield from _regions(then)
                yield from _regions(orelse)
