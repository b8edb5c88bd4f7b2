"""Joined indices: two parallel indices that a band writes as one become one, whatever it reads.

    3 channels, 128 pixels       par 128 p, 3 c { Y[p, c] = X[c, p] }
                                 par 384 p_c { Y[p_c] = X[p_c % 3, p_c / 3] }
    rows of 509 elements         par 509 i, 521 j, 503 k { Y[k, j, i] = X[i, j, k] }
                                 par 265189 j_i, 503 k { Y[k, j_i] = X[j_i % 509, j_i / 509, k] }

So neighbouring lanes write neighbours in memory, also where rows are shorter than a warp, and tiles are not cut at the
ends of rows that begin at any address. Sizes are known: only then are remainders cheap.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from texpr.grammar.ast import Bind, Gather, IndexExpr, IndexOp, IndexVar, Kernel, New, Node, Par, Stmt, Subscript
from texpr.grammar.core import children
from texpr.grammar.index.expr import combine, const, constant_value
from texpr.grammar.index.linear import Linear, linear
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.declared import declared_layout
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest, nest_of
from texpr.polyhedral.map.merged import accesses, is_one, merged_buffer
from texpr.polyhedral.mapped.program import ALIGN_BYTES
from texpr.polyhedral.names import Names, names_taken

SHORT = 16  # elements of a row: no tile has a side that is shorter


def joined(kernel: Kernel) -> Kernel:
    """The kernel with the indices joined of each band that writes short rows, or rows at any address that it does not
    read so."""
    found = [join for nest in _bands(kernel.body) if (join := _join(kernel, nest)) is not None]
    for join in found:
        kernel = join.made(kernel)
    return kernel


def _bands(stmts: tuple[Stmt, ...]) -> Iterator[Nest]:
    """Every outermost band."""
    for stmt in stmts:
        if isinstance(stmt, Par):
            yield nest_of(stmt)
        else:
            yield from _bands(children(stmt))


@dataclass(frozen=True, slots=True)
class _Join:
    """The last two dimensions of what a band writes, whole rows of so many elements, are its indices for them."""

    nest: Nest
    write: Bind
    rows: Par
    columns: Par
    length: int

    def made(self, kernel: Kernel) -> Kernel:
        """The kernel with one index for the two."""
        rows, columns, buffer = self.rows, self.columns, self.write.buffer
        name = Names(names_taken(kernel)).fresh(f"{rows.index}_{columns.index}")
        index, length = IndexVar(name=name), const(self.length)
        places = {
            rows.index: combine(IndexOp.DIV, index, length),
            columns.index: combine(IndexOp.MOD, index, length),
        }
        one = replace(
            rows,
            index=name,
            source_name=f"{rows.source_name}_{columns.source_name}",
            extent=const((constant_value(rows.extent) or 0) * self.length),
        )

        def change(node: Node) -> Node:
            match node:
                case IndexVar(name=index_name) if index_name in places:
                    return places[index_name]
                case Bind() if node.buffer == buffer:
                    return replace(node, subscripts=(*node.subscripts[:-2], index))
                case _:
                    return node

        body = tuple(rewrite(stmt, change) for stmt in self.nest.body)
        pars = [one if par is rows else par for par in self.nest.pars if par is not columns]
        for par in reversed(pars):
            body = (replace(par, body=body),)
        (band,) = body

        def put(node: Node) -> Node:
            return band if isinstance(node, Par) and node.index == self.nest.pars[0].index else node

        last = len(kernel.buffer(buffer).shape) - 1
        return replace(
            kernel,
            buffers=tuple(merged_buffer(b, {buffer: (last - 1, last)}) for b in kernel.buffers),
            body=tuple(rewrite(stmt, put) for stmt in kernel.body),
        )


def _join(kernel: Kernel, nest: Nest) -> _Join | None:
    """What is to be joined of a band of plain statements, if anything."""
    if any(par.attrs or par.fully or constant_value(par.extent) is None for par in nest.pars):
        return None
    own = {stmt.buffer for stmt in nest.body if isinstance(stmt, New)}
    writes = [stmt for stmt in nest.body if isinstance(stmt, Bind) and stmt.buffer not in own]
    if len(writes) != 1 or not all(isinstance(stmt, Bind | New) for stmt in nest.body):
        return None
    (write,) = writes
    everywhere = [name for stmt in kernel.body for name, _ in accesses(stmt)]
    if len(write.subscripts) < 2 or everywhere.count(write.buffer) > 1:
        return None
    buffer, last = kernel.buffer(write.buffer), len(write.subscripts) - 1
    by_index: Mapping[IndexExpr, Par] = {IndexVar(name=par.index): par for par in nest.pars}
    rows, columns = (None if isinstance(s, Gather) else by_index.get(s) for s in write.subscripts[-2:])
    if rows is None or columns is None or rows is columns or not is_one(buffer, (last - 1, last)):
        return None  # a diagonal has one index for the two
    length = constant_value(columns.extent) or 0
    found = _Join(nest, write, rows, columns, length)
    return found if columns.extent == buffer.shape[last] and _pays(kernel, found) else None


def _pays(kernel: Kernel, join: _Join) -> bool:
    """Whether rows are short, or begin at any address and something is read along a third index; and nothing else
    has such rows."""
    length, size = join.length, kernel.buffer(join.write.buffer).dtype.size_bytes
    others = [par for par in join.nest.pars if par is not join.rows and par is not join.columns]
    read = [_address(kernel, *access) for access in _reads(join)]
    rows, columns = join.rows.index, join.columns.index
    if any(address.coefficient(columns) == 1 and address.coefficient(rows) != 0 for address in read):
        return False
    third = any(address.coefficient(par.index) == 1 for address in read for par in others)
    return 1 < length < SHORT or (length >= SHORT and length * size % ALIGN_BYTES != 0 and third)


def _reads(join: _Join) -> Iterator[tuple[str, tuple[Subscript, ...]]]:
    """What an iteration reads of arrays."""
    own = {stmt.buffer for stmt in join.nest.body if isinstance(stmt, New)}
    for stmt in join.nest.body:
        for name, subscripts in accesses(stmt):
            if name not in own and name != join.write.buffer:
                yield name, subscripts


def _address(kernel: Kernel, name: str, subscripts: tuple[Subscript, ...]) -> Linear:
    """Where an element lies in its array, with a name for what is read from data."""
    plain = [IndexVar(name=f"#{n}") if isinstance(s, Gather) else s for n, s in enumerate(subscripts)]
    return linear(offset(replace(declared_layout(kernel.buffer(name)), xor=None), plain))
