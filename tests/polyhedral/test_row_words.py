"""Words of rows: loops written out for each word of a chunk in which accesses at any address may begin."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch

from texpr.codegen.host_run import HostModule
from texpr.polyhedral.mapped.candidate import Blocks, Candidate
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate

ONE = """kernel k(X: {t}[M, {n}], G: {t}[{g}], B: {b}[{n}], Y: {t}[M, {n}]) {{ par M i {{
    let s = sum {n} k {{ f32(X[i, k]) * f32(X[i, k]) }}
    par {n} j {{ Y[i, j] = {t}(f32(X[i, j]) * rsqrt(s + 1.0) * f32(G[j{o}])) }}
}} }}"""
NORM = """kernel k(X: {t}[M, {n}], G: {t}[{g}], B: {b}[{n}], Y: {t}[M, {n}]) {{ par M i {{
    let s = sum {n} k {{ f32(X[i, k]) * f32(X[i, k]) }}
    par {n} j {{ Y[i, j] = {t}(f32(X[i, j]) * rsqrt(s + 1.0) * f32(G[j{o}]) + f32(B[j])) }}
}} }}"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
M = 9  # rows begin in each word, and between words


def text(t: str, n: int, *, b: str = "", ahead: int = 0, of: str = NORM) -> str:
    return of.format(t=t, n=n, g=n + ahead, b=b or t, o=f" + {ahead}" if ahead else "")


def in_slots(of: str, threads: int = 64) -> MappedProgram:
    """The program with its row in slots of so many threads."""
    candidate = mapped(of, M=M).candidate
    assert isinstance(candidate, Candidate)
    ((name, choice),) = candidate.launches.items()
    assert isinstance(choice, Blocks)
    inner = {index: tuple((i, threads) for i, _ in deal) for index, deal in choice.inner.items()}
    rows = tuple(replace(row, slots=True) for row in choice.rows)
    changed = replace(choice, threads=threads, inner=inner, rows=rows, resident=0)
    return mapped(of, choices=Candidate(launches={name: changed}), M=M)


def words(program: MappedProgram) -> list[Loop]:
    return [loop for loop in of_kind(only_launch(program).body, Loop) if loop.word is not None]


def arrays_of(program: MappedProgram) -> dict[str, Any]:
    random, found = np.random.default_rng(5), dict[str, Any]()
    for buffer in program.kernel.params:
        shape = tuple(getattr(extent, "value", M) for extent in buffer.shape)
        found[buffer.name] = random.standard_normal(shape).astype(TYPES[buffer.dtype.name])
    found["Y"][:] = np.nan
    return found


def want(arrays: dict[str, Any], ahead: int = 0) -> Any:
    x, g, b = (arrays[name].astype(float) for name in "XGB")
    narrow = arrays["X"].dtype != np.float32  # those have one vector
    return x / np.sqrt((x**2).sum(1, keepdims=True) + 1.0) * g[ahead:] + (0 if narrow else b)


@pytest.mark.parametrize(("t", "n", "ahead"), [("f32", 517, 0), ("bf16", 1027, 0), ("bf16", 1021, 8), ("f32", 519, 4)])
def test_rows_that_begin_in_any_word_are_right(t: str, n: int, ahead: int) -> None:
    program = in_slots(text(t, n, ahead=ahead, of=ONE if t == "bf16" else NORM))
    assert len(words(program)) == 1 and "in the word of G[" in show(program)
    arrays = arrays_of(program)
    expected = want(arrays, ahead)
    got = simulate(program, arrays, seed=n)["Y"].astype(float)
    assert np.abs(got - expected).max() < (1e-5 if t == "f32" else 4e-2)


@pytest.mark.parametrize(("t", "n"), [("f32", 517), ("bf16", 1027)])
def test_their_text_computes_the_same(t: str, n: int) -> None:
    program = in_slots(text(t, n, of=ONE if t == "bf16" else NORM))
    arrays, emitted = arrays_of(program), Emitted(program)
    expected = want(arrays)
    assert (
        emitted.source.count(".in_word(word).shifted()") == (1 if t == "bf16" else 2)
        and ".low.shifted()" not in emitted.source
    )
    assert emitted.run(HostModule(emitted.source), arrays) is None
    assert np.abs(arrays["Y"].astype(float) - expected).max() < (1e-5 if t == "f32" else 4e-2)


def test_the_word_is_that_of_the_first_access() -> None:
    (loop,) = words(in_slots(text("bf16", 1027, of=ONE)))
    assert loop.word is not None and loop.word.buffer == "G" and loop.unroll
    source = Emitted(in_slots(text("bf16", 1027, of=ONE))).source
    assert source.count("const int past = tx::word_past(G, (-1) * lead);") == 1 == source.count("if (word == past)")


@pytest.mark.parametrize(
    "of",
    [
        text("f32", 512),
        text("bf16", 1027),
        text("bf16", 1027, b="f32"),
        text("bf16", 1027, ahead=2),
        text("f32", 517).replace("G: f32[517]", "G: f32[517] #align(4)"),
    ],
    ids=["aligned", "two narrow vectors", "two types", "two places", "no known begin"],
)
def test_other_loops_are_written_once(of: str) -> None:
    assert not words(in_slots(of))


def test_rows_in_registers_have_their_loop_once() -> None:
    assert not words(mapped(text("bf16", 1027, of=ONE), M=M))
