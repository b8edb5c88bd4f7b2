"""The problems of a kept program: its long sums carried in f64 in arrays, too, or not; and the first candidate.

What prices a schedule and what maps the one that is taken ask for the same problem: each is made once.
"""

from collections.abc import Mapping
from functools import cached_property, partial

from texpr.grammar.ast import Condition, Kernel
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.kept import Kept, known_of
from texpr.polyhedral.map.long_sums import carried_wide
from texpr.polyhedral.map.objective import Objective
from texpr.polyhedral.map.one_row import rows_of_one
from texpr.polyhedral.map.problem import Problem, make_problem
from texpr.polyhedral.map.single import single_loops
from texpr.polyhedral.mapped.atoms import SM_90A
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.target import Target


@dataclass(frozen=True)
class Problems:
    """A kept program on a target; `hints` are the values of free sizes that choices are judged at, `given` conditions
    of which it is known that they hold."""

    kept: Kept
    target: Target
    hints: Mapping[str, int]
    given: tuple[Condition, ...] = ()
    objective: Objective = Objective.TIME

    @cached_property
    def wide(self) -> Problem:
        """With long sums carried in arrays, too."""
        return self._problem(self._carried(arrays=True))

    @cached_property
    def narrow(self) -> Problem:
        """With long sums carried in registers only."""
        return self._problem(self._carried(arrays=False))

    @cached_property
    def first(self) -> Candidate:
        """The first candidate of the wide problem. Raises E0401, E0403 where there is none."""
        return choose(self.wide)

    @property
    def long(self) -> frozenset[str]:
        """The updates of long sums, by id, in the calls of which the conditions hold."""
        return self._kept.long

    @property
    def narrowed(self) -> list[str]:
        """The arrays in which the two differ."""
        pairs = zip(self._carried(arrays=True).buffers, self._carried(arrays=False).buffers, strict=True)
        return [wide.name for wide, narrow in pairs if wide.dtype != narrow.dtype]

    @cached_property
    def _kept(self) -> Kept:
        return known_of(self.kept, self.given)

    def _carried(self, *, arrays: bool) -> Kernel:
        return carried_wide(self._kept.proved.program, self._kept.long, arrays=arrays)

    def _problem(self, kernel: Kernel) -> Problem:
        make = partial(make_problem, self._kept, kernel, self.target, self.hints, self.given, self.objective)
        single = single_loops(kernel) if SM_90A.has(self.target) and not self.objective.by_distance else frozenset()
        rows = frozenset(rows_of_one(make(single))) if single else frozenset()
        return make(rows)
