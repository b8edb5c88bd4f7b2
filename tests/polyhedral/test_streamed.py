"""Products whose blocks share the steps of all tiles evenly: checked, simulated, run as text on the CPU; candidates
that do not fit."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from spoil import spoiled
from test_epilogues import FORMS, same, small
from test_epilogues import arguments as exact_arguments
from test_epilogues import mapped as mapped_by
from test_piped import HARMLESS, LETTERS, arguments, far, first_form, mapped, text

import texpr
from texpr.grammar.index.expr import add as plus
from texpr.grammar.index.expr import const
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Last, Node
from texpr.polyhedral.mapped.walks import launches, map_nodes, of_kind
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.orders.trace import unrolled
from texpr.polyhedral.simulate.stage import simulate

THREE = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=3, streamed=True)
IN_CLUSTERS = replace(THREE, tile={"i": 64, "j": 64}, cluster=2, persistent=6)
BATCHES = (
    "kernel g(A: bf16[P, M, K], B: bf16[P, K, N], C: f32[P, M, N]) {"
    " par P p, M i, N j { C[p, i, j] = sum K k { A[p, i, k] * B[p, k, j] } } }"
)

PRODUCTS = {
    "nn": (THREE, "bf16", "bf16", (104, 120, 200)),  # 4 tiles of 4 steps: 5, 5, 6 for each block
    "nt": (replace(THREE, persistent=7), "f16", "f32", (40, 184, 456)),  # 3 of 8: 3 or 4, two or three for each tile
    "tn": (replace(THREE, tile={"i": 128, "j": 96}, persistent=2), "bf16", "f16", (200, 88, 136)),
    "tt": (IN_CLUSTERS, "bf16", "bf16", (136, 72, 136)),
}


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [((768, 768, 8192), 108), ((512, 512, 32768), 128), ((1024, 1024, 8192), 0), ((512, 512, 4096), 0)],
)
def test_blocks_share_steps_by_memory_where_tiles_are_few_and_sums_long(sizes: tuple[int, ...], blocks: int) -> None:
    found = first_form(text("nn"), **dict(zip("MNK", sizes, strict=True)))
    assert isinstance(found, Piped) and (found.persistent if found.streamed else 0) == blocks


def product(case: str) -> tuple[MappedProgram, str, Piped, dict[str, int]]:
    how, dtype, result, found = PRODUCTS[case]
    program, sizes = text(case, dtype, result=result), dict(zip("MNK", found, strict=True))
    return mapped(program, how, **sizes), program, how, sizes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_ragged_product_is_right_in_the_simulator(case: str) -> None:
    own = product(case)[0]
    values = arguments(own)
    assert not far(values, simulate(own, values)["C"], LETTERS[case])


@pytest.mark.gxx
@pytest.mark.parametrize("case", ["nt", "tt"])
def test_the_text_of_a_ragged_product_is_right_on_the_cpu(case: str) -> None:
    own, program, how, sizes = product(case)
    values = arguments(own)
    choice = Candidate(launches={"g_0": how})
    texpr.parse(program).only.compile("cuda-host:sm_90a", mapping=choice, **sizes)(**values)
    assert not far(values, values["C"], LETTERS[case])


def test_products_of_a_batch_are_one_line_of_tiles() -> None:
    how = Candidate(launches={"g_0": replace(THREE, persistent=5)})  # 3 tiles of 4 steps: 2 or 3 for each block
    own = mapped_by(BATCHES, how, P=3, M=40, N=64, K=200)
    values = exact_arguments(own)
    same(simulate(own, values), interpret(own.kernel, {n: np.array(a) for n, a in values.items()}).outputs)


def test_bits_are_the_same_in_every_order_of_threads_and_blocks() -> None:
    own = mapped(text("nt", "f16"), THREE, M=40, N=120, K=200)  # 2 tiles of 4 steps: 2 or 3 for each block
    values = arguments(own)
    first, *others = (simulate(own, values, seed=seed)["C"].view(np.uint32) for seed in (1, 2, 3))
    assert all((first == other).all() for other in others)


def test_what_a_part_has_of_nan_and_infinity_the_sum_has() -> None:
    own = product("nn")[0]
    values = arguments(own)
    values["A"][3, 5], values["A"][1, 100], values["B"][5, :] = np.inf, np.nan, np.abs(values["B"][5, :]) + 1
    got = simulate(own, values)["C"].astype(np.float64)
    with np.errstate(all="ignore"):
        want = values["A"].astype(np.float64) @ values["B"].astype(np.float64)
    assert (np.isnan(got) == np.isnan(want)).all() and np.isnan(got[1]).all() and np.isposinf(got[3]).all()


ROWS = FORMS["scales by row and column"].replace("C: bf16[M, N])", "C: bf16[M, N], inout S: f32[M])")
AROUND: dict[str, Any] = {
    name: FORMS[name] for name in ("scaled", "residual, turned", "two products", "two outputs", "integers")
} | {"greatest of rows": ROWS.replace("} }", "; S[i] max= C[i, j] } }").replace("})}", "}) }")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", AROUND)
def test_what_is_around_a_product_is_done_with_whole_sums(name: str) -> None:
    how = small(AROUND[name], 64, 32, persistent=3, streamed=True)
    program = mapped_by(AROUND[name], how, M=72, N=56, K=200)
    assert any(of_kind(launch.body, Last) for launch in launches(program.host))
    values = exact_arguments(program)
    same(simulate(program, values), interpret(program.kernel, {n: np.array(a) for n, a in values.items()}).outputs)


@cache
def short() -> MappedProgram:
    return mapped(text("nt"), THREE, M=64, N=256, K=320)


def test_the_checker_finds_every_sync_that_is_dropped_or_moved() -> None:
    program = shortened(short())
    assert faults(short(), {}) == faults(program, {}) == ()
    harmful = [(what, other) for what, other in spoiled(program) if not any(re.match(p, what) for p in HARMLESS)]
    assert len(harmful) > 15
    assert [what for what, other in harmful if not faults(other, {})] == []


@pytest.mark.parametrize("add", [-1, 1])
def test_the_checker_finds_a_count_that_no_block_or_too_many_come_to(add: int) -> None:
    (launch,) = short().host
    assert isinstance(launch, Launch)

    def miscounted(node: Node) -> Node:
        return replace(node, n=plus(node.n, const(add))) if isinstance(node, Last) else node

    assert faults(replace(short(), host=(replace(launch, body=map_nodes(launch.body, miscounted)),)), {})


def test_the_checker_goes_through_the_blocks_of_a_tile_of_each_kind_and_counts_all() -> None:
    how = replace(THREE, tile={"i": 128, "j": 256}, stages=4, cluster=2, persistent=132)
    program = shortened(mapped(text("nn"), how, M=2560, N=2560, K=8192))
    trace = unrolled(program, tuple(launches(program.host)), {})
    assert len(trace.blocks[0]) <= 12 and set(trace.counts.values()) == {0} and len(trace.counts) == 200


REFUSED: tuple[tuple[Piped, str], ...] = (
    (replace(THREE, split=2, persistent=8), "`streamed`: blocks that share all steps share nothing else"),
    (replace(THREE, alternate=True), "`streamed`: blocks that share all steps share nothing else"),
    (replace(THREE, persistent=64), "`streamed`: each block has a step at least"),
)


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text("nt"), how, M=104, N=120, K=200)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (text("nt", "i8", result="i32"), "blocks share sums of f32, not of i32"),
        (text("nt", "f8e4m3", result="bf16"), "products of whole steps from shared memory"),
        (
            "kernel g(A: bf16[M, K], C: f32[M, M]) { par M i, i + 1 j { C[i, j] = sum K k { A[i, k] * A[j, k] } } }",
            "of all elements",
        ),
    ],
    ids=["i8", "f8", "triangle"],
)
def test_products_that_are_made_in_other_ways_are_refused(program: str, said: str) -> None:
    sizes = {"M": 128, "K": 256} | ({"N": 128} if "N" in program else {})
    with pytest.raises(texpr.TExprError) as caught:
        mapped(program, THREE, **sizes)
    assert said in caught.value.diagnostics[0].message


def test_a_choice_is_read_as_it_was_written() -> None:
    own = Candidate(launches={"g_0": THREE})
    assert read_choices(choices_json(own)) == own
