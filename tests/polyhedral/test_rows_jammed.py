"""Rows in pairs: two that begin alike in a line of memory share what both read, and every row is made once or alike."""

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spoil import spoiled
from stages import mapped, only_launch, proved

import texpr
from texpr.grammar.ast import Role
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.rows_jammed import jam, to_jam
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Row
from texpr.polyhedral.mapped.candidate_json import candidate_json, read_candidate
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import operators
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

HEAD = "kernel k(X: {t}[{m}, {n}], G: {t}[{n}], B: {t}[{n}], Y: {t}[{m}, {n}]) {{ par {m} i {{ "
LAYER = (
    HEAD
    + """
    new mean: f32
    mean = sum {n} k {{ f32(X[i, k]) }}
    mean = mean / f32({n})
    let v = sum {n} j {{ (f32(X[i, j]) - mean) * (f32(X[i, j]) - mean) }}
    par {n} p {{ Y[i, p] = {t}((f32(X[i, p]) - mean) * rsqrt(v + 1.0) * f32(G[p]) + f32(B[p])) }}
}} }}"""
)
ROOT = (
    HEAD
    + """
    let s = sum {n} k {{ f32(X[i, k]) * f32(X[i, k]) }}
    par {n} p {{ Y[i, p] = {t}(f32(X[i, p]) * rsqrt(s + 1.0) * f32(G[p])) }}
}} }}"""
)
SOFTMAX = (
    HEAD
    + """
    let m = maximum {n} k {{ f32(X[i, k]) + f32(B[k]) }}
    let s = sum {n} j {{ exp(f32(X[i, j]) + f32(B[j]) - m) }}
    par {n} p {{ Y[i, p] = {t}(exp(f32(X[i, p]) + f32(B[p]) - m) / s) }}
}} }}"""
)
LOOPS = {LAYER: ("k", "j", "p"), ROOT: ("k", "p"), SOFTMAX: ("k", "j", "p")}
WIDE = {"f32": 4, "bf16": 8, "f64": 2}


def only(program: MappedProgram) -> Any:
    assert isinstance(program.candidate, Candidate)
    (choice,) = program.candidate.launches.values()
    return choice


def paired(text: str, dtype: str, rows: int, n: int, ranks: int = 2, threads: int = 64) -> MappedProgram:
    """The program with rows in pairs, held in slots of a cluster."""
    written = text.format(t=dtype, m=rows, n=n)
    usual, loops = mapped(written), LOOPS[text]
    assert isinstance(usual.candidate, Candidate)
    (name,) = usual.candidate.launches
    kernel = jam(keep_nothing(proved(written)), {"i"}).proved.program.kernel
    forced = Blocks(
        threads=threads,
        grid=("i",),
        inner={"p": (("p", threads),)},
        shared_out=loops[:-1],
        widths=dict.fromkeys(loops, WIDE[dtype]),
        rows=(Row(indices=loops, line=128, slots=text is not SOFTMAX),),
        cluster=ranks,
        memory={b.name: Memory.REG for b in kernel.buffers if b.role is Role.LOCAL},
    )
    return mapped(written, choices=replace(usual.candidate, jammed=frozenset({"i"}), launches={name: forced}))


def arguments(dtype: str, rows: int, n: int) -> dict[str, Any]:
    rng, own = np.random.default_rng(rows + n), np.float64 if dtype == "f64" else ml_dtypes.bfloat16
    found = {name: rng.standard_normal(shape).astype(own) for name, shape in {"X": (rows, n), "G": n, "B": n}.items()}
    return found | {"Y": np.full((rows, n), np.nan).astype(own)}


def same(got: Any, expected: Any) -> None:
    a, b = (np.asarray(one["Y"]).astype(np.float64) for one in (got, expected))
    np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2)


