"""Boxes of parameters: never smaller than what a run touches, and tight where one affine bound says it all."""

from brute_force import execute, number
from hypothesis import given, settings
from hypothesis import strategies as st
from random_kernels import random_kernel
from stages import program

from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.prove.boxes import boxes


def box_at(text: str, **sizes: int) -> dict[str, list[tuple[int, int]]]:
    """The boxes of a program with free sizes, as numbers at some sizes."""
    found = boxes(program(text))
    return {name: [(number(low, sizes), number(high, sizes)) for low, high in box] for name, box in found.items()}


def test_a_box_is_what_is_touched_and_empty_where_nothing_is() -> None:
    text = "kernel f(A: f32[N, M], B: f32[N + 2], C: f32[9]) { par 1..N - 1 i { B[i] = A[i, 3] + A[i - 1, 0] } }"
    assert box_at(text, N=10, M=7) == {"A": [(0, 9), (0, 4)], "B": [(1, 9)], "C": [(0, 0)]}


def test_bounds_of_several_pieces_are_the_whole_extent() -> None:
    text = "kernel f(A: f32[N], B: f32[M]) where M >= 1 { par min(N, M) i { A[i] = B[i] } }"
    assert box_at(text, N=10, M=7) == {"A": [(0, 10)], "B": [(0, 7)]}


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_no_run_touches_an_element_outside_its_box(seed: int) -> None:
    kernel = random_kernel(seed, ("N",))
    found = boxes(build_program(kernel))
    for size in range(5):
        at = {"N": size}
        for touch in execute(kernel, at).touches:
            name, shape = str(touch.key[0]), kernel.buffer(str(touch.key[0])).shape
            if name in found and all(0 <= e < number(n, at) for e, n in zip(touch.element, shape, strict=True)):
                sides = zip(touch.element, found[name], strict=True)
                assert all(number(low, at) <= e < number(high, at) for e, (low, high) in sides), (touch, found[name])
