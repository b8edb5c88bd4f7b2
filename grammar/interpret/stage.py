"""The reference interpreter: what a kernel means, as NumPy arrays in and out. It is the definition that the
simulator, the `cpu` target and CUDA are compared with.

    interpret(kernel, {"A": a, "B": b, "C": c}).outputs["C"]

Two modes. *fast* runs each statement over all iterations of its enclosing `par`s at once and takes the program to be
legal (`fast`). *exact* runs one iteration after the other, those of a `par` in random order, and watches
every element for races, undefined reads and accesses out of bounds (`exact`); it also runs illegal programs,
to replay a witness.

With `float64` every float is a float64 without rounding at binds, beside a first-order bound on what a conforming
implementation may deviate by: got is right iff `|got - outputs| <= 4 * bounds`, except where `undecided`
(`bound`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.ast import Buffer, IndexExpr, Kernel, Role, SizeVar
from texpr.grammar.check.bind import bind_sizes, check_sizes
from texpr.grammar.core import buffers_written
from texpr.grammar.diagnostics import Diagnostic, fail
from texpr.grammar.index.expr import size_names
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.bound import Bounded
from texpr.grammar.interpret.bounded_cells import BoundedArithmetic, BoundedCells
from texpr.grammar.interpret.cells import Cells, PlainArithmetic, PlainCells
from texpr.grammar.interpret.exact import ExactInterpreter
from texpr.grammar.interpret.fast import GRID_LIMIT, FastInterpreter
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType, Kind

Array = NDArray[Any]
Value = Any  # an array, or a Python or NumPy scalar


@dataclass(frozen=True, kw_only=True)
class Interpretation:
    """The final content of every array parameter, by name, in the shape that was passed.

    `outputs` are in storage types, floats in float64 under `float64`. `bounds` (floats: greatest legal deviation is
    4 times it, infinite where undecided) and `undecided` are filled under `float64` only. `violations` are what exact
    mode found under `collect`; `sizes` has every size.
    """

    outputs: dict[str, Array]
    bounds: dict[str, Array] = field(default_factory=dict)
    undecided: dict[str, Array] = field(default_factory=dict)
    compared: dict[str, Array] = field(default_factory=dict)
    violations: tuple[Diagnostic, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)


def interpret(
    kernel: Kernel,
    arrays: Mapping[str, Value],
    *,
    mode: Literal["fast", "exact"] = "fast",
    float64: bool = False,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    collect: bool = False,
    chains: Mapping[str, int] | None = None,
    chosen: Mapping[str, Array] | None = None,
    sampled: Collection[str] = (),
    advance: Callable[[int], None] | None = None,
) -> Interpretation:
    """Runs `kernel` on copies of `arrays`: one array per array parameter in its storage type, scalars as Python or
    NumPy scalars, by name.

    Sizes come from `sizes`, the arrays' shapes and the kernel's defaults. `seed` orders the iterations of `par`s in
    exact mode. Exact mode with `float64` checks the program on the rounded types, then gives the float64 values of
    fast mode. `collect` (exact mode) goes on after a violation and returns one diagnostic per kind and place. `chains`
    has the longest chain of additions into each buffer of the implementation that bounds are for; a buffer without one
    is taken to be summed serially. Of the loops that `chosen` names by index only those iterations run, and `compared`
    says which elements of the `sampled` buffers they wrote. `advance` is told how many statement instances each step
    ran. (These four are for float64 only.)

    Raises TExprError: E0601 for arguments that do not fit, E0602 for an unknown size, E0211 for sizes that a `where`
    or a divisor forbids, E0603 for arrays that overlap, E0302 and E0604 for subscripts out of bounds, E0403 for a
    local too large, E0502 for `asm`; in exact mode E0301, E0303, E0304 and E0305 too.
    """
    known = solve_sizes(kernel, arrays, sizes or {})
    kernel = bind_sizes(kernel, known)
    given = check_arguments(kernel, arrays, known)
    try:
        violations: tuple[Diagnostic, ...] = ()
        if mode == "exact":
            flat, violations = run_exact(kernel, given, known, seed, collect)
        elif not float64:
            flat = run_fast(kernel, given, known)
        if not float64:
            return Interpretation(outputs=shaped(kernel, given, flat), violations=violations, sizes=known)
        marks = {name: np.zeros(given[name].size, dtype=np.bool_) for name in sampled}
        bounded = run_bounded(kernel, given, known, chains or {}, chosen=chosen, marks=marks, advance=advance)
        return Interpretation(
            outputs=shaped(kernel, given, {n: c.value for n, c in bounded.items()}),
            bounds=shaped(kernel, given, {n: c.bounds() for n, c in bounded.items()}),
            undecided=shaped(kernel, given, {n: c.undecided for n, c in bounded.items()}),
            compared={name: found.reshape(given[name].shape) for name, found in marks.items()},
            violations=violations,
            sizes=known,
        )
    except RecursionError:
        raise fail("E0103", "the kernel is nested too deeply to be interpreted", kernel.span) from None
    except MemoryError:
        raise fail("E0403", "the interpreter needs more memory than there is", kernel.span) from None


def run_fast(kernel: Kernel, given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The parameters' flat contents after a run in storage types."""
    cells = {b.name: PlainCells(b.dtype, stored(given[b.name]), ()) for b in kernel.params}
    memory: dict[str, Cells[Array]] = dict(cells)
    FastInterpreter(kernel, sizes, PlainArithmetic(), memory).run()
    return {name: cell.flat for name, cell in cells.items()}


