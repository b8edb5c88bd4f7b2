"""Calls that look like an earlier one are checked for what may differ, their addresses; all others go the long way.

The look of a NumPy, torch or CuPy array is its library, shape, strides, type and device. Sizes, shapes, strides and
types of a call with known looks need no second check; memory, alignment and overlap do. Whatever is unusual goes
through `bind_arguments`, which raises the errors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from texpr.codegen.manifest import Manifest
from texpr.runtime.arguments import bind_arguments, scalar_value
from texpr.runtime.arrays import CUDA, ArrayView
from texpr.runtime.streams import Lookup, current_stream, libraries_of, library_of

MAX_SEEN = 64  # kinds of calls that one kernel remembers


# The library stands first: to CuPy's device 0, NumPy's `writeable` False is equal.
Look = tuple[tuple[Any, ...], int]


def _numpy_look(value: Any) -> Look:
    look = ("numpy", value.shape, value.strides, value.dtype, value.flags.writeable)
    return look, value.__array_interface__["data"][0]


def _torch_look(value: Any) -> Look:
    look = ("torch", value.shape, value.stride(), value.dtype, value.device, value.is_neg())
    return look, value.data_ptr()


def _cupy_look(value: Any) -> Look:
    memory = value.data
    return ("cupy", value.shape, value.strides, value.dtype, memory.device_id), memory.ptr


_LOOKS: dict[tuple[str, str], Callable[[Any], Look]] = {
    ("numpy", "ndarray"): _numpy_look,
    ("torch", "Tensor"): _torch_look,
    ("cupy", "ndarray"): _cupy_look,
}
_look_by_type: dict[type, Callable[[Any], Look]] = {}  # those above, as far as their libraries have been seen


def look_of(value: Any) -> Look | None:
    """The look of an array and its address; None for arrays of other libraries, and for those that have none."""
    kind = type(value)
    look = _look_by_type.get(kind)
    if look is None:
        look = _LOOKS.get((kind.__module__, kind.__name__))
        if look is None:
            return None
        _look_by_type[kind] = look
    try:
        return look(value)
    except Exception:  # torch's sparse and wrapped tensors have no strides or address; `view_of` says what they are
        return None


@dataclass(slots=True, eq=False)
class Seen:
    """What calls of one look have in common: the first and last byte of each array relative to its address (None:
    empty), the sizes, the device's number, and how its current stream is found (None: there are no streams). `owners`
    keep the memory of arrays that have no looks. A launcher keeps in `plans` what it derived from the sizes, and from
    what it asked of the addresses."""

    reaches: tuple[tuple[int, int] | None, ...]
    sizes: Mapping[str, int]
    device: int
    stream: Lookup | None = None
    owners: tuple[Any, ...] = ()
    plans: dict[tuple[int, ...], Any] = field(default_factory=dict)


Number = int | float | bool
Call = tuple[Seen, list[int], list[Number]]  # with the arrays' addresses and the scalars, in the order of parameters


class Binder:
    """`bind_arguments` for one kernel, with memory."""

    def __init__(self, manifest: Manifest, devices: Sequence[int]) -> None:
        self._manifest, self._devices = manifest, devices
        self._names = [p.name for p in manifest.parameters]
        self._arrays = [(k, p) for k, p in enumerate(manifest.parameters) if not p.scalar]
        self._scalars = [(k, p) for k, p in enumerate(manifest.parameters) if p.scalar]
        self._demands = [(max(p.align, 1), p.writes) for _, p in self._arrays]
        self._positions = [k for k, _ in self._arrays]
        self._seen: dict[Any, Seen] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None = None) -> Call:
        """The checked arguments of a call on a stream, if it names one. Raises what `bind_arguments` raises."""
        values = self._in_order(args, kwargs) if kwargs else args
        if values is None or len(values) != len(self._names):
            return self._learn(args, kwargs, None, stream)
        looks, addresses = self._looks(values)
        seen = self._seen.get(looks) if looks is not None else None
        if seen is None or not self._apart(seen, addresses):
            return self._learn(args, kwargs, looks, stream)
        scalars = [scalar_value(self._manifest, p, values[k]) for k, p in self._scalars] if self._scalars else []
        return seen, addresses, scalars

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """All arguments by position; None where sizes are among them, or something is wrong."""
        rest = self._names[len(args) :]
        if len(rest) != len(kwargs) or any(name not in kwargs for name in rest):
            return None
        return [*args, *(kwargs[name] for name in rest)]

    def _learn(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], looks: tuple[Any, ...] | None, stream: int | None
    ) -> Call:
        """The long way; a call that gives no sizes, of arrays that have looks, is remembered."""
        bound = bind_arguments(self._manifest, args, kwargs, self._devices, stream)
        views = [bound.arrays[p.name] for _, p in self._arrays]
        seen = Seen(
            tuple(map(_reach, views)),
            bound.sizes,
            views[0].device[1] if views else 0,
            self._stream(bound.objects) if CUDA in self._devices else None,
            tuple(view.owner for view in views if view.owner is not None),
        )
        if looks is not None:
            if len(self._seen) >= MAX_SEEN:  # sizes that change for ever must not end the memory of those in use
                self._seen.clear()
            self._seen[looks] = seen
        return seen, [view.pointer for view in views], [bound.scalars[p.name] for _, p in self._scalars]

    def _stream(self, objects: Mapping[str, Any]) -> Lookup:
        """How a call of these arrays finds its stream: DLPack makes what is read ready on it, but not what is written,
        and a bare view says nothing of who works on it."""
        for _, parameter in self._arrays:
            value = objects[parameter.name]
            if library_of(value) is None and (parameter.writes or isinstance(value, ArrayView)):
                return current_stream((), foreign=parameter.name)
        return current_stream(libraries_of(objects.values()))

    def _looks(self, values: Sequence[Any]) -> tuple[tuple[Any, ...] | None, list[int]]:
        looks: list[Any] = []
        addresses: list[int] = []
        for position in self._positions:
            found = look_of(values[position])
            if found is None:
                return None, addresses
            looks.append(found[0])
            addresses.append(found[1])
        return tuple(looks), addresses

    def _apart(self, seen: Seen, addresses: Sequence[int]) -> bool:
        """Whether all arrays are in memory and aligned, and none that is written shares a byte with another; otherwise
        a closer look is needed."""
        ranges = []
        for (align, writes), reach, address in zip(self._demands, seen.reaches, addresses, strict=True):
            if reach is not None:
                if address % align or address <= 0:  # torch's tensors may lose their memory and keep their shape
                    return False
                ranges.append((address + reach[0], address + reach[1], writes))
        ranges.sort()
        end = written_end = 0
        for low, high, writes in ranges:
            if low < (end if writes else written_end):
                return False
            end = max(end, high)
            if writes:
                written_end = max(written_end, high)
        return True


def _reach(view: ArrayView) -> tuple[int, int] | None:
    if view.is_empty:
        return None
    low, high = view.byte_range
    return low - view.pointer, high - view.pointer
