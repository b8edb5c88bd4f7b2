"""Attributes that changed nothing: kept, but with nothing there for them to act on. The mapping's report names each.

par N i { C[i] = A[i] #unique }     "`#unique` (line 1) changes nothing: its statement writes no gathered element"
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from texpr.grammar.ast import Accumulate, Attr, Kernel, Leaf, Seq, Stmt
from texpr.grammar.attributes import ATTRIBUTES, Needs, Spec
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE
from texpr.grammar.permissions import contracts, hastens, promises_unique
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.places import Memory, Place
from texpr.polyhedral.mapped.program import HostNode, MappedBuffer
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.target import Target

UNMULTIPLIED = "tensor cores of the target multiply nothing of it as f32: it is no large product of matrices of f32"
Found = Iterator[tuple[Attr, str]]
_OBEYED: dict[Needs | None, tuple[Memory, ...]] = {
    Needs.MEMORY: (Memory.SHARED, Memory.GLOBAL),
    Needs.SHARED: (Memory.SHARED,),
}


def idle_attributes(
    kernel: Kernel,
    target: Target,
    host: Sequence[HostNode],
    buffers: Mapping[str, MappedBuffer],
    obeyed: Collection[Attr],
) -> tuple[str, ...]:
    """A sentence for each attribute that changed nothing, in text order; the attributes were accepted before. `obeyed`
    are those of the kernel that changed the blocks of a launch, which its digits and loops need not show."""
    found = [
        *_of_kernel(kernel, target, host, obeyed),
        *_of_statements(kernel, target, host),
        *_of_buffers(kernel, buffers),
    ]
    found.sort(key=lambda each: each[0].span.start)
    lines = (f"`#{attr.name}` (line {attr.span.line}) changes nothing: {why}" for attr, why in found)
    return tuple(dict.fromkeys(lines))


def _of_kernel(kernel: Kernel, target: Target, host: Sequence[HostNode], obeyed: Collection[Attr]) -> Found:
    leaves = [s for s in statements(kernel.body) if isinstance(s, Leaf)]
    for attr in kernel.attrs:
        spec = ATTRIBUTES[attr.name]
        if spec.on_cpu is not None and not target.is_cuda:
            yield attr, spec.on_cpu
        elif spec.needs is Needs.THREADS and all(launch.is_one_thread for launch in launches(host)):
            yield attr, "every launch has one thread"
        elif spec.needs is Needs.BLOCKS and attr not in obeyed:
            yield attr, "no launch is known to have more blocks than a GPU runs at once"
        elif spec.needs is Needs.LAUNCHES and attr not in obeyed:
            yield attr, "no launches whose blocks may be fewer follow one another"
        elif spec.needs is Needs.ROWS and attr not in obeyed:
            yield attr, "no launch has several rows and columns of blocks that a group could have"
        elif spec.needs is Needs.PRODUCTS and not any(map(contracts, leaves)):
            yield attr, "no statement adds a product of floats"
        elif spec.needs is Needs.TENSOR_CORES and not _multiplied(host):
            yield attr, UNMULTIPLIED
        elif spec.needs is Needs.FASTER and not any(map(hastens, leaves)):
            yield attr, "no statement has a function of f32 that has a faster form"
        elif spec.needs is Needs.GATHERED_WRITES and not any(map(promises_unique, leaves)):
            yield attr, "no statement writes a gathered element"


def _of_statements(kernel: Kernel, target: Target, host: Sequence[HostNode]) -> Found:
    loops = (loop for launch in launches(host) for loop in of_kind(launch.body, Loop))
    asked = (
        loop
        for loop in loops
        if (loop.unroll or loop.unroll_by) and not (loop.digit and loop.digit.place is Place.VECTOR)
    )
    places = _Places(unrolled={loop.span.place for loop in asked}, multiplied=_multiplied(host))
    found = [
        (attr, spec.on_cpu if spec.on_cpu is not None and not target.is_cuda else _why(stmt, attr, spec, places))
        for stmt in statements(kernel.body)
        for attr in stmt.attrs
        if (spec := ATTRIBUTES.get(attr.name)) is not None
    ]
    acting = {attr.span.place for attr, why in found if why is None}  # one may stand on several statements
    for attr, why in found:
        if why is not None and attr.span.place not in acting:
            yield attr, why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where loops are unrolled, and where tensor cores multiply f32, in the text."""

    unrolled: set[tuple[str, int, int] | None]
    multiplied: set[tuple[str, int, int] | None]


def _multiplied(host: Sequence[HostNode]) -> set[tuple[str, int, int] | None]:
    nodes = (node for launch in launches(host) for node in of_kind(launch.body, Contract))
    return {node.span.place for node in nodes if node.a.dtype == F32}


def _why(stmt: Stmt, attr: Attr, spec: Spec, places: _Places) -> str | None:
    """Why an attribute changes nothing on a statement; None where it does."""
    needs, leaf = spec.needs, stmt if isinstance(stmt, Leaf) else None
    if needs is Needs.ITERATIONS and stmt.span.place not in places.unrolled:
        return "each thread has one of the iterations"
    if needs is Needs.STAGES and attr.args[0] == ONE:
        return "in one stage nothing is copied ahead"
    if needs is Needs.TILES and isinstance(stmt, Seq) and _is_one_tile(stmt, attr):
        return "the loop has the same iterations in the same places without it"
    if needs is Needs.ACCUMULATIONS and not _accumulates(stmt):
        return "the loop accumulates nothing"
    if needs is Needs.PRODUCTS and leaf is not None and not contracts(leaf):
        return "its statement adds no product of floats"
    if needs is Needs.TENSOR_CORES and leaf is not None and leaf.span.place not in places.multiplied:
        return UNMULTIPLIED
    if needs is Needs.FASTER and leaf is not None and not hastens(leaf):
        return "its statement has no function of f32 that has a faster form"
    if needs is Needs.GATHERED_WRITES and leaf is not None and not promises_unique(leaf):
        return "its statement writes no gathered element"
    return None


def _is_one_tile(seq: Seq, attr: Attr) -> bool:
    """Whether tiles of a loop are single iterations, or there is one tile."""
    return attr.args[0] in (ONE, seq.extent)


def _accumulates(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and any(isinstance(s, Accumulate) for s in statements(stmt.body))


def _of_buffers(kernel: Kernel, buffers: Mapping[str, MappedBuffer]) -> Found:
    for buffer in kernel.buffers:
        placed = buffers.get(buffer.name)
        why = "nothing uses the buffer"
        if placed is not None:
            own = placed.memory is Memory.REG
            why = "the buffer is a thread's own, in registers" if own else "the buffer lies in global memory"
        for attr in buffer.attrs:
            obeyed = _OBEYED.get(ATTRIBUTES[attr.name].needs)
            if obeyed is not None and (placed is None or placed.memory not in obeyed):
                yield attr, why
