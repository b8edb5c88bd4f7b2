"""Scans of columns whose rows begin anywhere in memory: what the lanes of a warp shift between one another."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, with_launch
from test_map_programs import arguments
from test_scanned import with_names

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import And, Compare, CompareOp, IndexVar
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.mapping_json import mapping_json
from texpr.polyhedral.map.vectors import at_places
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Candidate, Scanned
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.mapped.walks import map_nodes, of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.verify.stage import Verdict, verify

COLUMNS = "kernel k(X: {0}[M, N], Y: {0}[M, N]) {{ par N j {{ new s: f32; s = 0.0; seq M i {{ {1} }} }} }}"
BODIES = {
    "inclusive": ("f32", "s += X[i, j]; Y[i, j] = s"),
    "halves": ("bf16", "s += X[i, j]; Y[i, j] = s"),
    "exclusive": ("f32", "Y[i, j] = s; s += X[i, j]"),
    "greatest": ("f32", "s max= X[i, j]; Y[i, j] = s"),
    "reversed": ("bf16", "s += X[M - 1 - i, j]; Y[M - 1 - i, j] = s"),
    "masked": ("f32", "if X[i, j] > 0.0 { s += X[i, j] }; Y[i, j] = s"),
}


def shifting(name: str, columns: int, **changes: Any) -> MappedProgram:
    """The program of a name, or a text in f32, with 32 lanes across its columns, 16 bytes of a row for each of them."""
    dtype, body = BODIES.get(name, ("f32", ""))
    text = COLUMNS.format(dtype, body) if body else name
    found = mapped(text, N=columns)
    assert isinstance(found.candidate, Candidate)
    ((launch, one),) = found.candidate.launches.items()
    assert isinstance(one, Scanned)
    width = 16 // (2 if dtype == "bf16" else 4)
    small = replace(one, threads=64, deal=(("j", 32),), ahead=2, resident=0, widths={"j": width}, strip=0)
    if changes.get("strip") is True:
        changes |= {"strip": 30 * width, "look_back": True}
    return mapped(text, choices=replace(found.candidate, launches={launch: replace(small, **changes)}), N=columns)


def shifted(program: MappedProgram) -> list[Copy]:
    return [copy for copy in of_kind(only_launch(program).body, Copy) if copy.access is Access.SHIFTED]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        (261, {}),
        (131, {"ahead": 4, "look_back": True}),
        (9, {"ahead": 1}),
        (131, {"ahead": 4, "look_back": False, "next_tile": True}),
    ],
)
def test_lanes_shift_what_they_move_and_the_result_is_that_of_the_loop(
    name: str, columns: int, changes: dict[str, Any]
) -> None:
    program = shifting(name, columns, **changes)
    assert {copy.target.buffer for copy in shifted(program)} == {"X_run", "Y"}
    for rows in (37, 16, 3, 1, 0):
        values = arguments(program.kernel, {"M": rows, "N": columns})
        expected = interpret(program.kernel, values, sizes={"M": rows}).outputs
        for seed in (0, 1):
            got = simulate(program, values, seed=seed, sizes={"M": rows})
            np.testing.assert_array_equal(got["Y"], expected["Y"], err_msg=f"{rows} rows")


def stores(program: MappedProgram) -> list[Copy]:
    return [copy for copy in shifted(program) if copy.target.buffer == "Y"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("columns", [523, 261, 257, 131, 9])
def test_blocks_store_strips_from_one_sector_to_another(name: str, columns: int) -> None:
    program = shifting(name, columns, ahead=4, strip=True)
    whole, some = stores(program)
    assert whole.within is not None and whole.within.together and some.within is not None and not some.within.together
    for rows in (37, 3, 0):
        values = arguments(program.kernel, {"M": rows, "N": columns})
        expected = interpret(program.kernel, values, sizes={"M": rows}).outputs
        got = simulate(program, values, seed=columns, sizes={"M": rows})
        np.testing.assert_array_equal(got["Y"], expected["Y"], err_msg=f"{rows} rows")


@pytest.mark.parametrize(("name", "threads"), [*((name, 512) for name in BODIES), ("halves", 256)])
def test_between_barriers_a_thread_has_a_column(name: str, threads: int) -> None:
    """Also where several threads have the same one, of which the first holds it."""
    program = shifting(name, 263, ahead=2, strip=True, threads=threads)
    (look,) = of_kind(only_launch(program).body, LookBack)
    several = threads > look.elements
    assert not look.over and bool(isinstance(look.holds, And) and look.holds.parts) == several
    check_orders(program)
    for rows in (2 * threads // 32 + 1, 37, 1, 0):
        values = arguments(program.kernel, {"M": rows, "N": 263})
        expected = interpret(program.kernel, values, sizes={"M": rows}).outputs
        got = simulate(program, values, seed=rows, sizes={"M": rows})
        np.testing.assert_array_equal(got["Y"], expected["Y"], err_msg=f"{rows} rows")


@pytest.mark.parametrize("columns", [261, 523, 997])
def test_no_two_blocks_write_to_one_sector_but_where_rows_end(columns: int) -> None:
    text = COLUMNS.format(*BODIES["halves"]).replace("M", "64")
    program, size = shifting(text, columns, ahead=4, strip=240, widths={"j": 8}, look_back=True), 2
    whole, some = stores(program)
    (define,) = (d for d in of_kind(only_launch(program).body, Define) if d.index.startswith("j_strip"))
    blocks = -(-(columns - 16) // 240)
    for row in range(20):
        lead, ends = row * columns % 16, list[tuple[int, int]]()
        for block in range(blocks):
            names = {define.index: 240 * block, "lead": lead, "j_first": 0, "i": row}
            within = (whole if 0 < block < blocks - 1 else some).within
            assert within is not None
            ends.append((int(index_value(within.begin, names)), int(index_value(within.end, names))))
        assert ends[0][0] == 0 and ends[-1][1] == columns
        for (_, end), (begin, _) in pairwise(ends):
            assert end == begin and (row * columns + end) * size % 32 == 0


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu_at_every_length_of_a_row() -> None:
    """And bits are the same from run to run."""
    lengths = (257, 258, 259, 261, 262, 263)  # all but multiples of 4, which are aligned in f32
    programs = {
        (name, columns): shifting(
            name, columns, look_back=columns % 2 == 0, strip=columns > 261 or 0, threads=128 if columns > 261 else 64
        )
        for n, name in enumerate(BODIES)
        for columns in (lengths[n], lengths[n - 3])
    }
    texts = {key: Emitted(with_names(program, f"shifted_{n}")) for n, (key, program) in enumerate(programs.items())}
    assert all("tx::load_shifted<" in e.source for e in texts.values())
    assert all(f"tx::store_{'strip' if key[1] > 261 else 'shifted'}(" in e.source for key, e in texts.items())
    module = HostModule("\n".join(e.source for e in texts.values()), werror=True)
    for (name, columns), emitted in texts.items():
        kernel, found = programs[name, columns].kernel, []
        for seed in (3, 4):
            values = arguments(kernel, {"M": 21, "N": columns})
            arrays = {n: np.array(v) for n, v in values.items()}
            assert emitted.run(module, arrays, seed) is None
            found.append(arrays["Y"])
        expected = interpret(kernel, values, sizes={"M": 21}).outputs["Y"]
        np.testing.assert_array_equal(found[0], expected, err_msg=f"{name} {columns}")
        assert found[0].tobytes() == found[1].tobytes()


BESIDE = {
    "behind": "s = 0.0; seq M i { s += X[i, j]; Y[i, j] = s }; T[j] = s",
    "before": "s = T[j]; seq M i { s += X[i, j]; Y[i, j] = s }",
}


@pytest.mark.gxx
@pytest.mark.parametrize(("name", "look_back"), [("behind", False), ("behind", True), ("before", True)])
def test_what_stands_beside_a_scan_ends_with_its_columns(name: str, look_back: bool) -> None:
    form = "kernel k(X: f32[M, N], Y: f32[M, N], T: f32[N]) {{ par N j {{ new s: f32; {0} }} }}"
    program = shifting(form.format(BESIDE[name]), 261, look_back=look_back, threads=128 if look_back else 64)
    assert shifted(program)
    emitted = Emitted(program)
    module = HostModule(emitted.source, werror=True)
    for rows in (3, 0):
        values = arguments(program.kernel, {"M": rows, "N": 261})
        expected = interpret(program.kernel, values, sizes={"M": rows}).outputs
        got = simulate(program, values, sizes={"M": rows})
        arrays = {n: np.array(v) for n, v in values.items()}
        assert emitted.run(module, arrays) is None
        for array in ("Y", "T"):
            np.testing.assert_array_equal(got[array], expected[array], err_msg=f"{array} of {rows} rows")
            np.testing.assert_array_equal(arrays[array], expected[array], err_msg=f"{array} of {rows} rows")


def changed(program: MappedProgram, change: Any) -> MappedProgram:
    """The program with another node for each copy that lanes shift."""

    def one(node: Node) -> Node:
        shifts = isinstance(node, Copy) and node.access is Access.SHIFTED
        return change(node) if shifts else node

    launch = only_launch(program)
    return with_launch(program, replace(launch, body=map_nodes(launch.body, one)))


def run(program: MappedProgram) -> None:
    simulate(program, arguments(program.kernel, {"M": 16, "N": 261}), sizes={"M": 16})


def test_lanes_that_do_not_come_together_are_refused() -> None:
    def of_some(copy: Copy) -> Node:
        some = Compare(op=CompareOp.LT, left=IndexVar(name="j_first"), right=const(100))
        return Guard(condition=some, body=(copy,), span=copy.span)

    program = changed(shifting("inclusive", 261), of_some)
    with pytest.raises(InternalError, match="moves what lanes have side by side where they diverge"):
        check_orders(program)


def test_lanes_that_do_not_lie_side_by_side_are_refused() -> None:
    def alike(copy: Copy) -> Node:
        place = {"j_first": const(0)}
        return replace(copy, source=replace(copy.source, subscripts=at_places(copy.source.subscripts, place)))

    with pytest.raises(TExprError, match="not side by side in the lanes of a warp"):
        run(changed(shifting("inclusive", 261, ahead=1), alike))


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("inclusive", {"strip": 112}),
        ("inclusive", {"strip": 120, "look_back": False}),
        ("inclusive", {"strip": 120, "threads": 128, "deal": (("j", 64),)}),
        (f"kernel k(X: f32[M, N], Y: f32[M, N], T: f32[N]) {{ par N j {{ new s: f32; {BESIDE['behind']} }} }}", {}),
    ],
)
def test_strips_that_leave_no_sector_are_refused(text: str, changes: dict[str, Any]) -> None:
    with pytest.raises(TExprError, match="`strip`: lanes of a warp shift all"):
        shifting(text, 261, **{"look_back": True, "strip": 120, **changes})


def test_columns_have_strips_where_nothing_else_is_written() -> None:
    text = COLUMNS.format(*BODIES["halves"])
    found = mapped(text, M=4096, N=4093)
    assert isinstance(found.candidate, Candidate)
    (one,) = found.candidate.launches.values()
    assert isinstance(one, Scanned) and one.strip == 240


def test_columns_that_are_few_or_begin_alike_are_not_shifted() -> None:
    text = COLUMNS.format(*BODIES["inclusive"])
    assert shifted(mapped(text, M=4096, N=4093))
    assert not shifted(mapped(text, M=4096, N=4096))
    assert not shifted(mapped(text, M=4096, N=301))
    assert not shifted(mapped(text))


def test_no_lane_brings_the_ends_of_two_rows() -> None:
    assert shifted(shifting("inclusive", 261, ahead=32)) and not shifted(shifting("inclusive", 261, ahead=64))


@pytest.mark.parametrize("columns", [523, 997])
def test_strips_are_verified(columns: int) -> None:
    text = COLUMNS.format(*BODIES["halves"]).replace("M", "64")
    program = shifting(text, columns, ahead=4, strip=240, widths={"j": 8}, look_back=True)
    found = verify(mapping_json(program))
    assert not [one for one in found if one.verdict is Verdict.REFUTED]
    told = {one.text for one in found if one.verdict is Verdict.PROVED}
    assert {f"S{n}: each of {64 * columns} iterations runs once" for n in (1, 2)} <= told
