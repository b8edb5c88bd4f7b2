"""What else a mapping could choose: for each of its launches the choices that differ from it in one place, by price.

    matmul_0   as it is: blocks of 256 threads   61 us       best of 74 others: threads 128   64 us

Of a mapping of several cases every case's launches are looked at, each in the problem that its case solves. A choice
whose memory has no room is found when it is built, not here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from texpr.grammar.ast import Condition
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.cost import LaunchCost, launch_cost
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.roofline import Terms, terms
from texpr.polyhedral.map.space import neighbours
from texpr.polyhedral.map.stage import CaseProblem, problems_of
from texpr.polyhedral.mapped.candidate import Candidate, Cases, Choice, Choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.program import ProvedProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A choice for one launch with what one run of it costs, and the choices of the whole mapping with it."""

    choice: Choice
    paid: LaunchCost
    terms: Terms
    choices: Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAlternatives:
    """A launch by its name in the mapping, as it is and as it could be, the least price first. `when`: the calls that
    run it, None for all, or for those of no other case; `case` is the number of its case, None where there is one."""

    launch: str
    case: int | None
    when: Condition | None
    own: Priced
    others: tuple[Priced, ...]


def alternatives(proved: ProvedProgram, mapped: MappedProgram) -> tuple[LaunchAlternatives, ...]:
    """Those of every launch of every case, in text order."""
    whole = mapped.candidate
    found: list[LaunchAlternatives] = []
    for number, one in enumerate(problems_of(proved, mapped)):
        case = number if isinstance(whole, Cases) else None
        for region in one.problem.regions():
            own = _priced(one, region, one.candidate.launches[region.name], whole, case)
            others = sorted(_others(one, region, whole, case), key=_price)
            name = region.name if case is None else f"{region.name}_case{case}"
            found.append(LaunchAlternatives(launch=name, case=case, when=one.when, own=own, others=tuple(others)))
    return tuple(found)


def _others(one: CaseProblem, region: Region, whole: Choices, case: int | None) -> Iterator[Priced]:
    for choice in neighbours(one.problem, region, one.candidate.launches[region.name]):
        yield _priced(one, region, choice, whole, case)


def _priced(one: CaseProblem, region: Region, choice: Choice, whole: Choices, case: int | None) -> Priced:
    paid = launch_cost(one.problem, region, choice)
    candidate = with_choice(one.candidate, region.name, choice)
    choices = candidate if case is None else _with_case(whole, case, candidate)
    return Priced(choice=choice, paid=paid, terms=terms(one.problem, region, paid), choices=choices)


def with_choice(candidate: Candidate, launch: str, choice: Choice) -> Candidate:
    """The candidate with another choice for one of its launches."""
    return replace(candidate, launches={**candidate.launches, launch: choice})


def with_choices(whole: Choices, picked: Sequence[tuple[LaunchAlternatives, Priced]]) -> Choices:
    """The choices of a mapping with others for some of its launches."""
    for one, other in picked:
        if one.case is None:
            assert isinstance(whole, Candidate), "there are no cases"
            whole = with_choice(whole, one.launch, other.choice)
        else:
            assert isinstance(whole, Cases), "a case is one of several"
            own = whole.otherwise if one.case == len(whole.cases) else whole.cases[one.case].candidate
            launch = one.launch.removesuffix(f"_case{one.case}")
            whole = _with_case(whole, one.case, with_choice(own, launch, other.choice))
    return whole


def _with_case(whole: Choices, case: int, candidate: Candidate) -> Cases:
    assert isinstance(whole, Cases), "a case is one of several"
    if case == len(whole.cases):
        return replace(whole, otherwise=candidate)
    own = replace(whole.cases[case], candidate=candidate)
    return replace(whole, cases=(*whole.cases[:case], own, *whole.cases[case + 1 :]))


def _price(one: Priced) -> tuple[int, int, int, float]:
    return (one.terms.total, one.paid.sectors, one.paid.waves, one.paid.idle)
