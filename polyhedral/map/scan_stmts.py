"""The statements of a scan as threads run them: for their terms, and again behind the fold of all iterations before.

seq N j { s += X[i, j]; Y[i, j] = s }     s_terms[q, e] = X[i, j]     then  s_now += s_terms[q, e] ; Y[i, j] = s_now
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Atomic, Bind, Expr, If, Read, Seq, Stmt
from texpr.polyhedral.map.long_sums import as_type, direct, narrow
from texpr.polyhedral.map.scan import Scan
from texpr.polyhedral.map.scan_split import so_far
from texpr.polyhedral.map.scan_team import Fold, Team
from texpr.polyhedral.map.scan_units import Registers
from texpr.polyhedral.walk import map_reads, map_subscripts


def is_top(scan: Scan, fold: Fold) -> bool:
    """Whether each iteration makes one update."""
    return any(isinstance(s, Accumulate) and s.id == fold.carrier.update.id for s in scan.body)


def as_terms(scan: Scan, stmt: Stmt, folds: Mapping[str, Fold], place: Registers) -> Stmt:
    """A statement whose updates bind terms."""
    match stmt:
        case Accumulate(id=id) if id in folds:
            fold = folds[id]
            if is_top(scan, fold):
                return Bind(id=id, buffer=fold.terms, subscripts=place, value=narrow(stmt.value), span=stmt.span)
            return replace(stmt, buffer=fold.terms, subscripts=place, value=narrow(stmt.value))
        case Seq(body=body):
            return replace(stmt, body=tuple(as_terms(scan, s, folds, place) for s in body))
        case If(then=then, orelse=orelse):
            arms = (tuple(as_terms(scan, s, folds, place) for s in arm) for arm in (then, orelse))
            return replace(stmt, then=next(arms), orelse=next(arms))
        case _:
            return stmt


def as_now(team: Team, scan: Scan, stmt: Stmt, folds: Mapping[str, tuple[Fold, Registers]], place: Registers) -> Stmt:
    """A statement on the folds of a thread in place of what is handed on."""

    def read(found: Read) -> Expr:
        if found.buffer not in folds:
            return found
        fold, element = folds[found.buffer]
        return as_type(so_far(team, fold, element), found.dtype)

    alone = scan.alone(stmt)
    if alone is not None:
        return as_now(team, scan, alone.update, folds, place)
    match stmt:
        case Accumulate(buffer=name) if name in folds:
            fold, element = folds[name]
            return replace(stmt, buffer=fold.now, subscripts=element, value=team.term(fold, place))
        case Bind() | Accumulate() | Atomic():
            value = direct(map_reads(stmt.value, read))
            return replace(stmt, value=value, subscripts=map_subscripts(stmt.subscripts, read))
        case If(then=then, orelse=orelse):
            arms = (tuple(as_now(team, scan, s, folds, place) for s in arm) for arm in (then, orelse))
            return replace(stmt, then=next(arms), orelse=next(arms))
        case Seq(body=body):
            return replace(stmt, body=tuple(as_now(team, scan, s, folds, place) for s in body))
        case _:
            return stmt
