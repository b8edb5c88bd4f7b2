"""Products of matrices whose last rows are no whole wave of tiles: these have a launch of their own behind the others;
chosen, checked, simulated, run as text on the CPU, verified; candidates that do not fit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_epilogues import FORMS, same, small
from test_epilogues import arguments as exact_arguments
from test_epilogues import mapped as mapped_by
from test_piped import LETTERS, arguments, far, first_form, mapped, text

import texpr
from texpr.grammar.interpret.stage import interpret
from texpr.mapping_json import mapping_json
from texpr.polyhedral.mapped.between import AfterLaunch, TriggerNext
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.verify.stage import Finding, Verdict, verify

REST = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=2, persistent=2, begin=128)
CUT = Piped(along="j", across="i", tile={"i": 64, "j": 96}, stages=3, persistent=2, cluster=2, rest=REST)


@pytest.mark.parametrize(
    ("size", "tile", "rest"),
    [
        (1536, {"i": 192, "j": 96}, None),  # one wave of 128 tiles
        (3000, {"i": 192, "j": 192}, None),  # two of 256
        (2304, {"i": 128, "j": 192}, ({"i": 128, "j": 128}, 1408)),  # 1.64 waves of 216
    ],
)
def test_tiles_are_such_as_leave_few_multiprocessors_without_work(
    size: int, tile: dict[str, int], rest: tuple[dict[str, int], int] | None
) -> None:
    found = first_form(text("nn"), M=size, N=size, K=size)
    assert found.tile == tile
    assert (None if found.rest is None else (found.rest.tile, found.rest.begin)) == rest


def test_only_rows_of_which_the_sizes_say_how_many_there_are_have_a_rest() -> None:
    found = texpr.parse(text("nt")).only.compile("cuda:sm_90a", stop_after="map", N=2304, K=2304).mapping.candidate
    every = [case.candidate for case in found.cases] + [found.otherwise]
    assert all(own.launches["g_0"].rest is None for own in every if isinstance(own.launches["g_0"], Piped))


CUTS = {
    "alone": ("nt", "bf16", "bf16", CUT, (136, 72, 200)),
    "f32": ("tn", "f16", "f32", CUT, (168, 104, 72)),
    "by turns": ("nn", "bf16", "bf16", replace(CUT, cluster=1, alternate=True, stages=2), (200, 104, 72)),
    "shared": ("tt", "f16", "f16", replace(CUT, rest=replace(REST, split=2)), (176, 64, 136)),
    "high": ("nn", "bf16", "bf16", replace(CUT, tile={"i": 192, "j": 96}, cluster=1, rest=replace(REST, begin=192)),
             (200, 96, 72)),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_a_ragged_product_is_right_in_the_simulator(name: str) -> None:
    case, dtype, result, how, sizes = CUTS[name]
    own = mapped(text(case, dtype, result=result), how, **dict(zip("MNK", sizes, strict=True)))
    values = arguments(own)
    assert not far(values, simulate(own, values)["C"], LETTERS[case])
    assert faults(own, {}) == faults(shortened(own), {}) == ()


@pytest.mark.gxx
def test_the_text_of_both_launches_is_right_on_the_cpu() -> None:
    sizes, how = {"M": 200, "N": 72, "K": 136}, replace(CUT, rest=replace(REST, split=2, persistent=8))
    values = arguments(mapped(text("nt"), how, **sizes))
    choice = Candidate(launches={"g_0": how})
    texpr.parse(text("nt")).only.compile("cuda-host:sm_90a", mapping=choice, **sizes)(**values)
    assert not far(values, values["C"], LETTERS["nt"])


def test_the_rest_begins_before_the_others_are_over_and_waits_for_them() -> None:
    first, rest = launches(mapped(text("nt"), CUT, M=136, N=72, K=72).host)
    assert (first.name, rest.name) == ("g_0", "g_0_rest")
    assert [len(list(of_kind(one.body, TriggerNext))) for one in (first, rest)] == [1, 0]
    assert [len(list(of_kind(one.body, AfterLaunch))) for one in (first, rest)] == [0, 1]


@pytest.mark.parametrize("name", ["residual", "scaled"])
def test_what_is_around_a_product_is_done_with_both_parts(name: str) -> None:
    whole = small(FORMS[name])
    (own,) = whole.launches.values()
    rest = replace(own, tile={"i": 64, "j": 32}, begin=64)
    program = mapped_by(FORMS[name], replace(whole, launches={"g_0": replace(own, rest=rest)}), M=72, N=72, K=72)
    values = exact_arguments(program)
    expected = interpret(program.kernel, {n: np.array(a) for n, a in values.items()}).outputs
    same(simulate(program, values), expected)


def test_each_product_of_a_batch_has_a_rest() -> None:
    program = (
        "kernel g(A: bf16[P, M, K], B: bf16[P, N, K], C: bf16[P, M, N]) {"
        " par P p, M i, N j { C[p, i, j] = sum K k { A[p, i, k] * B[p, j, k] } } }"
    )
    own = mapped(program, CUT, P=2, M=136, N=72, K=72)
    values = arguments(own)
    assert not far(values, simulate(own, values)["C"], "pik,pjk->pij")


def test_no_row_is_left_out_and_none_is_made_that_is_not_there() -> None:
    def stores(how: Piped) -> list[Finding]:
        found = verify(mapping_json(mapped(text("nt"), how, M=192, N=192, K=72)))
        return [one for one in found if one.about == "stores"]

    (own,) = stores(CUT)
    assert (own.verdict, own.text) == (Verdict.PROVED, "C: each of 36864 elements is stored at least once")


REFUSED: tuple[tuple[Piped, str], ...] = (
    (replace(CUT, rest=replace(REST, begin=64)), "`begin`: the rest follows on whole clusters of tiles"),
    (replace(CUT, rest=replace(REST, begin=256)), "`begin`: the rest follows on whole clusters of tiles"),
    (replace(CUT, rest=replace(REST, rest=REST)), "`rest`: it has none of its own"),
    (replace(CUT, rest=replace(REST, tile={"i": 96, "j": 64})), "`tile`: multiples of 64 rows up to 192"),
    (replace(CUT, rest=replace(REST, split=2)), "`split`: a cluster for each tile"),
    (REST, "`begin`: only a `rest` begins behind the first row"),
)  # fmt: skip


@pytest.mark.parametrize(("how", "said"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_fit_is_refused(how: Piped, said: str) -> None:
    with pytest.raises(texpr.TExprError) as caught:
        mapped(text("nt"), how, M=200, N=72, K=136)
    (told,) = caught.value.diagnostics
    assert told.code == "E0401" and said in told.message


def test_rows_that_are_added_up_have_no_rest() -> None:
    sums = "let s = sum K k { A[%s] * B[%s] }; C[i, j] = s; S[i] += s * s"
    program = text("nt", body=sums).replace(", C:", ", inout S: f32[M], C:")
    with pytest.raises(texpr.TExprError, match="`rest`: of rows that are one index"):
        mapped(program, CUT, M=200, N=72, K=72)


def test_a_choice_is_read_as_it_was_written() -> None:
    own = Candidate(launches={"g_0": CUT})
    assert read_choices(choices_json(own)) == read_choices(json.loads(json.dumps(choices_json(own)))) == own
    other = json.loads(json.dumps(choices_json(own)))
    other["launches"]["g_0"]["rest"] = {"form": "single", "memory": {}}
    with pytest.raises(texpr.TExprError, match=r"launches.g_0.rest is a choice of the form piped"):
        read_choices(other)
