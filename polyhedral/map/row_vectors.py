"""The vectors beside a row: what loops over it read of arrays that all blocks read, and the launch does not write.

    copy G_run[e] = G[j_first + e] for e < 8  (now, funnel, read_only)      in each run of a row that is written

nvcc moves no load over a store, nor over where blocks of a cluster wait for one another, that it does not know for one
of what nobody writes: each run of a thread then waited for its vectors by itself. RMSNorm of 257 x 100003 in bf16 runs
at .81 so, at .77 else, LayerNorm in f32 at .71 and .70. Only loads at any address are told, and in clusters: what a
block alone has of a short row takes more registers then, and less of others (LayerNorm of 32749 x 4093 in bf16 runs at
.86 of a copy, at .90 else; aligned ones of 8192 x 32000 in f32 at .95 and .96).
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Loop, Node
from texpr.polyhedral.mapped.walks import branches, map_nodes, tree_writes, with_branches


def tell_vectors(draft: Draft, body: Sequence[Node]) -> tuple[Node, ...]:
    """The body of a cluster over rows, whose loads at any address in loops are told to be of what stays."""
    changed = tree_writes(body)

    def told(node: Node) -> Node:
        if not isinstance(node, Copy) or node.access is not Access.FUNNEL or node.source.buffer in changed:
            return node
        array = draft.buffers[node.source.buffer].memory is Memory.GLOBAL
        return replace(node, cache=Cache.READ_ONLY) if array else node

    def visit(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(
            map_nodes((node,), told)[0]
            if isinstance(node, Loop)
            else with_branches(node, [visit(inside) for inside in branches(node)])
            for node in nodes
        )

    return visit(body)
