"""What a thread reads alike in each of its turns is in its registers before the first one."""

from dataclasses import replace

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped
from test_map_programs import arguments

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

DEPTHWISE = """kernel k(X: f32[N, C, H + 2, W + 2], F: f32[C, 3, 3], Y: f32[N, C, H, W]) {
    par N n, C c, H h, W w { Y[n, c, h, w] = sum 3 r, 3 s { X[n, c, h + r, w + s] * F[c, r, s] } }
}"""
PADDED = DEPTHWISE.replace("H + 2, W + 2", "H, W").replace(
    "X[n, c, h + r, w + s]",
    "select(h + r >= 1 and h + r < H + 1 and w + s >= 1 and w + s < W + 1, X[n, c, h + r - 1, w + s - 1], 0.0)",
)
SMALL = {"N": 2, "C": 3, "H": 9, "W": 33}


def flat(program: MappedProgram) -> Flat:
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


def in_turns(text: str, index: str = "h", **sizes: int) -> MappedProgram:
    """With warps of w, two of them, and three turns of an index."""
    found = mapped(text, **sizes)
    (name,) = found.candidate.launches
    chosen = replace(flat(found), threads=64, deal=(("w", 32), ("h", 2)), turns={index: 3}, widths={}, patch={})
    return mapped(text, choices=Candidate(launches={name: chosen}), **sizes)


def cuda(program: MappedProgram) -> str:
    return emit_cuda(plan(program), program.target).source


@pytest.mark.parametrize("text", [DEPTHWISE, PADDED])
def test_a_depthwise_convolution_has_its_weights_in_registers(text: str) -> None:
    program = mapped(text, N=32, C=144, H=56, W=56)
    assert flat(program).turns == {"h": 7}
    assert cuda(program).count(" F(c, ") == 1 and "tx::Reg<tx::f32, 9> F_table" in cuda(program)


@pytest.mark.gxx
def test_turns_that_read_a_table_compute_the_same() -> None:
    programs = [in_turns(text.replace(" k(", f" k{n}(", 1), **SMALL) for n, text in enumerate((DEPTHWISE, PADDED))]
    module = HostModule("\n".join(Emitted(program).source for program in programs), werror=True)
    for program in programs:
        arrays = arguments(program.kernel, {})
        expected = interpret(program.kernel, {n: a.copy() for n, a in arrays.items()}).outputs["Y"]
        np.testing.assert_array_equal(simulate(program, arrays)["Y"], expected)
        assert Emitted(program).run(module, arrays) is None
        np.testing.assert_array_equal(arrays["Y"], expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F[c, r, s]", "F[c, r, s + 0 * h]"),  # the same in each turn: a table
        ("F[c, r, s]", "F[(c + h) % C, r, s]"),  # another one in each turn
        ("F[c, r, s]", "F[(c + w) % C, r, s]"),  # of columns that some threads have not
        ("* F[c, r, s]", "* select(h > 3, F[c, r, s], 1.0)"),  # of some turns only
        ("C c, H h", "C c, c + 1 h"),  # of rows that some iterations of c may not have
    ],
)
def test_only_what_every_turn_surely_reads_alike_is_a_table(before: str, after: str) -> None:
    program = in_turns(DEPTHWISE.replace(before, after), **SMALL)
    assert ("F_table" in cuda(program)) == (" + 0 * h" in after)
    arrays = arguments(program.kernel, {})
    if "c + 1 h" not in after:
        expected = interpret(program.kernel, arrays).outputs["Y"]
        np.testing.assert_array_equal(simulate(program, arrays)["Y"], expected)
