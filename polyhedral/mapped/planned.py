"""The planned program: a mapped program, and where its buffers lie. Emission makes no decision beyond it.

t: f32[64] shared      strides (1) at byte 1024 of the block's shared memory
W: f32[M, 3] global    strides (3, 1) at byte 0 of the call's workspace
"""

from collections.abc import Mapping

from texpr.grammar.ast import IndexExpr
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.value import Placed
from texpr.polyhedral.mapped.program import MappedProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProgram:
    """`addresses` has every buffer of the program, at bytes of a block's shared memory or of a call's workspace; a
    parameter and a thread's own buffer begin at 0 of their own. `shared_bytes` is what a block of each launch takes,
    by the launch's name, and `workspace_bytes` what a call takes, in sizes. `sync_offsets` says by launch where in the
    shared memory the mbarriers of each pipe begin, and where the turn of each counter stands."""

    program: MappedProgram
    addresses: Mapping[str, Placed]
    shared_bytes: Mapping[str, int]
    workspace_bytes: IndexExpr
    sync_offsets: Mapping[str, Mapping[str, int]]
