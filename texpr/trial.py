"""`texpr run`: a kernel on random or given arrays, compared with the float64 interpreter within its error bound."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr.codegen.artifact import signature
from texpr.codegen.manifest import Manifest, Parameter, evaluate
from texpr.grammar.diagnostics import Diagnostic, fail
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.compare import Comparison, compare
from texpr.trial_files import check_count, load_inputs, save_arrays
from texpr.version import VERSION

if TYPE_CHECKING:
    from texpr.grammar import ast
    from texpr.kernels import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    kernel: str
    target: str
    sizes: Mapping[str, int]
    outputs: tuple[Comparison, ...] = ()
    checked: bool = False
    written: str | None = None
    dynamic: tuple[str, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def passed(self) -> bool:
        return all(output.wrong == 0 for output in self.outputs)

    def __str__(self) -> str:
        free = dict.fromkeys(self.dynamic, " (dynamic)")
        sizes = ", ".join(f"{name}={value}{free.get(name, '')}" for name, value in self.sizes.items())
        lines = [f"{self.kernel} on {self.target}" + (f" with {sizes}" if sizes else "")]
        for o in self.outputs:
            verdict = "right" if o.wrong == 0 else f"WRONG in {o.wrong} elements"
            said = f"greatest error {o.greatest_error:.3g}, {o.ratio:.3g} of its bound (4 allowed)"
            undecided = f", {o.undecided} undecided" if o.undecided else ""
            lines.append(f"  {o.name}: {o.elements} elements{undecided}, {said}: {verdict}")
        if self.written:
            lines.append(f"  arrays in {self.written}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The object that `texpr run --json` prints."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "sizes": dict(self.sizes),
            "dynamic": list(self.dynamic),
            "warnings": [warning.to_json() for warning in self.warnings],
            "checked": self.checked,
            "passed": self.passed,
            "outputs": [
                {
                    "name": o.name,
                    "elements": o.elements,
                    "undecided": o.undecided,
                    "greatest_error": o.greatest_error,
                    "ratio_to_bound": o.ratio,
                    "wrong": o.wrong,
                }
                for o in self.outputs
            ],
        }


def gather_limits(kernel: "ast.Kernel", sizes: Mapping[str, int]) -> dict[str, int]:
    """For each integer buffer that subscripts are read from, the least extent that such a subscript indexes.

    A subscript may have passed through locals: `let p = idx[i]; A[p]` limits idx.
    """
    from texpr.grammar import ast
    from texpr.grammar.interpret_index import index_value
    from texpr.grammar.walk import walk

    limits: dict[str, int] = {}
    for node in walk(kernel):
        subscripts = getattr(node, "subscripts", None)
        name = getattr(node, "buffer", None)
        if not subscripts or not isinstance(name, str):
            continue
        shape = kernel.buffer(name).shape
        for subscript, extent in zip(subscripts, shape, strict=False):
            if isinstance(subscript, ast.Gather):
                if any(isinstance(part, ast.IndexVar) for part in walk(extent)):
                    continue  # a local's extent may depend on loop indices: no limit from it
                limit = int(index_value(extent, sizes))
                for read in walk(subscript):
                    if isinstance(read, ast.Read):
                        limits[read.buffer] = min(limits.get(read.buffer, limit), limit)
    binds = [node for node in walk(kernel) if isinstance(node, ast.Bind)]
    for bind in reversed(binds):  # a local is bound before it is read
        if bind.buffer not in limits or kernel.buffer(bind.buffer).role is not ast.Role.LOCAL:
            continue
        for read in walk(bind.value):
            if isinstance(read, ast.Read) and read.dtype.is_integer:
                limits[read.buffer] = min(limits.get(read.buffer, limits[bind.buffer]), limits[bind.buffer])
    return limits


def random_array(parameter: Parameter, shape: tuple[int, ...], seed: int, limit: int | None) -> Any:
    """A seeded random array: floats uniform in [-1, 1), integers small, gathered subscripts within `limit`."""
    import numpy

    from texpr.runtime.host_arrays import numpy_dtype

    count = 1
    for extent in shape:
        count *= max(extent, 0)
    check_count(parameter.name, count)
    generator = numpy.random.default_rng([seed, *parameter.name.encode()])
    dtype = ELEMENT_TYPES[parameter.dtype]
    shape = tuple(max(extent, 0) for extent in shape)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low = 0 if limit is not None or not dtype.integer_range[0] else -8
        high = max(min(limit if limit is not None else 8, dtype.integer_range[1]), low + 1)
        return generator.integers(low, high, shape).astype(numpy_dtype(dtype))
    return generator.uniform(-1.0, 1.0, shape).astype(numpy_dtype(dtype))


def strided(values: Any, strides: tuple[int, ...], align: int) -> Any:
    """A copy of `values` laid out with the given strides (elements) on memory aligned to `align` bytes."""
    import numpy

    size = values.dtype.itemsize
    reach = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) if values.size else 0
    align = max(align, 64)
    memory = numpy.zeros(reach * size + align, numpy.uint8)
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


def make_arguments(
    kernel: "ast.Kernel", sizes: Mapping[str, int], seed: int, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Arrays and scalars for a call, given ones first, and the solved sizes. Raises E0601, E0602."""
    from texpr.runtime.arguments import scalar_value, solve_sizes

    manifest = signature(kernel, "cpu", VERSION)
    shapes = {
        p.name: tuple(given[p.name].shape)
        if p.shape and p.name in given and len(given[p.name].shape) == len(p.shape)
        else (-1,) * len(p.shape)
        for p in manifest.parameters
    }
    solved = solve_sizes(manifest, shapes, sizes)
    limits = gather_limits(kernel, solved)
    values: dict[str, Any] = {}
    for p in manifest.parameters:
        if p.scalar:
            scalar = given[p.name] if p.name in given else random_array(p, (), seed, limits.get(p.name))
            values[p.name] = scalar_value(manifest, p, _scalar(scalar, p))
            continue
        shape = tuple(evaluate(extent, solved) for extent in p.shape)
        found = _retype(given[p.name], p) if p.name in given else random_array(p, shape, seed, limits.get(p.name))
        if p.flat:
            values[p.name] = strided(found.reshape(-1), (1,), p.align)
        else:
            values[p.name] = strided(found, tuple(evaluate(s, solved) for s in p.strides), p.align)
    return values, solved


