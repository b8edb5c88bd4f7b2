"""What a mapping makes of each sum: its longest chain of rounded additions, and how many partials there are.

    S1: C_chunk += A[i, k] * B[k, j]      4096 times        C_chunk: chain 4096, one partial
    S1_sum: C_acc += f64(C_chunk)         244 times         C_acc: chain 4096, 244 partials
    S1_out: C[i, j] = f32(C_acc)                            C: as C_acc

An addition counts where it is computed in f32 or its result is stored in less than f64. The launches are walked at
given sizes, with a chain and a count of partials for each buffer: the mapping's own copies pass them on, a bind begins
anew where nothing else is written than the element that it binds, a loop grows them as its second turn does. Where
threads of a launch update one element, each of them counts; on a CPU each task carries its part in f64. A buffer of the
author has no more than the serial program adds to it. The bound of `texpr run --check` has the chains
(`interpret.bounded_cells`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial, reduce

from texpr.grammar import ast
from texpr.grammar.ast import AccOp, Accumulate, Anchor, Atomic, Bind, IndexExpr, IndexVar, Leaf, SizeVar, Subscript
from texpr.grammar.index.decide import decide
from texpr.grammar.index.expr import const, names
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.monoids import OF_UPDATE
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Generic, Origin, Reduce, Scan, Unused
from texpr.polyhedral.mapped.places import GRID_PLACES, Place
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram
from texpr.polyhedral.mapped.running import running_folds
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Loop, Node, Parts
from texpr.polyhedral.mapped.walks import every_node, launches, operators
from texpr.polyhedral.prove.additions import CHAIN, repeating, serial_additions
from texpr.polyhedral.target import CPU_SCAN_LANES, CPU_TASKS
from texpr.polyhedral.walk import read_accesses

UNKNOWN = 1 << 62  # turns of a loop whose extent is not bounded by the sizes
EXACT_DEPTH = 8  # loops in one another whose turns are counted one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What reaches an element of a buffer at most: a chain of so many rounded additions, a sum of so many partials, and
    additions into the element itself between two binds of it."""

    chain: int = 0
    partials: int = 0
    additions: int = 0


State = dict[str, Sum]
ENDLESS = Sum(chain=UNKNOWN, partials=UNKNOWN, additions=UNKNOWN)


def sums(mapped: MappedProgram, sizes: Mapping[str, int]) -> dict[str, Sum]:
    """For every buffer of the mapping that something is added to, the most that its elements get at these sizes."""
    return _sums(mapped, {name: (const(value), const(value)) for name, value in sizes.items()})


def left_in_memory(mapped: MappedProgram, long: frozenset[str]) -> list[str]:
    """The kernel's buffers with `long` updates whose elements, not in f64, get more additions than a partial may, at
    some sizes that `where` allows."""
    return _added_to(mapped, long, CHAIN, F64)


def rounded_in_memory(mapped: MappedProgram, narrow: frozenset[str]) -> list[str]:
    """The same with `narrow` updates, whose elements, narrower than f32, get more than one addition."""
    return _added_to(mapped, narrow, 1, F32)


def _added_to(mapped: MappedProgram, updates: frozenset[str], most: int, wide: DType) -> list[str]:
    writes = [s.write for s in mapped.proved.program.statements if s.id in updates]
    targets = dict.fromkeys(write.buffer for write in writes if write is not None)
    found, kernel = _sums(mapped, size_ranges(mapped.kernel)) if targets else {}, mapped.kernel
    return [n for n in targets if n in found and found[n].additions > most and kernel.buffer(n).dtype.bits < wide.bits]


def _sums(mapped: MappedProgram, ranges: Ranges) -> dict[str, Sum]:
    walk = _Walk(mapped)
    walk.host(mapped.host, {}, ranges)
    serial = serial_additions(mapped.proved.program, ranges)
    return {
        name: _least(found, serial.get(name))
        for name, found in walk.by_name().items()
        if found.additions or found.partials
    }


