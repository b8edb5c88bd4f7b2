"""Random contractions (`contraction_programs.py`) on the simulator and on `cuda-host`, for sm_80 and for sm_90a.

    python tests/properties/contraction_run.py FIRST COUNT [--targets sm_80,sm_90a] [--backends simulate,cuda-host]

A program is mapped by a candidate that is drawn from all tiles that fit, often a small one, in blocks that stay for
several, also where the compiler would take no tensor cores for so little; or, of free sizes, by the compiler's cases.
Prints how often each form was drawn, and every program that a backend gets wrong.
`tests/gpu/build.py --contractions N` builds the same for a GPU.
"""

import argparse
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from math import prod
from typing import Any

from contraction_programs import contraction
from differential import Emitted, Reference, Tally, copied, judge, judge_batch, reference, special_arguments
from programs import Case

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.choose_contracted import shaped
from texpr.polyhedral.map.choose_piped import pipings
from texpr.polyhedral.map.choose_ringed import ringings
from texpr.polyhedral.map.contraction import contracted_nest, contractions
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.laid import lay, with_rows
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.map.product_boxes import are_units
from texpr.polyhedral.map.product_forms import product_of
from texpr.polyhedral.mapped.candidate import Candidate, Choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.moves import View
from texpr.polyhedral.schedule.draft import Draft
from texpr.polyhedral.schedule.stage import schedule
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

TRIES = 6  # candidates that are drawn until one fits the sizes
AGENTS = 1 << 15  # threads and copies that are simulated together: up to 8 GB
BATCH = 20  # programs of a translation unit
REFUSED = {"E0401", "E0402", "E0403"}


def in_tiles(problem: Problem, region: Region) -> Iterator[Any]:
    """Tiles of the FMA units."""
    for one in contractions(problem, contracted_nest(region)):
        yield from (usual for _, usual in shaped(problem, region, one))


FORMS = {pipings: 5, ringings: 3, in_tiles: 2}  # what draws candidates of a form, and how often it is asked first


def area(choice: Any) -> int:
    return prod(choice.tile.values())


