"""Scans on a CPU: pieces of their iterations, whose terms go to a row, are summed up there, and are read from it.

    seq N j { total += X[i, j] ; Y[i, j] = total }

    for j in pieces of 128:  for j in the piece (vector): row[j] = X[i, j]
                             for j in the piece: total += row[j] ; row[j] = total
                             for j in the piece (vector): Y[i, j] = row[j]

What waits for the iteration before is the loop in the middle alone, which is written as a function that folds vectors
(`codegen/cpu/scans.py`). The row is in the type of the terms, so a long sum is rounded where iterations read it, as it
is in the program. An iteration that asks what was there before it adds reads the element before its own. A register
has what is handed on: what lies elsewhere is copied to one around the loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Const,
    Expr,
    If,
    IndexExpr,
    IndexVar,
    New,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.identities import first_of
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, const, constant_value, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import as_type, direct, narrow
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import reads_of
from texpr.polyhedral.map.scan import Carrier, Scan, scan, without_unread
from texpr.polyhedral.mapped.operators import Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import map_statements
from texpr.polyhedral.target import CPU_SCAN_LANES
from texpr.polyhedral.walk import map_reads, map_subscripts

PIECE = 8 * CPU_SCAN_LANES  # iterations (67 x 100003 of them took 1.06 ms, in pieces of 256 1.35, of 64 1.09)
LITTLE = 2 * CPU_SCAN_LANES  # iterations: fewer run one after the other

_NodesOf = Callable[[tuple[Stmt, ...]], tuple[Node, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """A carrier, the register that has it, and the row of its terms; of one that is asked for `before` its update the
    row begins with what was there."""

    carrier: Carrier
    total: str
    row: str
    before: bool

    def at(self, step: IndexExpr, *, behind: bool = True) -> Read:
        """What an iteration of the piece has behind its update or before it."""
        place = add(step, ONE) if self.before and behind else step
        return Read(buffer=self.row, subscripts=(place,), dtype=self.carrier.within, span=self.carrier.update.span)


def runs_in_pieces(problem: Problem, seq: Stmt) -> Scan | None:
    """The `seq` as a scan of single elements that each statement of an iteration finds changed or not yet; None for any
    other one, and where what it hands on is rounded to a narrower type each time."""
    if not isinstance(seq, Seq) or (constant_value(seq.extent) or LITTLE) < LITTLE:
        return None
    own = {buffer.name for buffer in problem.kernel.buffers}
    if any(isinstance(s, Bind | Accumulate) and s.buffer not in own for s in statements(seq.body)):
        return None  # the mapping has given it a row of its own
    found = scan(problem, seq)
    if found is None or found.loop != seq:
        return None
    if any(not isinstance(stmt, New | Bind | Accumulate | If) for stmt in statements(found.body)):
        return None
    for carrier in found.carriers:
        around = _around(found, carrier)
        asks = isinstance(around, If) and carrier.name in _asked((around,))
        if carrier.kept or asks or not _has_the_type(problem, carrier):
            return None
    return found


def in_pieces(draft: Draft, seq: Seq, nodes_of: _NodesOf) -> tuple[Node, ...] | None:
    """The loop over the pieces of a scan, with new rows in the draft; `nodes_of` makes those of statements. None where
    it is no scan that runs in pieces."""
    found = runs_in_pieces(draft.problem, seq)
    if found is None:
        return None
    folds = {carrier.name: _fold(draft, found, carrier) for carrier in found.carriers}
    moved = [fold for fold in folds.values() if fold.total != fold.carrier.every[0]]
    nodes: list[Node] = []
    for fold in moved:
        nodes += [Fresh(buffer=fold.total), *_moved(draft, fold, nodes_of, Origin.COPY_IN)]
    nodes.append(_over_pieces(draft, found, folds, nodes_of))
    for fold in moved:
        nodes += _moved(draft, fold, nodes_of, Origin.COPY_OUT)
    if not moved or constant_value(seq.extent):
        return tuple(nodes)
    some = Compare(op=CompareOp.GT, left=seq.extent, right=ZERO)  # elsewhere the elements need not exist
    return (Guard(condition=some, body=tuple(nodes), span=seq.span),)


def _over_pieces(draft: Draft, found: Scan, folds: Mapping[str, _Fold], nodes_of: _NodesOf) -> Loop:
    seq, fresh = found.loop, draft.names.fresh
    piece, step = fresh(f"{seq.index}_piece"), fresh(f"{seq.index}_step")
    known, pieces = constant_value(seq.extent), ceildiv(seq.extent, PIECE)
    digits = tuple(
        Digit(name=name, index=seq.index, weight=weight, radix=radix, stride=ONE, place=Place.SERIAL)
        for name, weight, radix in ((piece, PIECE, pieces), (step, 1, const(PIECE)))
    )
    left = subtract(seq.extent, multiply(const(PIECE), IndexVar(name=piece)))
    length = const(PIECE) if known and known % PIECE == 0 else minimum(const(PIECE), left)

    def each(nodes: Sequence[Node], *, vector: bool) -> Loop:
        body = (Define(index=seq.index, digits=digits), *nodes)
        return Loop(index=step, extent=length, body=body, vector=vector, span=seq.span)

    here, every = IndexVar(name=step), folds.values()
    terms = (*_nothing(found, folds, here), *_terms(found.terms, folds, here))
    body: tuple[Node, ...] = (
        *(Fresh(buffer=fold.row) for fold in every),
        *(_store(draft, fold, fold.at(ZERO, behind=False)) for fold in every if fold.before),
        each(nodes_of(terms), vector=True),
        each([node for fold in every for node in _summed(draft, fold, here, nodes_of)], vector=False),
        each(nodes_of(without_unread(_rest(found, folds, here))), vector=True),
    )
    return Loop(index=piece, extent=pieces, body=body, span=seq.span)


def _asked(stmts: Sequence[Stmt]) -> set[str]:
    return {read.buffer for read in reads_of(tuple(statements(tuple(stmts))))}


def _around(found: Scan, carrier: Carrier) -> Stmt:
    """The statement of an iteration that is the update, or the condition around it."""
    return next(stmt for stmt in found.body if any(_updates(inside, carrier) for inside in statements((stmt,))))


def _updates(stmt: Stmt, carrier: Carrier) -> bool:
    return isinstance(stmt, Accumulate) and stmt.id == carrier.update.id


def _has_the_type(problem: Problem, carrier: Carrier) -> bool:
    """Whether what is handed on is kept in the type in which it is summed, or in that of a long sum's terms."""
    return problem.kernel.buffer(carrier.every[0]).dtype in (carrier.dtype, carrier.within)


