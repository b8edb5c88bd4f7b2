"""The map stage: a proved program on a target, as launches of threads.

    par M i, N j { C[i, j] = A[i, j] }     cuda   j = 256*j_block + 32*j_warp + j_lane, i = i_block

Input: a `ProvedProgram`, a `Target`, and representative values of free sizes. Output: a `MappedProgram` that runs
every iteration of every statement exactly once, with the same result. Choose, then build: `choose` gives a candidate,
`build` makes its program; a candidate of the caller's own takes the place of the first one once `check_candidate` found
that it fits, and so do several, each for its case: their programs are joined. Errors: E0401 to E0404, E0502.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from texpr.grammar.ast import Condition, Role
from texpr.grammar.diagnostics import InternalError, TExprError, fail
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.build import build
from texpr.polyhedral.map.centred import centre, to_centre
from texpr.polyhedral.map.chains import left_in_memory, rounded_in_memory
from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.choose_cases import CallCase, row_cases
from texpr.polyhedral.map.choose_jammed import holds_pairs, worth_jamming
from texpr.polyhedral.map.hardware_attributes import check_attributes
from texpr.polyhedral.map.kept import Kept, keep, keep_nothing
from texpr.polyhedral.map.laid import lay, to_lay, to_turn, with_rows
from texpr.polyhedral.map.narrow_sums import narrow_updates
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.map.product_cases import bounded_sizes, product_cases
from texpr.polyhedral.map.rows_jammed import jam, to_jam
from texpr.polyhedral.map.shared_sums import share, to_share
from texpr.polyhedral.map.states import is_state
from texpr.polyhedral.mapped.candidate import Candidate, Case, Cases, Choices, Contracted, first_of
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.schedule.stage import Scheduled, Schedules
from texpr.polyhedral.target import Target

if TYPE_CHECKING:
    from texpr.polyhedral.schedule.draft import Draft

PER_CASE = 4  # a case may take one step in so many of those that are left
NO_ROOM = ("E0401", "E0403")
NARROW = "{} has no room in f64: its long sums stay in f32, of every addition"
GIVEN_UP = (
    "{} stays as it is: to keep its sums in a wider type takes more steps than allowed, so each addition is rounded"
)
STATE = "{} is read or bound between its additions: each sum is a value of {}, rounded"


def map_program(
    proved: ProvedProgram,
    target: Target,
    *,
    hints: Mapping[str, int] | None = None,
    choices: Choices | None = None,
    sizes: Mapping[str, int] | None = None,
    others: "tuple[Draft, ...]" = (),
    objective: Objective = Objective.TIME,
) -> MappedProgram:
    """The mapping of a proved program to a target; `hints` gives sizes that are free a value to judge choices at,
    `choices` the choices themselves, and `sizes` those that are bound, for which their conditions may ask. It is mapped
    in the schedule of the choices, or, by time, in one of the `others` where that costs less. `objective`: by what
    lanes are chosen.

    Long sums that the mapping leaves in memory are kept in f64 there, on a CPU narrow ones in f32, by a mapping of the
    program that says so.
    Raises E0401 where attributes or sizes leave no mapping, E0402 for attributes that are not mapped, E0403 for
    buffers that do not fit, E0404 for moves that do not fit, E0502 for constructs that have no emission.
    """
    check_attributes(proved.program.kernel, target)
    known = hints or {}
    if choices is not None:
        return _as_told(proved, target, known, choices, sizes or {})
    own = Problems(keep_nothing(proved), target, known, objective=objective)
    by_time = objective is Objective.TIME
    better = _better(Schedules(proved=proved, others=others), own) if others and by_time else None
    if better is not None:
        try:
            with proved.program.work.share(2):
                return _own(*better)
        except TExprError:  # then as it is
            pass
    return _own(Scheduled(proved=proved), own)


def _better(schedules: Schedules, own: Problems) -> tuple[Scheduled, Problems] | None:
    """What `chosen` says, which is loaded for programs that have a choice."""
    from texpr.polyhedral.map.schedules import chosen

    return chosen(schedules, own)


def _own(scheduled: Scheduled, problems: Problems) -> MappedProgram:
    """The mapping of the compiler's own choices."""
    problems = _jammed(_shared(_centred(problems)))
    program, as_it_is = problems.kept.proved.program, problems.kept
    long, kept, notes = as_it_is.long, frozenset[str](), dict[str, str]()
    narrow = frozenset[str]() if problems.target.is_cuda else narrow_updates(program) - long
    mapped = _carried(problems)
    while more := [n for n in (*left_in_memory(mapped, long), *rounded_in_memory(mapped, narrow)) if n not in notes]:
        states = [n for n in more if is_state(program, n, long) and is_state(program, n, narrow, 1)]
        notes |= {name: STATE.format(name, program.kernel.buffer(name).dtype.name) for name in states}
        wider = kept.union(more).difference(notes)
        if wider == kept and not states:
            raise InternalError(f"{', '.join(more)} are kept in memory, and left there as they are")
        try:
            if wider != kept:
                mapped = _carried(replace(problems, kept=keep(as_it_is, wider)))
                kept = wider
        except TExprError as wrong:
            codes = {d.code for d in wrong.diagnostics}
            if not codes <= {*NO_ROOM, "E0307"}:
                raise
            why = NARROW if codes <= set(NO_ROOM) else GIVEN_UP
            locals = [name for name in wider - kept if program.kernel.buffer(name).role is Role.LOCAL]
            notes |= {name: why.format(name) for name in sorted(locals or wider - kept)}
    own = replace(problems, kept=keep(as_it_is, kept))
    mapped = _told(_noted(_laid(own, mapped), notes.values()), scheduled)
    return _in_cases(scheduled, own, mapped)


