"""The order of the stages, and the only place where it stands.

    text ─parse→ Module ─check→ Kernel ─model→ Program ─prove→ ProvedProgram
         ─schedule→ Schedules ─map→ MappedProgram ─plan→ PlannedProgram ─emit→ Emission

`build` runs a checked kernel down to a stage; `stop_after` returns early with what exists. Every stage is pure, so a
`Build` is a record of values, and `times_ms` of what each took.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from texpr.grammar.collector import rare_collections
from texpr.grammar.diagnostics import Diagnostic, did_you_mean, fail
from texpr.grammar.records import dataclass
from texpr.options import one_of

if TYPE_CHECKING:
    from texpr.codegen.manifest import Manifest
    from texpr.grammar.ast import Kernel
    from texpr.polyhedral.mapped.candidate import Choices
    from texpr.polyhedral.mapped.planned import PlannedProgram
    from texpr.polyhedral.mapped.program import MappedProgram
    from texpr.polyhedral.program import Program, ProvedProgram
    from texpr.polyhedral.target import Target

STAGES = ("parse", "check", "model", "prove", "schedule", "map", "plan", "emit")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """Generated text: `files` by name as they are saved, `main` the name of the kernel's own text, `best_by` the
    compiler that makes the fastest cubin of it; empty where all make the same."""

    main: str
    files: Mapping[str, bytes]
    manifest: "Manifest"
    best_by: str = ""

    @property
    def source(self) -> str:
        return self.files[self.main].decode()


@dataclass(slots=True)
class Build:
    """What the stages made of one kernel for one target, as far as they ran, and what they warn of. Where it comes from
    the cache it has what was emitted alone, and `kept_options` are the options with which the stages run if asked."""

    kernel: "Kernel"
    target: "Target"
    sizes: Mapping[str, int]
    results: dict[str, Any] = field(default_factory=dict)
    times_ms: dict[str, float] = field(default_factory=dict)
    warnings: list[Diagnostic] = field(default_factory=list)
    kept_options: Mapping[str, Any] | None = None

    def bound_sizes(self) -> dict[str, int]:
        """The sizes that have a value, by `sizes` or by the kernel's own constants."""
        own = {s.name: s.default for s in self.kernel.sizes if s.default is not None}
        return own | dict(self.sizes)

    def stage(self, name: str, run: Callable[[], T]) -> T:
        """Run a stage, keep its value and time."""
        start = time.perf_counter()
        value = run()
        self.times_ms[name] = (time.perf_counter() - start) * 1e3
        self.results[name] = value
        return value

    def result(self, name: str) -> Any:
        """The value of a stage. Raises E0502 when the build stopped before it."""
        if name not in self.results and self.kept_options is not None:
            again = build(self.kernel, self.target, sizes=self.sizes, **self.kept_options)
            self.results, self.times_ms, self.kept_options = again.results, again.times_ms, None
        if name not in self.results:
            raise fail("E0502", f"the build of {self.kernel.name} stopped before the stage {name}")
        return self.results[name]


def build(
    kernel: "Kernel",
    target: "Target",
    *,
    sizes: Mapping[str, int],
    hints: Mapping[str, int] | None = None,
    objective: str = "time",
    choices: "Choices | None" = None,
    checks: bool = False,
    stop_after: str | None = None,
) -> Build:
    """Run a checked kernel through the stages.

    Args:
        sizes: values of the sizes bound at compile time; the others stay free.
        hints: representative values of free sizes, for the cost model only.
        objective: by what lanes are chosen, `time`, `distance` or `milp`.
        choices: those of the mapping; None lets the compiler choose.
        checks: emit run-time checks of gathered subscripts on CUDA (`cpu` and `cuda-host` always have them).
        stop_after: the last stage to run; None runs all.

    Raises:
        TExprError: the program is wrong, or asks for what the target does not offer.
    """
    if stop_after is not None and stop_after not in STAGES:
        help = did_you_mean(stop_after[:40], STAGES, f"stages are {', '.join(STAGES)}")
        raise fail("E0502", f"there is no stage {stop_after[:40]!r}", help=help)
    one_of("objective", objective, ("time", "distance", "milp"))
    made = Build(kernel, target, sizes)
    last = STAGES.index(stop_after) if stop_after else len(STAGES)

    def over(stage: str) -> bool:
        return last <= STAGES.index(stage)

    from texpr.grammar.check.bind import bind_sizes

    bound = made.stage("check", lambda: bind_sizes(kernel, sizes))
    if over("check"):
        return made
    from texpr.polyhedral.isl import translated

    with translated(kernel.span), rare_collections():
        _below(made, bound, hints or {}, objective, choices, checks, over)
    return made


