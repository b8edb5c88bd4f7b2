"""`texpr run`: a kernel on random or given arrays, compared with the float64 interpreter within its error bound."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr.codegen.artifact import signature
from texpr.codegen.manifest import Manifest, Parameter, evaluate
from texpr.grammar.diagnostics import Diagnostic, fail
from texpr.grammar.records import dataclass
from texpr.grammar.strides import reach
from texpr.grammar.types import ELEMENT_TYPES
from texpr.inspect import duration
from texpr.ran import Ran
from texpr.runtime.compare import Comparison, compare, objections
from texpr.samples import gather_limits, random_array, sample_bits
from texpr.sampling import SAMPLE_ABOVE, choose_sample
from texpr.trial_files import load_inputs, save_arrays
from texpr.trial_memory import check_memory
from texpr.version import VERSION

if TYPE_CHECKING:
    from texpr.grammar import ast
    from texpr.inspect import Progress
    from texpr.kernels import Compiled, Kernel
    from texpr.polyhedral.mapped.candidate import Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    ran: Ran
    time_s: float
    outputs: tuple[Comparison, ...] = ()
    checked: bool = False
    coverage: str = ""
    written: str | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def objections(self) -> tuple[str, ...]:
        """Why a checked run is not right: wrong elements, and too few that were compared."""
        return objections(self.outputs) if self.checked else ()

    @property
    def passed(self) -> bool:
        return not self.objections

    def __str__(self) -> str:
        lines = [str(self.ran), f"  took {duration(self.time_s)}, its first run; `texpr bench` says more"]
        for o in self.outputs:
            compared = "right" if o.objection is None else "NOT CHECKED"
            verdict = f"WRONG in {o.wrong} elements" if o.wrong else compared
            said = f"greatest error {o.greatest_error:.3g}, {o.ratio:.3g} of its bound (4 allowed)"
            undecided = f", {o.undecided} undecided" if o.undecided else ""
            of = f" of {o.of}" if o.elements < o.of else ""
            lines.append(f"  {o.name}: {o.elements}{of} elements{undecided}, {said}: {verdict}")
        if self.coverage:
            lines.append(f"  {self.coverage}")
        lines += [f"  not right: {why}" for why in self.objections]
        if self.written:
            lines.append(f"  arrays in {self.written}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The object that `texpr run --json` prints."""
        return {
            **self.ran.to_json(),
            "checked": self.checked,
            "passed": self.passed,
            "time_us": self.time_s * 1e6,
            "coverage": self.coverage,
            "objections": list(self.objections),
            "outputs": [
                {
                    "name": o.name,
                    "elements": o.of,
                    "compared": o.elements - o.undecided,
                    "undecided": o.undecided,
                    "greatest_error": o.greatest_error,
                    "ratio_to_bound": o.ratio,
                    "wrong": o.wrong,
                }
                for o in self.outputs
            ],
        }


def strided(values: Any, strides: tuple[int, ...], align: int) -> Any:
    """A copy of `values` laid out with the given strides (elements) on memory aligned to `align` bytes."""
    import numpy

    size = values.dtype.itemsize
    _, end = reach(values.shape, strides)
    align = max(align, 64)
    memory = numpy.zeros(end * size + align, numpy.uint8)
    offset = -memory.ctypes.data % align
    array = numpy.ndarray(values.shape, values.dtype, memory.data, offset, [s * size for s in strides])
    array[...] = values
    return array


def _retype(values: Any, parameter: Parameter) -> Any:
    """An input array in the parameter's type; NumPy stores bf16 and f8 as raw bytes of the same width."""
    from texpr.runtime.host_arrays import numpy_dtype

    dtype = numpy_dtype(ELEMENT_TYPES[parameter.dtype])
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "V" and values.dtype.itemsize == dtype.itemsize:
        return values.view(dtype)
    raise fail("E0601", f"{parameter.name} has type {values.dtype} and needs {parameter.dtype}")


def _scalar(value: Any, parameter: Parameter) -> Any:
    """A number of Python from a number, or from an array that holds one. Raises E0601 for another array."""
    if not hasattr(value, "dtype"):
        return value
    if value.shape != ():
        raise fail("E0601", f"{parameter.name} is a scalar, and an array of shape {value.shape} was given")
    if value.dtype.kind == "V":
        value = _retype(value, parameter)
    number = value.item()
    return float(number) if ELEMENT_TYPES[parameter.dtype].is_float and value.dtype.kind == "V" else number