def drawn(problem: Problem, region: Region, draw: random.Random) -> Any:
    """A choice for a launch, of any form that takes it; None where none does."""
    order = sorted(FORMS, key=lambda form: -(draw.random() ** (1 / FORMS[form])))
    for form in order:
        pool = sorted(form(problem, region), key=area)
        if pool:
            choice = draw.choice(pool[: -(-len(pool) // 3)] if draw.random() < 0.7 else pool)
            if "persistent" in {field.name for field in fields(choice)}:
                choice = replace(choice, persistent=choice.cluster * draw.choice((1, 2, 3)))
            return choice
    return None


def problems(kernel: texpr.Kernel, case: Case, target: str) -> Iterator[Problem]:
    """The program's problem, flat arrays seen with dimensions, and that with rows where tensor maps have them where a
    product's begin elsewhere."""
    proved = kernel.compile(target, types=case.types, sizes=case.sizes, stop_after="prove").build.result("prove")
    views = (d for d in schedule(proved).others if all(isinstance(move, View) for move in d.moves))
    seen = next(views, Draft(program=proved.program))
    own = Problems(keep_nothing(seen.proved(proved), seen.moves), parse_target(target), {})
    products = [product_of(own.wide, region) for region in own.wide.regions() if region.band is not None]
    found = [one for one in products if one is not None]
    arrays = {name for one in found for name in one.arrays if not are_units(own.wide, name) or name in one.turned}
    laid = arrays & with_rows(proved.program.kernel)
    if laid and case.seed % 4:
        yield replace(own, kept=lay(own.kept, laid)).wide
    yield own.wide


def candidates(kernel: texpr.Kernel, case: Case, target: str) -> Iterator[Choices | None]:
    """Candidates for the program, the last of which always fits: None, the compiler's own."""
    for problem in problems(kernel, case, target) if not case.dynamic else ():
        for number in range(TRIES):
            draw = random.Random(f"{case.seed} {number}")
            chosen = {r.name: drawn(problem, r, draw) for r in problem.regions() if r.band is not None}
            if any(chosen.values()):
                with suppress(TExprError):  # what is around has no room
                    first = choose(problem)
                    yield replace(first, launches=first.launches | {name: c for name, c in chosen.items() if c})
    yield None


def candidate_of(ref: Reference, case: Case, target: str) -> Choices | None:
    """The first candidate that fits the sizes."""
    for candidate in candidates(ref.kernel, case, target):
        try:
            if candidate:
                ref.compile(target, mapping=candidate, stop_after="map")
        except TExprError as refused:
            if not {d.code for d in refused.diagnostics} <= REFUSED:
                raise
        else:
            return candidate
    raise AssertionError("the last one is None")


def emitted(ref: Reference, case: Case, target: str) -> texpr.Compiled:
    """The program by a candidate drawn for it."""
    candidate = candidate_of(ref, case, target)
    return ref.compile(target, mapping=candidate) if candidate else ref.compile(target)


def forms(mapped: MappedProgram) -> Iterator[str]:
    """The forms of a mapping, with what they do."""
    candidate = mapped.candidate
    alone = (
        [candidate]
        if isinstance(candidate, Candidate)
        else [*(c.candidate for c in candidate.cases), candidate.otherwise]
    )
    if len(alone) > 1:
        yield "cases"
    for one in alone:
        yield from ["rows laid"] if one.laid else []
        yield from ["views"] if any(isinstance(move, View) for move in one.moves) else []
        for choice in one.launches.values():
            yield type(choice).__name__ + (" in clusters" if getattr(choice, "cluster", 1) > 1 else "")


def simulated(ref: Reference, made: texpr.Compiled, seed: int) -> Mapping[str, Any]:
    return simulate(made.mapping.program, copied(ref.values), seed=seed, sizes=ref.free, most=AGENTS)


def prepared(case: Case) -> Reference:
    kernel = texpr.parse(case.text, f"contraction_{case.seed}").only
    values = special_arguments(kernel, case.sizes, case.seed)
    return reference(kernel, case.sizes, values, dynamic=case.dynamic)


def renamed(case: Case) -> Case:
    """The case with a kernel of its own name, for texts of many."""
    return replace(case, text=case.text.replace("kernel g(", f"kernel g{case.seed}(", 1))


def run(seeds: Sequence[int], targets: list[str], backends: list[str], tally: Tally, found: Counter[str]) -> None:
    """The programs of the seeds for all targets on all backends; counts their forms."""
    for target in targets:
        ready = list[Emitted]()
        for case in map(renamed, map(contraction, seeds)):
            tally.counts["programs"] += 1
            try:
                ref = prepared(case)
                made = emitted(ref, case, f"cuda-host:{target}")
            except Exception:  # every program is legal: a refusal is a failure, too
                tally.fail(case, f"{target}: {traceback.format_exc()[-1500:]}")
                continue
            found.update(f"{target} {form}" for form in set(forms(made.mapping.program)))
            if "simulate" in backends:
                judge(case, f"simulate {target}", lambda r=ref, m=made, s=case.seed: simulated(r, m, s), ref, tally)
            ready.append((case, ref, made))
        if "cuda-host" in backends:
            judge_batch(ready, tally)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--targets", default="sm_80,sm_90a")
    parser.add_argument("--backends", default="simulate,cuda-host")
    parser.add_argument("--show", type=int, default=5, help="failures to print")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tally, found, last = Tally(), Counter[str](), options.first + options.count
    for start in range(options.first, last, BATCH):
        seeds = range(start, min(start + BATCH, last))
        run(seeds, options.targets.split(","), options.backends.split(","), tally, found)
    for failure in tally.failures[: options.show]:
        print(failure, "\n")
    print(dict(sorted(tally.counts.items())), dict(sorted(found.items())))
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
