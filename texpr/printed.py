"""Stages of a compiled kernel as they print: what `Compiled.mapping` and `Compiled.graph` give."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

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

    def data(self) -> dict[str, Any]:
        """The mapping as `texpr map --json` prints it, but for what is beside one (docs/schemas.md)."""
        from texpr.mapping_json import mapping_json

        return mapping_json(self.program)

    def page(self) -> str:
        """One HTML page with figures, pictures and what is proved of them; it needs nothing else."""
        from texpr.alternatives import priced, table
        from texpr.page import page
        from texpr.polyhedral.verify.stage import verify

        data, others = self.data(), priced(self)
        told = table(others) if others else "a mapping of several cases: ask for those of one candidate"
        return page(data, str(self), verify(data), told)

    def __str__(self) -> str:
        from texpr.polyhedral.mapped.show import show

        return show(self.program)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows: the pictures, and the words."""
        from texpr.page import drawing

        return {"text/plain": str(self), "image/svg+xml": drawing(self.data())}


class Shown(str):
    """A text that a notebook shows as it is, with its lines."""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": f"<pre>{escape(self)}</pre>"}


class GraphView:
    """A planned program as it prints."""

    def __init__(self, planned: "PlannedProgram") -> None:
        self.planned = planned

    def __str__(self) -> str:
        from texpr.polyhedral.mapped.show import show

        return show(self.planned)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows."""
        return {"text/plain": str(self), "text/html": f"<pre>{escape(str(self))}</pre>"}
