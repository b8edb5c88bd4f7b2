"""Which register of a thread has an element of a tile that the threads of a warpgroup hold.

C_sums[16*warp + 8*half + lane/4, 64*chunk + 8*eight + 2*(lane%4) + one]
    C_sums(32*chunk + 4*eight + 2*half + one)          whatever warp and lane are, for this is an element of theirs

Registers have no addresses: a number must follow from loops that are unrolled.
"""

from collections.abc import Sequence

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.cursor import Cursor
from texpr.grammar.ast import Gather, IndexExpr, IndexOp, Subscript
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.index.linear import Linear, constant, linear, operation
from texpr.grammar.source import Span
from texpr.polyhedral.layout.value import Layout, Term, Unit


def register(layout: Layout, name: str, subscripts: Sequence[Subscript], cursor: Cursor, span: Span) -> ix.Term:
    """The number of the register of an element. Raises E0502 where that is no number in the end."""
    total = Linear()
    for term in layout.of(Unit.REGISTER):
        subscript = None if term.dim is None else subscripts[term.dim]
        if isinstance(subscript, Gather):
            raise fail("E0502", f"an element of {name} that data tells is not emitted: it is in registers", span)
        total += _of_term(term, subscript, cursor)
    found = total.expression()
    if not names(found) <= cursor.stand.unrolled:
        said = f"an element of {name} by a number that is none when this is compiled is not emitted"
        raise fail("E0502", said, span, help="unroll the loops around it")
    return cursor.term(found)


def _of_term(term: Term, subscript: IndexExpr | None, cursor: Cursor) -> Linear:
    stride, offset = constant_value(term.stride), constant_value(term.offset)
    assert stride is not None and offset is not None, "fragments are tables of numbers"
    form = (Linear() if subscript is None else linear(subscript)) + offset
    quotient = _divided(form, term.divisor, cursor)[0]
    return (quotient if term.modulus is None else _divided(quotient, term.modulus, cursor)[1]) * stride


def _divided(form: Linear, by: int, cursor: Cursor) -> tuple[Linear, Linear]:
    """Quotient and remainder: what multiples of the divisor are, where the rest stays below it."""
    whole = form.part(lambda _, c: c % by == 0)
    rest = form - whole
    bounds = cursor.term(rest.expression())
    if bounds.low >= 0 and bounds.high < by:
        return Linear({monomial: c // by for monomial, c in whole.terms.items()}), rest
    return operation(IndexOp.DIV, form, constant(by)), operation(IndexOp.MOD, form, constant(by))
