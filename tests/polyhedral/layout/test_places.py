"""Where a layout puts its elements: expressions, arrays, extents, the canonical form and equality agree with the
definition, term by term."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_oracle import elements_of, everything, layouts, mixed_radix, number, place_of, places_of

from texpr.grammar.ast import IndexVar, SizeVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import add, const, multiply
from texpr.grammar.index.text import in_words
from texpr.polyhedral.layout.extent import ends, extent, extent_bytes
from texpr.polyhedral.layout.make import padded, row_major, strided, swizzled
from texpr.polyhedral.layout.normal import canonical, renaming, same, strides
from texpr.polyhedral.layout.place import coordinates, every_place, offset, owner
from texpr.polyhedral.layout.value import Layout, Term, Unit, Xor

M, N, LDA = (SizeVar(name=name) for name in ("M", "N", "lda"))
I, J = IndexVar(name="i"), IndexVar(name="j")  # noqa: E741 -- the names of the language's own examples
SPLIT = Layout(  # four elements, a hole, four elements
    shape=(const(5),), terms=(Term(dim=0, divisor=4, stride=const(5)), Term(dim=0, modulus=4, stride=const(1)))
)


@settings(max_examples=60)
@given(layouts())
def test_expressions_and_arrays_say_what_the_terms_say(layout: Layout) -> None:
    arrays = every_place(layout)
    counts = [number(extent) for extent in layout.extents]
    names = [IndexVar(name=f"n{dim}") for dim in range(len(counts))]
    address, holders = offset(layout, names), owner(layout, names)
    for point in np.ndindex(*counts):
        place = place_of(layout, point)
        values = {name.name: at for name, at in zip(names, point, strict=True)}
        assert {unit: int(array[point]) for unit, array in arrays.items()} == place
        assert number(address, values) == place[Unit.ADDRESS]
        assert {u: number(e, values) for u, e in holders.items()} == {
            u: v for u, v in place.items() if u is not Unit.ADDRESS
        }


def test_many_elements_are_asked_at_once_with_sizes() -> None:
    found = coordinates(strided((M, N), (LDA, 1)), (np.array([0, 1, 2]), np.array([5, 5, 0])), {"lda": 100})
    assert found[Unit.ADDRESS].tolist() == [5, 105, 200]
    assert in_words(offset(padded((128, 64), 8), (I, J))) == "i * 72 + j"


@settings(max_examples=60)
@given(layouts())
def test_the_canonical_form_puts_every_element_where_it_was(layout: Layout) -> None:
    form = canonical(layout)
    assert everything(form) == everything(layout)
    assert canonical(form) == form


def splittings(term: Term, at: int) -> tuple[Term, ...]:
    """The term as two digits."""
    if term.dim is None or (term.modulus is not None and term.modulus % at):
        return (term,)
    above = None if term.modulus is None else term.modulus // at
    high = replace(term, divisor=term.divisor * at, modulus=above, stride=multiply(term.stride, const(at)))
    return (replace(term, modulus=at), high)


@settings(max_examples=60)
@given(layouts(digits=True, copies=False), st.lists(st.sampled_from((2, 4)), min_size=5, max_size=5), st.randoms())
def test_terms_split_and_shuffled_have_one_canonical_form(layout: Layout, ats: list[int], random) -> None:  # type: ignore[no-untyped-def]  # hypothesis gives it
    terms = [part for term, at in zip(layout.terms, ats, strict=False) for part in splittings(term, at)]
    random.shuffle(terms)
    other = replace(layout, terms=tuple(terms))
    assert canonical(other) == canonical(layout)
    assert same(other, layout)


@settings(max_examples=60)
@given(layouts(digits=True), layouts(digits=True))
def test_same_is_what_comparing_elements_says(left: Layout, right: Layout) -> None:
    right = replace(right, shape=left.shape, terms=tuple(t for t in right.terms if (t.dim or 0) < left.rank), copies=())
    assert same(left, right) == (everything(left) == everything(right))


def test_terms_that_overlap_are_digits_and_idle_moduli_go() -> None:
    def address(*terms: Term) -> Layout:
        return Layout(shape=(const(16),), terms=terms)

    whole = Term(dim=0, stride=const(8))
    every_fourth = Term(dim=0, divisor=4, stride=const(1))
    low, high = Term(dim=0, modulus=4, stride=const(8)), Term(dim=0, divisor=4, stride=const(33))
    assert canonical(address(whole, every_fourth)) == canonical(address(low, high))
    assert canonical(address(replace(whole, modulus=16))) == address(whole)
    assert canonical(address(replace(whole, modulus=15))) != address(whole)
    nothing = (Term(dim=0, divisor=3, stride=const(0)), Term(dim=0, divisor=3, modulus=1, stride=const(5)))
    even, odd = Term(dim=0, modulus=2, stride=const(8)), Term(dim=0, divisor=2, stride=const(16))
    assert canonical(address(even, odd, *nothing)) == address(whole)


def test_layouts_are_equal_up_to_the_names_of_their_sizes() -> None:
    assert renaming(row_major((M, N)), row_major((N, M))) == {"M": "N", "N": "M"}
    assert renaming(row_major((M, N)), strided((M, N), (LDA, 1))) is None
    assert renaming(strided((M, N), (LDA, 1)), strided((N, LDA), (M, 1))) == {"M": "N", "N": "lda", "lda": "M"}


def test_plain_strides_are_told_and_nothing_else_is() -> None:
    assert strides(padded((4, 8), 1)) == (const(9), const(1))
    assert strides(row_major((M, N))) == (N, const(1))
    assert strides(strided((4, 8), (0, 1))) == (const(0), const(1))
    assert strides(swizzled((8, 64), 2, 128)) is None
    assert strides(Layout(shape=(const(8),), terms=(Term(dim=0, divisor=2, stride=const(1)),))) is None


# ---- extents ---------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(layouts())
def test_the_room_of_a_layout_holds_all_its_places(layout: Layout) -> None:
    base = replace(layout, xor=None)
    found = everything(base)
    for unit in (Unit.ADDRESS, Unit.LANE, Unit.REGISTER):
        values = [dict(place).get(unit, 0) for places in found.values() for place in places]
        if not values:
            assert number(extent(layout, unit)) == 0
            continue
        low, high = map(number, ends(layout, unit))
        assert low <= min(values) and max(values) <= high
        assert number(extent(base, unit)) == high - low + 1


@settings(max_examples=60)
@given(st.one_of(layouts(digits=True), mixed_radix()))
def test_the_room_of_digits_is_exact(layout: Layout) -> None:
    base = replace(layout, xor=None)
    addresses = [dict(place).get(Unit.ADDRESS, 0) for places in everything(base).values() for place in places]
    assert number(extent(base)) == (max(addresses) - min(addresses) + 1 if addresses else 0)


@settings(max_examples=60)
@given(layouts(digits=True, address=True))
def test_an_xor_stays_inside_the_room(layout: Layout) -> None:
    low = number(ends(layout)[0])
    lowered = replace(layout, terms=(*layout.terms, Term(dim=None, stride=const(1), offset=const(-low))))
    room = number(extent(lowered))
    for places in everything(lowered).values():
        assert all(0 <= dict(place).get(Unit.ADDRESS, 0) < room for place in places)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (row_major((M, N)), "M * N"),
        (padded((128, 64), 8), "9208"),
        (strided((M, N), (LDA, 1)), "(max(M, 1) - 1) * lda + (max(N, 1) - 1) + 1"),
        (row_major(()), "1"),
        (row_major((0, N)), "0"),
        (strided((4, N), (0, 1)), "N"),
        (strided((5, 2), (-2, 10)), "19"),
        (SPLIT, "6"),
    ],
)  # fmt: skip
def test_the_room_in_words(layout: Layout, text: str) -> None:
    assert in_words(extent(layout)) == text


@settings(max_examples=60)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9))
def test_the_room_of_sizes_is_enough_at_every_size(m: int, n: int, lda: int) -> None:
    names = {"M": m, "N": n, "lda": lda}
    for layout in (row_major((M, N)), padded((M, N), 3), strided((M, N), (LDA, 1)), strided((M, 3), (1, M))):
        addresses = [place_of(layout, e, names)[Unit.ADDRESS] for e in elements_of(layout, names)]
        room = number(extent(layout), names)
        assert room >= max(addresses, default=-1) + 1
        if m * n:
            assert room == max(addresses) + 1
        assert number(extent_bytes(layout, 4), names) == 4 * room


# ---- values that mean nothing ----------------------------------------------------------------------------------


def test_what_means_nothing_is_refused() -> None:
    for bad in (
        lambda: Term(dim=0, divisor=0, stride=const(1)),
        lambda: Term(dim=0, modulus=0, stride=const(1)),
        lambda: Layout(shape=(const(2),), terms=(Term(dim=1, stride=const(1)),)),
        lambda: Layout(shape=(), terms=(), copies=(0,)),
        lambda: Xor(bits=0, base=0, shift=1),
        lambda: Xor(bits=3, base=3, shift=2),
    ):
        with pytest.raises(InternalError):
            bad()


def test_an_element_may_be_held_many_times() -> None:
    quad = Layout(
        shape=(const(8),),
        terms=(
            Term(dim=0, stride=const(4), unit=Unit.LANE),
            Term(dim=1, stride=const(1), unit=Unit.LANE),
        ),
        copies=(4,),
    )
    assert {dict(place).get(Unit.LANE, 0) for place in places_of(quad, (3,))} == {12, 13, 14, 15}
    assert in_words(add(I, const(0))) == "i"
