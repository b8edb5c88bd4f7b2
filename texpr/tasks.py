"""Tasks on tiled tensors (guide: docs/tasks.md).

    from texpr.tasks import Engine, Tensor, accumulate, on_arrays, read, tiled

    space = tiled(1000, 256)
    A, B = (Tensor(name, (space, space), data=array) for name, array in (("A", a), ("B", b)))
    C = Tensor("C", (space, space))

    @on_arrays
    def gemm(x, y, z):
        z += x @ y

    with Engine(workers=2) as engine:
        n, _ = C.n_tiles
        for i, j, k in itertools.product(range(n), repeat=3):
            engine.submit(gemm, read(A[i, k]), read(B[k, j]), accumulate(C[i, j]))
        c = engine.array(C)                       # a @ b

Submitted in this order, the n tasks of one block of C run in any order, one at a time; all others are independent.
Needs NumPy, and no compiler.
"""

from texpr.runtime.tasks.buffers import Buffer
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.contractions import einsum
from texpr.runtime.tasks.devices import gpu
from texpr.runtime.tasks.distributions import blocked, by_number, cyclic, grid, owner
from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.frameworks import on_arrays
from texpr.runtime.tasks.functions import FunctionDefinition
from texpr.runtime.tasks.permissions import (
    Access,
    Permission,
    accumulate,
    may_accumulate,
    may_read,
    may_read_write,
    may_write,
    read,
    read_write,
    temp,
    write,
)
from texpr.runtime.tasks.policies import Affinity, LeastTransfer, Policy, ReadyQueue
from texpr.runtime.tasks.spaces import TiledSpace, tiled
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Block, Slice, Tensor
from texpr.runtime.transport import mpi

__all__ = [
    "Access",
    "Affinity",
    "Block",
    "Buffer",
    "Engine",
    "FunctionDefinition",
    "LeastTransfer",
    "Permission",
    "Policy",
    "ReadyQueue",
    "Slice",
    "Task",
    "TaskContext",
    "Tensor",
    "TiledSpace",
    "accumulate",
    "blocked",
    "by_number",
    "cyclic",
    "einsum",
    "gpu",
    "grid",
    "may_accumulate",
    "may_read",
    "may_read_write",
    "may_write",
    "mpi",
    "on_arrays",
    "owner",
    "read",
    "read_write",
    "temp",
    "tiled",
    "write",
]
