"""Factors of products that become arrays: what comes out, what is refused, what the check notices, what is chosen."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from brute_force import number
from stages import program, proved
from test_schedule import after, refused

from texpr import parse
from texpr.grammar import exact, numerics
from texpr.grammar.ast import Bind, Cast, Const, Fn, IndexVar, Kernel, New, Node, Op, Par, Read, Seq
from texpr.grammar.index.expr import add, const
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.types import BF16, ELEMENT_TYPES, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, I64, U8, U32, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Fuse, Move, Precompute
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.computed import check_schedule
from texpr.polyhedral.schedule.draft import replay
from texpr.polyhedral.schedule.factors import factors
from texpr.polyhedral.schedule.stage import schedule
from texpr.polyhedral.target import parse_target

HALF = """kernel half(X: bf16[M, K], W: i8[K, N], out Y: f32[M, N]) {
    par M m, N n { Y[m, n] = sum K k { X[m, k] * f32(W[k, n]) } }
}"""
CLAMPED = """kernel clamped(X: bf16[M, K], s: f32[K], W: i8[K, N], out Y: f32[M, N]) {
    par M m, N n { Y[m, n] = sum K k { let w = f32(W[k, n]); (max(X[m, k], 0.0) * s[k]) * w } }
}"""
SECOND = Precompute(statement="S1", part="second", dtype="bf16")
FIRST = Precompute(statement="S2", part="first", dtype="f32")
BOUND = Precompute(statement="S1", part="value", dtype="bf16")


def test_a_factor_is_made_by_a_band_before() -> None:
    assert (
        after(HALF, SECOND, M=3, K=5, N=16)
        == """\
  new W_factor: bf16[5, 16]
  par at: 5 (band 1)
    par at_1: 16 (band 1)
      S1_second: W_factor[at, at_1] = bf16(f32(W[at, at_1]))
  par m: 3 (band 2)
    par n: 16 (band 2)
      S0: Y[m, n] = 0.0:f32
      seq k: 5
        S1: Y[m, n] add= mul.f32(f32(X[m, k]), f32(W_factor[k, n]))"""
    )


def test_what_several_arrays_make_has_the_elements_of_its_loops_and_rows_of_whole_units() -> None:
    said = """\
  new X_factor: f32[M, K] #strides(4 * ceildiv(K, 4), 1)
  par m_1: M (band 1)
    par k_1: K (band 1)
      S2_first: X_factor[m_1, k_1] = mul.f32(max.f32(f32(X[m_1, k_1]), 0.0:f32), s[k_1])
  new W_factor: bf16[K, N] #strides(8 * ceildiv(N, 8), 1)
  par at: K (band 2)
    par at_1: N (band 2)
      S1_value: W_factor[at, at_1] = bf16(f32(W[at, at_1]))
  par m: M (band 3)
    par n: N (band 3)
      S0: Y[m, n] = 0.0:f32
      seq k: K
        new w: f32
        S1: w = f32(W_factor[k, n])
        S2: Y[m, n] add= mul.f32(X_factor[m, k], w)"""
    assert after(CLAMPED, FIRST, BOUND) == said


@pytest.mark.parametrize(
    ("text", "move", "why"),
    [
        (HALF, replace(SECOND, part="third"), "S1 has no 'third' factor"),
        (HALF, replace(SECOND, statement="S7"), "there is no statement 'S7' with a value"),
        (HALF, replace(SECOND, statement="S0"), "S0 has no 'second' factor"),
        (HALF, replace(SECOND, dtype="f8e4m3"), "'f8e4m3' is no type that holds every value of it"),
        (HALF, replace(SECOND, dtype="float"), "'float' is no type that holds every value of it"),
        (CLAMPED, replace(FIRST, dtype="bf16"), "'bf16' is no type that holds every value of it"),
        (CLAMPED, replace(FIRST, part="second"), "the factor reads w, which the band itself makes"),
        (
            "par M m, N n { Y[m, n] = 0.0; seq K k { Y[m, n] += X[m, k] * f32(W[k, at[n]]) } }",
            SECOND,
            "the factor lies at a place that data tells",
        ),
        (
            "par M m, N n { Y[m, n] = 0.0; seq K k { Y[m, n] += X[m, k] * 2.0 } }",
            replace(SECOND, dtype="f32"),
            "the factor is one value",
        ),
        (
            "seq K k { par M m, N n { Y[m, n] += X[m, k] * f32(W[k, n]) } }",
            replace(SECOND, statement="S0"),
            "S0 is in no band of its own",
        ),
        (
            "par M m, N n { Y[m, n] = 0.0; seq m k { Y[m, n] += X[m, k] * (f32(W[k, n]) + f32(at[k])) } }",
            replace(SECOND, dtype="f32"),
            "the iterations of `k` are not those of a box",
        ),
    ],
)
def test_what_does_not_fit_is_refused(text: str, move: Move, why: str) -> None:
    whole = f"kernel f(X: bf16[M, K], W: i8[K, N], at: i8[N], Y: f32[M, N]) where M <= K, K <= N {{ {text} }}"
    assert why in refused(text if text.startswith("kernel") else whole, move)


@pytest.mark.parametrize(
    ("rows", "band"),
    [
        (7, "S0: Y[i] = X[i]\n    if i < 5\n      S1_value: R_factor[i] = add.f32(R[4 - i], 1.0:f32)"),
        (5, "S0: Y[i] = X[i]\n    S1_value: R_factor[i] = add.f32(R[4 - i], 1.0:f32)"),
        (3, "if i < 3\n      S0: Y[i] = X[i]\n    S1_value: R_factor[i] = add.f32(R[4 - i], 1.0:f32)"),
    ],
)
def test_the_band_of_an_array_is_fused_with_another_one(rows: int, band: str) -> None:
    text = """kernel fused(X: f32[M], R: f32[N], out Y: f32[M], out Z: f32[N]) { par M i { Y[i] = X[i] }
    par N a { new s: f32; s = R[N - 1 - a] + 1.0; Z[a] = s * s } }"""
    move = Precompute(statement="S1", part="value", dtype="f32")
    assert band in after(text, move, Fuse(first="i", second="a_1"), M=rows, N=5)
    assert "is read by S1 before it is made" in refused(text, move, Fuse(first="a_1", second="a"), M=rows, N=5)


# ---- what the check notices --------------------------------------------------------------------------------------


def faulty(change: Callable[[Kernel], Kernel], text: str = CLAMPED, *moves: Move) -> str | None:
    before = program(text)
    kernel = before.kernel
    for move in moves or (FIRST, BOUND):
        kernel = moved(build_program(kernel, beside=before), move).kernel
    found = check_schedule(before, build_program(change(kernel), beside=before), {})
    return None if found is None else found.why


def bound(change: Callable[[Bind], Bind], *, of: str = "X_factor") -> Callable[[Kernel], Kernel]:
    """A change of what an array is made of."""

    def made(node: Node) -> Node:
        return change(node) if isinstance(node, Bind) and node.buffer == of else node

    return lambda kernel: rewrite(kernel, made)


def test_the_check_notices_what_changes_behind_an_array_that_another_one_is_made_of() -> None:
    head = "kernel k(inout X: f32[5], out Y: f32[5]) {"
    before = program(f"{head} par 5 i {{ X[i] = 2.0 }} par 5 j {{ Y[j] = X[j] + 1.0 }} }}")
    body = "new A: f32[5]; par 5 a { A[a] = X[a] }; new B: f32[5]; par 5 b { B[b] = A[b] + 1.0 }"
    made = program(f"{head} {body}; par 5 i {{ X[i] = 2.0 }} par 5 j {{ Y[j] = B[j] }} }}").kernel
    own = {"S0": "A_made", "S1": "B_made", "S2": "S0", "S3": "S1"}
    named = rewrite(made, lambda node: replace(node, id=own[node.id]) if isinstance(node, Bind) else node)
    found = check_schedule(before, build_program(named, beside=before), {})
    assert found is not None and found.why == "B is made of what S0 changes before S1 reads it"


def test_the_check_notices_arrays_that_are_not_what_they_stand_for() -> None:
    def there(kernel: Kernel) -> Kernel:
        return kernel

    def last(kernel: Kernel) -> Kernel:
        new, band, *rest = kernel.body
        return replace(kernel, body=(new, *rest, band))

    def shorter(kernel: Kernel) -> Kernel:
        def less(node: Node) -> Node:
            return replace(node, extent=add(node.extent, const(-1))) if _is(node, "k_1") else node

        return rewrite(kernel, less)

    def twice(kernel: Kernel) -> Kernel:
        again = rewrite(kernel.body[1], lambda node: replace(node, id="again") if isinstance(node, Bind) else node)
        return replace(kernel, body=(*kernel.body[:2], again, *kernel.body[2:]))

    def one_after_another(kernel: Kernel) -> Kernel:
        def serial(node: Node) -> Node:
            if isinstance(node, Par) and node.index == "k_1":
                return Seq(index="k_1", source_name="k_1", extent=node.extent, body=node.body)
            return node

        return rewrite(kernel, serial)

    def diagonal(bind: Bind) -> Bind:
        return replace(bind, subscripts=(IndexVar(name="m_1"), IndexVar(name="m_1")))

    def other(bind: Bind) -> Bind:
        return replace(bind, value=rewrite(bind.value, _changed_constant))

    def beside(bind: Bind) -> Bind:
        def moved_on(node: Node) -> Node:
            if isinstance(node, Read) and node.buffer == "s":
                return replace(node, subscripts=(add(IndexVar(name="k_1"), const(-1)),))
            return node

        return replace(bind, value=rewrite(bind.value, moved_on))

    assert faulty(there) is None
    assert faulty(last) == "X_factor is read by S2 before it is made"
    assert faulty(shorter) == "X_factor is read by S2 where nothing was made"
    assert faulty(twice) == "X_factor is not made by one statement of its own"
    assert faulty(one_after_another) == "X_factor is not made by a band of its elements"
    assert faulty(bound(diagonal)) == "X_factor is not made by a band of its elements"
    assert faulty(bound(other)) == "S2 does not compute what S2 does"
    assert faulty(bound(beside)) == "s has other elements"
    narrow = bound(lambda bind: replace(bind, value=Cast(operand=bind.value, dtype=BF16)))
    assert faulty(narrow) == "X_factor has another type than what is bound to it"


def test_the_check_notices_a_type_that_loses_bits() -> None:
    """i16 in place of i8: no longer held by bf16."""
    text = HALF.replace("W: i8", "W: i16")
    before = program(text)
    kernel = moved(before, replace(SECOND, dtype="f32")).kernel
    narrowed = rewrite(kernel, lambda node: _narrowed(node) if isinstance(node, Read | Bind) else node)
    buffers = tuple(replace(b, dtype=BF16) if b.name == "W_factor" else b for b in narrowed.buffers)
    found = check_schedule(before, build_program(replace(narrowed, buffers=buffers), beside=before), {})
    assert found is not None and found.why == "S1 does not compute what S1 does"


def test_the_check_notices_what_is_changed_meanwhile() -> None:
    text = """kernel f(X: f32[M, K], inout W: f32[K, N], out Y: f32[M, N]) {
        par K k, N n { W[k, n] = W[k, n] * 2.0 }
        par M m, N n { Y[m, n] = sum K k { X[m, k] * exp(W[k, n]) } }
    }"""

    def sooner(kernel: Kernel) -> Kernel:
        doubled, new, band, rest = kernel.body
        return replace(kernel, body=(new, band, doubled, rest))

    move = Precompute(statement="S2", part="second", dtype="f32")
    assert faulty(lambda kernel: kernel, text, move) is None
    assert faulty(sooner, text, move) == "W_factor is made of what S0 changes before S2 reads it"


AGAIN = Precompute(statement="S1", part="second", dtype="f32")  # what the first one left: a copy of its array
INSIDE = Precompute(statement="S1_second", part="value", dtype="f32")  # of what makes the first one's array


@pytest.mark.parametrize("moves", [(SECOND, AGAIN), (SECOND, AGAIN, AGAIN)], ids=len)
def test_arrays_that_are_made_of_such_arrays_are_put_back(moves: tuple[Move, ...]) -> None:
    changed = replay(proved(HALF), moves).proved.program.kernel
    assert sum(isinstance(stmt, New) for stmt in changed.body) == len(moves)


def test_of_conversions_that_the_check_does_not_see_through_it_says_so() -> None:
    assert "S1 does not compute what S1 does" in refused(HALF, SECOND, INSIDE)


def _is(node: Node, index: str) -> bool:
    return isinstance(node, Par) and node.index == index


def _changed_constant(node: Node) -> Node:
    return replace(node, value=1.0) if isinstance(node, Const) else node


def _narrowed(node: Read | Bind) -> Node:
    if node.buffer != "W_factor":
        return node
    if isinstance(node, Read):
        return Cast(operand=replace(node, dtype=BF16), dtype=F32)
    return replace(node, value=Cast(operand=node.value, dtype=BF16))


# ---- types that hold values --------------------------------------------------------------------------------------


def values_of(dtype: DType) -> Any:
    """All values of a type of at most 16 bits; some of others."""
    if dtype.bits <= 16 and not dtype.is_bool:
        bits = np.arange(1 << dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8)
        return bits.view(numerics.storage(dtype))
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = dtype.integer_range
        return np.array([low, high, high - 1, (1 << 30) + 1, 77], dtype=numerics.storage(dtype))
    return np.array([1 + 2.0**-20, 1 + 2.0**-40, 3e38, -0.1], dtype=numerics.storage(dtype))


@pytest.mark.parametrize("narrow", ELEMENT_TYPES.values(), ids=str)
def test_a_type_holds_what_comes_back_from_it(narrow: DType) -> None:
    values = values_of(narrow)
    common = F64 if narrow.is_float else I64
    for wide in ELEMENT_TYPES.values():
        with np.errstate(all="ignore"):
            want = numerics.cast(values, narrow, common)
            got = numerics.cast(numerics.cast(values, narrow, wide), wide, common)
        same = bool(np.all((got == want) | ((got != got) & (want != want))))
        if exact.holds(wide, narrow):
            assert same, (narrow, wide)
        elif narrow.bits <= 16 and wide.kind is narrow.kind:
            assert not same, (narrow, wide)


def test_what_wraps_does_not_fit() -> None:
    """-u32(x) of a u8 is near 2^32, -i32(x) is not."""
    x = Read(buffer="X", subscripts=(), dtype=U8)
    for wide, fits in ((U32, False), (I32, True)):
        negative = Op(fn=Fn.NEG, args=(Cast(operand=x, dtype=wide),), dtype=wide)
        assert exact.fits(negative, BF16) is fits


def test_infinities_of_f8_do_not_come_back_by_conversions_that_saturate() -> None:
    x = Read(buffer="X", subscripts=(), dtype=F8E5M2)
    for value, dtype in ((x, F32), (Cast(operand=x, dtype=F32), F8E5M2)):
        assert not exact.fits(value, dtype)
    assert exact.fits(x, F8E5M2) and exact.fits(Cast(operand=x, dtype=F32), BF16)
    text = "kernel f(X: f8e5m2[N], inout Y: bf16[N]) { par N i { Y[i] min= X[i] } }"
    move = Precompute(statement="S0", part="value", dtype="f32")
    assert "no type that holds every value" in refused(text, move)


def test_constants_fit_where_their_bits_do() -> None:
    fits = {(dtype.name, value) for dtype, value in product((BF16, F16, F8E4M3, I8), (0.0, 1.5, 257.0, 0.1, 1e6))}
    said = {(d, v) for d, v in fits if exact.fits(Const(value=v, dtype=F32), ELEMENT_TYPES[d])}
    assert said == {("bf16", 0.0), ("bf16", 1.5), ("f16", 0.0), ("f16", 1.5), ("f16", 257.0)}


# ---- what is chosen, and what it computes ------------------------------------------------------------------------

DISGUISED = {
    "converted": HALF,
    "integers in f32": "kernel f(X: i8[M, K], W: u8[N, K], out Y: f32[M, N]) "
    "{ par M m, N n { Y[m, n] = sum K k { f32(X[m, k]) * f32(W[n, k]) } } }",
    "rounded": "kernel f(X: f32[M, K], W: bf16[K, N], out Y: f32[M, N]) "
    "{ par M m, N n { Y[m, n] = sum K k { bf16(X[m, k]) * W[k, n] } } }",
    "clamped": "kernel f(X: f16[M, K], W: f16[N, K], out Y: f16[M, N]) "
    "{ par M m, N n { Y[m, n] = f16(sum K k { max(X[m, k], 0.0) * abs(W[n, k]) }) } }",
    "dequantised": "kernel f(X: bf16[M, K], W: i8[K, N], s: f32[K / 32, N], out Y: bf16[M, N]) where K % 32 == 0 "
    "{ par M m, N n { Y[m, n] = bf16(sum K k { X[m, k] * bf16(f32(W[k, n]) * s[k / 32, n]) }) } }",
    "scaled": "kernel f(X: f32[M, K], g: f32[K], W: f32[K, N], out Y: f32[M, N]) "
    "{ par M m, N n { Y[m, n] = sum K k { X[m, k] * g[k] * W[k, n] } } }",
    "bound": CLAMPED,
    "attention": """kernel f(S: f32[M, K], top: f32[M], W: bf16[K, N], out Y: f32[M, N]) {
        par M m, N n { Y[m, n] = sum K k { let p = bf16(exp(S[m, k] - top[m])); p * W[k, n] } }
    }""",
}


def chosen_for(name: str, n: int) -> Candidate:
    """The compiler's choice for extents of n."""
    start = proved(DISGUISED[name], M=n, K=n, N=n)
    found = map_program(start, parse_target("cuda:sm_90a"), others=schedule(start).others).candidate
    assert isinstance(found, Candidate)
    return found


