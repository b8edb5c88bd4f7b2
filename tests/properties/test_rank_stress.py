"""Random programs on several fake ranks end as sequential ones; protocols with a step left out do not."""

import itertools

import pytest
from rank_stress import BROKEN, broken, try_seed

from texpr.grammar.diagnostics import InternalError, TExprError

FOUND = r"seed \d+, rank|is torn|has no value|the engine collapsed|is not there any more|while another rank changes it"

pytestmark = pytest.mark.filterwarnings("ignore::texpr.TExprWarning")


@pytest.mark.parametrize("seed", range(20))
def test_programs_on_several_ranks_equal_the_sequential_run(seed: int) -> None:
    try_seed(seed, 50)


@pytest.mark.parametrize("name", BROKEN)
def test_a_protocol_with_a_step_left_out_is_found(name: str) -> None:
    with broken(name), pytest.raises((AssertionError, TExprError, InternalError), match=FOUND):
        for seed in itertools.islice(itertools.count(1, 2), 100):
            try_seed(seed, 50)
