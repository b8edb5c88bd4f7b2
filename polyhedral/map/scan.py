"""Scans: `seq`s whose iterations hand on a running fold and are independent in all else.

    seq N j { if M[j] > 0 { total += X[j] }; Y[j] = total * Z[j] }       total is handed on, X[j] is a term
    seq 1..N j { Y[j] = max(Y[j - 1], X[j]) }                            so is what Y has before

A thread that knows the fold of all iterations before its own runs them as they stand in the text; of the others it
needs the terms only, which depend on nothing that is handed on. So inclusive and exclusive scans, those under
conditions and several in one loop are all the same. Dependences tell that nothing else goes from one iteration to
another. `#ordered` forbids it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Atomic,
    Bind,
    Expr,
    Fn,
    Gather,
    If,
    IndexExpr,
    IndexVar,
    Leaf,
    New,
    Op,
    Read,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import ONE, ZERO, constant_value, subtract
from texpr.grammar.index.interval import most
from texpr.grammar.index.linear import linear
from texpr.grammar.permissions import keeps_order, unroll_of
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, I32, I64, U32, DType, compute_type
from texpr.polyhedral import isl
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.long_sums import as_type, narrow
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import MIN_EXTENT, is_scalar, reads_of
from texpr.polyhedral.map.vectors import at
from texpr.polyhedral.program import AccessMode
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.prove.ordering import Use, carried, commute, equal_outside, meetings, shared_loops, use_of, writes
from texpr.polyhedral.walk import map_reads, map_subscripts, read_accesses, subscript_names, touched, written

Element = tuple[str, tuple[Subscript, ...]]
FUNCTIONS = {AccOp.ADD: Fn.ADD, AccOp.MUL: Fn.MUL, AccOp.MAX: Fn.MAX, AccOp.MIN: Fn.MIN}
FOLDED = (F32, F64, I32, I64, U32)  # the types in which threads fold; narrower floats are folded in f32


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """A fold that iterations hand on in type `dtype`, and those of a tile `within` it in that or, of a long sum of f32,
    that is handed on in f64, in f32. In the scan's body `name` stands for it; in the program
    an iteration has it from the element `every`, which for the first one is `first`. Where each iteration binds one of
    its own, it is `kept`, else the element has it behind the loop. `update` is all that changes it."""

    name: str
    every: Element
    first: Element
    kept: bool
    update: Accumulate
    dtype: DType
    within: DType

    @property
    def term(self) -> Expr:
        """The term of an iteration, before it was converted to a wider type."""
        return narrow(self.update.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A `seq`, what its iterations hand on, and the statements of its `body`, in which carriers have their names."""

    loop: Seq
    carriers: tuple[Carrier, ...]
    body: tuple[Stmt, ...]

    @property
    def index(self) -> str:
        return self.loop.index

    @property
    def terms(self) -> tuple[Stmt, ...]:
        """The statements of an iteration that its terms need, the updates among them."""
        own = {stmt.buffer for stmt in statements(self.body) if isinstance(stmt, New)}
        names = {carrier.name for carrier in self.carriers}
        while (more := names | (_read_by(_that_write(self.body, names)) & own)) != names:
            names = more
        return _that_write(self.body, names)

    def alone(self, stmt: Stmt) -> Carrier | None:
        """The carrier for which a loop of the body is there, and for nothing else."""
        inside = statements((stmt,)) if isinstance(stmt, Seq) else ()
        updated = [c for c in self.carriers for s in inside if isinstance(s, Accumulate) and s.id == c.update.id]
        return updated[0] if len(updated) == 1 and any(stmt == term for term in self.terms) else None


def scan(problem: Problem, seq: Stmt) -> Scan | None:
    """A `seq` as a scan, None where it is none that threads may share out."""
    if not isinstance(seq, Seq):
        return None
    loop = seq
    return problem.once(("scan", loop.index), lambda: _scan(problem, loop))


def is_long(problem: Problem, seq: Seq) -> bool:
    """Whether a scan may have work for several threads."""
    extent = constant_value(seq.extent)
    return extent is None or extent >= MIN_EXTENT


