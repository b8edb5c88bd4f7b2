"""Sums over several loops inside of a block: threads add what they have of all of them, and combine once."""

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import launches, located
from texpr.polyhedral.simulate.stage import simulate

GROUPS = """kernel k0(X: f32[M, D, N], G: f32[D], S: f32[M], Y: f32[M, D, N]) {
    par M i {
        new s: f32
        s = sum D d, N k { X[i, d, k] * G[d] }
        S[i] = s
        par N k { seq D d { Y[i, d, k] = X[i, d, k] - s } }
    }
}"""
TWO = """kernel k1(X: f32[M, D, N], G: f32[D], S: f32[M], Y: f32[M, N]) {
    par M i {
        new low: f32
        new all: f32
        low = 3.0
        all = 1.0
        seq D d { seq N k { low min= X[i, d, k] * G[d]; all += G[d] } }
        S[i] = low
        par N k { Y[i, k] = all }
    }
}"""
BETWEEN = """kernel k2(X: f32[M, D, N], S: f32[M, D], Y: f32[M, N]) {
    par M i {
        new all: f32
        all = 0.0
        seq D d {
            seq N k { all += X[i, d, k] }
            S[i, d] = all
        }
        par N k { Y[i, k] = all }
    }
}"""
TRIANGLE = """kernel k3(X: f32[M, D, N], S: f32[M], Y: f32[M, N]) where N >= D {
    par M i {
        new all: f32
        all = 0.0
        seq D d { seq N - d k { all += X[i, d, k] } }
        S[i] = all
        par N k { Y[i, k] = all }
    }
}"""
ORDERED = GROUPS.replace("k0", "k4").replace("sum D d, N k {", "sum D d, N k #ordered {")
SIZES = ({"M": 3, "D": 5, "N": 333}, {"M": 2, "D": 1, "N": 96}, {"M": 2, "D": 0, "N": 70}, {"M": 1, "D": 3, "N": 1})


def loops_around(program: MappedProgram) -> list[int]:
    """How many loops stand around each combination of what threads have."""
    *_, launch = launches(program.host)
    found = [place for place in located(launch.body) if isinstance(place.node, Reduce)]
    return [sum(isinstance(node, Loop) for node in place.around) for place in found]


@pytest.mark.parametrize(
    ("text", "around"), [(GROUPS, {0}), (TWO, {0}), (BETWEEN, {1}), (TRIANGLE, {1}), (ORDERED, set[int]())]
)
def test_threads_combine_after_the_outermost_loop_that_only_adds(text: str, around: set[int]) -> None:
    assert set(loops_around(mapped(text, M=64, D=8, N=1000))) == around


@pytest.fixture(scope="module")
def emitted() -> tuple[HostModule, list[tuple[Emitted, MappedProgram]]]:
    found = [(Emitted(program), program) for text in (GROUPS, TWO, TRIANGLE) for program in (mapped(text),)]
    return HostModule("\n".join(one.source for one, _ in found), werror=True), found


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_nested_sums_are_those_of_the_interpreter(
    emitted: tuple[HostModule, list[tuple[Emitted, MappedProgram]]], sizes: dict[str, int]
) -> None:
    module, programs = emitted
    for one, program in programs:
        if program.kernel.name == "k3" and sizes["N"] < sizes["D"]:
            continue  # its `where` excludes them
        given = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, given).outputs
        simulated = simulate(program, given, seed=3)
        assert one.run(module, given) is None
        for name, values in expected.items():
            np.testing.assert_array_equal(simulated[name], values, err_msg=name)
            np.testing.assert_array_equal(given[name], values, err_msg=name)
