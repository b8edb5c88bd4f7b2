"""What one call of `build` gathers: names, buffers, and the digits of the launch at work. It decides nothing."""

from dataclasses import field

from texpr.grammar.ast import Attr, Kernel, Role
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.places import Digit, Memory, Scope
from texpr.polyhedral.mapped.program import ALIGN_BYTES, Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Pipe
from texpr.polyhedral.names import Names
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target

SCOPES = {
    Memory.REG: Scope.THREAD,
    Memory.SHARED: Scope.BLOCK,
    Memory.CLUSTER: Scope.CLUSTER,
    Memory.GLOBAL: Scope.GRID,
}


@dataclass(slots=True, kw_only=True)
class Draft:
    """`buffers` has every buffer that was placed so far, parameters first; `digits` those of the launch at work, in the
    order in which they were made, grid digits apart, `pipes` its pipes, `behind` the launches that end what it began;
    `rests` those of all launches that do the rest of another one's work, and the name of that;
    `words` the counters of all launches; `obeyed` are the kernel's attributes that changed the blocks of one, `notes`
    what its report tells of them."""

    problem: Problem
    names: Names
    buffers: dict[str, MappedBuffer] = field(default_factory=dict)
    digits: list[Digit] = field(default_factory=list)
    pipes: list[Pipe] = field(default_factory=list)
    behind: list[Launch] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    rests: dict[str, str] = field(default_factory=dict)
    obeyed: set[Attr] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def local(
        self,
        wanted: str,
        dtype: DType,
        memory: Memory,
        layout: Layout,
        reason: str,
        *,
        align: int = ALIGN_BYTES,
        span: Span = NO_SPAN,
    ) -> str:
        """The name of a new buffer of a thread's, a block's or the grid's own."""
        name = self.names.fresh(wanted)
        self.buffers[name] = MappedBuffer(
            name=name,
            dtype=dtype,
            memory=memory,
            scope=SCOPES[memory],
            layout=layout,
            role=Role.LOCAL,
            align=align,
            reason=reason,
            span=span,
        )
        return name

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def proved(self) -> ProvedProgram:
        return self.problem.proved

    @property
    def target(self) -> Target:
        return self.problem.target

    @property
    def long(self) -> frozenset[str]:
        return self.problem.long