def _centred(problems: Problems) -> Problems:
    """The problems of the program with sums of squares made with earlier sums, where that costs less."""
    ids = to_centre(problems.kept)
    if not ids or not problems.target.is_cuda or problems.objective is not Objective.TIME:
        return problems
    from texpr.polyhedral.map.schedules import price

    with suppress(TExprError):  # or it runs as it is
        found = replace(problems, kept=centre(problems.kept, ids))
        own, other = price(problems), price(found)
        if own is not None and other is not None and other.picoseconds < own.picoseconds:
            return found
    return problems


def _shared(problems: Problems) -> Problems:
    """The problems of the program whose cores share out its reductions."""
    if problems.target.is_cuda:  # which has parted launches for these
        return problems
    with suppress(TExprError):  # or each stays with one core
        return replace(problems, kept=share(problems.kept, to_share(problems.kept)))
    return problems


def _jammed(problems: Problems) -> Problems:
    """The problems of the program with rows in pairs, where those are held beside one another in clusters."""
    if not problems.target.is_cuda or problems.objective is not Objective.TIME:
        return problems
    with suppress(TExprError):  # or it runs as it is
        rows = worth_jamming(problems.kept, problems.wide, problems.first)
        found = replace(problems, kept=jam(problems.kept, rows)) if rows else problems
        if found is not problems and holds_pairs(found.first):
            return found
    return problems


def _laid(problems: Problems, mapped: MappedProgram) -> MappedProgram:
    """The mapping with rows where tensor maps have them, where tensor cores then take a product."""
    arrays = to_lay(problems.wide)
    with suppress(TExprError):  # or it runs as it is
        found = _carried(replace(problems, kept=lay(problems.kept, arrays))) if arrays else mapped
        if found is not mapped and _has_products(found):
            return found
    return _turned(problems, mapped)


def _turned(problems: Problems, mapped: MappedProgram) -> MappedProgram:
    """The mapping with small factors of products in tiles as blocks read them."""
    candidate = mapped.candidate
    if not isinstance(candidate, Candidate) or not problems.target.is_cuda or problems.objective is not Objective.TIME:
        return mapped
    arrays = to_turn(problems.wide if candidate.wide else problems.narrow, candidate)
    with suppress(TExprError):  # or it runs as it is
        found = _carried(replace(problems, kept=lay(problems.kept, arrays))) if arrays else mapped
        if isinstance(found.candidate, Candidate) and any(
            isinstance(own, Contracted) for own in found.candidate.launches.values()
        ):
            return found
    return mapped


def _has_products(mapped: MappedProgram) -> bool:
    candidate = mapped.candidate
    return isinstance(candidate, Candidate) and any(
        isinstance(own, Piped | Ringed) for own in candidate.launches.values()
    )