def _moved(draft: Draft, fold: _Fold, nodes_of: _NodesOf, origin: Origin) -> tuple[Node, ...]:
    """The copy of what is handed on to its register, or from there."""
    (name, subscripts), span = fold.carrier.every, fold.carrier.update.span
    there = Read(buffer=name, subscripts=subscripts, dtype=draft.buffers[name].dtype, span=span)
    here = Read(buffer=fold.total, subscripts=(), dtype=fold.carrier.dtype, span=span)
    target, source = (here, there) if origin is Origin.COPY_IN else (there, here)
    id = draft.names.fresh(f"{fold.carrier.update.id}_{origin.removeprefix('copy_')}")
    value = as_type(source, target.dtype)
    bind = Bind(id=id, buffer=target.buffer, subscripts=target.subscripts, value=value, span=span)
    return map_statements(nodes_of((bind,)), lambda statement: replace(statement, origin=origin))


def _fold(draft: Draft, found: Scan, carrier: Carrier) -> _Fold:
    at = found.body.index(_around(found, carrier))
    before = carrier.name in _asked(found.body[:at])
    name, reason = carrier.every[0], f"what a piece of the iterations of {found.index} adds to {carrier.every[0]}"
    layout = row_major((const(PIECE + before),))
    row = draft.local(f"{name}_row", carrier.within, Memory.REG, layout, reason, span=carrier.update.span)
    total, buffer = name, draft.buffers[name]
    if buffer.memory is not Memory.REG or buffer.shape:
        reason = f"carries {name} through a loop"
        total = draft.local(f"{name}_acc", carrier.dtype, Memory.REG, row_major(()), reason, span=buffer.span)
    return _Fold(carrier=carrier, total=total, row=row, before=before)


