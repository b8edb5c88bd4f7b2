"""Filters of convolutions: a launch of their own turns them so that blocks read neighbours at once."""

import numpy as np
import pytest
from stages import mapped

from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate

CONVOLUTIONS = {
    "plain": "X[n, c, y + r, z + s] * F[o, c, r, s]",
    "padded": "select(y + r >= 1 and y + r < 9 and z + s >= 1, X[n, c, y + r - 1, z + s - 1], 0.0) * F[o, c, r, s]",
    "transposed": "select(y >= r and z >= s, X[n, c, y - r, z - s], 0.0) * F[c, o, r, s]",
    "filters read twice": "X[n, c, y + r, z + s] * F[o, c, r, s] + 0.0 * F[o, c, r, s]",
    "of another index": "X[n, c, y + r, z + s] * F[63 - o, c, r, s]",
}
CONVOLUTION = """kernel k(X: f32[4, 16, 12, 12], F: f32[{f}, 3, 3], Y: f32[4, 64, 8, 8]) {{
    par 4 n, 64 o, 8 y, 8 z {{ Y[n, o, y, z] = sum 16 c, 3 r, 3 s {{ {product} }} }}
}}"""


@pytest.mark.parametrize(("kind", "laid"), [(k, "F" * (k in ("plain", "padded", "transposed"))) for k in CONVOLUTIONS])
def test_filters_lie_as_blocks_read_them(kind: str, laid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("texpr.polyhedral.map.laid.LEAST_TURNED", 1)
    monkeypatch.setattr("texpr.polyhedral.map.laid.USES", 1)
    filters = "16, 64" if kind == "transposed" else "64, 16"
    program = mapped(CONVOLUTION.format(f=filters, product=CONVOLUTIONS[kind]))
    assert isinstance(program.candidate, Candidate)
    assert program.candidate.laid == frozenset(laid)
    if laid:
        assert ("strides (576, 1, " if kind == "transposed" else "strides (1, 576, 192, 64)") in show(program)
    random = np.random.default_rng(4)
    shapes = {b.name: tuple(constant_value(n) or 0 for n in b.shape) for b in program.kernel.params}
    values = {name: random.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    np.testing.assert_array_equal(simulate(program, values)["Y"], interpret(program.kernel, values).outputs["Y"])


def test_few_products_are_not_worth_a_launch_before_them() -> None:
    program = mapped(CONVOLUTION.format(f="64, 16", product=CONVOLUTIONS["plain"]))
    assert isinstance(program.candidate, Candidate)
    assert not program.candidate.laid