def _in_cases(scheduled: Scheduled, problems: Problems, otherwise: MappedProgram) -> MappedProgram:
    """The mapping with one more candidate for each case in which more is known of rows that a call decides."""
    last, work = otherwise.candidate, scheduled.proved.program.work
    assert isinstance(last, Candidate), "one of its own choice"
    cases: list[Case] = []
    programs: list[MappedProgram] = []
    for case in _call_cases(problems, last):
        with suppress(TExprError), work.share(PER_CASE):  # or such a call runs as all others do
            kept = lay(problems.kept, case.laid)
            own = Problems(kept, problems.target, {**problems.hints, **case.sizes}, first_of(case.when, cases))
            program = _carried(own)
            if isinstance(program.candidate, Candidate) and not left_in_memory(program, own.long):
                cases.append(Case(when=case.when, candidate=program.candidate))
                programs.append(_told(program, scheduled))
    if not cases:
        return otherwise
    from texpr.polyhedral.map.join import join

    choices = Cases(cases=tuple(cases), otherwise=last)
    return join(scheduled.proved, choices, [case.when for case in cases], [*programs, otherwise])


def _call_cases(problems: Problems, last: Candidate) -> Iterator[CallCase]:
    """The cases of a program of which the last candidate runs all other calls."""
    problem = problems.wide if last.wide else problems.narrow
    if not last.laid:
        yield from row_cases(problem, last, problems.hints.keys())
    if problem.target.is_cuda:
        bounded = replace(problems, given=bounded_sizes(problem))
        yield from product_cases(problem, bounded.wide, problems.hints.keys())


def _as_told(
    proved: ProvedProgram, target: Target, hints: Mapping[str, int], choices: Choices, sizes: Mapping[str, int]
) -> MappedProgram:
    """The mapping of choices from outside. Raises E0401 for a condition or a candidate that does not fit, E0404 for its
    moves."""
    from texpr.polyhedral.map.cases import in_case, judged_at, resolved
    from texpr.polyhedral.map.join import join
    from texpr.polyhedral.schedule.draft import replay

    if isinstance(choices, Cases):
        choices = resolved(proved.program.kernel, choices, sizes)
    scheduled = cache(partial(replay, proved))  # cases share their moves, more often than not
    if isinstance(choices, Candidate):
        return _chosen(scheduled(choices.moves), target, hints, choices)
    found: list[MappedProgram] = []
    for number, case in enumerate((*choices.cases, None)):
        try:
            candidate = case.candidate if case else choices.otherwise
            given = first_of(case.when, choices.cases[:number]) if case else ()
            sizes_of = judged_at(case.when, hints) if case else hints
            found.append(_chosen(scheduled(candidate.moves), target, sizes_of, candidate, given))
        except TExprError as wrong:
            raise in_case(wrong, case) from None
    return join(proved, choices, [case.when for case in choices.cases], found)


def _chosen(
    scheduled: Scheduled,
    target: Target,
    hints: Mapping[str, int],
    candidate: Candidate,
    given: tuple[Condition, ...] = (),
) -> MappedProgram:
    """The mapping of a candidate from outside, whose moves are made, for the calls of which conditions hold. Raises
    E0401 where it does not fit, or leaves long sums in memory."""
    from texpr.polyhedral.map.legal import check_candidate

    as_it_is = _rewritten(keep_nothing(scheduled.proved, scheduled.moves), candidate)
    program, long = as_it_is.proved.program, as_it_is.long
    writes = [s.write for s in program.statements if s.id in long | narrow_updates(program)]
    able = {write.buffer for write in writes if write is not None}
    if not candidate.kept <= able:
        wrong = ", ".join(sorted(candidate.kept - able))
        raise fail("E0401", f"the candidate keeps {wrong} in f64, which gets no long sum", program.kernel.span)
    if not candidate.laid <= (rows := with_rows(program.kernel)):
        wrong = ", ".join(sorted(candidate.laid - rows))
        raise fail(
            "E0401", f"the candidate lays rows of {wrong}, which is no parameter that has them", program.kernel.span
        )
    problem = _problem(as_it_is, target, hints, candidate, given)
    check_candidate(problem, candidate)
    mapped = build(problem, candidate)
    for name in left_in_memory(mapped, problem.long):
        if not is_state(program, name, problem.long):
            why = f"the candidate makes more than {CHAIN} additions to an element of {name} in memory"
            raise fail(
                "E0401", why, program.kernel.span, help=f"keep it in f64 (`kept`: {name!r}), or sum inside a `par`"
            )
    return _told(mapped, scheduled)


