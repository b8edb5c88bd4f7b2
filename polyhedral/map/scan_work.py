"""The scans of a launch, and what stands around them: scalars, and statements for one thread."""

from collections.abc import Sequence
from dataclasses import dataclass

from texpr.grammar.ast import Accumulate, Atomic, Bind, New, Stmt
from texpr.grammar.core import statements
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.scan import Scan, is_plain, scan


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


def _writes(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that statements write, or let begin."""
    return frozenset(s.buffer for s in statements(stmts) if isinstance(s, New | Bind | Accumulate | Atomic))
