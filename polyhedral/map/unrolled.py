"""How the author's `#unroll` asks that a loop of one thread is written out: all of it, or so many iterations at a time.

seq 64 k #unroll          all 64          seq 64 k #unroll(8)       8 at a time
seq K k #unroll(8)        8 at a time     seq 64 k #unroll(1)       none, whatever the compiler finds best

More at a time than there are iterations is all of them.
"""

from collections.abc import Iterator

from texpr.grammar.ast import Attr, IndexConst, IndexExpr, Par, Seq
from texpr.grammar.attributes import MAX_UNROLL
from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import unroll_of
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolling:
    """All iterations (`whole`), or `by` at a time; None leaves it to the compiler."""

    whole: bool = False
    by: int | None = None


def unrolling(loop: Par | Seq, turns: IndexExpr) -> Unrolling:
    """What the author asks of a loop, of whose iterations a thread runs so many turns."""
    attr, known = unroll_of(loop), constant_value(turns)
    if attr is None:
        return Unrolling()
    by = asked(attr)
    if by is None or (known is not None and by >= known):
        return Unrolling(whole=known is not None)
    return Unrolling(by=by)


def asked(attr: Attr) -> int | None:
    """The argument of an `#unroll`, None where it has none."""
    value = attr.args[0] if attr.args else None
    return value.value if isinstance(value, IndexConst) else None


def unroll_faults(loop: Par | Seq) -> Iterator[Diagnostic]:
    """Why the `#unroll(n)` of a loop cannot be: an n that is not known, or larger than compilers take."""
    attr = unroll_of(loop)
    if attr is None or not attr.args:
        return
    by = asked(attr)
    if by is None:
        help = "bind the size, or write a number"
        yield error("E0401", "how many iterations are unrolled is not known", attr.span, "a free size", help=help)
    elif by > MAX_UNROLL:
        message = f"a loop is unrolled by at most {MAX_UNROLL}"
        yield error("E0401", message, attr.span, f"this is {by}", help="write a smaller number")
