"""Narrow sums: what accumulates to elements of a type with fewer bits than its terms are computed in.

    seq K k { C[i, j] += A[i, k] * B[k, j] }      C: bf16[M, N]: K roundings to 8 bits, where C itself is added to

A CPU carries such sums in the type of their terms, in registers (`promote.py`) and in rows (`rows.py`), or else, as
long sums are, in memory for the time of a call, in f32 (`kept.py`).
"""

from texpr.grammar.ast import AccOp, Accumulate
from texpr.grammar.types import DType
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.program import Program
from texpr.polyhedral.prove.additions import update_of


def is_narrow(problem: Problem, update: Accumulate) -> bool:
    """Whether each update of an element loses bits of what it had."""
    stored = problem.kernel.buffer(update.buffer).dtype
    return update.op in (AccOp.ADD, AccOp.MUL) and loses_bits(stored, update.value.dtype)


def narrow_updates(program: Program) -> frozenset[str]:
    """The additions, by id, of which each rounds its element to fewer bits."""
    updates = [(statement.id, update_of(statement)) for statement in program.statements]
    kernel = program.kernel
    return frozenset(
        id
        for id, leaf in updates
        if leaf is not None and loses_bits(kernel.buffer(leaf.buffer).dtype, leaf.value.dtype)
    )


def loses_bits(stored: DType, computed: DType) -> bool:
    """Whether floats of one type are rounded to another one."""
    return stored.is_float and computed.is_float and stored.bits < computed.bits
