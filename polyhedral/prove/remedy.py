"""A fact about free sizes that a program lacks: one under which none of its violations can happen.

    par N i { B[i] = A[i + 1] } on A: f32[M]     violations: N >= M >= 0, N >= 1     fact: N < M

Only facts that do help are found, so a hint never repeats what `where` says already: the violations are those that are
left under it. A bare program has no place for a fact.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, permutations

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexBinary, IndexConst, IndexExpr, IndexOp, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.operators import DIVISIONS
from texpr.grammar.index.text import in_words
from texpr.grammar.source import Span
from texpr.grammar.walk import walk
from texpr.polyhedral import isl
from texpr.polyhedral.affine import Scope
from texpr.polyhedral.program import Program

MAX_SIZES = 6  # of which pairs are compared
MAX_DIVISORS = 8
STEPS = 4_000  # of isl: a hint is worth a part of what one proof may take
ROUNDS_DOWN = (*DIVISIONS, IndexOp.MUL)


def missing_fact(program: Program, violations: isl.Set, span: Span) -> str | None:
    """The first fact, in the language's words, that excludes all violations (a set over the sizes as parameters); None
    where there is none of a simple form, or where it is too much work to find."""
    names = program.facts.names(violations)
    if not names or program.kernel.bare:
        return None
    try:
        with program.work.limited(span, "the search for a fact", isl.columns(violations), STEPS):
            violations = program.facts.ordered(violations)
            bad = violations.project_out(isl.dim_type.set, 0, violations.dim(isl.dim_type.set))
            scope = Scope(sizes=names, indices=(), work=program.work)
            for fact in _candidates(program, names, bad):
                if bad.intersect(scope.holds(fact)).is_empty():
                    return in_words(fact)
    except TExprError:
        return None
    return None


def _candidates(program: Program, names: Sequence[str], bad: isl.Set) -> Iterator[Condition]:
    """Bounds of one size, orders of two, divisibility: the simplest first."""
    flat = bad.move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, len(names))
    pieces = [isl.Set.from_basic_set(piece) for piece in flat.get_basic_sets()]
    pieces = [piece for piece in pieces if not piece.is_empty()]
    for position, name in enumerate(names):
        greatest = [piece.dim_max_val(position) for piece in pieces]
        if all(value.is_int() for value in greatest):
            yield _compare(SizeVar(name=name), CompareOp.GE, max(value.to_python() for value in greatest) + 1)
    for position, name in enumerate(names):
        least = min(piece.dim_min_val(position).to_python() for piece in pieces)
        if least > 1:
            yield _compare(SizeVar(name=name), CompareOp.LE, least - 1)
    if len(names) <= MAX_SIZES:
        for op in (CompareOp.LE, CompareOp.LT):
            for one, other in permutations(names, 2):
                yield Compare(op=op, left=SizeVar(name=one), right=SizeVar(name=other))
    for name in names[:MAX_SIZES]:
        for divisor in islice(_divisors(program), MAX_DIVISORS):
            rest = IndexBinary(op=IndexOp.MOD, left=SizeVar(name=name), right=IndexConst(value=divisor))
            yield _compare(rest, CompareOp.EQ, 0)


def _compare(left: IndexExpr, op: CompareOp, right: int) -> Compare:
    return Compare(op=op, left=left, right=IndexConst(value=right))


def _divisors(program: Program) -> Iterator[int]:
    """The constants by which the program divides or multiplies indices."""
    seen: set[int] = set()
    for node in walk(program.kernel):
        if isinstance(node, IndexBinary) and node.op in ROUNDS_DOWN:
            for side in (node.left, node.right):
                if isinstance(side, IndexConst) and side.value > 1 and side.value not in seen:
                    seen.add(side.value)
                    yield side.value