def _terms(stmts: Sequence[Stmt], folds: Mapping[str, _Fold], here: IndexExpr) -> tuple[Stmt, ...]:
    """The statements with their updates as binds of the row's elements."""

    def one(stmt: Stmt) -> Stmt:
        match stmt:
            case Accumulate(buffer=name) if name in folds:
                carrier, row = folds[name].carrier, folds[name].at(here)
                value = as_type(narrow(stmt.value) if carrier.within != carrier.dtype else stmt.value, row.dtype)
                return Bind(id=stmt.id, buffer=row.buffer, subscripts=row.subscripts, value=value, span=stmt.span)
            case If(then=then, orelse=orelse):
                return replace(stmt, then=tuple(map(one, then)), orelse=tuple(map(one, orelse)))
            case _:
                return stmt

    return tuple(map(one, stmts))


def _nothing(found: Scan, folds: Mapping[str, _Fold], here: IndexExpr) -> Iterator[Stmt]:
    """Elements of iterations that a condition keeps from adding: they change nothing, -0 neither."""
    for fold in folds.values():
        if isinstance(_around(found, fold.carrier), If):
            row, update = fold.at(here), fold.carrier.update
            none = -0.0 if update.op is AccOp.ADD and row.dtype.is_float else first_of(update.op, row.dtype)
            value = Const(value=none, dtype=row.dtype, span=update.span)
            id = f"{update.id}_none"
            yield Bind(id=id, buffer=row.buffer, subscripts=row.subscripts, value=value, span=update.span)


def _summed(draft: Draft, fold: _Fold, here: IndexExpr, nodes_of: _NodesOf) -> tuple[Node, ...]:
    """What an iteration adds, and what it has then."""
    carrier, row = fold.carrier, fold.at(here)
    value = as_type(row, carrier.dtype)
    update = replace(carrier.update, buffer=fold.total, value=value)
    return (*nodes_of((update,)), _store(draft, fold, row))


def _store(draft: Draft, fold: _Fold, row: Read) -> Generic:
    """What there is so far, to an element of the row."""
    carrier, span = fold.carrier, fold.carrier.update.span
    total = Read(buffer=fold.total, subscripts=(), dtype=carrier.dtype, span=span)
    id = draft.names.fresh(f"{carrier.update.id}_row")
    leaf = Bind(id=id, buffer=row.buffer, subscripts=row.subscripts, value=as_type(total, row.dtype), span=span)
    return Generic(id=id, leaf=leaf, origin=Origin.COPY_OUT)


def _rest(found: Scan, folds: Mapping[str, _Fold], here: IndexExpr) -> tuple[Stmt, ...]:
    """What an iteration does but for its updates, reading what the row has in place of what is handed on."""
    behind: set[str] = set()

    def read(element: Read) -> Expr:
        fold = folds.get(element.buffer)
        return element if fold is None else as_type(fold.at(here, behind=element.buffer in behind), element.dtype)

    def one(stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Accumulate(buffer=name) if name in folds:
                return ()
            case Bind() | Accumulate():
                value = direct(map_reads(stmt.value, read))
                return (replace(stmt, value=value, subscripts=map_subscripts(stmt.subscripts, read)),)
            case If(then=then, orelse=orelse):
                arms = [tuple(new for s in arm for new in one(s)) for arm in (then, orelse)]
                return (replace(stmt, then=arms[0], orelse=arms[1]),) if any(arms) else ()
            case _:
                return (stmt,)

    kept: list[Stmt] = []
    for stmt in found.body:
        kept += one(stmt)
        behind |= {name for name, fold in folds.items() if stmt is _around(found, fold.carrier)}
    return tuple(kept)
