"""What one call of `build` gathers: names, buffers, and the digits of the launch at work. It decides nothing."""

from dataclasses import dataclass, field

from texpr.grammar.ast import Attr, Kernel
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.places import Digit
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.names import Names
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target


@dataclass(slots=True, kw_only=True)
class Draft:
    """`buffers` has every buffer that was placed so far, parameters first; `digits` those of the launch at work, in the
    order in which they were made, grid digits apart; `words` the counters of all launches; `obeyed` are the kernel's
    attributes that changed the blocks of one."""

    problem: Problem
    names: Names
    buffers: dict[str, MappedBuffer] = field(default_factory=dict)
    digits: list[Digit] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    obeyed: set[Attr] = field(default_factory=set)

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
