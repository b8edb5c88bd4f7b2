"""What the threads of a warp do together: products of tiles, and the way of their sums to shared memory.

What they compute is what the operators' expansions say (`expand.py`), all elements at once, but for the order in which
k is summed, which no hardware tells, and for what it cuts off: of factors of f32, and of sums of f8 (`aligned.py`).
"""

from collections.abc import Callable
from dataclasses import field

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.index.value import condition_value
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, I64, DType
from texpr.polyhedral.mapped.atoms import F8
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.simulate.aligned import aligned_sums
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.operands import Elements, Operands, warps

TF32_BITS = np.uint32(0xFFFFE000)


@dataclass(frozen=True, slots=True)
class Share:
    """What one warp does of a product: rows of a and of b, and the elements of c, by the numbers of their rows in
    both."""

    node: Contract
    a: Elements
    b: Elements
    c: Elements
    row: Array
    column: Array
    depth: int
    accumulate: bool

    def take(self, evaluator: Evaluator, agents: Callable[[Elements], Array]) -> Array:
        """The sums."""
        node, own = self.node, self.node.c.dtype
        wide = I64 if own.is_integer else F64 if own == F64 else F32
        left, right = (
            _cut(numerics.cast(evaluator.fetch(view.buffer, found.place, agents(found)), view.dtype, wide), view.dtype)
            for view, found in ((node.a, self.a), (node.b, self.b))
        )
        if node.a.dtype in F8:
            return self._aligned(left, right, evaluator, agents)
        with np.errstate(all="ignore"):
            tile = left.reshape(-1, self.depth) @ right.reshape(-1, self.depth).T
            total = tile[self.row, self.column]
            if self.accumulate:
                held = evaluator.fetch(node.c.buffer, self.c.place, agents(self.c))
                total = total + numerics.cast(held, node.c.dtype, wide)
        return numerics.cast(total, wide, node.c.dtype)

    def _aligned(self, a: Array, b: Array, evaluator: Evaluator, agents: Callable[[Elements], Array]) -> Array:
        node, (a, b) = self.node, (own.reshape(-1, self.depth).astype(np.float64) for own in (a, b))
        sums = np.zeros((len(a), len(b)))
        if self.accumulate:
            sums[self.row, self.column] = evaluator.fetch(node.c.buffer, self.c.place, agents(self.c))
        found = aligned_sums(a, b, sums, (node.a.dtype, node.b.dtype))[self.row, self.column]
        return found.astype(np.float32)

    def put(self, evaluator: Evaluator, agents: Callable[[Elements], Array], sums: Array) -> None:
        evaluator.put(self.node.c.buffer, self.c.place, sums, agents(self.c))


def _cut(values: Array, dtype: DType) -> Array:
    """Factors as tensor cores take them: of f32 the 10 bits of tf32's fraction."""
    return (values.view(np.uint32) & TF32_BITS).view(np.float32) if dtype == F32 else values


@dataclass(slots=True)
class Products:
    """The products and unloads of a launch, by its warps of so many threads."""

    evaluator: Evaluator
    warp: int
    operands: Operands = field(init=False)

    def __post_init__(self) -> None:
        self.operands = Operands(self.evaluator)

    def at_once(self, node: Contract | Unload, lanes: Lanes) -> None:
        """An operator that is over at once, by the warps that come to it."""
        for own in warps(node, lanes, self.warp):
            if isinstance(node, Unload):
                self._unload(node, own)
            else:
                found = self.share(node, own)
                found.put(self.evaluator, self._holder, found.take(self.evaluator, self._holder))

    def share(self, node: Contract, warp: Lanes) -> Share:
        """What the threads of a warp hold of c, and what they need for it."""
        self.evaluator.at(node.id, node.span)
        (m, n, k), (height, width, depth) = (i for i, _ in node.over), (int(warp.index(e)[0]) for _, e in node.over)
        whole = {m: np.arange(height), n: np.arange(width)}
        c = self.operands.find(node, "c", warp, whole)
        own = np.flatnonzero(c.thread // self.warp == warp.thread[0] // self.warp)
        rows, row = np.unique(own // width, return_inverse=True)
        columns, column = np.unique(own % width, return_inverse=True)
        for view in (node.a, node.b):
            cells = self.evaluator.memory[view.buffer]
            if not cells.team and len(np.unique(self.evaluator.copies.read(cells.buffer, warp.thread))) > 1:
                raise failure(f"{node.id}: the lanes of a warp wait for several turns of {view.buffer}", node.span)
        depths = np.arange(depth)
        return Share(
            node=node,
            a=self.operands.find(node, "a", warp, {m: rows, k: depths}),
            b=self.operands.find(node, "b", warp, {n: columns, k: depths}),
            c=c.only(own),
            row=row,
            column=column,
            depth=depth,
            accumulate=bool(np.asarray(condition_value(node.accumulate, warp.values)).reshape(-1)[0]),
        )

    def _unload(self, node: Unload, warp: Lanes) -> None:
        """Every element by the thread that holds it."""
        self.evaluator.at(node.id, node.span)
        axes = {name: np.arange(int(warp.index(extent)[0])) for name, extent in node.over}
        source, target = (self.operands.find(node, role, warp, axes) for role in ("source", "target"))
        held, of = (target, node.target) if node.atom.loads else (source, node.source)
        if (held.thread // self.warp != warp.thread[0] // self.warp).any():
            raise failure(f"{node.id}: another warp holds what is moved of {of.buffer}", node.span)
        agents = self._holder(held)
        values = self.evaluator.fetch(node.source.buffer, source.place, agents)
        rounded = numerics.cast(values, node.source.dtype, node.target.dtype)
        self.evaluator.put(node.target.buffer, target.place, rounded, agents)

    def _holder(self, found: Elements) -> Array:
        """Each element is touched by who holds it."""
        return self.evaluator.watch.agents(found.thread)
