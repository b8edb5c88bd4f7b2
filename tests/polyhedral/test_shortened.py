"""Programs of several launches, and of sizes that calls decide, are checked at few turns of their loops, and soon."""

from dataclasses import replace

import pytest
from test_early_products import late
from test_piped import piped

import texpr
from texpr.grammar.ast import Compare, CompareOp, SizeVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import const, multiply
from texpr.polyhedral.mapped.between import AfterLaunch
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.mapped.walks import every_node, launches, map_nodes, of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.orders.small_sizes import small_sizes
from texpr.polyhedral.orders.trace import unrolled

CHAIN = """kernel g(A: f16[K, M], B: f16[N, K], E: f16[N, O], C: f16[O, M]) {
    new T: f16[M, N]
    par M i, N j { T[i, j] = sum K k { A[k, i] * B[j, k] } }
    par M i, O o { C[o, i] = sum N j { T[i, j] * E[j, o] } }
}"""
BATCH = """kernel g(A: f16[P, Q, K, M], B: f16[P, Q, N, K], C: f32[M, N, P, Q])
    where P >= 1, Q >= 1, M >= 1, N >= 1, K >= 1, K <= 4096, M % 8 == 0, N % 8 == 0, K % 8 == 0 {
    par P p, Q q, M i, N j { C[i, j, p, q] = sum K k { A[p, q, k, i] * B[p, q, j, k] } }
}"""


def events(program: MappedProgram) -> list[int]:
    few = shortened(program)
    return [len(unrolled(few, tuple(launches(few.host)), sizes).events) for sizes in small_sizes(few)]


def test_a_launch_that_the_check_of_barriers_decides_stands_for_itself_in_few_turns() -> None:
    sums = texpr.parse("kernel g(A: f32[M, K], S: f32[M]) { par M i { S[i] = sum K k { A[i, k] } } }").only
    counted = sums.compile("cuda:sm_90a", stop_after="map", M=2, K=1 << 22).mapping.program
    (one,) = launches(counted.host)
    (few,) = launches(shortened(counted).host)
    assert any(isinstance(node, Last) for node in every_node(one.body))
    assert not any(isinstance(node, Last | Barrier) for node in every_node(few.body))
    assert max(events(counted)) < 1000


def test_sizes_of_a_batch_that_a_call_decides_stay_small_and_loops_without_syncs_stand_for_one_turn() -> None:
    how = Candidate(launches={"g_0": piped(64, 64, persistent=132)})
    kernel = texpr.parse(BATCH).only
    program = kernel.compile("cuda:sm_90a", stop_after="map", mapping=how).mapping.program
    assert max(found["P"] * found["Q"] for found in small_sizes(shortened(program))) < 100
    assert 0 < max(events(program)) < 2000


def test_batches_that_are_rows_have_small_sizes_too() -> None:
    text = BATCH.replace("B: f16[P, Q, N, K]", "B: f16[N, K]").replace("B[p, q, j, k]", "B[j, k]")
    facts = text.replace("C: f32[M, N, P, Q]", "C: f32[P, Q, M, N]").replace("C[i, j, p, q]", "C[p, q, i, j]")
    few = facts.replace(" {", ", P * Q * M * N < 4194304 {", 1).replace("A: f16[P, Q, K, M]", "A: f16[P, Q, M, K]")
    kernel = texpr.parse(few.replace("A[p, q, k, i]", "A[p, q, i, k]")).only
    kernel.compile("cuda:sm_90a", stop_after="map")  # it checks the syncs


def test_products_of_sizes_may_be_small_beside_large_ones() -> None:
    text = """kernel g(A: bf16[M, K], B: bf16[K, N], E: bf16[O, N], C: bf16[M, O])
        where M >= 1, N >= 1, O >= 1, M <= 2097152, N <= 131072, O <= 2097152, N % 8 == 0, O % 8 == 0, M * O < 4194304 {
        new T: bf16[M, N]
        par M i, N j { T[i, j] = sum K k { A[i, k] * B[k, j] } }
        par M i, O o { C[i, o] = sum N j { T[i, j] * E[o, j] } }
    }"""
    program = texpr.parse(text).only.compile("cuda:sm_90", stop_after="map").mapping.program  # it checks all cases
    facts = program.kernel.facts
    (m, n, o) = (SizeVar(name=name) for name in "MNO")
    wide = Compare(op=CompareOp.GE, left=multiply(m, n), right=const(4194304))
    few = replace(program, kernel=replace(program.kernel, facts=(*facts, wide)))
    tried = list(small_sizes(shortened(few)))
    assert len({found["K"] for found in tried}) > 2  # turns of loops
    assert all(found["M"] * found["O"] < 4194304 <= found["M"] * found["N"] for found in tried)
    none = Compare(op=CompareOp.LT, left=multiply(m, n), right=o)
    both = replace(few, kernel=replace(few.kernel, facts=(*few.kernel.facts, none)))
    with pytest.raises(InternalError, match="hold at no small sizes"):
        check_orders(both)


def early(text: str, *choices: str, **sizes: int) -> MappedProgram:
    """A chain whose second launch multiplies boxes, and begins before the first one is over."""
    kernel = texpr.parse(text).only
    found = kernel.compile("cuda:sm_90a", stop_after="map", **sizes).mapping.candidate
    second = replace(piped(64, 32), along="i_1", across="o", tile={"o": 64, "i_1": 32})
    chosen = replace(found, launches={**found.launches, "g_1": second}, early=frozenset({"g_1"}))
    assert isinstance(chosen, Candidate)
    program: MappedProgram = kernel.compile("cuda:sm_90a", stop_after="map", mapping=chosen, **sizes).mapping.program
    return program


def test_a_box_sees_what_the_launch_before_wrote_once_that_is_waited_for() -> None:
    program = early(CHAIN, M=32, N=40, K=17, O=32)
    check_orders(program)
    first, second = program.host
    assert isinstance(second, Launch) and any(of_kind(second.body, AfterLaunch))
    behind = replace(second, body=map_nodes(second.body, late))  # it waits, and too late
    with pytest.raises(InternalError, match=r"nothing orders S.* before S.*_T on T"):
        check_orders(replace(program, host=(first, behind)))
