"""Values that two loops of an iteration compute, on a CPU: the first loop keeps them in a row, the others read it.

    total = sum N j { exp(X[i, j] - top) } ; par N j { Y[i, j] = exp(X[i, j] - top) / total }

    for j: { row[j] = exp(X[i, j] - top) ; total += row[j] }     for j: Y[i, j] = row[j] / total

Only what takes long is kept, of loops that turn equally often over plain statements, where nothing writes what it is
computed of from the first loop to the last; a row is as long as the loops and has the value's own type.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Fn,
    Gather,
    If,
    IndexVar,
    New,
    Node,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Stmt,
    operands,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, same
from texpr.grammar.operators import OPERATORS
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.mapped.places import Memory

LONGEST = 1 << 17  # elements of a row, which the second nearest cache holds
DEAR = OPERATORS[Fn.EXP].cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A value of the loop at `first`, in words of its index, and the loops that compute it again."""

    first: int
    again: tuple[int, ...]
    value: Op


def repeated(stmts: tuple[Stmt, ...], beside: int = 1) -> tuple[Repeated, ...]:
    """What loops of these statements compute again, each value once, where a row for each of so many iterations beside
    one another has room."""
    found: list[Repeated] = []
    known: set[tuple[int, Node]] = set()  # values of loops, in their own words
    for first, loop in enumerate(stmts):
        if not _is_plain(loop, LONGEST // beside):
            continue
        for value in dict.fromkeys(_dear(loop)):
            again = tuple(_again(stmts, first, value))
            if again and (first, value) not in known:
                known |= {(number, _in_words_of(value, loop, stmts[number])) for number in again}
                found.append(Repeated(first=first, again=again, value=value))
    return tuple(found)


def kept_once(draft: Draft, stmts: tuple[Stmt, ...], beside: int) -> tuple[tuple[Stmt, ...], tuple[str, ...]]:
    """The statements with each repeated value kept by the first loop and read by the others, and the rows' names."""
    rows: list[str] = []
    changed = list(stmts)
    for one in repeated(stmts, beside):
        loop = stmts[one.first]
        assert isinstance(loop, Par | Seq)
        layout, reason = row_major((loop.extent,)), f"keeps what loops over {loop.index} would compute again"
        name = draft.local(f"{loop.index}_row", one.value.dtype, Memory.REG, layout, reason, span=loop.span)
        rows.append(name)
        for number in (one.first, *one.again):
            changed[number] = _reading(changed[number], _in_words_of(one.value, loop, stmts[number]), name)
        reading = changed[one.first]
        assert isinstance(reading, Par | Seq)
        here = (IndexVar(name=loop.index),)
        id = draft.names.fresh(f"{name}_kept")
        keep = Bind(id=id, buffer=name, subscripts=here, value=one.value, span=reading.body[0].span)
        changed[one.first] = replace(reading, body=(keep, *reading.body))
    return tuple(changed), tuple(rows)


def _is_plain(stmt: Stmt, longest: int = LONGEST) -> bool:
    """Whether it is a loop of known length over statements that always run."""
    if not isinstance(stmt, Par | Seq) or not all(isinstance(s, Bind | Accumulate) for s in stmt.body):
        return False
    known = constant_value(stmt.extent)
    return known is not None and 0 < known <= longest


def _dear(loop: Stmt) -> Iterator[Op]:
    """What a loop's statements always compute and what takes long, the outermost first; nothing that data places."""
    assert isinstance(loop, Par | Seq)
    for stmt in loop.body:
        assert isinstance(stmt, Bind | Accumulate)
        work: list[Node] = [stmt.value]
        while work:
            node = work.pop()
            if isinstance(node, Op) and node.fn in OPERATORS and OPERATORS[node.fn].cost >= DEAR and not _gathers(node):
                yield node
            if not isinstance(node, Select):
                work += reversed(operands(node))


def _gathers(node: Node) -> bool:
    return any(isinstance(part, Gather | Select) for part in walk(node))


def _again(stmts: tuple[Stmt, ...], first: int, value: Op) -> Iterator[int]:
    """The later loops that compute the value while all that it is computed of stays as it was."""
    loop = stmts[first]
    assert isinstance(loop, Par | Seq)
    reads = {node.buffer for node in walk(value) if isinstance(node, Read)}
    for number, other in enumerate(stmts[first:], first):
        inside = tuple(statements((other,)))
        if not all(isinstance(s, Bind | Accumulate | New | Par | Seq | If) for s in inside):
            return
        if reads & {s.buffer for s in inside if isinstance(s, Bind | Accumulate | New)}:
            return
        if number > first and _is_plain(other) and isinstance(other, Par | Seq) and same(other.extent, loop.extent):
            wanted = _in_words_of(value, loop, other)
            if any(node == wanted for node in _dear(other)):
                yield number


def _in_words_of(value: Op, loop: Stmt, other: Stmt) -> Op:
    """The value of a loop with the index of another one."""
    assert isinstance(loop, Par | Seq) and isinstance(other, Par | Seq)
    old, new = loop.index, IndexVar(name=other.index)
    return rewrite(value, lambda node: new if isinstance(node, IndexVar) and node.name == old else node)


def _reading(stmt: Stmt, value: Op, row: str) -> Stmt:
    """The loop with a value read from a row."""
    assert isinstance(stmt, Par | Seq)
    own = Read(buffer=row, subscripts=(IndexVar(name=stmt.index),), dtype=value.dtype, span=stmt.span)
    body = tuple(
        replace(s, value=rewrite(s.value, lambda node: own if node == value else node))
        for s in stmt.body
        if isinstance(s, Bind | Accumulate)
    )
    return replace(stmt, body=body)
