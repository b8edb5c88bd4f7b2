"""Threads at a node of a launch's tree, with the values of all names there: what `order_oracle` walks with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from texpr.grammar.ast import Cast, Expr, Gather, Op, Read, Select
from texpr.grammar.index.value import condition_value, index_value
from texpr.polyhedral.mapped.views import Box


@dataclass
class Rows:
    """Threads at a node with the values of all names; `turns` has one column for each loop around."""

    thread: Any
    values: dict[str, Any]
    turns: Any

    def only(self, mask: Any) -> "Rows":
        mask = np.broadcast_to(np.asarray(mask, bool), self.thread.shape)
        values = {n: v[mask] if isinstance(v, np.ndarray) else v for n, v in self.values.items()}
        return Rows(self.thread[mask], values, self.turns[mask])

    def array(self, expr: Any) -> Any:
        return np.broadcast_to(np.asarray(index_value(expr, self.values)), self.thread.shape).astype(np.int64)


def reads_of(value: Expr, rows: Rows) -> Iterator[tuple[Read, Rows]]:
    """Every read of a value with the rows that make it: the arms of an affine `select` split them."""
    match value:
        case Read(subscripts=subscripts):
            yield value, rows
            for subscript in subscripts:
                if isinstance(subscript, Gather):
                    yield from reads_of(subscript.value, rows)
        case Op(args=args):
            for arg in args:
                yield from reads_of(arg, rows)
        case Cast(operand=operand):
            yield from reads_of(operand, rows)
        case Select(condition=condition, then=then, other=other):
            first = second = rows
            if isinstance(condition, Expr):
                yield from reads_of(condition, rows)
            else:
                chosen = np.broadcast_to(np.asarray(condition_value(condition, rows.values), bool), rows.thread.shape)
                first, second = rows.only(chosen), rows.only(~chosen)
            yield from reads_of(then, first)
            yield from reads_of(other, second)
        case _:
            return


def spread(over: Box, rows: Rows) -> Rows:
    """Every thread once for each value of an operator's indices."""
    for index, extent in over:
        turns = range(int(index_value(extent, rows.values)))
        parts = [Rows(rows.thread, {**rows.values, index: np.full(len(rows.thread), t)}, rows.turns) for t in turns]
        rows = joined(parts, rows, index)
    return rows


def joined(parts: Sequence[Rows], like: Rows, index: str) -> Rows:
    if not parts:
        empty = like.only(np.zeros(like.thread.shape, bool))
        none = np.zeros((0, like.turns.shape[1] + 1), np.int64)
        return Rows(empty.thread, {**empty.values, index: np.zeros(0, np.int64)}, none)
    values: dict[str, Any] = {}
    for name, first in parts[0].values.items():
        apart = isinstance(first, np.ndarray)
        values[name] = np.concatenate([part.values[name] for part in parts]) if apart else first
    thread = np.concatenate([part.thread for part in parts])
    return Rows(thread, values, np.concatenate([part.turns for part in parts]))
