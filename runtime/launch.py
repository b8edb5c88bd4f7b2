"""Running the host program of a manifest: launches, loops and conditions, over any backend.

A backend knows a kind of memory and how to start one kernel; this file knows grids, arguments and workspaces. What the
sizes decide is worked out once for calls that look alike: a later one fills addresses and scalars into its starts, and
one that gives what the last one gave starts the same again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from texpr.codegen.manifest import (
    IfStep,
    LaunchStep,
    LoopStep,
    Manifest,
    Step,
    damaged,
    evaluate,
    holds,
    questions,
)
from texpr.codegen.tensor_map import TensorMap
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass
from texpr.grammar.strides import address_name
from texpr.grammar.types import ELEMENT_TYPES, DType
from texpr.runtime.arrays import CPU
from texpr.runtime.call_memory import CallMemory, Where, call_memory, taken
from texpr.runtime.map_maker import MapMaker
from texpr.runtime.recall import Binder, Call, Number, Seen, are_apart
from texpr.runtime.streams import handle_of

MAX_PLANS = 64  # of one look, for as many answers of its addresses
MAX_KEPT = 256  # starts of one host program that are kept for the next call
NULL = 0  # where memory of no bytes lies
MAX_LAUNCHES = 1 << 20  # and rounds of host loops, of one call; seconds of nothing but launching


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a kernel, but for what differs from call to call: `arguments` are the backend's, with holes to fill
    from the call's memory (position, array or allocation, bytes from its beginning), its scalars (position, which) and
    tensor maps of its memory (position, where, map)."""

    kernel: "Kernel"
    arguments: tuple[Any, ...]
    memory: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int], ...]
    maps: tuple[tuple[int, Where, MapMaker], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The host program for given sizes: the memory that a call takes, and its starts in order, None where there are too
    many to keep. `short` are these where a call needs nothing else."""

    memory: CallMemory
    starts: tuple[Start, ...] | None
    short: tuple[Start, ...] | None


Ready = Callable[[], int]
"""Starts a kernel with its arguments, as often as it is called and in any thread; gives 0, or why it did not."""


class Kernel(Protocol):
    """A kernel with its grid. Arguments: memory by its address, a size by its number, else what the backend made."""

    def once(self, stream: Any, arguments: list[Any]) -> int:
        """Start it on a stream, by its handle, of the device that is current. 0, or why it was not started."""

    def kept(self, stream: Any, arguments: list[Any]) -> Ready:
        """The same for later, as often as one likes."""

    def refuse(self, answer: int) -> None:
        """Raises E0601 for an answer that is not 0."""


class Backend(Protocol):
    """What runs kernels: a GPU driver, or the host build of the same text."""

    @property
    def devices(self) -> Sequence[int]:
        """DLPack device types of the arrays that it takes."""

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]) -> Kernel:
        """A step with its grid, ready to start; of arguments that are memory, `lengths` are the bytes by position."""

    def tensor_map(self, described: TensorMap) -> Any:
        """A kernel's argument that is a tensor map."""

    def scalar(self, value: int | float | bool, dtype: DType) -> Any:
        """A kernel's argument that is a scalar parameter."""

    def is_current(self, device: int) -> bool:
        """Whether this thread may start kernels on a device as it is."""

    def queue(self, device: int, stream: int | None) -> Any:
        """Where the starts of one call go; `stream` is a handle, None where the arrays' device has no streams."""

    def leave(self, queue: Any, owners: Sequence[Any]) -> None:
        """The call's starts are on their way: put back what `queue` changed in this thread, and keep `owners`, which
        hold memory that they use, until they are over."""

    def scratch(self, size_bytes: int, queue: Any) -> AbstractContextManager[int]:
        """Memory for the workspaces of one call, 256-byte aligned; yields its address."""

    def zero(self, address: int, size_bytes: int, queue: Any) -> None:
        """Bytes of a call's memory are zeros before its first start."""

    def zeros(self, size_bytes: int, queue: Any, *, once: bool) -> AbstractContextManager[int]:
        """Memory of zeros, in which every call leaves zeros; no call that may run at the same time has it. `once`: no
        copy of a graph that captures the call runs beside another."""


class Launcher:
    """A loaded kernel: call it with arrays, positional or by name, sizes by name, and `stream=`."""

    def __init__(self, manifest: Manifest, backend: Backend) -> None:
        self.manifest, self.backend = manifest, backend
        self._bind = Binder(manifest, backend.devices)
        self._recall = self._bind.recall
        arrays = [p.name for p in manifest.parameters if not p.scalar]
        self._scalars = [ELEMENT_TYPES[p.dtype] for p in manifest.parameters if p.scalar]
        self._asked = tuple((arrays.index(name), number) for name, number in questions(manifest))

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        handle = None if stream is None else handle_of(stream)
        call = self._recall(args, kwargs)
        if call is not None:
            seen = call.seen
            here, current = seen.here, seen.stream
            if here() == seen.device if here is not None else self.backend.is_current(seen.device):
                own = handle if handle is not None or current is None else current(seen.device)
                on, again = call.again
                if again is not None and on == own:
                    for ready in again:
                        if ready():
                            break  # the long way says why, or mends it
                    else:
                        return
                    if ready is not again[0]:
                        raise fail("E0601", f"{self.manifest.name}: a launch behind others failed")
                elif self._short_way(call, own):
                    return
        call = self._bind.check(call, args, kwargs, handle)
        seen, addresses = call.seen, call.addresses
        if handle is None and seen.stream is not None:
            handle = seen.stream(seen.device)  # at each call: another may be current than at the last one
        queue = self.backend.queue(seen.device, handle)
        try:
            plan, numbers = self._plan(seen, addresses), self._numbers(call.scalars)
            if not plan.memory.allocates:
                self._start(plan, seen, addresses, numbers, handle)
            else:
                with taken(plan.memory, self.backend, queue) as bases:
                    self._start(plan, seen, (*addresses, *bases), numbers, handle)
        finally:
            self.backend.leave(queue, seen.owners)

    def _short_way(self, call: Call, handle: int | None) -> bool:
        """Start what a call of known looks gives, on the device that is current; whether all is well. The second time
        that it is given, what starts it is kept."""
        seen, addresses = call.seen, call.addresses
        plan = seen.plans.get(self._answers(addresses))  # once: another thread may empty what is kept
        if plan is None or plan.short is None:
            return False
        if not call.checked:
            if not are_apart(seen, addresses):
                return False
            call.checked = True
        numbers = self._numbers(call.scalars) if call.scalars else ()
        if call.started and call.again[1] is None:
            kept = [s.kernel.kept(handle, _filled(self.backend, s, addresses, numbers)) for s in plan.short]
            call.again = handle, tuple(kept)
        call.started = True
        for number, start in enumerate(plan.short):
            answer = start.kernel.once(handle, _filled(self.backend, start, addresses, numbers))
            if answer:
                if number:
                    start.kernel.refuse(answer)
                return False
        return True

    def _numbers(self, scalars: Sequence[Number]) -> list[Any]:
        """Scalars as arguments; of two that are equal and have other bits, such as zeros, these are not equal."""
        return [*map(self.backend.scalar, scalars, self._scalars)]

    def _answers(self, addresses: Sequence[int]) -> tuple[int, ...]:
        return tuple([addresses[which] % number for which, number in self._asked]) if self._asked else ()

    def _plan(self, seen: Seen, addresses: Sequence[int]) -> Plan:
        """The plan for a call's sizes and what is asked of its addresses."""
        answers = self._answers(addresses)
        plan: Plan | None = seen.plans.get(answers)  # once: another thread may empty what is kept
        if plan is None:
            if len(seen.plans) >= MAX_PLANS:
                seen.plans.clear()
            plan = seen.plans[answers] = make_plan(self.manifest, self.backend, seen, addresses)
        return plan

    def _start(
        self, plan: Plan, seen: Seen, addresses: Sequence[int], scalars: Sequence[Any], handle: int | None
    ) -> None:
        """All starts; `addresses` has those of the arrays, and then those of the call's own memory."""
        starts: Iterable[Start] | None = plan.starts
        if starts is None:
            starts = starts_of(self.manifest, self.backend, seen, addresses, plan.memory)
        for start in starts:
            answer = start.kernel.once(handle, _filled(self.backend, start, addresses, scalars))
            if answer:
                start.kernel.refuse(answer)


def _filled(backend: Backend, start: Start, addresses: Sequence[int], scalars: Sequence[Any]) -> list[Any]:
    """The arguments of a start, with what differs from call to call."""
    arguments = list(start.arguments)
    for position, which, offset in start.memory:
        arguments[position] = addresses[which] + offset
    for position, (which, offset), maker in start.maps:
        arguments[position] = maker.at(addresses[which] + offset, backend)
    for position, which in start.scalars:
        arguments[position] = scalars[which]
    return arguments


def make_plan(manifest: Manifest, backend: Backend, seen: Seen, addresses: Sequence[int]) -> Plan:
    """The plan for a call's sizes and addresses. Raises E0403 for a workspace that nobody has, E0601 for more launches
    or rounds than MAX_LAUNCHES, before anything starts."""
    memory = call_memory(manifest, seen.sizes, on_host=CPU in backend.devices)
    starts = starts_of(manifest, backend, seen, addresses, memory)
    first = tuple(islice(starts, MAX_KEPT + 1))
    for _ in starts:
        pass  # the walk counts
    kept = first if len(first) <= MAX_KEPT else None
    short = kept if not memory.allocates and not seen.owners and seen.stream is not None else None
    return Plan(memory, kept, short)


def starts_of(
    manifest: Manifest, backend: Backend, seen: Seen, addresses: Sequence[int], memory: CallMemory
) -> Iterator[Start]:
    """The starts of the host program for a call's sizes, addresses and memory, loops unrolled."""
    return _Walk(manifest, backend, seen, addresses, memory).steps(manifest.host, dict(seen.sizes))


class _Walk:
    """The walk through a host program, and what it counts."""

    def __init__(
        self, manifest: Manifest, backend: Backend, seen: Seen, addresses: Sequence[int], memory: CallMemory
    ) -> None:
        self.manifest, self.backend = manifest, backend
        arrays = [p for p in manifest.parameters if not p.scalar]
        self.addresses = {address_name(p.name): addresses[k] for k, p in enumerate(arrays)}
        scalars = [p for p in manifest.parameters if p.scalar]
        lengths = [high - low for low, high in (reach or (0, 0) for reach in seen.reaches)]
        own = {p.name: ((k, 0), length) for k, (p, length) in enumerate(zip(arrays, lengths, strict=True))}
        self.scalars = {p.name: k for k, p in enumerate(scalars)}
        taken = {
            kind: {name: ((len(arrays) + which, offset), size) for name, (which, offset, size) in places.items()}
            for kind, places in (("workspace", memory.workspace), ("words", memory.words))
        }
        self.places: dict[str, dict[str, tuple[Where, int]]] = {"param": own, **taken}
        self.allocates = memory.allocates
        self.launches = self.rounds = 0
        self.follows = False  # the last step of the walk was started

    def steps(self, steps: Sequence[Step], values: dict[str, int]) -> Iterator[Start]:
        for step in steps:
            match step:
                case LaunchStep():
                    yield from self.launch(step, values)
                case LoopStep():
                    extent = evaluate(step.extent, values)
                    self.rounds += max(extent, 0)
                    if self.rounds > MAX_LAUNCHES:
                        raise fail("E0601", f"{self.manifest.name}: more than {MAX_LAUNCHES} rounds of host loops")
                    for index in range(extent):
                        yield from self.steps(step.body, {**values, step.index: index})
                case IfStep():
                    chosen = step.then if holds(step.condition, {**values, **self.addresses}) else step.orelse
                    yield from self.steps(chosen, values)

    def launch(self, step: LaunchStep, values: Mapping[str, int]) -> Iterator[Start]:
        """The start of one launch; none for an empty grid."""
        x, y, z = (evaluate(extent, values) for extent in step.grid)
        follows, self.follows = self.follows, min(x, y, z) > 0
        if not self.follows:
            return
        for extent, blocks in zip((x, y, z), step.cluster, strict=True):
            if extent % blocks:
                why = f"{step.symbol} has {extent} blocks, which are no clusters of {blocks}"
                raise fail("E0601", f"{self.manifest.name}: {why}")
        if step.overlaps and not (follows or step.in_boxes):
            # what else is on the queue may have written what the step does not wait for
            step = replace(step, overlaps=False)
        self.launches += 1
        if self.launches > MAX_LAUNCHES:
            raise fail("E0601", f"{self.manifest.name}: more than {MAX_LAUNCHES} launches in one call")
        arguments: list[Any] = [None] * len(step.arguments)
        lengths: dict[int, int] = {}
        memory, scalars, maps = [], [], []
        described = {map_.name: map_ for map_ in step.maps}
        for position, (kind, name) in enumerate(step.arguments):
            try:
                match kind:
                    case "param" | "workspace" | "words":
                        where, lengths[position] = self.places[kind][name]
                        if kind == "param" or self.allocates:
                            memory.append((position, *where))
                        else:
                            arguments[position] = NULL
                    case "scalar":
                        scalars.append((position, self.scalars[name]))
                    case "map":
                        array = described[name].array
                        arrays, workspace = self.places["param"], self.places["workspace"]
                        where, _ = arrays[array] if array in arrays else workspace[array]
                        begin = self.addresses.get(address_name(array), where[1])
                        maps.append((position, where, MapMaker(self.manifest.name, described[name], values, begin)))
                    case _:
                        arguments[position] = values[name]
            except KeyError:
                raise damaged(f"a launch uses the unknown {kind} {name}") from None
        kernel = self.backend.kernel(step, (x, y, z), lengths)
        yield Start(kernel, tuple(arguments), tuple(memory), tuple(scalars), tuple(maps))