def test_long_ragged_narrow_rows_are_taken_in_pairs_of_which_each_vector_is_read_once() -> None:
    program = mapped(LAYER.format(t="bf16", m=257, n=100003))
    assert isinstance(program.candidate, Candidate) and program.candidate.jammed == {"i"}
    found = only(program)
    assert (found.cluster, found.threads, found.resident) == (8, 224, 4) and all(row.slots for row in found.rows)
    loads = [o.source.buffer for o in operators(only_launch(program).body) if isinstance(o, Copy)]
    assert [loads.count(name) for name in "XGB"] == [2, 2, 2]  # of vectors in whole runs and in others
    again = read_candidate(candidate_json(program.candidate))
    assert again == program.candidate
    assert mapped(LAYER.format(t="bf16", m=257, n=100003), choices=again).host == program.host


@pytest.mark.parametrize(
    ("text", "dtype", "rows", "n"),
    [
        (LAYER, "f32", 257, 100003),
        (LAYER, "bf16", 257, 4093),
        (LAYER, "bf16", 2000, 6001),
        (LAYER, "bf16", 32749, 4093),
        (LAYER, "bf16", 74480, 18001),
        (LAYER, "bf16", 89329, 1501),
        (LAYER, "bf16", 8192, 32000),
        (LAYER, "bf16", 60, 100003),
        (LAYER, "bf16", 190, 100003),
        (ROOT, "bf16", 257, 100003),
    ],
    ids=[
        "whole words",
        "short rows",
        "few",
        "idle",
        "idle long",
        "idle short",
        "aligned",
        "too few",
        "many alone",
        "two loops",
    ],
)
def test_other_rows_are_taken_one_by_one(text: str, dtype: str, rows: int, n: int) -> None:
    candidate = mapped(text.format(t=dtype, m=rows, n=n)).candidate
    assert isinstance(candidate, Candidate) and not candidate.jammed


@pytest.mark.parametrize(
    ("rows", "n", "threads", "resident"),
    [(191273, 701, 32, 32), (67007, 2001, 96, 13), (22343, 6001, 256, 5), (16741, 8009, 256, 4), (8379, 16001, 512, 2)],
)
def test_ragged_narrow_rows_that_fill_a_block_in_pairs_are_taken_so(
    rows: int, n: int, threads: int, resident: int
) -> None:
    program = mapped(LAYER.format(t="bf16", m=rows, n=n))
    assert isinstance(program.candidate, Candidate) and program.candidate.jammed == {"i"}
    found = only(program)
    assert (found.cluster, found.threads, found.resident) == (1, threads, resident)
    assert all(row.slots and row.line for row in found.rows)


CASES = [(LAYER, "f64", 17, 131), (ROOT, "f64", 19, 67), (SOFTMAX, "f64", 17, 67)]  # 16 pairs: a simulation is small


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "dtype", "rows", "n"), CASES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_pairs_are_right_where_the_last_rows_are_alone(text: str, dtype: str, rows: int, n: int, ranks: int) -> None:
    program, arrays = paired(text, dtype, rows, n, ranks), arguments(dtype, rows, n)
    check_orders(program)
    expected = interpret(proved(text.format(t=dtype, m=rows, n=n)).program.kernel, arrays).outputs
    same(simulate(program, arrays, seed=n), expected)


@pytest.mark.parametrize("ranks", [1, 2])
def test_pairs_are_right_as_cuda(ranks: int) -> None:
    program, arrays = paired(LAYER, "bf16", 67, 515, ranks), arguments("bf16", 67, 515)
    text = LAYER.format(t="bf16", m=67, n=515)
    expected = interpret(proved(text).program.kernel, arrays).outputs
    texpr.parse(text).only.compile("cuda-host:sm_90a", mapping=program.candidate)(**arrays)
    same(arrays, expected)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 129, 200])
def test_a_program_with_rows_in_pairs_is_the_same_program(rows: int) -> None:
    text, arrays = LAYER.format(t="bf16", m="M", n=9), arguments("bf16", rows, 9)
    found = keep_nothing(proved(text))
    jammed = jam(found, to_jam(found))
    assert jammed.jammed == {"i"}
    outputs = [interpret(one.proved.program.kernel, arrays).outputs["Y"] for one in (found, jammed)]
    assert np.array_equal(*(one.astype(np.float32) for one in outputs))


