"""Candidates of launches on a CPU, as small data: loops on cores, and sums of products in panels."""

from collections.abc import Mapping
from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """A band on a CPU: the indices `cores` are dealt to cores, `vector` is the innermost loop, all others are loops
    between. Where the vector is the only core index, a core runs `chunk` of its iterations at a time. So many
    iterations of the loops in `jam`, one core index and what is summed, are taken together inside the innermost one.
    `tile` has the sides of the tiles that a core runs one after the other, of a core index and of the vector. With
    `local_rows` each local of an iteration is a row, of a piece of the vector, which runs inside the loops of an
    iteration. With `once` a row keeps what several loops of an iteration compute."""

    cores: tuple[str, ...]
    vector: str | None = None
    chunk: int | None = None
    jam: Mapping[str, int] = field(default_factory=dict)
    tile: Mapping[str, int] = field(default_factory=dict)
    local_rows: bool = False
    once: bool = False
    memory: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """A band of sums of products on a CPU, in tiles of two sides, of which each is of one factor only: a core packs
    what so many products, the `depth`, need of both factors into panels beside itself, and multiplies panel by panel.

        C[i, j] = sum K k { A[i, k] * B[k, j] }      along j, across i, tiles of 264 by 256, 6 by 64 each, 256 deep

    `tile`: what a core computes of both sides, in multiples of `each`, what its registers hold of it at a time, with
    neighbours `along`. Of other indices a core takes one iteration.
    """

    along: str
    across: str
    tile: Mapping[str, int]
    each: Mapping[str, int]
    depth: int
    memory: Mapping[str, Memory] = field(default_factory=dict)


OnCores = Cores | Panels