@pytest.mark.parametrize("name", DISGUISED)
def test_products_in_disguise_are_taken_for_products(name: str) -> None:
    found = chosen_for(name, 2048)
    assert any(isinstance(move, Precompute) for move in found.moves)
    assert read_choices(choices_json(found)) == found
    exact_in_16_bits = name not in ("scaled", "bound")
    assert any(isinstance(own, Piped) for own in found.launches.values()) is exact_in_16_bits


def test_small_products_stay_as_they_are() -> None:
    assert chosen_for("converted", 16).moves == ()


@pytest.mark.parametrize("name", DISGUISED)
@pytest.mark.parametrize("sizes", [{"M": 3, "K": 32, "N": 7}, {"M": 1, "K": 0, "N": 5}, {"M": 0, "K": 32, "N": 9}])
def test_results_are_bit_by_bit_those_of_the_program(name: str, sizes: dict[str, int]) -> None:
    core = parse(DISGUISED[name]).only.core(sizes=sizes)
    random = np.random.default_rng(1)
    shapes = {b.name: [number(n, sizes) for n in b.shape] for b in core.params}
    arrays: dict[str, Any] = {}
    for buffer in core.params:
        values = random.integers(0 if buffer.dtype == U8 else -9, 9, shapes[buffer.name]) / (
            1 if buffer.dtype.is_integer else 7
        )
        arrays[buffer.name] = values.astype(numerics.storage(buffer.dtype))
    start = proved(DISGUISED[name], **sizes)
    moves = [move for found in factors(start.program.kernel) for move in found]
    assert moves
    kernel = replay(start, moves).proved.program.kernel
    want, got = (
        interpret(k, {n: v.copy() for n, v in arrays.items()}, mode="exact", seed=3).outputs["Y"]
        for k in (core, kernel)
    )
    assert want.tobytes() == got.tobytes()
    assert any(isinstance(stmt, New) for stmt in kernel.body)
