"""Views, tiles, divisions and repetitions of layouts are where the layout says, element by element."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_oracle import elements_of, layouts, mixed_radix, number, place_of, places_of

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import add, combine, const, multiply
from texpr.polyhedral.layout.compose import compose, divide, tile
from texpr.polyhedral.layout.digits import NotDigitsError, Sum, digits
from texpr.polyhedral.layout.make import folded, fragment, padded, repeated, reversed_dim, row_major, staged, swizzled
from texpr.polyhedral.layout.normal import same
from texpr.polyhedral.layout.text import show
from texpr.polyhedral.layout.value import Layout, Term, Unit

INDICES = {"i": const(4), "j": const(6)}


@st.composite
def quasi_affine(draw: st.DrawFn, depth: int = 3) -> IndexExpr:
    """An index expression in i and j whose divisors are constants."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from((IndexVar(name="i"), IndexVar(name="j"), const(draw(st.integers(-3, 9))))))
    left = draw(quasi_affine(depth - 1))
    match draw(st.sampled_from(("+", "-", "*", "/", "%", "ceildiv"))):
        case "+" | "-" as sign:
            return combine(IndexOp(sign), left, draw(quasi_affine(depth - 1)))
        case "*":
            return multiply(left, const(draw(st.integers(-2, 8))))
        case sign:
            return combine(IndexOp(sign), left, const(draw(st.sampled_from((1, 2, 3, 4, 6, 8)))))


def value_of(found: Sum, at: dict[str, int]) -> int:
    """What a sum of digits is at some indices."""
    total = number(found.rest.expression(), at)
    for digit, coefficient in found.parts.items():
        value = (at[digit.index] + number(digit.offset.expression(), at)) // digit.divisor
        total += number(coefficient.expression(), at) * (value if digit.modulus is None else value % digit.modulus)
    return total


@settings(max_examples=80)
@given(quasi_affine())
def test_digits_of_an_expression_have_its_value(expression: IndexExpr) -> None:
    try:
        found = digits(expression, {"i": const(9), "j": const(20)})
    except NotDigitsError:
        return
    for i, j in product(range(9), range(20)):
        assert value_of(found, {"i": i, "j": j}) == number(expression, {"i": i, "j": j})


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("(4 * i + j) / 8, j < 4", True),
        ("(4 * i + j) / 8, j < 5", False),
        ("2 * j / 8, j < 5", True),
        ("i % 6 / 3", True),
        ("i % 12 / 3", True),
        ("i % 6 / 4", False),
        ("(i + lead) / 8", True),
        ("(i + j) % 8", False),
        ("(8 * i + j) % 8, j < 8", True),
        ("(i + i % 2) / 2", True),
        ("(i + i % 2) % 2", True),
        ("(i + 3 * (i % 2)) / 2", True),
    ],
)
def test_what_digits_can_say(text: str, accepted: bool) -> None:
    i, j, lead = IndexVar(name="i"), IndexVar(name="j"), SizeVar(name="lead")
    expression = {
        "(4 * i + j) / 8": combine(IndexOp.DIV, add(multiply(i, const(4)), j), const(8)),
        "2 * j / 8": combine(IndexOp.DIV, multiply(j, const(2)), const(8)),
        "i % 6 / 3": combine(IndexOp.DIV, combine(IndexOp.MOD, i, const(6)), const(3)),
        "i % 12 / 3": combine(IndexOp.DIV, combine(IndexOp.MOD, i, const(12)), const(3)),
        "i % 6 / 4": combine(IndexOp.DIV, combine(IndexOp.MOD, i, const(6)), const(4)),
        "(i + lead) / 8": combine(IndexOp.DIV, add(i, lead), const(8)),
        "(i + i % 2) / 2": combine(IndexOp.DIV, add(i, combine(IndexOp.MOD, i, const(2))), const(2)),
        "(i + i % 2) % 2": combine(IndexOp.MOD, add(i, combine(IndexOp.MOD, i, const(2))), const(2)),
        "(i + 3 * (i % 2)) / 2": combine(
            IndexOp.DIV, add(i, multiply(combine(IndexOp.MOD, i, const(2)), const(3))), const(2)
        ),
        "(i + j) % 8": combine(IndexOp.MOD, add(i, j), const(8)),
        "(8 * i + j) % 8": combine(IndexOp.MOD, add(multiply(i, const(8)), j), const(8)),
    }[text.partition(",")[0]]
    bound = int(text[-1]) if "<" in text else 6
    extents: dict[str, IndexExpr] = {"i": const(24), "j": const(bound)}
    if accepted:
        found = digits(expression, extents)
        for at in ({"i": i, "j": j, "lead": 5} for i, j in product(range(24), range(bound))):
            assert value_of(found, at) == number(expression, at)
    else:
        with pytest.raises(NotDigitsError):
            digits(expression, extents)


@settings(max_examples=60)
@given(layouts(), st.lists(quasi_affine(2), min_size=3, max_size=3))
def test_a_composition_is_the_layout_at_the_subscripts(layout: Layout, subscripts: list[IndexExpr]) -> None:
    copies = {f"c{position}": const(count) for position, count in enumerate(layout.copies)}
    given_ = (*subscripts[: layout.rank], *(IndexVar(name=name) for name in copies))
    try:
        view = compose(layout, INDICES | copies, given_)
    except NotDigitsError:
        return
    for element in elements_of(view):
        for copy in product(*(range(c) for c in layout.copies)):
            at = {"i": element[0], "j": element[1]} | {f"c{n}": v for n, v in enumerate(copy)}
            inside = tuple(number(s, at) for s in given_)
            mine, theirs = place_of(view, element + copy), place_of(layout, inside)
            assert {u: mine.get(u, 0) for u in Unit} == {u: theirs.get(u, 0) for u in Unit}


