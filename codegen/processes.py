"""Compilers as processes: each in a group of its own, which ends with it, at a time limit, or with this process.

A compiler that is a library runs in a Python (`nvrtc_driver.py`), which loads it and waits to be told what to compile.
It may begin ahead (`begin_ahead`), while the text that it will compile is still being made, and waits for another text
when it has compiled one.
"""

import atexit
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from texpr.grammar.endings import at_end
from texpr.grammar.records import dataclass

MEMORY_KIB = 12 << 20  # of address space, per process of the compiler
NOT_TOLD = 75  # the exit status of a program that has waited for nothing


@dataclass(frozen=True, slots=True)
class Done:
    """How a compiler ended; `code` is None where the time limit ended it."""

    code: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class _Begun:
    """A compiler that runs, and its group."""

    process: "subprocess.Popen[bytes]"
    group: int

    def done(self, timeout_s: float) -> Done:
        """How it ends."""
        with self._killed_on_the_way():
            try:
                stdout, stderr = self.process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                _kill(self.group)
                stdout, stderr = self.process.communicate()
                return Done(None, _text(stdout), _text(stderr))
        return Done(self.process.returncode, _text(stdout), _text(stderr))

    def answered(self, told: bytes, timeout_s: float) -> Done:
        """What it answers to what it is told, or how it ends without an answer."""
        ends = time.monotonic() + timeout_s
        with self._killed_on_the_way():
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(b"%d\n" % len(told) + told)
                self.process.stdin.flush()
            except BrokenPipeError:  # it has just ended; what is left to be written goes with the pipe
                with suppress(BrokenPipeError):
                    self.process.stdin.close()
            return self._answer(ends)

    def _answer(self, ends: float) -> Done:
        """The next line of its output, a status, and what came to its error output before."""
        streams = (self.process.stdout, self.process.stderr)
        stdout, stderr = said = (bytearray(), bytearray())
        with selectors.DefaultSelector() as selector:
            for stream, all_of_it in zip(streams, said, strict=True):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, all_of_it)
            while selector.get_map():
                status = _status(stdout)  # and whatever it said before is there to be read
                left = ends - time.monotonic()
                ready = selector.select(0 if status is not None else max(0.0, left))
                if not ready and status is not None:
                    return Done(status, "", _text(stderr))
                if not ready or left <= 0:  # it says nothing, or goes on saying something
                    _kill(self.group)
                    self.process.wait()
                    return Done(None, _text(stdout), _text(stderr))
                for key, _ in ready:
                    part = os.read(key.fd, 1 << 16)
                    key.data.extend(part)
                    if not part:
                        selector.unregister(key.fileobj)
        return Done(self.process.wait(), _text(stdout), _text(stderr))

    @contextmanager
    def _killed_on_the_way(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # such as Ctrl-C, which does not reach another group
            _kill(self.group)
            raise


def _status(said: bytearray) -> int | None:
    """The number that is the last whole line; a compiler may say other things before."""
    last = said[:-1].rpartition(b"\n")[2] if said.endswith(b"\n") else b""
    return int(last) if last.isdigit() else None


def _text(said: bytes | bytearray) -> str:
    return said.decode(errors="replace")


def run(arguments: Sequence[str], folder: Path, timeout_s: float) -> Done:
    """Run a compiler in `folder`."""
    with _begun(arguments, folder, subprocess.DEVNULL) as one:
        return one.done(timeout_s)


def run_told(waiting: tuple[str, ...], options: Sequence[str], folder: Path, timeout_s: float) -> Done:
    """The same by a program that waits to be told its folder and its options: the one that waits already, or another.
    One that has done this well waits for the next."""
    told = os.fsencode("\0".join((str(folder), *options)))
    while True:
        one = _taken(waiting)
        with one.ending as ending:
            done = one.one.answered(told, timeout_s)
            if done.code == 0 and not _ahead and one.one.process.poll() is None:
                _ahead.append(_Ahead(waiting, one.one, ending.pop_all(), os.getpid()))
        if done.code != NOT_TOLD:  # it had waited too long, just now
            return done


# ---- what waits ----


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A program that waits, by its arguments: `ending` is left when it is over; only the process `owner` may use it."""

    waiting: tuple[str, ...]
    one: _Begun
    ending: ExitStack
    owner: int


_ahead: list[_Ahead] = []


def begin_ahead(waiting: tuple[str, ...]) -> None:
    """Begin a program that waits to be told what to do, where none waits and a core is free for it. It ends by itself
    when nothing is told it for a while."""
    if len(os.sched_getaffinity(0)) == 1 or any(_usable(each, waiting) for each in _ahead):
        return
    end_ahead()
    with suppress(OSError):  # whoever runs it says what is wrong
        _ahead.append(_new(waiting))


@atexit.register
def end_ahead() -> None:
    """End what waits."""
    while _ahead:
        each = _ahead.pop()
        if each.owner == os.getpid():
            each.ending.close()


def _usable(each: _Ahead, waiting: tuple[str, ...]) -> bool:
    return each.waiting == waiting and each.owner == os.getpid() and each.one.process.poll() is None


def _new(waiting: tuple[str, ...]) -> _Ahead:
    with ExitStack() as stack:
        one = stack.enter_context(_begun(waiting, Path("/"), subprocess.PIPE))
        return _Ahead(waiting, one, stack.pop_all(), os.getpid())


def _taken(waiting: tuple[str, ...]) -> _Ahead:
    """The one that waits, which no other thread has then, or another."""
    try:
        ahead = _ahead.pop()
    except IndexError:  # or another thread was first
        return _new(waiting)
    if _usable(ahead, waiting):
        return ahead
    _ahead.append(ahead)
    end_ahead()
    return _new(waiting)


# ---- processes ----


@contextmanager
def _begun(arguments: Sequence[str], folder: Path, stdin: int) -> Iterator[_Begun]:
    """A compiler in a process group of its own, which ends with the block."""
    # A lower limit that the user has set stays: raising it fails, and what then runs is limited all the same.
    limited = ["/bin/sh", "-c", 'ulimit -v "$0" 2>/dev/null; exec "$@"', str(MEMORY_KIB), *arguments]
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    with (
        _process_group() as group,
        subprocess.Popen(
            limited,
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=group,
        ) as process,
    ):
        try:
            yield _Begun(process, group)
        finally:
            if process.poll() is None:
                _kill(group)


@contextmanager
def _process_group() -> Iterator[int]:
    """A process group for compilers, which ends with the block, and with this process however it ends.

    Its first member reads from a pipe that only this process writes to: when the pipe ends, it kills the group. Unlike
    Linux's PDEATHSIG this reaches the compiler's own children, and no code runs between fork and exec."""
    command = ["/bin/sh", "-c", "read -r _; kill -s KILL 0"]
    null, owner = subprocess.DEVNULL, os.getpid()
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, process_group=0) as first,
        at_end(lambda: _kill(first.pid) if os.getpid() == owner else None),
    ):
        yield first.pid


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
