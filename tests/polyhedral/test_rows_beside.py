"""Rows beside one another: several rows of a band that one thread adds, and what it reads of all of them once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import mapped, only_launch
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Parted
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory, Place, Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Define, Guard, Lead
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate

TIMES = "kernel k(A: f32[M, N], x: f32[N], y: f32[M]) { par M i { y[i] = sum N k { A[i, k] * x[k] } } }"
PICKED = """kernel k(A: f32[M, N], I: i64[M], V: f32[M]) {
    par M i { V[i] = 1.0; I[i] = -1; seq N k { if A[i, k] > V[i] { V[i] = A[i, k]; I[i] = k } } }
}"""
PROGRAMS = {
    "times": TIMES,
    "narrow": TIMES.replace("A: f32", "A: bf16").replace("x: f32", "x: bf16").replace("A[i, k] *", "f32(A[i, k]) *"),
    "mixed": TIMES.replace("A: f32", "A: bf16").replace("A[i, k] *", "f32(A[i, k]) *"),
    "shifted": TIMES.replace("x: f32[N]", "x: f32[N + 3]").replace("x[k]", "x[k + 3]"),
    "with a factor": TIMES.replace("k { A", "k { y[i] * A")
    .replace("y: f32[M])", "s: f32[M], y: f32[M])")
    .replace("y[i] * A", "s[i] * A"),
    "greatest and sum": """kernel k(A: f32[M, N], x: f32[N], S: f32[M], T: f32[M]) where N >= 1 {
        par M i { S[i] = sum N k { A[i, k] * x[k] }; T[i] = maximum N k { A[i, k] - x[k] } }
    }""",
    "picked": PICKED,
}


def of_rows(text: str, rows: int, m: int, n: int | None = None, **changes: Any) -> MappedProgram:
    """The program with so many rows in a thread, in blocks so small that a few of them share a row."""
    known = {"M": m} if n is None else {"M": m, "N": n}
    first = mapped(text, M=m, N=100003)
    candidate = first.candidate
    assert isinstance(candidate, Candidate)
    ((name, own),) = candidate.launches.items()
    assert isinstance(own, Parted | Blocks)
    width = changes.pop("width", 8 if "bf16" in text else 4)
    loops = ("k", "k_1") if text.count(" N k ") > 1 else ("k",)
    parted = Parted(
        threads=64, grid=("i",), shared_out=loops, blocks=dict.fromkeys(loops, 2), ahead=1,
        widths=dict.fromkeys(loops, width), patch={"i": rows}, memory=own.memory,
    )  # fmt: skip
    return mapped(text, choices=replace(candidate, launches={name: replace(parted, **changes)}), **known)


def agrees(program: MappedProgram, got: Any, sizes: dict[str, int], values: dict[str, Any]) -> None:
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    for array, found in interpret(program.kernel, values, sizes=known).outputs.items():
        np.testing.assert_array_equal(got(known)[array], found, err_msg=array)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("m", "rows", "n"), [(8, 4, 301), (7, 3, 301), (1, 2, 512), (5, 4, 0)])
def test_rows_of_a_thread_are_added_each(name: str, m: int, rows: int, n: int) -> None:
    if n == 0 and "where N" in PROGRAMS[name]:
        return
    program, sizes = of_rows(PROGRAMS[name], rows, m), {"M": m, "N": n}
    values = arguments(program.kernel, sizes)
    agrees(program, lambda known: simulate(program, values, seed=n, sizes=known), sizes, values)


LINES = {"lines": {"k": "A[i, k]"}}
ALIKE = [(9, 2, 301), (20, 2, 301), (23, 3, 67), (1, 2, 512), (33, 2, 1), (5, 4, 0), (16, 2, 64), (17, 4, 130)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "greatest and sum"])
@pytest.mark.parametrize(("m", "rows", "n"), ALIKE)
def test_rows_that_are_aligned_alike_are_read_in_chunks(name: str, m: int, rows: int, n: int) -> None:
    more = {"ahead": 2, "blocks": {}} if m % 2 else {}
    program = of_rows(PROGRAMS[name], rows, m, n if rows == 2 else None, **LINES, **more)
    sizes = {"M": m, "N": n}
    values = arguments(program.kernel, sizes)
    agrees(program, lambda known: simulate(program, values, seed=n, sizes=known), sizes, values)


@given(m=st.integers(1, 70), n=st.integers(0, 700), rows=st.integers(2, 4), narrow=st.booleans(), known=st.booleans())
@settings(max_examples=15)
def test_rows_of_any_size_that_are_aligned_alike(m: int, n: int, rows: int, narrow: bool, known: bool) -> None:
    text = PROGRAMS["narrow" if narrow else "times"]
    program, sizes = of_rows(text, rows, m, n if known else None, **LINES), {"M": m, "N": n}
    values = arguments(program.kernel, sizes)
    agrees(program, lambda known: simulate(program, values, seed=m, sizes=known), sizes, values)


@pytest.mark.parametrize(
    ("name", "n", "apart"),
    [
        ("times", 301, 4),
        ("times", 302, 2),
        ("times", 304, 1),
        ("narrow", 301, 8),
        ("narrow", 302, 4),
        ("narrow", None, 8),
    ],
)
def test_rows_lie_as_far_apart_as_their_alignment_says(name: str, n: int | None, apart: int) -> None:
    program = of_rows(PROGRAMS[name], 2, 257, n, **LINES)
    defined = of_kind(only_launch(program).body, Define)
    rows = {
        digit.weight for node in defined for digit in node.digits if digit.place is Place.VECTOR and node.index == "i"
    }
    assert rows == {apart}
    blocks, rest = divmod(257, 2 * apart)
    assert constant_value(only_launch(program).grid[0]) in (blocks * apart + min(rest, apart), None)
    (lead,) = of_kind(only_launch(program).body, Lead)
    assert lead.of.buffer == "A" and lead.bytes == 16


def test_chunks_of_rows_ask_for_no_line_of_the_l1() -> None:
    asked = {
        (c.source.buffer, c.access, c.cache) for c in of_kind(only_launch(of_rows(TIMES, 2, 8, **LINES)).body, Copy)
    }
    assert asked == {("A", Access.ALIGNED, Cache.NO_ALLOCATE), ("x", Access.FUNNEL, Cache.PLAIN)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["times", "narrow", "picked", "shifted"])
@pytest.mark.parametrize(("m", "n"), [(19, 1003), (16, 61)])
def test_the_text_of_rows_that_are_aligned_alike_computes_the_same(name: str, m: int, n: int) -> None:
    program, sizes = of_rows(PROGRAMS[name], 2, m, ahead=2, **LINES), {"M": m, "N": n}
    values, emitted = arguments(program.kernel, sizes), Emitted(program)
    arrays = {**values, **{b.name: np.zeros(m, b.dtype.numpy) for b in program.kernel.params if b.name not in values}}
    assert emitted.run(HostModule(emitted.source), arrays) is None
    agrees(program, lambda known: arrays, sizes, values)


@pytest.mark.parametrize(
    ("text", "change", "why"),
    [
        (TIMES, {"lines": {"k": "x[k]"}}, r"`lines`: runs along k are counted from A\[i, k\], not from x\[k\]"),
        (TIMES, {**LINES, "width": 2}, "`lines`: runs along k are no chunk of 16 bytes"),
        (TIMES, {**LINES, "strip": 8}, "`strip`: blocks end rows, and no strip of k"),
        (TIMES.replace("A[i, k]", "A[i, N - 1 - k]"), LINES, "`lines`: runs along k are counted from none"),
        (PROGRAMS["greatest and sum"], LINES, "`lines`: runs along k are counted from none"),
    ],
)
def test_rows_that_are_not_alike_are_refused(text: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        of_rows(text, 4, 8, **change)


@pytest.mark.parametrize(("m", "n"), [(5, 515), (9, 701), (4, 1030)])
def test_turns_of_rows_that_begin_early_have_none_of_few_rounds(m: int, n: int) -> None:
    """Whole turns would end as much before the last iteration as they begin before the first."""
    program, sizes = of_rows(TIMES, 2, m, n, ahead=2, blocks={}, **LINES), {"M": m, "N": n}
    values = arguments(program.kernel, sizes)
    agrees(program, lambda known: simulate(program, values, seed=n, sizes=known), sizes, values)


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize(("name", "m", "rows"), [("narrow", 7, 4), ("picked", 5, 2)])
def test_their_text_computes_the_same(name: str, m: int, rows: int, ahead: int) -> None:
    program, sizes = of_rows(PROGRAMS[name], rows, m, ahead=ahead), {"M": m, "N": 1003}
    values, emitted = arguments(program.kernel, sizes), Emitted(program)
    arrays = {**values, **{b.name: np.zeros(m, b.dtype.numpy) for b in program.kernel.params if b.name not in values}}
    assert emitted.run(HostModule(emitted.source), arrays) is None
    agrees(program, lambda known: arrays, sizes, values)


def choice(text: str, **sizes: int) -> Any:
    candidate = mapped(text, **sizes).candidate
    assert isinstance(candidate, Candidate)
    (only,) = candidate.launches.values()
    return only


def test_rows_are_beside_one_another_where_all_read_a_long_vector() -> None:
    long = {"M": 257, "N": 100003}
    for name in ("times", "narrow"):
        found = choice(PROGRAMS[name], **long)
        assert isinstance(found, Parted) and (found.patch, found.threads, found.resident) == ({"i": 2}, 896, 1)
        assert not found.blocks and found.ahead == 2 and found.lines == {"k": "A[i, k]"}  # 129 blocks, 7 whole turns
        found = choice(PROGRAMS[name], M=200, N=100003)
        assert isinstance(found, Parted) and (found.patch, found.threads, found.resident) == ({"i": 4}, 256, 4)
        assert found.blocks == {"k": 10} and not found.lines  # 50 fours of rows, 500 blocks
        for m, n in ((264, 65521), (1000, 100003)) if name == "narrow" else ((1000, 100003),):
            found = choice(PROGRAMS[name], M=m, N=n)
            assert isinstance(found, Parted) and (found.patch, found.resident) == ({"i": 2}, 2)
            assert not found.blocks and found.threads in (448, 512) and found.lines == {"k": "A[i, k]"}
    alone = TIMES.replace(" * x[k]", "")
    for text, sizes in (
        (alone, long),
        (TIMES, {"M": 257, "N": 4096}),
        (TIMES, {"M": 3, "N": 100003}),
        (TIMES, {"M": 8192, "N": 32000}),
    ):
        found = choice(text, **sizes)
        assert not isinstance(found, Parted) or not found.patch


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"patch": {"i": 1}}, "`patch` has i, not 2 to 16"),
        ({"patch": {"i": 17}}, "`patch` has i, not 2 to 16"),
        ({"patch": {"k": 4}}, "`patch` has k, not 2 to 16 of one or two of i"),
        ({"widths": {}}, "`patch`: the runs of a thread lie along the reductions"),
        ({"deal": (("i", 32),)}, "`patch`: all threads of a block share the reductions, or those to"),
        ({"next_turn": True}, "loads once for several rows"),
    ],
)
def test_rows_that_no_thread_takes_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        of_rows(TIMES, 4, 8, **change)


def test_what_all_rows_read_is_loaded_once() -> None:
    loads = {c.source.buffer: [n for _, n in c.over] for c in of_kind(only_launch(of_rows(TIMES, 4, 8)).body, Copy)}
    assert len(loads["A"]) == 2 and len(loads["x"]) == 1


def test_a_thread_without_an_iteration_of_a_turn_loads_nothing() -> None:
    """Its own iterations are asked for first, and no row is where all are there."""
    body = only_launch(of_rows(TIMES, 4, 7)).body
    asked = [g for g in of_kind(body, Guard) if any(of_kind(g.body, Copy)) and not g.orelse]
    assert [str(g.condition) for g in asked] and all(any(of_kind(g.body, Copy)) for g in asked)
    (rows,) = (g for g in of_kind(body, Guard) if g.orelse and not any(of_kind((g,), Copy)))
    assert rows.uniform is Scope.BLOCK and not any(of_kind(rows.body, Guard)) and any(of_kind(rows.orelse, Guard))


def test_the_parts_of_few_blocks_meet_in_one_warp() -> None:
    """The last block needs no shared memory for so few of them: its first warp has all."""
    program = mapped(TIMES, M=200, N=100003)
    shared = [name for name, buffer in program.buffers.items() if buffer.memory is Memory.SHARED]
    assert shared == ["y_parts"]
