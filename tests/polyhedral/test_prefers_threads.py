"""Bands with inner loops across memory: a thread for each iteration where lanes along the band read neighbours."""

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Columns, Flat, Parted
from texpr.polyhedral.simulate.stage import simulate

CHANNELS = """kernel k0(X: f32[B, C, H, W], Y: f32[B, C, H, W]) where C >= 1 {
    par B b, H h, W w {
        new total: f32
        total = sum C c { X[b, c, h, w] * X[b, c, h, w] }
        par C c { Y[b, c, h, w] = X[b, c, h, w] - total }
    }
}"""
ONE_LOOP = CHANNELS.replace("k0", "k1").replace("par C c { Y", "seq C c { Y")
ALONG = """kernel k2(X: f32[B, H, C], Y: f32[B, H, C]) where C >= 1 {
    par B b, H h {
        new total: f32
        total = sum C c { X[b, h, c] }
        par C c { Y[b, h, c] = X[b, h, c] - total }
    }
}"""
ARRAY = """kernel k3(X: f32[B, C, H], Y: f32[B, C, H]) where C >= 1 {
    par B b, H h {
        new row: f32[C]
        par C c { row[c] = X[b, c, h] }
        par C c { Y[b, c, h] = row[C - 1 - c] }
    }
}"""
ASKED = CHANNELS.replace("k0", "k4").replace("par C c", "par C c #block")
SHORT = """kernel k5(X: f32[C, P], Y: f32[4, P]) {
    par P p {
        new total: f32
        total = sum C c { X[c, p] }
        seq 4 k { Y[k, p] = total }
    }
}"""
MANY = {"B": 32, "C": 256, "H": 128, "W": 128}
ROWS = {"B": 512, "C": 256, "H": 1024}


def choice(text: str, **sizes: int) -> Choice:
    """The choice of the only launch."""
    (found,) = mapped(text, **sizes).candidate.launches.values()
    return found


@pytest.mark.parametrize(
    ("text", "sizes", "form"),
    [
        (CHANNELS, MANY, Columns),
        (CHANNELS, {"B": 4, "C": 72, "H": 32, "W": 32}, Columns),
        (CHANNELS, MANY | {"C": 40000}, Flat),
        (ONE_LOOP, MANY, Flat),
        (CHANNELS, MANY | {"B": 1, "H": 4, "W": 4}, Blocks),
        (SHORT, {"C": 4096, "P": 131072}, Parted),
        (SHORT, {"C": 32, "P": 131072}, Flat),
        (ALONG, ROWS, Blocks),
        (ARRAY, ROWS, Blocks),
        (ASKED, MANY, Blocks),
    ],
    ids=[
        "channels",
        "channels of few pixels",
        "channels that no team holds",
        "one loop",
        "too few",
        "a short loop behind",
        "a long one",
        "along rows",
        "an array",
        "asked for a block",
    ],
)
def test_threads_take_whole_iterations_where_these_lie_across_memory(
    text: str, sizes: dict[str, int], form: type
) -> None:
    assert isinstance(choice(text, **sizes), form)


def test_a_thread_s_loops_compute_what_the_interpreter_computes() -> None:
    sizes = {"B": 2, "C": 3, "H": 5, "W": 7}
    for text in (CHANNELS, ONE_LOOP):
        assert isinstance(choice(text), Flat)
        program = mapped(text)
        given = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, given).outputs["Y"]
        np.testing.assert_array_equal(simulate(program, given)["Y"], expected)
        emitted = Emitted(program)
        assert emitted.run(HostModule(emitted.source, werror=True), given) is None
        np.testing.assert_array_equal(given["Y"], expected)