def _check_range(manifest: Manifest, scalars: Mapping[str, int | float | bool]) -> None:
    """E0601 for a finite number that the parameter's float type has no room for: a call would round it to infinity."""
    import numpy

    from texpr.runtime.host_arrays import numpy_dtype

    for parameter in manifest.parameters:
        value, dtype = scalars.get(parameter.name), ELEMENT_TYPES[parameter.dtype]
        if value is None or not parameter.scalar or not dtype.is_float:
            continue
        try:
            with numpy.errstate(over="ignore"):
                stored = float(numpy.float64(value).astype(numpy_dtype(dtype)))
            fits = math.isfinite(stored) or not math.isfinite(value)
        except OverflowError:  # an integer beyond f64
            fits = False
        if not fits:
            raise fail("E0601", f"{manifest.name}: {parameter.name} = {str(value)[:40]} does not fit {dtype}")


def trial_sizes(manifest: Manifest, sizes: Mapping[str, int], given: Mapping[str, Any]) -> dict[str, int]:
    """Every size of a call: given, or solved from the arrays of a file. Raises E0602."""
    from texpr.runtime.arguments import solve_sizes

    shapes = {
        p.name: tuple(given[p.name].shape)
        if p.shape and p.name in given and len(given[p.name].shape) == len(p.shape)
        else (-1,) * len(p.shape)
        for p in manifest.parameters
    }
    return solve_sizes(manifest, shapes, sizes)


def make_arguments(
    kernel: "ast.Kernel",
    manifest: Manifest,
    solved: Mapping[str, int],
    seed: int,
    given: Mapping[str, Any],
    *,
    uniform: bool = False,
) -> dict[str, Any]:
    """Arrays and scalars for a call, given ones first; `uniform` draws floats of all bits even where sums of them are
    then rounded. Raises E0601."""
    from texpr.runtime.arguments import scalar_value

    limits, bits = gather_limits(kernel, solved), None if uniform else sample_bits(kernel, solved)
    values: dict[str, Any] = {}
    for p in manifest.parameters:
        shape = () if p.scalar else tuple(evaluate(extent, solved) for extent in p.shape)
        is_given = p.name in given
        found = given[p.name] if is_given else random_array(p, shape, seed, limit=limits.get(p.name), bits=bits)
        if p.scalar:
            values[p.name] = scalar_value(manifest, p, _scalar(found, p))
            continue
        found = _retype(found, p)
        if p.flat:
            values[p.name] = strided(found.reshape(-1), (1,), p.align)
        else:
            values[p.name] = strided(found, tuple(evaluate(s, solved) for s in p.strides), p.align)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A compiled kernel with the arguments of a call, ready to run: `solved` has all sizes."""

    kernel: "ast.Kernel"
    compiled: "Compiled"
    solved: Mapping[str, int]
    values: dict[str, Any]

    @property
    def free(self) -> dict[str, int]:
        return {name: self.solved[name] for name in self.compiled.dynamic}

    @property
    def ran(self) -> Ran:
        """What its reports begin with."""
        compiled = self.compiled
        return Ran(
            kernel=compiled.name,
            target=compiled.target,
            sizes=self.solved,
            dynamic=compiled.dynamic,
            warnings=compiled.warnings,
        )

    @property
    def on_host(self) -> bool:
        return not self.compiled.target.startswith("cuda:")

    def call(self, arrays: Mapping[str, Any], **stream: Any) -> None:
        """One call with arrays and scalars by name: they go by position, for a parameter may be called `stream`."""
        self.compiled(*(arrays[p.name] for p in self.compiled.manifest.parameters), **self.free, **stream)


def prepare_trial(
    kernel: "Kernel",
    target: str,
    *,
    sizes: Mapping[str, int],
    types: Mapping[str, str] | None = None,
    scalars: Mapping[str, int | float | bool] | None = None,
    mapping: "Choices | Mapping[str, Any] | None" = None,
    tuned: bool = False,
    dynamic: Sequence[str] = (),
    seed: int = 0,
    inputs: Path | None = None,
    check: bool = False,
    beside: int = 0,
    warned: Callable[[tuple[Diagnostic, ...]], None] | None = None,
) -> Trial:
    """Compile a kernel and draw its arguments; parameters that neither `inputs` nor `scalars` has are random, and sizes
    that the kernel or `dynamic` names stay free. Whoever runs it takes `beside` bytes more; `warned` is told the
    program's warnings. Raises TExprError for anything wrong."""
    core = kernel.core(types=types, sizes=sizes)
    manifest = signature(core, target, VERSION)
    given = load_inputs(inputs, manifest) if inputs is not None else {}
    _check_range(manifest, scalars or {})
    twice = sorted(set(given) & set(scalars or {}))
    if twice:
        raise fail("E0601", f"{twice[0]} is given by -D and by {inputs}", help="give it once")
    solved = trial_sizes(manifest, sizes, given)
    check_memory(core, manifest, solved, check=check, workspace=beside)
    free = (*kernel.dynamic, *dynamic)
    static = {name: value for name, value in sizes.items() if name not in free}
    compiled = kernel.compile(target, types=types, sizes=static, dynamic=dynamic, mapping=mapping, tuned=tuned)
    if warned is not None:
        warned(compiled.warnings)
    if not compiled.target.startswith("cuda:"):
        check_memory(core, manifest, solved, check=check, workspace=["+", compiled.manifest.workspace_bytes, beside])
    values = make_arguments(core, manifest, solved, seed, {**given, **(scalars or {})})
    return Trial(kernel=core, compiled=compiled, solved=solved, values=values)


