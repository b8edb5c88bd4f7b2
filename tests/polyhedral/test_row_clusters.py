"""Clusters of blocks that share a row: chosen where one block has no room for it, and right wherever they fit."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from spoil import spoiled
from stages import mapped, only_launch

import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import ONE
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choices, Combined, Parted, Row
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import Acquire, Action, Barrier, WaitGroup
from texpr.polyhedral.mapped.tree import Guard
from texpr.polyhedral.mapped.walks import launches, map_nodes, of_kind, operators
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.orders.trace import unrolled
from texpr.polyhedral.simulate.stage import simulate

SOFTMAX = """kernel k(X: {t}[{m}, {n}], Y: {t}[{m}, {n}]) {{ par {m} i {{
    let m = maximum {n} k {{ f32(X[i, k]) }}
    let s = sum {n} k {{ exp(f32(X[i, k]) - m) }}
    par {n} j {{ Y[i, j] = {t}(exp(f32(X[i, j]) - m) / s) }}
}} }}"""
NORM = """kernel k(inout X: f32[{m}, {n}], W: f32[{n}], T: i64[{m}], L: f32[{m}]) {{ par {m} i {{
    new mean: f32
    mean = sum {n} k {{ X[i, k] }}
    let v = sum {n} j {{ (X[i, j] - mean) * (X[i, j] - mean) }}
    L[i] = v + W[T[i]]
    par {n} p {{ X[i, p] = (X[i, p] - mean) * v * W[p] }}
}} }}"""
PICK = """kernel k(X: f32[{m}, {n}], V: f32[{m}], A: i64[{m}]) {{ par {m} i {{
    new best: f32
    new at: i64
    best = -inf
    at = 0
    seq {n} j {{ if X[i, j] > best {{ best = X[i, j]; at = j }} }}
    V[i] = sum {n} k {{ X[i, k] - best }}
    A[i] = at
}} }}"""
LOOPS = {SOFTMAX: ("k", "k_1", "j"), NORM: ("k", "j", "p"), PICK: ("j", "k")}


def one(choices: Choices) -> tuple[str, Blocks]:
    assert isinstance(choices, Candidate)
    ((name, choice),) = choices.launches.items()
    assert isinstance(choice, Blocks)
    return name, choice


def reads(program: MappedProgram, name: str) -> int:
    return sum(read.buffer == name for op in operators(only_launch(program).body) for read in op.reads)


def test_a_row_for_which_a_block_has_no_room_is_held_by_a_cluster() -> None:
    for dtype, ranks, threads, resident in (("f32", 8, 256, 3), ("bf16", 8, 128, 8)):
        program = mapped(SOFTMAX.format(t=dtype, m=257, n=100003))
        choice, launch = one(program.candidate)[1], only_launch(program)
        assert (choice.cluster, choice.threads, choice.resident) == (ranks, threads, resident)
        assert all(row.slots for row in choice.rows) == (dtype == "bf16")
        assert (launch.cluster, reads(program, "X")) == ((ranks, 1, 1), 1)
    assert one(mapped(SOFTMAX.format(t="f32", m=8192, n=32000)).candidate)[1].cluster == 4
    assert one(mapped(SOFTMAX.format(t="bf16", m=8192, n=32000)).candidate)[1].cluster == 1


def test_a_narrow_row_that_is_only_read_has_many_small_blocks() -> None:
    text = SOFTMAX.format(t="bf16", m=257, n=100003)
    reading = text.replace("par 100003 j { Y[i, j] = bf16(exp(f32(X[i, j]) - m) / s) }", "Y[i] = bf16(s)")
    found = one(mapped(reading.replace("Y: bf16[257, 100003]", "Y: bf16[257]")).candidate)[1]
    assert (found.cluster, found.threads, found.resident) == (8, 128, 8)
    short = reading.replace("257", "8192").replace("100003", "32000")
    found = one(mapped(short.replace("Y: bf16[8192, 32000]", "Y: bf16[8192]")).candidate)[1]
    assert (found.cluster, found.threads, found.resident) == (4, 128, 8)


def test_long_rows_beside_vectors_are_in_slots_of_shared_memory() -> None:
    text = """kernel k(X: bf16[257, 100003], G: bf16[100003], Y: bf16[257, 100003]) { par 257 i {
        let s = sum 100003 k { f32(X[i, k]) * f32(X[i, k]) }
        par 100003 j { Y[i, j] = bf16(f32(X[i, j]) * rsqrt(s) * f32(G[j])) }
    } }"""
    again = text.replace("rsqrt(s)", "rsqrt(v)").replace(
        "        par", "        let v = sum 100003 p { f32(X[i, p]) - s }\n        par"
    )
    wide = text.replace("bf16", "f32")
    short, both = (t.replace("257", "8192").replace("100003", "32000") for t in (wide, again.replace("bf16", "f32")))
    few = again.replace("257", "60")  # of which no two begin alike in a line
    partly = few.replace("100003", "90001")  # which would leave a seventh of eight small blocks' slots empty
    alone = (few, (8, 224, 6)), (partly, (2, 512, 2))
    ragged = (text, (8, 256, 6)), (again, (8, 224, 4)), (wide, (8, 512, 3))
    for program, slots in (*ragged, *alone, (both, (4, 320, 6))):
        found = one(mapped(program).candidate)[1]
        assert all(row.slots for row in found.rows) and (found.cluster, found.threads, found.resident) == slots
    found = one(mapped(short).candidate)[1]  # aligned words that two loops go over are loaded, and last in the L2
    assert not found.rows[0].slots and (found.cluster, found.threads, found.resident) == (4, 512, 3)


def beside_vectors(columns: int, dtype: str, loops: int) -> str:
    again = f"let v = sum {columns} p {{ f32(X[i, p]) - s }}" if loops > 2 else "let v = s"
    return f"""kernel k(X: {dtype}[1000, {columns}], G: {dtype}[{columns}], Y: {dtype}[1000, {columns}]) {{
      par 1000 i {{
        let s = sum {columns} k {{ f32(X[i, k]) * f32(X[i, k]) }}
        {again}
        par {columns} j {{ Y[i, j] = {dtype}(f32(X[i, j]) * rsqrt(v) * f32(G[j])) }}
    }} }}"""


@pytest.mark.parametrize(
    ("columns", "dtype", "loops", "blocks"),
    [
        (24576, "bf16", 2, (4, 192, 8)),
        (24001, "bf16", 2, (1, 768, 2)),
        (40001, "bf16", 2, (4, 224, 6)),
        (14336, "bf16", 2, (2, 224, 6)),  # four blocks would have an eighth of their places empty
        (24001, "f32", 2, (4, 192, 8)),
        (16384, "bf16", 3, (2, 256, 8)),
        (16001, "bf16", 3, (1, 352, 4)),
        (12001, "f32", 3, (2, 256, 6)),
        (51200, "bf16", 2, (4, 320, 4)),
        (57344, "bf16", 3, (4, 224, 4)),
        (28672, "f32", 2, (4, 224, 4)),
        (28001, "f32", 3, (4, 256, 6)),
    ],
)
def test_rows_beside_vectors_lie_in_slots_in_pieces(columns, dtype, loops, blocks) -> None:
    text = beside_vectors(columns, dtype, loops)
    found = one(mapped(text).candidate)[1]
    assert all(row.slots for row in found.rows) and (found.cluster, found.threads, found.resident) == blocks
    older = one(mapped(text, "cuda:sm_80").candidate)[1]
    assert older.cluster == 1
    asked = one(mapped(text.replace(") {", ") #threads(256) {", 1)).candidate)[1]
    assert asked.threads == 256


@pytest.mark.parametrize(
    ("columns", "dtype", "blocks"),
    [
        (51200, "bf16", (4, 320, 4)),
        (65536, "bf16", (8, 128, 8)),
        (28672, "f32", (4, 224, 4)),
        (32768, "f32", (8, 128, 8)),
    ],
)
def test_the_longest_rows_lie_in_slots_where_they_fill_the_threads_of_their_blocks(columns, dtype, blocks) -> None:
    text = """kernel k(X: T[1000, N], Y: T[1000, N]) {
      par 1000 i {
        let m = maximum N k { f32(X[i, k]) }
        let s = sum N p { exp(f32(X[i, p]) - m) }
        par N j { Y[i, j] = T(exp(f32(X[i, j]) - m) / s) }
    } }""".replace("T", dtype)
    found = one(mapped(text.replace("N", str(columns))).candidate)[1]
    assert all(row.slots for row in found.rows) and (found.cluster, found.threads, found.resident) == blocks
    for other in (columns - 64, columns // 2):
        found = one(mapped(text.replace("N", str(other))).candidate)[1]
        assert not any(row.slots for row in found.rows)


TOTAL = "kernel k(X: bf16[{m}, {n}], S: f32[{m}]) {{ par {m} i {{ S[i] = sum {n} k {{ f32(X[i, k]) }} }} }}"


def test_a_row_that_one_loop_reads_has_a_cluster_where_it_begins_anywhere_and_there_are_many() -> None:
    found = one(mapped(TOTAL.format(m=257, n=100003)).candidate)[1]
    assert (found.cluster, found.threads, found.resident) == (4, 256, 4) and all(row.slots for row in found.rows)
    wide = one(mapped(TOTAL.format(m=257, n=100003).replace("bf16", "f32")).candidate)[1]
    assert (wide.cluster, wide.threads, wide.resident) == (8, 512, 3) and all(row.slots for row in wide.rows)
    for m, n in ((17, 100003), (257, 100000), (8192, 32001)):
        found = mapped(TOTAL.format(m=m, n=n)).candidate
        assert isinstance(found, Candidate)
        (choice,) = found.launches.values()
        assert not isinstance(choice, Blocks) or choice.cluster == 1


def test_blocks_wait_for_their_cluster_behind_the_loads_of_their_rows() -> None:
    for text in (TOTAL.format(m=257, n=100003), SOFTMAX.format(t="bf16", m=257, n=100003)):
        body = only_launch(mapped(text)).body
        waits = [n for n, node in enumerate(body) if isinstance(node, Barrier) and node.action is Action.WAIT]
        loads = [n for n, node in enumerate(body) if any(c.source.buffer == "X" for c in of_kind((node,), Copy))]
        loads = [n for n in loads if not any(of_kind((body[n],), WaitGroup))]  # the loop that goes over what came
        sends = [n for n, node in enumerate(body) if isinstance(node, Guard) and any(of_kind(node.body, Acquire))]
        assert max(loads) < waits[0] < sends[0]


PRODUCT = "kernel k(X: {t}[257, 100003], V: {t}[100003], S: f32[257]) {{ par 257 i {{ {body} }} }}"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_loop_that_reads_a_vector_beside_its_row_has_no_cluster_and_one_round_at_any_address(dtype: str) -> None:
    times = "S[i] = sum 100003 k { f32(X[i, k]) * f32(V[k]) }"
    text = PRODUCT.format(t=dtype, body=times)
    for rows, ahead, patch in (("257", 2, {"i": 2}), ("200", 1, {"i": 4})):  # aligned alike, and at any address
        found = mapped(text.replace("257", rows)).candidate
        assert isinstance(found, Candidate)
        (choice,) = found.launches.values()
        assert isinstance(choice, Parted) and (choice.ahead, choice.patch) == (ahead, patch)
    again = f"let m = maximum 100003 p {{ f32(X[i, p]) }}; {times.replace('f32(X', 'm * f32(X')}"
    assert one(mapped(PRODUCT.format(t=dtype, body=again)).candidate)[1].cluster > 1


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (SOFTMAX.format(t="f32", m=257, n=100003), "cuda:sm_80"),
        (SOFTMAX.format(t="f32", m=257, n=600000), "cuda:sm_90a"),
    ],
    ids=["no clusters", "no room in sixteen blocks"],
)
def test_rows_that_no_cluster_holds_are_read_again(text: str, target: str) -> None:
    program = mapped(text, target=target)
    assert one(program.candidate)[1].cluster == 1
    assert re.search("reads each row of X [23] times", show(program))


def clustered(text: str, rows: int, n: int, ranks: int, threads: int = 64) -> MappedProgram:
    """The program in clusters of so many blocks."""
    written = text.format(t="f32", m=rows, n=n)
    program = mapped(written)
    assert isinstance(program.candidate, Candidate)
    ((name, usual),) = program.candidate.launches.items()
    assert not isinstance(usual, Combined)
    loops = LOOPS[text]
    row = Row(indices=loops, line=128 if n > 256 and n % 4 else 0)
    forced = Blocks(
        threads=threads,
        grid=("i",),
        inner={index: ((index, threads),) for index in loops if index in "jp" and text != PICK and index == loops[-1]},
        shared_out=tuple(index for index in loops if text == PICK or index != loops[-1]),
        widths=dict.fromkeys(loops, 4) if n > 256 else {},
        rows=(row,),
        cluster=ranks,
        memory=usual.memory,
    )
    return mapped(written, choices=replace(program.candidate, launches={name: forced}))


def given(program: MappedProgram, rows: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n + rows)
    x = rng.standard_normal((rows, n)).astype(np.float32)
    if "W" not in program.buffers:
        x[1:2, n // 2], x[2:3, 0], x[3:4] = np.inf, np.nan, -np.inf
    found = {"X": x, "Y": np.zeros_like(x), "W": np.linspace(-1, 1, n, dtype=np.float32)}
    found |= {"T": np.arange(rows) % n, "L": np.zeros(rows, np.float32), "V": np.zeros(rows, np.float32)}
    found |= {"A": np.zeros(rows, np.int64)}
    return {p.name: found[p.name] for p in program.kernel.params}


def same(got: Any, expected: Any) -> None:
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


CASES = [(SOFTMAX, 4, 515, 2), (SOFTMAX, 1, 33, 8), (SOFTMAX, 4, 1024, 4), (NORM, 3, 515, 4), (NORM, 2, 31, 2)]
CASES_OF_WARPS = [(SOFTMAX, 4, 515, 2, 96), (NORM, 2, 515, 4, 224), (PICK, 3, 1027, 8, 160)]
CASES += [(PICK, 5, 515, 4), (PICK, 2, 1, 2), (PICK, 3, 1024, 8)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("text", "rows", "n", "ranks", "threads"), [*((*c, 64) for c in CASES), *CASES_OF_WARPS])
def test_the_blocks_of_a_cluster_share_a_row(text: str, rows: int, n: int, ranks: int, threads: int) -> None:
    program = clustered(text, rows, n, ranks, threads)
    assert reads(program, "X") == 1
    arrays = given(program, rows, n)
    with np.errstate(invalid="ignore"):
        same(simulate(program, arrays, seed=n), interpret(program.kernel, arrays).outputs)


@pytest.mark.parametrize("text", [SOFTMAX, PICK])
def test_clusters_are_right_and_race_free_as_cuda(text: str) -> None:
    program = clustered(text, 4, 515, 4)
    written = text.format(t="f32", m=4, n=515)
    compiled = texpr.parse(written).only.compile("cuda-host:sm_90a", mapping=program.candidate)
    arrays = given(program, 4, 515)
    with np.errstate(invalid="ignore"):
        expected = interpret(program.kernel, arrays).outputs
    compiled(**arrays)
    same(arrays, expected)


def test_blocks_of_a_cluster_meet_without_a_fence_of_the_device() -> None:
    source = texpr.parse(SOFTMAX.format(t="f32", m=257, n=100003)).only.compile("cuda:sm_90a").source
    assert source.count("tx::store_to<255>(") == 2
    assert source.count("tx::cluster_arrive_relaxed();") == 1 and "tx::cluster_arrive();" not in source


def test_a_register_sends_one_element() -> None:
    (only,) = launches(softmax().host)
    several = map_nodes(only.body, lambda n: replace(n, over=(("x", ONE),)) if isinstance(n, Copy) and n.pipe else n)
    wrong = replace(softmax(), host=(replace(only, body=several),))
    with pytest.raises(
        TExprError, match="S1_part copies with no element of 4 or 8 bytes to other blocks, which is not"
    ):
        emit_cuda(plan(wrong), wrong.target)


@cache
def softmax() -> MappedProgram:
    return clustered(SOFTMAX, 3, 515, 2)


def test_every_sync_of_a_cluster_that_goes_is_missed() -> None:
    dropped = [(text, m) for text, m in spoiled(softmax()) if text.startswith("drop")]
    assert len(dropped) == 3 + 2 * 3  # blocks begin and wait for that, and meet twice: an acquire, a commit, a wait
    for text, wrong in dropped:
        with pytest.raises(InternalError):
            check_orders(wrong)
            raise AssertionError(text)


WRONG = {
    "more blocks than a cluster has": ({"cluster": 32}, "has at most 16 blocks"),
    "an odd number": ({"cluster": 3}, "are a power of two"),
    "one warp": ({"threads": 32, "inner": {"j": (("j", 32),)}}, "two whole warps or more"),
    "other work": ({"rows": ()}, "does more than go over its rows"),
    "several in a block": ({"together": 2, "inner": {"j": (("j", 32),)}}, "not in one `together`"),
}


@pytest.mark.parametrize(("change", "why"), WRONG.values(), ids=WRONG.keys())
def test_clusters_that_cannot_share_rows_are_refused(change: dict[str, Any], why: str) -> None:
    program = softmax()
    name, choice = one(program.candidate)
    assert isinstance(program.candidate, Candidate)
    wrong = replace(program.candidate, launches={name: replace(choice, **change)})
    with pytest.raises(TExprError, match=why):
        mapped(SOFTMAX.format(t="f32", m=3, n=515), choices=wrong)


MEETS = {
    "what one block writes for all": "S[i] = sum {n} k {{ X[i, k] }}; par {n} j {{ Y[i, j] = X[i, j] / S[i] }}",
    "an element that one block changes": "let s = sum {n} k {{ W[i, k] + X[i, 3] }}; X[i, 3] = s; "
    "par {n} j {{ Y[i, j] = W[i, j] * s }}",
    "another place of the row": "let s = sum {n} k {{ X[i, k] }}; par {n} p {{ Y[i, p] = X[i, p] - s }}; "
    "par {n} j {{ W[i, j] = Y[i, {n} - 1 - j] + X[i, j] }}",
}


@pytest.mark.parametrize("body", MEETS.values(), ids=MEETS.keys())
def test_blocks_that_would_have_to_wait_for_one_another_are_no_cluster(body: str) -> None:
    head = "kernel k(inout X: f32[64, {n}], Y: f32[64, {n}], inout W: f32[64, {n}], S: f32[64]) {{ par 64 i {{ "
    program = mapped((head + body + " }} }}").format(n=100003))
    assert all(not isinstance(c, Blocks) or c.cluster == 1 for c in launches_of(program))


def launches_of(program: MappedProgram) -> list[Any]:
    assert isinstance(program.candidate, Candidate)
    return list(program.candidate.launches.values())


def test_a_row_whose_length_a_call_decides_has_no_cluster() -> None:
    program = softmax()
    with pytest.raises(TExprError, match="sizes leave the length of a row open"):
        mapped(SOFTMAX.format(t="f32", m=3, n="N").replace("{", "where N <= 1000 {", 1), choices=program.candidate)


def test_one_cluster_stands_for_all_where_the_same_happens_in_each() -> None:
    program = mapped(SOFTMAX.format(t="f32", m=257, n=100003))
    trace = unrolled(program, (only_launch(program),), {})
    assert {event.block for event in trace.events} == {*range(8)}


ENTROPY = """
kernel entropy(X: f32[257, 100003], L: f32[257]) {
    par 257 i {
        new top: f32
        new total: f32
        top = maximum 100003 j { X[i, j] }
        total = sum 100003 j { exp(X[i, j] - top) }
        L[i] = log(total) + top
    }
}
"""


def test_rows_of_whole_words_that_are_only_read_have_registers_with_which_four_blocks_are_there() -> None:
    found = one(mapped(ENTROPY).candidate)[1]
    assert (found.cluster, found.threads, found.resident) == (8, 256, 4) and not any(row.slots for row in found.rows)
