"""Walks over core values and statements: their size, their names, the buffers that they reach."""

from collections.abc import Iterator

from texpr.grammar import ast
from texpr.grammar.walk import walk


def value_size(tree: ast.Expr | ast.Condition) -> int:
    """The number of nodes of a value or a condition; the sides of a comparison count, other leaves of index expressions
    do not."""
    return sum(_WEIGHTS.get(type(node), 1) for node in walk(tree))


_WEIGHTS: dict[type[ast.Node], int] = {
    ast.IndexConst: 0,
    ast.IndexVar: 0,
    ast.SizeVar: 0,
    ast.Gather: 0,
    ast.Compare: 3,
}


def children(stmt: ast.Stmt) -> tuple[ast.Stmt, ...]:
    """The statements directly inside; an intrinsic counts as its reference body."""
    match stmt:
        case ast.Par(body=body) | ast.Seq(body=body) | ast.Intrinsic(reference=body):
            return body
        case ast.If(then=then, orelse=orelse):
            return then + orelse
        case _:
            return ()


def statements(body: tuple[ast.Stmt, ...]) -> Iterator[ast.Stmt]:
    """Every statement in text order, outer before inner."""
    stack = list(reversed(body))
    while stack:
        stmt = stack.pop()
        yield stmt
        stack.extend(reversed(children(stmt)))


def buffers_read(e: ast.Expr) -> set[str]:
    """Names of the buffers that a value reads, in its subscripts too."""
    return {node.buffer for node in walk(e) if isinstance(node, ast.Read)}


def buffers_written(kernel: ast.Kernel) -> set[str]:
    """Names of the buffers that a statement of the kernel writes."""
    found = {n.buffer for n in walk(kernel) if isinstance(n, ast.Bind | ast.Accumulate | ast.Atomic)}
    return found | {n.buffer for n in walk(kernel) if isinstance(n, ast.AsmOperand) and n.mode != "in"}


def buffers_of(statement: ast.Stmt) -> set[str]:
    """Names of the buffers that a statement reads or writes."""
    touching = (ast.Read, ast.Bind, ast.Accumulate, ast.Atomic, ast.AsmOperand)
    return {node.buffer for node in walk(statement) if isinstance(node, touching)}
