"""An index may begin before its first digit: an offset that the simulator and the orders obey, and guards cut."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from order_oracle import missing
from stages import edited, mapped, only_launch, with_launch, without_barriers

from texpr.grammar.ast import And, Compare, CompareOp, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import ONE, ZERO, add, ceildiv, combine, const, subtract
from texpr.polyhedral.mapped.places import Place, Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.orders.find import launch_orders
from texpr.polyhedral.orders.flow import check_enforced
from texpr.polyhedral.orders.synchronise import synchronise
from texpr.polyhedral.program import Hazard
from texpr.polyhedral.simulate.stage import simulate

COPY = "kernel copy(A: f32[N], B: f32[N]) { par N i #vector(1) { B[i] = A[i] } }"
LEAD = combine(IndexOp.MOD, SizeVar(name="N"), const(32))


def shifted(*, guarded: bool = True) -> MappedProgram:
    """The copy with i = … - N % 32, and a block more where it is needed."""
    program = mapped(COPY)
    launch = only_launch(program)
    blocks = ceildiv(add(SizeVar(name="N"), const(31)), 256)
    i = IndexVar(name="i")

    def at(node: Node) -> tuple[Node, ...]:
        match node:
            case Define(digits=digits):
                wider = tuple(replace(d, radix=blocks) if d.place is Place.GRID_X else d for d in digits)
                return (replace(node, digits=wider, offset=subtract(ZERO, LEAD)),)
            case Guard(condition=Compare() as above) if guarded:
                return (replace(node, condition=And(parts=(Compare(op=CompareOp.GE, left=i, right=ZERO), above))),)
            case _:
                return (node,)

    digits = tuple(replace(d, radix=blocks) if d.place is Place.GRID_X else d for d in launch.digits)
    return with_launch(program, replace(edited(launch, at), grid=(blocks, ONE, ONE), digits=digits))


@pytest.mark.parametrize("n", [0, 1, 31, 100, 255, 256, 257, 511])
def test_every_iteration_of_a_shifted_index_runs_once(n: int) -> None:
    a = np.arange(n, dtype=np.float32)
    assert (simulate(shifted(), {"A": a, "B": np.zeros_like(a)})["B"] == a).all()


def test_a_shifted_index_without_its_lower_guard_leaves_the_buffer() -> None:
    a: Any = np.ones(33, np.float32)
    with pytest.raises(TExprError, match="subscript 0 of"):
        simulate(shifted(guarded=False), {"A": a, "B": a.copy()})


def test_an_offset_is_printed() -> None:
    assert "i = 256*i_block + 32*i_warp + i_lane + 0 - N % 32" in show(shifted())


OWN = """kernel own(A: f32[M, 64], B: f32[M, 64]) {
    par M i {
        new t: f32[64]
        par 64 a { t[a] = A[i, a] }
        par 64 b { B[i, b] = t[b] }
    }
}"""


def moved(by: IndexExpr) -> MappedProgram:
    """The second band with b = … + by, below 64, without orders."""
    program = mapped(OWN, M=2)
    below = Compare(op=CompareOp.LT, left=IndexVar(name="b"), right=const(64))

    def at(node: Node) -> tuple[Node, ...]:
        match node:
            case Define(index="b"):
                return (replace(node, offset=by),)
            case _ if getattr(node, "id", "") == "S1":
                return (Guard(condition=below, body=(node,), padding=True),)
            case _:
                return (node,)

    return with_launch(program, replace(without_barriers(edited(only_launch(program), at)), orders=()))


def test_orders_know_of_offsets() -> None:
    assert missing(moved(ZERO), {"M": 2}) == []
    program = moved(ONE)
    assert missing(program, {"M": 2})
    launch = only_launch(program)
    orders = launch_orders(launch, program.buffers, program.proved.program, program.target.warp_size)
    assert [(o.source, o.sink, o.hazard, o.scope) for o in orders] == [("S0", "S1", Hazard.FLOW, Scope.BLOCK)]
    ordered = synchronise(replace(launch, orders=orders))
    check_enforced(ordered)
    assert missing(with_launch(program, ordered), {"M": 2}) == []


def test_an_offset_that_differs_between_threads_makes_what_uses_it_diverge() -> None:
    """A barrier in a guard on an index whose offset is a lane's is refused as one on the lane itself is."""
    program = moved(ONE)
    orders = launch_orders(only_launch(program), program.buffers, program.proved.program, program.target.warp_size)

    def at(node: Node) -> tuple[Node, ...]:
        match node:
            case Define(index="b"):
                fixed = Define(index="c", digits=(), offset=IndexVar(name="b"))
                return (node, fixed)
            case Guard():
                low = Compare(op=CompareOp.LT, left=IndexVar(name="c"), right=const(64))
                return (replace(node, condition=low),)
            case _:
                return (node,)

    launch = synchronise(replace(edited(only_launch(program), at), orders=orders))
    check_enforced(launch)
    guard = next(node for node in launch.body if isinstance(node, Guard))
    assert [type(node).__name__ for node in guard.body] == ["Generic"]
