"""What users hold: `Kernel` (a program), `Compiled` (a program for a target)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from texpr import tuned as tuning
from texpr.grammar.diagnostics import Diagnostic, fail
from texpr.options import (
    element_types,
    flag,
    gpu_target,
    merge_sizes,
    natural,
    one_of,
    refuse_ambiguous,
    refuse_bound,
    refuse_misspelt,
    refuse_unknown,
    size_names,
    stage_name,
    target_of,
)
from texpr.printed import GraphView, MappingView, Shown
from texpr.version import VERSION
from texpr.warned import warn_users

if TYPE_CHECKING:
    from texpr.codegen.cpu.build import Entry
    from texpr.codegen.manifest import Manifest
    from texpr.grammar import ast, syntax
    from texpr.grammar.interpret.stage import Interpretation
    from texpr.pipeline import Build
    from texpr.polyhedral.map.chains import Sum
    from texpr.polyhedral.mapped.candidate import Choices

COMPILE_OPTIONS = (
    *("target", "types", "sizes", "dynamic", "hints", "objective", "mapping", "tuned", "checks", "stop_after"),
)
INTERPRET_OPTIONS = ("mode", "float64", "seed", "types", "sizes")
CALL_OPTIONS = ("stream",)
MAX_SPECIALISATIONS = 256  # compiled variants that one kernel object keeps for plain calls


class Checker:
    """Checks a module once for each set of given sizes and types, for all its kernels together."""

    def __init__(self, module: "syntax.Module", folder: Path | None = None) -> None:
        self.module = module
        self._folder = folder
        self._last: tuple[object, tuple[ast.Kernel, ...], tuple[Diagnostic, ...]] | None = None

    def check(
        self, sizes: Mapping[str, int], types: Mapping[str, str]
    ) -> "tuple[tuple[ast.Kernel, ...], tuple[Diagnostic, ...]]":
        """The module's core kernels and warnings. Raises E01 and E02 errors."""
        key = (tuple(sorted(sizes.items())), tuple(sorted(types.items())))
        last = self._last
        if last is None or last[0] != key:
            from texpr.grammar.check.stage import check

            warnings: list[Diagnostic] = []
            kernels = check(self.module, sizes=sizes, types=types, folder=self._folder, warnings=warnings)
            last = self._last = (key, kernels, tuple(warnings))
        return last[1], last[2]


