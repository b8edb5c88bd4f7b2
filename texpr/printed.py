"""Stages of a compiled kernel as they print: what `Compiled.mapping` and `Compiled.graph` give."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from texpr.polyhedral.map.alternatives import LaunchAlternatives
    from texpr.polyhedral.mapped.candidate import Choices
    from texpr.polyhedral.mapped.planned import PlannedProgram
    from texpr.polyhedral.mapped.program import MappedProgram
    from texpr.polyhedral.program import ProvedProgram


class MappingView:
    """A mapping as it prints."""

    def __init__(self, program: "MappedProgram", proved: "ProvedProgram") -> None:
        self.program = program
        self._proved = proved
        self._alternatives: tuple[LaunchAlternatives, ...] | None = None

    @property
    def candidate(self) -> "Choices":
        """The choices that make this mapping, one candidate or cases of several, for `compile(mapping=…)`."""
        return self.program.candidate

    def alternatives(self) -> "tuple[LaunchAlternatives, ...]":
        """For every launch of every case its choice and those that differ from it in one place, each with what it
        costs and with the choices of the whole mapping, for `compile(mapping=…)`."""
        from texpr.polyhedral.map.alternatives import alternatives

        if self._alternatives is None:
            self._alternatives = alternatives(self._proved, self.program)
        return self._alternatives

    def data(self) -> dict[str, Any]:
        """The mapping as `texpr map --json` prints it, but for what is beside one (docs/schemas.md)."""
        from texpr.alternatives import alternatives_json
        from texpr.mapping_json import mapping_json

        return {**mapping_json(self.program), "alternatives": alternatives_json(self.alternatives())}

    def page(self, data: "Mapping[str, Any] | None" = None) -> str:
        """One HTML page with figures, pictures and what is proved of them; it needs nothing else. `data` is the
        mapping's own where that has more, such as counts of a profiler."""
        from texpr.alternatives import table
        from texpr.page import page
        from texpr.polyhedral.verify.stage import verify

        data = self.data() if data is None else data
        return page(data, str(self), verify(data), table(self.alternatives()))

    def __str__(self) -> str:
        from texpr.polyhedral.mapped.show import show

        return show(self.program)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows: the pictures, and the words."""
        from texpr.mapping_json import mapping_json
        from texpr.page import drawing

        return {"text/plain": str(self), "image/svg+xml": drawing(mapping_json(self.program))}


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
