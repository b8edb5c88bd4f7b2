"""Turns: rows that data tells are brought by several accesses of each thread, which are on their way together."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

ROWS = "kernel k(R: i32[M], E: f32[V, N], Y: f32[M, N]) { par M i, N j { Y[i, j] = E[R[i], j] } }"
SIZES = {"M": 5, "V": 7}


def flat(program: MappedProgram) -> Flat:
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


def changed(text: str, sizes: dict[str, int], **changes: Any) -> MappedProgram:
    first = mapped(text, **sizes)
    assert isinstance(first.candidate, Candidate)
    (name,) = first.candidate.launches
    return mapped(text, choices=replace(first.candidate, launches={name: replace(flat(first), **changes)}), **sizes)


def arguments(n: int) -> dict[str, Any]:
    random = np.random.default_rng(n)
    table = random.integers(-9, 10, (SIZES["V"], n)).astype(np.float32)
    rows = random.integers(0, SIZES["V"], SIZES["M"]).astype(np.int32)
    return {"R": rows, "E": table, "Y": np.zeros((SIZES["M"], n), np.float32)}


def few(n: int) -> MappedProgram:
    """Two turns of a warp: 256 elements, so that longer rows have several blocks."""
    return changed(ROWS, {**SIZES, "N": n}, threads=32, deal=(("j", 32),), turns={"j": 2})


@pytest.mark.parametrize("n", [512, 540, 637])
def test_every_element_of_a_row_has_one_turn(n: int) -> None:
    program, values = few(n), arguments(n)
    expected = interpret(program.kernel, values).outputs
    np.testing.assert_array_equal(simulate(program, values)["Y"], expected["Y"])


@pytest.mark.gxx
def test_the_text_of_turns_is_right_on_the_cpu() -> None:
    for n in (512, 637):
        emitted, values = Emitted(few(n)), arguments(n)
        assert emitted.run(HostModule(emitted.source, werror=True), values) is None
        np.testing.assert_array_equal(values["Y"], values["E"][values["R"]])


@pytest.mark.parametrize(
    ("dtype", "n", "threads", "turns"),
    [
        ("f32", 4096, 128, 2),
        ("bf16", 1024, 64, 2),
        ("f32", 4093, 96, 3),
        ("bf16", 4093, 96, 3),
        ("f32", 1 << 20, 128, 2),
    ],
)
def test_a_block_has_a_small_part_of_a_row_and_a_thread_several_pieces_of_it(
    dtype: str, n: int, threads: int, turns: int
) -> None:
    found = flat(mapped(ROWS.replace("f32", dtype), M=32768, V=100000, N=n))
    assert (found.threads, found.turns, found.deal) == (threads, {"j": turns}, (("j", threads),))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ROWS, {"N": 128}),
        (ROWS, {}),
        (ROWS.replace("E[R[i], j]", "E[min(i, V - 1), j]"), {"N": 4096}),
        ("kernel k(R: i32[N], E: f32[N], Y: f32[N]) where N % 4 == 0 { par N j { Y[j] = E[R[j] % N] } }", {"N": 4096}),
    ],
)
def test_short_rows_and_what_gathers_none_have_one_turn(text: str, sizes: dict[str, int]) -> None:
    assert not flat(mapped(text, **({"M": 64, "V": 64} if "par M" in text else {}), **sizes)).turns


@pytest.mark.parametrize("turns", [{"k": 2}, {"j": 1}])
def test_turns_that_do_not_fit_are_refused(turns: dict[str, int]) -> None:
    with pytest.raises(TExprError, match="`turns` says how often, at least twice, a thread comes to any of i, j"):
        changed(ROWS, {**SIZES, "N": 512}, turns=turns)
