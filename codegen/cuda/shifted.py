"""Copies whose lanes lie side by side, from any address or to it: one call for all rows that a thread loads.

copy v[q, e] = X[i + q, c + e] for q < 4, e < 8, shifted     tx::load_shifted<8, 4>(v, 0, X, …, 4093, {0, N - c});
"""

from dataclasses import replace

from texpr.codegen.cuda.access import Access as Places
from texpr.codegen.cuda.wide import access_count, listed, refused, sides, wanted_elements
from texpr.grammar.index.expr import ZERO, constant_value, names
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.views import View


def shifted_call(copy: Copy, access: Places) -> str:
    """The call that loads all rows of a copy whose lanes lie side by side."""
    inside, view, held = sides(copy, access)
    *several, (last, _) = copy.over
    count, rows = access_count(replace(copy, over=copy.over[-1:]), view, access), 1
    if several:
        rows = constant_value(several[0][1]) or 0
    within = copy.within
    alike = within is not None and within.begin == ZERO and not names(within.end) & {name for name, _ in copy.over}
    apart = [_apart(side, several[0][0] if several else last, access) for side in (view, held)] if inside else []
    if not alike or len(several) > 1 or not rows or None in apart or (several and apart[1] != count):
        raise refused(copy, "is of lanes side by side, and its rows end or lie apart as no number says")
    own, where = access.number(view.buffer, view.first(copy.over).subscripts, writes=False)
    register, number = access.number(held.buffer, held.first(copy.over).subscripts, writes=True)
    given = listed(register, number, own, where, str(apart[0]), wanted_elements(copy, count, access))
    return f"tx::load_shifted<{count}, {rows}>({given});"


def _apart(view: View, index: str, access: Places) -> int | None:
    """How far apart the elements at neighbouring values of an index lie; None where no number says so."""
    if view.plain is None:
        return None
    return linear(coordinate(access.frame.buffer(view.buffer).layout, Unit.ADDRESS, view.plain)).coefficient(index)


def loads_shifted(copy: Copy, access: Places) -> bool:
    """Whether a copy brings what lanes have side by side into registers."""
    return copy.access is Access.SHIFTED and access.frame.buffer(copy.target.buffer).memory is Memory.REG
