"""An engine's part in a run of several ranks: whose tasks and blocks are whose, and what ranks tell each other.

Every rank submits the same tasks, and so has the same graph with the same epochs; no rank is in charge of it.

- A block has its home at one rank, as its tensor's distribution says; all ranks know where, and reach it by the
  transport. A task runs at one rank, as the placement says; its children run there, too, and no other rank knows them.
- At other ranks a task is a stand-in: it waits for what is before it, and is over when it is told to be. So nothing
  after it begins too early, and what a rank is told takes effect in the order of the graph.
- What the copies of a block are worth follows from the graph. Two tasks that conflict are ordered; whoever changed a
  block writes it home, and waits until it is there (`Transport.flush`), before telling that the task is over; and who
  is told that drops the copies of what the task may have changed. No message asks for a block, or takes one away.
- A rank tells all others of each task that ends: each of them submits every task anyway, so this does not grow faster
  than what it does already; numbers travel in batches.

The machine of residency is as on one rank, with one more memory, `REMOTE`, for workers at home: it has copies of blocks
whose home is elsewhere. Terms of a sum are gathered there for all blocks, those of this rank too, and sent home by the
transport, which alone adds atomically beside other ranks:

    places, by the mode of an access                 read    write    read_write    accumulate
    the block's home is here, or can be reached      HOME    HOME     HOME          REMOTE
    it is at another rank                            REMOTE  REMOTE   REMOTE        REMOTE

An example on two ranks: A[0] has its home at rank 0, B[1] at rank 1, and `submit(f, read(A[0]), read_write(B[1]))`
comes after tasks that write A[0] and B[1], each at its owner. The task runs at rank 1, the owner of what it writes.
Rank 0 runs the first task, at home, and tells "0 is over"; rank 1 hears that, its stand-in ends, the task is ready.
READ of A[0] at REMOTE is a GET by the transport, READ_WRITE of B[1] is at HOME. It ends, nothing is to be sent home,
and rank 1 tells "2 is over".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.distributions import Placement
from texpr.runtime.tasks.elsewhere import Failed, said
from texpr.runtime.tasks.grants import Grants
from texpr.runtime.tasks.homes import Homes
from texpr.runtime.tasks.permissions import EFFECT, WORDS, Effect, Mode, Right
from texpr.runtime.tasks.rank_transfers import RankTransfers, check_sum
from texpr.runtime.tasks.residency import Outcome
from texpr.runtime.tasks.stream import Mark, Stream
from texpr.runtime.tasks.task import Phase, Task
from texpr.runtime.tasks.tensors import Block, Tensor
from texpr.runtime.transport.courier import Courier, Meeting
from texpr.runtime.transport.interface import Transport

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


class _Telling:
    """A task of this rank is over; other ranks are told when `left` buffers are home."""

    __slots__ = ("blocks", "left", "ranks", "task")

    def __init__(self, ranks: "Ranks", task: Task, blocks: list[Block]) -> None:
        self.ranks, self.task, self.blocks, self.left = ranks, task, blocks, 0

    def answer(self, outcome: Outcome) -> bool:
        """One more of them is; REFUSED: the engine ends, and nobody is told."""
        self.left -= 1
        if outcome is Outcome.REFUSED:
            return True
        if self.left == 0:
            self.ranks.tell_over(self.task, self.blocks)
            self.ranks.flow.unfinished -= 1
            self.ranks.flow.progress.notify_all()
        return self.left == 0


class Ranks:
    """Called under the flow's lock, but for what the engine's user waits for."""

    def __init__(self, flow: "Flow", transport: Transport, placement: Placement) -> None:
        self.flow, self.rank, self.size = flow, transport.rank, transport.size
        self._transport, self._placement = transport, placement
        self._stream = Stream([other for other in range(self.size) if other != self.rank])
        self.homes = Homes(self.rank, self.size)
        self._submitted = 0
        self.stand_ins = 0  # that are not over
        self._ready: dict[int, Task] = {}  # stand-ins that wait for nothing but to be told
        self._told: dict[int, tuple[Any, ...]] = {}  # what was told of tasks that are not over here
        self._gone: dict[int, Tensor] = {}  # what is deallocated after a task
        self._news: list[list[Any]] = []  # that other ranks are to be told
        self._meetings = 0
        self._strayed = self._lost = self._ending = False
        self.courier = Courier(transport, self, transport.silence_s)
        self.transfers = RankTransfers(flow, transport, self.homes, self.courier)
        self.open = self.courier.start

    # submission

    def prepare(self, task: Task) -> None:
        """Before a task is submitted, and outside the lock: its tensors get their homes. Raises E0725."""
        found, task.rank = task.grants, self.rank
        for block, right in found.blocks.items():
            if right is Right.ACCUMULATE:
                check_sum(self._transport, task, block.tensor)
        for tensor, right in found.whole.items():
            if right is Right.ACCUMULATE:
                check_sum(self._transport, task, tensor)
        for mode, block, _ in found.accesses:
            if mode is Mode.ACCUMULATE:
                check_sum(self._transport, task, block.tensor)
        self.adopt([*dict.fromkeys(block.tensor for block in found.blocks), *found.whole])

    def adopt(self, tensors: Iterable[Tensor]) -> None:
        """Make the homes of tensors that are new to the engine, as all ranks do at this place; outside the lock."""
        for tensor in tensors:
            if tensor in self.homes or tensor.owner is not None or self.flow.closed is not None:
                continue
            self._move_in(tensor)

    def _move_in(self, tensor: Tensor) -> None:
        laid = self.homes.lay(tensor)
        with self.flow.lock.soon():
            self.note(self.homes.text(tensor, laid), mark=True)

        def all_are_here(transport: Transport) -> None:
            self.homes.move_in(transport, tensor, laid)

        self._until(self.courier.together(f"expose {laid.region}", all_are_here))

    def enlist(self, task: Task) -> None:
        """A task that all ranks submit: its number, and the rank at which it runs. Raises E0703."""
        task.number = self._submitted
        rank = self._placement(task, self.size)
        if type(rank) is not int or not 0 <= rank < self.size:
            raise fail("E0703", f"{task}: the placement puts it at rank {rank!r} of {self.size}")
        self._submitted += 1
        task.rank = rank
        self.stand_ins += rank != self.rank
        name = getattr(task.fn, "__name__", type(task.fn).__name__)
        rights = [f"{WORDS[right]} {self.homes.name(block)}" for block, right in task.grants.blocks.items()]
        rights += [f"{WORDS[right]} {self.homes.name_of(tensor)}" for tensor, right in task.grants.whole.items()]
        self.note(f"{name}({', '.join(rights)}) at rank {rank}")

    def note(self, text: str, *, mark: bool = False) -> None:
        """All ranks do this at this place; `mark`: others are told how far this one is."""
        due = self._stream.add(text)
        told = self._stream.mark() if mark else due
        if told is not None:
            self.courier.tell_all(["mark", *told])
            self._compare()

    # the end of tasks

    def ready(self, task: Task) -> None:
        """Nothing is before a stand-in any more: it is over when it was told to be."""
        if task.number in self._told:
            self._end(task)
        else:
            self._ready[task.number] = task

    def _end(self, task: Task) -> None:
        _, phase, why, _ = self._told[task.number]
        if why is not None:
            task.error = fail("E0715", f"at rank {task.rank}: {why}")
            task.phase = Phase(phase)
        self.flow.ending.append(task)

    def finished(self, task: Task) -> bool:
        """A task that all ranks know is over; whether nothing of it is left to do. For one of this rank others are told
        when what it changed is home; for a stand-in the copies of that are worthless from now on."""
        tensor = self._gone.pop(task.number, None)
        modified = self._modified(task.grants) if tensor is None else []
        if task.rank != self.rank:
            self.stand_ins -= 1
            self._overtaken(task, modified)
            done = True
        else:
            telling = _Telling(self, task, [block for block, _ in modified])
            for block, _ in modified:
                residency = block.residency
                if residency is not None and not residency.quiet:
                    telling.left += self.flow.holdings.flush(residency, telling)
            done = telling.left == 0
            if done:
                self.tell_over(task, telling.blocks)
            else:
                self.flow.waiters[telling] = None
        if tensor is not None:
            self._conceal(tensor)
        return done

    def _modified(self, grants: Grants) -> list[tuple[Block, Effect]]:
        """The blocks that a task may have changed, as far as anybody here has touched them."""
        found = [(block, EFFECT[right]) for block, right in grants.blocks.items()]
        for tensor, right in grants.whole.items():
            if EFFECT[right] is not Effect.READ:
                found += [(block, EFFECT[right]) for block in tensor.known_blocks()]
        return [(block, effect) for block, effect in found if effect is not Effect.READ and not block.is_zero]

    def _overtaken(self, task: Task, modified: list[tuple[Block, Effect]]) -> None:
        _, _, _, spoilt = self._told.pop(task.number)
        if task.error is not None:  # and all that it could have changed has no value
            return
        why = {self.homes.block(address): text for address, text in spoilt}
        for block, effect in modified:
            text = why.get(block)
            if block.residency is not None or text is not None:
                residency = self.flow.holdings.residency(block)
                if text is not None:
                    self.flow.machine.overtaken(residency, fail("E0710", f"at rank {task.rank}: {text}"))
                else:
                    self.flow.machine.overtaken(residency, None if effect is Effect.WRITE else residency.spoilt)

    def tell_over(self, task: Task, blocks: list[Block]) -> None:
        spoilt = []
        if task.error is None:
            for block in blocks:
                if block.residency is not None and block.residency.spoilt is not None:
                    spoilt.append([self.homes.address(block), said(block.residency.spoilt)])
        why = None if task.error is None else said(task.error)
        self._report(["over", task.number, int(task.phase), why, spoilt])

    def failed(self, child: Task) -> None:
        """A child of this rank's failed: others, who do not know it, tell of it when they wait."""
        if child.error is not None:
            self._report(["failed", str(child), int(child.phase), said(child.error)])

    def _report(self, news: list[Any]) -> None:
        """Tell all ranks, in this order, with whatever comes up before the courier gets to it."""
        self._news.append(news)
        if len(self._news) == 1:
            self.courier.tell_all(self._all_news)

    def _all_news(self) -> list[Any]:
        with self.flow.lock.soon():
            news, self._news = self._news, []
        return ["news", news]

    # what other ranks say; the courier calls

    def heard(self, rank: int, message: list[Any]) -> None:
        kind, *rest = message
        with self.flow.lock.soon():
            if kind == "news":
                for news in rest[0]:
                    self._learn(rank, *news)
                self.flow.active += 1
                self.flow.settle()
                self.flow.idle()
            elif kind == "mark":
                self._stream.hear(rank, Mark(*rest))
                self._compare()
            elif kind == "differ":
                self._differ(rank, *rest)
            elif kind == "left":
                self._leave(rank, rest[0])

    def _learn(self, rank: int, what: str, *news: Any) -> None:
        if what == "failed":
            name, phase, why = news
            self.flow.failures.append(Failed(name, Phase(phase), fail("E0715", f"at rank {rank}: {why}")))
            return
        self._told[news[0]] = news
        task = self._ready.pop(news[0], None)
        if task is not None:
            self._end(task)

    def lost(self, rank: int, why: str) -> None:
        with self.flow.lock.soon():
            self._lost = True
            self._leave(rank, why)

    def broken(self, why: BaseException) -> None:
        told = fail("E0727", f"rank {self.rank}: its transport failed: {said(why)}")
        told.__cause__ = why
        with self.flow.lock.soon():
            self._lost = True
            self.flow.collapse(told)

    def _leave(self, rank: int, why: str) -> None:
        self._ending = True
        self.courier.hurry()
        self.flow.collapse(fail("E0727", f"rank {rank} is not there any more: {why}"))

    def _compare(self) -> None:
        rank = self._stream.differing()
        if rank is not None:
            self._show(rank)

    def is_busy(self) -> bool:
        running, workers = self.flow.running, self.flow.workers
        return all(running[node] >= workers[node] for node in self.flow.load)

    def is_in_doubt(self) -> bool:
        with self.flow.lock.soon():
            rank = self._stream.ahead()
            if rank is not None and not self._ending:
                self._show(rank)
            return self._strayed and self.flow.defect is None

    def _show(self, rank: int) -> None:
        """A rank's stream is another one than this one's: it gets the texts of this one, and answers by its own."""
        if not self._strayed:
            self._strayed = True
            self.courier.tell(rank, ["differ", *self._stream.kept()])

    def _differ(self, rank: int, first: int, texts: list[str]) -> None:
        self._show(rank)
        found = self._stream.first_difference(first, texts)
        if found is not None:
            number, own, other = found
            message = f"submission {number} is not the same: rank {self.rank}: {own}; rank {rank}: {other}"
            self._ending = True
            self.courier.hurry()
            self.courier.tell_all(["left", message])
            self.flow.collapse(
                fail("E0726", message, help="every rank runs the same program, and submits, waits and gathers alike")
            )

    # what all ranks do together; called without the lock

    def meet(self, name: str) -> None:
        """Wait until all ranks are here."""
        self._meetings += 1
        self._until(self.courier.together(f"{name} {self._meetings}", lambda transport: None))

    def drop(self, tensor: Tensor) -> None:
        """The next task to be submitted is the last one that works on a tensor."""
        self._gone[self._submitted] = tensor

    def _conceal(self, tensor: Tensor) -> None:
        self.flow.forget(tensor)
        region = self.homes.drop(tensor)
        self.courier.together(f"conceal {region}", lambda transport: transport.conceal(region))

    def _until(self, meeting: Meeting) -> None:
        while not meeting.over.wait(0.05):
            self.flow.check_sound()
            if self.flow.closed is not None:
                raise fail("E0711", f"rank {self.rank} waits for others in an engine that {self.flow.closed}")

    def leave(self, why: str) -> None:
        """This rank goes before its time; others are told, unless one of them is why."""
        with self.flow.lock.soon():
            if not self._ending:
                self._ending = True
                self.courier.hurry()
                self.courier.tell_all(["left", why])

    def end(self) -> None:
        """No thread works any more: wait for the other ranks, and bring this one's blocks back to ordinary memory."""

        def last(transport: Transport) -> None:
            transport.barrier()
            self.homes.move_out()
            for region in self.homes.regions():
                transport.conceal(region)
            transport.barrier()

        if self.flow.defect is not None:
            self.leave(said(self.flow.defect.__cause__ or self.flow.defect))
        if not self._lost:
            self.courier.end(last)
        self.homes.move_out()
        self.courier.stop()
