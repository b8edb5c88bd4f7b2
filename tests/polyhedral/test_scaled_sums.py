"""Sums that their row's greatest value scales: threads meet once for both, and leave what the two loops leave."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from spoil import spoiled
from stages import mapped

import texpr
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Row
from texpr.polyhedral.mapped.operators import Reduce
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, operators
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

ENTROPY = """kernel k(X: {t}[{m}, {n}], S: f32[{m}], T: f32[{m}], L: f32[{m}]) {{
    par {m} i {{
        new top: f32
        new total: f32
        top = {start}
        seq {n} k {{ top max= {read} }}
        total = 0.5
        seq {n} j {{ total += exp({other} - top) }}
        T[i] = top
        L[i] = total
    }}
}}"""
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


def text(t: str, n: int, start: str = "-inf", m: int = 6, **changes: str) -> str:
    said = "f32({})" if t != "f32" else "{}"
    own = {"read": said.format("X[i, k]"), "other": said.format("X[i, j]"), **changes}
    return ENTROPY.format(t=t, m=m, n=n, start=start, **own)


def clustered(source: str, n: int, width: int, *, slots: bool = False, ranks: int = 2) -> MappedProgram:
    usual = mapped(source).candidate
    assert isinstance(usual, Candidate)
    (name,) = usual.launches
    row = Row(indices=("k", "j"), line=128 if n % width else 0, slots=slots)
    forced = Blocks(
        threads=64,
        grid=("i",),
        shared_out=("k", "j"),
        widths={"k": width, "j": width},
        rows=(row,),
        cluster=ranks,
        memory=dict.fromkeys(("top", "total"), Memory.REG),
    )
    return mapped(source, choices=Candidate(launches={name: forced}))


def odd(n: int, dtype: Any) -> Any:
    """Rows of numbers; of -inf alone; of one number among these; of one infinity; of a NaN; of large ones."""
    x = np.random.default_rng(n).normal(0, 3, (6, n)).astype(dtype)
    x[1], x[2], x[3, n // 2], x[4, 0] = -np.inf, -np.inf, np.inf, np.nan
    x[2, n - 1] = 2.0
    x[5] += 300
    return x


def meets_once(program: MappedProgram) -> bool:
    found = [node for one in launches(program.host) for node in operators(one.body) if isinstance(node, Reduce)]
    return "ScaledSum" in {node.monoid for node in found}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("start", ["-inf", "4.0", "S[i]"])
@pytest.mark.parametrize(
    ("t", "n", "slots", "ranks"),
    [
        ("f32", 515, False, 2), ("bf16", 1027, True, 4), ("f16", 1024, False, 2), ("bf16", 1027, False, 8),
        ("f32", 512, True, 2),
    ],
)  # fmt: skip
def test_both_are_what_the_two_loops_leave(t: str, n: int, slots: bool, ranks: int, start: str) -> None:
    source = text(t, n, start)
    program = clustered(source, n, 4 if t == "f32" else 8, slots=slots, ranks=ranks)
    assert meets_once(program)
    x, before = odd(n, TYPES[t]), np.array([5, 1, -np.inf, 0, 0, 310], np.float32)
    given = {"X": x, "S": before, "T": np.zeros(6, np.float32), "L": np.zeros(6, np.float32)}
    with np.errstate(invalid="ignore"):
        expected = interpret(program.kernel, given).outputs
        got = simulate(program, given, seed=n)
    for name in ("T", "L"):
        np.testing.assert_allclose(got[name], expected[name], rtol=2e-5, err_msg=name)


def test_they_are_right_and_race_free_as_cuda() -> None:
    for t, n, slots in (("bf16", 1027, True), ("f32", 515, False)):
        source = text(t, n)
        program = clustered(source, n, 4 if t == "f32" else 8, slots=slots, ranks=4)
        compiled = texpr.parse(source).only.compile("cuda-host:sm_90a", mapping=program.candidate)
        given = {
            "X": odd(n, TYPES[t]),
            "S": np.zeros(6, np.float32),
            "T": np.zeros(6, np.float32),
            "L": np.zeros(6, np.float32),
        }
        with np.errstate(invalid="ignore"):
            expected = interpret(program.kernel, given).outputs
        compiled(**given)
        for name in ("T", "L"):
            np.testing.assert_allclose(given[name], expected[name], rtol=2e-5, err_msg=name)


def test_exponentials_of_what_is_below_the_greatest_value_are_shorter() -> None:
    emitted = texpr.parse(text("f32", 515)).only.compile(
        "cuda:sm_90a", stop_after="emit", mapping=clustered(text("f32", 515), 515, 4).candidate
    )
    assert "total_part += tx::exp_below(" in emitted.source


def test_every_sync_of_the_one_meeting_that_goes_is_missed() -> None:
    dropped = [(said, m) for said, m in spoiled(clustered(text("f32", 515), 515, 4)) if said.startswith("drop")]
    assert len(dropped) == 3 + 3  # blocks begin and wait for that, and meet once: an acquire, a commit, a wait
    for said, wrong in dropped:
        with pytest.raises(InternalError):
            check_orders(wrong)
            raise AssertionError(said)


def test_a_long_row_meets_once_by_itself_and_a_block_alone_for_each() -> None:
    long = mapped(text("bf16", 100003, m=257))
    assert meets_once(long)
    assert not meets_once(mapped(text("bf16", 4096, m=8192)))


@pytest.mark.parametrize(
    "change",
    [
        ("exp(X[i, j] - top)", "exp(X[i, 0] - top)"),
        ("exp(X[i, j] - top)", "exp(2.0 * X[i, j] - top)"),
        ("exp(X[i, j] - top)", "exp(X[i, j] + top)"),
        ("exp(X[i, j] - top)", "exp(X[i, j] - total)"),
        ("total = 0.5", "total = top"),
        ("top max=", "top min="),
        (") {\n    par", ") #strict {\n    par"),
        ("seq 515 j {", "seq 515 j #ordered {"),
    ],
    ids=["one element", "another value", "above", "about another", "asked between", "the least", "strict", "ordered"],
)
def test_what_is_no_such_pair_meets_twice(change: tuple[str, str]) -> None:
    source = text("f32", 515).replace(*change)
    try:
        program = clustered(source, 515, 4)
    except texpr.TExprError:
        program = mapped(source)
    assert not meets_once(program)
