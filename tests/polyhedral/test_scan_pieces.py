"""Scans on a CPU in pieces: every form of them beside the interpreter, mapped and compiled, and what is none."""

from typing import Any

import numpy as np
import pytest
from stages import mapped, program

import texpr
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.mapped.running import running_folds
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import every_node, launches
from texpr.polyhedral.simulate.stage import simulate

ROWS = """kernel k(X: {0}[P, R], Y: {0}[P, R], Z: {0}[P]) {{
    par P i {{
        new t: {0}
        t = {1}
        seq R j {{ {2} }}
        Z[i] = t
    }}
}}"""
FORMS = {
    "sum": ROWS.format("f32", "0.0", "t += X[i, j]; Y[i, j] = t"),
    "before": ROWS.format("f32", "0.0", "Y[i, j] = t; t += X[i, j]"),
    "both": ROWS.format("f32", "0.0", "let a = t; t += X[i, j]; Y[i, j] = t * 0.5 + a * X[i, j]"),
    "f64": ROWS.format("f64", "1.0", "t += X[i, j]; Y[i, j] = t"),
    "integers": ROWS.format("i32", "2000000000", "t += X[i, j] * X[i, j] * 9000000; Y[i, j] = t"),
    "words": ROWS.format("i64", "0", "t += X[i, j]; Y[i, j] = t"),
    "unsigned": ROWS.format("u32", "0", "t max= X[i, j]; Y[i, j] = t"),
    "product": ROWS.format("f32", "1.0", "t *= X[i, j] * 0.25; Y[i, j] = t"),
    "greatest": ROWS.format("f32", "-inf", "t max= X[i, j]; Y[i, j] = t"),
    "least": ROWS.format("i32", "99", "t min= X[i, j]; Y[i, j] = t"),
    "by data": ROWS.format("f32", "0.0", "if X[i, j] > 1.0 { t += X[i, j] }; Y[i, j] = t"),
    "by index": ROWS.format("f32", "0.0", "if j % 3 == 1 { t += X[i, j] }; Y[i, j] = t"),
    "turned": ROWS.format("f32", "0.0", "t += X[i, R - 1 - j]; Y[i, R - 1 - j] = t"),
    "in place": """kernel k(inout X: f32[P, R]) {
        par P i { new t: f32; t = 0.0; seq R j { t += X[i, j]; X[i, j] = t } }
    }""",
    "two": """kernel k(X: f32[P, R], Y: f32[P, R]) {
        par P i {
            new s: f32
            new m: f32
            s = 0.0
            m = -inf
            seq R j { s += X[i, j]; m max= X[i, j]; Y[i, j] = s + m }
        }
    }""",
    "an element": """kernel k(X: f32[P, R], Y: f32[P, R], Z: f32[P]) {
        par P i { Z[i] = 1.0; seq R j { Z[i] += X[i, j]; Y[i, j] = Z[i] } }
    }""",
    "one row": "kernel k(X: f32[R], Y: f32[R]) { new t: f32; t = 0.0; seq R j { t += X[j]; Y[j] = t } }",
}
OTHERS = {
    "in order": ROWS.format("f32", "0.0", "t += X[i, j]; Y[i, j] = t").replace("R j", "R j #ordered"),
    "by itself": ROWS.format("f32", "0.0", "t += X[i, j] * t; Y[i, j] = t"),
    "rounded each time": ROWS.format("bf16", "0.0", "t += X[i, j]; Y[i, j] = t"),
    "alone": ROWS.format("f32", "0.0", "t += X[i, j]").replace("Y: f32[P, R], ", ""),
    "few": ROWS.format("f32", "0.0", "t += X[i, j]; Y[i, j] = t").replace("R", "31"),
}
SIZES = (
    {"P": 3, "R": 5},
    {"P": 70, "R": 128},
    {"P": 2, "R": 300},
    {"P": 1, "R": 33},
    {"P": 2, "R": 4101},
    {"P": 0, "R": 9},
)


def own_sizes(text: str, sizes: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name in text.partition("{")[0][7:]}


