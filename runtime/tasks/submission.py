"""From the order of submission to the graph: which tasks must be over before another may begin.

The two-epoch rule. For each block there is the kind of its last effect, the tasks of the current epoch and those of the
one before. A task either joins the current epoch (readers with readers, accumulators with accumulators) or begins a new
one; either way it comes after every task of the epoch before. `RULES` is the table:

    last \\ new     READ      WRITE     ACCUMULATE
    READ           join      advance   advance
    WRITE          advance   advance   advance
    ACCUMULATE     advance   advance   join
    nothing yet    advance   advance   advance

Every pair of tasks that conflict on a block is ordered, directly or by others, and no two that do not (unless by way of
a third). Whole tensors meet blocks in the same epochs: a tensor's untouched blocks share one, and tasks on the whole
that follow one another with one effect are kept apart, as a `_Run`, which each block absorbs when it is next touched.
Where many tasks meet many, a join node stands between them, so that the edges are their sum and not their product.

A scope has its own tables: the tasks that one parent submits, or those of nobody. Its caller holds the engine's lock.
"""

from collections.abc import Callable, Iterable

from texpr.runtime.tasks.grants import Grants
from texpr.runtime.tasks.permissions import EFFECT, Effect
from texpr.runtime.tasks.tensors import Block, Tensor

FEW = 4  # tasks that are followed directly; more meet in a join node
SPARSE = 16  # tasks of an epoch before those that are over are dropped from it
NOTHING = 3  # the row of a block without any effect


NOBODY: list["Node"] = []  # successors of a node that nothing follows yet; never changed


class Node:
    """A node of the graph: a task, or a join node, which has nothing to run. `waiting` counts edges that end here."""

    __slots__ = ("done", "successors", "waiting")

    def __init__(self) -> None:
        self.successors: list[Node] = NOBODY
        self.waiting = 0
        self.done = False


class Epoch:
    """The epochs of a block. `absorbed` counts the tasks of the tensor's run that are in `current` already."""

    __slots__ = ("absorbed", "current", "kind", "limit", "previous")

    def __init__(self) -> None:
        self.kind = NOTHING
        self.current: list[Node] = []
        self.previous = NOBODY
        self.absorbed = 0
        self.limit = SPARSE

    def copy(self) -> "Epoch":
        other = Epoch()
        if self.kind == NOTHING:
            return other
        other.kind, other.absorbed, other.limit = self.kind, self.absorbed, self.limit
        other.current, other.previous = list(self.current), list(self.previous)
        return other


def join(epoch: Epoch, node: Node) -> None:
    epoch.current.append(node)
    if len(epoch.current) > epoch.limit:
        epoch.current = unfinished(epoch.current)
        epoch.limit = max(SPARSE, 2 * len(epoch.current))
    if len(epoch.previous) > FEW:
        epoch.previous = gathered(epoch.previous)


def advance(epoch: Epoch, node: Node) -> None:
    left, epoch.previous = epoch.previous, epoch.current
    if left:  # it is used again, as most lists have one node
        left.clear()
        left.append(node)
        epoch.current = left
    else:
        epoch.current = [node]
    epoch.limit = SPARSE


Rule = Callable[[Epoch, Node], None]
RULES: tuple[tuple[Rule, Rule, Rule], ...] = (
    (join, advance, advance),
    (advance, advance, advance),
    (advance, advance, join),
    (advance, advance, advance),
)


def unfinished(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if not node.done]


def follow(before: Node, node: Node) -> None:
    """An edge, unless there is nothing left to wait for. Edges to one node are made one after another."""
    if not before.done:
        successors = before.successors
        if not successors:
            before.successors = [node]
            node.waiting += 1
        elif successors[-1] is not node:
            successors.append(node)
            node.waiting += 1


