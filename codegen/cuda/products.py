"""Products on FMA units whose text takes nvcc: those with all products of a step in a row."""

from texpr.grammar.ast import Accumulate
from texpr.polyhedral.mapped.operators import Copy, Elementwise
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import every_node, launches, of_kind


def has_long_products(program: MappedProgram) -> bool:
    """Whether a launch takes factors from shared memory in a loop that is unrolled as a whole, and adds their products
    to sums: NVRTC has addresses in shared memory of 64 bits, and a GPU takes up to 6 % longer for such a loop."""

    def is_long(loop: Loop) -> bool:
        inside = list(every_node(loop.body)) if loop.unroll else []
        takes = any(isinstance(node, Copy) and _is_shared(program, node) for node in inside)
        return takes and any(map(_adds, inside))

    return any(is_long(loop) for launch in launches(program.host) for loop in of_kind(launch.body, Loop))


def _is_shared(program: MappedProgram, copy: Copy) -> bool:
    return program.buffers[copy.source.buffer].memory is Memory.SHARED


def _adds(node: object) -> bool:
    return isinstance(node, Elementwise) and any(isinstance(leaf, Accumulate) for leaf in node.leaves)
