"""Products with a short side run in narrow tiles, and compute what the program says."""

from dataclasses import replace

import numpy as np
import pytest
from stages import mapped, proved
from test_contracted import CASES, SEED, choice, typed
from test_map_programs import arguments

from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.choose_contracted import shaped
from texpr.polyhedral.map.contraction import contracted_nest, contractions
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.simulate.stage import simulate


@pytest.mark.parametrize(("m", "n", "count"), [(4, 300, 1), (7, 131, 2), (10, 260, 2), (33, 70, 2)])
@pytest.mark.parametrize(("left", "a"), CASES[0])
def test_narrow_tiles_of_short_sides_compute_the_same(m: int, n: int, count: int, left: str, a: str) -> None:
    text = typed("f32", "f32", f"{a} * B[k, j]", left=left)
    for sizes in ({"M": m, "N": n, "K": 37}, {"M": n, "N": m, "K": 32}):
        problem = problem_of(proved(text, **sizes), mapped(text, **sizes))
        (region,) = problem.regions()
        (one,) = contractions(problem, contracted_nest(region))
        every = list(shaped(problem, region, one))
        assert len(every) == 4
        for number, (shape, narrow) in enumerate(every):
            assert min(shape.tile) <= 32 and min(narrow.tile, key=lambda side: narrow.tile[side]) == (
                "i" if sizes["M"] < sizes["N"] else "j"
            )
            if number % 4 != (m + count) % 4:
                continue
            chosen = Candidate(launches={"k_0": replace(narrow, parts=count)})
            program = mapped(text, choices=chosen, **sizes)
            arrays = arguments(program.kernel, sizes)
            expected = interpret(program.kernel, arrays).outputs["C"]
            np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)


def test_a_short_side_has_narrow_tiles_where_memory_has_much_to_bring() -> None:
    for m, high in ((17, 32), (48, 32)):
        found = choice(mapped(SEED, M=m, N=4096, K=4096))
        assert found is not None and found.tile["i"] == high and found.parts > 8
    assert choice(mapped(SEED, M=16, N=512, K=64)) is None
    for few in (3, 4, 16):  # rows that are added beside one another
        assert choice(mapped(SEED, M=few, N=4096, K=4096)) is None
    assert choice(mapped(SEED.replace("f32", "f64"), M=16, N=4096, K=4096)) is None
