"""What a block graph uses: the tensors that it reads and those that it writes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from texpr.codegen.graph import BlockGraph, BlockNode, Define, Fresh, Generic, Guard, Loop
from texpr.grammar.ast import Node, Read
from texpr.grammar.walk import walk
from texpr.polyhedral.mapped.sync import Barrier


@dataclass(frozen=True, slots=True)
class Usage:
    """Names of the tensors of one block graph; scalars count as read. `waits`: its threads wait for one another."""

    read: frozenset[str]
    written: frozenset[str]
    waits: bool

    @property
    def tensors(self) -> frozenset[str]:
        return self.read | self.written


def nodes_of(body: Iterable[BlockNode]) -> Iterator[BlockNode]:
    """Every node of a body, parents before children, in text order."""
    work = list(body)[::-1]
    while work:
        node = work.pop()
        yield node
        match node:
            case Loop(body=inner):
                work.extend(reversed(inner))
            case Guard(body=inner, orelse=orelse):
                work.extend(reversed(inner + orelse))
            case Define() | Generic() | Fresh() | Barrier():
                pass


def usage_of(graph: BlockGraph) -> Usage:
    """The usage of a graph: gathered subscripts and conditions read too."""
    roots: list[Node] = []
    written: set[str] = set()
    waits = False
    for node in nodes_of(graph.body):
        match node:
            case Guard(condition=condition):
                roots.append(condition)
            case Generic(leaf=leaf, store=store):
                roots.append(leaf.value)
                if store is not None:
                    roots += store.subscripts
                    written.add(store.tensor)
            case Barrier():
                waits = True
            case Loop() | Define() | Fresh():
                pass
    read = {part.buffer for root in roots for part in walk(root) if isinstance(part, Read)}
    return Usage(frozenset(read), frozenset(written), waits)
