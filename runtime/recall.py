"""Calls that look like an earlier one are checked for what may differ, their addresses; all others go the long way.

The look of a NumPy, torch or CuPy array is its library, shape, strides, type and device. Sizes, shapes, strides and
types of a call with known looks need no second check; memory, alignment and overlap do. Whatever is unusual goes
through `bind_arguments`, which raises the errors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from texpr.codegen.manifest import Manifest
from texpr.runtime.arguments import bind_arguments, scalar_value
from texpr.runtime.arrays import CUDA, ArrayView
from texpr.runtime.streams import Lookup, current_stream, libraries_of, library_of

MAX_SEEN = 64  # kinds of calls that one kernel remembers


# The library stands first: to CuPy's device 0, NumPy's `writeable` False is equal.
Look = tuple[Any, ...]
Looker = Callable[[Any, list[int]], Look]  # of an array, whose address is put behind the others


def _numpy_look(value: Any, addresses: list[int]) -> Look:
    addresses.append(value.__array_interface__["data"][0])
    return "numpy", value.shape, value.strides, value.dtype, value.flags.writeable


def _torch_look(value: Any, addresses: list[int]) -> Look:
    addresses.append(value.data_ptr())
    return "torch", value.shape, value.stride(), value.dtype, value.device, value.is_neg()


def _cupy_look(value: Any, addresses: list[int]) -> Look:
    memory = value.data
    addresses.append(memory.ptr)
    return "cupy", value.shape, value.strides, value.dtype, memory.device_id


_LOOKS: dict[tuple[str, str], Looker] = {
    ("numpy", "ndarray"): _numpy_look,
    ("torch", "Tensor"): _torch_look,
    ("cupy", "ndarray"): _cupy_look,
}


class _LookByType(dict[type, Looker]):
    """Those above, as far as their libraries have been seen. Raises KeyError for arrays that have no looks."""

    def __missing__(self, kind: type) -> Looker:
        look = self[kind] = _LOOKS[kind.__module__, kind.__name__]
        return look


_look_by_type = _LookByType()


def looks_of(values: Iterable[Any]) -> tuple[tuple[Look, ...], list[int]] | None:
    """The looks of arrays and their addresses; None where one is of another library, or has no look."""
    addresses: list[int] = []
    try:
        return tuple([_look_by_type[type(value)](value, addresses) for value in values]), addresses
    except Exception:  # torch's sparse and wrapped tensors have no strides or address; `view_of` says what they are
        return None


@dataclass(slots=True, eq=False)
class Seen:
    """What calls of one look have in common: the first and last byte of each array relative to its address (None:
    empty), what addresses must be multiples of (which, of what), the distances at which two arrays share memory that
    one of them is written in (from, to, more than, less than), the sizes, the device's number, and how its current
    stream is found (None: there are no streams). `owners` keep the memory of arrays that have no looks. A launcher
    keeps in `plans` what it derived from the sizes, and from what it asked of the addresses, and in `ready` what it
    started, by all that a call gave."""

    reaches: tuple[tuple[int, int] | None, ...]
    aligned: tuple[tuple[int, int], ...]
    clashes: tuple[tuple[int, int, int, int], ...]
    sizes: Mapping[str, int]
    device: int
    stream: Lookup | None = None
    owners: tuple[Any, ...] = ()
    plans: dict[tuple[int, ...], Any] = field(default_factory=dict)
    ready: dict[tuple[Any, ...], Any] = field(default_factory=dict)


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
        self._last: tuple[Any, Any] = None, None

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None = None) -> Call:
        """The checked arguments of a call on a stream, if it names one. Raises what `bind_arguments` raises."""
        return self.check(self.recall(args, kwargs), args, kwargs, stream)

    def recall(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        """A call of known looks; what may differ in it, its addresses, is yet to be checked."""
        values = self._in_order(args, kwargs) if kwargs else args
        if values is None or len(values) != len(self._names):
            return None
        found = looks_of([values[k] for k in self._positions] if self._scalars else values)
        if found is None:
            return None
        looks, addresses = found
        last, seen = self._last
        if looks != last:  # equality takes half as long as a hash
            seen = self._seen.get(looks)
            if seen is None:
                return None
            self._last = looks, seen
        scalars = [scalar_value(self._manifest, p, values[k]) for k, p in self._scalars] if self._scalars else []
        return seen, addresses, scalars

    def check(
        self, found: Call | None, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None = None
    ) -> Call:
        """What `recall` found, where it is right; otherwise the long way."""
        if found is not None and _apart(found[0], found[1]):
            return found
        return self._learn(args, kwargs, stream)

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """All arguments by position; None where sizes are among them, or something is wrong."""
        rest = self._names[len(args) :]
        if len(rest) != len(kwargs) or any(name not in kwargs for name in rest):
            return None
        return [*args, *(kwargs[name] for name in rest)]

    def _learn(self, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None) -> Call:
        """The long way; a call that gives no sizes, of arrays that have looks, is remembered."""
        bound = bind_arguments(self._manifest, args, kwargs, self._devices, stream)
        found = (
            None
            if any(name not in self._names for name in kwargs)
            else looks_of([bound.objects[p.name] for _, p in self._arrays])
        )
        views = [bound.arrays[p.name] for _, p in self._arrays]
        reaches = tuple(map(_reach, views))
        seen = Seen(
            reaches,
            tuple((k, align) for k, (align, _) in enumerate(self._demands) if reaches[k] is not None),
            tuple(_clashes(reaches, self._demands)),
            bound.sizes,
            views[0].device[1] if views else 0,
            self._stream(bound.objects) if CUDA in self._devices else None,
            tuple(view.owner for view in views if view.owner is not None),
        )
        if found is not None:
            if len(self._seen) >= MAX_SEEN:  # sizes that change for ever must not end the memory of those in use
                self._seen.clear()
            self._seen[found[0]] = seen
        return seen, [view.pointer for view in views], [bound.scalars[p.name] for _, p in self._scalars]

    def _stream(self, objects: Mapping[str, Any]) -> Lookup:
        """How a call of these arrays finds its stream: DLPack makes what is read ready on it, but not what is written,
        and a bare view says nothing of who works on it."""
        for _, parameter in self._arrays:
            value = objects[parameter.name]
            if library_of(value) is None and (parameter.writes or isinstance(value, ArrayView)):
                return current_stream((), foreign=parameter.name)
        return current_stream(libraries_of(objects.values()))


def _apart(seen: Seen, addresses: Sequence[int]) -> bool:
    """Whether all arrays are in memory and aligned, and none that is written shares a byte with another; otherwise a
    closer look is needed."""
    for which, align in seen.aligned:
        address = addresses[which]
        if address % align or address <= 0:  # torch's tensors may lose their memory and keep their shape
            return False
    for first, second, low, high in seen.clashes:  # noqa: SIM110 -- a generator would take longer than the question
        if low < addresses[second] - addresses[first] < high:
            return False
    return True


def _clashes(
    reaches: Sequence[tuple[int, int] | None], demands: Sequence[tuple[int, bool]]
) -> Iterator[tuple[int, int, int, int]]:
    """For each two arrays that have elements, one of which is written, the distances at which they share a byte."""
    for second, (to, (_, writes)) in enumerate(zip(reaches, demands, strict=True)):
        for first, (of, (_, also)) in enumerate(zip(reaches[:second], demands, strict=False)):
            if of is not None and to is not None and (writes or also):
                yield first, second, of[0] - to[1], of[1] - to[0]


def _reach(view: ArrayView) -> tuple[int, int] | None:
    if view.is_empty:
        return None
    low, high = view.byte_range
    return low - view.pointer, high - view.pointer
