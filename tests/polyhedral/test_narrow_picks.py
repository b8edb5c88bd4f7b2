"""Picks of narrow elements by columns: in registers of their own type, two of them at once, with the number of the
round in 16 bits. Their results are the sequential program's, to the bit."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from emitted import Emitted
from pick_programs import odd_data
from stages import mapped
from test_parted import with_launch_name

from texpr.codegen.host_run import HostModule
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Parted
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

COLUMNS = """kernel k(X: {t}[M, N], V: f32[N], A: i64[N]) {{
    par N j {{
        new best: f32
        new at: i64
        best = {start}
        at = -7
        seq M i {{ {body} }}
        V[j] = best
        A[j] = at
    }}
}}"""
PICK = "if f32(X[i, j]) {op} best {{ best = X[i, j]; at = i }}"
START = {">": "-inf", ">=": "-inf", "<": "inf", "<=": "0.5"}
MONOID = {">": "FirstGreatest", ">=": "LastGreatest", "<": "FirstLeast", "<=": "LastLeast"}
CASES = {
    "teams of blocks": (299, 256, {"deal": (("j", 16),), "threads": 64, "blocks": {"i": 5}, "ahead": 2}),
    "one block": (77, 64, {"deal": (("j", 8),), "threads": 64, "blocks": {}, "ahead": 4}),
    "the next turn loaded": (77, 61, {"threads": 256, "blocks": {}, "ahead": 4, "next_turn": True}),
    "any columns": (133, 101, {"threads": 256, "blocks": {"i": 3}, "ahead": 2, "next_turn": False}),
    "fewer rows than threads": (3, 64, {"deal": (("j", 8),), "threads": 64, "blocks": {}, "ahead": 1}),
}


def text_of(t: str, op: str, body: str = PICK) -> str:
    return COLUMNS.format(t=t, start=START[op], body=body.format(op=op))


def forced(text: str, m: int, n: int, **choice: object) -> MappedProgram:
    """The program with few threads, of which each has several rounds."""
    found = mapped(text, M=32749, N=4096 if n % 8 == 0 else 4093)
    assert isinstance(found.candidate, Candidate)
    ((name, parted),) = found.candidate.launches.items()
    assert isinstance(parted, Parted) and parted.widths == {"j": 8}
    if n % 8:
        choice |= {"deal": (("j", 32),), "strip": 248}
    return mapped(text, choices=Candidate(launches={name: replace(parted, resident=1, **choice)}), M=m, N=n)


def is_narrow(program: MappedProgram) -> bool:
    return "at_narrow" in program.buffers


@pytest.mark.gxx
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("t", "op"), [("bf16", ">"), ("f16", ">="), ("f16", "<"), ("bf16", "<=")])
@pytest.mark.sampled(3)
def test_what_columns_pick_of_narrow_elements_is_what_the_sequential_program_picks(t: str, op: str, name: str) -> None:
    m, n, choice = CASES[name]
    program = forced(text_of(t, op), m, n, **choice)
    assert is_narrow(program)
    emitted = Emitted(with_launch_name(program, "narrow_0"))
    assert f"tx::pick<tx::{MONOID[op]}<tx::{t}>>(best_narrow, at_narrow, X_run" in emitted.source
    assert "if (condition)" not in emitted.source.split("tx::sync_block")[0]
    module = HostModule(emitted.source, werror=True)
    for seed in range(3):
        values = odd_data(program.kernel, {"M": m, "N": n}, seed)
        if seed == 2:
            values["X"][:, ::3] = values["X"][0, 0]
        expected = interpret(program.kernel, values).outputs
        got = simulate(program, values, seed=seed)
        arrays = {key: np.array(value) for key, value in values.items()}
        assert emitted.run(module, arrays, seed) is None
        for output, found in expected.items():
            assert got[output].tobytes() == found.tobytes(), (seed, output)
            assert arrays[output].tobytes() == found.tobytes(), (seed, output)


@pytest.mark.parametrize(
    ("t", "m", "body"),
    [
        ("f32", 32768, PICK),
        ("bf16", None, PICK),
        ("bf16", 32768, "if f32(X[i, j]) {op} best {{ best = X[i, j]; at = 2 * i }} V[j] = 0.0"),
        ("bf16", 32768, "if i % 3 != 1 and f32(X[i, j]) {op} best {{ best = X[i, j]; at = i }} V[j] += f32(X[i, j])"),
        ("bf16", 1 << 22, PICK),
    ],
    ids=["wide elements", "any number of rows", "more statements", "a sum beside it", "more rounds than have a number"],
)
def test_other_picks_have_what_they_compare_and_the_iteration(t: str, m: int | None, body: str) -> None:
    sizes = {"N": 1024} if m is None else {"M": m, "N": 1024}
    assert not is_narrow(mapped(text_of(t, ">", body), **sizes))


def test_rounds_are_numbered_up_to_the_last_that_16_bits_have() -> None:
    text, rows = text_of("bf16", ">"), 32768 * 32
    assert is_narrow(forced(text, rows, 1024, threads=512, deal=(("j", 16),), blocks={"i": 33}))
    assert not is_narrow(forced(text, rows + 1, 1024, threads=512, deal=(("j", 16),), blocks={"i": 33}))


def test_the_text_of_columns_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    golden("cuda/argmax_columns.cu", Emitted(mapped(text_of("bf16", ">"), M=32768, N=4096)).source)
