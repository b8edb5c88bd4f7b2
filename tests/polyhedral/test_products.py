"""Products of tiles by teams of threads, and the way of their sums to shared memory, simulated and checked."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graphs import barrier, copy, define, do, each, launch, order, part, parts, program, reduce, view, when

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.plan import plan
from texpr.grammar.ast import Always
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import condition_value
from texpr.grammar.types import BF16, F32
from texpr.polyhedral.layout.make import padded, row_major, strided, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Layout, Term, Unit
from texpr.polyhedral.mapped.atoms import SharedOperand, mma, store_matrices, wgmma
from texpr.polyhedral.mapped.expand import IN_TEAM, expand
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import Close, Fence, FenceKind, GroupKind, WaitGroup
from texpr.polyhedral.mapped.tree import Guard, Node
from texpr.polyhedral.mapped.walks import located
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

TYPES = dict.fromkeys(("A", "B", "D", "a", "b", "d"), BF16) | {"C": F32, "c": F32}
COLUMNS, DEPTH = 8, 16
ATOM = wgmma(BF16, COLUMNS, SharedOperand(swizzle_bytes=32), SharedOperand(swizzle_bytes=32))
PRODUCT = Contract(
    id="S2",
    c=view("c[m, n]", TYPES),
    a=view("a[m, k]", TYPES),
    b=view("b[n, k]", TYPES),
    over=(("m", const(64)), ("n", const(COLUMNS)), ("k", const(DEPTH))),
    atom=ATOM,
    accumulate=Always(value=False),
)
FILL = (
    define("i", lane=32, warp=4),
    each("S0", "e < 8", "a[i // 2, 8 * (i % 2) + e] = A[i // 2, 8 * (i % 2) + e]", types=TYPES),
    do("S1", "b[i // 16, i % 16] = B[i // 16, i % 16]", types=TYPES),
)
SHOWN = (Fence(kind=FenceKind.ASYNC_PROXY), barrier("block"))
BEGIN: tuple[Node, ...] = (Fence(kind=FenceKind.WGMMA), PRODUCT, Close(kind=GroupKind.WGMMA))
OVER = WaitGroup(kind=GroupKind.WGMMA)
ROW, COLUMN = "16 * (i // 32) + 8 * h + i % 32 // 4", "8 * j + 2 * (i % 4) + e"
KEEP = each("S3", f"h < 2, j < {COLUMNS // 8}, e < 2", f"C[{ROW}, {COLUMN}] = c[{ROW}, {COLUMN}]", types=TYPES)
ORDERS = (order("S0", "S2", "a"), order("S1", "S2", "b"), order("S2", "S3", "c", scope="warp"))


def tiles(*body: Node, orders: Any = ORDERS, threads: int = 128, **layouts: Layout) -> MappedProgram:
    """Tiles of a product in the memory of a block, and its sums in the registers of a warpgroup."""
    mapped = program(
        f"A: bf16[64, {DEPTH}], B: bf16[{COLUMNS}, {DEPTH}], C: f32[64, {COLUMNS}]",
        launch(*body, threads=threads, orders=orders),
        shared={"a": (64, DEPTH), "b": (COLUMNS, DEPTH)},
        registers={"c": (64, COLUMNS)},
        types=TYPES,
    )
    usual = {name: canonical(swizzled((rows, DEPTH), 2, 32)) for name, rows in (("a", 64), ("b", COLUMNS))}
    lies = usual | {"c": ATOM.operands["c"].layout} | layouts
    buffers = {name: replace(b, layout=lies.get(name, b.layout)) for name, b in mapped.buffers.items()}
    return replace(mapped, buffers=buffers)


def given() -> dict[str, Any]:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((rows, DEPTH)).astype(ml_dtypes.bfloat16) for rows in (64, COLUMNS))
    return {"A": a, "B": b, "C": np.full((64, COLUMNS), np.nan, np.float32)}


def result(mapped: MappedProgram, seed: int = 0) -> Any:
    return simulate(mapped, given(), seed=seed)["C"]


def refused(mapped: MappedProgram, seeds: int = 3) -> str:
    """What the simulator says, under every schedule alike or under the first that shows it."""
    for seed in range(seeds):
        try:
            result(mapped, seed)
        except TExprError as error:
            (diagnostic,) = error.diagnostics
            assert diagnostic.code == "E0604"
            return diagnostic.message
    raise AssertionError("nothing is refused")


WHOLE = (*FILL, *SHOWN, *BEGIN, OVER, KEEP)


def test_a_product_is_right_under_every_schedule() -> None:
    mapped = tiles(*WHOLE)
    check_orders(mapped)
    wanted = given()["A"].astype(np.float64) @ given()["B"].astype(np.float64).T
    for seed in range(3):
        np.testing.assert_allclose(result(mapped, seed), wanted, rtol=1e-4, atol=1e-4)


def test_a_product_means_sums_by_the_thread_that_holds_them() -> None:
    text = show(tiles(*FILL, expand(PRODUCT), orders=()))
    assert text.index("if false") < text.index("S2: c[m, n] = a constant") < text.index("for k < 16\n")
    (held,) = (p.node for p in located((expand(PRODUCT),)) if isinstance(p.node, Guard) and len(p.node.body) > 1)
    assert "S2: c[m, n] += from a[m, k], b[n, k]" in text
    thread, m, n = np.meshgrid(np.arange(128), np.arange(64), np.arange(COLUMNS), indexing="ij")
    holds = condition_value(held.condition, {IN_TEAM.name: thread, "m": m, "n": n})
    assert (np.sum(holds, axis=0) == 1).all() and (np.sum(holds, axis=(1, 2)) == 64 * COLUMNS / 128).all()
    np.testing.assert_array_equal(holds[thread == m // 16 * 32 + m % 8 * 4 + n // 2], True)


OVERWRITE = do("S4", "b[i // 16, i % 16] = A[0, 0]", types=TYPES)
TOUCH = do("S5", "c[16 * (i // 32) + i % 32 // 4, 2 * (i % 4)] = 0.0", types=TYPES)
ANTI = (*ORDERS, order("S2", "S4", "b", "anti"))
EARLY = (*FILL, *SHOWN, *BEGIN, KEEP, OVER)
WRONG = {
    "an operand is overwritten": (
        (*FILL, *SHOWN, *BEGIN, OVERWRITE, OVER, KEEP),
        ANTI,
        "of b and nothing orders S",
        "nothing orders S2 before S4 on b",
    ),
    "an operand is overwritten after another warp waited": (
        (*FILL, *SHOWN, *BEGIN, OVER, OVERWRITE, KEEP),
        ANTI,
        "of b and nothing orders S",
        "nothing orders S2 before S4 on b",
    ),
    "sums are read before the wait": (
        EARLY,
        ORDERS,
        "of c ",
        "nothing orders S2 before S3 on c",
    ),
    "no fence shows the tiles": (
        (*FILL, barrier("block"), *BEGIN, OVER, KEEP),
        ORDERS,
        "of a and no fence of the writer lies between S0",
        "no fence shows S2 what S0 wrote",
    ),
    "no fence of registers": (
        (*FILL, *SHOWN, *BEGIN[1:], OVER, KEEP),
        ORDERS,
        "S2: a product begins before any fence of its registers",
        "no fence of registers lies before S2",
    ),
    "registers are touched after their fence": (
        (*FILL, *SHOWN, BEGIN[0], TOUCH, *BEGIN[1:], OVER, KEEP),
        ORDERS,
        "of c and no fence of registers lies between S5",
        "no fence of registers lies between S5 and S2, which multiplies with c",
    ),
    "a warp does not come": (
        (*FILL, *SHOWN, when("i < 96", *BEGIN, OVER, KEEP)),
        ORDERS,
        "S2 is not reached by all warps of a warpgroup alike",
        "S2 is not reached by all threads of a warpgroup",
    ),
    "the block ends before the product": (
        (*FILL, *SHOWN, *BEGIN),
        ORDERS[:2],
        "block 0 ends while product S2 of the warp of thread",
        "block 0 may end before S2 is over in its memory",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_product_both_oracles_say(name: str) -> None:
    body, orders, simulated, checked = WRONG[name]
    mapped = tiles(*body, orders=orders)
    assert simulated in refused(mapped, 8)
    with pytest.raises(InternalError, match=checked):
        check_orders(mapped)


def test_lanes_that_part_before_a_product_come_to_it_together() -> None:
    parting = when("i % 32 == 0", WaitGroup(kind=GroupKind.BULK))
    for seed in range(2):
        np.testing.assert_array_equal(result(tiles(*FILL, *SHOWN, parting, *WHOLE[5:]), seed), result(tiles(*WHOLE)))
    waits = when("i % 32 > 0", *BEGIN, OVER)
    mapped = tiles(*FILL, *SHOWN, waits, orders=())
    assert "wait at `S2 by the other lanes of the warp`" in refused(mapped)
    with pytest.raises(InternalError, match="S2 is not reached by all threads of a warpgroup"):
        check_orders(mapped)


ROWS_OF_LANES = Layout(
    shape=(const(64), const(COLUMNS)),
    terms=(
        Term(dim=0, stride=const(2), unit=Unit.LANE),
        Term(dim=1, divisor=4, stride=const(1), unit=Unit.LANE),
        Term(dim=1, modulus=4, stride=const(1), unit=Unit.REGISTER),
    ),
)
LIES = {
    "a": (row_major((64, DEPTH)), "S2: a lies otherwise than wgmma.m64n8k16 bf16 takes it"),
    "b": (padded((COLUMNS, DEPTH), 8), "S2: b lies otherwise than wgmma.m64n8k16 bf16 takes it"),
    "c": (ROWS_OF_LANES, "S2: c lies otherwise than wgmma.m64n8k16 bf16 takes it"),
}


@pytest.mark.parametrize("name", LIES)
def test_tiles_that_lie_otherwise_than_the_instruction_takes_them_are_refused(name: str) -> None:
    layout, message = LIES[name]
    alone = (*FILL, *SHOWN, *BEGIN, OVER)
    assert message in refused(tiles(*alone, orders=ORDERS[:2], **{name: layout}))


def test_a_thread_touches_no_register_of_another() -> None:
    taken = each("S3", "n < 8", "C[i // 2, n] = c[i // 2, n]", types=TYPES)
    message = refused(tiles(*WHOLE[:-1], taken))
    assert "touches what thread" in message and "holds of c by S3" in message


def test_a_tile_of_registers_needs_whole_teams() -> None:
    mapped = tiles(define("i", lane=32, warp=3), TOUCH, threads=96, orders=())
    assert refused(mapped) == (
        "c lies over lane, register of 128 lanes, and in a block of 96 threads no warp or warpgroup holds it"
    )


# ---- at once: mma and stmatrix ----

SMALL = mma(BF16, F32)
HELD = Contract(
    id="S2",
    c=view("c[m, n]", TYPES),
    a=view("a[m, k]", TYPES),
    b=view("b[k, n]", TYPES),
    over=(("m", const(16)), ("n", const(8)), ("k", const(16))),
    atom=SMALL,
    accumulate=Always(value=True),
)
A_AT = ("l // 4 + 8 * (e // 2 % 2)", "2 * (l % 4) + e % 2 + 8 * (e // 4)")
B_AT = ("2 * (l % 4) + e % 2 + 8 * (e // 2)", "l // 4")
C_AT = ("l // 4 + 8 * (e // 2)", "2 * (l % 4) + e % 2")


def fragments(*body: Node) -> MappedProgram:
    """Operands in the registers of a warp."""
    elements = (("a", 8, A_AT, "A"), ("b", 4, B_AT, "B"))
    loaded = (
        each(f"S{n}", f"e < {count}", f"{name}[{', '.join(at)}] = {array}[{', '.join(at)}]", types=TYPES)
        for n, (name, count, at, array) in enumerate(elements)
    )
    start = each("S4", "e < 4", f"c[{', '.join(C_AT)}] = 1.0", types=TYPES)
    mapped = program(
        "A: bf16[16, 16], B: bf16[16, 8], C: f32[16, 8], D: bf16[16, 8]",
        launch(define("l", lane=32), *loaded, start, *body, threads=32),
        shared={"d": (16, 8)},
        registers={"a": (16, 16), "b": (16, 8), "c": (16, 8)},
        types=TYPES,
    )
    buffers = {
        name: replace(b, layout=SMALL.operands[name].layout) if b.memory is Memory.REG else b
        for name, b in mapped.buffers.items()
    }
    return replace(mapped, buffers=buffers)


def test_a_product_of_fragments_and_its_way_to_shared_memory_are_over_at_once() -> None:
    unload = Unload(
        id="S5",
        source=view("c[x, y]", TYPES),
        target=view("d[x, y]", TYPES),
        over=(("x", const(16)), ("y", const(8))),
        atom=store_matrices(BF16, 2),
    )
    kept = each("S3", "e < 4", f"C[{', '.join(C_AT)}] = c[{', '.join(C_AT)}]", types=TYPES)
    out = copy("S6", "D[l // 2, 4 * (l % 2) + e] = d[l // 2, 4 * (l % 2) + e]", "e < 4", types=TYPES)
    mapped = fragments(HELD, kept, unload, barrier("block"), out)
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (16, 8)))
    arrays = {"A": a, "B": b, "C": np.zeros((16, 8), np.float32), "D": np.zeros((16, 8), ml_dtypes.bfloat16)}
    wanted = 1 + a.astype(np.float64) @ b.astype(np.float64)
    for interleaved in (False, True):
        got = simulate(mapped, arrays, interleaved=interleaved)
        np.testing.assert_allclose(got["C"], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got["D"], got["C"].astype(ml_dtypes.bfloat16))
    padded = replace(mapped.buffers["d"], layout=strided((16, 8), (9, 1)))
    with pytest.raises(TExprError, match="S5: the rows of d are no chunks of 16 bytes"):
        simulate(replace(mapped, buffers={**mapped.buffers, "d": padded}), arrays)


def test_a_clipped_box_reads_zeros_and_writes_nothing_outside_of_its_array() -> None:
    fetch = replace(copy("S0", "t[x] = A[x - 3]", "x < 8", "bulk"), clipped=True)
    store = replace(copy("S1", "B[x - 2] = t[x]", "x < 8", "bulk"), clipped=True)
    over = (Close(kind=GroupKind.BULK), WaitGroup(kind=GroupKind.BULK))
    only = when("l == 0", fetch, *over, store, *over)
    body = (define("l", lane=32), only)
    mapped = program("A: i32[4], B: i32[5]", launch(*body, threads=32), shared={"t": (8,)})
    arrays = {"A": np.arange(1, 5, dtype=np.int32), "B": np.full(5, 9, np.int32)}
    assert simulate(mapped, arrays)["B"].tolist() == [0, 1, 2, 3, 4]
    whole = launch(define("l", lane=32), when("l == 0", replace(fetch, clipped=False)), threads=32)
    with pytest.raises(TExprError, match="subscript 0 of A is -3"):
        simulate(replace(mapped, host=(whole,)), arrays)


def test_a_clipped_box_is_brought_by_a_tensor_map_alone() -> None:
    for completion, why in (
        ("now", "S0 copies each element of a clipped box"),
        ("cp_async", "S0 copies with a box that leaves its array, by cp.async,"),
    ):
        fetch = replace(copy("S0", "t[x] = A[x]", "x < 8", completion), clipped=True)
        mapped = program("A: i32[6]", launch(define("l", lane=32), fetch, threads=32), shared={"t": (8,)})
        with pytest.raises(TExprError, match=why) as refused:
            emit_cuda(plan(mapped), mapped.target)
        assert refused.value.diagnostics[0].code == "E0502"


def test_all_lanes_come_to_what_a_warp_does_as_one_beside_parts_too() -> None:
    summed = reduce("S0", "s[0]", "A[l]", monoid="Sum", lanes=32)
    body = (define("l", lane=32), when("l < 5", summed))
    other = (barrier("block", "left"),)
    mapped = program(
        "A: i32[32]",
        launch(parts(part("left", 1, *other), part("right", 1, *body)), threads=64),
        registers={"s": (1,)},
    )
    with pytest.raises(InternalError, match="S0 is not reached by all lanes of a warp"):
        check_orders(mapped)
    with pytest.raises(TExprError, match=r"nobody can go on: .*`S0 by the other lanes of the warp`"):
        simulate(mapped, {"A": np.zeros(32, np.int32)})
