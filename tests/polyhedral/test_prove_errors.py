"""Programs that the proofs refuse, each beside the text of its diagnostics in `tests/errors/`.

A first line `-- sizes: N = 8, M = 4` binds sizes; the others are free.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from texpr.grammar.ast import IndexConst, Kernel, Role
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.prove.stage import prove

ERRORS = Path(__file__).parent.parent / "errors"
PROGRAMS = sorted(ERRORS.glob("prove_*.tex"))


def kernel_of(path: Path) -> Kernel:
    text = path.read_text(encoding="utf-8")
    first = text.splitlines()[0]
    sizes = {n: int(v) for n, v in re.findall(r"(\w+) = (\d+)", first)} if first.startswith("-- sizes:") else {}
    (kernel,) = check(parse(SourceText(path.name, text)), folder=path.parent)
    return bind_sizes(kernel, sizes)


def refusal(path: Path) -> TExprError:
    with pytest.raises(TExprError) as refused:
        prove(build_program(kernel_of(path)))
    return refused.value


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_is_refused_with_its_least_witness(path: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"../errors/{path.stem}.txt", f"{refusal(path)}\n")


def test_every_code_of_the_proofs_has_a_program() -> None:
    refused = "".join(path.with_suffix(".txt").read_text(encoding="utf-8") for path in PROGRAMS)
    assert set(re.findall(r"error\[(E03\d\d)\]", refused)) == {f"E030{n}" for n in range(1, 9)}


# Numbers beyond 64 bits have no meaning to execute; `#ordered` changes only rounding, so a run cannot show it; a stride
# is no part of an interpreted element; an update of an undefined element defines it for the rest of a run.
NOT_EXECUTED = {
    "prove_index_beyond_64_bits",
    "prove_ordered_around_a_reduction",
    "prove_overlapping_strides",
    "prove_out_read_first",
}
BOUND = [p for p in PROGRAMS if p.stem not in NOT_EXECUTED and not kernel_of(p).sizes]


@pytest.mark.parametrize("path", BOUND, ids=lambda path: path.stem)
def test_execution_finds_what_the_proofs_refuse(path: Path) -> None:
    kernel = kernel_of(path)
    arrays = {}
    for buffer in kernel.params:
        if buffer.role is Role.PARAM:
            shape = [extent.value for extent in buffer.shape if isinstance(extent, IndexConst)]
            # Integers are gathered subscripts here: all of them meet at 0. Floats satisfy the conditions.
            arrays[buffer.name] = np.full(shape, 0 if buffer.dtype.is_integer else 1, storage(buffer.dtype))
    found = {v.code for v in interpret(kernel, arrays, mode="exact", collect=True).violations}
    assert {d.code for d in refusal(path).diagnostics} <= found
