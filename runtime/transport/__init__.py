"""Ranks: several processes that run one program together, and what moves blocks and messages between them.

A rank is a process with an engine of its own; all of them submit the same tasks. A transport is what they have in
common; an engine that is given one shares its work with the engines of the other ranks:

    from texpr.runtime.tasks import Engine
    from texpr.runtime.transport import mpi

    with Engine(workers=1, transport=mpi()) as engine:    # mpiexec -n 2 python program.py
        ...

`interface.Transport` says what a transport does, and under which rules. `Local` is for one rank, `mpi` for processes
that a launcher of MPI started; `fake` makes several ranks within one process for tests, and does the worst that the
rules allow.
"""

from texpr.runtime.transport.fake import fake
from texpr.runtime.transport.interface import Spot, Transport
from texpr.runtime.transport.local import Local
from texpr.runtime.transport.mpi import mpi

__all__ = ["Local", "Spot", "Transport", "fake", "mpi"]
