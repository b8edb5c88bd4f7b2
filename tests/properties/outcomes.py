"""What comes of random programs, each mapped as it is drawn: simulated beside the interpreter, and counted."""

import collections
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate


def outcome_of(
    seed: int,
    program: Callable[[random.Random], str],
    mapped: Callable[[str, random.Random], MappedProgram | None],
    arguments: Callable[[MappedProgram, int], dict[str, Any]],
    *,
    orders: bool = False,
) -> str:
    """What comes of a drawn program, mapped as it is drawn, with arguments of its own."""
    draw = random.Random(seed)
    text = program(draw)
    found = mapped(text, draw)
    return "another form" if found is None else compared(found, text, arguments(found, seed), orders=orders)


def compared(found: MappedProgram, text: str, values: dict[str, Any], *, orders: bool = False) -> str:
    """`right`, or what is wrong by the interpreter, or by the check of orders where that is asked."""
    expected = interpret(found.kernel, {name: np.array(given) for name, given in values.items()}).outputs
    got = simulate(found, values)
    wrong = [
        n for n, v in expected.items() if not np.array_equal(got[n].astype(float), v.astype(float), equal_nan=True)
    ]
    wrong += [str(fault) for fault in faults(shortened(found), {})[:1]] if orders else []
    return f"wrong {', '.join(wrong)}: {text}" if wrong else "right"


def main(outcome: Callable[[int], str]) -> int:
    """The outcomes of the seeds that the command line says, counted; the exit status."""
    warnings.simplefilter("ignore")
    first, count = (int(argument) for argument in sys.argv[1:3])
    outcomes = collections.Counter[str]()
    for seed in range(first, first + count):
        said = outcome(seed)
        outcomes[said.split()[0]] += 1
        if said.startswith("wrong"):
            print(seed, said, flush=True)
    print(dict(outcomes))
    return 1 if outcomes["wrong"] else 0
