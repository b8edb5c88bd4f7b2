"""Where the blocks of tensors have their homes, in a run of several ranks: regions of the transport, made by all ranks
at the same place of their streams of submissions.

A tensor has one region, of which each rank has a part with the blocks whose home it is, one behind the other in
row-major order. So every rank knows where each block is, and asks nobody. A tensor's data is copied there when the
first task on it is submitted, and back when the engine ends: each rank has its own blocks then. Where a rank reaches
the other ranks' parts (`Transport.reach`), the home of every block is at hand, and is used where it is.

    2 ranks, A in 2 x 2 blocks of 512 bytes, cyclic      rank 0: A[0, 0] at 0, A[1, 0] at 512
                                                         rank 1: A[0, 1] at 0, A[1, 1] at 512
"""

import zlib
from collections.abc import Iterator
from typing import Any

from texpr.runtime.tasks.distributions import home_rank
from texpr.runtime.tasks.residency import AT_HOME, HOME, REMOTE
from texpr.runtime.tasks.tensors import Block, Tensor
from texpr.runtime.transport.interface import Spot, Transport

ALIGNED, LARGE, PAGE = 64, 1 << 16, 1 << 12  # bytes; large blocks have pages of their own, which GPUs may lock
HERE = (HOME, HOME, HOME, REMOTE)  # the nodes of accesses by workers at home, by mode
ELSEWHERE = (REMOTE,) * 4


class _Laid:
    """Where the blocks of a tensor are. `name` is the tensor's, with a number where others have it."""

    __slots__ = ("lent", "name", "near", "region", "sizes", "spots")

    def __init__(self, region: int, name: str, ranks: int) -> None:
        self.region, self.name = region, name
        self.sizes = [0] * ranks  # bytes
        self.spots: dict[int, Spot] = {}  # by the number of the block; zero blocks have none
        self.near = False  # the homes of all blocks are at hand
        self.lent: list[tuple[Block, Any]] = []  # other ranks' blocks that are, and what this rank had of them


class Homes:
    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._laid: dict[Tensor, _Laid] = {}
        self._tensors: list[Tensor] = []  # by region
        self._names: set[str] = set()
        self._left = 0  # how many of them have left their regions at the end

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self._laid

    def lay(self, tensor: Tensor) -> _Laid:
        """Find a place for each block. Raises E0703."""
        region = len(self._tensors)
        laid = _Laid(region, tensor.name if tensor.name not in self._names else f"{tensor.name} ({region})", self._size)
        for block in tensor.blocks():
            if not block.is_zero:
                rank, aligned = home_rank(block, self._size), PAGE if block.size_bytes >= LARGE else ALIGNED
                begin = -(-laid.sizes[rank] // aligned) * aligned
                laid.spots[block.number] = Spot(region, rank, begin)
                laid.sizes[rank] = begin + -(-block.size_bytes // aligned) * aligned
        self._tensors.append(tensor)
        self._names.add(laid.name)
        return laid

    def text(self, tensor: Tensor, laid: _Laid) -> str:
        """What ranks compare."""
        layout = zlib.crc32(repr((tensor.spaces, sorted(laid.spots.items()))).encode())
        return f"{tensor!r} with layout {layout:08x}"

    def move_in(self, transport: Transport, tensor: Tensor, laid: _Laid) -> None:
        """Make the region, with the values that the tensor has here; all ranks do."""
        own = transport.expose(laid.region, laid.sizes[self._rank])
        parts = [own if rank == self._rank else transport.reach(laid.region, rank) for rank in range(self._size)]
        laid.near = all(part is not None for part in parts)
        for block in tensor.blocks():
            if block.is_zero:
                continue
            _, rank, start = laid.spots[block.number]
            part = parts[rank]
            if part is None:
                continue
            memory = part[start : start + block.size_bytes].view(tensor.dtype).reshape(block.shape)
            if rank == self._rank:
                block.move_home(memory)
            else:
                laid.lent.append((block, block.lend_home(memory)))
        transport.barrier()
        self._laid[tensor] = laid

    def _own(self, tensor: Tensor, laid: _Laid) -> Iterator[Block]:
        for block in tensor.blocks():
            if not block.is_zero and laid.spots[block.number].rank == self._rank:
                yield block

    # questions

    def places(self, block: Block) -> tuple[int, ...]:
        """The nodes at which workers at home have a block, by the mode of the access."""
        if block.is_zero:
            return AT_HOME
        return HERE if self.is_at_hand(block) else ELSEWHERE

    def is_at_hand(self, block: Block) -> bool:
        """Whether the block's memory at home can be used by this rank as it is."""
        laid = self._laid[block.tensor]
        return laid.near or laid.spots[block.number].rank == self._rank

    def spot(self, block: Block) -> Spot:
        return self._laid[block.tensor].spots[block.number]

    def name(self, block: Block) -> str:
        return f"{self._laid[block.tensor].name}{list(block.index)}"

    def name_of(self, tensor: Tensor) -> str:
        return self._laid[tensor].name

    def address(self, block: Block) -> list[Any]:
        """What all ranks call a block."""
        return [self._laid[block.tensor].region, *block.index]

    def block(self, address: list[int]) -> Block:
        region, *index = address
        return self._tensors[region].block(tuple(index))

    # the end

    def drop(self, tensor: Tensor) -> int:
        """Forget a tensor; its region."""
        return self._laid.pop(tensor).region

    def move_out(self) -> None:
        """The values of this rank's blocks go back to ordinary memory."""
        while self._left < len(self._tensors):
            tensor = self._tensors[self._left]
            self._left += 1
            laid = self._laid.get(tensor)
            if laid is not None:
                for block in self._own(tensor, laid):
                    block.leave_home()
                for block, before in laid.lent:
                    block.lend_home(before)

    def regions(self) -> list[int]:
        return [laid.region for laid in self._laid.values()]
