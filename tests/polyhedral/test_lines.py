"""Runs that are counted from a line of memory, and reads at any address: which there are, and that they are right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Lead
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

JACOBI = """kernel k(A: f32[M, N], B: f32[M, N]) where M >= 2, N >= 2 {
    par 1..M-1 i, 1..N-1 j { B[i, j] = A[i, j] + A[i-1, j] + A[i+1, j] + A[i, j-1] + A[i, j+1] }
}"""
BIASED = "kernel k(A: bf16[M, N], w: bf16[N], B: bf16[M, N]) { par M i, N j { B[i, j] = A[i, j] * w[j] } }"
UPDATED = "kernel k(A: f32[M, N], w: f32[N], B: f32[M, N]) { par M i, N j { B[i, j] += A[i, j] * w[j] } }"
SHIFTED = "kernel k(A: f32[N], B: f32[N + 3]) { par N i { B[i + 3] = A[i] } }"
OFFSET = "kernel k(A: f32[N + 1], B: f32[N]) { par N i { B[i] = A[i + 1] } }"
LOOK_UP = "kernel k(T: f32[V, N], at: i32[M], B: f32[M, N]) { par M i, N j { B[i, j] = T[at[i], j] } }"
SAME = (
    (JACOBI, {"M": 5, "N": 70}),
    (JACOBI, {"M": 4, "N": 164}),
    (JACOBI, {"M": 3, "N": 2}),
    (JACOBI, {"M": 5, "N": 128}),
    (JACOBI, {"M": 4, "N": 160}),
    (BIASED, {"M": 3, "N": 261}),
    (UPDATED, {"M": 4, "N": 133}),
    (SHIFTED, {"N": 133}),
    (SHIFTED, {"N": 0}),
    (OFFSET, {"N": 131}),
    (LOOK_UP, {"V": 5, "M": 7, "N": 129}),
)


def only(program: MappedProgram) -> Flat:
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


@pytest.mark.parametrize(
    ("text", "widths", "lines"),
    [
        (JACOBI, {"j": 4}, {"j": "B[i + 1, j + 1]"}),
        (BIASED, {"j": 8}, {"j": "B[i, j]"}),
        (UPDATED, {"j": 4}, {"j": "B[i, j]"}),
        (SHIFTED, {"i": 4}, {"i": "B[i + 3]"}),
        (OFFSET, {"i": 4}, {}),
        (LOOK_UP, {"j": 4}, {"j": "B[i, j]"}),
        ("kernel k(A: f32[N], B: f32[N + 3]) { par N i #vector(2) { B[i + 2] = A[i] } }", {"i": 2}, {}),
        ("kernel k(A: f32[N], B: f32[2 * N + 1]) { par N i { B[2 * i + 1] = A[i] } }", {}, {}),
        ("kernel k(A: f32[N + 1], B: f32[N], C: f32[N + 1]) { par N i { B[i] = A[i]; C[i + 1] = A[i] } }", {}, {}),
    ],
)
def test_runs_are_counted_from_what_is_written(text: str, widths: dict[str, int], lines: dict[str, str]) -> None:
    found = only(mapped(text))
    assert (found.widths, found.lines) == (widths, lines)


@pytest.mark.parametrize(
    ("text", "sizes", "bytes", "blocks"),
    [
        (JACOBI, {"M": 4096, "N": 1024}, 16, 1024),  # 1022 iterations, and one before them: eight warps, 4 rows a block
        (JACOBI, {"M": 4096, "N": 1280}, 16, 5),  # two warps of 128
        (JACOBI, {"M": 4096, "N": 1025}, 128, 9),  # 1023, and 31 at most
        (JACOBI, {"M": 4096, "N": 1032}, 128, 9),
    ],
)
def test_rows_that_lie_alike_in_lines_are_counted_from_chunks(
    text: str, sizes: dict[str, int], bytes: int, blocks: int
) -> None:
    launch = only_launch(mapped(text, **sizes))
    (lead,) = of_kind(launch.body, Lead)
    assert (lead.bytes, constant_value(launch.grid[0])) == (bytes, blocks)


def given(program: MappedProgram, sizes: dict[str, int]) -> dict[str, Any]:
    values = arguments(program.kernel, sizes)
    return {name: abs(value) if name == "at" else value for name, value in values.items()}


def test_they_compute_what_the_interpreter_computes() -> None:
    made = []
    for text, sizes in SAME:
        for bound in (sizes, {}):
            program = mapped(text.replace("kernel k", f"kernel k{len(made)}"), **bound)
            made.append((Emitted(program), program, sizes))
    module = HostModule("\n".join(one.source for one, _, _ in made), werror=True)
    for seed, (one, program, sizes) in enumerate(made):
        arrays = given(program, sizes)
        expected = interpret(program.kernel, arrays).outputs["B"]
        np.testing.assert_array_equal(simulate(program, arrays, seed=seed)["B"], expected)
        assert one.run(module, arrays) is None
        np.testing.assert_array_equal(arrays["B"], expected)


def test_lines_of_what_is_not_written_are_refused() -> None:
    program = mapped(JACOBI)
    wrong = Candidate(launches={"k_0": replace(only(program), lines={"j": "A[i, j + 1]"})})
    with pytest.raises(
        TExprError, match=r"`lines`: runs of j are counted from B\[i \+ 1, j \+ 1\], not from A"
    ) as found:
        map_program(proved(JACOBI), parse_target("cuda:sm_90a"), choices=wrong)
    assert [d.code for d in found.value.diagnostics] == ["E0401"]
