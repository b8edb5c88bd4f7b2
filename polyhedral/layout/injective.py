"""Whether a layout keeps distinct elements apart, and how that is known.

    injective(padded((M, 64), 8))                  holds: its digits nest
    injective(strided((4, 4), (2, 3)))             fails: (0, 2) and (3, 0) are in one place
    injective(strided((M, N), (lda, 1)))           open: nothing says that lda >= N
    injective(…, nonnegative=…)                    holds, where the facts say it

Nesting proves it for all sizes. What does not nest is decided place by place where it is numbers and there are few; the
rest stays open. The XOR has no say: it is a bijection of addresses.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from texpr.grammar.index.expr import const, constant_value
from texpr.grammar.index.linear import Linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import is_empty
from texpr.polyhedral.layout.nest import Nonnegative, nest
from texpr.polyhedral.layout.normal import bound, canonical, is_enumerable
from texpr.polyhedral.layout.place import NO_SIZES, every_place
from texpr.polyhedral.layout.value import Layout


class How(Enum):
    """By what a verdict is known."""

    EMPTY = "it has no element"
    NESTED = "its digits nest"
    COMPARED = "its places were compared one by one"
    OPEN = "its digits are not known to nest, and there are too many places to compare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`holds` is None where neither way decides. `pair` are the first two elements in one place."""

    holds: bool | None
    how: How
    pair: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def injective(
    layout: Layout, sizes: Mapping[str, int] = NO_SIZES, nonnegative: Nonnegative = Linear.is_nonnegative
) -> Verdict:
    """Whether no two elements share a place; of an element that is held several times, none of them. At `sizes`, or for
    all sizes that are not given, of which `nonnegative` knows more."""
    at = bound(layout, sizes) if sizes else layout
    if is_empty(at):
        return Verdict(holds=True, how=How.EMPTY)
    if nest(_upward(at), nonnegative) is not None:
        return Verdict(holds=True, how=How.NESTED)
    if not is_enumerable(at):
        return Verdict(holds=None, how=How.OPEN)
    pair = _shared(replace(at, xor=None))
    return Verdict(holds=pair is None, how=How.COMPARED, pair=pair)


def _upward(layout: Layout) -> Layout:
    """The layout with the magnitudes of its strides: digits that run downwards are as far apart."""
    form = canonical(layout)
    steps = [constant_value(t.stride) for t in form.terms]
    terms = (t if s is None else replace(t, stride=const(abs(s))) for s, t in zip(steps, form.terms, strict=True))
    return replace(form, terms=tuple(terms))


def _shared(layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The first element that has a place of an earlier one, and that one."""
    import numpy as np

    arrays = every_place(layout)
    shape = next(iter(arrays.values())).shape
    elements = np.broadcast_to(
        np.arange(int(np.prod(shape[: layout.rank], dtype=np.int64))).reshape(
            *shape[: layout.rank], *(1 for _ in layout.copies)
        ),
        shape,
    ).reshape(-1)
    table: Any = np.stack([array.reshape(-1) for array in arrays.values()], axis=1)
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    owner = elements[first[group.reshape(-1)]]
    shared = np.flatnonzero(owner != elements)
    if not len(shared):
        return None
    pair = (owner[shared[0]], elements[shared[0]])
    first_element, second = (tuple(int(n) for n in np.unravel_index(e, shape[: layout.rank])) for e in pair)
    return first_element, second