def arrays(text: str, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(list(sizes.values()))
    found: dict[str, Any] = {}
    for buffer in program(text, **sizes).kernel.params:
        shape = tuple(extent.value for extent in buffer.shape)  # type: ignore[union-attr]  # sizes are bound
        found[buffer.name] = rng.integers(0, 9, shape).astype(
            buffer.dtype.name.replace("f", "float").replace("i", "int").replace("u", "uint")
        )
    return found


def folds(text: str, **sizes: int) -> int:
    """How many running folds a mapping has."""
    loops = (n for launch in launches(mapped(text, "cpu", **sizes).host) for n in every_node(launch.body))
    return sum(len(running_folds(loop.index, loop.body)) for loop in loops if isinstance(loop, Loop))


@pytest.mark.parametrize("name", FORMS)
def test_the_mapping_means_what_the_program_does(name: str) -> None:
    text = FORMS[name]
    for sizes in (own_sizes(text, each) for each in SIZES if each["R"] <= 300):
        given = arrays(text, sizes)
        wanted = interpret(program(text, **sizes).kernel, given).outputs
        found = simulate(mapped(text, "cpu", **sizes), given)
        for array, values in wanted.items():
            np.testing.assert_allclose(found[array], values, rtol=1e-5, err_msg=str(sizes))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FORMS)
def test_compiled_text_is_right_at_every_size(name: str) -> None:
    text = FORMS[name]
    free = texpr.parse(text).only.compile("cpu")
    assert "running_" in free.source
    for sizes in SIZES:
        right(free, text, own_sizes(text, sizes))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_text_compiled_for_a_size_is_right(sizes: dict[str, int], name: str) -> None:
    own = own_sizes(FORMS[name], sizes)
    right(texpr.parse(FORMS[name]).only.compile("cpu", sizes=own), FORMS[name], own)


def right(made: texpr.Compiled, text: str, sizes: dict[str, int]) -> None:
    given = arrays(text, sizes)
    wanted = interpret(program(text, **sizes).kernel, given).outputs
    made(**given)
    for array, values in wanted.items():
        np.testing.assert_allclose(given[array], values, rtol=1e-5, err_msg=str(sizes))


def test_what_hands_on_something_else_runs_in_its_order() -> None:
    assert {name: folds(text, P=70, R=300) for name, text in FORMS.items() if "P" in text.partition("{")[0]} == {
        name: 2 if name == "two" else 1 for name in FORMS if name != "one row"
    }
    assert {name: folds(text, P=70, **({} if name == "few" else {"R": 300})) for name, text in OTHERS.items()} == (
        dict.fromkeys(OTHERS, 0)
    )


def test_rows_that_run_in_their_order_advance_side_by_side() -> None:
    for name in ("in order", "by itself", "rounded each time"):
        (choice,) = mapped(OTHERS[name], "cpu", P=70, R=300).candidate.launches.values()
        assert isinstance(choice, Cores) and choice.chunk == 4
    (choice,) = mapped(FORMS["sum"], "cpu", P=70, R=300).candidate.launches.values()
    assert isinstance(choice, Cores) and choice.chunk is None


def test_special_values_come_where_the_loop_has_them() -> None:
    x = np.ones((1, 300), np.float32)
    x[0, 40], x[0, 200], x[0, 290] = np.inf, -np.inf, np.nan
    for name in ("sum", "greatest", "before"):
        given = {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(1, np.float32)}
        wanted = interpret(program(FORMS[name], P=1, R=300).kernel, given).outputs["Y"]
        texpr.parse(FORMS[name]).only.compile("cpu")(**given)
        np.testing.assert_array_equal(given["Y"], wanted)
    zero = {"X": np.full((1, 40), -0.0, np.float32), "Y": np.zeros((1, 40), np.float32), "Z": np.zeros(1, np.float32)}
    texpr.parse(FORMS["sum"].replace("t = 0.0", "t = -0.0")).only.compile("cpu")(**zero)
    assert np.all(np.signbit(zero["Y"]))
    zero["X"][:] = -1.0  # nothing is added
    texpr.parse(FORMS["by data"].replace("t = 0.0", "t = -0.0")).only.compile("cpu")(**zero)
    assert np.all(np.signbit(zero["Y"])) and np.all(zero["Y"] == 0.0)


def test_long_sums_are_carried_in_f64() -> None:
    made = texpr.parse(FORMS["sum"]).only.compile("cpu")
    found = made.sums(P=1, R=1 << 25)["t"]
    assert found.chain == 4  # the lanes of a vector add theirs in f32, in a tree
    assert texpr.parse(FORMS["f64"]).only.compile("cpu").sums(P=1, R=1 << 25)["t"].chain == 0
    given = {
        "X": np.ones((1, 1 << 25), np.float32),
        "Y": np.zeros((1, 1 << 25), np.float32),
        "Z": np.zeros(1, np.float32),
    }
    made(**given)
    assert given["Z"][0] == 1 << 25
