"""From a call's arguments to checked views and solved sizes: everything that can be wrong is an error before launch.

Bound(arrays={"A": view, …}, scalars={"alpha": 2.0}, sizes={"M": 512, …}) for `kernel(A, B, C, alpha=2.0)`.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from texpr.codegen.manifest import JsonCondition, JsonExpr, Manifest, Parameter, evaluate, holds, names_of, text_of
from texpr.grammar.diagnostics import TExprError, did_you_mean, fail
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.arrays import ArrayView, view_of
from texpr.runtime.streams import LEGACY, current_stream, libraries_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The arguments of one call, checked: `objects` are the caller's arrays."""

    arrays: Mapping[str, ArrayView]
    objects: Mapping[str, Any]
    scalars: Mapping[str, int | float | bool]
    sizes: Mapping[str, int]


def _call_error(manifest: Manifest, why: str, help: str | None = None) -> TExprError:
    return fail("E0601", f"{manifest.name}: {why}", help=help)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def assign(manifest: Manifest, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The call's objects by parameter name, and the sizes given by keyword. Raises E0601 or E0602."""
    names = [p.name for p in manifest.parameters]
    if len(args) > len(names):
        raise _call_error(manifest, f"{len(args)} arguments for {len(names)} parameters ({_names(names)})")
    given = dict(zip(names, args, strict=False))
    sizes: dict[str, int] = {}
    for name, value in kwargs.items():
        if name in given:
            raise _call_error(manifest, f"parameter {name} is given twice")
        if name in names:
            given[name] = value
        elif name in manifest.sizes:
            sizes[name] = _size(manifest, name, value)
        else:
            why = f"there is no parameter or size {name[:80]!r}; they are {_names([*names, *manifest.sizes])}"
            raise _call_error(manifest, why, did_you_mean(name[:80], (*names, *manifest.sizes, "stream")))
    missing = [name for name in names if name not in given]
    if missing:
        stream = "`stream=` is the CUDA stream of a call: pass this parameter by position"
        raise _call_error(manifest, f"missing arguments: {_names(missing)}", stream if "stream" in missing else None)
    return given, sizes


def _size(manifest: Manifest, name: str, value: object) -> int:
    try:
        number = value.__index__()  # type: ignore[attr-defined]  # an int or a NumPy integer; else AttributeError
    except (AttributeError, TypeError):
        raise fail("E0602", f"{manifest.name}: size {name} is not an integer") from None
    if not 0 <= number < 2**62:
        raise fail("E0602", f"{manifest.name}: size {name} = {_digits(number)} is out of range")
    return int(number)


def _digits(number: int) -> str:
    """A number as messages show it; Python refuses to write one of thousands of digits."""
    return str(number) if number.bit_length() <= 128 else f"a number of {number.bit_length()} bits"


def scalar_value(manifest: Manifest, parameter: Parameter, value: Any) -> int | float | bool:
    """A scalar argument as a number of the parameter's type. Raises E0601 for anything else."""
    dtype = ELEMENT_TYPES[parameter.dtype]
    if hasattr(value, "item") and getattr(value, "shape", ()) == ():
        try:
            value = value.item()
        except Exception as why:  # a foreign object's own errors, of any class
            raise _call_error(manifest, f"{parameter.name} cannot be read: {str(why)[:200]}") from None
    if dtype.is_bool and isinstance(value, bool):
        return value
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        low, high = dtype.integer_range
        if low <= value <= high:
            return value
        raise _call_error(manifest, f"{parameter.name} = {_digits(value)} does not fit {dtype}")
    if dtype.is_float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _call_error(manifest, f"{parameter.name} does not fit {dtype}") from None
    raise _call_error(manifest, f"{parameter.name} is a scalar of type {dtype}, not a {type(value).__name__[:40]}")


def _solve(expr: JsonExpr, extent: int, sizes: dict[str, int]) -> bool:
    """Whether `expr == extent` gave a new size: an unknown name under + - * by known values is solved for."""
    while isinstance(expr, list):
        op, left, right = expr
        known = [_known(side, sizes) for side in (left, right)]
        if known[0] is None and known[1] is not None:
            value, expr = known[1], left
            if op == "+":
                extent -= value
            elif op == "-":
                extent += value
            elif op == "*" and value and extent % value == 0:
                extent //= value
            else:
                return False
        elif known[1] is None and known[0] is not None:
            value, expr = known[0], right
            if op == "+":
                extent -= value
            elif op == "-":
                extent = value - extent
            elif op == "*" and value and extent % value == 0:
                extent //= value
            else:
                return False
        else:
            return False
    if isinstance(expr, str) and expr not in sizes and extent >= 0:
        sizes[expr] = extent
        return True
    return False


def _solve_stride(
    manifest: Manifest,
    shapes: Mapping[str, tuple[int, ...]],
    strides: Mapping[str, tuple[int, ...]],
    sizes: dict[str, int],
) -> bool:
    """Whether a size that is a stride by itself was found: in a dimension that steps; where none does, the stride that
    a dense array would have, or the greater one that the array has."""
    found: dict[str, int] = {}
    for parameter in manifest.parameters:
        if parameter.flat or parameter.name not in strides:
            continue
        shape = shapes[parameter.name]
        for axis, (expr, stride) in enumerate(zip(parameter.strides, strides[parameter.name], strict=True)):
            if isinstance(expr, str) and expr not in sizes and stride >= 0:
                if shape[axis] > 1 and 0 not in shape:
                    sizes[expr] = stride
                    return True
                found.setdefault(expr, max(stride, prod(shape[axis + 1 :])))
    sizes.update(found)
    return bool(found)


def _known(expr: JsonExpr, sizes: Mapping[str, int]) -> int | None:
    stack, names = [expr], []
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, list):
            stack += item[1:]
    return evaluate(expr, sizes) if all(name in sizes for name in names) else None


