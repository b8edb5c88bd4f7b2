"""The interpreter of the table in `states.py`: accesses to blocks in several memories, transfers, waiters.

`Machine` decides, and moves nothing. Its caller holds one lock, asks by `request`, and then sees to what came of it:
`started` has the transfers that are to be made, each of which is answered by `done`; `answered` the tokens of
waiting requests that have what they asked for, or were refused.

Every `release`, `cancel` and `done` looks at the block's queue again, which is served in order.
"""

from collections import deque
from typing import Any, Protocol

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.residency import GRANTED, HOME, READY, UNALLOCATED, Chain, Outcome, Residency, Transfer, check
from texpr.runtime.tasks.states import TABLES, Cell, Need, Op, Others, State, Step, Tables

_SHARE, _FLUSH = Need.SHARE, Op.FLUSH  # names of the module are found faster than members,
_SYNC, _INVALIDATE, _SETTLE = int(Others.SYNC), int(Others.INVALIDATE), int(Others.SETTLE)  # and numbers than flags


class Memory(Protocol):
    """Who makes the buffers of the other nodes."""

    def allocate(self, residency: Residency, node: int) -> None: ...
    def free(self, residency: Residency, node: int) -> None: ...
    def near(self, node: int, other: int) -> bool:
        """Whether a buffer at a node is better filled from one at another node than from home."""

    def cleaned(self, residency: Residency, node: int) -> None:
        """What a node has, and nobody else had, is at home from now on, or worthless."""


