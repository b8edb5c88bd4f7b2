"""What the check of schedules notices in programs that were changed by hand, and that it stands alone."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

from stages import program
from test_schedule import SOFTMAX

from texpr.grammar.ast import IndexVar, Kernel
from texpr.grammar.index.expr import const, subtract
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Fuse, Move
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.check import check
from texpr.polyhedral.schedule.origins import Origin


def faulty(change: Any, *moves: Move, text: str = SOFTMAX) -> str | None:
    """What the check says of the moved kernel after a change by hand."""
    before = program(text)
    after, origins = before, dict[str, Origin]()
    for move in moves:
        step = moved(after, move)
        after, origins = build_program(step.kernel, beside=before), {**origins, **step.origins}
    kernel, origins = change(after.kernel, origins)
    found = check(before, build_program(kernel, beside=before), origins)
    return None if found is None else found.why


def test_the_check_notices_whatever_is_changed_by_hand() -> None:
    fused = Fuse(first="i", second="i_1")

    def same(kernel: Kernel, origins: Any) -> Any:
        return kernel, origins

    def lost(kernel: Kernel, origins: Any) -> Any:
        return replace(kernel, body=kernel.body[:-1]), origins

    def doubled(kernel: Kernel, origins: Any) -> Any:
        later = {name: Origin(statement="S0") if name == "S2" else o for name, o in origins.items()}
        return kernel, later

    def elsewhere(kernel: Kernel, origins: Any) -> Any:
        shifted = Origin(statement="S2", values={"i_1": subtract(IndexVar(name="i"), const(1))})
        return kernel, {**origins, "S2": shifted}

    def reversed_(kernel: Kernel, origins: Any) -> Any:
        return replace(kernel, body=(*kernel.body[:2], *kernel.body[:1:-1])), origins

    assert faulty(same, fused) is None
    assert faulty(lost) == "iterations of S4 do not run"
    assert "run twice" in str(faulty(doubled, fused))
    assert faulty(elsewhere, fused) == "S2 runs in iterations that it does not have"
    assert faulty(reversed_) == "a dependence is lost"


def test_the_check_asks_for_the_same_values_and_elements() -> None:
    text = "kernel f(A: f32[N], B: f32[N], C: f32[N]) { par N i { B[i] = A[i] * 2.0; C[i] = B[i] } }"

    def with_text(other: str) -> str | None:
        return faulty(lambda _k, origins: (program(other).kernel, origins), text=text)

    assert with_text(text) is None
    assert with_text(text.replace("2.0", "3.0")) == "S0 does not compute what S0 does"
    assert with_text(text.replace("A[i] *", "A[N - 1 - i] *")) == "A has other elements"
    assert with_text(text.replace("= B[i]", "= A[i]")) == "B has other elements"
    assert with_text(text.replace("par N i", "par N i #grid")) == "S0 stands in loops with other attributes than S0"


def test_the_check_asks_for_the_same_conditions_on_data() -> None:
    text = """kernel f(P: bool[N], A: f32[N], B: f32[N], C: f32[N]) {
        par N i { if P[i] { B[i] = A[i] } else { C[i] = A[i] } }
    }"""

    def with_text(other: str) -> str | None:
        return faulty(lambda _k, origins: (program(other).kernel, origins), text=text)

    assert with_text(text) is None
    assert with_text(text.replace("} else {", ";")) == "S2 stands under other conditions than S2"


def test_the_check_shares_no_code_with_what_it_checks() -> None:
    folder = Path(__file__).resolve().parents[2] / "polyhedral" / "schedule"
    for name in ("check.py", "alike.py"):
        nodes = [n for n in ast.walk(ast.parse((folder / name).read_text())) if isinstance(n, ast.ImportFrom)]
        modules = {str(node.module).removeprefix("texpr.polyhedral.") for node in nodes}
        assert not {m for m in modules if m.startswith(("prove", "map"))}
        assert {m for m in modules if m.startswith("schedule")} <= {"schedule.origins", "schedule.alike"}
