"""A sample of `mutations.py` and of `differential.py`; the scripts run any number of seeds."""

import pytest
from differential import Tally, by_target, judge, prepared, run_batch, run_case
from mutations import mutated, outcome
from programs import generate


@pytest.mark.parametrize("batch", range(10))
def test_mutated_programs_are_accepted_or_refused(batch: int) -> None:
    outcomes = {outcome(mutated(seed)) for seed in range(batch * 150, batch * 150 + 150)}
    assert any(found.startswith("E01") for found in outcomes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("batch", range(4))
def test_random_programs_are_right_or_refused_with_a_witness(batch: int) -> None:
    tally = Tally()
    for seed in range(batch * 30, batch * 30 + 30):
        run_case(generate(seed), ("exact", "simulate"), tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["accepted"] >= 10
    assert tally.counts["undecided"] <= 0.02 * tally.counts["elements"] + 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [500, 507])
def test_random_programs_are_right_on_the_cpu(first: int) -> None:
    tally = Tally()
    for seed in range(first, first + 8):
        run_case(generate(seed), ("cpu",), tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["accepted"] >= 5


def test_random_programs_of_many_iterations_are_right_on_the_cores_of_a_cpu(every_core: None) -> None:
    tally, parallel = Tally(), 0
    for seed in (700, 701, 705, 706):
        case = generate(seed, bend=0.0, large=True)
        ref = prepared(case, tally)
        assert ref is not None
        parallel += "parallel=True" in ref.compile("cpu").source
        judge(case, "cpu", lambda ref=ref: by_target("cpu")(ref, 0), ref, tally)
    assert not tally.failures, tally.failures[0]
    assert parallel == 4


@pytest.mark.gxx
def test_random_programs_are_right_on_the_host_build(need_gxx: None) -> None:
    tally = Tally()
    run_batch([generate(seed) for seed in range(600, 630)], tally)
    assert not tally.failures, tally.failures[0]
    assert tally.counts["accepted"] >= 10
