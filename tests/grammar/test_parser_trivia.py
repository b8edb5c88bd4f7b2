"""Comments and empty lines survive reading and printing."""

import pytest

from texpr.grammar.text.parser import parse_text
from texpr.grammar.text.printer import print_module

CANONICAL = """\
-- the head of the file

-- about the kernel
-- in two lines
kernel f(A: f32[N]) {
    -- first

    -- before the loop
    par N i {
        A[i] = 0  -- trails
        -- leads
        A[i] = 1

        A[i] = 2

        -- dangles

        -- at the end
    }  -- after the loop

    par N i {
        -- alone
    }
    if N > 4 {
        A[0] = 1
    } else {
        A[0] = 2
        --no blank
    }
    --
}

-- the end
"""


def test_a_canonical_text_with_comments_is_printed_as_it_stands() -> None:
    assert print_module(parse_text(CANONICAL)) == CANONICAL


@pytest.mark.parametrize(
    ("odd", "canonical"),
    [
        ("x = (1 + -- one\n     2)", "-- one\nx = 1 + 2\n"),
        ("x = 1 + -- one\n-- two\n2 -- three", "-- one\n-- two\nx = 1 + 2  -- three\n"),
        (
            "kernel f( -- a\n  A: f32[N], -- b\n) -- c\n{ -- d\n}",
            "-- a\n-- b\n-- c\nkernel f(A: f32[N]) {\n    -- d\n}\n",
        ),
        ("if a { -- x\n} -- y\n-- z\nelse { }", "-- y\n-- z\nif a {\n    -- x\n} else {}\n"),
        ("par N i { -- x\n  y = 1 }", "par N i {\n    -- x\n    y = 1\n}\n"),
        ("x = 1; y = 2 -- both\n\n\n\n-- far\n\n\n", "x = 1\ny = 2  -- both\n\n-- far\n"),
        ("x = 1 -- tail   \t\n", "x = 1  -- tail\n"),
        ("x = sum K k { -- why\n A[k] }", "-- why\nx = sum K k { A[k] }\n"),
        ("\n\n\nx = 1\n\n\n\ny = 2", "x = 1\n\ny = 2\n"),
        ("x = 1 -- a\n#tf32 -- b\ny = 2", "-- a\nx = 1 #tf32  -- b\ny = 2\n"),
        ("x = 1 ; -- a\ny = 2", "x = 1  -- a\ny = 2\n"),
    ],
)
def test_a_comment_in_an_odd_place_is_kept_at_its_statement(odd: str, canonical: str) -> None:
    assert print_module(parse_text(odd)) == canonical
    assert print_module(parse_text(canonical)) == canonical


def test_comments_keep_their_letters() -> None:
    text = "-- größer ≤ 3, 行列 🙂\nx = 1\n"
    assert print_module(parse_text(text)) == text


def test_long_statements_are_broken_outside_brackets_first() -> None:
    terms = [f"weights[index, {n}] * inputs[{n}, column]" for n in range(6)]
    printed = print_module(parse_text(f"par N index {{ outputs[index] = {' + '.join(terms)} -- all\n}}"))
    assert printed.splitlines() == [
        "par N index {",
        f"    outputs[index] = {terms[0]} + {terms[1]} +",
        f"        {terms[2]} + {terms[3]} +",
        f"        {terms[4]} + {terms[5]}  -- all",
        "}",
    ]
    assert print_module(parse_text(printed)) == printed


def test_the_body_of_a_long_reduction_stands_alone() -> None:
    body = "left_operand[row, k + first_offset] * right_operand[k + second_offset, column + third_offset] + constant"
    text = f"output[row, column] = sum inner_extent k {{\n    {body}\n}} * scale\n"
    assert print_module(parse_text(text)) == text


def test_long_parameter_lists_are_printed_one_a_line() -> None:
    params = [f"parameter_{n}: f32[rows, columns]" for n in range(6)]
    printed = print_module(parse_text(f"kernel f({', '.join(params)}) {{ }}"))
    assert printed.splitlines() == ["kernel f(", *(f"    {p}," for p in params), ") {}"]
    assert print_module(parse_text(printed)) == printed
