"""The roofline: what takes longer, and by what."""

import pytest
from stages import proved

from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.cost import cost
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.long_sums import carried_wide
from texpr.polyhedral.map.problem import Problem, make_problem
from texpr.polyhedral.map.roofline import LAUNCH_PS, moved_bytes, rounded, time
from texpr.polyhedral.target import parse_target

COPY = "kernel f(X: f32[N], Y: f32[N]) { par N i { Y[i] = X[i] } }"
STRIDED = "kernel f(X: f32[N, 8], Y: f32[N]) { par N i { Y[i] = X[i, 0] } }"
ROWS = "kernel f(X: f32[M, N], Y: f32[M, N]) where N >= 2 { par M i, N - 1 j { Y[i, j] = X[i, j] + X[i, j + 1] } }"
BEYOND = """kernel f(X: f32[N, N], Y: f32[M]) where N >= 5, M <= N {
    par M i { if i > 9000 { Y[i] = X[i, i - 9001] } }
}"""
TRIANGLE = "kernel f(X: f32[N, N], Y: f32[N, N]) { par N i { par i + 1 j { Y[i, j] = X[j, 0] } } }"
GATHER = "kernel f(X: f32[N], K: i32[M], Y: f32[M]) where N >= 1 { par M i { Y[i] = X[clamp(K[i], 0, N - 1)] } }"


def problem(text: str, target: str = "cuda:sm_90a", **sizes: int) -> Problem:
    kept = keep_nothing(proved(text))
    return make_problem(kept, carried_wide(kept.proved.program, kept.long), parse_target(target), sizes)


def taken(text: str, target: str = "cuda:sm_90a", **sizes: int) -> int:
    """Picoseconds of the first candidate's one launch."""
    whole = problem(text, target, **sizes)
    (region,) = whole.regions()
    return time(whole, region, cost(whole, choose(whole)).launches[region.name])


@pytest.mark.parametrize(
    ("text", "sizes", "count"),
    [
        (COPY, {"N": 1000}, 2000),
        (STRIDED, {"N": 1000}, 2000),
        (ROWS, {"M": 7, "N": 50}, 7 * 50 + 7 * 49),
        (TRIANGLE, {"N": 30}, 30 + 30 * 30),
        (BEYOND, {"M": 100, "N": 100}, 100 + 100),
        (GATHER, {"M": 10, "N": 500}, 500 + 10 + 10),
    ],
)
def test_bytes_that_move_are_those_of_distinct_elements(text: str, sizes: dict[str, int], count: int) -> None:
    whole = problem(text, **sizes)
    (region,) = whole.regions()
    assert moved_bytes(whole, region) == 4 * count


def test_a_large_copy_takes_what_the_memory_needs_for_its_bytes() -> None:
    assert taken(COPY, N=2**28) == rounded(LAUNCH_PS + 8 * 2**28 * 1000 // 4200)
    assert taken(COPY, N=2**28) == pytest.approx(2 * taken(COPY, N=2**27), rel=0.05)


def test_sectors_that_are_mostly_thrown_away_take_the_time_of_all_their_bytes() -> None:
    assert taken(STRIDED, N=2**26) > 2 * taken(COPY, N=2**26)


def test_a_launch_of_nothing_takes_a_launch() -> None:
    assert taken(COPY, N=1) == pytest.approx(LAUNCH_PS, rel=0.3)


def test_few_threads_wait() -> None:
    few = "kernel f(X: f32[M, N], Y: f32[M]) where N >= 1 { par M i { seq N k #ordered { Y[i] = X[i, k] } } }"
    assert taken(few, M=32, N=2**16) > 20 * taken(few, M=2**16, N=32)


def test_tasks_share_the_work_of_a_cpu() -> None:
    rows = "kernel f(X: f32[M, N], Y: f32[M]) where N >= 1 { par M i { seq N k #ordered { Y[i] = X[i, k] } } }"
    assert taken(rows, "cpu", M=1, N=2**20) > 3 * taken(rows, "cpu", M=64, N=2**14)


@pytest.mark.parametrize(("exact", "found"), [(0, 0), (7, 7), (99, 99), (104, 100), (105, 110), (1_249_999, 1_200_000)])
def test_two_digits_count(exact: int, found: int) -> None:
    assert rounded(exact) == found
