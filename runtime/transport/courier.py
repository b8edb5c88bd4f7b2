"""The courier: the one thread of a rank that calls its transport, for all others.

Others give it jobs and go on: to move an array (`post`), to tell other ranks something (`tell`), to meet them
(`together`). It answers by calling `done` of a move, `act` of a meeting, and its receiver for what it hears; these take
the engine's lock, and the courier holds none.

    post(move) ──► nb_get | nb_put | nb_accumulate ──► test … ──► flush, once for all that a pass has sent to a rank
                                                                    └──► move.done(error)

What all ranks must do in one order (regions, barriers, the end) they do when rank 0, whom each tells that it has come
so far, says so: nobody waits inside the transport for a rank that is busy elsewhere. Where nothing moves, the courier
sleeps, twice as long each time up to a limit, which grows with the silence; a job wakes it. It sleeps long at once
where all workers have something to do: then nobody waits for what it hears, and it does not take their cores. Each rank
listens to the one before it, which says something at least every second: who is silent for longer than `silence_s` is
lost (E0727).

Messages are JSON lists `[life, kind, …]`; `life` counts the engines on this transport, so that none hears the last
words of the one before.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from texpr.runtime.transport.interface import Array, Kind, Spot, Transport

BEAT_S = 1.0  # a rank that has nothing to say says so
SHORTEST_S, LONGEST_S = 2e-5, 1e-3  # sleeps where nothing moves
BUSY_S = 2e-3  # the sleep where all workers have something to do
QUIET_S, QUIET = 5e-3, 0.03  # the longest of all, and a share of the time since anything moved
PATIENCE_S = 10.0  # that a rank waits at its end for others, once one of them is known to have failed

_lives: WeakKeyDictionary[Transport, int] = WeakKeyDictionary()  # engines that transports have had


class Receiver(Protocol):
    def heard(self, rank: int, message: list[Any]) -> None: ...
    def lost(self, rank: int, why: str) -> None: ...
    def broken(self, why: BaseException) -> None: ...
    def is_busy(self) -> bool:
        """Whether all workers have something to do; it may be asked without a lock."""

    def is_in_doubt(self) -> bool:
        """Whether it is not known yet that all ranks did the same; asked at rank 0 before all of them end."""


class Move:
    """An array on its way: `done` is called with None, or with why it was not moved."""

    __slots__ = ("array", "done", "kind", "spot")

    def __init__(self, kind: Kind, spot: Spot, array: Array, done: Callable[[BaseException | None], None]) -> None:
        self.kind, self.spot, self.array, self.done = kind, spot, array, done


class Meeting:
    """Something that all ranks do at once; `act` is called when they are all there."""

    __slots__ = ("act", "name", "over")

    def __init__(self, name: str, act: Callable[[Transport], None]) -> None:
        self.name, self.act = name, act
        self.over = threading.Event()


Words = list[Any] | Callable[[], list[Any]]  # a message, or what makes it when it is sent


class _Told:
    """A message to some ranks."""

    __slots__ = ("ranks", "words")

    def __init__(self, ranks: list[int], words: Words) -> None:
        self.ranks, self.words = ranks, words


class Courier:
    def __init__(self, transport: Transport, receiver: Receiver, silence_s: float) -> None:
        self._transport, self._receiver, self._silence_s = transport, receiver, silence_s
        self._life = _lives[transport] = _lives.get(transport, 0) + 1
        self._jobs: SimpleQueue[Move | Meeting | _Told | None] = SimpleQueue()
        self._under_way: list[tuple[Any, Move]] = []
        self._meetings: dict[str, Meeting] = {}
        self._came: dict[str, int] = {}  # at rank 0: how many ranks have come to a meeting
        self._ripe: list[str] = []  # at rank 0: meetings to which all have come
        self._gone_on: list[str] = []  # meetings that may begin, in order
        self._over = False
        self._broken = False  # the transport failed
        self._hurried = False  # a rank is lost or left: nobody is waited for without end
        size, rank = transport.size, transport.rank
        self._others = [other for other in range(size) if other != rank]
        self._before, self._after = (rank - 1) % size, (rank + 1) % size
        self._spoke = time.monotonic()
        self._listened: float | None = None  # when the rank before this one was heard last
        self._thread = threading.Thread(target=self._guarded, name=f"texpr-courier-{rank}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # what other threads call

    def post(self, move: Move) -> None:
        self._jobs.put(move)

    def tell(self, rank: int, words: Words) -> None:
        self._tell(_Told([rank], words))

    def tell_all(self, words: Words) -> None:
        self._tell(_Told(self._others, words))

    def _tell(self, told: _Told) -> None:
        """An answer to what was heard goes out before anything that is heard later has an effect."""
        if threading.get_ident() == self._thread.ident and not callable(told.words):
            for rank in told.ranks:
                self._say(rank, told.words)
        else:
            self._jobs.put(told)

    def together(self, name: str, act: Callable[[Transport], None]) -> Meeting:
        """Do something when all ranks have come to the meeting of this name; its `over` is set then."""
        meeting = Meeting(name, act)
        self._jobs.put(meeting)
        return meeting

    def hurry(self) -> None:
        """A rank is lost, or left: others may not come any more."""
        self._hurried = True

    def end(self, last: Callable[[Transport], None]) -> None:
        """All ranks end: `last` is called when they are all there, and the thread is over."""
        meeting = self.together("end", last)
        since = time.monotonic()
        while not meeting.over.wait(0.05):
            if self._broken or (self._hurried and time.monotonic() - since > PATIENCE_S):
                self._transport.abandon()
                break
        self.stop()

    def stop(self) -> None:
        """The thread ends without the other ranks, or after them."""
        self._over = True
        self._jobs.put(None)
        self._thread.join(PATIENCE_S)

    # the thread

    def _guarded(self) -> None:
        try:
            self._loop()
        except BaseException as why:  # the transport failed, and with it every move
            self._broken = True
            with suppress(Exception):  # the others are told, if that still works
                for other in self._others:
                    self._say(other, ["left", f"{type(why).__name__}: {why}"[:500]])
            self._transport.abandon()
            self._receiver.broken(why)
            for _, move in self._under_way:
                move.done(why)
            while not self._over:
                job = self._jobs.get()
                if isinstance(job, Move):
                    job.done(why)

    def _loop(self) -> None:
        pause, last = SHORTEST_S, time.monotonic()
        job: Any = None
        while not self._over:
            moved = self._begin(job)
            moved = self._listen() or moved
            moved = self._complete() or moved
            moved = self._meet() or moved
            self._watch()
            if moved:
                pause, last = SHORTEST_S, time.monotonic()
            elif not self._under_way and self._receiver.is_busy():
                pause = BUSY_S
            else:
                quiet = 0.0 if self._under_way else min(QUIET * (time.monotonic() - last), QUIET_S)
                pause = min(2 * pause, max(LONGEST_S, quiet))
            try:
                job = self._jobs.get(timeout=pause) if not moved else self._jobs.get_nowait()
            except Empty:
                job = None

    def _begin(self, job: Move | Meeting | _Told | None) -> bool:
        """Begin this job and all that wait."""
        begun = job is not None
        while job is not None:
            if isinstance(job, Move):
                begin = {
                    Kind.GET: self._transport.nb_get,
                    Kind.PUT: self._transport.nb_put,
                    Kind.ADD: self._transport.nb_accumulate,
                }[job.kind]
                self._under_way.append((begin(job.spot, job.array), job))
            elif isinstance(job, Meeting):
                self._meetings[job.name] = job
                self._say(0, ["come", job.name])
            else:
                words = job.words() if callable(job.words) else job.words
                for rank in job.ranks:
                    self._say(rank, words)
            try:
                job = self._jobs.get_nowait()
            except Empty:
                job = None
        return begun

    def _say(self, rank: int, message: list[Any]) -> None:
        if rank == self._transport.rank:
            self._take(rank, message)
        else:
            self._transport.tell(rank, json.dumps([self._life, *message]).encode())

    def _listen(self) -> bool:
        found = False
        while (heard := self._transport.heard()) is not None:
            rank, text = heard
            life, *message = json.loads(text)
            if life == self._life:
                found = found or message[0] != "beat"
                if rank == self._before:
                    self._listened = time.monotonic()
                self._take(rank, message)
        return found

    def _take(self, rank: int, message: list[Any]) -> None:
        kind = message[0]
        if kind == "come":
            name = message[1]
            self._came[name] = self._came.get(name, 0) + 1
            if self._came[name] == self._transport.size:
                del self._came[name]
                self._ripe.append(name)
        elif kind == "go":
            self._gone_on.append(message[1])
        elif kind != "beat":
            self._receiver.heard(rank, message)

    def _complete(self) -> bool:
        """Moves that are over: those that were put or added when they have arrived."""
        if not self._under_way:
            return False
        over = [(handle, move) for handle, move in self._under_way if self._transport.test(handle)]
        if not over:
            return False
        finished = {id(move) for _, move in over}
        self._under_way = [pair for pair in self._under_way if id(pair[1]) not in finished]
        for rank in sorted({move.spot.rank for _, move in over if move.kind is not Kind.GET}):
            self._transport.flush(rank)
        for _, move in over:
            move.done(None)
        return True

    def _meet(self) -> bool:
        while self._ripe and not (self._ripe[0] == "end" and self._receiver.is_in_doubt()):
            name = self._ripe.pop(0)
            for other in self._others:
                self._say(other, ["go", name])
            self._gone_on.append(name)
        if not self._gone_on:
            return False
        while self._gone_on:
            meeting = self._meetings.pop(self._gone_on.pop(0))
            meeting.act(self._transport)
            self._over = self._over or meeting.name == "end"
            meeting.over.set()
        return True

    def _watch(self) -> None:
        now = time.monotonic()
        if now - self._spoke > BEAT_S:
            self._spoke = now
            self._say(self._after, ["beat"])
        if self._listened is not None and now - self._listened > self._silence_s:
            self._listened = None
            self._hurried = True
            self._receiver.lost(self._before, f"it has said nothing for {self._silence_s:g} s")