def _scan(problem: Problem, seq: Seq) -> Scan | None:
    inside = tuple(statements(seq.body))
    own = {s.buffer for s in inside if isinstance(s, New)}
    plain = all(is_plain(problem, stmt) for stmt in inside)
    if not plain or unroll_of(seq) or any(keeps_order(s) for s in (seq, *inside)):
        return None
    carriers: list[Carrier] = []
    for stmt in inside:
        if isinstance(stmt, Bind | Accumulate) and stmt.buffer not in own:
            one = _carrier(problem, stmt, seq)
            if one is None and _is_fixed(stmt, seq):
                return None
            carriers += [one] if one is not None else []
    found = Scan(loop=seq, carriers=tuple(carriers), body=_renamed(problem, seq.body, carriers))
    asked = _read_by(found.body)  # where nobody asks, it is a reduction
    stored = any(carrier.kept or carrier.name in asked for carrier in carriers)
    fits = stored and _are_alone(found) and _can_be_first(found) and _is_independent(problem, found, own)
    return found if fits else None


def is_plain(problem: Problem, stmt: Stmt) -> bool:
    """Whether a thread can do a statement of an iteration by itself."""
    match stmt:
        case New(buffer=name):
            return is_scalar(problem.kernel.buffer(name))
        case Seq():
            return unroll_of(stmt) is None
        case Bind() | Accumulate() | Atomic() | If():
            return True
        case _:
            return False


# ---- what is handed on -----------------------------------------------------------------------------------------------


def _is_fixed(stmt: Bind | Accumulate, seq: Seq) -> bool:
    """Whether a statement writes one element in all iterations."""
    return seq.index not in subscript_names(stmt.subscripts)


def _carrier(problem: Problem, stmt: Bind | Accumulate, seq: Seq) -> Carrier | None:
    """What a statement hands on from one iteration to the next; None where that is nothing, or no fold of one type."""
    fixed, declared = _is_fixed(stmt, seq), problem.kernel.buffer(stmt.buffer).dtype
    if any(isinstance(s, Gather) for s in stmt.subscripts) or not (fixed or any(stmt is s for s in seq.body)):
        return None
    before = stmt.subscripts if fixed else _before(stmt.subscripts, seq.index)
    term = _term(stmt, (stmt.buffer, before), declared)
    if term is None:
        return None
    op, value = term
    dtype = compute_type(value.dtype if isinstance(stmt, Accumulate) else stmt.value.dtype)
    if declared != compute_type(declared) and declared.is_integer:  # an element wraps, and what it is compared with
        if isinstance(stmt, Bind) and op in (AccOp.MAX, AccOp.MIN) and value.dtype != declared:
            return None
        value = as_type(value, declared)
    if dtype not in FOLDED:
        return None
    added = isinstance(stmt, Accumulate) and fixed  # a long sum has its type already
    is_long_sum = stmt.id in problem.long
    if not added and dtype == F32 and op is AccOp.ADD and not _is_short(problem, seq):
        dtype, is_long_sum = F64, True
    name = f"@{stmt.id}"
    update = Accumulate(
        id=stmt.id if fixed else f"{stmt.id}_fold",
        op=op,
        buffer=name,
        subscripts=(),
        value=as_type(value, dtype),
        span=stmt.span,
    )
    first = stmt.buffer, at(before, seq.index, ZERO)
    every, within = (stmt.buffer, before), F32 if is_long_sum else dtype
    return Carrier(name=name, first=first, every=every, kept=not fixed, update=update, dtype=dtype, within=within)


def _before(subscripts: tuple[Subscript, ...], index: str) -> tuple[Subscript, ...]:
    """The element of the iteration before."""
    return at(subscripts, index, subtract(IndexVar(name=index), ONE))


def _is_short(problem: Problem, seq: Seq) -> bool:
    """Whether f32 may carry the sum of so many terms."""
    count = most(seq.extent, size_ranges(problem.kernel))
    return count is not None and count <= CHAIN


def _term(stmt: Bind | Accumulate, before: Element, declared: DType) -> tuple[AccOp, Expr] | None:
    """What a statement adds to the element before, and how: `v += e`, `v = v + e`, `v[j] = max(e, v[j - 1])`, or
    `v[j] += v[j - 1]`."""
    if isinstance(stmt, Accumulate):
        if _same((stmt.buffer, stmt.subscripts), before):
            return stmt.op, stmt.value
        own = Read(buffer=stmt.buffer, subscripts=stmt.subscripts, dtype=declared, span=stmt.span)
        return (stmt.op, own) if _reads(stmt.value, before) else None
    match stmt.value:
        case Op(fn=fn, args=(left, right)) if fn in FUNCTIONS.values():
            op = next(op for op, own in FUNCTIONS.items() if own is fn)
            other = right if _reads(left, before) else left if _reads(right, before) else None
            return None if other is None else (op, other)
        case _:
            return None


