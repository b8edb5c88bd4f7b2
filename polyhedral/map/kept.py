"""Long sums that nothing carries: their elements are kept in f64 for the time of a call, and rounded once at the end.

    par K k, N j { S[j] += A[k, j] }                       S: inout f32[N]

    new S_sum: f64[N]
    par N at { if K >= 1 { S_sum[at] = f64(S[at]) } }      the elements that the kernel touches; none of an `out` S
    par K k, N j { S_sum[j] += f64(A[k, j]) }
    par N at { if K >= 1 { S[at] = f32(S_sum[at]) } }      the elements that it writes

Input: a proved program, and the buffers whose elements get more additions than a partial may. Output: the same program
with those arrays in workspaces, and those locals in f64 where they are. It is proved too: its statements, loops and
accesses are the same, and what is added copies each element by itself (`copied.py`). Reads round to the declared type,
as in `long_sums`. On a CPU narrow sums that nothing carries are kept so in f32 (`narrow_sums.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from texpr.grammar.ast import Attr, Buffer, Condition, Kernel, New, Role, Stmt
from texpr.grammar.narrow import implied_attributes
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.copied import Copies
from texpr.polyhedral.map.long_sums import Widening
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Move
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.additions import long_updates


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A program with the elements of some `buffers` of the author's in f64 or f32, the rows of some `laid` where tensor
    maps have them (`laid.py`), the sums of squares in `centred` about the means of rows (`centred.py`), the
    reductions over the loops in `shared` as bands (`shared_sums.py`), and rows of the bands in `jammed` in pairs
    (`rows_jammed.py`); `long` has the updates of its long sums, by id,
    `implied` what the values of statements imply in the types that the author gave them; `copies` says of the
    statements that it got what they are for, and `moves` how it came from the author's."""

    proved: ProvedProgram
    buffers: frozenset[str] = frozenset()
    laid: frozenset[str] = frozenset()
    centred: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    jammed: frozenset[str] = frozenset()
    long: frozenset[str]
    implied: Mapping[str, tuple[Attr, ...]]
    copies: Mapping[str, Origin] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


def keep_nothing(proved: ProvedProgram, moves: tuple[Move, ...] = ()) -> Kept:
    """The program as it is, after some moves."""
    implied = implied_attributes(proved.program.kernel)
    return Kept(proved=proved, long=long_updates(proved.program), implied=implied, moves=moves)


def known_of(kept: Kept, given: Sequence[Condition]) -> Kept:
    """The kept program for the calls of which some conditions hold: a sum that is short in all of these is not long."""
    if not given or not kept.long:
        return kept
    program = kept.proved.program
    sizes = size_ranges(replace(program.kernel, facts=(*program.kernel.facts, *given)))
    return replace(kept, long=kept.long & long_updates(program, sizes))


def rebuilt(kept: Kept, kernel: Kernel) -> ProvedProgram:
    """What is proved of a kernel that means the same. Raises E0307 where its model takes more steps than are left."""
    program = kept.proved.program
    found = build_program(kernel, max(program.work.left, 1))
    found.work.learn(program.work)
    return replace(kept.proved, program=found)


def rewritten(kept: Kept, kernel: Kernel) -> Kept:
    """The program as a kernel with other statements, which tell its long sums and attributes. Raises as `rebuilt`."""
    proved = rebuilt(kept, kernel)
    return replace(
        kept, proved=proved, long=long_updates(proved.program), implied=implied_attributes(proved.program.kernel)
    )


def keep(kept: Kept, buffers: Collection[str]) -> Kept:
    """The program, with nothing kept so far, with the elements of some buffers in f64, where they have long sums, or
    else in f32. Raises E0307 where its model takes too many steps."""
    if not buffers:
        return kept
    copies = Copies(kept.proved)
    proved = rebuilt(kept, _widened(copies, buffers, kept.long))
    return replace(kept, proved=proved, buffers=frozenset(buffers), copies=copies.origins)


def _widened(copies: Copies, names: Collection[str], long: frozenset[str]) -> Kernel:
    """The kernel with the elements of these buffers in wider types."""
    kernel = copies.program.kernel
    kept = [buffer for buffer in kernel.buffers if buffer.name in names]
    writes = [s.write for s in copies.program.statements if s.id in long]
    far = {write.buffer for write in writes if write is not None}
    types = {b.name: F64 if b.name in far else F32 for b in kept}
    spaces = {
        b.name: _workspace(b, types[b.name], copies.names.fresh(f"{b.name}_sum")) for b in kept if b.role is Role.PARAM
    }
    news: list[Stmt] = [New(buffer=space.name, span=space.span) for space in spaces.values()]
    starts, ends = copies.around(spaces)
    places = {name: space.name for name, space in spaces.items()}
    body = Widening(frozenset(), {b.name: b.dtype for b in kept}, places, types).block(kernel.body)
    stay = (replace(b, dtype=types[b.name]) if b.name in types.keys() - spaces else b for b in kernel.buffers)
    return replace(kernel, buffers=(*stay, *spaces.values()), body=(*news, *starts, *body, *ends))


def _workspace(array: Buffer, dtype: DType, name: str) -> Buffer:
    return Buffer(
        name=name,
        dtype=dtype,
        shape=array.shape,
        role=Role.LOCAL,
        flat=array.flat,
        source_name=array.source_name,
        span=array.span,
    )
