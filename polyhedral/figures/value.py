"""Figures: what every access of a mapped program costs, and why one may believe it.

An `AccessFigures` is one access of one operator of a launch. Its address, in elements of the buffer, is a function of
the coordinates of a thread (`grid.x` … `lane`) and of the loops around the access; `composed` writes it in digits:

    C[i, j]     i = 4*i_block + i_warp, j = 32*j_block + j_lane     512*(4*i_block + i_warp) + 32*j_block + j_lane

**d** is the seed's: the least number with |f(1) - f(0)| + … + |f(31) - f(30)| <= d wherever the warp stands. Where the
address is affine in the digits of the lane, whatever else it is made of, d has a `Certificate`. Elsewhere it is
enumerated, and `d_by` says over what.

**A certificate** is a proof by Farkas' lemma. The lanes' part of the address is f = w·u over `digits` u of the lane
number, fastest first, that each run through [0, radix). From a lane to the next one, u becomes v: the step *carries to*
digit m where the digits before m go from their last value to 0, digit m goes on by one, and those after it stay. These
pairs are the integer points of a polyhedron { (u, v) : A(u, v) + b >= 0 }, the rows with `exact` being equations.
A `Step` has for it the multipliers, exact fractions that are not negative where the row is no equation, and a slack
that is none, with which, identically in u and v,

    bound - (f(v) - f(u)) = above · (A(u, v) + b) + slack      so f(v) - f(u) <= bound
    bound + (f(v) - f(u)) = below · (A(u, v) + b) + slack      so f(u) - f(v) <= bound

and d is the sum of count * bound. That no less will do is seen at any one warp.

**A sample** is a place where some warp stands, as coordinates and loop indices, with the lanes that are active there
and the `parts` (sectors of global memory, wavefronts of shared) that its request takes. `parts` of the figures is the
mean over the samples, `ideal` the least number for as many bytes. Edges have more than their share of the samples; of
requests of global memory a `Mean` has the share that they have of the launch.
"""

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction

from texpr.grammar.ast import Subscript
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Memory


class By(StrEnum):
    """Who makes the requests of an access."""

    THREADS = "threads"
    ENGINE = "copy engine"
    TENSOR_CORES = "tensor cores"
    PROTOCOL = "protocol between blocks"
    CORE = "core"


class Known(StrEnum):
    """How d is known."""

    CERTIFICATE = "certificate"
    ENUMERATION = "enumeration"  # of all values that its steps depend on
    SAMPLES = "samples"  # d is at least this
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDigit:
    """lane / stride % radix, which an address multiplies by `weight`."""

    stride: int
    radix: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """u · before + v · after + constant, which is 0 where it is `exact`, and not negative elsewhere."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    constant: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The steps that carry to one digit, `count` of them."""

    carries_to: int
    count: int
    bound: Fraction
    rows: tuple[Row, ...]
    above: tuple[Fraction, ...]
    below: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    digits: tuple[LaneDigit, ...]
    steps: tuple[Step, ...]
    lanes: int

    @property
    def distance(self) -> Fraction:
        return sum((step.count * step.bound for step in self.steps), Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`first` has the byte that each active lane's request begins at, None for the others."""

    at: Mapping[str, int]
    first: tuple[int | None, ...]
    parts: int
    ideal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Of so many `places`, spread over all that a launch has: the `parts` of a request that is made, the `ideal` of
    it, and how many the launch makes. It is an estimate: it proves nothing, and says what a profiler counts."""

    places: int
    parts: float
    ideal: float
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFigures:
    """`path` finds the operator in the launch's body (`walks.located`), `place` has the file and the line that it comes
    from, where there is one; `number` counts its accesses, reads first. `width` elements move in one request of a lane.
    `requests` are those of all warps of the launch at the representative sizes. What cannot be told is None, and `why`
    says so."""

    launch: str
    path: tuple[int, ...]
    place: tuple[str, int] | None
    statement: str
    number: int
    mode: str
    buffer: str
    memory: Memory
    subscripts: tuple[Subscript, ...]
    relation: str
    composed: str | None
    element_bytes: int
    width: int
    by: By
    distance: int | None = None
    known: Known = Known.UNKNOWN
    certificate: Certificate | None = None
    samples: tuple[Sample, ...] = ()
    mean: Mean | None = None
    requests: int | None = None
    why: str = ""

    @property
    def parts(self) -> float | None:
        """Sectors or wavefronts of a request, on average."""
        return sum(s.parts for s in self.samples) / len(self.samples) if self.samples else None

    @property
    def ideal(self) -> float | None:
        return sum(s.ideal for s in self.samples) / len(self.samples) if self.samples else None
