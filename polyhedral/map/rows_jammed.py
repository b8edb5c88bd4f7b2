"""Rows in pairs: each iteration of a band takes two that are aligned alike, so that what both read is read once.

    par M i { s = sum N j { X[i, j] } ; par N j { Y[i, j] = X[i, j] * s * G[j] } }            bf16

    par M / 128 * 64 + min(64, M % 128) g {                 i = g / 64 * 128 + g % 64
        s = 0.0 ; t = 0.0                                    k = i + 64 * min(1, (M - 1 - i) / 64)
        seq N j { s += X[i, j] ; t += X[k, j] }
        par N j { Y[i, j] = X[i, j] * s * G[j] ; Y[k, j] = X[k, j] * t * G[j] }
    }

Rows that lie as many apart as a line of memory has elements begin alike in one, whatever their length. The last rows
may have no second one: k is i then, and the row is made twice, with the same values, as nothing is read that is
written. Loops of both are one, as iterations of a band are independent; those of each row stay in their order.

Input: a kept program, and indices of bands. Output: the program with their rows in pairs. It is proved too: the rows
that are written are those of the program.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Bind, IndexExpr, IndexOp, IndexVar, Leaf, New, Node, Par, Read, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, add, combine, const, index_names, minimum, multiply, subtract
from texpr.grammar.walk import rewrite
from texpr.polyhedral.map.kept import Kept, rewritten
from texpr.polyhedral.map.lines import LINE_BYTES
from texpr.polyhedral.map.part_lines import first_of_group, row_groups
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.walk import read_accesses, subscript_names, touched, written

ROWS = 2


def to_jam(kept: Kept) -> frozenset[str]:
    """The bands of rows that could be taken in pairs, by index."""
    kernel = kept.proved.program.kernel
    if kernel.attrs:
        return frozenset()
    return frozenset(s.index for s in kernel.body if isinstance(s, Par) and _is_able(kept, s))


def rows_apart(kept: Kept, par: Par) -> int:
    """How far the two rows of a pair lie apart, for them to begin alike in a line of memory."""
    kernel = kept.proved.program.kernel
    leaves = [s for s in statements(par.body) if isinstance(s, Leaf)]
    rows = {name for leaf in leaves for name, subscripts in touched(leaf) if par.index in subscript_names(subscripts)}
    return LINE_BYTES // min(kernel.buffer(name).dtype.size_bytes for name in rows)


def jam(kept: Kept, indices: Collection[str]) -> Kept:
    """The program with the rows of these bands in pairs. Raises E0307 where its model takes too many steps."""
    if not indices:
        return kept
    program = kept.proved.program
    kernel = program.kernel
    names = Names((*names_taken(kernel), *(s.id for s in program.statements)))
    buffers, body = list(kernel.buffers), list[Stmt]()
    for stmt in kernel.body:
        if isinstance(stmt, Par) and stmt.index in indices:
            own = {s.buffer for s in statements(stmt.body) if isinstance(s, New)}
            called = {name: names.fresh(f"{name}_beside") for name in sorted(own)}
            buffers += [replace(kernel.buffer(name), name=new, source_name=new) for name, new in called.items()]
            stmt = _Pair(stmt, rows_apart(kept, stmt), called, names).band()
        body.append(stmt)
    found = rewritten(kept, replace(kernel, buffers=tuple(buffers), body=tuple(body)))
    return replace(found, jammed=frozenset(indices))


class _Pair:
    """The band whose iterations have two rows each, of which the second has locals of its own."""

    def __init__(self, par: Par, apart: int, called: dict[str, str], names: Names) -> None:
        self.par, self.apart, self.called, self.names = par, apart, called, names
        self.first = first_of_group(IndexVar(name=par.index), ROWS, apart)
        behind = subtract(subtract(par.extent, ONE), self.first)
        there = minimum(ONE, combine(IndexOp.DIV, behind, const(apart)))
        self.second = add(self.first, multiply(const(apart), there))

    def band(self) -> Par:
        extent = row_groups(self.par.extent, ROWS, self.apart)
        return replace(self.par, extent=extent, body=tuple(self._both(self.par.body)))

    def _both(self, stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
        for stmt in stmts:
            if isinstance(stmt, Seq | Par):
                yield replace(stmt, body=tuple(self._both(stmt.body)))
            else:
                yield self._at(stmt, self.first, {})
                yield self._at(stmt, self.second, self.called)

    def _at(self, stmt: Stmt, row: IndexExpr, called: dict[str, str]) -> Stmt:
        def change(node: Node) -> Node:
            match node:
                case IndexVar(name=name) if name == self.par.index:
                    return row
                case New() | Bind() | Accumulate() | Read() if node.buffer in called:
                    return replace(node, buffer=called[node.buffer])
            return node

        found = rewrite(stmt, change)
        if called and isinstance(found, Bind | Accumulate):
            found = replace(found, id=self.names.fresh(f"{found.id}_beside"))
        assert isinstance(found, New | Bind | Accumulate)
        return found


def _is_able(kept: Kept, par: Par) -> bool:
    """Whether a band has one index, of which no extent inside tells anything, nothing inside asks for a place, and an
    iteration may run twice: it reads no array that it writes."""
    inside = tuple(statements(par.body))
    plain = all(isinstance(s, New | Bind | Accumulate | Seq | Par) and not s.attrs for s in (par, *inside))
    alone = not (len(par.body) == 1 and isinstance(par.body[0], Par) and par.body[0].band == par.band)
    box = not any(isinstance(s, Seq | Par) and index_names(s.extent) for s in (par, *inside))
    own = {s.buffer for s in inside if isinstance(s, New)}
    leaves = [s for s in inside if isinstance(s, Leaf)]
    targets = [target for leaf in leaves if (target := written(leaf)) is not None and target[0] not in own]
    read = {access.buffer for leaf in leaves for access in read_accesses(leaf)}
    read |= {leaf.buffer for leaf in leaves if isinstance(leaf, Accumulate)}
    return (
        plain
        and alone
        and box
        and not par.fully
        and all(name not in read and par.index in subscript_names(subscripts) for name, subscripts in targets)
    )