@dataclass(slots=True)
class _Walk:
    """The walk through the launches; `greatest` is what each buffer had at most."""

    mapped: MappedProgram
    greatest: State = field(default_factory=dict)
    launch: Launch = field(init=False)
    places: dict[str, set[tuple[Subscript, ...]]] = field(init=False)
    telling: dict[str, frozenset[str]] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)
    depth: int = 0

    def __post_init__(self) -> None:
        self.places = {}
        for launch in launches(self.mapped.host):
            for operator in operators(launch.body):
                if isinstance(operator, Generic | Elementwise):
                    for name, subscripts in operator.writes:
                        self.places.setdefault(name, set()).add(subscripts)

    def by_name(self) -> State:
        """The greatest of each buffer by its name in the kernel, those of several cases together; the mapping's own
        buffers are each case's own."""
        found, kernel = State(), {buffer.name for buffer in self.mapped.kernel.buffers}
        for own, sum_ in self.greatest.items():
            of = self.mapped.buffers[own].of
            name = of if of in kernel else own
            found[name] = _greater(found.get(name, Sum()), sum_)
        return found

    def host(self, nodes: Sequence[HostNode], state: State, ranges: Ranges) -> State:
        for node in nodes:
            match node:
                case Launch():
                    self.launch = node
                    state = self._nodes(node.body, state, ranges)
                case HostLoop(index=index, extent=extent, body=body):
                    inside = _within(ranges, index, extent)
                    turns = self._turns(extent, ranges)
                    _, first, again, left = self._twice(partial(self.host, body, ranges=inside), state, turns)
                    state = self._repeated(first, again, left)
                case HostIf(condition=condition, then=then, orelse=orelse):
                    holds = decide(rewrite(condition, partial(_known, ranges)))
                    arms = [arm for arm, truth in ((then, True), (orelse, False)) if holds in (truth, None)]
                    state = reduce(_either, [self.host(arm, state, ranges) for arm in arms])
        return state

    def _nodes(self, nodes: Sequence[Node], state: State, ranges: Ranges) -> State:
        for node in nodes:
            match node:
                case Loop(index=index, extent=extent, body=body):
                    inside = _within(ranges, index, extent)
                    turns = 1 if node.vector else self._turns(extent, ranges)
                    self.folded |= self._folded(index, body)
                    once, first, again, left = self._twice(partial(self._nodes, body, ranges=inside), state, turns)
                    apart = {name: once[name] for name in self._told_apart(node) if name in once}
                    state = self._repeated(first, {**again, **apart}, left)
                case Guard(body=body, orelse=orelse):
                    state = _either(self._nodes(body, state, ranges), self._nodes(orelse, state, ranges))
                case Last(body=body):
                    state = self._nodes(body, state, ranges)
                case Parts(parts=parts):
                    for part in parts:
                        state = self._nodes(part.body, state, ranges)
                case Generic():
                    state = self._statement(node, state, ranges)
                case Elementwise():
                    state = self._nodes((expand(node),), state, ranges)
                case Reduce() | Scan():
                    state = self._reduction(node, state, ranges)
                case LookBack(value=value, target=target, flags=flags):
                    state = self._over_blocks(value.buffer, target.buffer, flags, state, ranges)
                case Copy(source=source, target=target):
                    moved = state.get(source.buffer, Sum())
                    state = {**state, target.buffer: self._note(target.buffer, moved)}
                case Fresh(buffer=buffer):
                    state = {**state, buffer: Sum()}
                case Define():
                    pass
        return state

    def _folded(self, index: str, body: Sequence[Node]) -> set[str]:
        """The updates of a loop that a CPU makes by vectors, whose lanes add theirs in a row's type below f64."""
        folds = () if self.mapped.target.is_cuda else running_folds(index, body)
        return {fold.update.id for fold in folds if self.mapped.buffers[fold.row].dtype != F64}

    def _twice(self, run: Callable[[State], State], state: State, turns: int) -> tuple[State, State, State, int]:
        """After one of a loop's turns, and after two that follow one another, and how many are left: the first and the
        second, of an outermost loop the next ones, for what its first turn hands on. Walking every body twice doubles
        the work with each loop around it, so in deep nests what the first turn changes is taken to grow without end."""
        self.depth += 1
        first = run(state) if turns else state
        once = again = first
        if turns > 1 and self.depth <= EXACT_DEPTH:
            again = run(first)
        elif turns > 1:
            again = {n: found if state.get(n) == found else ENDLESS for n, found in first.items()}
        left = max(turns - 2, 0)
        if left and self.depth == 1:
            first, again, left = again, run(again), left - 1
        self.depth -= 1
        return once, first, again, left

    def _repeated(self, first: State, second: State, more: int) -> State:
        """After so many more turns of a loop than two, given those: what grew in the second one grows in all."""

        def grown(name: str) -> Sum:
            a, b = first.get(name, Sum()), second[name]
            return Sum(
                chain=b.chain + more * max(0, b.chain - a.chain),
                partials=b.partials + more * max(0, b.partials - a.partials),
                additions=b.additions + more * max(0, b.additions - a.additions),
            )

        state = {name: grown(name) for name in second}
        for name, found in state.items():
            self._note(name, found)
        return state

    def _statement(self, statement: Generic, state: State, ranges: Ranges) -> State:
        leaf = statement.leaf
        if isinstance(leaf, Anchor):
            return state
        own = statement.origin in (Origin.SOURCE, Origin.REST)
        added = [state.get(read.buffer, Sum()) for read in read_accesses(leaf) if not own]
        chain = max((sum_.chain for sum_ in added), default=0)
        partials = max((sum_.partials for sum_ in added), default=0)
        if isinstance(leaf, Bind):
            others = Sum() if self._is_all(leaf) else state.get(leaf.buffer, Sum())
            bound = _greater(others, Sum(chain=chain, partials=partials))
            return {**state, leaf.buffer: self._note(leaf.buffer, bound)}
        if leaf.op is not AccOp.ADD:
            return state
        before = state.get(leaf.buffer, Sum())
        if leaf.id in self.folded and not self._rounds(leaf):
            chain, partials = (CPU_SCAN_LANES - 1).bit_length(), 1  # lanes add theirs in f32
        times = 0 if statement.origin is Origin.REST else self._meeting(statement, ranges)
        now = Sum(
            chain=max(before.chain, chain) + times * self._rounds(leaf),
            partials=before.partials + times * partials if partials else max(before.partials, 1),
            additions=before.additions + times,
        )
        return {**state, leaf.buffer: self._note(leaf.buffer, now)}

    def _reduction(self, node: Reduce | Scan, state: State, ranges: Ranges) -> State:
        """Partial results combined: in a tree over lanes, one after the other over a box."""
        of = [state.get(read.buffer, Sum()) for read in node.reads]
        count = math.prod(self._turns(extent, ranges) for _, extent in node.over)
        adds = node.monoid == OF_UPDATE[AccOp.ADD] and node.values[0].dtype != F64
        rounded = count - 1 + (node.lanes - 1).bit_length() if adds else 0
        now = Sum(
            chain=max((sum_.chain for sum_ in of), default=0) + rounded,
            partials=node.lanes * count * max((sum_.partials for sum_ in of), default=0),
        )
        return {**state, **{target.buffer: self._note(target.buffer, now) for target in node.targets}}

    def _over_blocks(self, value: str, target: str, flags: str, state: State, ranges: Ranges) -> State:
        """What all blocks before have, added one after the other."""
        (words,) = (words for words in self.mapped.words if words.name == flags)
        parts, own, before = self._turns(words.shape[-1], ranges), state.get(value, Sum()), state.get(target, Sum())
        rounded = parts if self.mapped.buffers[target].dtype != F64 else 0
        now = Sum(
            chain=max(own.chain, before.chain) + rounded,
            partials=before.partials + parts * own.partials,
            additions=before.additions + parts,
        )
        return {**state, target: self._note(target, now)}

    def _is_all(self, leaf: Bind) -> bool:
        """Whether every write of the buffer is of the element that this one binds, so that nothing is left of sums."""
        return not leaf.subscripts or self.places[leaf.buffer] == {leaf.subscripts}

    def _meeting(self, statement: Generic, ranges: Ranges) -> int:
        """How many threads may make this update of one element: those that a bare subscript does not tell apart."""
        leaf, store = statement.leaf, statement.store
        if isinstance(leaf, Anchor | Bind) or store is None or not store.atomic:
            return 1
        told = self._told(leaf)
        places = [d for d in self.launch.digits if d.index not in told and d.place in (*GRID_PLACES, Place.CORE)]
        inside = [d for d in self.launch.digits if d.index not in told and d.name in statement.digits]
        blocks = math.prod(self._turns(digit.radix, ranges) for digit in places)
        if not self.mapped.target.is_cuda and isinstance(leaf, Accumulate) and leaf.value.dtype == F64:
            return min(blocks, CPU_TASKS)
        if statement.unused is not None or not statement.digits:
            return blocks * (1 if statement.unused is Unused.ONCE else self.launch.threads)
        return blocks * math.prod(self._turns(digit.radix, ranges) for digit in inside)

    def _told(self, leaf: Accumulate | Atomic) -> frozenset[str]:
        """The indices that the updated element tells, those apart that repeat its additions."""
        if leaf.id not in self.telling:
            program = self.mapped.proved.program
            told = {s.name for s in leaf.subscripts if isinstance(s, IndexVar)}
            for statement in program.statements:
                if leaf.id in (statement.id, f"{statement.id}_out"):
                    again = repeating(program, statement, size_ranges(program.kernel))
                    told |= {loop.index for depth, loop in enumerate(statement.loops) if depth not in again}
            self.telling[leaf.id] = frozenset(told)
        return self.telling[leaf.id]

    def _told_apart(self, loop: Loop) -> set[str]:
        """The buffers whose updates in a loop are of different elements in different turns: they tell its index."""
        inside = list(every_node(loop.body))
        own = {loop.index}
        for node in inside:
            if isinstance(node, Define) and names(node.value) & own:
                own.add(node.index)
        leaves = [s.leaf for s in inside if isinstance(s, Generic)]
        leaves += [leaf for s in inside if isinstance(s, Elementwise) for leaf in s.leaves]
        updates = [leaf for leaf in leaves if isinstance(leaf, Accumulate | Atomic)]
        met = {update.buffer for update in updates if own.isdisjoint(self._told(update))}
        return {update.buffer for update in updates} - met

    def _rounds(self, leaf: Leaf) -> bool:
        assert isinstance(leaf, Accumulate | Atomic), "only updates round a sum"
        return leaf.value.dtype != F64 or self.mapped.buffers[leaf.buffer].dtype != F64

    def _turns(self, extent: IndexExpr, ranges: Ranges) -> int:
        greatest = most(extent, ranges)
        return UNKNOWN if greatest is None else greatest

    def _note(self, name: str, found: Sum) -> Sum:
        self.greatest[name] = _greater(self.greatest.get(name, Sum()), found)
        return found


def _known(ranges: Ranges, node: ast.Node) -> ast.Node:
    """A size of one value as that value."""
    if not isinstance(node, SizeVar) or node.name not in ranges:
        return node
    low, high = ranges[node.name]
    return high if low == high else node


def _within(ranges: Ranges, index: str, extent: IndexExpr) -> Ranges:
    found = index_range(extent, ranges)
    return ranges if found is None else {**ranges, index: found}


def _either(left: State, right: State) -> State:
    return {name: _greater(left.get(name, Sum()), right.get(name, Sum())) for name in {**left, **right}}


def _greater(left: Sum, right: Sum) -> Sum:
    return Sum(
        chain=max(left.chain, right.chain),
        partials=max(left.partials, right.partials),
        additions=max(left.additions, right.additions),
    )


def _least(found: Sum, limit: int | None) -> Sum:
    if limit is None:
        return found
    return Sum(
        chain=min(found.chain, limit), partials=min(found.partials, limit), additions=min(found.additions, limit)
    )