def gathered(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that are not over, or one join node behind them where there are more than a few."""
    left = unfinished(nodes)
    if len(left) <= FEW:
        return left
    meeting = Node()
    for node in dict.fromkeys(left):
        follow(node, meeting)
    return [meeting]


class _Run:
    """Tasks on a whole tensor with one effect, one after another. `before`: what each of them follows. It is open while
    no block has had another effect since; afterwards blocks still absorb it."""

    __slots__ = ("before", "count", "gate", "kind", "open", "recent")

    def __init__(self, kind: int, first: Node, before: list[Node]) -> None:
        self.kind, self.before, self.open = kind, before, True
        self.gate: list[Node] = []
        self.recent = [first]
        self.count = 1

    def add(self, node: Node) -> None:
        self.recent.append(node)
        self.count += 1
        if len(self.recent) > SPARSE:
            self.gate = self.nodes()

    def nodes(self) -> list[Node]:
        """Its tasks, or a few nodes behind them."""
        self.gate, self.recent = gathered((*self.gate, *self.recent)), []
        return self.gate


class _OfTensor:
    """The epochs of a tensor: of the blocks that were touched one by one, and of all others together."""

    __slots__ = ("blocks", "others", "run")

    def __init__(self) -> None:
        self.others = Epoch()
        self.blocks: dict[Block, Epoch] = {}
        self.run: _Run | None = None

    def absorb(self, epoch: Epoch) -> None:
        if self.run is not None and epoch.absorbed < self.run.count:
            epoch.current += self.run.nodes()
            epoch.absorbed = self.run.count


class Scope:
    """The tables of the tasks of one parent."""

    __slots__ = ("_rules", "_tensors")

    def __init__(self, rules: tuple[tuple[Rule, Rule, Rule], ...] = RULES) -> None:
        self._rules = rules
        self._tensors: dict[Tensor, _OfTensor] = {}

    def submit(self, node: Node, grants: Grants) -> None:
        """Give a node its edges, from what it may do."""
        tensors, rules, effects = self._tensors, self._rules, EFFECT
        for right, block, _ in grants.touched:
            tensor = tensors.get(block.tensor)
            if tensor is None:
                tensor = tensors[block.tensor] = _OfTensor()
            epoch = tensor.blocks.get(block)
            if epoch is None:
                epoch = tensor.blocks[block] = tensor.others.copy()
            effect = effects[right]
            run = tensor.run
            if run is not None:
                tensor.absorb(epoch)
                if effect != run.kind:
                    run.open = False
            rules[epoch.kind][effect](epoch, node)
            epoch.kind = effect
            for before in epoch.previous:
                if not before.done:
                    follow(before, node)
        for whole, right in grants.whole.items():
            self.whole(node, whole, effects[right])

    def whole(self, node: Node, tensor: Tensor, effect: Effect) -> None:
        found = self._tensors.get(tensor)
        if found is None:
            found = self._tensors[tensor] = _OfTensor()
        run = found.run
        if run is not None and run.open and run.kind == effect != Effect.WRITE:
            run.add(node)
            for before in run.before:
                follow(before, node)
            return
        behind: dict[Node, None] = {}
        epochs = [*found.blocks.values()]
        if len(epochs) < tensor.n_blocks:
            epochs.append(found.others)
        for epoch in epochs:
            found.absorb(epoch)
            self._rules[epoch.kind][effect](epoch, node)
            epoch.kind, epoch.absorbed = effect, 1
            behind.update(dict.fromkeys(epoch.previous))
        if effect == Effect.WRITE:  # whatever comes next follows this task alone
            follows = unfinished(behind)
            found.others, found.blocks, found.run = Epoch(), {}, None
            found.others.kind, found.others.current = effect, [node]
        else:
            follows = gathered(behind)
            found.run = _Run(effect, node, follows)
        for before in follows:
            follow(before, node)

    def conflicts(self, block: Block, effect: Effect) -> bool:
        """Whether a task of this scope may have had an effect on a block that conflicts with another one."""
        tensor = self._tensors.get(block.tensor)
        if tensor is None:
            return False
        epoch = tensor.blocks.get(block, tensor.others)
        return epoch.kind != NOTHING and (epoch.kind != effect or effect == Effect.WRITE or bool(epoch.previous))

    def forget(self, tensor: Tensor) -> None:
        """A tensor that nobody may touch any more."""
        self._tensors.pop(tensor, None)