def _sizes(
    manifest: Manifest,
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, int],
    strides: Mapping[str, tuple[int, ...]],
) -> dict[str, int]:
    """The sizes that are bound, given, or told by shapes and strides. Raises E0602 for one with two values."""
    sizes = {name: value for name, value in manifest.sizes.items() if value is not None}
    for name, value in given.items():
        if sizes.setdefault(name, value) != value:
            raise fail("E0602", f"{manifest.name}: this kernel was compiled for {name} = {sizes[name]}, not {value}")
    progress = True
    while progress and len(sizes) < len(manifest.sizes):
        progress = False
        for parameter in manifest.parameters:
            if parameter.scalar or parameter.flat:
                continue
            for expr, extent in zip(parameter.shape, shapes[parameter.name], strict=True):
                progress |= _known(expr, sizes) is None and _solve(expr, extent, sizes)
        progress = progress or _solve_stride(manifest, shapes, strides, sizes)
    return sizes


def check_extents(manifest: Manifest, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]) -> None:
    """What shapes alone tell of a call's arrays: ranks, extents and sizes that do not fit, E0601 and E0602. Sizes that
    are strides, and conditions on them, are left to the call."""
    arrays = [p for p in manifest.parameters if not p.scalar and not p.flat]
    for parameter in arrays:
        if len(shapes[parameter.name]) != len(parameter.shape):
            raise wrong_rank(manifest, parameter, len(shapes[parameter.name]))
    sizes = _sizes(manifest, shapes, given, {})
    for parameter in arrays:
        needed = [_known(expr, sizes) for expr in parameter.shape]
        for extent, need in zip(shapes[parameter.name], needed, strict=True):
            if need is not None and extent != max(need, 0):
                needs = [extent if extent is None else max(extent, 0) for extent in needed]
                shown = str(tuple(needs)).replace("None", "any")
                raise _call_error(manifest, f"{parameter.name} has shape {shapes[parameter.name]} and needs {shown}")
    _check_facts(manifest, sizes, [fact for fact in manifest.facts if names_of(fact) <= sizes.keys()])


def _check_facts(manifest: Manifest, sizes: Mapping[str, int], facts: Sequence[JsonCondition]) -> None:
    for fact in facts:
        try:
            right = holds(fact, sizes)
        except TExprError:  # a division by a size that is 0
            right = False
        if not right:
            named = names_of(fact)
            shown = ", ".join(f"{name} = {value}" for name, value in sizes.items() if name in named)
            raise fail("E0602", f"{manifest.name}: `where {text_of(fact)}` does not hold for {shown}")


def solve_sizes(
    manifest: Manifest,
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, int],
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, int]:
    """All sizes: bound ones, those given by keyword, and the rest from the arrays' shapes; one that is a stride by
    itself, as in `#strides(lda, 1)`, from the arrays' strides (in elements). Raises E0602."""
    sizes = _sizes(manifest, shapes, given, strides or {})
    missing = [name for name in manifest.sizes if name not in sizes]
    if missing:
        raise fail(
            "E0602",
            f"{manifest.name}: {_names(missing)} cannot be found from the arrays' shapes",
            help=_way_to_give(manifest, missing[0]),
        )
    _check_facts(manifest, sizes, manifest.facts)
    return sizes


def _way_to_give(manifest: Manifest, size: str) -> str:
    if manifest.target == "interpreter":
        return f"pass sizes={{{size!r}: …}}, or -D {size}=… on the command line"
    if size == "stream":
        return "`stream=` is the CUDA stream of a call: bind this size before, compile(stream=…), or rename it"
    return f"pass {size}=… by keyword, or -D {size}=… on the command line"


def strides_of(views: Mapping[str, ArrayView]) -> dict[str, tuple[int, ...]]:
    """The strides of arrays, in elements."""
    return {name: view.strides for name, view in views.items()}


