"""How many additions an element gets: which loops repeat an update of it, and which sums are long.

    par N i { seq K k { C[i] += A[i, k] } }        K of them for each element of C: the loop k repeats the update

An element that may get more than `CHAIN` additions in f32 is a long sum, which mappings carry in f64
(`map/long_sums.py`) unless the author asks for the serial one; that is warned of here.
"""

from collections.abc import Iterable, Iterator

from texpr.grammar.ast import AccOp, Accumulate, Atomic, IndexExpr
from texpr.grammar.diagnostics import Diagnostic, Label, Severity, TExprError
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.grammar.permissions import keeps_order
from texpr.grammar.types import F32
from texpr.polyhedral import isl
from texpr.polyhedral.affine import coprime_columns
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, Program, ProgramStatement

CHAIN = 4096  # additions at most into one f32 partial


def long_updates(program: Program, sizes: Ranges | None = None) -> frozenset[str]:
    """The `+=` in f32, by id, whose element may get more than `CHAIN` additions, those of all its updates together,
    where sizes have these ranges (those of `where` unless others are given)."""
    found: dict[str, list[tuple[str, int | None]]] = {}
    for statement in program.statements:
        leaf = update_of(statement)
        if leaf is not None and leaf.value.dtype == F32 and not is_ordered(statement):
            found.setdefault(leaf.buffer, []).append((statement.id, additions(program, statement, sizes)))
    return frozenset(
        id
        for updates in found.values()
        if any(count is None for _, count in updates) or sum(count or 0 for _, count in updates) > CHAIN
        for id, _ in updates
    )


def warn_ordered(program: Program) -> Iterator[Diagnostic]:
    """W0303 for every long sum whose order the author keeps."""
    for statement in program.statements:
        leaf = update_of(statement)
        if leaf is not None and leaf.value.dtype == F32 and is_ordered(statement):
            count = additions(program, statement)
            if count is None or count > CHAIN:
                many = "any number of" if count is None else str(count)
                yield Diagnostic(
                    code="W0303",
                    message=f"`#ordered` adds {many} terms to one f32, each rounded",
                    primary=Label(span=leaf.span),
                    severity=Severity.WARNING,
                    help="remove #ordered, sum in f64, or bound the size by `where`",
                )


def serial_additions(program: Program, ranges: Ranges) -> dict[str, int]:
    """For every buffer that something is added to, how many additions an element gets at most; what the `ranges` of
    the sizes leave open is left out."""
    found: dict[str, int | None] = {}
    for statement in program.statements:
        leaf = update_of(statement)
        if leaf is not None:
            count, before = additions(program, statement, ranges), found.get(leaf.buffer, 0)
            found[leaf.buffer] = None if count is None or before is None else before + count
    return {name: count for name, count in found.items() if count is not None}


def update_of(statement: ProgramStatement) -> Accumulate | Atomic | None:
    """The addition that a statement makes, None where it makes none."""
    leaf = statement.leaf
    return leaf if isinstance(leaf, Accumulate | Atomic) and leaf.op is AccOp.ADD else None


def is_ordered(statement: ProgramStatement) -> bool:
    """Whether the author asks for the serial sum."""
    return keeps_order(statement.leaf) or any(keeps_order(loop.node) for loop in statement.loops)


def additions(program: Program, statement: ProgramStatement, sizes: Ranges | None = None) -> int | None:
    """How many instances of an update reach one element at most, while it lives; None where the ranges of the sizes
    (those of `where` unless others are given) leave it open."""
    known = size_ranges(program.kernel) if sizes is None else sizes
    return product(repeating(program, statement, known).values())


def repeating(
    program: Program, statement: ProgramStatement, sizes: Ranges, most_turns: int = CHAIN
) -> dict[int, int | None]:
    """The loops, by depth, whose iterations add to one element, with their greatest extents; others may be among them
    where all together have at most so many turns."""
    write = statement.write
    assert write is not None, "an update writes"
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = dict(sizes)
    turns: dict[int, int | None] = {}
    for depth, loop in enumerate(statement.loops):
        found = index_range(loop.extent, ranges)
        if found is not None:
            ranges[loop.index] = found
        if depth >= len(program.buffers[write.buffer].outer):
            turns[depth] = most(loop.extent, ranges)
    if product(turns.values()) is None or (product(turns.values()) or 0) > most_turns:
        for depth in sorted(turns, key=lambda d: (turns[d] is not None, -(turns[d] or 0))):
            rest = {d: n for d, n in turns.items() if d != depth}
            if _tells(program, statement, write, set(rest)):
                turns = rest
    return turns


def product(turns: Iterable[int | None]) -> int | None:
    """Of all counts; None where one is open."""
    total: int | None = 1
    for count in turns:
        total = None if count is None or total is None else total * count
    return total


def _tells(program: Program, statement: ProgramStatement, write: Access, kept: set[int]) -> bool:
    """Whether an element, with the indices of the loops `kept` and of those around its buffer, tells the instance."""
    question = ("tells", statement.id, frozenset(kept))
    return program.work.once(question, lambda: _ask_tells(program, statement, write, kept))


def _ask_tells(program: Program, statement: ProgramStatement, write: Access, kept: set[int]) -> bool:
    known = kept | set(range(len(program.buffers[write.buffer].outer)))
    width = 2 * (columns(write.relation) + coprime_columns(write.subscripts))
    try:
        with program.work.limited(write.span, "counting the additions to one element", width):
            indices = isl.Map.identity(statement.domain.get_space().map_from_set())
            for depth in reversed(range(len(statement.loops))):
                if depth not in known:
                    indices = indices.project_out(isl.dim_type.out, depth, 1)
            reached = write.relation.intersect_domain(statement.domain).range_product(indices)
            return bool(program.facts.within(reached).is_injective())
    except TExprError:
        if program.work.exhausted:
            raise
        return False  # then more additions are counted than there are