def _told(mapped: MappedProgram, scheduled: Scheduled) -> MappedProgram:
    return replace(mapped, report=replace(mapped.report, schedule=scheduled.told))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseProblem:
    """The problem that a candidate solves: for the calls of a condition, None for those of no other case."""

    when: Condition | None
    candidate: Candidate
    problem: Problem


def problem_of(proved: ProvedProgram, mapped: MappedProgram) -> Problem:
    """The problem of a proved program that one of its mappings solves, at the same representative sizes. Raises E0607
    for a mapping of several cases, each of which solves one."""
    if isinstance(mapped.candidate, Cases):
        raise fail("E0607", "a mapping of several cases solves several problems", help="ask for `problems_of` it")
    return problems_of(proved, mapped)[0].problem


def problems_of(proved: ProvedProgram, mapped: MappedProgram) -> tuple[CaseProblem, ...]:
    """The problems that a mapping solves, one for each of its cases, at the same representative sizes."""
    from texpr.polyhedral.map.cases import judged_at
    from texpr.polyhedral.schedule.draft import replay

    choices, hints, found = mapped.candidate, mapped.report.representative, list[CaseProblem]()
    cases, last = (choices.cases, choices.otherwise) if isinstance(choices, Cases) else ((), choices)
    for number, case in enumerate((*cases, None)):
        candidate = case.candidate if case else last
        as_it_is = _rewritten(keep_nothing(replay(proved, candidate.moves).proved, candidate.moves), candidate)
        given = first_of(case.when, cases[:number]) if case else ()
        problem = _problem(as_it_is, mapped.target, judged_at(case.when, hints) if case else hints, candidate, given)
        found.append(CaseProblem(when=case.when if case else None, candidate=candidate, problem=problem))
    return tuple(found)


def _rewritten(as_it_is: Kept, candidate: Candidate) -> Kept:
    """The program with the sums of squares about means, and the shared reductions, that a candidate wants. Raises E0401
    where there are none."""
    able = to_centre(as_it_is) if candidate.centred else frozenset()
    if not candidate.centred <= able:
        wrong = ", ".join(sorted(candidate.centred - able))
        why = f"the candidate takes {wrong} about means of rows: no sum of squares that an earlier sum is read with"
        raise fail("E0401", why, as_it_is.proved.program.kernel.span)
    found = centre(as_it_is, candidate.centred)
    able = to_share(found) if candidate.shared else frozenset()
    if not candidate.shared <= able:
        wrong = ", ".join(sorted(candidate.shared - able))
        why = f"the candidate shares out the loops {wrong}: they are no reductions of plain statements that may be long"
        raise fail("E0401", why, as_it_is.proved.program.kernel.span)
    found = share(found, candidate.shared)
    able = to_jam(found) if candidate.jammed else frozenset()
    if not candidate.jammed <= able:
        wrong = ", ".join(sorted(candidate.jammed - able))
        why = (
            f"the candidate takes the rows {wrong} in pairs: they are no band of its own whose iterations may run twice"
        )
        raise fail("E0401", why, as_it_is.proved.program.kernel.span)
    return jam(found, candidate.jammed)


def _problem(
    as_it_is: Kept,
    target: Target,
    hints: Mapping[str, int],
    candidate: Candidate,
    given: tuple[Condition, ...] = (),
) -> Problem:
    problems = Problems(lay(keep(as_it_is, candidate.kept), candidate.laid), target, hints, given)
    return problems.wide if candidate.wide else problems.narrow


def _carried(problems: Problems) -> MappedProgram:
    """The mapping with long sums carried, in arrays, too, where they have room in f64."""
    try:
        return build(problems.wide, problems.first)
    except TExprError as wrong:
        if not problems.narrowed or not {d.code for d in wrong.diagnostics} <= set(NO_ROOM):
            raise
    mapped = build(problems.narrow, choose(problems.narrow, wide=False))
    return _noted(mapped, [NARROW.format(name) for name in problems.narrowed])


def _noted(mapped: MappedProgram, notes: Iterable[str]) -> MappedProgram:
    """The mapping with more notes in its report, each once."""
    return replace(mapped, report=replace(mapped.report, notes=tuple(dict.fromkeys((*mapped.report.notes, *notes)))))
