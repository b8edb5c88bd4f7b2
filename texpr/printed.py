"""Stages of a compiled kernel as they print: what `Compiled.mapping` and `Compiled.graph` give."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from texpr.polyhedral.mapped.planned import PlannedProgram
    from texpr.polyhedral.mapped.program import MappedProgram


class MappingView:
    """A mapping as it prints."""

    def __init__(self, program: "MappedProgram") -> None:
        self.program = program

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