@settings(max_examples=60)
@given(layouts(), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_a_tile_is_the_part_of_the_layout_from_its_origin_on(layout: Layout, origin: list[int]) -> None:
    shape = [max(0, number(extent) - start) for extent, start in zip(layout.shape, origin, strict=False)]
    part = tile(layout, [SizeVar(name=f"o{d}") for d in range(layout.rank)], [const(n) for n in shape])
    names = {f"o{d}": start for d, start in enumerate(origin)}
    for element in elements_of(part):
        there = tuple(x + start for x, start in zip(element, origin, strict=False))
        assert places_of(part, element, names) == places_of(layout, there)


@settings(max_examples=60)
@given(st.one_of(layouts(digits=True), mixed_radix()), st.lists(st.sampled_from((1, 2, 3, 4)), min_size=3, max_size=3))
def test_a_division_has_every_element_in_its_tile(layout: Layout, steps: list[int]) -> None:
    steps = steps[: layout.rank]
    try:
        parts = divide(layout, steps)
    except NotDigitsError:
        return
    assert [number(e) for e in parts.shape[layout.rank :]] == steps
    for element in elements_of(layout):
        split = [divmod(x, step) for x, step in zip(element, steps, strict=True)]
        assert places_of(parts, tuple(q for q, _ in split) + tuple(r for _, r in split)) == places_of(layout, element)


def test_tiles_that_divide_the_digits_are_never_refused() -> None:
    for layout in (row_major((7, 13)), padded((128, 64), 8), swizzled((16, 128), 2, 128), fragment("mma16816", "a")):
        divide(layout, (8, 8))
    with pytest.raises(NotDigitsError, match=r"split at 12|remainder"):
        divide(swizzled((16, 192), 2, 128), (8, 12))


@settings(max_examples=60)
@given(layouts(copies=False), st.integers(0, 2))
def test_a_reversed_dimension_is_read_backwards(layout: Layout, dim: int) -> None:
    if dim >= layout.rank:
        return
    try:
        back = reversed_dim(layout, dim)
    except NotDigitsError:
        return
    last = number(layout.shape[dim]) - 1
    for element in elements_of(layout):
        other = tuple(last - x if d == dim else x for d, x in enumerate(element))
        assert places_of(back, element) == places_of(layout, other)


def test_rows_read_backwards_keep_sizes_free() -> None:
    rows = row_major((SizeVar(name="M"), SizeVar(name="N")))
    assert show(reversed_dim(rows, 1)) == "(M, N): address x0 * N + x1 * (-1) + (N - 1)"
    assert same(reversed_dim(reversed_dim(rows, 1), 1), rows)


# ---- repetitions and stages --------------------------------------------------------------------------------------


def test_a_warp_tile_repeats_its_fragment() -> None:
    warps = Layout(
        shape=(const(4), const(8)),
        terms=(
            Term(dim=0, stride=const(1), unit=Unit.WARP),
            Term(dim=1, stride=const(1), unit=Unit.REGISTER),
        ),
    )
    atom = fragment("mma16816", "c")
    whole = repeated(warps, atom)
    assert show(whole) == (
        "(64, 64): register x0 / 8 % 2 * 2 + x1 / 8 * 4 + x1 % 2, lane x0 % 8 * 4 + x1 / 2 % 4, warp x0 / 16"
    )
    for i, j in elements_of(whole):
        inner = place_of(atom, (i % 16, j % 8))
        expected = {
            Unit.LANE: inner[Unit.LANE],
            Unit.REGISTER: inner[Unit.REGISTER] + 4 * (j // 8),
            Unit.WARP: i // 16,
            Unit.ADDRESS: 0,
        }
        assert place_of(whole, (i, j)) == expected


def test_what_is_held_often_is_repeated_with_its_copies() -> None:
    column = Layout(
        shape=(const(8),),
        terms=(Term(dim=0, stride=const(4), unit=Unit.LANE), Term(dim=1, stride=const(1), unit=Unit.LANE)),
        copies=(4,),
    )
    rows = Layout(shape=(const(2),), terms=(Term(dim=0, stride=const(1), unit=Unit.REGISTER),))
    whole = repeated(rows, column)
    for (i,) in elements_of(whole):
        lanes = {(dict(p).get(Unit.LANE, 0), dict(p).get(Unit.REGISTER, 0)) for p in places_of(whole, (i,))}
        assert lanes == {(i % 8 * 4 + copy, i // 8) for copy in range(4)}


def test_stages_lie_one_after_another_when_folded_into_the_address() -> None:
    tiles = staged(swizzled((8, 64), 2, 128), 3)
    flat = folded(tiles, Unit.STAGE, const(512))
    for stage, i, j in elements_of(flat):
        inner = place_of(swizzled((8, 64), 2, 128), (i, j))[Unit.ADDRESS]
        assert place_of(tiles, (stage, i, j)) == {Unit.ADDRESS: inner, Unit.STAGE: stage}
        assert place_of(flat, (stage, i, j)) == {Unit.ADDRESS: inner + 512 * stage}


def test_steps_that_would_change_an_xor_are_refused() -> None:
    tiles = staged(swizzled((8, 64), 2, 128), 3)
    with pytest.raises(InternalError, match="512"):
        folded(tiles, Unit.STAGE, const(576))
    with pytest.raises(InternalError, match="512"):
        repeated(row_major((2, 1)), swizzled((4, 64), 2, 128))
    assert same(repeated(row_major((2, 1)), swizzled((8, 64), 2, 128)), swizzled((16, 64), 2, 128))
