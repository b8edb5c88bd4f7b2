"""XOR swizzles of shared tensors: which address bits of the row are mixed into the column.

This plan names `none` for every shared tensor: addresses are the layout's. An emitter that sees another name must
apply it to every access of the tensor.

    tile: f16[64, 64] in shared memory   ->   {"tile": "none"}
"""

from texpr.codegen.graph import BlockGraph
from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.places import Memory

NONE = "none"


def choose_swizzles(graph: BlockGraph) -> dict[str, str]:
    """The swizzle of every shared tensor of a graph, by name."""
    return {t.name: NONE for t in graph.tensors if t.memory in (Memory.SHARED, Memory.CLUSTER)}


def check_swizzles(graph: BlockGraph, swizzles: dict[str, str]) -> None:
    """Verify a swizzle plan: InternalError for a tensor without one, outside shared memory, or of an unknown name."""
    for name, swizzle in swizzles.items():
        homes = [t.memory for t in graph.tensors if t.name == name]
        if homes not in ([Memory.SHARED], [Memory.CLUSTER]) or swizzle != "none":
            raise InternalError(f"{graph.name}: swizzle {swizzle!r} of {name} has no meaning")
    missing = [t.name for t in graph.tensors if t.memory not in (Memory.REG, Memory.GLOBAL) and t.name not in swizzles]
    if missing:
        raise InternalError(f"{graph.name}: no swizzle for {', '.join(missing)}")