@cache
def small() -> MappedProgram:
    return paired(LAYER, "bf16", 65, 515)


def test_every_sync_of_pairs_that_goes_is_missed() -> None:
    dropped = [(text, m) for text, m in spoiled(small()) if text.startswith("drop")]
    assert dropped
    for text, wrong in dropped:
        with pytest.raises(InternalError):
            check_orders(wrong)
            raise AssertionError(text)


PIECES = (
    "new s: f32 ; s = 0.5 ; seq {n} k {{ s += X[i, k] }} ; par {n} p {{ Y[i, p] = X[i, p] * s * G[p] }}",
    "let m = maximum {n} k {{ X[i, k] }} ; S[i] = m",
    "let q = sum {n} k {{ Y[i, k] }} ; S[i] = q",  # what another piece may write
    "par {n} p {{ Y[i, p] += X[i, p] }}",
    "par {n} p {{ X[i, p] = X[i, p] * G[p] }}",
    "S[i] = S[i] + X[i, 0]",
    "par {n} p {{ Y[i, p] = G[p] }} ; par {n} p {{ Y[i, {n} - 1 - p] = X[i, p] }}",
    "S[i] += 1.0",
)
UPDATED = "kernel k(inout X: f32[{m}, {n}], G: f32[{n}], inout Y: f32[{m}, {n}], inout S: f32[{m}]) {{ par {m} i {{ "


@given(
    pieces=st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=3, unique=True),
    rows=st.sampled_from([1, 31, 32, 33, 64, 65, 100]),
)
def test_rows_in_pairs_change_nothing_wherever_they_may_be_taken(pieces: list[int], rows: int) -> None:
    """Of f32 rows 32 lie apart: with 33 of them one is alone, and is made twice."""
    text = UPDATED.format(m=rows, n=3) + " ; ".join(PIECES[piece].format(m=rows, n=3) for piece in pieces) + " } }"
    found, rng = keep_nothing(proved(text)), np.random.default_rng(rows)
    able = to_jam(found)
    alone, drawn = {0, 1, 2, 6}, set(pieces)  # the others read what they write; the third what two of these do
    assert bool(able) == (drawn <= alone and not (2 in drawn and drawn & {0, 6}))
    if able:
        shapes = {"X": (rows, 3), "G": (3,), "Y": (rows, 3), "S": (rows,)}
        arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        one, other = (interpret(p.proved.program.kernel, arrays).outputs for p in (found, jam(found, able)))
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "body",
    [
        "par {m} i, {n} j {{ Y[i, j] = X[i, j] }}",
        "par {m} i {{ if i > 3 {{ Y[i, 0] = X[i, 0] }} }}",
        "par {m} i {{ par {n} j {{ Y[i, j] = Y[i, j] * X[i, j] }} }}",
        "par {m} i {{ par {n} j {{ Y[i, j] += X[i, j] }} }}",
    ],
    ids=["two indices", "a condition", "in place", "an update"],
)
def test_rows_that_cannot_be_in_pairs_are_refused(body: str) -> None:
    text = ("kernel k(X: f32[{m}, {n}], inout Y: f32[{m}, {n}]) {{ " + body + " }}").format(m=128, n=64)
    candidate = mapped(text).candidate
    assert isinstance(candidate, Candidate)
    with pytest.raises(
        TExprError, match="takes the rows i in pairs: they are no band of its own whose iterations may run twice"
    ):
        mapped(text, choices=replace(candidate, jammed=frozenset({"i"})))


@pytest.mark.parametrize("text", ["kernel k() { }", "kernel k(X: f32[4]) { }"])
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda-host:sm_90a", "cpu"])
def test_a_kernel_without_a_launch_is_mapped(text: str, target: str) -> None:
    assert texpr.parse(text).only.compile(target, stop_after="emit").source