def run_exact(
    kernel: Kernel, given: Mapping[str, Array], sizes: Mapping[str, int], seed: int, collect: bool
) -> tuple[dict[str, Array], tuple[Diagnostic, ...]]:
    """The parameters' flat contents after a watched run, and what it found under `collect`."""
    flat = {name: stored(values) for name, values in given.items()}
    exact = ExactInterpreter(kernel, sizes, flat, seed=seed, collect=collect)
    exact.run()
    return flat, tuple(exact.violations)


def run_bounded(
    kernel: Kernel, given: Mapping[str, Array], sizes: Mapping[str, int], chains: Mapping[str, int], **sample: Any
) -> dict[str, BoundedCells]:
    """The parameters' cells after a float64 run."""
    cells = {b.name: BoundedCells.of(b.dtype, stored(given[b.name]), (), chains.get(b.name)) for b in kernel.params}
    memory: dict[str, Cells[Bounded]] = dict(cells)
    FastInterpreter(kernel, sizes, BoundedArithmetic(chains), memory, grid_limit=GRID_LIMIT // 4, **sample).run()
    return cells


def stored(values: Array) -> Array:
    """A flat copy in row-major order."""
    return np.array(values, order="C").reshape(-1)


def shaped(kernel: Kernel, given: Mapping[str, Array], flat: Mapping[str, Array]) -> dict[str, Array]:
    """The flat contents of the array parameters in the shapes of the arguments."""
    return {b.name: flat[b.name].reshape(given[b.name].shape) for b in kernel.params if b.role is Role.PARAM}


# ---- arguments -------------------------------------------------------------------------------------------------


def solve_sizes(kernel: Kernel, arrays: Mapping[str, Value], sizes: Mapping[str, int]) -> dict[str, int]:
    """Every size of the kernel: given by keyword, an extent of an array, a stride of one, or a default. E0211, E0602
    otherwise."""
    sizes = {name: int(value) if isinstance(value, np.integer) else value for name, value in sizes.items()}
    check_sizes(kernel, sizes)
    known = {size.name: size.default for size in kernel.sizes if size.default is not None} | dict(sizes)
    lengths = [
        (extent, int(length))
        for buffer in kernel.params
        if not buffer.flat and len(shape := getattr(arrays.get(buffer.name), "shape", ())) == len(buffer.shape)
        for extent, length in zip(buffer.shape, shape, strict=True)
    ]
    solved = -1
    while solved < len(known):
        solved = len(known)
        for extent, length in lengths:
            unknown = {name for name in size_names(extent) if name not in known}
            if len(unknown) == 1:
                name = unknown.pop()
                value = solve_linear(extent, name, known, length)
                if value is not None:
                    known[name] = value
        if solved == len(known):
            _solve_stride(kernel, arrays, known)
    for size in kernel.sizes:
        if size.name not in known:
            raise fail(
                "E0602",
                f"size `{size.name}` of `{kernel.name}` follows from no array's shape",
                size.span,
                help=f"pass it: sizes={{'{size.name}': …}}",
            )
    return known


def _solve_stride(kernel: Kernel, arrays: Mapping[str, Value], known: dict[str, int]) -> None:
    """One size that is a stride by itself, `#strides(lda, 1)`, from an array's strides, as a call solves it."""
    found: dict[str, int] = {}
    for buffer in kernel.params:
        array = arrays.get(buffer.name)
        if buffer.strides is None or not isinstance(array, np.ndarray) or array.ndim != len(buffer.strides):
            continue
        for axis, expr in enumerate(buffer.strides):
            if isinstance(expr, SizeVar) and expr.name not in known and array.strides[axis] >= 0:
                stride = array.strides[axis] // array.itemsize
                if array.shape[axis] > 1 and array.size:
                    known[expr.name] = stride
                    return
                found.setdefault(expr.name, max(stride, int(np.prod(array.shape[axis + 1 :]))))
    known.update(found)


def solve_linear(extent: IndexExpr, name: str, known: Mapping[str, int], length: int) -> int | None:
    """The value of `name` that gives the extent this length, if it stands there linearly: 2 * N + 1, N + M."""
    at = [int(index_value(extent, {**known, name: value})) for value in (0, 1)]
    slope = at[1] - at[0]
    if slope == 0 or (length - at[0]) % slope:
        return None
    value = (length - at[0]) // slope
    return value if value >= 0 and int(index_value(extent, {**known, name: value})) == length else None


def check_arguments(kernel: Kernel, arrays: Mapping[str, Value], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The arguments as arrays, scalars of rank 0, each checked against its parameter; E0601 and E0603 otherwise."""
    params = {b.name: b for b in kernel.params}
    for name in arrays:
        if name not in params:
            raise fail("E0601", f"`{kernel.name}` has no parameter `{name}`", kernel.span)
    given: dict[str, Array] = {}
    for buffer in kernel.params:
        if buffer.name not in arrays:
            raise fail("E0601", f"argument `{buffer.name}` of `{kernel.name}` is missing", buffer.span)
        value = arrays[buffer.name]
        if buffer.role is Role.SCALAR:
            given[buffer.name] = scalar(buffer, value)
        else:
            given[buffer.name] = checked_array(buffer, value, sizes)
    refuse_overlap(kernel, given)
    return given


def checked_array(buffer: Buffer, value: Value, sizes: Mapping[str, int]) -> Array:
    """The array as it is, if its type and shape fit."""
    if not isinstance(value, np.ndarray):
        raise fail("E0601", f"argument `{buffer.name}` is no NumPy array but {type(value).__name__}", buffer.span)
    expected = numerics.storage(buffer.dtype)
    if value.dtype != expected:
        raise fail("E0601", f"argument `{buffer.name}` has type {value.dtype}; {expected} is needed", buffer.span)
    shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
    if buffer.flat:
        if value.size < shape[0]:
            raise fail(
                "E0601", f"argument `{buffer.name}` has {value.size} elements; {shape[0]} are needed", buffer.span
            )
    elif value.shape != tuple(max(0, extent) for extent in shape):
        raise fail("E0601", f"argument `{buffer.name}` has shape {value.shape}; {shape} is needed", buffer.span)
    return value


def scalar(buffer: Buffer, value: Value) -> Array:
    """A scalar argument in its parameter's type: floats are rounded to it, integers must fit it."""
    item = (
        value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0) else value
    )
    if isinstance(item, int | float | bool) and fits(item, buffer.dtype):
        return numerics.constant(item, buffer.dtype)
    raise fail(
        "E0601", f"argument `{buffer.name}` is {value!r}; a scalar of type {buffer.dtype} is needed", buffer.span
    )


def fits(item: int | float | bool, dtype: DType) -> bool:
    """Whether a Python scalar may stand for a value of `dtype`."""
    match dtype.kind:
        case Kind.BOOL:
            return isinstance(item, bool)
        case Kind.FLOAT:
            return not isinstance(item, bool)
        case Kind.SIGNED | Kind.UNSIGNED:
            low, high = dtype.integer_range
            return isinstance(item, int) and not isinstance(item, bool) and low <= item <= high


def refuse_overlap(kernel: Kernel, given: Mapping[str, Array]) -> None:
    """E0603 when two array arguments share memory, unless both are only read."""
    params = [b for b in kernel.params if b.role is Role.PARAM]
    written = buffers_written(kernel)
    for number, buffer in enumerate(params):
        for other in params[:number]:
            left, right = given[other.name], given[buffer.name]
            if (buffer.name in written or other.name in written) and np.shares_memory(left, right):
                raise fail(
                    "E0603",
                    f"arguments `{other.name}` and `{buffer.name}` share memory",
                    buffer.span,
                    help="pass one `inout` parameter, or a copy",
                )
