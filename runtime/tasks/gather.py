"""A whole tensor as one array at every rank, which nobody changes meanwhile."""

from typing import TYPE_CHECKING

import numpy

from texpr.runtime.tasks.tensors import Block, Tensor
from texpr.runtime.transport.courier import Move
from texpr.runtime.transport.interface import Array, Kind

if TYPE_CHECKING:
    from texpr.runtime.tasks.ranks import Ranks


def gather(ranks: "Ranks", tensor: Tensor) -> Array:
    """Of each rank what has its home there. Called outside the lock, by all ranks, when no task is left."""
    flow, homes = ranks.flow, ranks.homes
    ranks.adopt([tensor])
    whole = numpy.zeros(tensor.shape, tensor.dtype)
    arriving: list[tuple[Block, Array]] = []
    errors: list[BaseException | None] = []

    def arrived(why: BaseException | None) -> None:
        with flow.lock.soon():
            errors.append(why)
            flow.progress.notify_all()

    for block in tensor.blocks():
        if block.is_zero:
            continue
        if homes.is_at_hand(block):
            tensor.put_into(whole, block, block.home)
        else:
            arriving.append((block, numpy.empty(block.shape, tensor.dtype)))
    for block, part in arriving:
        ranks.courier.post(Move(Kind.GET, homes.spot(block), part, arrived))
    with flow.lock.soon():
        flow.progress.wait_for(lambda: len(errors) == len(arriving) or flow.closed is not None)
    ranks.meet("gathered")
    for block, part in arriving:
        tensor.put_into(whole, block, part)
    return whole
