"""The polyhedral model of one kernel: statements with domains, accesses as isl relations.

A `Program` is a `Kernel` with its leaf statements lifted to isl. For statement S1 in `par M i { seq K k { … } }`:

    domain      [M, K] -> { S1[i, k] : 0 <= i < M and 0 <= k < K }
    read A      [M, K] -> { S1[i, k] -> A[i, k] }
    write C     [M, K] -> { S1[i, k] -> C[i] }
    position    (0, "i", 1, "k", 0)

Dims of a domain are named after the loops' unique index names, outermost first; free sizes are parameters.
A local buffer lives in one iteration of the loops around its `new`, so its element tuples are
`B[outer indices…, subscripts…]` with `ProgramBuffer.outer` naming the first ones: iterations never share a local, and
an element of a new entry is a new element. A rank-0 buffer without outer loops has an empty tuple.

A gathered subscript's relation has the whole range of that dimension, and `must` is False, as it is under a
data-dependent condition. An affine condition (an `if`, a select arm) restricts domain or relation, and `must` holds.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from texpr.grammar.ast import AccOp, Buffer, IndexExpr, Kernel, Leaf, Par, Read, Seq, Subscript
from texpr.grammar.diagnostics import Diagnostic
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.facts import Facts


class AccessMode(StrEnum):
    READ = "read"
    WRITE = "write"
    ACCUMULATE = "accumulate"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One access of a statement. `relation` maps the statement's domain to elements, `number` counts the accesses of
    the statement in evaluation order, the written one last."""

    statement: str
    number: int
    buffer: str
    mode: AccessMode
    op: AccOp | None = None
    relation: isl.Map
    must: bool
    subscripts: tuple[Subscript, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDim:
    """A loop around a statement; `node` is the core loop."""

    index: str
    parallel: bool
    extent: IndexExpr
    node: Par | Seq = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataGuard:
    """A data-dependent `if` around a statement: it runs where `condition` reads `value`. `number` counts the kernel's
    data-dependent `if`s in text order, `depth` the loops around this one."""

    number: int
    condition: Read
    value: bool
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStatement:
    """A leaf statement S with its loops (outermost first), domain and accesses.

    `position` interleaves child numbers and loop indices: compared as a vector (loop entries by the index's value) it
    is the sequential order of the program. `guards` are the data-dependent `if`s around it, outermost first, and the
    first accesses of such a statement are the reads of their conditions.
    """

    id: str
    leaf: Leaf
    loops: tuple[LoopDim, ...]
    domain: isl.Set
    accesses: tuple[Access, ...]
    position: tuple[int | str, ...]
    guards: tuple[DataGuard, ...] = ()

    @property
    def write(self) -> Access | None:
        """The access that is not a read, if any (an anchor has none)."""
        last = self.accesses[-1] if self.accesses else None
        return last if last is not None and last.mode is not AccessMode.READ else None

    @property
    def reads(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.mode is AccessMode.READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramBuffer:
    """A buffer with the set of its elements; `outer` are the loops around its `new` (empty for parameters).

    Where the one dimension of a buffer was split (`A[i * N + j]` is the element A[i, j]), `flat_strides` has the
    factor of each of its dimensions: the author's subscript is their sum over the element, each times its coordinate.
    Otherwise it is empty and the dimensions are the declared ones.
    """

    buffer: Buffer
    outer: tuple[str, ...]
    elements: isl.Set
    flat_strides: tuple[IndexExpr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`kernel` has its bound sizes substituted; `facts` has what is known of the free ones. Domains, relations and
    elements lie within what is known of the sizes that they name. The isl values live in the context of `work`, which
    counts what is asked of them."""

    kernel: Kernel
    work: isl.Work = field(compare=False, repr=False)
    facts: Facts
    statements: tuple[ProgramStatement, ...]
    buffers: Mapping[str, ProgramBuffer]

    @property
    def context(self) -> isl.Set:
        """The values that the free sizes may have."""
        return self.facts.context

    def statement(self, id: str) -> ProgramStatement:
        """The statement of that id; KeyError when there is none."""
        for candidate in self.statements:
            if candidate.id == id:
                return candidate
        raise KeyError(id)


class Hazard(StrEnum):
    FLOW = "flow"  # write then read
    ANTI = "anti"  # read then write
    OUTPUT = "output"  # write then write


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """Instances of `source` before instances of `sink` in program order that touch one element, one of them writing.

    `relation` maps source to sink instances; `must` says that both accesses happen for certain. Two accumulations
    with one operator give no dependence between them.
    """

    source: Access
    sink: Access
    hazard: Hazard
    relation: isl.Map
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedProgram:
    """A program that is free of races, out-of-bounds accesses and undefined reads; its dependences are computed by
    who asks for them (`dependence.find_dependences`).

    `directions` says of every array parameter what the kernel does with it: in, out, inout; `accumulated` names the
    operator of parameters that are only ever accumulated into.
    """

    program: Program
    directions: Mapping[str, str]
    accumulated: Mapping[str, AccOp]
    warnings: tuple[Diagnostic, ...] = ()