def run_trial(
    kernel: "Kernel",
    target: str,
    *,
    output: Path | None = None,
    check: bool = False,
    full: bool = False,
    seed: int = 0,
    bar: "Progress | None" = None,
    **prepared: Any,
) -> TrialReport:
    """Prepare a trial, run and optionally check it.

    A check of a large run compares a sample unless it is to be `full`; `bar` shows how far it is. Raises TExprError for
    anything that is wrong."""
    import numpy

    from texpr.grammar.interpret.stage import interpret

    trial = prepare_trial(kernel, target, check=check, seed=seed, **prepared)
    compiled, values = trial.compiled, trial.values
    before = {name: value.copy() if hasattr(value, "copy") else value for name, value in values.items()}
    time_s = time_of_a_run(trial)
    outputs: list[Comparison] = []
    coverage = ""
    if check:
        above = math.inf if full else SAMPLE_ABOVE
        sample = choose_sample(compiled.build.result("prove").program, trial.solved, seed, above)
        coverage = sample.sentence(above)
        if bar is not None:
            bar.expect(sample.cost)
        chains = {name: found.chain for name, found in compiled.sums(**trial.free).items()}
        reference = interpret(
            trial.kernel,
            before,
            float64=True,
            sizes=trial.solved,
            chains=chains,
            chosen=sample.indices,
            sampled=sample.buffers & {p.name for p in compiled.manifest.parameters if not p.scalar},
            advance=None if bar is None else bar.advance,
        )
        for parameter in compiled.manifest.parameters:
            name = parameter.name
            if parameter.mode != "read" and not parameter.scalar:
                zero = numpy.zeros(reference.outputs[name].shape)
                bound = reference.bounds.get(name, zero)
                undecided = reference.undecided.get(name, zero.astype(bool))
                some = reference.compared.get(name)
                outputs.append(compare(name, values[name], reference.outputs[name], bound, undecided, some))
    if output is not None:
        save_arrays(output, values)
    return TrialReport(
        ran=trial.ran,
        time_s=time_s,
        outputs=tuple(outputs),
        checked=check,
        coverage=coverage,
        written=str(output) if output else None,
        arrays=values,
    )


def time_of_a_run(trial: Trial) -> float:
    """Run it, and the seconds that the call took; on a GPU copies of the arrays, with the wait for it. Raises E0503
    without a GPU."""
    if trial.on_host:
        trial.compiled.make_ready()
        begin = time.perf_counter()
        trial.call(trial.values)
        return time.perf_counter() - begin
    from texpr.runtime.gpu_arrays import on_gpu

    with on_gpu(trial.values) as (arrays, stream):
        trial.compiled.make_ready()
        stream.synchronize()
        begin = time.perf_counter()
        trial.call(arrays, stream=stream)
        stream.synchronize()
        return time.perf_counter() - begin