def run_trial(
    kernel: "Kernel",
    target: str,
    *,
    sizes: Mapping[str, int],
    types: Mapping[str, str] | None = None,
    scalars: Mapping[str, int | float | bool] | None = None,
    seed: int = 0,
    inputs: Path | None = None,
    output: Path | None = None,
    check: bool = False,
) -> TrialReport:
    """Compile, run and optionally check a kernel; parameters that neither `inputs` nor `scalars` has are random. Raises
    TExprError for anything that is wrong."""
    import numpy

    from texpr.grammar.interpret import interpret

    core = kernel.core(types=types, sizes=sizes)
    manifest = signature(core, target, VERSION)
    given = load_inputs(inputs, manifest) if inputs is not None else {}
    _check_range(manifest, scalars or {})
    twice = sorted(set(given) & set(scalars or {}))
    if twice:
        raise fail("E0601", f"{twice[0]} is given by -D and by {inputs}", help="give it once")
    values, solved = make_arguments(core, sizes, seed, {**given, **(scalars or {})})
    compiled = kernel.compile(target, types=types, sizes=sizes)
    before = {name: value.copy() if hasattr(value, "copy") else value for name, value in values.items()}
    free = {name: solved[name] for name in compiled.dynamic}
    if target.startswith("cuda:"):
        _run_on_gpu(compiled, values, free)
    else:
        compiled(**values, **free)
    outputs: list[Comparison] = []
    if check:
        reference = interpret(core, before, float64=True, sizes=solved)
        for parameter in compiled.manifest.parameters:
            name = parameter.name
            if parameter.mode != "read" and not parameter.scalar:
                zero = numpy.zeros(reference.outputs[name].shape)
                bound = reference.bounds.get(name, zero)
                undecided = reference.undecided.get(name, zero.astype(bool))
                outputs.append(compare(name, values[name], reference.outputs[name], bound, undecided))
    if output is not None:
        save_arrays(output, values)
    return TrialReport(
        kernel=kernel.name,
        target=target,
        sizes=solved,
        outputs=tuple(outputs),
        checked=check,
        written=str(output) if output else None,
        dynamic=compiled.dynamic,
        warnings=compiled.warnings,
        arrays=values,
    )


def _run_on_gpu(compiled: Any, values: dict[str, Any], free: Mapping[str, int]) -> None:
    """Copy the arrays to the GPU, run, copy back, on a stream of our own. Raises E0503 without a GPU."""
    from texpr.runtime.gpu_arrays import on_gpu

    with on_gpu(values) as (arrays, stream):
        compiled(*(arrays[p.name] for p in compiled.manifest.parameters), **free, stream=stream)
