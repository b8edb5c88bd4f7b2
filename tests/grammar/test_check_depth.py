"""The checker takes no room on Python's stack for what a program nests: any caller may check the deepest one."""

import sys
from collections.abc import Callable

import pytest

from texpr.grammar.ast import Kernel
from texpr.grammar.check.bind import bind_sizes, free_sizes
from texpr.grammar.check.nested import Nested, Stack
from texpr.grammar.check.stage import check
from texpr.grammar.text.limits import MAX_BLOCK_DEPTH, MAX_EXPRESSION_HEIGHT
from texpr.grammar.text.parser import parse_text

LEFT = 60  # frames that are left to the checker: enough for its own calls, far too few for one frame per level
HEIGHT = MAX_EXPRESSION_HEIGHT - 10
LOOPS = MAX_BLOCK_DEPTH - 2


def of(opening: str, inside: str, depth: int = HEIGHT, closing: str = ")") -> str:
    return opening * depth + inside + closing * depth


def body(statement: str) -> str:
    return f"kernel f(A: f32[N], B: f32[N], I: i32[N]) {{ par N i {{ {statement} }} }}"


DEEP = {
    "calls in blocks": body(of("if A[i] > 0.0 { ", "B[i] = " + of("sqrt(", "A[i]"), 55, " }")),
    "loops": body("".join(f"seq 2 k{n} {{ " for n in range(LOOPS)) + "B[i] += 1.0" + " }" * LOOPS),
    "literals": body("B[i] = " + of("1 + (", "1")),
    "conditions": body("if " + of("i < 3 and (", "i < 2") + " { B[i] = 1.0 }"),
    "conditions on data": body("if " + of("i < 3 and (", "A[i] < 2.0", 60) + " { B[i] = 1.0 }"),
    "gathers": body("B[i] = f32(" + of("I[", "i", 60, "]") + ")"),
    "one element twice": body(f"B[{of('min(0, ', 'i')}] = max(B[{of('min(0, ', 'i')}], 1.0)"),
    "choices": body("if A[i] < 1.0 { }" + " else if A[i] < 2.0 { B[i] = 1.0 }" * (MAX_BLOCK_DEPTH - 4)),
    "reductions": body("B[i] = " + "".join(f"sum 2 k{n} {{ " for n in range(LOOPS)) + "A[i]" + " }" * LOOPS),
    "functions": "".join(f"fn g{n}(x: f32) {{ return {f'g{n + 1}(x)' if n < 59 else 'x'} }}\n" for n in range(60))
    + body("B[i] = g0(A[i])"),
    "shapes": f"kernel f(A: f32[{of('1 + (', 'N')}]) {{ par {of('1 + (', 'N')} i {{ A[i] = 1.0 }} }}",
    "extents that calls compare": "fn g(inout a: f32[n], b: f32[n]) { a[0] = b[0] }\n"
    + body("; ".join([f"g(A[0:{of('1 + max(2, ', 'N', 50)}], B[0:{of('1 + max(2, ', 'M', 50)}])"] * 2)).replace(
        "N]", "N], C: f32[M]", 1
    ),
    "lengths of a bare program": f"par N i {{ B[{of('max(N, ', 'i')}] = A[{of('(1 + ', 'i', 60, ') / 2')}] }}",
    "a bare program": f"par N i {{ B[{of('1 + (', 'i')}] = {of('sqrt(', 'A[i]')} }}",
}


def below(frames: int, call: Callable[[], tuple[Kernel, ...]]) -> tuple[Kernel, ...]:
    """The call from a stack that is so deep that only `frames` are left of it."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back

    def down(left: int) -> tuple[Kernel, ...]:
        return call() if left <= 0 else down(left - 1)

    return down(sys.getrecursionlimit() - depth - frames)


@pytest.mark.parametrize("name", DEEP)
def test_the_deepest_programs_are_checked_from_a_deep_stack(name: str) -> None:
    limit = sys.getrecursionlimit()
    module = parse_text(DEEP[name])
    check(module)  # so that the library is loaded
    (kernel,) = below(LEFT, lambda: check(module))
    below(LEFT, lambda: (bind_sizes(kernel, dict.fromkeys(free_sizes(kernel), 4)),))
    assert sys.getrecursionlimit() == limit


def test_readings_wait_for_one_another_on_a_list() -> None:
    stack = Stack()
    heights: list[int] = []

    async def count(left: int) -> int:
        heights.append(stack.height)
        try:
            return 1 + await Nested(count(left - 1)) if left else 0
        except ValueError:
            heights.append(-stack.height)
            raise

    assert stack.run(count(5000)) == 5000
    assert heights == list(range(5001))

    async def fails(left: int) -> int:
        if not left:
            raise ValueError("at the bottom")
        return await Nested(fails(left - 1))

    async def recovers() -> str:
        try:
            await Nested(fails(3000))
        except ValueError as found:
            return f"{found}, {stack.height}"
        return ""

    assert stack.run(recovers()) == "at the bottom, 0"
