"""Random programs under moves forced at random: what is legal gives the interpreter's result, bit by bit where the
program settles the order (a sum over a `par` has none).

    python tests/properties/forced_moves.py FIRST COUNT

The programs have gathers, atomics, conditions on data, mixed types and triangles (`programs.py`), which the enumeration
of `tests/polyhedral/schedule_oracle.py` does not know. A legal move must pass the check of schedules, or the check must
say that it cannot tell; a scheduled program is proved again. Prints counts by kind of move, and what is wrong.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "polyhedral"))

import numpy as np
from differential import random_arguments
from programs import generate
from schedule_oracle import computed, moves

import texpr
from texpr.grammar.ast import Kernel
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import Program
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.computed import check_schedule
from texpr.polyhedral.schedule.legal import violation

ORDERS = range(3, 10)  # in which the iterations of a program run that tell what it does not settle
MORE_ORDERS = range(10, 110)  # that are asked where something is unlike
FIT = {"E0404", "E0306", "E0307", "E0308"}


def program_of(seed: int) -> tuple[Program, dict[str, int]] | None:
    """The program of a seed with its sizes bound, where it is legal."""
    case = generate(seed, bend=0.0)
    try:
        program = build_program(texpr.parse(case.text).only.core(sizes=case.sizes, types=case.types))
        prove(program)
    except TExprError:
        return None
    return program, case.sizes


def results(kernel: Kernel, arrays: dict[str, Any], sizes: dict[str, int], seed: int) -> dict[str, Any]:
    """What a kernel writes, the iterations of its `par`s in the order of a seed."""
    given = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arrays.items()}
    return dict(interpret(kernel, given, mode="exact", sizes=sizes, seed=seed).outputs)


def unsettled(kernel: Kernel, arrays: dict[str, Any], sizes: dict[str, int], seen: dict[str, bytes]) -> bool:
    """Whether the program itself gives something else in some of many more orders: few atomic additions to an element
    are seldom unlike."""
    others = (results(kernel, arrays, sizes, order) for order in MORE_ORDERS)
    return any(other[name].tobytes() != value for other in others for name, value in seen.items())


def force(seed: int, tries: int, counts: Counter[str]) -> list[str]:
    """Tries so many moves on the program of a seed; what went wrong."""
    found, wrong = program_of(seed), list[str]()
    if found is None:
        return wrong
    chance, (program, sizes) = random.Random(seed), found
    possible = [*moves(program.kernel), *computed(program.kernel)]
    arrays = random_arguments(program.kernel, sizes, seed)
    want = results(program.kernel, arrays, sizes, 0)
    others = [results(program.kernel, arrays, sizes, order) for order in ORDERS]
    settled = {
        name: value.tobytes()
        for name, value in want.items()
        if all(value.tobytes() == other[name].tobytes() for other in others)
    }
    for move in chance.sample(possible, min(tries, len(possible))):
        before = build_program(program.kernel)
        try:
            step = moved(before, move)
            after = build_program(step.kernel, beside=before)
            rule = violation(before, move)
            fault = check_schedule(before, after, step.origins)
        except TExprError as refused:
            if not {d.code for d in refused.diagnostics} <= FIT:
                wrong.append(f"{seed}: {move}: {refused}")
            counts["does not fit"] += 1
            continue
        counts[f"{type(move).__name__} {'legal' if rule is None else 'illegal'}"] += 1
        if rule is not None and fault is None:
            wrong.append(f"{seed}: {move}: the check finds nothing where the rule does")
        if rule is None and fault is not None:
            counts[f"not told: {fault.why.split(' ', 1)[-1]}"] += 1
        if rule is None:
            prove(build_program(step.kernel))
            got = results(step.kernel, arrays, sizes, 2)
            unlike = [name for name, value in settled.items() if got[name].tobytes() != value]
            if unlike and not unsettled(program.kernel, arrays, sizes, {name: settled[name] for name in unlike}):
                wrong.append(f"{seed}: {move}: other results")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(asked.first, asked.first + asked.count):
        for line in force(seed, 12, counts):
            print(line)
    print(dict(counts))


if __name__ == "__main__":
    main()
