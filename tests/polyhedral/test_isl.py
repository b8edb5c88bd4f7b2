"""The isl work of a compilation: its own context, counted, and safe wherever a limit runs out."""

import subprocess
import sys
from pathlib import Path

import pytest
from stages import program

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import NO_SPAN
from texpr.polyhedral import isl

PROPERTIES = Path(__file__).resolve().parents[1] / "properties"
TEXT = "kernel f(A: f32[N]) { par N i { A[i] = 1.0 } }"


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(PROPERTIES / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-500:]
    return done.stdout


def test_every_compilation_has_a_context_of_its_own() -> None:
    first, second = program(TEXT), program(TEXT)
    assert first.context.get_ctx() == first.statements[0].domain.get_ctx() == first.work.context
    assert second.work.context not in (first.work.context, isl.Set("{ [i] }").get_ctx())


def test_queries_are_counted_and_end_with_the_steps_of_the_compilation() -> None:
    work = isl.Work(5_000)
    text = " or ".join(f"i mod {p} = 1" for p in (2, 3, 5, 7, 11, 13))
    with work.limited(NO_SPAN, "a query"):
        isl.Set("{ [i] : i > 3 }", context=work.context)
    assert 0 < work.left < 5_000
    for _ in range(2):
        with pytest.raises(TExprError, match="take more than 5000 steps together"), work.limited(NO_SPAN, "a query"):
            isl.Set(f"{{ [i] : {text} }}", context=work.context).complement()
    assert work.exhausted


def test_a_share_is_all_that_there_is_inside() -> None:
    work = isl.Work(100_000)
    with work.share(10):
        assert work.left == work.beside().left == 10_000
        with work.limited(NO_SPAN, "a query"):
            isl.Set("{ [i] : i > 3 }", context=work.context)
        taken = 10_000 - work.left
    assert 0 < taken < 10_000 and work.left == 100_000 - taken


def test_an_operation_on_many_columns_is_many_steps() -> None:
    narrow, wide = isl.Work(), isl.Work()
    for work, width in ((narrow, 1), (wide, 4 * isl.WIDTH)):
        with work.limited(NO_SPAN, "a query", width):
            isl.Set("{ [i] : i > 3 }", context=work.context)
    assert isl.TOTAL - wide.left == 16 * (isl.TOTAL - narrow.left)


def test_a_limit_that_runs_out_anywhere_gives_a_diagnostic() -> None:
    told = run("starve.py", "--factor", "4", "--each", str(PROPERTIES.parent / "kernels" / "transpose_shared.tex"))
    assert "'built'" in told and "'E0307'" in told


@pytest.mark.parametrize("name", ["softmax", "block_scan", "self_modifying_condition"])
def test_an_order_that_was_not_computed_is_no_defect(name: str) -> None:
    told = run("starve.py", "--factor", "1.6", str(PROPERTIES.parent / "kernels" / f"{name}.tex"))
    assert "'built'" in told and "'E0307'" in told


def test_compilations_in_many_threads_give_what_they_give_alone() -> None:
    assert "0 differ" in run("threads.py", "--threads", "4", "--kernels", "3")
