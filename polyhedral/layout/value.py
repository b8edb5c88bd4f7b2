"""The layout of a tensor as a value: where every element lies, and which thread holds it.

    Layout(shape, terms, xor, copies)
    element x  ->  for each unit: the sum of ((x[dim] + offset) / divisor % modulus) * stride over its terms,
                   then, for the address, the XOR of some of its bits into others

A unit is one coordinate of a place: the address in a memory, the stage of a pipelined tile, the lane, warp, warpgroup
or rank (block of a cluster) of the thread that holds the element, and the register in which it does. Addresses, strides
and the bits of the XOR count elements; `/` is the floor. An element that several threads hold has `copies`: their
indices follow the element's dimensions, dim `rank + c` is copy index c, and the element is held wherever they put it.

    f16[128, 64] with rows of 72:                  address x0 * 72 + x1
    C of mma.m16n8k16 over a warp:                 register x0 / 8 * 2 + x1 % 2, lane x0 % 8 * 4 + x1 / 2
    bf16[128, 64] as TMA writes it, 128 bytes:     address x0 * 64 + x1, xor(bits 3, base 3, shift 3)
    one value per row of C, in all 4 lanes:        register x0 / 8, lane x0 % 8 * 4 + c0, copies (4)

Shapes, strides and offsets are index expressions, constants for tiles and registers, of sizes for arrays. Terms may
stand in any order and be split in any way; `normal.py` has the one form of those that mean the same.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from texpr.grammar.ast import IndexExpr
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ZERO, const
from texpr.grammar.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = int | NDArray[Any]
else:
    Index = Any


class Unit(StrEnum):
    """One coordinate of the place of an element."""

    ADDRESS = "address"
    STAGE = "stage"
    REGISTER = "register"
    LANE = "lane"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    RANK = "rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """((x[dim] + offset) / divisor % modulus) * stride in one unit. Without a modulus nothing is cut off; without a
    dim x is 0, and the term is a constant.

        Term(dim=1, divisor=4, modulus=8, stride=const(1), unit=Unit.LANE)      lane x1 / 4 % 8
    """

    dim: int | None
    stride: IndexExpr
    divisor: int = 1
    modulus: int | None = None
    offset: IndexExpr = ZERO
    unit: Unit = Unit.ADDRESS

    def __post_init__(self) -> None:
        if self.divisor < 1 or (self.modulus is not None and self.modulus < 1):
            raise InternalError(f"a term divides by {self.divisor} and takes the remainder by {self.modulus}")

    @property
    def is_step(self) -> bool:
        """Whether it says no more than how far apart the addresses of a dimension's elements are."""
        whole = self.divisor == 1 and self.modulus is None and self.unit is Unit.ADDRESS
        return whole and self.dim is not None and self.offset == ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class Xor:
    """Bits base + shift … base + shift + bits - 1 of an address, XORed into bits base … base + bits - 1.

        Xor(bits=3, base=3, shift=3) of f16: the 16-byte chunk within 128 bytes ^= the number of the 128 bytes, mod 8

    The bits that are read are never written (shift >= bits), so applying it twice gives the address back.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 1 or self.base < 0 or self.shift < self.bits:
            raise InternalError(f"xor of {self.bits} bits at {self.base} from {self.shift} above them")

    @property
    def mask(self) -> int:
        """The bits that are changed."""
        return ((1 << self.bits) - 1) << self.base

    @property
    def block(self) -> int:
        """Elements within which an address moves: a tensor takes whole blocks."""
        return 1 << (self.base + self.bits)

    @property
    def period(self) -> int:
        """Elements to whose multiples a tensor must be aligned for the bits of its own addresses to be those of the
        memory's, which is what hardware looks at."""
        return 1 << (self.base + self.shift + self.bits)

    def apply(self, address: Index) -> Index:
        """The address, or the addresses of an array, with the bits mixed in."""
        return address ^ ((address >> self.shift) & self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the elements of a tensor of that shape lie; the module's docstring says how."""

    shape: tuple[IndexExpr, ...]
    terms: tuple[Term, ...]
    xor: Xor | None = None
    copies: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        known = range(len(self.shape) + len(self.copies))
        if any(term.dim is not None and term.dim not in known for term in self.terms):
            raise InternalError(f"a term of a layout of {len(known)} dimensions is of another one")
        if any(count < 1 for count in self.copies):
            raise InternalError(f"an element has {self.copies} copies")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def extents(self) -> tuple[IndexExpr, ...]:
        """Of the dimensions, then of the copy indices."""
        return self.shape + tuple(map(const, self.copies))

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units that a term names, in the order of `Unit`."""
        named = {term.unit for term in self.terms}
        return tuple(named) if len(named) < 2 else tuple(unit for unit in Unit if unit in named)

    def of(self, unit: Unit) -> Iterator[Term]:
        """The terms of a unit."""
        return (term for term in self.terms if term.unit is unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A layout at a place of a memory: address 0 is `offset_bytes` from where the memory begins. The slots of a pipe's
    buffer are `stage_bytes` apart.

    Placed(layout=padded((128, 64), 8), offset_bytes=const(1024))
    """

    layout: Layout
    offset_bytes: IndexExpr = ZERO
    stage_bytes: int = 0
