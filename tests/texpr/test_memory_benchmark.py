"""The programs of the memory-bound benchmark mean what its references say, and its choices are what it tells."""

from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest
from cpu_memory import SIZES as CPU_SIZES
from memory_bound import chosen, label, line_of
from memory_check import ROUNDINGS, fault
from memory_problems import FACTORS, GROUPS, PROBLEMS, PROGRAMS, SIZES


def interpreted(kernel: Any, sizes: dict[str, int], arrays: dict[str, Any]) -> None:
    kernel.interpret(sizes=sizes, **arrays)


@pytest.mark.parametrize("group", GROUPS)
def test_programs_mean_what_their_references_say(group: str) -> None:
    cases = [(problem, dtype) for problem in PROBLEMS if problem.group == group for dtype in problem.dtypes]
    assert [said for problem, dtype in cases if (said := fault(problem, dtype, interpreted))] == []


def test_a_program_that_computes_something_else_is_told() -> None:
    def nothing(kernel: Any, sizes: dict[str, int], arrays: dict[str, Any]) -> None:
        pass

    assert all("error" in fault(problem, problem.dtypes[0], nothing) for problem in PROBLEMS)


SUMS_IN_MEMORY = {"row_sum", "column_sum", "dot", "matrix_vector", "vector_matrix"} | {
    "mean_squared_error",
    "huber_loss",
    "kl_divergence",
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_result_that_is_off_by_a_few_tolerances_or_in_one_element_is_told(group: str) -> None:
    for problem in PROBLEMS:
        for dtype in problem.dtypes if problem.group == group else ():
            rounds = dtype == "bf16" and problem.name in SUMS_IN_MEMORY
            by = 1 + (2 * ROUNDINGS if rounds else 2) * problem.tolerance(dtype)

            def slightly_off(kernel: Any, sizes: dict[str, int], arrays: dict[str, Any], by: float = by) -> None:
                before = {name: array.copy() for name, array in arrays.items()}
                interpreted(kernel, sizes, arrays)
                (result,) = (array for name, array in arrays.items() if array.tobytes() != before[name].tobytes())
                if by == 1:
                    result.flat[-1] += 1
                else:
                    result *= result.dtype.type(by)

            assert "error" in fault(problem, dtype, slightly_off), (problem.name, dtype)


def test_inputs_that_nothing_defines_are_refused() -> None:
    (softmax,) = (problem for problem in PROBLEMS if problem.name == "softmax")
    (gather,) = (problem for problem in PROBLEMS if problem.name == "gather_rows")
    for wrong, said in (
        (replace(softmax, inputs={"X": "postive"}), "the input X is 'postive', and not one of normal, positive"),
        (replace(softmax, inputs={"Z": "positive"}), "softmax has no Z, only X, Y"),
        (replace(gather, inputs={}), "the input R is ''"),
    ):
        with pytest.raises(ValueError, match=said):
            fault(wrong, "f32", interpreted)


def test_every_program_stands_in_a_group_and_has_no_attribute() -> None:
    assert {problem.program for problem in PROBLEMS} == {path.stem for path in PROGRAMS.glob("*.tex")}
    assert not [path for path in PROGRAMS.glob("*.tex") if "#" in path.read_text(encoding="utf-8")]


def test_cubes_and_images_have_about_as_many_elements_as_the_matrix() -> None:
    assert tuple(FACTORS) == (*SIZES, *CPU_SIZES)
    for (rows, columns), ((p, q, r), (b, c, h, w)) in FACTORS.items():
        for elements in (p * q * r, b * c * h * w):
            assert 0.97 < elements / (rows * columns) < 1.03


def options(**given: Any) -> Namespace:
    return Namespace(**{"group": None, "kernel": None, "size": None, "dtype": None, "all": False, **given})


def test_a_group_by_default_is_a_few_sizes_of_it() -> None:
    named = [label(problem.name, *rest) for problem, *rest in chosen(options(group=["permutes"]))]
    assert len(named) == 9 and named[:3] == [
        "transpose 32768x4096 f32", "transpose 32768x4096 bf16", "transpose 32749x4093 bf16",
    ]  # fmt: skip
    assert len(chosen(options(all=True))) == 5 * sum(len(problem.dtypes) for problem in PROBLEMS)
    (only,) = chosen(options(kernel=["dot"], size=["257x100003"], dtype=["f32"]))
    assert only[1:] == ((257, 100003), "f32")


def test_a_line_has_the_rates_and_what_is_missing() -> None:
    row = {
        "bytes": 4_000_000_000, "right": True, "error": 0.0, "failed": {"quack": "ImportError: no"},
        "ms": {"texpr": [1.0, 1.1, 1.0], "torch": [2.0, 2.0, 2.0]}, "limit": {"copy": 5000.0},
    }  # fmt: skip
    assert line_of("k", row).split() == [
        "k", "1000.0", "4000", "0.800", "0.100", "torch", "2.00", "not:", "quack",
    ]  # fmt: skip
    assert "WRONG: an error of 5.0e-01" in line_of("k", {"error": 0.5, "failed": {}})
    assert "more than 5" in line_of("k", {"cut off": "a launch takes more than 5 s"})


def test_names_of_problems_are_words_that_shells_and_scripts_pass_on() -> None:
    assert [problem.name for problem in PROBLEMS if not problem.name.isidentifier()] == []
