"""Where a block's values are, in several memories: states, holders, transfers on their way, and who waits."""

from array import array
from collections import deque
from enum import IntEnum
from typing import Any

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.states import Op, State, Step

HOME = 0  # the node of the home memory
REMOTE = 1  # in engines of several ranks, that of what workers at home have of blocks elsewhere (see `ranks`)
AT_HOME = (HOME,) * 4  # of an access by workers at home: the node, by mode
READY, UNALLOCATED = State.READY, State.UNALLOCATED
_READY, _NONE, _NOTHING = [READY], array("i", [0]), [None]


class Outcome(IntEnum):
    GRANTED = 0  # the buffer is there
    WAITING = 1  # the token will be in `answered`
    REFUSED = 2  # the block has no value, or the command cannot begin
    BLOCKED = 3  # within the machine: the condition does not hold


GRANTED = Outcome.GRANTED


class Residency:
    """A block's states, holders and transfers, one for each node, and who waits. `quiet`: all of it is at home, nothing
    is in flight, nobody waits. `spoilt` is why the block has no value. `places` are the nodes at which workers at home
    have the block, by the mode of the access."""

    __slots__ = (
        "back", "buffers", "chains", "holders", "incoming", "joined", "key", "outgoing", "pins", "places", "queue",
        "quiet", "spoilt", "state", "undo",
    )  # fmt: skip

    def __init__(self, key: Any, nodes: int, places: tuple[int, ...] = AT_HOME) -> None:
        self.key = key  # whose residency it is
        self.places = places
        alone = nodes == 1  # then nothing is ever moved or evicted, and all blocks share what never changes
        self.state = [READY, *(UNALLOCATED,) * (nodes - 1)]
        self.back = _READY if alone else list(self.state)
        self.holders = array("i", bytes(4 * nodes))  # arrays, which the garbage collector leaves alone
        self.incoming = _NONE if alone else array("i", bytes(4 * nodes))
        self.outgoing = _NONE if alone else array("i", bytes(4 * nodes))
        self.pins = _NONE if alone else array("i", bytes(4 * nodes))  # tasks that count on the buffer to stay
        self.buffers: list[Any] = _NOTHING if alone else [None] * nodes  # of the other nodes
        self.queue: deque[tuple[Op, int, Any]] | None = None
        self.joined: tuple[tuple[int, Any], ...] = ()  # readers that wait for what arrives at their node
        self.chains: tuple[Chain, ...] = ()
        self.undo: tuple[int, tuple[State, ...]] | None = None  # a writer that may yet give up, the states before it
        self.spoilt: Any = None
        self.quiet = True

    def held_at(self, node: int) -> int:
        """Where a task at a node, which holds the block, has it. One at home that adds has it at the node of sums; as
        long as anybody does, nobody else at home reads or writes it (`states`)."""
        return node or (REMOTE if self.places is not AT_HOME and self.holders[REMOTE] else HOME)


class Chain:
    """An operation on its way: what it waits for, and what comes then."""

    __slots__ = ("abandoned", "left", "node", "op", "residency", "stages", "token")

    def __init__(self, residency: Residency, op: Op, node: int, token: Any) -> None:
        self.residency, self.op, self.node, self.token = residency, op, node, token
        self.stages: list[list[Transfer]] = []
        self.left = 0
        self.abandoned = False


class Transfer:
    """A transfer between a node and home, or within a node (FILL). A GET may come from another node as well. `passage`
    is memory of this host by which it goes, where a GPU and another rank have its ends."""

    __slots__ = ("chain", "node", "passage", "residency", "source", "step")

    def __init__(self, step: Step, residency: Residency, node: int, chain: Chain | None) -> None:
        self.step, self.residency, self.node, self.chain = step, residency, node, chain
        self.source = HOME  # of a GET
        self.passage: Any = None


def check(residency: Residency) -> None:
    """The invariants of a block; a violation is a defect of ours."""
    state, holders = residency.state, residency.holders
    away = state[1:]
    dirty, partial, ready = (away.count(s) for s in (State.DIRTY, State.PARTIAL, READY))
    home = state[HOME]
    good = dirty <= 1 and not (dirty and (partial or ready)) and not (partial and ready)
    good &= not (dirty and (home is not READY or holders[HOME])) and not (ready and home is not READY)
    good &= not (home is State.DIRTY and partial) and home >= READY
    good &= all(count >= 0 for counts in (holders, residency.incoming, residency.outgoing) for count in counts)
    for node, at in enumerate(state):
        good &= not (at <= State.UNINITIALISED and (holders[node] or residency.incoming[node]))
        good &= not (at >= State.DIRTY and holders[node] > 1)
        good &= not (node == HOME and at >= State.DIRTY and holders[node] != 1)
    good &= not (residency.incoming[HOME] and residency.outgoing[HOME])
    if not good:
        states = ", ".join(f"{at.name} held by {count}" for at, count in zip(state, holders, strict=True))
        raise InternalError(f"{residency.key!r} is inconsistent: {states}")
