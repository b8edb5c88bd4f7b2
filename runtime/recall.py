"""Calls that look like an earlier one are checked for what may differ, their addresses; all others go the long way.

Sizes, shapes, strides and types of a call whose arrays have known looks need no second check; memory, alignment and
overlap do. Whatever is unusual goes through `bind_arguments`, which raises the errors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from texpr.codegen.manifest import Manifest, Parameter
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.arguments import bind_arguments, scalar_value
from texpr.runtime.arrays import CUDA, ArrayView
from texpr.runtime.looks import Fact, Guard, Look, Same, facts_of, guard_of, looks_in, plain_facts_of, same_of
from texpr.runtime.streams import Lookup, current_stream, device_of, libraries_of, library_of

MAX_SEEN = 64  # kinds of calls that one kernel remembers
_FLOATS = frozenset(name for name, dtype in ELEMENT_TYPES.items() if dtype.is_float)
MAX_GUARDS = 4  # of one kind: torch's differ with its modes


@dataclass(slots=True, eq=False)
class Seen:
    """What calls of one look have in common: the first and last byte of each array relative to its address (None:
    empty), what addresses must be multiples of (which, of what), the distances at which two arrays share memory that
    one of them is written in (from, to, more than, less than), the sizes, the device's number, how its current stream
    is found (None: there are no streams), and how a library says which device is current. `owners` keep the memory of
    arrays that have no looks. A launcher keeps in `plans` what it derived from the sizes, and from what it asked of the
    addresses."""

    reaches: tuple[tuple[int, int] | None, ...]
    aligned: tuple[tuple[int, int], ...]
    clashes: tuple[tuple[int, int, int, int], ...]
    sizes: Mapping[str, int]
    device: int
    stream: Lookup | None = None
    here: Callable[[], int] | None = None
    owners: tuple[Any, ...] = ()
    plans: dict[tuple[int, ...], Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Known:
    """The looks of a call and what is known of them. `guard` knows them again in a tenth of the time, where there is
    one; it may say no to them, so it is made anew, but not for ever: `guards` counts."""

    looks: tuple[Look, ...]
    seen: Seen
    guard: Guard | None = None
    guards: int = 0

    def look_again(self, arrays: Sequence[Any]) -> None:
        """Arrays have these looks, and the guard did not say so."""
        if self.guards < MAX_GUARDS:
            self.guards += 1
            self.guard = guard_of(arrays)


Number = int | float | bool
NO_NUMBERS: list[Number] = []  # never changed


@dataclass(slots=True, eq=False)
class Call:
    """What a call gives: the arrays' addresses and the scalars in the order of parameters. A call that gives what the
    last one gave is the same object: `checked` says that its addresses are right, `started` that a launcher has started
    it, which keeps in `again` on which stream it started what."""

    seen: Seen
    addresses: list[int]
    scalars: list[Number]
    checked: bool = False
    started: bool = False
    again: tuple[int | None, tuple[Any, ...] | None] = -1, None


@dataclass(slots=True, eq=False)
class Last:
    """The last call of a kernel; no facts where a guard knew its arrays. `same` knows the arrays themselves again."""

    known: Known
    facts: Sequence[Fact]
    call: Call
    same: Same | None = None


class Binder:
    """`bind_arguments` for one kernel, with memory."""

    def __init__(self, manifest: Manifest, devices: Sequence[int]) -> None:
        self._manifest, self._devices = manifest, devices
        self._names = [p.name for p in manifest.parameters]
        self._count = len(self._names)
        self._arrays = [(k, p) for k, p in enumerate(manifest.parameters) if not p.scalar]
        self._scalars = [(k, p) for k, p in enumerate(manifest.parameters) if p.scalar]
        self._demands = [(max(p.align, 1), p.writes) for _, p in self._arrays]
        self._positions = [k for k, _ in self._arrays]
        self._seen: dict[Any, Known] = {}
        self._last: Last | None = None

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None = None) -> Call:
        """The checked arguments of a call on a stream, if it names one. Raises what `bind_arguments` raises."""
        return self.check(self.recall(args, kwargs), args, kwargs, stream)

    def recall(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        """A call of known looks; what may differ in it, its addresses, is yet to be checked."""
        values = self._in_order(args, kwargs) if kwargs else args
        if values is None or len(values) != self._count:
            return None
        arrays = [values[k] for k in self._positions] if self._scalars else values
        last = self._last  # once: another thread may put its own there
        facts: Sequence[Fact] = ()
        if last is not None:
            if last.same is not None and last.same(arrays):
                return self._again(last, values) if self._scalars else last.call
            guard = last.known.guard
            if guard is not None and guard[0](*arrays):
                addresses = [*map(guard[1], arrays)]
                if addresses == last.call.addresses:
                    return self._again(last, values) if self._scalars else last.call
                return self._new(last.known, facts, addresses, values)
        asked = facts_of(arrays)
        if asked is None:
            return None
        facts = asked
        if last is not None and facts == last.facts:
            last.known.look_again(arrays)
            last.same = last.same or same_of(arrays)
            return self._again(last, values) if self._scalars else last.call
        looks, addresses = looks_in(facts), [fact[-1] for fact in facts]
        if last is not None and looks == last.known.looks:  # equality takes half as long as a hash
            known = last.known
            known.look_again(arrays)
        elif (found := self._seen.get(looks)) is not None:
            known = found
        else:
            return None
        return self._new(known, facts, addresses, values)

    def _again(self, last: Last, values: Sequence[Any]) -> Call:
        """A call with the arrays of the last one, and scalars."""
        call = last.call
        for (k, _), known in zip(self._scalars, call.scalars, strict=True):
            if values[k] is not known:  # of equal ones bits may differ
                made = Call(call.seen, call.addresses, self._numbers(values), call.checked)
                self._last = Last(last.known, last.facts, made, last.same)
                return made
        return call

    def _new(self, known: Known, facts: Sequence[Fact], addresses: list[int], values: Sequence[Any]) -> Call:
        call = Call(known.seen, addresses, self._numbers(values) if self._scalars else NO_NUMBERS)
        self._last = Last(known, facts, call)
        return call

    def _numbers(self, values: Sequence[Any]) -> list[Number]:
        return [self._scalar(p, values[k]) for k, p in self._scalars]

    def check(
        self, found: Call | None, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None = None
    ) -> Call:
        """What `recall` found, where it is right; otherwise the long way."""
        if found is not None and (found.checked or are_apart(found.seen, found.addresses)):
            found.checked = True
            return found
        return self._learn(args, kwargs, stream)

    def _scalar(self, parameter: Parameter, value: Any) -> Number:
        if type(value) is float and parameter.dtype in _FLOATS:  # most are
            return value
        return scalar_value(self._manifest, parameter, value)

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """All arguments by position; None where sizes are among them, or something is wrong."""
        rest = self._names[len(args) :]
        if len(rest) != len(kwargs) or any(name not in kwargs for name in rest):
            return None
        return [*args, *(kwargs[name] for name in rest)]

    def _learn(self, args: Sequence[Any], kwargs: Mapping[str, Any], stream: int | None) -> Call:
        """The long way; a call that gives no sizes, of arrays that have looks, is remembered."""
        bound = bind_arguments(self._manifest, args, kwargs, self._devices, stream)
        arrays = [bound.objects[p.name] for _, p in self._arrays]
        facts = plain_facts_of(arrays) if all(name in self._names for name in kwargs) else None
        views = [bound.arrays[p.name] for _, p in self._arrays]
        reaches = tuple(map(_reach, views))
        lookup, here = self._stream(bound.objects) if CUDA in self._devices else (None, None)
        seen = Seen(
            reaches,
            tuple((k, align) for k, (align, _) in enumerate(self._demands) if reaches[k] is not None),
            tuple(_clashes(reaches, self._demands)),
            bound.sizes,
            views[0].device[1] if views else 0,
            lookup,
            here,
            tuple(view.owner for view in views if view.owner is not None),
        )
        if facts is not None:
            looks = looks_in(facts)
            if len(self._seen) >= MAX_SEEN:  # sizes that change for ever must not end the memory of those in use
                self._seen.clear()
            self._seen[looks] = Known(looks, seen)
        return Call(seen, [view.pointer for view in views], [bound.scalars[p.name] for _, p in self._scalars])

    def _stream(self, objects: Mapping[str, Any]) -> tuple[Lookup, Callable[[], int] | None]:
        """How a call of these arrays finds its stream, and the current device: DLPack makes what is read ready on the
        stream, but not what is written, and a bare view says nothing of who works on it."""
        for _, parameter in self._arrays:
            value = objects[parameter.name]
            if library_of(value) is None and (parameter.writes or isinstance(value, ArrayView)):
                return current_stream((), foreign=parameter.name), None
        libraries = libraries_of(objects.values())
        return current_stream(libraries), device_of(libraries)


def are_apart(seen: Seen, addresses: Sequence[int]) -> bool:
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
