"""Arrays of which the L2 gives up last what was read: it makes room by what was written, which nobody waits for.

    {"lasting": ["softmax_0"]}      X, which softmax_0 reads, is larger than the L2; Y, which it writes, makes room

Each line of a long array is of no use once it was read, and so is one that was written. If the written ones go first
they go to memory soon, and many together: an H200 runs nearly all launches that read and write far more than its L2
holds faster so, those of 32768 x 4096 in bf16 by .01 (add + gelu) to .03 of a copy (softmax .98 before, 1.00; gather of
rows .96, .98), in f32 by as much, and none of those that only read. What a smaller array's launch writes may still be
there for the next kernel, which is worth more. So each array is asked for its size, if need be when the kernel runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import const, constant_value, multiply
from texpr.grammar.types import DType
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.map.choose_jammed import is_ragged
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.roofline import moved
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Columns, Flat, Parted, Scanned, Tiled
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostNode, Launch, MappedBuffer
from texpr.polyhedral.mapped.walks import map_launches, tree_buffers, tree_writes
from texpr.polyhedral.target import Target

LEAST_WRITTEN = 8  # bytes that are read for one that is written, at most


def lasting(
    host: Sequence[HostNode], names: frozenset[str], buffers: Mapping[str, MappedBuffer], target: Target
) -> tuple[HostNode, ...]:
    """The program whose launches of these names ask the L2 to give up last what they read of long arrays."""

    def change(launch: Launch) -> Launch:
        if launch.name not in names:
            return launch
        read = tree_buffers(launch.body) - tree_writes(launch.body)
        arrays = (buffers[name] for name in read if buffers[name].memory is Memory.GLOBAL)
        found = (one.name for one in arrays if may_be_long(extent(one.layout), one.dtype, target))
        return replace(launch, lasting=tuple(sorted(found)))

    return map_launches(host, change)


def may_be_long(elements: IndexExpr, dtype: DType, target: Target) -> bool:
    """Whether an array of so many elements may be larger than the L2 of the target."""
    known = constant_value(multiply(elements, const(dtype.size_bytes)))
    return known is None or known > target.l2_bytes


def able(problem: Problem) -> tuple[str, ...]:
    """The launches that read arrays which they do not write, of any size: a mapping is for other sizes, too."""
    return tuple(region.name for region in problem.regions() if problem.target.is_cuda and _only_read(problem, region))


def _only_read(problem: Problem, region: Region) -> set[str]:
    touched = moved(problem, region)
    return {name for name, writes in touched if not writes and (name, True) not in touched}


def choose_lasting(problem: Problem, chosen: Mapping[str, Choice]) -> frozenset[str]:
    """All that read such an array which may be long, and write so much that the L2 has something to give up before."""
    regions = [r for r in problem.regions() if _streams(problem, r) and not _again(problem, r, chosen[r.name])]
    return frozenset(r.name for r in regions if r.name in able(problem) and _has_long(problem, r))


def _has_long(problem: Problem, region: Region) -> bool:
    arrays = (problem.kernel.buffer(name) for name in _only_read(problem, region))
    return any(may_be_long(extent(problem.layouts[a.name]), a.dtype, problem.target) for a in arrays)


def _streams(problem: Problem, region: Region) -> bool:
    """Whether a launch writes about as much as it reads."""
    touched = moved(problem, region)
    written = sum(size for (_, writes), size in touched.items() if writes)
    return sum(touched.values()) - written <= LEAST_WRITTEN * written


def _again(problem: Problem, region: Region, choice: Choice) -> bool:
    """Whether what a block brings is of use to others: factors of products, and vectors beside ragged rows of narrow
    elements (LayerNorm of 32749 x 4093 in bf16 runs at .92 of a copy, at .90 if the rows last)."""
    if isinstance(choice, Blocks):
        sizes = (size for (_, writes), size in moved(problem, region).items() if not writes)
        return is_ragged(choice) and any(size <= problem.target.l2_bytes for size in sizes)
    return not isinstance(choice, Columns | Flat | Parted | Scanned | Tiled)
