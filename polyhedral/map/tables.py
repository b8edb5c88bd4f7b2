"""Tables: what a thread reads alike in each of its turns, a few elements, which it has in registers before the first.

par N n, G g, H h, W w { Y[n, g, h, w] = sum 3 r, 3 s { X[n, g, h + r, w + s] * F[g, r, s] } }      7 turns of h

each r_each < 3, s_each < 3: F_table[r_each, s_each] = F[g, r_each, s_each]
for h_serial < 7 …                    X[…] * F_table[r, s], with the loops over r and s written out
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Accumulate, Bind, Cast, Expr, Gather, IndexVar, Leaf, Op, Read, Seq, Stmt
from texpr.grammar.ast import Node as Tree
from texpr.grammar.core import statements
from texpr.grammar.index.expr import const, constant_value, names
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import arrays_of, at_places
from texpr.polyhedral.mapped.operators import Elementwise, Origin
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Loop, Node
from texpr.polyhedral.mapped.walks import map_nodes
from texpr.polyhedral.walk import subscript_names, written

MOST = 36  # elements of a table: 6 by 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An element that is read for all values of `loops`, whatever data says."""

    read: Read
    loops: tuple[Seq, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(constant_value(loop.extent) or 0 for loop in self.loops)


def tables(problem: Problem, nest: Nest, covered: Mapping[str, int], turned: Collection[str]) -> tuple[Table, ...]:
    """The tables of a nest over a box, for threads that cover so many iterations of each index and take some in turns:
    of every thread, whether it has an iteration or not, the indices of what it reads are some iteration's."""
    if any(names(par.extent) & set(nest.indices) for par in nest.pars):
        return ()
    once = Counter(stmt.index for stmt in statements(nest.body) if isinstance(stmt, Seq))
    changed = {target[0] for s in statements(nest.body) if isinstance(s, Leaf) and (target := written(s)) is not None}
    whole = {par.index for par in nest.pars if (constant_value(par.extent) or 1) % covered[par.index] == 0}
    whole |= {par.index for par in nest.pars if covered[par.index] == 1}
    found: dict[tuple[object, ...], Table] = {}
    for read, around in _always(nest.body, ()):
        used = subscript_names(read.subscripts)
        loops = tuple(loop for loop in around if loop.index in used)
        fits = read.buffer in arrays_of(problem) - changed and not any(isinstance(s, Gather) for s in read.subscripts)
        fits = fits and bool(loops) and all(once[loop.index] == 1 for loop in loops)
        table = Table(read=read, loops=loops)
        if fits and used <= whole.difference(turned) | {loop.index for loop in loops} and prod(table.extents) <= MOST:
            found.setdefault((read.buffer, read.subscripts), table)
    return tuple(found.values())


def _always(stmts: Sequence[Stmt], around: tuple[Seq, ...]) -> Iterator[tuple[Read, tuple[Seq, ...]]]:
    """What is read in every iteration of loops that have some, and these."""
    for stmt in stmts:
        if isinstance(stmt, Seq) and (constant_value(stmt.extent) or 0) > 0 and not stmt.attrs:
            yield from _always(stmt.body, (*around, stmt))
        elif isinstance(stmt, Bind | Accumulate):
            yield from ((read, around) for read in _reads(stmt.value))


def _reads(value: Expr) -> Iterator[Read]:
    """What a value reads under no condition."""
    match value:
        case Read():
            yield value
        case Op(args=args):
            for arg in args:
                yield from _reads(arg)
        case Cast(operand=operand):
            yield from _reads(operand)
        case _:
            pass


def read_before(
    draft: Draft, nest: Nest, found: Sequence[Table], digits: tuple[str, ...]
) -> tuple[tuple[Node, ...], Nest]:
    """What fills the tables, and the nest that reads them."""
    nodes: list[Node] = []
    for table in found:
        read, fresh = table.read, draft.names.fresh
        each = tuple(fresh(f"{loop.index}_each") for loop in table.loops)
        name = draft.local(
            f"{read.buffer}_table",
            read.dtype,
            Memory.REG,
            row_major(tuple(map(const, table.extents))),
            f"what all turns of a thread read of {read.buffer}",
            span=read.span,
        )
        here = {loop.index: IndexVar(name=e) for loop, e in zip(table.loops, each, strict=True)}
        leaf = Bind(
            id=fresh(f"{read.buffer}_read"),
            buffer=name,
            subscripts=tuple(here.values()),
            value=replace(read, subscripts=at_places(read.subscripts, here)),
            span=read.span,
        )
        over = tuple((e, const(n)) for e, n in zip(each, table.extents, strict=True))
        nodes += [
            Fresh(buffer=name),
            Elementwise(id=leaf.id, leaves=(leaf,), over=over, origin=Origin.COPY_IN, digits=digits),
        ]
        nest = replace(nest, body=tuple(_through(stmt, table, name) for stmt in nest.body))
    return tuple(nodes), nest


def _through(stmt: Stmt, table: Table, name: str) -> Stmt:
    """The statement with reads of a table where it reads the array."""
    places = tuple(IndexVar(name=loop.index) for loop in table.loops)

    def change(node: Tree) -> Tree:
        if isinstance(node, Read) and (node.buffer, node.subscripts) == (table.read.buffer, table.read.subscripts):
            return replace(node, buffer=name, subscripts=places)
        return node

    return rewrite(stmt, change)


def written_out(body: Sequence[Node], found: Sequence[Table]) -> tuple[Node, ...]:
    """The nodes with the loops over tables unrolled: registers have no addresses."""
    indices = {loop.index for table in found for loop in table.loops}

    def change(node: Node) -> Node:
        return replace(node, unroll=True) if isinstance(node, Loop) and node.index in indices else node

    return map_nodes(body, change)
