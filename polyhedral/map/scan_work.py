"""The scans of a launch, and what stands around them: scalars, and statements for one thread."""

from collections.abc import Callable, Sequence

from texpr.grammar.ast import Accumulate, Atomic, Bind, Cast, Expr, Kernel, Leaf, New, Role, Stmt
from texpr.grammar.core import statements
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.reducible import reads_of
from texpr.polyhedral.map.rounded_stores import rounds_f32
from texpr.polyhedral.map.scan import Carrier, Scan, is_handed_on, is_plain, meet, scan
from texpr.polyhedral.map.vectors import Element, Wide, events_of
from texpr.polyhedral.program import AccessMode
from texpr.polyhedral.prove.ordering import use_of, writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scans:
    """The statements of a launch: its scans, and others, which all threads run (`alike`: they compute scalars that
    every thread has for itself) or the first one of those that share a scan."""

    scans: tuple[Scan, ...]
    alike: frozenset[str]
    stmts: tuple[Stmt, ...]

    def at(self, stmt: Stmt) -> Scan | None:
        """The scan that a statement is."""
        return next((one for one in self.scans if one.loop is stmt), None)

    def is_alike(self, stmt: Stmt) -> bool:
        return _writes((stmt,)) <= self.alike


def scans(problem: Problem, stmts: tuple[Stmt, ...], shared_out: Sequence[str]) -> Scans | None:
    """A body whose scans over these indices are shared out; None where they cannot be, or beside other statements."""
    found = [one for stmt in stmts if (one := scan(problem, stmt)) is not None and one.index in shared_out]
    others = [stmt for stmt in stmts if not any(stmt is one.loop for one in found)]
    own = declared(stmts)
    if not found or len(found) < len(shared_out) or len(set(shared_out)) < len(shared_out):
        return None
    for stmt in others:
        mixed = not _writes((stmt,)) <= own and not _writes((stmt,)).isdisjoint(own)
        if mixed or not all(is_plain(problem, inner) for inner in statements((stmt,))):
            return None
    return Scans(scans=tuple(found), alike=own, stmts=stmts)


def stands_alone(problem: Problem, found: Scans) -> bool:
    """Whether what stands beside the only scan touches no element that this writes, nor writes one that it touches, but
    what is handed on before its first iteration."""
    (one,) = found.scans
    of = {s.id: s for s in problem.proved.program.statements}
    inside = [leaf.id for leaf in statements((one.loop,)) if isinstance(leaf, Leaf)]
    beside = [
        leaf.id
        for stmt in found.stmts
        if stmt is not one.loop
        for leaf in statements((stmt,))
        if isinstance(leaf, Leaf)
    ]
    if not all(id in of for id in (*inside, *beside)):
        return False
    uses = [[use_of(of[id], access) for id in ids for access in of[id].accesses] for ids in (inside, beside)]
    mine = [use for use in uses[0] if not any(is_handed_on(use, carrier) for carrier in one.carriers)]
    return not any(
        a.access.buffer == b.access.buffer
        and (writes(a.access) or writes(b.access))
        and a.access.buffer not in found.alike
        and meet(problem, a, b)
        for a in mine
        for b in uses[1]
    )


def is_wanted(problem: Problem, found: Scans, carrier: Carrier, behind: Sequence[Stmt]) -> bool:
    """Whether somebody asks for what a scan leaves, behind which these statements stand."""
    name = carrier.every[0]
    if carrier.kept:
        return False
    if name in found.alike:
        return name in _read_in(behind)
    if problem.kernel.buffer(name).role is not Role.LOCAL:
        return True
    own = {leaf.id for one in found.scans for leaf in statements((one.loop,)) if isinstance(leaf, Leaf)}
    others = (s for s in problem.proved.program.statements if s.id not in own)
    asked = any(access.buffer == name and access.mode is not AccessMode.WRITE for s in others for access in s.accesses)
    return asked or sum(c.every[0] == name for one in found.scans for c in one.carriers) > 1


def leaves(problem: Problem, found: Scans, carrier: Carrier) -> bool:
    """Whether a scan leaves something in memory."""
    return carrier.every[0] not in found.alike and is_wanted(problem, found, carrier, ())


def _read_in(stmts: Sequence[Stmt]) -> set[str]:
    """The buffers that statements read, or add to."""
    inside = tuple(statements(tuple(stmts)))
    return {read.buffer for read in reads_of(inside)} | {s.buffer for s in inside if isinstance(s, Accumulate)}


def _writes(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that statements write, or let begin."""
    return frozenset(s.buffer for s in statements(stmts) if isinstance(s, New | Bind | Accumulate | Atomic))


def is_rounded(kernel: Kernel, one: Scan, carrier: Carrier) -> bool:
    """Whether all that asks for a fold stores it as f16 or bf16, as it is."""
    asked = [read for read in reads_of(tuple(statements(one.body))) if read.buffer == carrier.name]
    stored = [stmt for stmt in statements(one.body) if isinstance(stmt, Bind) and _plain(stmt.value) in asked]
    return len(asked) == len(stored) and all(kernel.buffer(stmt.buffer).dtype in (F16, BF16) for stmt in stored)


def _plain(value: Expr) -> Expr:
    """The value before it was converted from one float to another."""
    while isinstance(value, Cast) and value.dtype.is_float:
        value = value.operand
    return value


def rounded_late(one: Scan, moved: Sequence[Wide], now: Callable[[Stmt], Stmt]) -> frozenset[Element]:
    """What a scan may round as it is stored (`rounded_stores.py`): what one statement binds, none reads, and is rounded
    from f32. `now` gives the statement as threads run it, which is not built before its registers are there."""
    touched = [event.element for event in events_of(one.body) if event is not None]
    binds = {(stmt.buffer, stmt.subscripts): stmt for stmt in one.body if isinstance(stmt, Bind)}

    def rounds(wide: Wide) -> bool:
        stmt = binds.get(wide.element)
        if stmt is None or wide.loads or wide.dtype not in (F16, BF16) or touched.count(wide.element) > 1:
            return False
        return rounds_f32(now(stmt))

    return frozenset(wide.element for wide in moved if rounds(wide))