def _check_array(manifest: Manifest, parameter: Parameter, view: ArrayView, sizes: Mapping[str, int]) -> None:
    name, shape = parameter.name, tuple(evaluate(expr, sizes) for expr in parameter.shape)
    if parameter.flat:
        count = 1
        for extent in view.shape:
            count *= extent
        if count < shape[0]:
            raise _call_error(manifest, f"{name} has {count} elements and needs {shape[0]}")
        want, step = [], 1
        for extent in reversed(view.shape):
            want.append(step)
            step *= max(extent, 1)
        if not view.is_dense(tuple(reversed(want))):
            raise _call_error(manifest, f"{name} is not contiguous", "pass a contiguous copy")
    else:
        shape = tuple(max(extent, 0) for extent in shape)
        if view.shape != shape:
            raise _call_error(manifest, f"{name} has shape {view.shape} and needs {shape}")
        strides = tuple(evaluate(expr, sizes) for expr in parameter.strides)
        if not view.is_dense(strides):
            raise _call_error(
                manifest, f"{name} has strides {view.strides} and needs {strides} (elements)", "pass a contiguous copy"
            )
    if view.readonly and parameter.writes:
        raise _call_error(manifest, f"{name} is written, and the array is read-only")
    if not view.is_empty and view.pointer % max(parameter.align, 1):
        raise _call_error(
            manifest,
            f"{name} is not aligned to {parameter.align} bytes",
            "pass an aligned copy, or declare `#align(n)` on the parameter",
        )


def _check_overlap(manifest: Manifest, arrays: Mapping[str, ArrayView]) -> None:
    """Distinct parameters do not overlap; two that are only read may."""
    writes = {p.name for p in manifest.parameters if p.writes}
    ranges = sorted((*view.byte_range, name) for name, view in arrays.items() if not view.is_empty)
    for index, (_, end, name) in enumerate(ranges):
        for start, _, other in ranges[index + 1 :]:
            if start >= end:
                break
            if name in writes or other in writes:
                raise fail(
                    "E0603",
                    f"{manifest.name}: {min(name, other)} and {max(name, other)} share memory",
                    help="a buffer that is both read and written is one `inout` parameter",
                )


def wrong_rank(manifest: Manifest, parameter: Parameter, rank: int) -> TExprError:
    """E0601 for an array with another number of dimensions than its parameter."""
    has = f"{rank} dimension{'s' if rank != 1 else ''}"
    return _call_error(manifest, f"{parameter.name} has {has} and needs {len(parameter.shape)}")


def bind_arguments(
    manifest: Manifest,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    devices: Sequence[int],
    stream: int | None = None,
) -> Bound:
    """The checked arguments of a call. `devices` are the DLPack device types that the target runs on; arrays of
    libraries without current streams are made ready on `stream`, or on the current stream of the others.

    Raises E0601 (arguments, shapes, types, strides, alignment), E0602 (sizes), E0603 (overlap), E0605 (device).
    """
    given, keyword_sizes = assign(manifest, args, kwargs)

    def ready_on(device: int) -> int:
        found = current_stream(libraries_of(given.values()))(device) if stream is None else stream
        return found or LEGACY  # DLPack does not know 0

    arrays: dict[str, ArrayView] = {}
    scalars: dict[str, int | float | bool] = {}
    for parameter in manifest.parameters:
        value = given[parameter.name]
        if parameter.scalar:
            scalars[parameter.name] = scalar_value(manifest, parameter, value)
            continue
        view = view_of(parameter.name, value, ready_on)
        if view.dtype.name != parameter.dtype:
            raise _call_error(manifest, f"{parameter.name} has type {view.dtype} and needs {parameter.dtype}")
        if not parameter.flat and len(view.shape) != len(parameter.shape):
            raise wrong_rank(manifest, parameter, len(view.shape))
        if view.device[0] not in devices:
            where = {1: "the CPU", 2: "a GPU"}.get(view.device[0], f"DLPack device {view.device[0]}")
            raise fail(
                "E0605",
                f"{manifest.name}: {parameter.name} is on {where}, and target {manifest.target} does not run there",
                help="move the array, or compile for its device",
            )
        arrays[parameter.name] = view
    numbers = {view.device for view in arrays.values()}
    if len(numbers) > 1:
        raise fail("E0605", f"{manifest.name}: the arrays are on {len(numbers)} devices")
    sizes = solve_sizes(
        manifest, {name: view.shape for name, view in arrays.items()}, keyword_sizes, strides_of(arrays)
    )
    for parameter in manifest.parameters:
        if not parameter.scalar:
            _check_array(manifest, parameter, arrays[parameter.name], sizes)
    _check_overlap(manifest, arrays)
    return Bound(arrays=arrays, objects={name: given[name] for name in arrays}, scalars=scalars, sizes=sizes)
