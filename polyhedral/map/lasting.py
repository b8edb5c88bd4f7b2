"""What the L2 is to give up first, and last, of arrays that are larger than it.

    {"lasting": ["softmax_0"]}      X, which softmax_0 reads, is larger than the L2; Y, which it writes, makes room
    {"passing": ["row_sum_0"]}      nothing that row_sum_0 writes would, so X makes room by itself

Each line of a long array is of no use once it was read, and so is one that was written. If the written ones go first
they go to memory soon, and many together: an H200 runs nearly all launches that read and write far more than its L2
holds faster so, those of 32768 x 4096 in bf16 by .01 (add + gelu) to .03 of a copy (softmax .98 before, 1.00; gather of
rows .96, .98), in f32 by as much. Those that only read gain by giving up what they read: sums down the columns of
131072 x 1024 in bf16 .995 of a read-only sum (.98 in the same run without), and also where neighbouring blocks read the
ends of chunks that they share (ten sizes of ragged columns in bf16, .953 in the mean for .943; 257 x 100003 1.00, .97).
What a smaller array's launch writes may still be there for the next kernel, which is worth more. So each array is asked
for its size, if need be when the kernel runs, but by threads that load one element at a time, which the question costs
more than it gives (RMSNorm of free sizes ran 262144 x 31 in bf16 at .93 of what the kernel for that size does).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import IndexExpr, Seq, Stmt
from texpr.grammar.core import buffers_of, children
from texpr.grammar.index.expr import const, constant_value, multiply
from texpr.grammar.types import DType
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.map.choose_jammed import is_ragged
from texpr.polyhedral.map.held import read_again
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.roofline import moved
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Contracted, Single, widths_of
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostNode, Launch, MappedBuffer
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.walks import map_launches, of_kind, tree_buffers, tree_writes
from texpr.polyhedral.target import Target

LEAST_WRITTEN = 8  # bytes that are read for one that is written, at most, or nothing makes room
VECTOR = 8  # times less than all that a launch reads
WIDE_BYTES = (
    4  # of elements that are read one by one (NCHW to NHWC of 3 channels in bf16 .94 of a copy, .84 if they last)
)


# ---- what a candidate says ---------------------------------------------------------------------------------------


def with_l2(
    host: Sequence[HostNode], candidate: Candidate, buffers: Mapping[str, MappedBuffer], target: Target
) -> tuple[HostNode, ...]:
    """The program whose launches tell the L2 what the candidate says."""

    def change(launch: Launch) -> Launch:
        if launch.name in candidate.lasting:
            return replace(launch, lasting=_long_arrays(launch, buffers, target))
        if launch.name in candidate.passing:
            return replace(launch, passing=_long_arrays(launch, buffers, target))
        return launch

    return map_launches(host, change)


def _long_arrays(launch: Launch, buffers: Mapping[str, MappedBuffer], target: Target) -> tuple[str, ...]:
    read = tree_buffers(launch.body) - tree_writes(launch.body)
    wide = {copy.source.buffer for copy in of_kind(launch.body, Copy) if copy.access is not Access.EACH}
    arrays = (buffers[name] for name in sorted(read) if buffers[name].memory is Memory.GLOBAL)
    return tuple(
        one.name
        for one in arrays
        if _may_be_long(extent(one.layout), one.dtype, target)
        and (one.name in wide or one.dtype.size_bytes >= WIDE_BYTES)
    )


def _may_be_long(elements: IndexExpr, dtype: DType, target: Target) -> bool:
    """Whether an array of so many elements may be larger than the L2 of the target."""
    known = constant_value(multiply(elements, const(dtype.size_bytes)))
    return known is None or known > target.l2_bytes


def fault(problem: Problem, candidate: Candidate) -> str | None:
    """What is wrong with what a candidate says; arrays may be of any size, for a mapping is for other sizes, too."""
    able = {r.name for r in problem.regions() if problem.target.is_cuda and _only_read(problem, r)}
    for field, names in (("lasting", candidate.lasting), ("passing", candidate.passing)):
        if not names <= able:
            return f"`{field}`: {', '.join(sorted(names - able))} reads no array that it does not write"
    both = candidate.lasting & candidate.passing
    return f"`passing`: {', '.join(sorted(both))} is in `lasting`" if both else None


# ---- what is chosen ----------------------------------------------------------------------------------------------


def choose_lasting(problem: Problem, chosen: Mapping[str, Choice]) -> frozenset[str]:
    """All launches that read such an array, and write so much that the L2 has something to give up before."""
    return frozenset(
        region.name
        for region in _regions(problem, chosen)
        if _streams(problem, region) and not _shares_vectors(problem, region, chosen[region.name])
    )


def choose_passing(problem: Problem, chosen: Mapping[str, Choice]) -> frozenset[str]:
    """All that read such an array once, which no other launch reads, and write little."""
    return frozenset(
        region.name
        for region in _regions(problem, chosen)
        if not _streams(problem, region) and _reads_once(problem, region, chosen[region.name])
    )


def _regions(problem: Problem, chosen: Mapping[str, Choice]) -> Iterator[Region]:
    """Those that read long arrays; of products all factors are read again."""
    for region in problem.regions() if problem.target.is_cuda else ():
        choice = chosen[region.name]
        if not isinstance(choice, Contracted | Piped | Ringed | Single) and _long(problem, region, choice):
            yield region


def _only_read(problem: Problem, region: Region) -> set[str]:
    touched = moved(problem, region)
    return {name for name, writes in touched if not writes and (name, True) not in touched}


def _long(problem: Problem, region: Region, choice: Choice) -> set[str]:
    """The arrays that are known to be long, or may be and are worth the question."""
    elements = {name: extent(problem.layouts[name]) for name in _only_read(problem, region)}
    return {
        name
        for name, count in elements.items()
        if _may_be_long(count, problem.kernel.buffer(name).dtype, problem.target)
        and (constant_value(count) is not None or widths_of(choice))
    }


def _streams(problem: Problem, region: Region) -> bool:
    """Whether a launch writes about as much as it reads."""
    touched = moved(problem, region)
    written = sum(size for (_, writes), size in touched.items() if writes)
    return sum(touched.values()) - written <= LEAST_WRITTEN * written


def _shares_vectors(problem: Problem, region: Region, choice: Choice) -> bool:
    """Whether vectors lie beside ragged rows of narrow elements, and are loaded again for each (LayerNorm of 32749 x
    4093 in bf16 runs at .92 of a copy, at .90 if the rows last)."""
    sizes = [size for (_, writes), size in moved(problem, region).items() if not writes]
    return isinstance(choice, Blocks) and is_ragged(choice) and VECTOR * min(sizes) < sum(sizes)


def _reads_once(problem: Problem, region: Region, choice: Choice) -> bool:
    names = _long(problem, region, choice)
    others = set[str]().union(*(_only_read(problem, other) for other in problem.regions() if other != region))
    if isinstance(choice, Blocks):
        again = any(read_again(problem, region.name, region.nest[0].body, choice))
    else:
        again = any(sum(name in buffers_of(loop) for loop in _loops(region.stmts)) > 1 for name in names)
    return not again and not names & others


def _loops(stmts: Iterable[Stmt]) -> Iterator[Seq]:
    """The outermost loops that a thread, or several, have one after the other."""
    for stmt in stmts:
        if isinstance(stmt, Seq):
            yield stmt
        else:
            yield from _loops(children(stmt))
