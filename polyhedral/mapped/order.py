"""Orders: which instances of a launch must be over before which others begin, between threads of one block."""

from collections.abc import Iterator
from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral import isl
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.program import Hazard


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Instances of `source` must be over before instances of `sink` begin, between threads of one `scope`.

    `carried_by` is the loop of the launch that separates them (None: the same iteration of all common loops). `met` are
    the instances that meet, those of one thread too, whose last two dimensions are a lane and a warp, and `distance` is
    how many iterations of the carrying loop lie between source and sink at least (None where none carries it). `buffer`
    and `hazard` are the reason that a barrier prints. An order that took too many steps to compute is not `computed`,
    has no `met`, and is required all the same.
    """

    source: str
    sink: str
    buffer: str
    hazard: Hazard
    scope: Scope
    carried_by: str | None
    met: tuple[isl.Map, ...] = field(default=(), compare=False, repr=False)
    distance: int | None = field(default=None, compare=False)
    computed: bool = field(default=True, compare=False)
    source_span: Span = field(default=NO_SPAN, compare=False, repr=False)
    sink_span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def relation(self) -> isl.Map | None:
        """`{ thread[lane, warp] -> thread[lane', warp'] }`: between which threads, for those who look at it."""
        found: isl.Map | None = None
        for pairs in self.met:
            for apart in _threads(pairs):
                found = apart if found is None else found.union(apart)
        return found


def _threads(pairs: isl.Map) -> Iterator[isl.Map]:
    """The threads of instances, of two that differ in their lane or in their warp."""
    for side in (isl.dim_type.in_, isl.dim_type.out):
        pairs = pairs.project_out(side, 0, pairs.dim(side) - 2).set_tuple_name(side, "thread")
        pairs = pairs.set_dim_name(side, 0, "lane").set_dim_name(side, 1, "warp")
    for digit in range(2):
        place = (isl.dim_type.in_, digit, isl.dim_type.out, digit)
        yield pairs.order_lt(*place)
        yield pairs.order_gt(*place)
