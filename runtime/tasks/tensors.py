"""Tensors over tiled spaces, their slices and their blocks.

A tensor is a grid of blocks, one for each tuple of tiles, and starts as zeros, or as the array that it is given, which
it then works on in place. `A[1, 0]` is a block, `A["occ", 1:3]` and `A[0]` are slices, subscripted by tiles. A block is
accessed whole; its memory at home is one NumPy array, made when it is first needed. Where the tensor's rule says that a
block is zero, it has no memory: it reads as zeros and cannot be written.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.host_arrays import NUMPY_NAMES, numpy_dtype
from texpr.runtime.tasks.spaces import TiledSpace

if TYPE_CHECKING:
    from texpr.runtime.tasks.residency import Residency

Array = Any  # numpy.ndarray of any type and shape
Subscript = int | slice | str
GONE = object()  # the owner of tensors that were deallocated
NO_ACCESSES: list[Any] = [None] * 4  # never changed
_SERIALS = count()


class Block:
    """One block of a tensor. There is one object for each, so that tables are keyed by identity."""

    __slots__ = ("_home", "accesses", "index", "is_zero", "number", "residency", "shape", "tensor")

    def __init__(self, tensor: "Tensor", index: tuple[int, ...], number: int) -> None:
        self.tensor, self.index, self.number = tensor, index, number
        self.shape = tuple(space.tile_extent(t) for space, t in zip(tensor.spaces, index, strict=True))
        self.is_zero = tensor.zero is not None and bool(tensor.zero(*index))
        self.residency: Residency | None = None  # where its values are, once an engine works on it
        self._home: Array = None
        self.accesses = NO_ACCESSES  # that were made to it, by mode (`permissions`)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * int(self.tensor.dtype.itemsize)

    @property
    def home(self) -> Array:
        """The block's memory at home; for a zero block, zeros that cannot be written."""
        if self._home is None:
            self._home = self.tensor.memory_of(self)
        return self._home

    def pack(self, values: Array) -> None:
        """Begin with a contiguous copy of an array."""
        self._home = values.copy(order="C")

    @property
    def made(self) -> Array:
        """The memory at home, None where it was not needed yet."""
        return self._home

    def forget(self) -> None:
        """Give up the memory at home: the block is zeros again, or the array's part that the tensor was given."""
        self._home = None

    def move_home(self, memory: Array) -> None:
        """From now on its memory at home is this one, with the values that it has."""
        if self._home is not None or self.tensor.is_view:
            numpy.copyto(memory, self.home)
        self._home = memory

    def lend_home(self, memory: Array) -> Array:
        """From now on its memory at home is this one, with the values that are there; what it was."""
        before, self._home = self._home, memory
        return before

    def leave_home(self) -> None:
        """Its memory at home is ordinary memory again: the array's part that the tensor was given, or a copy."""
        values, self._home = self.home, None
        if self.tensor.is_view:
            numpy.copyto(self.home, values)
        else:
            self._home = values.copy()

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(str, self.index))}]"


class Slice:
    """The blocks of a tensor in a run of tiles of each dimension."""

    __slots__ = ("tensor", "tiles")

    def __init__(self, tensor: "Tensor", tiles: tuple[range, ...]) -> None:
        self.tensor, self.tiles = tensor, tiles

    @property
    def is_whole(self) -> bool:
        return all(len(t) == space.n_tiles for t, space in zip(self.tiles, self.tensor.spaces, strict=True))

    def blocks(self) -> Iterator[Block]:
        """Its blocks in row-major order, zero blocks among them."""
        return map(self.tensor.block, product(*self.tiles))

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(f'{t.start}:{t.stop}' for t in self.tiles)}]"


