"""Lengths of the buffers of a bare program: the greatest subscript + 1, from the loops' bounds.

Each subscript is bounded by putting the last value of the innermost index first, then of the next: for
`C[i * N + j]` with j < N and i < M this gives (M - 1) * N + N - 1, so M * N elements. Sizes are taken as at least 1
there, which makes products monotone. Several accesses give the `max` of their bounds. Conditions are not looked at,
but for `index < bound` and its kin around the access.
"""

from collections.abc import Iterator

from texpr.grammar import ast
from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar
from texpr.grammar.check.nested import Nested, Stack
from texpr.grammar.index.expr import ONE, ZERO, combine, index_names, subtract
from texpr.grammar.index.linear import Atom, Linear, Operation, atom_names, constant, difference, linear, operation
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span

Loops = tuple[tuple[str, IndexExpr], ...]  # index and greatest value, outermost first
Access = tuple[str, tuple[ast.Subscript, ...], Loops, Span]


def infer_lengths(body: tuple[ast.Stmt, ...], flat: frozenset[str]) -> dict[str, IndexExpr]:
    """The length in elements of each buffer in `flat`; E0206 for one that a gather reaches."""
    bounds: dict[str, list[IndexExpr]] = {name: [] for name in flat}
    gathered: dict[str, Span] = {}
    for buffer, subscripts, loops, span in accesses(body):
        if buffer not in flat or not subscripts:
            continue
        subscript = subscripts[0]
        if isinstance(subscript, ast.Gather):
            gathered.setdefault(buffer, span)
            continue
        length = (greatest(subscript, loops) + 1).expression()
        known = bounds[buffer]
        if all(difference(length, other) != 0 for other in known):
            known.append(length)
    result: dict[str, IndexExpr] = {}
    for name, lengths in bounds.items():
        if name in gathered:
            raise refuse(
                "E0206", f"the length of `{name}` does not follow from a gather", gathered[name],
                help=f"declare it: kernel f({name}: f32[N]) {{ … }}",
            )  # fmt: skip
        result[name] = _greatest_of(lengths)
    return result


def _greatest_of(lengths: list[IndexExpr]) -> IndexExpr:
    """The maximum, without those that a constant difference makes smaller; at least 0."""
    kept: list[IndexExpr] = []
    for length in lengths:
        gaps = [difference(length, other) for other in kept]
        if any(gap is not None and gap <= 0 for gap in gaps):
            continue
        kept = [k for k, gap in zip(kept, gaps, strict=True) if gap is None or gap < 0] + [length]
    total = kept[0] if kept else ZERO
    for length in kept[1:]:
        total = combine(IndexOp.MAX, total, length)
    if any(factor < 0 for factor in linear(total).terms.values()):
        total = combine(IndexOp.MAX, ZERO, total)
    return total


# ---- bounds ----------------------------------------------------------------------------------------------------


def greatest(expression: IndexExpr, loops: Loops) -> Linear:
    """An upper bound of an expression over its loops, exact where it is monotone in each index."""
    bound = linear(expression)
    for index, last in reversed(loops):
        bound = Stack().run(_extreme(bound, index, linear(last), 1))
    return bound


async def _extreme(form: Linear, index: str, last: Linear, sign: int) -> Linear:
    """The greatest (sign 1) or least (sign -1) value over 0 <= index <= last."""
    total = constant(0)
    for monomial, factor in form.terms.items():
        term = constant(factor)
        for atom in monomial:
            term *= await _atom_extreme(atom, index, last, sign if factor > 0 else -sign)
        total += term
    return total


async def _atom_extreme(atom: Atom, index: str, last: Linear, sign: int) -> Linear:
    """Quotients follow their dividend; a remainder is at most its divisor - 1; min and max follow both sides."""
    if index not in atom_names(atom):
        return Linear({(atom,): 1})
    if not isinstance(atom, Operation):
        return last if sign > 0 else constant(0)
    if atom.op is IndexOp.MOD:
        return atom.right - 1 if sign > 0 else constant(0)
    left = await Nested(_extreme(atom.left, index, last, sign))
    right = await Nested(_extreme(atom.right, index, last, sign))
    return operation(atom.op, left, right)


# ---- accesses with their loops ---------------------------------------------------------------------------------


def accesses(body: tuple[ast.Stmt, ...]) -> Iterator[Access]:
    """Every access of a body with the loops around it, in text order."""
    work: list[tuple[ast.Node, Loops]] = [(s, ()) for s in reversed(body)]
    while work:
        node, loops = work.pop()
        inside = loops
        match node:
            case ast.Par() | ast.Seq():
                inside = (*loops, (node.index, subtract(node.extent, ONE)))
            case ast.If() | ast.Select() if isinstance(node.condition, ast.Condition):
                then, other = (node.then, node.orelse) if isinstance(node, ast.If) else ((node.then,), (node.other,))
                work += [(part, loops) for part in reversed(other)]
                work += [(part, narrowed(loops, node.condition)) for part in reversed(then)]
                continue
            case ast.Read() | ast.Bind() | ast.Accumulate() | ast.Atomic():
                yield node.buffer, node.subscripts, loops, node.span
            case _ if isinstance(node, ast.IndexExpr):
                continue
            case _:
                pass
        work += [(part, inside) for part in reversed(ast.operands(node))]


def narrowed(loops: Loops, condition: ast.Condition) -> Loops:
    """The loops with the last value of an index lowered by `index + c < bound` that the condition demands."""
    result = list(loops)
    parts = condition.parts if isinstance(condition, ast.And) else (condition,)
    for part in parts:
        if not isinstance(part, ast.Compare) or part.op not in (ast.CompareOp.LT, ast.CompareOp.LE):
            continue
        slack = ONE if part.op is ast.CompareOp.LT else ZERO
        for position, (index, last) in enumerate(result):
            shift = difference(part.left, IndexVar(name=index))
            limit = subtract(part.right, slack)
            inner = {name for name, _ in result[position:]}
            if shift is None or index_names(limit) & inner:
                continue
            limit = (linear(limit) - shift).expression()
            gap = difference(limit, last)
            if gap is None or gap < 0:
                result[position] = (index, limit if gap is not None else combine(IndexOp.MIN, limit, last))
    return tuple(result)
