"""Who holds which element: proofs that places are distinct, reading back, fragments, the swizzles of the hardware."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_oracle import elements_of, everything, layouts, mixed_radix, number, place_of, places_of

from texpr.grammar.ast import IndexOp, IndexVar, SizeVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.fragments import FRAGMENTS
from texpr.grammar.index.expr import add, combine, const, multiply
from texpr.grammar.index.linear import Linear, constant, linear
from texpr.grammar.index.text import in_words
from texpr.polyhedral.layout.digits import NotDigitsError
from texpr.polyhedral.layout.injective import How, injective
from texpr.polyhedral.layout.inverse import elements, held
from texpr.polyhedral.layout.make import fragment, padded, repeated, reversed_dim, row_major, staged, strided, swizzled
from texpr.polyhedral.layout.normal import same
from texpr.polyhedral.layout.text import show
from texpr.polyhedral.layout.value import Layout, Term, Unit

M, N, K, LDA = (SizeVar(name=name) for name in ("M", "N", "K", "lda"))


def clash(layout: Layout) -> bool:
    """Whether two elements share a place."""
    seen: dict[object, tuple[int, ...]] = {}
    return any(seen.setdefault(p, e) != e for e, places in everything(layout).items() for p in places)


@settings(max_examples=60)
@given(st.one_of(layouts(), layouts(digits=True), mixed_radix()))
def test_the_verdict_is_what_comparing_all_places_says(layout: Layout) -> None:
    verdict = injective(layout)
    assert verdict.holds is not clash(layout)
    if verdict.pair is not None:
        first, second = verdict.pair
        assert first != second and places_of(layout, first) & places_of(layout, second)


@settings(max_examples=60)
@given(mixed_radix())
def test_digits_that_nest_are_proved_without_comparing(layout: Layout) -> None:
    assert injective(layout).how in (How.NESTED, How.EMPTY)


@settings(max_examples=60)
@given(st.one_of(layouts(digits=True, copies=False), mixed_radix()))
def test_a_layout_read_back_gives_the_element(layout: Layout) -> None:
    try:
        found = elements(layout)
    except NotDigitsError:
        return
    for element in elements_of(layout):
        at = {unit.value: value for unit, value in place_of(layout, element).items()}
        assert tuple(number(index, at) for index in found) == element


@settings(max_examples=60)
@given(mixed_radix(), st.integers(-7, 7))
def test_what_is_moved_is_read_back_too(layout: Layout, by: int) -> None:
    moved = replace(layout, terms=tuple(replace(t, offset=const(by)) for t in layout.terms), xor=None)
    assert injective(moved).holds is not clash(moved)
    try:
        found = elements(moved)
    except NotDigitsError:
        return
    for element in elements_of(moved):
        at = {unit.value: value for unit, value in place_of(moved, element).items()}
        assert tuple(number(index, at) for index in found) == element


def test_sizes_nest_where_no_coefficient_says_otherwise() -> None:
    proved = (
        row_major((K, M, N)),
        padded((M, N), 3),
        strided((M, N), (1, M)),
        strided((M, N), (combine(IndexOp.MUL, const(2), N), 2)),
        staged(padded((M, 64), 8), 4),
        reversed_dim(row_major((4, 8)), 1),
        strided((M, 8, N), (combine(IndexOp.MUL, N, const(16)), N, 1)),
    )
    for layout in proved:
        assert injective(layout).how is How.NESTED, show(layout)
    for layout in (
        strided((M, N), (LDA, 1)),
        strided((M, N), (M, 1)),
        strided((M, 8), (0, 1)),
        strided((M, M), (N, N)),
    ):
        verdict = injective(layout)
        assert verdict.holds is None and verdict.how is How.OPEN, show(layout)


def test_facts_prove_what_strides_leave_open() -> None:
    def covers(form: Linear) -> bool:
        return form == linear(LDA) - linear(N) or form == linear(LDA) - constant(1)

    assert injective(strided((M, N), (LDA, 1)), nonnegative=covers).how is How.NESTED
    assert injective(strided((M, N), (LDA, 1)), {"M": 4, "N": 5, "lda": 4}).pair == ((0, 4), (1, 0))
    assert injective(strided((M, N), (LDA, 1)), {"M": 4, "N": 5, "lda": 5}).how is How.NESTED
    assert injective(strided((M, N), (LDA, 1)), {"M": 0, "N": 5, "lda": 1}).how is How.EMPTY


def test_strides_that_do_not_nest_are_compared_and_too_many_left_open() -> None:
    assert injective(strided((4, 4), (2, 3))).pair == ((0, 2), (3, 0))
    assert injective(strided((3, 2), (2, 3))).how is How.COMPARED
    assert injective(strided((3, 2), (2, 3))).holds
    assert injective(strided((1 << 11, 1 << 11), (2, 3))).how is How.OPEN


# ---- fragments ---------------------------------------------------------------------------------------------------

ENTRIES = [(name, role) for name, operands in FRAGMENTS.items() for role in operands]


@pytest.mark.parametrize(("name", "role"), ENTRIES)
def test_a_fragment_s_layout_is_its_table_both_ways(name: str, role: str) -> None:
    table, layout = FRAGMENTS[name][role], fragment(name, role)
    assert injective(layout).how is How.NESTED
    row, column = elements(layout)
    seen = set()
    for lane in range(table.lanes):
        for register in range(table.registers):
            at = {"lane": lane, "register": register}
            element = tuple(number(e, at) for e in table.place(const(lane), const(register)))
            assert (number(row, at), number(column, at)) == element
            holder = place_of(layout, element)
            assert (holder[Unit.LANE], holder[Unit.REGISTER]) == (lane, register)
            seen.add(element)
    assert len(seen) == table.rows * table.columns


def test_a_fragment_in_words() -> None:
    layout = fragment("mma16816", "c")
    assert show(layout) == "(16, 8): register x0 / 8 * 2 + x1 % 2, lane x0 % 8 * 4 + x1 / 2"
    assert [in_words(e) for e in elements(layout)] == ["register / 2 * 8 + lane / 4", "lane % 4 * 2 + register % 2"]


def test_what_the_holder_s_element_ignores_is_a_copy() -> None:
    lane, register = IndexVar(name="lane"), IndexVar(name="register")
    row = combine(IndexOp.ADD, combine(IndexOp.DIV, lane, const(4)), combine(IndexOp.MUL, register, const(8)))
    column = held((16,), {Unit.LANE: 32, Unit.REGISTER: 2}, (row,))
    assert column.copies == (4,)
    assert show(column) == "(16,): register x0 / 8, lane x0 % 8 * 4 + c0, copies (4)"
    for (i,) in elements_of(column):
        lanes = {(dict(p).get(Unit.LANE, 0), dict(p).get(Unit.REGISTER, 0)) for p in places_of(column, (i,))}
        assert lanes == {(i % 8 * 4 + c, i // 8) for c in range(4)}
    assert same(column, held((16,), {Unit.LANE: 32, Unit.REGISTER: 2}, (row,)))


def test_holders_that_leave_elements_out_are_refused() -> None:
    lane = IndexVar(name="lane")
    for element, wrong in (
        ((combine(IndexOp.MUL, lane, const(2)),), NotDigitsError),
        ((combine(IndexOp.MOD, lane, const(4)),), NotDigitsError),
        ((combine(IndexOp.ADD, lane, const(1)),), NotDigitsError),
        ((combine(IndexOp.ADD, lane, lane),), NotDigitsError),
    ):
        with pytest.raises(wrong):
            held((32,), {Unit.LANE: 32}, element)
    with pytest.raises(InternalError):
        held((32, 32), {Unit.LANE: 32}, (lane, lane))


def test_the_accumulator_of_a_warpgroup_is_that_of_a_warp_repeated() -> None:
    """wgmma.m64n64: a warp has 16 rows, and in them C of mma.m16n8k16 for every 8 columns."""
    warp, lane, register = (IndexVar(name=unit) for unit in ("warp", "lane", "register"))
    half = combine(IndexOp.MOD, combine(IndexOp.DIV, register, const(2)), const(2))
    row = add(add(multiply(warp, const(16)), combine(IndexOp.DIV, lane, const(4))), multiply(half, const(8)))
    pair = add(multiply(combine(IndexOp.MOD, lane, const(4)), const(2)), combine(IndexOp.MOD, register, const(2)))
    column = add(pair, multiply(combine(IndexOp.DIV, register, const(4)), const(8)))
    whole = held((64, 64), {Unit.WARP: 4, Unit.LANE: 32, Unit.REGISTER: 32}, (row, column))
    tiles = Layout(
        shape=(const(4), const(8)),
        terms=(Term(dim=0, stride=const(1), unit=Unit.WARP), Term(dim=1, stride=const(1), unit=Unit.REGISTER)),
    )
    assert same(whole, repeated(tiles, fragment("mma16816", "c")))
    assert injective(whole).how is How.NESTED


def test_a_row_held_in_chunks_that_begin_at_a_line_of_memory_is_read_back() -> None:
    """Lanes take chunks of 8 elements counted from `lead` elements before the row, 256 at a time."""
    lead = IndexVar(name="lead")

    def term(unit: Unit, divisor: int, modulus: int | None, stride: int) -> Term:
        return Term(dim=0, offset=lead, divisor=divisor, modulus=modulus, stride=const(stride), unit=unit)

    terms = (term(Unit.LANE, 8, 32, 1), term(Unit.REGISTER, 1, 8, 1), term(Unit.REGISTER, 256, None, 8))
    row = Layout(shape=(N,), terms=terms)
    assert injective(row).how is How.NESTED
    (index,) = elements(row)
    for shift in (0, 3, 7):
        for x in range(600):
            place = place_of(row, (x,), {"lead": shift})
            assert number(index, {"lead": shift} | {unit.value: at for unit, at in place.items()}) == x


# ---- swizzles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swizzle_bytes", [32, 64, 128])
@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
def test_a_swizzle_moves_16_byte_chunks_as_the_hardware_does(swizzle_bytes: int, element_bytes: int) -> None:
    columns = 2 * swizzle_bytes // element_bytes
    layout = swizzled((24, columns), element_bytes, swizzle_bytes)
    panel = swizzle_bytes // element_bytes
    for i, j in elements_of(layout):
        byte = (j // panel * 24 * panel + i * panel + j % panel) * element_bytes
        chunk, line = byte // 16 % (swizzle_bytes // 16), byte // 128 % (swizzle_bytes // 16)
        expected = byte - chunk * 16 + (chunk ^ line) * 16
        assert place_of(layout, (i, j))[Unit.ADDRESS] * element_bytes == expected
        if swizzle_bytes == 128:
            assert line == i % 8
    assert injective(layout).how is How.NESTED
    assert layout.xor is not None and layout.xor.period * element_bytes == 8 * swizzle_bytes


def test_a_swizzle_of_rows_that_no_panel_fills_is_refused() -> None:
    with pytest.raises(InternalError, match="no multiple of 128"):
        swizzled((8, 72), 2, 128)


def test_a_term_without_a_dimension_is_a_constant() -> None:
    shifted = Layout(shape=(const(4),), terms=(Term(dim=0, stride=const(1)), Term(dim=None, stride=const(5), offset=M)))
    assert show(shifted) == "(4,): address x0 + 5 * M"
    assert in_words(elements(shifted)[0]) == "address - 5 * M"
