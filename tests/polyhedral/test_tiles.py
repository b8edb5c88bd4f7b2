"""Tiles of plain programs: which bands run in tiles, what is staged for them, and that they compute the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, program, proved

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.layout.banks import bank_use
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate, Tiled
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
TURNED = "par M i, N j {{ B[j, i] = {} }}"
ROWS = "kernel {}(A: {}[M, N], B: {}[N, M]) {{ par M i, N j {{ B[j, i] = A[i, j] }} }}"
PERMUTED = "kernel {}(A: {}[I, J, K], C: {}[I, J, K], B: {}[{}]) {{ par I i, J j, K k {{ {} }} }}"


def choice(text: str, **sizes: int) -> Tiled | None:
    (found,) = mapped(text, "cuda:sm_90a", **sizes).candidate.launches.values()  # type: ignore[union-attr]  # one candidate
    return found if isinstance(found, Tiled) else None
