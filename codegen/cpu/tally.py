"""Copies of small arrays: what the parts of a parallel launch update at random, each adds up by itself.

    par N i { atomic H[K[i]] += 1 }      H: i32[256]

    part:   H_tally = 4 copies of 256 zeros on the stack; for i: H_tally[(i & 3) * 256 + K[i]] += 1
            H_parts[256 * task …] = the sums of its copies
    host:   H[…] += the parts, in their order

Updates of one element by neighbouring iterations then do not wait for one another, and no thread for another one's.
What is added to nothing leaves an element as it is, bit by bit.
"""

from collections.abc import Collection, Mapping
from math import prod

from texpr.codegen.cpu.carry import asked, sites_of
from texpr.codegen.cpu.context import CpuTensor
from texpr.codegen.cpu.ranges import Range
from texpr.grammar.ast import AccOp, Accumulate, Atomic
from texpr.grammar.index.expr import constant_value
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.target import CPU_TALLY_ELEMENTS

COPIES = 4  # an addition to memory waits about as many turns for the one before
FEW_ELEMENTS = 1024  # arrays with more have one copy: the nearest cache has no room for several


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A tensor of so many elements that a loop over cores updates with one operator, and nothing else touches there."""

    tensor: str
    op: AccOp
    elements: int

    @property
    def copies(self) -> int:
        return COPIES if self.elements <= FEW_ELEMENTS else 1


def find_tallies(loop: Range, tensors: Mapping[str, CpuTensor], carried: Collection[str]) -> tuple[Tally, ...]:
    """The tallies of a loop over cores, of tensors of which no element is carried."""
    operators = [site.operator for site in sites_of((loop,))]
    read = {read.buffer for operator in operators for read in operator.reads} | set(asked((loop,)))
    updates: dict[str, list[Generic]] = {}
    for operator in operators:
        for name, _ in operator.writes:
            updates.setdefault(name, []).append(operator)
    found = []
    for name, sites in updates.items():
        elements = _elements(tensors[name])
        ops = {_update(site, tensors[name]) for site in sites}
        op = ops.pop() if len(ops) == 1 else None
        if op is not None and elements is not None and name not in read and name not in carried:
            found.append(Tally(tensor=name, op=op, elements=elements))
    return tuple(found)


def _update(operator: Generic, tensor: CpuTensor) -> AccOp | None:
    """The operator of an update in the tensor's own type that several threads make; None for anything else."""
    store, leaf = operator.store, operator.leaf
    if store is None or not store.atomic or not isinstance(leaf, Accumulate | Atomic):
        return None
    return store.op if leaf.value.dtype == tensor.dtype and tensor.dtype.bits >= 32 else None


def _elements(tensor: CpuTensor) -> int | None:
    """The elements of a dense array of the device; None for any other, or too many."""
    counts = [constant_value(count) for count in tensor.layout.shape]
    known = [count for count in counts if count is not None]
    if not tensor.device or len(known) < len(counts) or constant_value(extent(tensor.layout)) != prod(known):
        return None
    return prod(known) if 0 < prod(known) <= CPU_TALLY_ELEMENTS else None
