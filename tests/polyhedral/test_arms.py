"""What both arms of a condition on data bind is defined after it: the proof agrees with every way that data can go."""

import itertools
import random

import numpy as np
import pytest
from stages import proved

from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.text.parser import parse_text

CONDITIONS = 6


class Arms:
    """A random program of nested conditions, each on data of its own, that bind and read a scalar and two elements."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.reading = self.rng.choice((0.03, 0.2))
        self.conditions = 0
        self.reads = 0

    def condition(self, turn: str | None) -> str | None:
        """A condition on an element of F that no other evaluation reads; None where F has no more."""
        wanted = 2 if turn else 1
        if self.conditions + wanted > CONDITIONS:
            return None
        first, self.conditions = self.conditions, self.conditions + wanted
        return f"F[{first} + {turn}] > 0" if turn else f"F[{first}] > 0"

    def block(self, depth: int, turn: str | None) -> str:
        return "; ".join(self.statement(depth, turn) for _ in range(self.rng.choice((1, 1, 2))))

    def statement(self, depth: int, turn: str | None) -> str:
        roll = self.rng.random()
        if depth and roll < 0.5:
            condition = self.condition(turn)
            if condition is not None:
                then, orelse = self.block(depth - 1, turn), self.block(depth - 1, turn)
                return f"if {condition} {{ {then} }}" + f" else {{ {orelse} }}" * (self.rng.random() < 0.9)
        if depth and turn is None and roll < 0.65:
            return f"seq 2 k{depth} {{ {self.block(depth - 1, f'k{depth}')} }}"
        places = ["x", "x", "x", "t[0]", "t[1]", *([f"t[{turn}]", f"t[1 - {turn}]"] if turn else [])]
        if roll < 1 - self.reading:
            return f"{self.rng.choice(places)} = {self.rng.randint(1, 9)}"
        self.reads += 1
        return f"W[{self.reads}] = {self.rng.choice(places)}"

    def text(self) -> str:
        body = "; ".join(self.statement(3, None) for _ in range(3))
        last = self.rng.choice(("x", "x", "t[0]", "t[1]"))
        return f"kernel arms(F: i32[{CONDITIONS}], W: i32[40]) {{ new x: i32; new t: i32[2]; {body}; W[0] = {last} }}"


def reads_undefined(text: str) -> bool:
    """Whether some data makes the program read what nothing wrote."""
    (kernel,) = check(parse_text(text))
    for data in itertools.product((0, 1), repeat=CONDITIONS):
        arrays = {"F": np.array(data, np.int32), "W": np.zeros(40, np.int32)}
        try:
            interpret(kernel, arrays, mode="exact")
        except TExprError as wrong:
            assert [d.code for d in wrong.diagnostics] == ["E0303"], str(wrong)
            return True
    return False


def accepted(text: str) -> bool:
    try:
        proved(text)
    except TExprError as refused:
        assert {d.code for d in refused.diagnostics} == {"E0303"}, str(refused)
        return False
    return True


@pytest.mark.parametrize("batch", range(3))
def test_a_program_is_refused_exactly_where_some_data_makes_it_read_the_undefined(batch: int) -> None:
    outcomes = []
    for seed in range(batch * 20, batch * 20 + 20):
        text = Arms(seed).text()
        outcomes.append((accepted(text), " else " in text))
        assert outcomes[-1][0] != reads_undefined(text), text
    assert (True, True) in outcomes and any(not legal for legal, _ in outcomes)


def test_an_arm_that_reads_before_it_binds_is_refused() -> None:
    arms = ("x = 1", "W[1] = x; x = 2")
    for then, orelse in (arms, arms[::-1]):
        text = (
            f"kernel k(F: i32[2], W: i32[4]) {{ new x: i32; if F[0] > 0 {{ {then} }} else {{ {orelse} }}; W[0] = x }}"
        )
        assert not accepted(text)
    again = "kernel k(F: i32[2], W: i32[4]) { new x: i32; seq 2 k { if F[k] > 0 { x = 1 } else { x = 2 } }; W[0] = x }"
    assert accepted(again)


UNITED = "kernel k(A: f32[N], {0}W: f32[N]) {{ par N i {{ if A[i] > 0.0 {{ W[i] = 1.0 }} else {{ W[i] = A[i] }} }} }}"


@pytest.mark.parametrize("declared", ["", "out "])
def test_what_both_arms_write_is_wholly_written(declared: str) -> None:
    assert proved(UNITED.format(declared)).directions["W"] == "out"


def test_what_one_arm_writes_in_part_is_not() -> None:
    text = UNITED.format("").replace("{ W[i] = A[i] }", "{ if i > 0 { W[i] = A[i] } }")
    assert proved(text).directions["W"] == "inout"
