"""What one call of `map_program` knows and gathers: the kernel, the target, names, representative sizes, notes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from texpr.grammar.ast import Accumulate, Anchor, Atomic, Bind, IndexExpr, Kernel, Par, Role, Seq, Stmt
from texpr.grammar.index.expr import names
from texpr.grammar.index.interval import Ranges, bounds
from texpr.grammar.index.value import index_value
from texpr.polyhedral.map.digits import Names, ThreadDigits
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.mapped.places import Digit
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target
from texpr.polyhedral.walk import children, touched

DEFAULT_SIZE = 1024  # what a free size is taken to be where a choice needs a number
MAX_WEIGHT = 1 << 40  # weights of accesses in loops stop growing here


@dataclass(slots=True, kw_only=True)
class Session:
    """The state of one mapping. `buffers` and `notes` grow; `bands` tells of every statement whose iterations are
    spread over threads which indices and digits its band has, for the access report; `host_ranges` has the inclusive
    ranges of the host loops that are known. `long` has the updates that are carried in f64, by id; `digits` those that
    the launch at work got from the chunks of its long sums."""

    kernel: Kernel
    proved: ProvedProgram
    target: Target
    sizes: Mapping[str, int]
    names: Names
    buffers: dict[str, MappedBuffer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    long: frozenset[str] = frozenset()
    digits: tuple[Digit, ...] = ()
    bands: dict[str, tuple[tuple[str, ...], ThreadDigits]] = field(default_factory=dict)
    host_ranges: dict[str, tuple[IndexExpr, IndexExpr]] = field(default_factory=dict)

    def representative(self, extent: IndexExpr, ranges: Ranges) -> int:
        """The extent's greatest value at the representative sizes, at least 1; an index without range counts as 0."""
        found = bounds(extent, {**self.host_ranges, **ranges})
        expr = extent if found is None else found[1]
        values = dict.fromkeys(names(expr), 0) | dict(self.sizes)
        return max(1, int(index_value(expr, values)))

    def accesses(self, stmts: tuple[Stmt, ...], ranges: Ranges, weight: int = 1) -> list[WeightedAccess]:
        """Accesses to parameters and workspaces below the statements, weighted by the loops around them."""
        found: list[WeightedAccess] = []
        for stmt in stmts:
            match stmt:
                case Bind() | Accumulate() | Atomic() | Anchor():
                    accesses = list(touched(stmt))
                    for number, (name, subscripts) in enumerate(accesses):
                        buffer = self.kernel.buffer(name)
                        update = isinstance(stmt, Accumulate | Atomic) and number == len(accesses) - 1
                        if buffer.role is Role.PARAM or name in self.buffers:
                            found.append(
                                WeightedAccess(buffer=buffer, subscripts=subscripts, weight=weight, update=update)
                            )
                case Par(extent=extent, body=body) | Seq(extent=extent, body=body):
                    times = min(MAX_WEIGHT, weight * self.representative(extent, ranges))
                    found += self.accesses(body, ranges, times)
                case _:
                    found += self.accesses(children(stmt), ranges, weight)
        return found
