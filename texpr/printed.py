"""Stages of a compiled kernel as they print: what `Compiled.mapping` and `Compiled.graph` give."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from texpr.polyhedral.map.cost import Cost
    from texpr.polyhedral.mapped.candidate import Candidate, Choices
    from texpr.polyhedral.mapped.planned import PlannedProgram
    from texpr.polyhedral.mapped.program import MappedProgram
    from texpr.polyhedral.program import ProvedProgram


class MappingView:
    """A mapping as it prints."""

    def __init__(self, program: "MappedProgram", proved: "ProvedProgram") -> None:
        self.program = program
        self._proved = proved

    @property
    def candidate(self) -> "Choices":
        """The choices that make this mapping, one candidate or cases of several, for `compile(mapping=…)`."""
        return self.program.candidate

    def alternatives(self) -> "Iterator[tuple[Candidate, Cost]]":
        """The compiler's own choices, then those that differ from them in one place, each with what it costs."""
        from texpr.polyhedral.map.cost import cost
        from texpr.polyhedral.map.space import candidates
        from texpr.polyhedral.map.stage import problem_of
        from texpr.polyhedral.mapped.candidate import Candidate

        problem, choices = problem_of(self._proved, self.program), self.candidate
        wide = isinstance(choices, Candidate) and choices.wide
        return ((found, cost(problem, found)) for found in candidates(problem, wide=wide))

    def __str__(self) -> str:
        from texpr.polyhedral.mapped.show import show

        return show(self.program)


class GraphView:
    """A planned program as it prints."""

    def __init__(self, planned: "PlannedProgram") -> None:
        self.planned = planned

    def __str__(self) -> str:
        from texpr.polyhedral.mapped.show import show

        return show(self.planned)
