"""Elements on the stack of a function for a CPU are memory that nobody has written."""

import re
from typing import Any

import numba

from texpr.codegen.cpu.library import stack_f32


def test_elements_on_the_stack_are_not_stored_one_by_one_before_they_are_used() -> None:
    def last(x: Any) -> Any:
        values = stack_f32(1024)
        for i in range(1024):
            values[i] = x + i
        return values[1023]

    compiled = numba.njit(numba.float32(numba.float32))(last)
    text = compiled.inspect_llvm(compiled.signatures[0])
    assert not re.search(r"store \[1024 x float\]|llvm\.memset", text)
    assert compiled(1.0) == 1024.0
