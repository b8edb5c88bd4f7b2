"""Proof that `#strides` put distinct elements of a written buffer in distinct places (E0301).

    strides (72, 1), shape (128, 64): 72 >= 64 * 1        proved, since they nest
    strides (2, 3), shape (4, 4): C[0, 2] and C[3, 0]      refused with the least pair

That they nest is tried first, with free sizes and facts too: a stride covers what the smaller ones reach, as `lda` of
`#strides(lda, 1)` does under `where lda >= N`. What that does not show is decided by isl on the address function, where
strides are constants.
"""

from collections.abc import Iterator

from texpr.grammar.ast import Buffer, IndexExpr
from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.grammar.index.linear import Linear, constant, factors, why_not_affine
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope, normal
from texpr.polyhedral.isl import columns
from texpr.polyhedral.layout.make import strided
from texpr.polyhedral.layout.nest import nest
from texpr.polyhedral.program import Program, ProgramBuffer
from texpr.polyhedral.prove.ordering import writes
from texpr.polyhedral.prove.witness import element_text, least, sizes_mapping, sizes_text


def check_strides(program: Program) -> Iterator[Diagnostic]:
    """A diagnostic for each written buffer whose strides may put two elements in one place."""
    written = {a.buffer for s in program.statements for a in s.accesses if writes(a)}
    for name, home in program.buffers.items():
        if home.buffer.strides is None or name not in written:
            continue
        width = 2 * columns(home.elements)
        try:
            with program.work.limited(home.buffer.span, f"the proof that the strides of {name} are injective", width):
                found = _check(program, home, home.buffer.strides)
        except TExprError as limit:
            yield from limit.diagnostics
            continue
        if found is not None:
            yield found


def _check(program: Program, home: ProgramBuffer, strides: tuple[IndexExpr, ...]) -> Diagnostic | None:
    buffer = home.buffer
    try:
        steps = [normal(stride) for stride in strides]
        for extent in buffer.shape:
            normal(extent)
    except NotAffineError as reason:
        return _unknown(buffer, str(reason))
    if nest(strided(buffer.shape, strides), lambda form: _nonnegative(program, form)) is not None:
        return None
    constants = [step.value for step in steps]
    if any(constant is None for constant in constants):
        return _unknown(buffer, "no order of the strides shows that each covers the next")
    return _overlap(program, home, [c for c in constants if c is not None])


def _nonnegative(program: Program, form: Linear) -> bool:
    """Whether no coefficient is negative, which is enough, since sizes are not negative; or the facts say so."""
    if all(coefficient >= 0 and not factors(monomial)[1] for monomial, coefficient in form.terms.items()):
        return True
    if why_not_affine(form) is not None:
        return False
    scope = Scope(tuple(size.name for size in program.kernel.sizes), (), program.work)
    zero = scope.form(constant(0))
    negative = scope.form(form).lt_set(zero).params()
    return bool(program.facts.within(negative).is_empty())


def _overlap(program: Program, home: ProgramBuffer, strides: list[int]) -> Diagnostic | None:
    elements = home.elements
    outer = len(home.outer)
    space = elements.get_space()
    address = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    for position, stride in enumerate(strides):
        step = isl.Val.int_from_si(program.work.context, stride)
        address = address.set_coefficient_val(isl.dim_type.in_, outer + position, step)
    places = isl.Map.from_aff(address).intersect_domain(elements)
    pairs = places.apply_range(places.reverse())
    for position in range(outer):
        pairs = pairs.equate(isl.dim_type.in_, position, isl.dim_type.out, position)
    pairs = pairs.intersect(isl.Map.lex_lt(space))
    if pairs.is_empty():
        return None
    sizes, point = least(program, pairs.wrap().flatten())
    rank = outer + len(strides)
    first, second = point[outer:rank], point[rank + outer :]
    buffer, name = home.buffer, home.buffer.source_name or home.buffer.name
    return error(
        "E0301",
        f"strides put two elements of {name} in one place",
        buffer.span,
        f"{sizes_text(program, sizes)}{element_text(buffer, first)} and {element_text(buffer, second)} "
        "have one address",
        help="widen the strides",
        witness={
            "sizes": sizes_mapping(program, sizes),
            "buffer": buffer.name,
            "first_element": list(first),
            "element": list(second),
        },
    )


def _unknown(buffer: Buffer, reason: str) -> Diagnostic:
    name = buffer.source_name or buffer.name
    return error(
        "E0301",
        f"strides may put two elements of {name} in one place",
        buffer.span,
        reason,
        help="state what the strides cover (`where lda >= N`), bind their sizes, or leave the dimension dense",
    )
