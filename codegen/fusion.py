"""Register fusion: which operators of a block graph run register to register.

A chain is a run of neighbouring operators in which each one reads, from registers, what the one before it wrote: the
value never leaves its thread. Every operator is in exactly one chain; most chains have one member.

    S0: t = A[i] * 2    S1: C[i] = t + 1      (t in registers)   ->   (("S0", "S1"),)
"""

from itertools import pairwise
from typing import assert_never

from texpr.codegen.graph import BlockGraph, BlockNode, Define, Fresh, Generic, Guard, Loop
from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.places import Memory

Chains = tuple[tuple[str, ...], ...]


def fuse(graph: BlockGraph) -> Chains:
    """The chains of a block graph in text order, each a tuple of operator ids."""
    registers = {t.name for t in graph.tensors if t.memory is Memory.REG}
    chains: list[tuple[str, ...]] = []
    _fuse_body(graph.body, registers, chains)
    return tuple(chains)


def _fuse_body(body: tuple[BlockNode, ...], registers: set[str], chains: list[tuple[str, ...]]) -> None:
    previous: Generic | None = None
    for node in body:
        match node:
            case Generic():
                if previous is not None and _feeds(previous, node, registers):
                    chains[-1] = (*chains[-1], node.id)
                else:
                    chains.append((node.id,))
                previous = node
                continue
            case Loop(body=inner):
                _fuse_body(inner, registers, chains)
            case Guard(body=inner, orelse=orelse):
                _fuse_body(inner, registers, chains)
                _fuse_body(orelse, registers, chains)
            case Define() | Fresh():
                pass
            case _:
                assert_never(node)
        previous = None


def _feeds(writer: Generic, reader: Generic, registers: set[str]) -> bool:
    if writer.store is None or writer.store.tensor not in registers:
        return False
    return any(load.tensor == writer.store.tensor for load in reader.loads)


def check_chains(graph: BlockGraph, chains: Chains) -> None:
    """Verify a fusion plan by replaying it: InternalError unless the chains list every operator once, in text order,
    and each step of a chain stays in one body, touches no other node, and is a definition and a use of a register."""
    flat: list[tuple[int, int, Generic]] = []  # (body number, position, operator)
    stack: list[tuple[BlockNode, ...]] = [graph.body]
    order: list[Generic] = []
    bodies = 0
    while stack:
        body = stack.pop()
        bodies += 1
        flat += [(bodies, position, node) for position, node in enumerate(body) if isinstance(node, Generic)]
        for node in body:
            if isinstance(node, Loop | Guard):
                stack.append(node.body)
                if isinstance(node, Guard):
                    stack.append(node.orelse)
    place = {id(node): (body_number, position) for body_number, position, node in flat}
    pending: list[BlockNode] = list(reversed(graph.body))
    while pending:
        node = pending.pop()
        if isinstance(node, Generic):
            order.append(node)
        elif isinstance(node, Guard):
            pending.extend(reversed(node.body + node.orelse))
        elif isinstance(node, Loop):
            pending.extend(reversed(node.body))
    if [node.id for node in order] != [name for chain in chains for name in chain]:
        raise InternalError(f"{graph.name}: the fusion plan does not list every operator once, in order")
    memory = {t.name: t.memory for t in graph.tensors}
    cursor = iter(order)
    for chain in chains:
        members = [next(cursor) for _ in chain]
        for first, second in pairwise(members):
            (body_a, at_a), (body_b, at_b) = place[id(first)], place[id(second)]
            written = first.store.tensor if first.store else ""
            used = {load.tensor for load in second.loads}
            if body_a != body_b or at_b != at_a + 1 or memory.get(written) is not Memory.REG or written not in used:
                raise InternalError(f"{graph.name}: {first.id} and {second.id} are fused without a register between")
