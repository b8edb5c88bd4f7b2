"""Model checking of the residency of blocks: every interleaving of a few tasks, transfers and ends, against an oracle.

    python tests/properties/residency_model.py [--tasks 3] [--nodes 3] [--seeds 0] [--blocks 1] [--breaks 0]

A script is a list of tasks, each with an operation on one block or on two, a node, and how it ends: `commit`, `early`
(gives up at any moment before it took its buffers, also while it waits) or `late` (after). All orders are run in which
tasks are issued, get their buffers, take them, and end, and in which transfers move their data and are then reported,
or, so many as `--breaks` says, fail. The oracle keeps one value for each block, changed where tasks commit. Without
`--seeds`, all scripts of that length are run; with it, so many random ones.
"""

import argparse
import pickle
from copy import copy
from typing import Any

from residency_scripts import Script, scripts

from texpr.grammar.diagnostics import InternalError
from texpr.runtime.tasks.machine import Machine
from texpr.runtime.tasks.residency import HOME, Outcome, Residency, Transfer
from texpr.runtime.tasks.states import TABLES, Op, State, Step, Tables


class WrongError(Exception):
    """The machine did what the oracle does not allow."""


def require(good: bool, said: str) -> None:
    if not good:
        raise WrongError(said)


GARBAGE = -1


