"""Transfers and commits between ranks: the transport makes them, from and to memory of this host.

What a GPU has of another rank's block comes and goes in two steps, by way of memory of this host (`Transfer.passage`):

    GET          the transport gets the block, then a copier of the GPU copies it in
    PUT, ADD     a copier copies it out, then the transport puts it, or adds it

Where a rank reaches the home of the block, a copier makes the whole transfer as on one rank, but for sums: only the
transport adds atomically beside other ranks.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.homes import Homes
from texpr.runtime.tasks.residency import HOME, Transfer
from texpr.runtime.tasks.states import Op, Step
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Tensor
from texpr.runtime.tasks.workers import Commit
from texpr.runtime.transport.courier import Courier, Move
from texpr.runtime.transport.interface import Kind, Transport

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow

KINDS = {Step.GET: Kind.GET, Step.PUT: Kind.PUT, Step.ADD: Kind.ADD}


class RankTransfers:
    def __init__(self, flow: "Flow", transport: Transport, homes: Homes, courier: Courier) -> None:
        self._flow, self._transport, self._homes, self._courier = flow, transport, homes, courier

    def carries(self, transfer: Transfer) -> bool:
        """Whether a transfer is the transport's from here on; otherwise a copier begins it."""
        block, step = transfer.residency.key, transfer.step
        if step is Step.FILL or transfer.source != HOME:
            return False
        if step is not Step.ADD and self._homes.is_at_hand(block):
            return False
        transfer.passage = self._flow.holdings.nodes[transfer.node].passage(block.shape, block.tensor.dtype)
        if transfer.passage is None:
            self._post(transfer, transfer.residency.buffers[transfer.node], self._flow.carried)
            return True
        if step is Step.GET:
            self._post(transfer, transfer.passage, self._arrived)
            return True
        return False

    def takes(self, transfer: Transfer) -> bool:
        """Whether a transfer that a copier has made goes on to another rank."""
        if transfer.passage is None or transfer.step is Step.GET:
            return False
        self._post(transfer, transfer.passage, self._flow.carried)
        return True

    def _arrived(self, transfer: Transfer, why: BaseException | None) -> None:
        """What comes from another rank is on this host, and goes to its GPU."""
        if why is None:
            self._flow.crew.copy(transfer)
        else:
            self._flow.carried(transfer, why)

    def _post(self, transfer: Transfer, memory: Any, over: Callable[[Transfer, BaseException | None], None]) -> None:
        spot = self._homes.spot(transfer.residency.key)
        self._courier.post(Move(KINDS[transfer.step], spot, memory, lambda why: over(transfer, why)))

    def sends(self, commit: Commit) -> bool:
        """Whether a commit is the transport's; then it is on its way. Called without the lock; raises E0725."""
        if commit.op is Op.WRITE and self._homes.is_at_hand(commit.block):
            return False
        spot = self._homes.spot(commit.block)
        if commit.op is not Op.WRITE:
            check_sum(self._transport, commit.task, commit.block.tensor)
        with self._flow.lock.soon():
            self._flow.active += not commit.queued
            commit.queued = True
        kind = Kind.PUT if commit.op is Op.WRITE else Kind.ADD
        values = numpy.ascontiguousarray(commit.values)
        self._courier.post(Move(kind, spot, values, lambda why: commit.over(self._flow, why)))
        return True


def check_sum(transport: Transport, task: Task, tensor: Tensor) -> None:
    """E0725 for a sum that no transport makes."""
    if not transport.adds(tensor.dtype):
        raise fail(
            "E0725",
            f"{task} accumulates into {tensor.name}, and sums over several ranks are not of {tensor.dtype}",
            help="accumulate into a tensor of f32, and convert what is done",
        )