def _below(
    made: Build,
    bound: "Kernel",
    hints: Mapping[str, int],
    objective: str,
    choices: "Choices | None",
    checks: bool,
    over: Callable[[str], bool],
) -> None:
    """The stages below the check, as far as they shall run."""
    from texpr.polyhedral.model.stage import build_program

    program: Program = made.stage("model", lambda: build_program(bound))
    if over("model"):
        return
    from texpr.polyhedral.prove.stage import prove

    proved: ProvedProgram = made.stage("prove", lambda: prove(program))
    made.warnings += proved.warnings
    if over("prove"):
        return
    from texpr.polyhedral.schedule.stage import Schedules, schedule

    schedules: Schedules = made.stage("schedule", lambda: Schedules(proved=proved) if choices else schedule(proved))
    if over("schedule"):
        return
    from texpr.polyhedral.map.objective import Objective
    from texpr.polyhedral.map.stage import map_program

    known, others, goal = made.bound_sizes(), schedules.others, Objective(objective)
    mapped: MappedProgram = made.stage(
        "map",
        lambda: map_program(
            proved, made.target, hints=hints, choices=choices, sizes=known, others=others, objective=goal
        ),
    )
    if over("map"):
        return
    _emitted(made, proved, mapped, checks, over)


def build_mapped(mapped: "MappedProgram", *, checks: bool = False) -> Build:
    """A mapped program of the caller's own through the stages below: what no `map` chooses yet is written by hand."""
    made = Build(mapped.kernel, mapped.target, {})
    made.results |= {"prove": mapped.proved, "map": mapped}
    _emitted(made, mapped.proved, mapped, checks, lambda stage: False)
    return made


def _emitted(
    made: Build, proved: "ProvedProgram", mapped: "MappedProgram", checks: bool, over: Callable[[str], bool]
) -> None:
    """The stages below the map, as far as they shall run."""
    from texpr.codegen.plan import plan

    planned: PlannedProgram = made.stage("plan", lambda: plan(mapped))
    if over("plan"):
        return
    made.stage("emit", lambda: _emit(made, proved, planned, checks))


def _emit(made: Build, proved: "ProvedProgram", planned: "PlannedProgram", checks: bool) -> Emission:
    from dataclasses import replace

    from texpr.codegen.artifact import Passed, make_manifest
    from texpr.polyhedral.target import Family
    from texpr.version import VERSION

    sizes = tuple(replace(s, default=made.sizes.get(s.name, s.default)) for s in made.kernel.sizes)
    kernel = replace(made.kernel, sizes=sizes)
    name = planned.program.kernel.name
    match made.target.family:
        case Family.CUDA | Family.CUDA_HOST:
            from texpr.codegen.cuda.emit import emit_cuda
            from texpr.codegen.cuda.products import has_long_products
            from texpr.codegen.headers import header_files

            cuda = emit_cuda(planned, made.target, checks=checks)
            passed = Passed(arguments=cuda.arguments, maps=cuda.maps)
            manifest = make_manifest(kernel, proved, planned, made.target, passed, VERSION)
            files = {f"{name}.cu": cuda.source.encode(), f"{name}.h": cuda.header.encode()}
            files |= {f"include/{path}": text.encode() for path, text in header_files(cuda.headers).items()}
            best_by = "nvcc" if has_long_products(planned.program) else ""
            return Emission(main=f"{name}.cu", files=files, manifest=manifest, best_by=best_by)
        case Family.CPU:
            from texpr.codegen.cpu.emit import emit_cpu

            cpu = emit_cpu(planned, made.target)
            manifest = make_manifest(kernel, proved, planned, made.target, Passed(), VERSION)
            return Emission(main=f"{name}.py", files={f"{name}.py": cpu.source.encode()}, manifest=manifest)
        case _:
            assert_never(made.target.family)
