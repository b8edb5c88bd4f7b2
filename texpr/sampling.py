"""Which part of a large run `--check` compares: whole blocks of iterations of the outermost `par`s, chosen by the seed.

A check costs as many steps as the kernel has statement instances. Above `SAMPLE_ABOVE` the interpreter runs chosen
iterations only of each outermost `par` whose results stand alone: nothing else in the kernel reads what it writes, and
no two of its iterations add to one element. The first and the last block of every dimension are among the chosen ones,
and at least `LEAST_ELEMENTS` elements are compared. All other statements run in full, for what is compared reads them.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from texpr.grammar.ast import Accumulate, Atomic, Bind, IndexExpr, Kernel, New, Par, Read, Role, Seq, Stmt
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import const, names
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.grammar.records import dataclass
from texpr.grammar.walk import walk as every_node
from texpr.polyhedral.map.conflicts import shared_updates

if TYPE_CHECKING:
    from texpr.polyhedral.program import Program

SAMPLE_ABOVE = 1 << 27  # statement instances that the interpreter runs without sampling
LEAST_ELEMENTS = 100_000  # of an output, or all
BLOCK = 16  # neighbouring iterations that are chosen together


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The iterations to run, by the par's index (all others run in full), the buffers of which only elements that those
    write are compared, and the cost of the check with and without."""

    indices: Mapping[str, Any]
    buffers: frozenset[str]
    cost: int
    whole: int

    def sentence(self, above: float) -> str:
        """What was checked, for the report; empty where that is everything as a matter of course."""
        if self.whole <= above:
            return ""
        if not self.indices:
            return "checked in full: no outermost par of more than 100000 elements has results that stand alone"
        chosen = ", ".join(f"{len(some)} of `par {name}`" for name, some in self.indices.items())
        return f"a sample: {chosen}, in blocks of {BLOCK} chosen by the seed; --check=full compares everything"


def choose_sample(program: "Program", sizes: Mapping[str, int], seed: int, above: float = SAMPLE_ABOVE) -> Sample:
    """What to check of a run at these sizes; nothing is left out below `above` instances."""
    kernel = program.kernel
    ranges = {name: (const(value), const(value)) for name, value in sizes.items()}
    whole = cost(kernel.body, ranges)
    indices: dict[str, Any] = {}
    buffers: set[str] = set()
    left = whole
    if whole > above:
        bands = [stmt for stmt in kernel.body if isinstance(stmt, Par)]
        for par in sorted(bands, key=lambda par: -cost((par,), ranges)):
            writes = _written(par)
            if cost((par,), ranges) * len(bands) * 8 < whole or writes & buffers or not _stands_alone(kernel, par):
                continue
            chosen = _chosen(program, par, writes, ranges, seed)
            if chosen:
                indices |= chosen
                buffers |= writes
                share = math.prod(len(some) / most_of(extent, ranges) for some, extent in chosen.values())
                left -= int(cost((par,), ranges) * (1 - share))
    return Sample(
        indices={name: some for name, (some, _) in indices.items()}, buffers=frozenset(buffers), cost=left, whole=whole
    )


def cost(body: tuple[Stmt, ...], ranges: Ranges) -> int:
    """Statement instances of a body, each loop at its greatest extent."""
    total = 0
    for stmt in body:
        match stmt:
            case Par(index=index, extent=extent) | Seq(index=index, extent=extent):
                found = index_range(extent, ranges)
                inside = ranges if found is None else {**ranges, index: found}
                total += most_of(extent, ranges) * cost(stmt.body, inside)
            case _ if children(stmt):
                total += cost(children(stmt), ranges)
            case _:
                total += 1
    return total


def most_of(extent: IndexExpr, ranges: Ranges) -> int:
    return max(1, most(extent, ranges) or 1)


def _written(par: Par) -> set[str]:
    """The parameters and workspaces that a par writes."""
    own = {s.buffer for s in statements((par,)) if isinstance(s, New)}
    return {s.buffer for s in statements((par,)) if isinstance(s, Bind | Accumulate | Atomic)} - own


def _stands_alone(kernel: Kernel, par: Par) -> bool:
    """Whether no other statement of the kernel reads what the par writes."""
    writes = _written(par)
    others = (stmt for stmt in kernel.body if stmt is not par)
    return not any(isinstance(node, Read) and node.buffer in writes for stmt in others for node in every_node(stmt))


def _chosen(
    program: "Program", par: Par, writes: set[str], ranges: Ranges, seed: int
) -> dict[str, tuple[Any, IndexExpr]]:
    """Iterations of the dimensions of a band that its updates tell apart, with their extents."""
    band = list(_band(par))
    updates = [s for s in statements((par,)) if isinstance(s, Accumulate | Atomic) and s.buffer in writes]
    free = [
        p
        for p in band
        if not names(p.extent) & {other.index for other in band}
        and not any(p.index in names(other.extent) for other in band)
        and not any(shared_updates(program, u.id, (p.index,)) for u in updates)
    ]
    params = [b for b in program.kernel.params if b.name in writes and b.role is Role.PARAM]
    elements = max((math.prod(most_of(extent, ranges) for extent in b.shape) for b in params), default=0)
    share = min(1.0, LEAST_ELEMENTS / max(elements, 1))
    found: dict[str, tuple[Any, IndexExpr]] = {}
    for number, dim in enumerate(free):
        extent = most_of(dim.extent, ranges)
        chosen = _blocks(extent, share ** (1 / (len(free) - number)), seed, dim.index)
        share = min(1.0, share * extent / max(len(chosen), 1))
        if len(chosen) < extent:
            found[dim.index] = (chosen, dim.extent)
    return found


def _band(par: Par) -> Iterator[Par]:
    """The par and those right inside it."""
    yield par
    if len(par.body) == 1 and isinstance(par.body[0], Par):
        yield from _band(par.body[0])


def _blocks(extent: int, share: float, seed: int, name: str) -> Any:
    """Numbers below `extent` in blocks, at least that share of them, the first and the last block included."""
    import numpy

    blocks = -(-extent // BLOCK)
    count = min(blocks, max(2, math.ceil(blocks * share) + 1))  # the last block may be short
    between = numpy.random.default_rng([seed, *name.encode()]).permutation(max(blocks - 2, 0))[: max(count - 2, 0)] + 1
    picked = numpy.unique(numpy.concatenate(([0, blocks - 1], between)))
    every = (picked[:, None] * BLOCK + numpy.arange(BLOCK)).reshape(-1)
    return every[every < extent]
