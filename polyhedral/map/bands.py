"""Bands: maximal nests of adjacent parallel loops, and the level at which a loop's iterations run.

par M i { par N j { S } }              one nest (i, j)
par M i { seq K k { par N j { S } } }  two nests: (i) on blocks, (j) on the threads of a block
par M i #grid { par N j #block { S } } two nests, because the author says so
"""

from math import inf

from texpr.grammar.ast import If, IndexExpr, Kernel, New, Par, Seq, Stmt
from texpr.grammar.attributes import SCOPES
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.interval import index_range
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.walk import adjacent

FEW_TURNS = 16  # of loops inside an iteration, which a compiler unrolls


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """Adjacent parallel loops, outermost first, and what stands inside the innermost."""

    pars: tuple[Par, ...]
    body: tuple[Stmt, ...]

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(p.index for p in self.pars)


def is_serial_par(stmt: Stmt) -> bool:
    """Whether the author keeps the iterations in one thread."""
    return isinstance(stmt, Par) and asked_scope(stmt) is Scope.THREAD


def asked_scope(par: Par) -> Scope | None:
    """The scope that the author gives the iterations."""
    return next((Scope(attr.name) for attr in par.attrs if attr.name in SCOPES), None)


def nest_of(par: Par) -> Nest:
    """The maximal nest that begins at `par`; it ends where the author changes the scope."""
    pars = [par]
    for inner in adjacent(par)[1:]:
        if is_serial_par(inner) or (_in_a_block(inner) and not _in_a_block(par)):
            break
        if asked_scope(pars[-1]) is Scope.CLUSTER and asked_scope(inner) is not Scope.CLUSTER:
            break
        pars.append(inner)
    return Nest(pars=tuple(pars), body=pars[-1].body)


def _in_a_block(par: Par) -> bool:
    """Whether the author gives the iterations to threads of one block."""
    return asked_scope(par) in (Scope.BLOCK, Scope.WARP)


def bounded_nest(par: Par) -> tuple[Nest, dict[str, tuple[IndexExpr, IndexExpr]]]:
    """The nest that begins at `par` as far as a box over its own indices bounds its extents, and the range of each.

    `par M i { par M - i j { … } }` has the box j in 0 .. M - 1; indices outside the nest stay as they are.
    """
    nest, ranges = nest_of(par), dict[str, tuple[IndexExpr, IndexExpr]]()
    for number, inner in enumerate(nest.pars):
        found = index_range(inner.extent, ranges)
        if found is None:
            return Nest(pars=nest.pars[:number], body=nest.pars[number - 1].body), ranges
        ranges[inner.index] = found
    return nest, ranges


def has_block_level(kernel: Kernel, nest: Nest) -> bool:
    """Whether a block has work of its own: an inner par, a buffer that the author shares, or `#grid` or `#cluster` on
    the nest."""
    if any(asked_scope(p) in (Scope.GRID, Scope.CLUSTER) for p in nest.pars):
        return True
    for stmt in outside_serial(nest.body):
        if isinstance(stmt, Par) and not is_serial_par(stmt):
            return True
        if isinstance(stmt, New) and kernel.buffer(stmt.buffer).memory == "shared":
            return True
    return False


def fits_threads(kernel: Kernel, nest: Nest) -> bool:
    """Whether a thread may run an iteration by itself, though it has work for a block: nobody asks for more, and each
    local is a scalar."""
    inside = outside_serial(nest.body)
    asked = any(asked_scope(par) for par in nest.pars) or any(stmt.attrs for stmt in inside if isinstance(stmt, Par))
    own = (kernel.buffer(stmt.buffer) for stmt in inside if isinstance(stmt, New))
    return not asked and all(not buffer.shape and buffer.memory != "shared" for buffer in own)


def outside_serial(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Every statement below, loops that one thread runs not entered."""
    found: list[Stmt] = []
    for stmt in stmts:
        found.append(stmt)
        if not is_serial_par(stmt):
            found.extend(outside_serial(children(stmt)))
    return tuple(found)


def inner_nests(stmts: tuple[Stmt, ...]) -> tuple[Nest, ...]:
    """The nests that the threads of a block share, in text order: the outermost pars below block level."""
    found: list[Nest] = []
    for stmt in stmts:
        match stmt:
            case Par() if not is_serial_par(stmt):
                found.append(nest_of(stmt))
            case Seq() | If():
                found.extend(inner_nests(children(stmt)))
            case _:
                pass
    return tuple(found)


def block_statements(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a block that stand in no par, those inside its loops and conditions too."""
    found: list[Stmt] = []
    for stmt in stmts:
        if not isinstance(stmt, Par):
            found.append(stmt)
            found.extend(block_statements(children(stmt)))
    return tuple(found)


def has_loop(stmts: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Par | Seq) for s in statements(stmts))


def has_long_loop(stmts: tuple[Stmt, ...]) -> bool:
    """Whether one iteration has more than `FEW_TURNS` turns of loops, or of a number that is not known."""
    return _turns(stmts) > FEW_TURNS


def _turns(stmts: tuple[Stmt, ...]) -> float:
    """Turns of the deepest loops together, of one that holds most of them; infinite where an extent is not known."""
    most = 1.0
    for stmt in stmts:
        own = 1.0
        if isinstance(stmt, Par | Seq):
            known = constant_value(stmt.extent)
            own = inf if known is None else max(1, known)
        most = max(most, own * _turns(children(stmt)))
    return most
