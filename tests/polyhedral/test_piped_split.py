"""Products of few tiles or few rows on tensor cores: blocks of a cluster share what is summed, or rows and columns
change places; chosen, checked, simulated, run as text on the CPU; candidates that do not fit."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from spoil import spoiled
from test_epilogues import FORMS, same, small
from test_epilogues import arguments as exact_arguments
from test_epilogues import mapped as mapped_by
from test_piped import HARMLESS, LETTERS, arguments, far, first_form, mapped, text

import texpr
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.between import AfterLaunch
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Guard, Parts
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

SHARED = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2, split=2)
TURNED = Piped(along="i", across="j", tile={"j": 64, "i": 16}, stages=2, persistent=2, split=2)


@pytest.mark.parametrize(
    ("sizes", "tile", "split"),
    [
        ((16, 4096, 4096), {"j": 64, "i": 16}, 2),
        ((16, 1024, 1024), {"j": 64, "i": 32}, 4),
        ((512, 512, 4096), {"i": 64, "j": 64}, 2),
        ((128, 4096, 4096), {"i": 128, "j": 64}, 2),
        ((1024, 1024, 1024), {"i": 64, "j": 128}, 1),
    ],
)
def test_blocks_share_what_is_summed_where_tiles_are_few(
    sizes: tuple[int, ...], tile: dict[str, int], split: int
) -> None:
    found = first_form(text("nt"), **dict(zip("MNK", sizes, strict=True)))
    assert isinstance(found, Piped) and (found.tile, found.split) == (tile, split)


PRODUCTS = {
    "shared": ("nt", "bf16", "bf16", SHARED, (40, 56, 200)),
    "shared, f32": ("tn", "f16", "f32", SHARED, (24, 48, 136)),
    "turned": ("nt", "bf16", "bf16", TURNED, (13, 40, 328)),
    "turned, panels": ("tn", "f16", "f16", TURNED, (8, 64, 72)),
    "turned alone": ("nn", "bf16", "f32", replace(TURNED, split=1, persistent=1), (3, 56, 72)),
}


def product(name: str) -> tuple[str, str, Piped, dict[str, int]]:
    case, dtype, result, how, sizes = PRODUCTS[name]
    return case, text(case, dtype, result=result), how, dict(zip("MNK", sizes, strict=True))


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_ragged_product_is_right_in_the_simulator(name: str) -> None:
    case, program, how, sizes = product(name)
    own = mapped(program, how, **sizes)
    values = arguments(own)
    assert not far(values, simulate(own, values)["C"], LETTERS[case])


@pytest.mark.gxx
def test_the_text_of_a_product_of_four_blocks_for_a_tile_is_right_on_the_cpu() -> None:
    sizes, how = {"M": 24, "N": 56, "K": 264}, replace(SHARED, persistent=4, split=4)
    values = arguments(mapped(text("nn"), how, **sizes))
    choice = Candidate(launches={"g_0": how})
    texpr.parse(text("nn")).only.compile("cuda-host:sm_90a", mapping=choice, **sizes)(**values)
    assert not far(values, values["C"], LETTERS["nn"])


def test_nan_and_infinity_go_through_and_bits_are_the_same_in_every_order_of_threads() -> None:
    own = mapped(text("nt"), TURNED, M=5, N=24, K=136)
    values = arguments(own)
    values["A"][3, 5], values["A"][1, 100], values["B"][:, 5] = np.inf, np.nan, np.abs(values["B"][:, 5]) + 1
    first, then = (simulate(own, values, seed=seed)["C"].view(np.uint16) for seed in (1, 2))
    assert (first == then).all()
    got = simulate(own, values)["C"].astype(np.float64)
    with np.errstate(all="ignore"):
        want = values["A"].astype(np.float64) @ values["B"].astype(np.float64).T
    assert (np.isnan(got) == np.isnan(want)).all() and np.isnan(got[1]).all() and np.isposinf(got[3]).all()


@pytest.mark.parametrize(("name", "rows"), [("two products", 0), ("residual, turned", 16)])
def test_what_is_around_a_product_is_done_with_its_sums(name: str, rows: int) -> None:
    how = small(FORMS[name], 64, 32, split=2, persistent=2)
    if rows:
        how = replace(how, launches={"g_0": replace(TURNED, memory=how.launches["g_0"].memory)})
    program = mapped_by(FORMS[name], how, M=rows or 24, N=32, K=136)
    values = exact_arguments(program)
    expected = interpret(program.kernel, {n: np.array(a) for n, a in values.items()}).outputs
    same(simulate(program, values), expected)


IDLE = (
    r"(later arrive at barrier \(cluster, relaxed\)|later barrier begun .*)$",  # around them either may come first
    r"drop wait at barrier \(cluster\)$",  # of the part that loads
    r"(double|earlier|later) wait at barrier \(cluster\)|earlier acquire met$",  # before anything is sent
    r"(later wait \(wgmma, all, done\)|drop release ring)$",  # nobody fills these slots again
)


@cache
def short() -> MappedProgram:
    return mapped(text("nt"), TURNED, M=16, N=64, K=640)


def test_the_checker_finds_every_sync_that_is_dropped_or_moved() -> None:
    harmful = [
        (what, other) for what, other in spoiled(short()) if not any(re.match(p, what) for p in (*HARMLESS, *IDLE))
    ]
    assert len(harmful) > 20 and faults(short(), {}) == faults(shortened(short()), {}) == ()
    assert [what for what, other in harmful if not faults(shortened(other), {})] == []


def test_a_launch_that_begins_early_waits_in_the_thread_that_loads() -> None:
    program = (
        "kernel g(A: bf16[M, M], B: bf16[M, M], C: bf16[M, M]) { new D: bf16[M, M];"
        " par M i, M j { D[i, j] = sum M k { A[i, k] * B[j, k] } };"
        " par M i, M j { C[i, j] = sum M k { D[i, k] * B[j, k] } } }"
    )
    second = replace(SHARED, along="j_1", across="i_1", tile={"i_1": 64, "j_1": 64}, persistent=8)
    how = Candidate(launches={"g_0": replace(SHARED, persistent=8), "g_1": second}, early=frozenset({"g_1"}))
    own = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", mapping=how, M=128).mapping.program
    (waits,) = (parts.parts[0].body for parts in of_kind(own.host[-1].body, Parts))
    assert isinstance(waits[0], Barrier) and isinstance(waits[1], Guard) and isinstance(waits[1].body[0], AfterLaunch)
    assert faults(shortened(own), {}) == ()


REFUSED: tuple[tuple[Piped, str], ...] = (
    (replace(SHARED, split=3), "`split`: 2, 4, 8 blocks of a cluster that share nothing else"),
    (replace(SHARED, cluster=2, persistent=4), "`split`: 2, 4, 8 blocks of a cluster that share nothing else"),
    (replace(SHARED, split=8), "`split`: each block ends whole groups of 16 columns"),
    (replace(SHARED, persistent=4), "`split`: a cluster for each tile, of which the sizes say how many there are"),
    (replace(SHARED, split=4, persistent=4), "`split`: each block has 64 products of a sum at least"),
    (replace(TURNED, tile={"j": 64, "i": 8}), "`tile`: multiples of 32 columns up to 256"),
    (replace(SHARED, tile={"i": 64, "j": 16}), "`tile`: multiples of 16 columns up to 256"),
)


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text("nt"), how, M=16, N=64, K=136)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


def test_a_choice_is_read_as_it_was_written() -> None:
    own = Candidate(launches={"g_0": SHARED})
    assert read_choices(choices_json(own)) == own
