"""Products of which a triangle is wanted: its tiles alone are run, and nothing beside it is written."""

from dataclasses import replace

import numpy as np
import pytest
from stages import mapped, proved
from test_contracted import choice
from test_map_programs import arguments

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

LOWER = """kernel k(A: f32[M, K], inout C: f32[M, M]) {
    par M i, i + 1 j { C[i, j] = sum K k { A[i, k] * A[j, k] } }
}"""
STRICT = """kernel k(A: f32[K, M], B: f32[K, M], inout C: f32[M, M]) {
    par M i, i j { C[i, j] += sum K k { A[k, i] * B[k, j] } }
}"""
UPPER = """kernel k(A: f32[M, K], B: f32[2 * M, K], inout C: f32[M, M]) {
    par M i, M - i j { C[i, M - 1 - j] = sum K k { A[i, k] * B[2 * j, k] } }
}"""


@pytest.mark.parametrize("text", [LOWER, STRICT, UPPER])
@pytest.mark.parametrize("sizes", [{"M": 130, "K": 17}, {"M": 192, "K": 16}])
def test_the_tiles_of_a_triangle_compute_the_same_and_write_nothing_else(text: str, sizes: dict[str, int]) -> None:
    program = mapped(text, **sizes)
    assert choice(program) is not None
    arrays = arguments(program.kernel, {})
    expected = interpret(program.kernel, arrays).outputs["C"]
    np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)


@pytest.mark.parametrize("m", [0, 1, 131])
def test_triangles_of_free_sizes_compute_the_same(m: int) -> None:
    program = mapped(LOWER)
    assert choice(program) is not None
    arrays = arguments(program.kernel, {"M": m, "K": 18})
    expected = interpret(program.kernel, arrays, sizes={"M": m, "K": 18}).outputs["C"]
    np.testing.assert_array_equal(simulate(program, arrays, sizes={"M": m, "K": 18})["C"], expected)


def test_tiles_that_do_not_meet_the_triangle_do_nothing() -> None:
    program = mapped(LOWER, M=1024, K=1024)
    assert "if (i_tile + 64 - j_tile > 0) {" in emit_cuda(plan(program), program.target).source


def test_what_only_the_triangle_may_read_is_no_factor_of_a_box() -> None:
    reaching = LOWER.replace("i + 1 j", "i j").replace("A[i, k] *", "A[i - 1, k] *")
    assert choice(mapped(reaching, M=1024, K=1024)) is None


def test_blocks_share_no_tile_of_a_triangle() -> None:
    found = choice(mapped(LOWER, M=256, K=1024))
    assert found is not None and found.parts == 1
    shared = Candidate(launches={"k_0": replace(found, parts=2)})
    with pytest.raises(TExprError, match="`parts`: blocks share no tiles of which some have no element") as refused:
        map_program(proved(LOWER, M=256, K=1024), parse_target("cuda:sm_90a"), choices=shared)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]