class Tensor:
    """A tensor: its name, which errors tell, spaces, element type, which of its blocks are zero, and which rank has
    each block."""

    __slots__ = (
        "_blocks", "_data", "_steps", "distribution", "dtype", "name", "owner", "serial", "spaces", "zero",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        spaces: Sequence[TiledSpace],
        dtype: Any = "f64",
        *,
        zero: Callable[..., bool] | None = None,
        data: Array = None,
        packed: bool = False,
        distribution: Callable[[Block, int], int] | None = None,
    ) -> None:
        """`dtype` is one of our types by name or a NumPy type; `zero(i, j, …)` says of a block by its tiles whether it
        is zero; `data` is a NumPy array of the tensor's shape and type, of which the blocks are views, or, `packed`,
        contiguous copies. With several ranks, `distribution(block, ranks)` says which one has a block
        (`distributions`). Raises E0701."""
        if not all(isinstance(space, TiledSpace) for space in spaces):
            raise fail(
                "E0701", f"tensor {name}: dimensions are tiled spaces", help="make them by `tiled(extent, tile)`"
            )
        self.name, self.spaces, self.zero, self.distribution = name, tuple(spaces), zero, distribution
        self.dtype = _element_type(name, dtype)
        self.owner: object = None  # the engine whose tasks work on it
        self.serial = next(_SERIALS)
        counts = [space.n_tiles for space in self.spaces]
        self._steps = tuple(prod(counts[d + 1 :]) for d in range(len(counts)))
        self._blocks: dict[tuple[int, ...], Block] = {}
        self._data: Array = None
        if packed and data is None:
            raise fail("E0701", f"tensor {name}: only data can be packed; without it, blocks are contiguous anyway")
        if data is not None:
            self._take(data, packed)

    def _take(self, data: Array, packed: bool) -> None:
        if not isinstance(data, numpy.ndarray) or (data.shape, data.dtype) != (self.shape, self.dtype):
            what = (
                f"{data.dtype}{list(data.shape)}"
                if isinstance(data, numpy.ndarray)
                else f"a {type(data).__name__[:40]}"
            )
            wanted = f"{self.dtype}{list(self.shape)}"
            raise fail("E0701", f"tensor {self.name}: the data is {what}, not a NumPy array {wanted}")
        if not data.flags.writeable and not packed:
            raise fail("E0701", f"tensor {self.name}: the data cannot be written", help="pass `data=array.copy()`")
        self._data = None if packed else data
        for block in self.blocks() if packed or self.zero is not None else ():
            part = data[self._indices(block)]
            if block.is_zero and part.any():
                raise fail("E0701", f"tensor {self.name}: the data is not zero in the zero block {block}")
            if packed and not block.is_zero:
                block.pack(part)

    @property
    def is_view(self) -> bool:
        """Whether its blocks are views of the data that it was given."""
        return self._data is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(space.extent for space in self.spaces)

    @property
    def n_tiles(self) -> tuple[int, ...]:
        return tuple(space.n_tiles for space in self.spaces)

    @property
    def n_blocks(self) -> int:
        return prod(self.n_tiles)

    def block(self, index: tuple[int, ...]) -> Block:
        """The block of a tuple of tiles. Raises E0702 where there is none."""
        found = self._blocks.get(index)
        if found is not None:
            return found
        if len(index) != len(self.spaces):
            raise fail("E0702", f"{self.name} has {len(self.spaces)} dimensions, and {index} has {len(index)} tiles")
        for dim, (tile, space) in enumerate(zip(index, self.spaces, strict=True)):
            if not 0 <= tile < space.n_tiles:
                raise fail("E0702", f"{self.name}{list(index)}: dimension {dim} has {space.n_tiles} tiles")
        number = sum(tile * step for tile, step in zip(index, self._steps, strict=True))
        return self._blocks.setdefault(index, Block(self, index, number))

    def blocks(self) -> Iterator[Block]:
        """All blocks in row-major order, zero blocks among them."""
        return map(self.block, product(*(range(n) for n in self.n_tiles)))

    def known_blocks(self) -> list[Block]:
        """The blocks that somebody has asked for."""
        return list(self._blocks.values())

    def __getitem__(self, key: Subscript | tuple[Subscript, ...]) -> "Block | Slice":
        """A block where every dimension has one tile, otherwise a slice; dimensions left out are whole (E0702)."""
        try:
            found = self._blocks.get(key if type(key) is tuple else (key,))  # type: ignore[arg-type]  # others miss
        except TypeError:  # a slice in Python 3.11 has no hash
            found = None
        if found is not None:
            return found
        subscripts = key if isinstance(key, tuple) else (key,)
        if len(subscripts) > len(self.spaces):
            raise fail("E0702", f"{self.name} has {len(self.spaces)} dimensions, not {len(subscripts)}")
        if len(subscripts) == len(self.spaces) and all(type(s) is int for s in subscripts):
            return self.block(subscripts)  # type: ignore[arg-type]  # all of them are int
        whole = (slice(None),) * (len(self.spaces) - len(subscripts))
        pairs = zip((*subscripts, *whole), self.spaces, strict=True)
        return Slice(self, tuple(self._tiles(dim, s, space) for dim, (s, space) in enumerate(pairs)))

    def _tiles(self, dim: int, subscript: Subscript, space: TiledSpace) -> range:
        if isinstance(subscript, str):
            try:
                return space.tiles_of(subscript)
            except TExprError as unknown:
                [told] = unknown.diagnostics
                raise fail("E0702", f"{self.name}, dimension {dim}: {told.message}", help=told.help) from None
        if type(subscript) is int:
            start, stop = subscript, subscript + 1
        elif isinstance(subscript, slice) and subscript.step in (None, 1):
            start = 0 if subscript.start is None else subscript.start
            stop = space.n_tiles if subscript.stop is None else subscript.stop
        else:
            raise fail(
                "E0702",
                f"{self.name}, dimension {dim}: tiles are a number, `start:stop` or a name, not {subscript!r}",
            )
        if not (type(start) is int and type(stop) is int and 0 <= start <= stop <= space.n_tiles):
            raise fail("E0702", f"{self.name}, dimension {dim}: {subscript!r} leaves its {space.n_tiles} tiles")
        return range(start, stop)

    def memory_of(self, block: Block) -> Array:
        """New memory for a block at home, or its part of the data that the tensor was given."""
        if block.is_zero:
            return numpy.broadcast_to(numpy.zeros((), self.dtype), block.shape)  # one element, which cannot be written
        if self._data is not None:
            return self._data[self._indices(block)]
        return numpy.zeros(block.shape, self.dtype)

    def _indices(self, block: Block) -> tuple[Any, ...]:
        """The block's part of an array of the whole, which is a view also where there are no dimensions."""
        pairs = zip(self.spaces, block.index, strict=True)
        return (*(slice(space.bounds[t], space.bounds[t + 1]) for space, t in pairs), ...)

    def at_home(self) -> Array:
        """A NumPy array of the whole tensor, from the memory at home; blocks that were never touched are not made."""
        if self._data is not None:
            return self._data.copy()
        whole = numpy.zeros(self.shape, self.dtype)
        for block in self.known_blocks():
            if not block.is_zero and block._home is not None:
                self.put_into(whole, block, block._home)
        return whole

    def put_into(self, whole: Array, block: Block, values: Array) -> None:
        """The values of a block, where they belong in an array of the whole tensor."""
        whole[self._indices(block)] = values

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.dtype}{list(self.shape)}, {'x'.join(map(str, self.n_tiles)) or 1} blocks)"


def foreign(who: str, tensor: Tensor) -> TExprError:
    """E0703 for a tensor that an engine cannot work on."""
    why = "was deallocated" if tensor.owner is GONE else "belongs to another engine, which is not shut down"
    return fail("E0703", f"{who} {why}")


def _element_type(name: str, dtype: Any) -> Any:
    if isinstance(dtype, str) and dtype in ELEMENT_TYPES:
        return numpy_dtype(ELEMENT_TYPES[dtype])
    try:
        found = numpy.dtype(dtype) if dtype is not None else None
    except TypeError:
        found = None
    if found is None or found.name not in NUMPY_NAMES or not found.isnative:
        raise fail(
            "E0701", f"tensor {name}: {dtype!r} is no element type", help=f"the types are {', '.join(ELEMENT_TYPES)}"
        )
    return found
