"""Scans of columns whose rows go through a ring in shared memory, whole chunks of memory both ways."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import barriers, edited, mapped, only_launch, proved, with_launch, without_barrier
from test_map_programs import arguments
from test_scanned import with_names
from test_shifted import BESIDE, BODIES, COLUMNS

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import IndexExpr, IndexVar
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import ONE, add, substitute
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.mapping_json import mapping_json
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Candidate, Scanned
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import WaitGroup
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.verify.stage import Verdict, verify

ROWS = 37
RINGED = {
    **{name: (dtype, body.replace("M - 1 - i", "36 - i"), {}) for name, (dtype, body) in BODIES.items()},
    "greatest of halves": ("f16", "s max= X[i, j]; Y[i, j] = s", {}),
    "longest": ("bf16", "s += X[i, j]; Y[i, j] = s", {}),
    "weighted": ("f32", "s += w[i] * X[i, j]; Y[i, j] = s", {}),
}
RINGED["reversed"] = (*RINGED["reversed"][:2], {"M": ROWS})  # of so many rows as say where the last one begins

PAIRS = COLUMNS.format("f32", "s += X[i, j] + X[i, j + 1]; Y[i, j] = s").replace("X: f32[M, N]", "X: f32[M, N + 1]")
IN_PLACE = COLUMNS.format("bf16", "s += Y[i, j]; Y[i, j] = s").replace("X: bf16[M, N], ", "inout ")


def ringed(text: str, columns: int, sizes: dict[str, int] | None = None, **changes: Any) -> MappedProgram:
    """The program of a text with 64 threads in a row, and a ring."""
    found = mapped(text, N=columns, **(sizes or {}))
    assert isinstance(found.candidate, Candidate)
    ((launch, one),) = found.candidate.launches.items()
    small = bool({"f16", "bf16"} & {p.dtype.name for p in found.kernel.params})
    own = Scanned(
        threads=64,
        grid=("j",),
        shared_out=("i",),
        along="j",
        deal=(("j", 64),),
        ahead=16,
        ring=3,
        strip=32 if small else 48,
        memory=dict.fromkeys(one.memory, Memory.REG),
    )
    choices = replace(found.candidate, launches={launch: replace(own, **changes)})
    return mapped(text, choices=choices, N=columns, **(sizes or {}))


def text_of(name: str) -> str:
    dtype, body, _ = RINGED[name]
    text = COLUMNS.format(dtype, body)
    return text.replace("k(X", "k(w: f32[M], X") if "w[" in body else text


def of(name: str, columns: int, **changes: Any) -> MappedProgram:
    return ringed(text_of(name), columns, RINGED[name][2], **changes)


def right(program: MappedProgram, columns: int, rows: Sequence[int], seeds: Sequence[int] = (0,)) -> None:
    free = any(size.name == "M" for size in program.kernel.sizes)
    for count in rows if free else (ROWS,):
        sizes = {"M": count} if free else {}
        values = arguments(program.kernel, {"M": count, "N": columns})
        expected = interpret(program.kernel, values, sizes=sizes).outputs
        for seed in seeds:
            got = simulate(program, values, seed=seed, sizes=sizes)
            np.testing.assert_array_equal(got["Y"], expected["Y"], err_msg=f"{count} rows of {columns}")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RINGED)
@pytest.mark.parametrize("columns", [131, 61])
def test_what_goes_through_a_ring_is_what_the_loop_computes(name: str, columns: int) -> None:
    program = of(name, columns)
    assert "X_ring" in show(program)
    right(program, columns, (50, 16, 3, 1, 0) if columns == 61 else (50, 3))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("threads", "ring", "ahead"), [(64, 2, 16), (64, 5, 16), (128, 3, 16), (128, 2, 32)])
def test_threads_share_a_column_and_rings_have_any_number_of_stages(threads: int, ring: int, ahead: int) -> None:
    program = of("halves", 103, threads=threads, ring=ring, ahead=ahead)
    right(program, 103, (threads // 64 * ahead * (ring + 1) + 5, 0))


@settings(max_examples=12, deadline=None)
@given(columns=st.integers(1, 150), rows=st.integers(0, 70), wide=st.booleans())
def test_rows_of_any_length_and_number_go_through_a_ring(columns: int, rows: int, wide: bool) -> None:
    text = COLUMNS.format(*BODIES["inclusive" if wide else "halves"])
    try:
        program = ringed(text, columns)
    except TExprError as refused:  # of rows that begin alike, or are shorter than a chunk
        assert columns % (8 if not wide else 4) == 0 or columns < 8
        assert "`ring`" in refused.diagnostics[0].message
        return
    right(program, columns, (rows,))


def test_columns_of_several_matrices_go_through_rings_of_their_own() -> None:
    text = """kernel k(X: bf16[B, 48, N], Y: bf16[B, 48, N]) {
        par B b, N j { new s: f32; s = 0.0; seq 48 i { s += X[b, i, j]; Y[b, i, j] = s } }
    }"""
    program = ringed(text, 131, grid=("j", "b"))
    for count in (2, 0):
        values = arguments(program.kernel, {"B": count, "N": 131})
        expected = interpret(program.kernel, values, sizes={"B": count}).outputs
        got = simulate(program, values, seed=count, sizes={"B": count})
        np.testing.assert_array_equal(got["Y"], expected["Y"])


def test_a_ring_has_other_choices_beside_it() -> None:
    sizes = {"M": 257, "N": 100003}
    program = mapped(text_of("halves"), **sizes)
    found = candidates(problem_of(proved(text_of("halves"), **sizes), program))
    rings = {one.ring for c in found for one in c.launches.values() if isinstance(one, Scanned)}
    assert {0, 3, 4} <= rings


def test_one_barrier_in_a_tile_is_enough() -> None:
    program = of("halves", 131)
    assert len(barriers(only_launch(program))) == 2
    check_orders(program)
    for barrier in range(2):
        with pytest.raises(InternalError):
            check_orders(with_launch(program, without_barrier(only_launch(program), barrier)))


@pytest.mark.parametrize("stages", [2, 3])
def test_a_wait_for_one_group_less_is_found(stages: int) -> None:
    program = of("halves", 131, ring=stages)

    def later(node: Node) -> tuple[Node, ...]:
        waits = isinstance(node, WaitGroup) and node.behind == stages - 2
        return (replace(node, behind=stages - 1) if waits else node,)

    launch = edited(only_launch(program), later)
    with pytest.raises(InternalError, match="nothing orders i_load"):
        check_orders(with_launch(program, launch))


def test_a_copy_to_the_slot_of_another_tile_is_found() -> None:
    program = of("longest", 131)

    def later(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Copy) or node.id != "i_load":
            return (node,)
        slot, *place = node.target.subscripts
        assert isinstance(slot, IndexExpr)
        turned = substitute(slot, lambda leaf: add(leaf, ONE) if isinstance(leaf, IndexVar) else None)
        return (replace(node, target=replace(node.target, subscripts=(turned, *place))),)

    wrong = with_launch(program, edited(only_launch(program), later))
    with pytest.raises((TExprError, AssertionError)):
        right(wrong, 131, (90,))


@pytest.mark.parametrize("columns", [263, 131, 259])
def test_no_two_blocks_write_to_one_sector(columns: int) -> None:
    program = of("halves", columns)
    launch = only_launch(program)
    (edge,) = (c for c in of_kind(launch.body, Copy) if c.id == "i_store_edge")
    blocks = 1 + -(-(columns - 57) // 32)
    for row in range(16):
        ends = list[tuple[int, int]]()
        for block in range(blocks):
            stored = [c for c in range(-8, 64) if _stores(edge, columns, block, row, c)]
            ends.append((stored[0], stored[-1] + 1))
            assert stored == list(range(*ends[-1]))
        places = [(32 * block + begin, 32 * block + end) for block, (begin, end) in enumerate(ends)]
        assert places[0][0] == 0 and places[-1][1] == columns
        for (_, end), (begin, _) in pairwise(places):
            assert end == begin and (row * columns + end) * 2 % 32 == 0


def _stores(edge: Copy, columns: int, block: int, row: int, column: int) -> bool:
    """Whether a block stores a column, counted from where its strip begins."""
    assert edge.within is not None
    chunk, element = divmod(column + row * columns % 8, 8)
    if chunk not in range(8):
        return False
    names = {"j_strip": 32 * block, "ring_row": row % 8, "copied": row // 8, "ring_chunk": chunk}
    return index_value(edge.within.begin, names) <= element < index_value(edge.within.end, names)


@pytest.mark.gxx
@pytest.mark.sampled(2)
@pytest.mark.parametrize("turn", [0, 1])
def test_the_text_is_right_on_the_cpu_and_bits_are_the_same_from_run_to_run(turn: int) -> None:
    programs = {
        (name, columns, threads): of(name, columns, threads=threads)
        for n, name in enumerate(RINGED)
        for columns, threads in (((131 + 2 * n, 64), (61 + 2 * n, 128))[n % 2],)
        if n // 2 % 2 == turn
    }
    texts = {key: Emitted(with_names(program, f"ring_{n}")) for n, (key, program) in enumerate(programs.items())}
    assert all("tx::cp_async_or_none<" in e.source for e in texts.values())
    module = HostModule("\n".join(e.source for e in texts.values()), werror=True)
    for (name, columns, _), emitted in texts.items():
        kernel, found = programs[name, columns, _].kernel, []
        free = {"M": ROWS} if any(size.name == "M" for size in kernel.sizes) else {}
        for seed in (3, 4):
            values = arguments(kernel, {"M": ROWS, "N": columns})
            arrays = {n: np.array(v) for n, v in values.items()}
            assert emitted.run(module, arrays, seed) is None
            found.append(arrays["Y"])
        expected = interpret(kernel, values, sizes=free).outputs["Y"]
        np.testing.assert_array_equal(found[0], expected, err_msg=f"{name} {columns}")
        assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (text_of("halves"), {"strip": 48}),
        (text_of("halves"), {"strip": 0}),
        (text_of("halves"), {"ring": 1}),
        (text_of("halves"), {"ahead": 8}),
        (text_of("halves"), {"look_back": True}),
        (text_of("halves"), {"next_tile": True}),
        (text_of("halves"), {"widths": {"j": 2}}),
        (text_of("halves").replace("M", "16"), {}),
        (text_of("halves"), {"threads": 96, "deal": (("j", 48),)}),
        (text_of("halves").replace("Y: bf16", "Y: f32"), {}),
        (text_of("reversed").replace("36", "M - 1"), {}),
        (PAIRS, {}),
        (f"kernel k(X: f32[M, N], Y: f32[M, N], T: f32[N]) {{ par N j {{ new s: f32; {BESIDE['behind']} }} }}", {}),
        (IN_PLACE, {}),
    ],
)
def test_what_has_no_ring_is_refused(text: str, changes: dict[str, Any]) -> None:
    with pytest.raises(TExprError, match=r"`ring`|`strip`|`ahead`|`next_tile`|`look_back`|`deal`|`widths`"):
        ringed(text, 131, **changes)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "ring", "threads"),
    [
        ("bf16", 257, 100003, 3, 416),
        ("f32", 257, 100003, 3, 416),
        ("bf16", 2053, 65521, 4, 544),
        ("bf16", 4099, 32003, 3, 576),
        ("f64", 257, 100003, 0, 0),
        ("bf16", 257, 100000, 0, 0),
        ("bf16", 16, 100003, 0, 0),
        ("bf16", 32749, 4093, 0, 0),
    ],
)
def test_many_ragged_columns_have_rings(dtype: str, rows: int, columns: int, ring: int, threads: int) -> None:
    found = mapped(COLUMNS.format(dtype, BODIES["inclusive"][1]), M=rows, N=columns)
    assert isinstance(found.candidate, Candidate)
    (one,) = found.candidate.launches.values()
    assert (one.ring if isinstance(one, Scanned) else 0) == ring
    assert not ring or one.threads == threads
    assert read_choices(choices_json(found.candidate)) == found.candidate


def test_rings_are_verified() -> None:
    program = ringed(text_of("halves").replace("M", "64"), 131)
    found = verify(mapping_json(program))
    assert not [one for one in found if one.verdict is Verdict.REFUTED]


def test_the_text_of_a_ring(golden: Callable[[str, str], None]) -> None:
    golden("cuda/ringed_columns.cu", Emitted(mapped(text_of("halves"), M=257, N=100003)).source)


def test_copies_are_of_whole_chunks() -> None:
    copies = of_kind(only_launch(of("halves", 131)).body, Copy)
    assert all(copy.access is Access.ALIGNED for copy in copies)
