"""The map stage: a proved program on a target, as launches of threads.

    par M i, N j { C[i, j] = A[i, j] }     cuda   j = 256*j_block + 32*j_warp + j_lane, i = i_block

Input: a `ProvedProgram`, a `Target`, and representative values of free sizes. Output: a `MappedProgram` that runs
every iteration of every statement exactly once, with the same result. Choose, then build: `choose` gives a candidate,
`build` makes its program; a candidate of the caller's own takes the place of the first one once `check_candidate` found
that it fits. Errors: E0401, E0402, E0403, E0502.
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.map.build import build
from texpr.polyhedral.map.candidate import Candidate
from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.hardware_attributes import check_attributes
from texpr.polyhedral.map.long_sums import carried_wide
from texpr.polyhedral.map.problem import Problem, make_problem
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target


def map_program(
    proved: ProvedProgram,
    target: Target,
    *,
    hints: Mapping[str, int] | None = None,
    candidate: Candidate | None = None,
) -> MappedProgram:
    """The mapping of a proved program to a target; `hints` gives sizes that are free a value to judge choices at, and
    `candidate` the choices themselves.

    Raises E0401 where attributes or sizes leave no mapping, E0402 for attributes that are not mapped, E0403 for
    buffers that do not fit, E0502 for constructs that have no emission.
    """
    check_attributes(proved.program.kernel, target)
    problems = Problems(proved, target, hints or {})
    if candidate is not None:
        return build(problems.wide if candidate.wide else problems.narrow, candidate)
    if not problems.narrowed:
        return build(problems.wide, choose(problems.wide))
    try:
        return build(problems.wide, choose(problems.wide))
    except TExprError as wrong:
        if not {d.code for d in wrong.diagnostics} <= {"E0401", "E0403"}:
            raise
    mapped = build(problems.narrow, choose(problems.narrow, wide=False))
    said = tuple(
        f"{name} has no room in f64: its long sums stay in f32, of every addition" for name in problems.narrowed
    )
    return replace(mapped, report=replace(mapped.report, notes=(*mapped.report.notes, *said)))


class Problems:
    """The problem of a proved program with its long sums carried in f64: in arrays, too (`wide`), or not (`narrow`);
    `narrowed` has the arrays in which the two differ."""

    def __init__(self, proved: ProvedProgram, target: Target, hints: Mapping[str, int]) -> None:
        wide, narrow = carried_wide(proved.program), carried_wide(proved.program, arrays=False)
        self.narrowed = [
            new.name for new, old in zip(wide.buffers, narrow.buffers, strict=True) if new.dtype != old.dtype
        ]
        self._proved, self._target, self._hints, self._narrow = proved, target, hints, narrow
        self.wide = make_problem(proved, wide, target, hints)

    @property
    def narrow(self) -> Problem:
        return make_problem(self._proved, self._narrow, self._target, self._hints)