class World:
    """A machine with memory whose content is one number for each block and node. The oracle's value is None where the
    block has none."""

    def __init__(self, script: Script, nodes: int, tables: Tables, breaks: int = 0) -> None:
        self.script = script
        self.breaks = breaks  # how many transfers may yet fail
        blocks = 1 + max(block for task in script for block, _ in task.accesses)
        self.machine = Machine(self, tables, debug=True)
        self.blocks = [Residency(b, nodes) for b in range(blocks)]
        self.store = [[1000] + [GARBAGE] * (nodes - 1) for _ in range(blocks)]
        self.value: list[int | None] = [1000] * blocks
        self.issued = 0
        self.phase = ["unborn"] * len(script)  # unborn, waiting, held, taken, over
        self.reached = [0] * len(script)  # how many accesses a task has asked for
        self.seen: list[dict[int, int]] = [{} for _ in script]  # what a task found in its buffers
        self.moved: list[Transfer] = []
        self.flying: list[Transfer] = []

    # copies of what changes; the script and the machine's tables are shared

    def packed(self) -> bytes:
        changing = {name: value for name, value in self.__dict__.items() if name not in ("script", "machine")}
        return pickle.dumps((changing, self.machine.started, self.machine.answered))

    def unpacked(self, packed: bytes) -> "World":
        other, machine = copy(self), copy(self.machine)
        changing, machine.started, machine.answered = pickle.loads(packed)
        other.__dict__ |= changing
        other.machine, machine._memory = machine, other
        return other

    # the memory of the machine

    def allocate(self, residency: Residency, node: int) -> None:
        require(residency.buffers[node] is None, "a buffer is made twice")
        residency.buffers[node] = True
        self.store[residency.key][node] = GARBAGE

    def free(self, residency: Residency, node: int) -> None:
        require(residency.buffers[node] is True, "a buffer is freed that is not there")
        moving = residency.incoming[node] + residency.outgoing[node]
        require(not residency.holders[node] and not moving, "a buffer in use is freed")
        residency.buffers[node] = None
        self.store[residency.key][node] = GARBAGE

    def near(self, node: int, other: int) -> bool:
        return True

    def cleaned(self, residency: Residency, node: int) -> None:
        assert residency.state[node] <= State.READY

    # what may happen next

    def events(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        if self.issued < len(self.script):
            found.append(("issue", self.issued))
        for t, phase in enumerate(self.phase):
            end = self.script[t].end
            if phase == "held":
                found.append(("take", t))
            if phase == "taken":
                found.append(("end", t))
            if end == "early" and phase in ("waiting", "held") and self.script[t].accesses[0][1] < Op.FLUSH:
                found.append(("give up", t))
        found += [("move", k) for k, transfer in enumerate(self.flying) if not any(transfer is m for m in self.moved)]
        found += [("break", k) for what, k in found if what == "move" and self.breaks]
        found += [("done", k) for k, transfer in enumerate(self.flying) if any(transfer is m for m in self.moved)]
        return found

    def happen(self, what: str, which: int) -> None:
        if what == "issue":
            self.issued += 1
            self.phase[which] = "waiting"
            self.ask(which)
        elif what == "take":
            self.take(which)
        elif what == "end":
            self.end(which)
        elif what == "give up":
            self.give_up(which)
        elif what == "move":
            self.move(self.flying[which])
        elif what == "break":
            self.breaks, transfer = self.breaks - 1, self.flying.pop(which)
            self.value[transfer.residency.key] = None
            self.machine.done(transfer, "broken")
        else:
            transfer = self.flying.pop(which)
            self.moved = [m for m in self.moved if m is not transfer]
            self.machine.done(transfer)
        self.settle()

    def settle(self) -> None:
        while self.machine.answered:
            self.answer(*self.machine.answered.pop(0))
        self.flying += self.machine.started
        self.machine.started.clear()

    # tasks

    def ask(self, t: int) -> None:
        task = self.script[t]
        while self.reached[t] < len(task.accesses):
            block, op = task.accesses[self.reached[t]]
            self.reached[t] += 1
            residency = self.blocks[block]
            if op is Op.EVICT:
                self.phase[t] = "over"
                before = residency.state[task.node]
                outcome = self.machine.evict(residency, task.node)
                gone = outcome is Outcome.REFUSED or residency.state[task.node] is State.UNALLOCATED
                require(gone, f"evicted from {before.name}, and still there")
                return
            outcome = self.machine.request(residency, op, task.node, t)
            if outcome is Outcome.WAITING:
                return
            self.got(t, outcome)
            if outcome is Outcome.REFUSED:
                return
        if self.phase[t] == "waiting":
            self.phase[t] = "held"

    def answer(self, t: int, outcome: Outcome) -> None:
        self.got(t, outcome)
        if outcome is Outcome.GRANTED and self.phase[t] == "waiting":
            self.ask(t)

    def got(self, t: int, outcome: Outcome) -> None:
        """The access that task t asked for last is answered."""
        task = self.script[t]
        block, op = task.accesses[self.reached[t] - 1]
        residency, node = self.blocks[block], task.node
        if outcome is Outcome.REFUSED:
            require(self.value[block] is None, "a block with a value is refused")
            for earlier, _ in task.accesses[: self.reached[t] - 1]:
                self.machine.cancel(self.blocks[earlier], node)
            self.phase[t] = "over"
            return
        if op is Op.FLUSH:
            require(not residency.outgoing[node], "a flush ends while its transfer is on its way")
            self.phase[t] = "over"
            return
        if op is not Op.WRITE:
            require(self.value[block] is not None, "a block without a value is granted")
        if op in (Op.READ, Op.READ_WRITE):
            self.compare(block, node, f"{task}")

    def compare(self, block: int, node: int, who: str) -> None:
        value, found = self.value[block], self.store[block][node]
        require(value is None or found == value, f"{who} finds {found} in block {block}, not {value}")

    def take(self, t: int) -> None:
        task = self.script[t]
        self.phase[t] = "taken"
        for block, op in task.accesses:
            residency, store = self.blocks[block], self.store[block]
            self.machine.take(residency, task.node)
            if op in (Op.READ, Op.READ_WRITE):
                self.compare(block, task.node, f"{task}")
                self.seen[t][block] = store[task.node]
            if op is Op.WRITE:
                store[task.node] = 2000 + 100 * t
            elif op is Op.READ_WRITE:
                store[task.node] = 3 * store[task.node] + t
            elif op is Op.ACCUMULATE:
                store[task.node] += 1 << t

    def end(self, t: int) -> None:
        task = self.script[t]
        self.phase[t] = "over"
        for block, op in task.accesses:
            residency = self.blocks[block]
            if op is Op.READ:
                require(self.store[block][task.node] == self.seen[t][block], f"what {task} reads changes under it")
            if task.end == "late":
                self.machine.cancel(residency, task.node, spoilt="late")
                if op is not Op.READ:
                    self.value[block] = None
                continue
            old = self.value[block]
            if op is Op.WRITE:
                self.value[block] = 2000 + 100 * t
            elif op is Op.READ_WRITE and old is not None:
                self.value[block] = 3 * old + t
            elif op is Op.ACCUMULATE and old is not None:
                self.value[block] = old + (1 << t)
            if op in (Op.WRITE, Op.READ_WRITE):
                self.compare(block, task.node, f"{task} at its end")
            self.machine.release(residency, task.node)

    def give_up(self, t: int) -> None:
        task = self.script[t]
        waiting = self.phase[t] == "waiting"
        self.phase[t] = "over"
        if waiting:
            last = self.reached[t] = self.reached[t] - 1
            self.machine.withdraw(self.blocks[task.accesses[last][0]], task.node, t)
        for block, _ in task.accesses[: self.reached[t]]:
            self.machine.cancel(self.blocks[block], task.node)

    # transfers

    def move(self, transfer: Transfer) -> None:
        residency, node, store = transfer.residency, transfer.node, self.store[transfer.residency.key]
        self.moved.append(transfer)
        require(residency.buffers[node] is True, "a transfer of a buffer that is gone")
        if transfer.step is Step.FILL:
            require(not self.users(residency, node), "a buffer is filled that is in use")
            store[node] = 0
            return
        if transfer.step is Step.GET:
            source = transfer.source
            require(source == HOME or residency.buffers[source] is True, "a copy of a buffer that is gone")
            require(not self.users(residency, source, writing=True), "a copy of what its holder changes")
            require(not self.users(residency, node), "a buffer is overwritten that is in use")
            store[node] = store[source]
            return
        require(not self.users(residency, HOME), "a transfer into what a holder at home uses")
        require(not self.users(residency, node, writing=True), "a transfer from a buffer that its holder changes")
        store[HOME] = store[node] if transfer.step is Step.PUT else store[HOME] + store[node]

    def users(self, residency: Residency, node: int, writing: bool = False) -> list[int]:
        """The tasks that have a block's buffer at a node in their hands, or those that change it."""
        return [
            t
            for t, task in enumerate(self.script)
            if self.phase[t] in (("taken",) if writing else ("held", "taken")) and task.node == node
            for block, op in task.accesses
            if block == residency.key and not (writing and op is Op.READ)
        ]

    # the end

    def finish(self) -> None:
        """Nothing can happen: all tasks are over, and home has all values once every node is flushed."""
        require(all(phase == "over" for phase in self.phase), f"tasks wait for ever: {self.phase}")
        for residency in self.blocks:
            require(not any(residency.holders), "a buffer is held by nobody's task")
            for node in range(len(residency.state)):
                outcome = self.machine.request(residency, Op.FLUSH, node, -1)
                self.flying += self.machine.started
                self.machine.started.clear()
                while self.flying:
                    transfer = self.flying.pop(0)
                    self.move(transfer)
                    self.machine.done(transfer)
                    self.flying += self.machine.started
                    self.machine.started.clear()
                require(outcome is Outcome.GRANTED or bool(self.machine.answered), "a flush never ends")
                self.machine.answered.clear()
            block = residency.key
            known = self.value[block] is not None
            require(
                (residency.spoilt is None) == known, "the machine and the oracle disagree on whether there is a value"
            )
            self.compare(block, HOME, "home")

    def key(self) -> Any:
        """What two worlds share from which the same can happen."""
        flying = tuple(
            (
                f.step,
                f.residency.key,
                f.node,
                f.source,
                any(f is m for m in self.moved),
                f.chain.token if f.chain else -1,
            )
            for f in self.flying
        )
        blocks = tuple(
            (
                *map(tuple, (r.state, r.back, r.holders, r.incoming, r.outgoing, r.queue or (), r.joined)),
                tuple((c.token, c.left, len(c.stages), c.abandoned) for c in r.chains),
                r.undo, r.spoilt,
            )
            for r in self.blocks
        )  # fmt: skip
        seen = tuple(tuple(sorted(found.items())) for found in self.seen)
        return (
            self.issued,
            self.breaks,
            *map(tuple, (self.phase, self.reached, self.value)),
            seen,
            *map(tuple, self.store),
            flying,
            blocks,
        )


def explore(script: Script, nodes: int = 3, tables: Tables = TABLES, breaks: int = 0) -> int:
    """Run every interleaving of a script, in which `breaks` transfers may fail; how many states there are. Raises
    WrongError with the way that led there."""
    start = World(script, nodes, tables, breaks)
    seen = {start.key()}
    open_: list[tuple[bytes, tuple[tuple[str, int], ...]]] = [(start.packed(), ())]
    while open_:
        packed, way = open_.pop()
        world = start.unpacked(packed)
        events = world.events()
        try:
            if not events:
                world.finish()
            for number, event in enumerate(events):
                if number:
                    world = start.unpacked(packed)
                world.happen(*event)
                key = world.key()
                if key not in seen:
                    seen.add(key)
                    open_.append((world.packed(), (*way, event)))
        except (WrongError, InternalError) as wrong:
            raise WrongError(f"{wrong}; script {list(script)}; way {way}") from wrong
    return len(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tasks", 3), ("nodes", 3), ("seeds", 0), ("blocks", 1), ("first", 0), ("breaks", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    states = count = 0
    for script in scripts(options.tasks, options.nodes, options.blocks, options.seeds, options.first):
        states += explore(script, options.nodes, breaks=options.breaks)
        count += 1
    print(f"{count} scripts, {states} states: right")


if __name__ == "__main__":
    main()
