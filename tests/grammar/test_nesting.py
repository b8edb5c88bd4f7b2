"""Programs as deep as the limits let through are interpreted and modelled within Python's own recursion limit."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checked import core

from texpr.grammar.ast import Kernel
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.model.stage import build_program

CALLER = 250  # frames of whoever calls the compiler
ROOM = 1000  # Python's default

DEEP = {
    "calls": "exp(" * 118 + "A[i]" + ")" * 118,
    "signs": "- " * 126 + "A[i]",
    "sum": " + ".join(["A[i]"] * 120),
    "casts": "f32(i32(" * 50 + "A[i]" + "))" * 50,
    "choices": "select(A[i] > 1.0, 2.0, " * 100 + "A[i]" + ")" * 100,
    "gathers": "f32(" + "X[" * 60 + "i" + "]" * 60 + ")",
    "index": "A[" + "min(" * 50 + "i" + ", N - 1)" * 50 + "]",
}


def within(frames: int, run: Callable[[], Any]) -> Any:
    """What `run` gives when so many frames are in use already."""
    return run() if frames == 0 else within(frames - 1, run)


def nested(value: str, blocks: int) -> Kernel:
    """A statement inside so many blocks."""
    text = f"kernel f(A: f32[N], X: i32[N], C: f32[N]) {{ par N i {{ {'if A[i] < 9.0 { ' * blocks}C[i] = {value}"
    return core(text + " }" * (blocks + 2))[0]


@pytest.fixture(autouse=True)
def default_limit() -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(ROOM)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("name", DEEP)
def test_deep_programs_run_in_the_frames_that_a_caller_leaves(name: str) -> None:
    kernel = nested(DEEP[name], 55)
    arrays = {"A": np.ones(2, np.float32), "X": np.zeros(2, np.int32), "C": np.zeros(2, np.float32)}
    with np.errstate(all="ignore"):
        for mode in ("fast", "exact"):
            within(CALLER, lambda mode=mode: interpret(kernel, arrays, mode=mode))
    within(CALLER, lambda: build_program(kernel))
