"""Turns: rows that data tells are brought by several accesses of each thread, which are on their way together."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Guard
from texpr.polyhedral.mapped.walks import of_kind
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


def arguments(n: int, dtype: str = "f32") -> dict[str, Any]:
    random, kind = np.random.default_rng(n), {"f32": np.float32, "f16": np.float16}[dtype]
    table = random.integers(-9, 10, (SIZES["V"], n)).astype(kind)
    rows = random.integers(0, SIZES["V"], SIZES["M"]).astype(np.int32)
    return {"R": rows, "E": table, "Y": np.zeros((SIZES["M"], n), kind)}


def few(n: int, dtype: str = "f32") -> MappedProgram:
    """Two turns of a warp: 256 elements, or 512 of f16, so that longer rows have several blocks."""
    return changed(ROWS.replace("f32", dtype), {**SIZES, "N": n}, threads=32, deal=(("j", 32),), turns={"j": 2})


@pytest.mark.parametrize("n", [512, 540, 637, 1291])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_every_element_of_a_row_has_one_turn(dtype: str, n: int) -> None:
    program, values = few(n, dtype), arguments(n, dtype)
    expected = interpret(program.kernel, values).outputs
    np.testing.assert_array_equal(simulate(program, values)["Y"], expected["Y"])


@pytest.mark.gxx
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_the_text_of_turns_is_right_on_the_cpu(dtype: str) -> None:
    for n in (512, 637, 1291):
        emitted, values = Emitted(few(n, dtype)), arguments(n, dtype)
        assert emitted.run(HostModule(emitted.source, werror=True), values) is None
        np.testing.assert_array_equal(values["Y"], values["E"][values["R"]])


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_loads_of_all_turns_come_first_where_rows_begin_anywhere(dtype: str) -> None:
    def first(n: int) -> bool:
        loads = [copy for copy in of_kind(only_launch(few(n, dtype)).body, Copy) if copy.target.buffer == "E_run"]
        return all(len(copy.over) == 2 for copy in loads)

    assert first(637)
    assert not first(512)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_block_asks_once_whether_a_row_has_all_that_it_brings(dtype: str) -> None:
    guards = of_kind(only_launch(few(1291, dtype)).body, Guard)
    (asked,) = (guard for guard in guards if any(isinstance(node, Copy) for node in guard.body))
    (whole,), (part,) = asked.body, asked.orelse
    assert isinstance(whole, Copy) and isinstance(part, Copy)
    assert whole.within is None and part.within is not None
    assert (whole.source, whole.target, whole.over) == (part.source, part.target, part.over)


@pytest.mark.parametrize(
    ("dtype", "n", "threads", "turns"),
    [
        ("f32", 4096, 128, 2),
        ("bf16", 1024, 64, 2),
        ("f32", 4093, 96, 2),
        ("bf16", 4093, 96, 2),
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
