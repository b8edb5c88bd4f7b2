"""The table of residency: where a block's values are, and what an access or a command makes of it.

For each block and memory node there is a state, a count of those who hold the buffer, and transfers in flight. The
label of a state is what holds when the transfers are over:

    UNALLOCATED     the node has no buffer            READY       the buffer equals the memory at home
    UNINITIALISED   a buffer with nothing in it       DIRTY       the buffer is newer than home; it is the only copy
                                                      PARTIAL     the buffer holds terms that are to be added at home

A cell says under which condition an operation may begin (`need`), what becomes of the other nodes (`others`), the
transfers (`stages`, one after another, those of a stage together), and the next state; `back` is the state to which an
access returns that is given up before its buffer was handed out. An operation whose condition does not hold waits in
the block's queue. At home the buffer is the home memory itself: there DIRTY and PARTIAL last only while it is held.

For each block, either several nodes are READY, or one is DIRTY, or any number are PARTIAL; the rest hold nothing. Home
counts as READY unless it is held, and is not up to date while another node is DIRTY or PARTIAL.
"""

from enum import Enum, IntEnum, IntFlag

from texpr.grammar.records import dataclass


class State(IntEnum):
    UNALLOCATED = 0
    UNINITIALISED = 1
    READY = 2
    DIRTY = 3
    PARTIAL = 4


class Op(IntEnum):
    """Accesses, numbered as `permissions.Mode` numbers them, and commands."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    ACCUMULATE = 3
    FLUSH = 4
    EVICT = 5


class Need(Enum):
    """When an operation may begin, as far as its own node is concerned."""

    SHARE = "always; it waits for what is arriving"
    UNHELD = "nobody holds the buffer (and then no transfer is in flight)"
    ALONE = "nobody holds the buffer, no transfer is in flight"
    STILL = "no transfer is in flight"


class Others(IntFlag):
    """What becomes of the buffers at other nodes. Whoever is changed must be held by nobody, with no transfer."""

    NOTHING = 0
    SYNC = 1  # DIRTY is put and stays READY, PARTIAL is added and becomes UNINITIALISED
    INVALIDATE = 2  # whatever they hold is worthless
    SETTLE = 4  # DIRTY is put, then DIRTY and READY become UNINITIALISED; PARTIAL stays


class Step(Enum):
    """A transfer. All but FILL and GET are into home."""

    PUT = "copy the buffer home"
    ADD = "add the buffer to home"
    ADD_ALL = "add the buffers of all PARTIAL nodes to home"
    GET = "copy home into the buffer"
    FILL = "fill the buffer with zeros"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    need: Need
    next: State
    back: State
    others: Others = Others.NOTHING
    stages: tuple[tuple[Step, ...], ...] = ()
    waits: bool = True  # whether the operation waits for its transfers, and for what is arriving


Table = dict[tuple[Op, State], Cell]
_U, _N, _R, _D, _P = State
_SYNC, _INV, _SETTLE = Others.SYNC, Others.INVALIDATE, Others.SETTLE


def _alone(next: State, back: State, others: Others = Others.NOTHING, *stages: tuple[Step, ...]) -> Cell:
    return Cell(need=Need.ALONE, next=next, back=back, others=others, stages=stages)


def _unheld(next: State, back: State, step: tuple[Step, ...], *, waits: bool = True) -> Cell:
    return Cell(need=Need.UNHELD, next=next, back=back, stages=(step,), waits=waits)


def _share(others: Others) -> Cell:
    return Cell(need=Need.SHARE, next=_R, back=_R, others=others)


def _still(state: State) -> Cell:
    return Cell(need=Need.STILL, next=state, back=state)


_NONE = Others.NOTHING
_PUT, _ADD, _ADD_ALL, _GET, _FILL = ((step,) for step in Step)

# An access to an UNALLOCATED block makes a buffer, and goes on as UNINITIALISED.
AWAY: Table = {
    (Op.READ, _N): _alone(_R, _R, _SYNC, _GET),
    (Op.READ, _R): _share(_NONE),
    (Op.READ, _D): _unheld(_R, _R, _PUT, waits=False),
    (Op.READ, _P): _alone(_R, _R, _NONE, _ADD_ALL, _GET),
    (Op.WRITE, _N): _alone(_D, _N, _INV),
    (Op.WRITE, _R): _alone(_D, _R, _INV),
    (Op.WRITE, _D): _alone(_D, _D, _INV),
    (Op.WRITE, _P): _alone(_D, _P, _INV),
    (Op.READ_WRITE, _N): _alone(_D, _R, _SYNC | _INV, _GET),
    (Op.READ_WRITE, _R): _alone(_D, _R, _INV),
    (Op.READ_WRITE, _D): _alone(_D, _D, _INV),
    (Op.READ_WRITE, _P): _alone(_D, _R, _INV, _ADD_ALL, _GET),
    (Op.ACCUMULATE, _N): _alone(_P, _N, _SETTLE, _FILL),
    (Op.ACCUMULATE, _R): _alone(_P, _N, _SETTLE, _FILL),
    (Op.ACCUMULATE, _D): _alone(_P, _N, _NONE, _PUT, _FILL),
    (Op.ACCUMULATE, _P): _alone(_P, _P),
    (Op.FLUSH, _U): _still(_U),
    (Op.FLUSH, _N): _still(_N),
    (Op.FLUSH, _R): _still(_R),
    (Op.FLUSH, _D): _unheld(_R, _D, _PUT),
    (Op.FLUSH, _P): _unheld(_N, _P, _ADD),
    (Op.EVICT, _N): _alone(_U, _U),
    (Op.EVICT, _R): _alone(_U, _U),
    (Op.EVICT, _D): _unheld(_U, _U, _PUT),
    (Op.EVICT, _P): _unheld(_U, _U, _ADD),
}

# A cell of a state that only a holder sees waits for it: `ALONE` never holds there.
HOME: Table = {
    (Op.READ, _R): _share(_SYNC),
    (Op.WRITE, _R): _alone(_D, _R, _INV),
    (Op.READ_WRITE, _R): _alone(_D, _R, _SYNC | _INV),
    (Op.ACCUMULATE, _R): _alone(_P, _R, _SETTLE),
    (Op.FLUSH, _R): _still(_R),
    **{(op, state): _alone(state, state) for op in tuple(Op)[:5] for state in (_D, _P)},
}

Ends = dict[State, State]
RELEASED_AWAY: Ends = {_R: _R, _D: _D, _P: _P}  # one holder less; a writer's values stand
RELEASED_HOME: Ends = {_R: _R, _D: _R, _P: _R}
GIVEN_UP_AWAY: Ends = {_R: _R, _D: _N, _P: _N}  # after the buffer was handed out; a writer's block has no value then
GIVEN_UP_HOME: Ends = {_R: _R, _D: _R, _P: _R}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All that the interpreter obeys; tests exchange single cells."""

    away: Table
    home: Table
    released: tuple[Ends, Ends]  # at home, away
    given_up: tuple[Ends, Ends]
    spoils: frozenset[State] = frozenset((_D, _P))  # giving up in this state leaves the block without a value


TABLES = Tables(
    away=AWAY,
    home=HOME,
    released=(RELEASED_HOME, RELEASED_AWAY),
    given_up=(GIVEN_UP_HOME, GIVEN_UP_AWAY),
)