class Kernel:
    """A kernel of a checked program.

    Call it with arrays (it compiles for their device, specialised on all sizes but `dynamic`), or `compile` it.
    """

    def __init__(
        self,
        checker: Checker,
        name: str,
        *,
        dynamic: Sequence[str] = (),
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.dynamic = size_names(dynamic)
        self._checker = checker
        self._compiled: dict[tuple[str, tuple[tuple[str, int], ...]], Compiled] = {}
        if function is not None:
            self.__name__, self.__doc__ = function.__name__, function.__doc__
            self.__module__, self.__wrapped__ = function.__module__, function

    def __repr__(self) -> str:
        return f"<texpr.Kernel {self.name}>"

    def __str__(self) -> str:
        """The kernel's file in canonical form."""
        from texpr.grammar.text.printer import print_module

        return print_module(self._checker.module)

    @property
    def scalars(self) -> frozenset[str]:
        """The names of the parameters that are passed by value, as they are declared: nothing is checked for it."""
        from texpr.grammar.syntax import KernelDef

        items = self._checker.module.items
        own = next((item for item in items if isinstance(item, KernelDef) and item.name == self.name), None)
        return frozenset(p.name for p in own.params if p.type.shape is None) if own else frozenset()

    def core(self, *, types: Mapping[str, str] | None = None, sizes: Mapping[str, int] | None = None) -> "ast.Kernel":
        """The checked core tree; `sizes` override `size` constants. Raises E01 and E02 errors."""
        return self._check(element_types(types), merge_sizes("sizes", sizes))[0]

    def _check(self, types: Mapping[str, str], sizes: Mapping[str, int]) -> "tuple[ast.Kernel, tuple[Diagnostic, ...]]":
        """The core kernel and the warnings of its file, without those that stand in other kernels."""
        kernels, warnings = self._checker.check(sizes, types)
        others = [kernel.span for kernel in kernels if kernel.name != self.name]
        own = tuple(w for w in warnings if w.primary is None or not any(o.holds(w.primary.span) for o in others))
        return next(kernel for kernel in kernels if kernel.name == self.name), own

    def compile(
        self,
        /,
        target: str = "cpu",
        *,
        types: Mapping[str, str] | None = None,
        sizes: Mapping[str, int] | None = None,
        dynamic: Sequence[str] = (),
        hints: Mapping[str, int] | None = None,
        objective: Literal["time", "distance", "milp"] = "time",
        mapping: "Choices | Mapping[str, Any] | None" = None,
        tuned: bool = False,
        checks: bool = False,
        stop_after: str | None = None,
        **size_values: int,
    ) -> "Compiled":
        """Compile for a target: `cpu`, `cuda` (the GPU of this machine), `cuda:sm_XX` or `cuda-host:sm_XX`.

        Args:
            types: element types of a bare program's buffers, e.g. {"A": "f16"}.
            sizes, size_values: compile-time sizes; those left out stay dynamic and are solved at launch.
            dynamic: sizes that must stay dynamic; naming one that is bound here is an error.
            hints: values at which the cost of dynamic sizes is judged.
            objective: what lanes are chosen for: the least time, or distance between neighbours (docs/schedules.md;
                `milp`: the same by an integer program).
            mapping: the choices of the mapping instead of the compiler's own: the `candidate` of a mapping, changed as
                you like, or its JSON (docs/schemas.md); or one for each of some cases and for all other calls:
                `{"cases": [{"when": "M % 128 == 0 and address(A) % 16 == 0", "candidate": …}], "otherwise": …}`.
                Choices that do not fit the kernel are E0401.
            tuned: the choices that `texpr.tune` kept for these sizes on this machine; E0609 where there are none.
            checks: check gathered subscripts at run time on CUDA, too.
            stop_after: the last stage to run (`texpr.pipeline.STAGES`).

        Warns:
            TExprWarning: for each of `.warnings`, at the caller's line.

        Raises:
            TExprError: with every diagnostic of the program.
        """
        from texpr.kept import build_or_kept

        refuse_misspelt(size_values, COMPILE_OPTIONS, self._size_names)
        machine, last, checks = target_of(target), stage_name(stop_after), flag("checks", checks)
        bound, costs = merge_sizes("sizes", sizes, size_values), merge_sizes("hints", hints)
        free = (*size_names(dynamic), *self.dynamic)
        refuse_bound(free, bound)
        kernel, warnings = self._check(element_types(types), bound)
        refuse_unknown(self.name, (*free, *costs), [size.name for size in kernel.sizes])
        choices = tuning.chosen(kernel, machine, bound, mapping, tuned)
        how: dict[str, Any] = {"hints": costs, "objective": objective, "choices": choices, "checks": checks}
        made = build_or_kept(kernel, machine, sizes=bound, stop_after=last, **how)
        compiled = Compiled(made, warnings)
        warn_users(compiled.warnings)
        return compiled

    def interpret(
        self,
        /,
        *args: Any,
        mode: Literal["fast", "exact"] = "fast",
        float64: bool = False,
        seed: int = 0,
        types: Mapping[str, str] | None = None,
        sizes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> "Interpretation":
        """Run the reference interpreter on CPU arrays, called like a `Compiled`: output arrays change in place.

        `mode="exact"` runs iteration by iteration in random order and finds races, undefined reads and accesses out
        of bounds; `float64` computes in double and gives error bounds. `sizes` are sizes by name, where a keyword will
        not do: one that is called as an option is.
        """
        from texpr.codegen.artifact import signature
        from texpr.grammar.core import buffers_written
        from texpr.grammar.interpret.stage import interpret
        from texpr.runtime.arguments import bind_arguments
        from texpr.runtime.arrays import CPU
        from texpr.runtime.host_arrays import as_numpy

        own = merge_sizes("sizes", sizes)
        named = kwargs | merge_sizes("sizes", own, {name: kwargs[name] for name in own if name in kwargs})
        options = {"mode": (mode, "fast"), "float64": (float64, False), "seed": (seed, 0), "types": (types, None)}
        given = [name for name, (value, usual) in options.items() if value is not usual and name not in named]
        if given:
            names = [buffer.name for buffer in self.core().params]
            refuse_ambiguous(given, self.name, self._size_names(), names[len(args) :])
        mode, float64, seed = one_of("mode", mode, ("fast", "exact")), flag("float64", float64), natural("seed", seed)
        kernel = self._with_constants(element_types(types), named, INTERPRET_OPTIONS)
        manifest = signature(kernel, "interpreter", VERSION, buffers_written(kernel))
        bound = bind_arguments(manifest, args, named, (CPU,))
        arrays = {name: as_numpy(view, bound.objects[name]) for name, view in bound.arrays.items()}
        done = interpret(kernel, {**arrays, **bound.scalars}, mode=mode, float64=float64, seed=seed, sizes=bound.sizes)
        for parameter in manifest.parameters:
            if parameter.writes and not parameter.scalar:
                arrays[parameter.name][...] = done.outputs[parameter.name].astype(arrays[parameter.name].dtype)
        return done

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        """Compile for the arrays' device, once per shapes, and run; on a GPU on `stream`, or on the stream that is
        current in the arrays' library."""
        from texpr.codegen.artifact import signature
        from texpr.runtime.arguments import assign, solve_sizes, strides_of, wrong_rank
        from texpr.runtime.arrays import view_of

        manifest = signature(self._with_constants({}, kwargs, CALL_OPTIONS), "the arrays' device", VERSION)
        given, keyword_sizes = assign(manifest, args, kwargs)
        views = {p.name: view_of(p.name, given[p.name]) for p in manifest.parameters if not p.scalar}
        for parameter in manifest.parameters:
            if not parameter.scalar and not parameter.flat and len(views[parameter.name].shape) != len(parameter.shape):
                raise wrong_rank(manifest, parameter, len(views[parameter.name].shape))
        sizes = solve_sizes(
            manifest, {name: view.shape for name, view in views.items()}, keyword_sizes, strides_of(views)
        )
        static = {name: value for name, value in sizes.items() if name not in self.dynamic}
        key = (_device_target(views), tuple(sorted(static.items())))
        if key not in self._compiled:
            while len(self._compiled) >= MAX_SPECIALISATIONS:
                self._compiled.pop(next(iter(self._compiled)))
            self._compiled[key] = self.compile(key[0], sizes=static)
        self._compiled[key](*args, stream=stream, **kwargs)

    def _size_names(self) -> frozenset[str]:
        return frozenset(size.name for size in self.core().sizes)

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(buffer.name for buffer in self.core().params)

    def _with_constants(
        self, types: Mapping[str, str], keywords: Mapping[str, Any], options: tuple[str, ...]
    ) -> "ast.Kernel":
        """The core tree under the sizes that a call's keywords give: they may override `size` constants."""
        given = {name: value for name, value in keywords.items() if name not in self._parameters}
        refuse_misspelt(given, options, self._size_names)
        return self.core(types=types, sizes=merge_sizes("sizes", given))


def _device_target(views: Mapping[str, Any]) -> str:
    """The target of the device that the arrays are on; arrays on two kinds of devices are E0605."""
    from texpr.runtime.arrays import CPU, CUDA

    kinds = {view.device[0] for view in views.values()}
    if len(kinds) > 1:
        raise fail("E0605", "the arrays are on two devices", help="move them to one")
    if not kinds or kinds == {CPU}:
        return "cpu"
    if kinds == {CUDA}:
        return gpu_target(next(iter(views.values())).device[1])
    raise fail("E0605", f"no target runs on DLPack device {kinds.pop()}")


class Compiled:
    """A kernel compiled for one target: call it with arrays, inspect it, save it."""

    def __init__(self, made: "Build", warnings: tuple[Diagnostic, ...]) -> None:
        self.build = made
        self.warnings = (*warnings, *made.warnings)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has, in another process too: it loads by itself what runs."""
        return {name: value for name, value in vars(self).items() if name not in ("_launcher", "_entry")}

    def __repr__(self) -> str:
        sizes = [f"{name}={value}" for name, value in self.build.sizes.items()]
        sizes += [f"{name} dynamic" for name in self.dynamic]
        return f"<texpr.Compiled {self.name} for {self.target}{': ' if sizes else ''}{', '.join(sizes)}>"

    @property
    def name(self) -> str:
        return self.build.kernel.name

    @property
    def target(self) -> str:
        return self.build.target.name

    @property
    def dynamic(self) -> tuple[str, ...]:
        """The sizes that are solved at launch."""
        from texpr.grammar.check.bind import free_sizes

        return tuple(name for name in free_sizes(self.build.kernel) if name not in self.build.sizes)

    @property
    def mapping(self) -> MappingView:
        """The mapping: print it, or take its `.candidate` or `.program`, the `MappedProgram`."""
        return MappingView(self.build.result("map"), self.build.result("prove"))

    def sums(self, /, **sizes: int) -> "dict[str, Sum]":
        """For every buffer that something is added to, by name: the longest `chain` of rounded additions to an element,
        and of how many `partials` it is the sum. `sizes` are the dynamic ones."""
        from texpr.polyhedral.map.chains import sums

        own = {buffer.name for buffer in self.build.kernel.buffers}
        found = sums(self.build.result("map"), merge_sizes("sizes", sizes))
        return {name: sum_ for name, sum_ in found.items() if name in own}

    @property
    def graph(self) -> GraphView:
        """The mapping with the place of every buffer: print it, or take `.planned`, the `PlannedProgram`."""
        return GraphView(self.build.result("plan"))

    @property
    def source(self) -> str:
        """The generated text: CUDA C++, or a Numba module for `cpu`."""
        return Shown(self.build.result("emit").source)

    @property
    def ptx(self) -> str:
        """What NVRTC or nvcc makes of the CUDA text, to read. Raises E0503 without both, E0502 where there is none."""
        from texpr.execute import ptx_of

        return ptx_of(self.build)

    @property
    def manifest(self) -> "Manifest":
        found: Manifest = self.build.result("emit").manifest
        return found

    @cached_property
    def _launcher(self) -> Callable[..., None]:
        from texpr.execute import launcher_for

        return launcher_for(self.build)

    @cached_property
    def _entry(self) -> "Entry | None":
        entry: Entry | None = getattr(self._launcher, "entry", None)
        return entry

    def make_ready(self) -> None:
        """Build or load what runs, which the first call does otherwise. Raises E0503 without what that takes."""
        _ = self._launcher

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        """Run on arrays of the target's device, outputs in place; free sizes that no shape gives go by keyword. On a
        GPU the call only enqueues: on `stream`, or on the stream that is current in the arrays' library."""
        # Frames of Python that a call comes through are cold behind a kernel that streams through the caches: each
        # costs it some microseconds, so that the usual call has one.
        entry = self._entry
        if entry is not None and not kwargs and stream is None and tuple(map(type, args)) == entry.kinds:
            try:
                if entry.run(*args) == 0:
                    return
            except entry.refusals:
                pass
        self._launcher(*args, stream=stream, **kwargs)

    def save(self, folder: str | Path, *, source_only: bool = False) -> Path:
        """Write the artifact: text, headers, C header, manifest, and a cubin where the target has one. An older
        artifact is replaced as a whole. Raises E0503 when NVRTC and nvcc are missing (`source_only=True` goes
        without), E0606 for a folder that holds anything else, E0608 where there is no room."""
        from texpr.codegen.artifact import save_artifact

        source_only = flag("source_only", source_only)
        emission = self.build.result("emit")
        files = dict(emission.files)
        if self.build.target.name.startswith("cuda:") and not source_only:
            from texpr.execute import binaries_of

            files |= binaries_of(self.build)
        return save_artifact(folder, replace(emission.manifest), files)
