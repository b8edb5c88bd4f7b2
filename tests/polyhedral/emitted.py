"""Hand-built graphs emitted as CUDA and run on the CPU: by the runtime, as every other program."""

from dataclasses import replace
from functools import cached_property
from typing import Any

from texpr.codegen.host_run import HostBackend, HostModule
from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.pipeline import Emission, build_mapped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.target import parse_target
from texpr.runtime.launch import Launcher


class Emitted:
    """A program's text, and its launches run on the CPU."""

    def __init__(self, program: MappedProgram) -> None:
        self.program = program

    @cached_property
    def emission(self) -> Emission:
        found: Emission = build_mapped(replace(self.program, target=parse_target("cuda-host:sm_90a"))).result("emit")
        return found

    @property
    def source(self) -> str:
        return self.emission.source

    def run(self, module: HostModule, arrays: dict[str, Any], seed: int = 0) -> Diagnostic | None:
        """All launches on the arrays; the first finding."""
        try:
            Launcher(self.emission.manifest, HostBackend(module, seed))(**arrays)
        except TExprError as wrong:
            (found,) = wrong.diagnostics
            if found.code != "E0604":
                raise
            return found
        return None
