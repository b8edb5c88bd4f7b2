"""Walks over core values and statements: their size, their names, the buffers that they reach."""

from texpr.grammar import ast
from texpr.grammar.index.expr import index_size
from texpr.grammar.walk import fold, walk


def condition_size(c: ast.Condition) -> int:
    """The number of nodes of a condition."""

    def count(node: ast.Condition, parts: list[int]) -> int:
        if isinstance(node, ast.Compare):
            return 3 + index_size(node.left) + index_size(node.right)
        return 1 + sum(parts)

    return fold(c, count, into=lambda node: not isinstance(node, ast.Compare))


def value_size(e: ast.Expr) -> int:
    """The number of nodes of a value."""
    count = 0
    stack: list[ast.Expr] = [e]
    while stack:
        node = stack.pop()
        count += 1
        match node:
            case ast.Op():
                stack += node.args
            case ast.Cast():
                stack.append(node.operand)
            case ast.Select():
                stack += (node.then, node.other)
                if isinstance(node.condition, ast.Expr):
                    stack.append(node.condition)
                else:
                    count += condition_size(node.condition)
            case ast.ConditionValue():
                count += condition_size(node.condition)
            case ast.IndexValue():
                count += index_size(node.index)
            case ast.Read():
                count += sum(index_size(s) for s in node.subscripts if not isinstance(s, ast.Gather))
                stack += [s.value for s in node.subscripts if isinstance(s, ast.Gather)]
            case _:
                pass
    return count


def promises_unique(statement: ast.Stmt) -> bool:
    """Whether `#unique` stands on a gathered write: of an affine one the proofs know, and need no promise."""
    if not isinstance(statement, ast.Bind | ast.Accumulate | ast.Atomic) or not statement.has("unique"):
        return False
    return any(isinstance(s, ast.Gather) for s in statement.subscripts)


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