def _reads(value: Expr, element: Element) -> bool:
    return isinstance(value, Read) and _same((value.buffer, value.subscripts), element)


def _same(one: Element, other: Element) -> bool:
    """Whether two accesses are of one element, in each iteration."""
    if one[0] != other[0] or len(one[1]) != len(other[1]):
        return False
    return all(
        isinstance(a, IndexExpr) and isinstance(b, IndexExpr) and linear(a) == linear(b)
        for a, b in zip(one[1], other[1], strict=True)
    )


def _renamed(problem: Problem, stmts: Sequence[Stmt], carriers: Sequence[Carrier]) -> tuple[Stmt, ...]:
    """The statements with the names of carriers: their updates, and binds of the elements in which they are kept."""
    updates = {c.update.id: c for c in carriers} | {c.update.id.removesuffix("_fold"): c for c in carriers if c.kept}

    def read(found: Read) -> Read:
        for carrier in carriers:
            if _same((found.buffer, found.subscripts), carrier.every):
                return replace(found, buffer=carrier.name, subscripts=())
        return found

    def one(stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Bind() | Accumulate() if stmt.id in updates:
                carrier = updates[stmt.id]
                update = replace(carrier.update, value=map_reads(carrier.update.value, read))
                if not carrier.kept:
                    return (update,)
                dtype = problem.kernel.buffer(stmt.buffer).dtype
                now = Read(buffer=carrier.name, subscripts=(), dtype=dtype, span=stmt.span)
                kept = Bind(id=stmt.id, buffer=stmt.buffer, subscripts=stmt.subscripts, value=now, span=stmt.span)
                return (update, kept)
            case Bind() | Accumulate() | Atomic():
                return (
                    replace(stmt, value=map_reads(stmt.value, read), subscripts=map_subscripts(stmt.subscripts, read)),
                )
            case If(condition=condition, then=then, orelse=orelse):
                if isinstance(condition, Read):
                    condition = read(condition)
                return (replace(stmt, condition=condition, then=every(then), orelse=every(orelse)),)
            case Seq(body=body):
                return (replace(stmt, body=every(body)),)
            case _:
                return (stmt,)

    def every(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(new for stmt in body for new in one(stmt))

    return every(stmts)


# ---- what an iteration needs -----------------------------------------------------------------------------------------


def without_unread(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """All but what is done to scalars of their own that nobody reads, as to those that only terms need."""
    while unread := {stmt.buffer for stmt in statements(stmts) if isinstance(stmt, New)} - _read_by(stmts):
        stmts = _that_write(stmts, unread, others=True)
    return stmts


def _that_write(stmts: Sequence[Stmt], names: Collection[str], *, others: bool = False) -> tuple[Stmt, ...]:
    """The statements that write some scalars, or let them begin, or all others, with what stands around them."""
    found: list[Stmt] = []
    for stmt in stmts:
        match stmt:
            case If(then=then, orelse=orelse):
                arms = tuple(_that_write(arm, names, others=others) for arm in (then, orelse))
                found += [replace(stmt, then=arms[0], orelse=arms[1])] if any(arms) else []
            case Seq(body=body):
                inside = _that_write(body, names, others=others)
                found += [replace(stmt, body=inside)] if inside else []
            case _:
                mine = isinstance(stmt, New | Bind | Accumulate) and stmt.buffer in names
                found += [stmt] if mine is not others else []
    return tuple(found)


def _read_by(stmts: Sequence[Stmt]) -> set[str]:
    return {read.buffer for read in reads_of(tuple(statements(tuple(stmts))))}


def _leaves(stmts: Sequence[Stmt]) -> Iterator[Bind | Accumulate | Atomic]:
    return (s for s in statements(tuple(stmts)) if isinstance(s, Bind | Accumulate | Atomic))


def _are_alone(scan: Scan) -> bool:
    """Whether each carrier is changed by one statement, outside other loops, and nothing else of its array is touched;
    what is kept is not asked for behind its update."""
    loops = [stmt for stmt in statements(scan.body) if isinstance(stmt, Seq)]
    top = [stmt for stmt in scan.body if scan.alone(stmt) is not None]
    nested = [stmt for loop in top for stmt in statements((loop,)) if isinstance(stmt, Seq)]
    inside = {leaf.buffer for loop in loops if not any(loop is n for n in nested) for leaf in _leaves(loop.body)}
    touching = {name for leaf in _leaves(scan.body) for name, _ in touched(leaf)}
    names = [carrier.name for carrier in scan.carriers]
    arrays = {carrier.every[0] for carrier in scan.carriers}
    if len(set(names)) < len(names) or len(arrays) < len(names) or not inside.isdisjoint(names):
        return False
    return all(
        not any(carrier.name in _read_by((stmt,)) for stmt in _behind(scan.body, carrier))
        if carrier.kept
        else carrier.every[0] not in touching
        for carrier in scan.carriers
    )


def _behind(body: Sequence[Stmt], carrier: Carrier) -> Sequence[Stmt]:
    """The statements behind the bind of an element that keeps the carrier."""
    place = next(n for n, stmt in enumerate(body) if isinstance(stmt, Accumulate) and stmt.id == carrier.update.id)
    return body[place + 2 :]


def _can_be_first(scan: Scan) -> bool:
    """Whether terms can be computed before all else: they depend on nothing that is handed on, and read nothing that an
    iteration writes before."""
    names, terms = {c.name for c in scan.carriers}, scan.terms
    if _read_by(terms) & names:
        return False
    wanted, written_before = {leaf.id for leaf in _leaves(terms)}, set[str]()
    for leaf in _leaves(scan.body):
        if leaf.id in wanted and any(read.buffer in written_before for read in read_accesses(leaf)):
            return False
        target = written(leaf)
        if target is not None and leaf.id not in wanted:
            written_before.add(target[0])
    return True


def _is_independent(problem: Problem, scan: Scan, own: Collection[str]) -> bool:
    """Whether iterations touch no element that another one writes, but for what is handed on."""
    program = problem.proved.program
    ids = {leaf.id for leaf in statements(scan.loop.body) if isinstance(leaf, Leaf)}
    found = [s for s in program.statements if s.id in ids]
    if len(found) < len(ids):
        return False
    uses = [use_of(s, access) for s in found for access in s.accesses if access.buffer not in own]
    uses = [use for use in uses if not any(is_handed_on(use, carrier) for carrier in scan.carriers)]
    pairs = ((a, b) for a in uses for b in uses if a.access.buffer == b.access.buffer)
    pairs = ((a, b) for a, b in pairs if (writes(a.access) or writes(b.access)) and not _only_atomic(a, b))
    return not any(_meet_later(problem, scan.index, a, b) for a, b in pairs)


def is_handed_on(use: Use, carrier: Carrier) -> bool:
    access = use.access
    if access.buffer != carrier.every[0]:
        return False
    return not carrier.kept or (not writes(access) and _same((access.buffer, access.subscripts), carrier.every))


def _only_atomic(one: Use, other: Use) -> bool:
    return one.access.mode is AccessMode.ATOMIC and commute(one.access, other.access)


def _meet_later(problem: Problem, index: str, one: Use, other: Use) -> bool:
    """Whether an iteration touches an element that a later one touches, in one execution of the loop."""
    depth = [loop.index for loop in one.statement.loops].index(index)
    return meet(problem, one, other, lambda pairs: carried(pairs, depth))


def meet(problem: Problem, one: Use, other: Use, of: Callable[[isl.Map], isl.Map] | None = None) -> bool:
    """Whether two accesses touch one element in the same iteration of the loops around both or, with `of`, in some of
    those pairs; so they do where it takes too many steps to tell."""
    program, width = problem.proved.program, one.width + other.width
    same = of or (lambda pairs: equal_outside(pairs, shared_loops(one.statement, other.statement)))
    try:
        with program.work.limited(one.access.span, "whether iterations of a scan meet", width):
            pairs = program.facts.within(same(meetings(one.access, other.access)))
            return not pairs.is_empty()
    except TExprError:
        if program.work.exhausted:
            raise
        return True
