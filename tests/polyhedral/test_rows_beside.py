"""Rows beside one another: several rows of a band that one thread adds, and what it reads of all of them once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Parted
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Guard
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate

TIMES = "kernel k(A: f32[M, N], x: f32[N], y: f32[M]) { par M i { y[i] = sum N k { A[i, k] * x[k] } } }"
PICKED = """kernel k(A: f32[M, N], I: i64[M], V: f32[M]) {
    par M i { V[i] = 1.0; I[i] = -1; seq N k { if A[i, k] > V[i] { V[i] = A[i, k]; I[i] = k } } }
}"""
PROGRAMS = {
    "times": TIMES,
    "narrow": TIMES.replace("A: f32", "A: bf16").replace("x: f32", "x: bf16").replace("A[i, k] *", "f32(A[i, k]) *"),
    "shifted": TIMES.replace("x: f32[N]", "x: f32[N + 3]").replace("x[k]", "x[k + 3]"),
    "with a factor": TIMES.replace("k { A", "k { y[i] * A")
    .replace("y: f32[M])", "s: f32[M], y: f32[M])")
    .replace("y[i] * A", "s[i] * A"),
    "greatest and sum": """kernel k(A: f32[M, N], x: f32[N], S: f32[M], T: f32[M]) where N >= 1 {
        par M i { S[i] = sum N k { A[i, k] * x[k] }; T[i] = maximum N k { A[i, k] - x[k] } }
    }""",
    "picked": PICKED,
}


def of_rows(text: str, rows: int, m: int, **changes: Any) -> MappedProgram:
    """The program with so many rows in a thread, in blocks so small that a few of them share a row."""
    first = mapped(text, M=m, N=100003)
    candidate = first.candidate
    assert isinstance(candidate, Candidate)
    ((name, own),) = candidate.launches.items()
    assert isinstance(own, Parted | Blocks)
    width = 8 if "bf16" in text else 4
    loops = ("k", "k_1") if text.count(" N k ") > 1 else ("k",)
    parted = Parted(
        threads=64, grid=("i",), shared_out=loops, blocks=dict.fromkeys(loops, 2), ahead=1,
        widths=dict.fromkeys(loops, width), patch={"i": rows}, memory=own.memory,
    )  # fmt: skip
    return mapped(text, choices=replace(candidate, launches={name: replace(parted, **changes)}), M=m)


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
        assert isinstance(found, Parted) and (found.patch, found.threads, found.resident) == ({"i": 4}, 256, 4)
        assert found.blocks == {"k": 8}  # 65 fours of rows, 528 blocks
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
    program = mapped(TIMES, M=257, N=100003)
    shared = [name for name, buffer in program.buffers.items() if buffer.memory is Memory.SHARED]
    assert shared == ["y_parts"]