class Machine:
    def __init__(self, memory: Memory, tables: Tables = TABLES, *, debug: bool = False) -> None:
        self._memory, self._tables, self._debug = memory, tables, debug
        rows = ((table.get((op, state)) for state in State) for table in (tables.home, tables.away) for op in Op)
        cells = [tuple(row) for row in rows]
        self._cells = (tuple(cells[: len(Op)]), tuple(cells[len(Op) :]))
        self._released = [tuple(map(ends.get, State)) for ends in tables.released]
        self._given_up = [tuple(map(ends.get, State)) for ends in tables.given_up]
        self.started: list[Transfer] = []
        self.answered: list[tuple[Any, Outcome]] = []

    def request(self, residency: Residency, op: int, node: int, token: Any) -> Outcome:
        """An access, as an Op or a Mode, or a FLUSH. GRANTED, REFUSED, or WAITING."""
        if residency.quiet and node == HOME:
            cell = self._cells[0][op][residency.state[HOME]]
            if cell is not None and (cell.need is _SHARE or not residency.holders[HOME]):
                if op < _FLUSH:
                    residency.holders[HOME] += 1
                    residency.state[HOME], residency.back[HOME] = cell.next, cell.back
                return GRANTED
        if residency.queue:
            outcome = Outcome.BLOCKED
        else:
            outcome = self._attempt(residency, Op(op), node, token)
        if outcome is Outcome.BLOCKED:
            if residency.queue is None:
                residency.queue = deque()
            residency.queue.append((Op(op), node, token))
            outcome = Outcome.WAITING
        self._rest(residency)
        return outcome

    def evict(self, residency: Residency, node: int) -> Outcome:
        """Give up the buffer at a node, writing back what is only there. REFUSED where it is in use; WAITING while it
        is written back."""
        if residency.pins[node] or self._cells[node != HOME][Op.EVICT][residency.state[node]] is None:
            return Outcome.REFUSED
        outcome = self._attempt(residency, Op.EVICT, node, None)
        self._rest(residency)
        return Outcome.REFUSED if outcome is Outcome.BLOCKED else outcome

    def take(self, residency: Residency, node: int) -> None:
        """The buffer of a granted access is handed out: a writer's values replace the earlier ones from here on."""
        if residency.undo is not None and residency.undo[0] == node:
            residency.undo = None
            self._serve(residency)

    def release(self, residency: Residency, node: int) -> None:
        """A holder is done; what it wrote or added counts."""
        state = residency.state[node]
        following = self._released[node != HOME][state]
        if following is None or not residency.holders[node]:
            raise InternalError(f"release of {residency.key!r} at node {node}, which nobody holds")
        residency.holders[node] -= 1
        residency.state[node] = following
        if residency.quiet:
            return
        if state is State.DIRTY:
            residency.spoilt = residency.undo = None
        self._serve(residency)

    def cancel(self, residency: Residency, node: int, spoilt: Any = None) -> None:
        """A holder gives up. Without `spoilt` its buffer was never handed out, and nothing happened; with it, a
        writer's block has no value until it is written again."""
        state = residency.state[node]
        if residency.quiet and spoilt is None and residency.holders[node]:
            residency.holders[node] -= 1
            if state is not READY:
                residency.state[node] = residency.back[node]
            return
        following = self._given_up[node != HOME][state]
        if following is None or not residency.holders[node]:
            raise InternalError(f"cancel of {residency.key!r} at node {node}, which nobody holds")
        residency.holders[node] -= 1
        if spoilt is not None:
            residency.state[node] = following
            if state in self._tables.spoils:
                residency.spoilt = spoilt
        elif state is not READY:
            residency.state[node] = residency.back[node]
            if residency.undo is not None and residency.undo[0] == node:
                for other, before in enumerate(residency.undo[1]):
                    if other not in (node, HOME) and before > State.UNINITIALISED:
                        residency.state[other] = before
        if residency.undo is not None and residency.undo[0] == node:
            residency.undo = None
        self._serve(residency)

    def spoil(self, residency: Residency, why: Any) -> None:
        """A block loses its value: who should have written it did not."""
        residency.spoilt = why
        self._serve(residency)

    def overtaken(self, residency: Residency, spoilt: Any) -> None:
        """Another rank has changed the block at home, and may have left it without a value: what was read here is
        worthless. Terms that are to be added stay."""
        for node, at in enumerate(residency.state):
            if node != HOME and at in (READY, State.DIRTY):
                if self._busy(residency, node) or at is State.DIRTY:
                    raise InternalError(f"{residency.key!r} is used at node {node} while another rank changes it")
                residency.state[node] = State.UNINITIALISED
        residency.spoilt = spoilt
        self._serve(residency)

    def withdraw(self, residency: Residency, node: int, token: Any) -> None:
        """An access that was answered by WAITING, and has not been granted, is wanted no more."""
        for entry in residency.queue or ():
            if entry[2] is token and residency.queue is not None:
                residency.queue.remove(entry)
                self._serve(residency)
                return
        for joined in residency.joined:
            if joined[1] is token:
                residency.joined = tuple(other for other in residency.joined if other is not joined)
                self.cancel(residency, node)
                return
        for chain in residency.chains:
            if chain.token is token:
                chain.abandoned = True
                return
        raise InternalError(f"a request for {residency.key!r} is withdrawn that does not wait")

    def done(self, transfer: Transfer, broken: Any = None) -> None:
        """A transfer is over (the seed's DONE_WAITING): the next stage begins, waiters go on. `broken` is why it was
        not made: then the block has no value, and who waits to read or to add is refused."""
        residency, node = transfer.residency, transfer.node
        self._count(transfer, -1)
        if broken is not None:
            residency.spoilt = broken
        chain = transfer.chain
        if chain is not None:
            chain.left -= 1
            if chain.left == 0:
                self._advance(chain)
        for arrived in {node, HOME}:
            if not residency.incoming[arrived]:
                there = [joined for joined in residency.joined if joined[0] == arrived]
                residency.joined = tuple(joined for joined in residency.joined if joined[0] != arrived)
                for _, token in there:
                    self._grant(residency, Op.READ, arrived, token)
        self._serve(residency)

    def _serve(self, residency: Residency) -> None:
        """Begin what waits, as far as it may."""
        queue = residency.queue
        while queue:
            op, node, token = queue[0]
            outcome = self._attempt(residency, op, node, token)
            if outcome is Outcome.BLOCKED:
                break
            queue.popleft()
            if outcome is not Outcome.WAITING:
                self.answered.append((token, outcome))
        if not queue:
            residency.queue = None
        self._rest(residency)

    def _rest(self, residency: Residency) -> None:
        residency.quiet = not (
            residency.queue
            or residency.chains
            or residency.joined
            or residency.undo is not None
            or residency.spoilt is not None
            or any(residency.incoming)
            or any(residency.outgoing)
            or max(residency.state[1:], default=0) > State.UNINITIALISED
        )
        if self._debug:
            check(residency)

    def _attempt(self, residency: Residency, op: Op, node: int, token: Any) -> Outcome:
        """Begin an operation, if its condition holds."""
        state, access = residency.state, op < Op.FLUSH
        if residency.spoilt is not None and access and op is not Op.WRITE:
            return Outcome.REFUSED
        if not access and residency.undo is not None:
            return Outcome.BLOCKED
        if state[node] is UNALLOCATED and access:
            if residency.outgoing[node]:
                return Outcome.BLOCKED
            self._memory.allocate(residency, node)
            state[node] = State.UNINITIALISED
        cell = self._cells[node != HOME][op][state[node]]
        if cell is None:
            raise InternalError(f"{op.name} of {residency.key!r} in state {state[node].name} at node {node}")
        moving = residency.incoming[node] or residency.outgoing[node]
        if moving and cell.need in (Need.ALONE, Need.STILL):
            return Outcome.BLOCKED
        if residency.holders[node] and cell.need in (Need.ALONE, Need.UNHELD):
            return Outcome.BLOCKED
        stages = self._stages(residency, node, cell)
        if stages is None:
            return Outcome.BLOCKED
        joins = cell.need is Need.SHARE and cell.waits and residency.incoming[node] > 0
        self._change(residency, node, cell)
        if access:
            residency.holders[node] += 1
            residency.back[node] = cell.back
        if stages and cell.waits:
            self._chain(Chain(residency, op, node, token), stages)
            return Outcome.WAITING
        for step, at in (pair for stage in stages for pair in stage):
            self._start(Transfer(step, residency, at, None))
        if op is Op.EVICT:
            self._memory.free(residency, node)
        if joins:
            residency.joined += ((node, token),)
            return Outcome.WAITING
        return Outcome.GRANTED

    def _chain(self, chain: Chain, stages: list[list[tuple[Step, int]]]) -> None:
        """Start the first stage of an operation that waits for its transfers."""
        residency = chain.residency
        chain.stages = [[Transfer(step, residency, at, chain) for step, at in stage] for stage in stages]
        for later in chain.stages[1:]:  # what will arrive here is announced, so that nobody comes between
            for transfer in later:
                residency.incoming[transfer.node] += 1
        residency.chains += (chain,)
        first = chain.stages.pop(0)
        chain.left = len(first)
        for transfer in first:
            self._start(transfer)

    def _stages(self, residency: Residency, node: int, cell: Cell) -> list[list[tuple[Step, int]]] | None:
        """The transfers that an operation needs, as steps and nodes; None where it must wait for other nodes."""
        state, others = residency.state, int(cell.others)
        home = []
        for other, at in enumerate(state):
            if other == node:
                continue
            busy = residency.holders[other] or residency.incoming[other] or residency.outgoing[other]
            if other == HOME:
                if others & _INVALIDATE and busy:
                    return None
                if others & _SETTLE and (at is State.DIRTY or (at is READY and residency.holders[HOME])):
                    return None
                continue
            if at is State.DIRTY and others & (_SYNC | _SETTLE):
                home.append((Step.PUT, other))
            elif at is State.PARTIAL and others & _SYNC:
                home.append((Step.ADD, other))
            elif not (others & _INVALIDATE or (others & _SETTLE and at is READY)):
                continue
            if busy:
                return None
        stages = [home] if home else []
        for stage in cell.stages:
            pairs: list[tuple[Step, int]] = []
            for step in stage:
                if step is Step.ADD_ALL:
                    partial = [other for other, at in enumerate(state) if at is State.PARTIAL and other != HOME]
                    if any(self._busy(residency, other) for other in partial):
                        return None
                    pairs += [(Step.ADD, other) for other in partial]
                else:
                    pairs.append((step, node))
            stages.append(pairs)
        for number, pair in enumerate(stages):
            for step, _ in pair:
                if step in (Step.PUT, Step.ADD) and (state[HOME] is not READY or self._busy(residency, HOME)):
                    return None
                if step is Step.GET and number == 0 and (state[HOME] is not READY or residency.incoming[HOME]):
                    return None
        return stages

    def _busy(self, residency: Residency, node: int) -> bool:
        return bool(residency.holders[node] or residency.incoming[node] or residency.outgoing[node])

    def _change(self, residency: Residency, node: int, cell: Cell) -> None:
        """The states after an operation has begun."""
        state, others = residency.state, int(cell.others)
        before = tuple(state)
        adds_all = any(Step.ADD_ALL in stage for stage in cell.stages)
        for other, at in enumerate(state):
            if other in (node, HOME):
                continue
            if at is State.DIRTY and others & _SYNC:
                state[other] = READY
            elif at is State.PARTIAL and (others & _SYNC or adds_all):
                state[other] = State.UNINITIALISED
            if others & _INVALIDATE and state[other] > State.UNINITIALISED:
                if others == _INVALIDATE and at in (State.DIRTY, State.PARTIAL) and not adds_all:
                    residency.undo = (node, before)  # what only they have is lost when the writer takes its buffer
                state[other] = State.UNINITIALISED
            if others & _SETTLE and state[other] in (READY, State.DIRTY):
                state[other] = State.UNINITIALISED
        state[node] = cell.next
        for other, at in enumerate(before):
            if at > READY >= state[other]:
                self._memory.cleaned(residency, other)

    def _start(self, transfer: Transfer) -> None:
        if transfer.step is Step.GET:
            transfer.source = self._source(transfer.residency, transfer.node)
        self._count(transfer, 1)
        self.started.append(transfer)

    def _source(self, residency: Residency, node: int) -> int:
        """From where a node gets a block: from one near it that has the same values as home, or from home."""
        for other, at in enumerate(residency.state):
            there = other not in (HOME, node) and at is READY and not residency.incoming[other]
            if there and self._memory.near(node, other):
                return other
        return HOME

    def _count(self, transfer: Transfer, by: int) -> None:
        residency, node = transfer.residency, transfer.node
        if transfer.step in (Step.PUT, Step.ADD):
            residency.outgoing[node] += by
            residency.incoming[HOME] += by
        else:
            residency.incoming[node] += by
            if transfer.step is Step.GET:
                residency.outgoing[transfer.source] += by

    def _advance(self, chain: Chain) -> None:
        """A stage of a chain is over."""
        residency, node = chain.residency, chain.node
        if chain.stages:
            stage = chain.stages.pop(0)
            chain.left = len(stage)
            for transfer in stage:
                residency.incoming[transfer.node] -= 1  # it was announced
                self._start(transfer)
            return
        residency.chains = tuple(other for other in residency.chains if other is not chain)
        if chain.op is Op.EVICT:
            self._memory.free(residency, node)
        elif chain.abandoned:
            self.cancel(residency, node)
        else:
            self._grant(residency, chain.op, node, chain.token)

    def _grant(self, residency: Residency, op: Op, node: int, token: Any) -> None:
        """What an operation waited for is over; an access to what has become worthless is taken back."""
        worthless = residency.spoilt is not None and op < _FLUSH and op is not Op.WRITE
        if worthless:
            self.cancel(residency, node)
        self.answered.append((token, Outcome.REFUSED if worthless else GRANTED))
