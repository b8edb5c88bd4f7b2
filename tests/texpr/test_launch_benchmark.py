"""The benchmark of launches compares every way of calling a program with what the program says."""

from typing import Any

import numpy as np
import pytest
from launch_cost import PROGRAMS, WANTED, Call, Way

import texpr


def on_cpu(program: str) -> Way:
    compiled = texpr.parse(PROGRAMS[program]).only.compile("cpu")

    def bind(a: Any, b: Any, c: Any) -> Call:
        given = {"add": (a, b, c), "saxpy": (2.0, a, c), "twice": (a, c)}[program]
        return lambda: compiled(*given)

    return Way(program=program, bind=bind, new=np.array, back=np.asarray)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_known_results_are_those_of_the_programs(program: str) -> None:
    assert on_cpu(program).is_right()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_way_that_does_nothing_or_something_else_is_wrong(program: str) -> None:
    def fill(array: Any, value: Any) -> None:
        array[...] = value

    def way(write: Any) -> Way:
        return Way(program=program, bind=lambda a, b, c: lambda: write(a, c), new=np.array, back=np.asarray)

    assert way(lambda a, c: fill(c, WANTED[program])).is_right()
    assert not way(lambda a, c: None).is_right()
    assert not way(lambda a, c: fill(c[:-1], WANTED[program][:-1])).is_right()
    assert not way(lambda a, c: (fill(c, WANTED[program]), fill(a, 0))).is_right()
