"""Which schedules are proposed, which of them is taken, and what is mapped then."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_nests import random_nests
from schedule_oracle import keeps
from stages import proved

from texpr import parse
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral import isl
from texpr.polyhedral.map import problems
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.schedules import chosen, price
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Cases
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.draft import checked
from texpr.polyhedral.schedule.stage import schedule
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
CUDA, CPU = "cuda:sm_90a", "cpu"
PRODUCT_THEN_ROWS = """kernel attention(Q: f32[M, D], K: f32[N, D], Y: f32[M, N]) where N >= 1 {
    new s: f32[M, N]
    new top: f32[M]
    par M i, N j { s[i, j] = sum D d { Q[i, d] * K[j, d] } }
    par M i { top[i] = maximum N k { s[i, k] } }
    par M i, N j { Y[i, j] = s[i, j] - top[i] }
}"""
EPILOGUE = """kernel linear(X: f32[M, K], W: f32[K, N], Y: f32[M, N]) {
    new t: f32[M, N]
    par M i, N j { t[i, j] = sum K k { X[i, k] * W[k, j] } }
    par M i, N j { Y[i, j] = max(t[i, j], 0.0) }
}"""
REVERSED = """kernel reversed(X: f32[N], Y: f32[N]) {
    new t: f32[N]
    par N i { t[i] = X[i] }
    par N i { Y[i] = t[N - 1 - i] }
}"""
PRODUCT_BY_STEPS = """kernel product(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = 0.0 }
    seq K k { par M i, N j { C[i, j] += A[i, k] * B[k, j] } }
}"""
TWO_BY_STEPS = """kernel two(A: f32[K, N], B: f32[K, M], S: f32[N], T: f32[M]) {
    par N j { S[j] = 0.0 }
    par M i { T[i] = 0.0 }
    seq K k {
        par N j { S[j] += A[k, j] }
        par M i { T[i] += B[k, i] }
    }
}"""
BETWEEN = """kernel between(X: f32[M, N], Y: f32[M, N], a: f32) where N >= 1 {
    new top: f32[M]
    new twice: f32
    par M i { top[i] = maximum N k { X[i, k] } }
    twice = a * 2.0
    par M i, N j { Y[i, j] = X[i, j] - top[i] * twice }
}"""
STEPS_APART = "kernel steps(X: f32[T, N], Y: f32[T, N]) { seq T t { par N i { Y[t, i] = X[t, i] } } }"
ONE_THREAD = "kernel alone(X: f32[N], Y: f32[N]) { seq N k { Y[k] = X[k] * 2.0 } }"
TWO_LAUNCHES_APART = "kernel two(X: f32[N], Y: f32[N], Z: f32[N]) { par N i { Y[i] = X[i] }; par N j { Z[j] = X[j] } }"


def text_of(name: str) -> str:
    return (KERNELS / f"{name}.tex").read_text(encoding="utf-8")


def mapped(program: ProvedProgram, target: str, **hints: int) -> MappedProgram:
    return map_program(program, parse_target(target), others=schedule(program).others, hints=hints)


@pytest.mark.parametrize("target", [CUDA, CPU])
@pytest.mark.parametrize(
    ("text", "launched", "last"),
    [
        (text_of("softmax_in_bands"), 1, "made total a local of each iteration of `par i`"),
        (text_of("layernorm_in_bands"), 1, "made scale a local of each iteration of `par i`"),
        (text_of("rmsnorm_in_bands"), 1, "made squares a local of each iteration of `par i`"),
        (text_of("chain_of_bands"), 1, "made scaled a local of each iteration of `par j`"),
        (text_of("sum_by_rows"), 1, "fused `par j` (S) and `par j_1` (S) into one launch"),
        (EPILOGUE, 1, "made t a local of each iteration of `par j`"),
        (PRODUCT_BY_STEPS, 1, "fused `par j` (C) and `par j_1` (C) into one loop"),
        (PRODUCT_THEN_ROWS, 2, "made top a local of each iteration of `par i_1`"),
        (TWO_BY_STEPS, 2, "fused `par i` (T) and `par i_1` (T) into one launch"),
        (BETWEEN, 2, "made top a local of each iteration of `par i`"),
        (STEPS_APART, 1, "made a `par` of `seq t`"),
        (ONE_THREAD, 1, "made a `par` of `seq k`"),
        (REVERSED, 2, None),
        (TWO_LAUNCHES_APART, 1, "fused `par i` (Y) and `par j` (Z) into one launch"),
        (text_of("jacobi_1d"), 2, None),
        (text_of("two_mm"), 2, None),
        (text_of("atax"), 2, None),
    ],
)
def test_bands_run_in_the_launches_that_pay(text: str, launched: int, last: str | None, target: str) -> None:
    program = mapped(proved(text), target)
    of_cases = Counter(launch.name.partition("_case")[2] for launch in launches(program.host))
    assert set(of_cases.values()) == {launched}
    assert (program.report.schedule[-1] if program.report.schedule else None) == last
    one = program.candidate.otherwise if isinstance(program.candidate, Cases) else program.candidate
    assert bool(one.moves) == bool(last)


@pytest.mark.parametrize(("target", "launched"), [(CUDA, 2), (CPU, 1)])
def test_a_matrix_read_by_rows_and_by_columns_is_read_once_where_cores_have_both(target: str, launched: int) -> None:
    program = mapped(proved(text_of("mvt")), target)
    fused = ("fused `par i` (X1) and `par i_1` (X2) into one launch",)
    assert len(list(launches(program.host))) == launched
    assert program.report.schedule == (fused if launched == 1 else ())


def documented() -> list[list[str]]:
    """The rows of the table in docs/schedules.md: a program, and its launches, bytes and time, before and after."""
    text = (KERNELS.parents[1] / "docs" / "schedules.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.split("\n")]
    return [row for row in rows if len(row) == 4 and (KERNELS / f"{row[0].strip('`')}.tex").exists()]


def numbers(cell: str) -> tuple[float, float]:
    """`8.4 M → 0`, or one number for both; times in picoseconds."""
    units = {"": 1, "k": 1e3, "M": 1e6, "µs": 1e6, "ms": 1e9}
    found = [float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) ?([kM]|µs|ms|)", cell)]
    return found[0], found[-1]


def test_the_document_has_what_schedules_are_judged_by() -> None:
    target = parse_target(CUDA)
    assert len(documented()) == 5
    for name, *cells in documented():
        program = proved(text_of(name.strip("`")))
        own = problems.Problems(keep_nothing(program), target, {})
        better = chosen(schedule(program), own)
        taken = (better[1], better[0].moves) if better is not None else (own, ())
        prices = [price(own), price(*taken)]
        for cell, of, near in zip(cells, ("launches", "workspace_bytes", "picoseconds"), (0, 0.01, 0.3), strict=True):
            assert numbers(cell) == pytest.approx([getattr(one, of) for one in prices], rel=near), name


def test_few_rows_keep_the_band_that_has_threads_for_all_elements() -> None:
    program = proved(
        """kernel scaled(X: f32[M, N], Y: f32[M, N]) where N >= 1 {
            new first: f32[M]
            par M i { first[i] = X[i, 0] }
            par M i, N j { Y[i, j] = X[i, j] * first[i] }
        }"""
    )
    assert not mapped(program, CUDA, M=2, N=2**20).report.schedule
    assert mapped(program, CUDA, M=2048, N=2**10).report.schedule


def test_a_program_of_one_band_asks_nothing() -> None:
    program = proved(text_of("softmax"))
    left = program.program.work.left
    assert schedule(program).others == ()
    assert program.program.work.left == left


def test_a_large_program_is_tried_with_few_moves_or_none() -> None:
    def bands(count: int) -> str:
        outputs = ", ".join(f"Y{n}: f32[N]" for n in range(count))
        lines = [f"par N i {{ Y{n}[i] = X[i] }}" for n in range(count)]
        return f"kernel many(X: f32[N], {outputs}) {{ {'; '.join(lines)} }}"

    (draft,) = schedule(proved(bands(30))).others
    assert len(draft.moves) == 10
    assert schedule(proved(bands(80))).others == ()


def test_a_loop_that_the_author_maps_is_left_alone() -> None:
    text = text_of("chain_of_bands").replace("par M i, N j {", "par M i, N j #grid {", 1)
    assert not schedule(proved(text)).others or all(
        "gate" not in line for draft in schedule(proved(text)).others for line in draft.told
    )


@pytest.mark.parametrize("name", ["softmax_in_bands", "layernorm_in_bands", "chain_of_bands", "sum_by_rows"])
def test_a_scheduled_program_computes_what_it_means(name: str) -> None:
    program = proved(text_of(name))
    kernel = program.program.kernel
    chance = np.random.default_rng(0)
    for size in (0, 1, 37):
        sizes = dict.fromkeys((s.name for s in kernel.sizes), max(size, 1)) | {kernel.sizes[0].name: size}
        arrays: dict[str, Any] = {}
        for buffer in kernel.params:
            shape = tuple(sizes[extent.name] for extent in buffer.shape)  # type: ignore[union-attr]  # names
            arrays[buffer.name] = chance.standard_normal(shape).astype(np.float32)
        found = mapped(program, CUDA)
        assert found.report.schedule
        got, want = simulate(found, arrays, sizes=sizes), interpret(kernel, arrays, sizes=sizes).outputs
        for buffer in want:
            np.testing.assert_allclose(got[buffer], want[buffer], rtol=1e-5, atol=1e-5)


def test_a_schedule_goes_back_in_and_is_the_same() -> None:
    for name in ("softmax_in_bands", "sum_by_rows"):
        program = proved(text_of(name))
        own = mapped(program, CUDA)
        again = read_choices(choices_json(own.candidate))
        assert again == own.candidate
        assert show(map_program(program, parse_target(CUDA), choices=again)) == show(own)


@pytest.mark.parametrize("free", [False, True], ids=["bound", "free"])
def test_every_proposed_schedule_passes_its_check_and_an_enumeration(free: bool) -> None:
    proposed = 0
    for seed in range(60):
        try:
            program = proved(random_nests(seed, free=free))
        except TExprError:
            continue
        for draft in schedule(program).others:
            proposed += 1
            checked(program, draft)
            sizes = {size.name: random.Random(seed).choice((0, 1, 3, 4)) for size in program.program.kernel.sizes}
            assert keeps(program.program.kernel, draft.program.kernel, draft.origins, sizes) is None, seed
    assert proposed > 10


@pytest.mark.parametrize(("text", "least"), [(text_of("softmax_in_bands"), 1.3), (EPILOGUE, 2.3), (TWO_BY_STEPS, 1.3)])
def test_what_is_only_tried_takes_no_steps_from_the_mapping(text: str, least: float) -> None:
    """A program with some more steps than its mapping takes is mapped, whatever its schedules would take: half of what
    is left, where the mapping takes most of the steps."""
    kernel, target = parse(text).only.core(), parse_target(CUDA)

    def with_steps(steps: int, *, tried: bool) -> int:
        program = prove(build_program(kernel, steps))
        others = schedule(program).others if tried else ()
        map_program(program, target, others=others)
        return steps - program.program.work.left

    taken = with_steps(isl.TOTAL, tried=False)
    assert taken > 0
    for more in (least, 2 * least):
        with_steps(int(more * taken), tried=True)


def test_what_was_chosen_for_a_price_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    choose = problems.choose
    monkeypatch.setattr(problems, "choose", lambda problem: asked.append(problem) or choose(problem))
    program = proved(text_of("softmax_in_bands"))
    found = mapped(program, CUDA)
    assert found.report.schedule and isinstance(found.candidate, Cases)
    assert len(asked) == 1 + len(schedule(program).others) + len(found.candidate.cases)
