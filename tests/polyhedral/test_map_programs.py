"""Programs of `programs/` are mapped as their golden texts say, and run as the interpreter does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages import barriers, without_barrier

from texpr.grammar.ast import Kernel, Role
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.grammar.text.parser import parse_text
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.orders.flow import unenforced
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.tex"))
TARGETS = ("cuda:sm_90a", "cpu")
# The simulator runs the loops of a core one step at a time.
SLOW_ON_A_CORE = {"local_too_large_for_shared", "large_local_of_a_thread"}


def read(name: str) -> tuple[Kernel, dict[str, int]]:
    """A program and the sizes that its first line names."""
    text = (PROGRAMS / f"{name}.tex").read_text(encoding="utf-8")
    first = text.splitlines()[0].removeprefix("-- sizes:")
    sizes = {key: int(value) for key, _, value in (part.partition("=") for part in first.split())}
    return check(parse_text(text))[0], sizes


def mapped(kernel: Kernel, target: str) -> MappedProgram:
    return map_program(prove(build_program(kernel)), parse_target(target))


def arguments(kernel: Kernel, sizes: dict[str, int]) -> dict[str, Any]:
    """Small whole numbers, so that sums are exact in any order."""
    random = np.random.default_rng(len(kernel.name))
    found: dict[str, Any] = {}
    for buffer in kernel.params:
        shape = [int(index_value(extent, sizes)) for extent in buffer.shape]
        values = random.integers(-3, 4, shape).astype(storage(buffer.dtype))
        found[buffer.name] = values if buffer.role is Role.PARAM else values[()]
    return found


def variants() -> Iterator[tuple[str, str, bool]]:
    for name in NAMES:
        for target in TARGETS:
            if target == "cpu" and name in SLOW_ON_A_CORE:
                continue
            yield name, target, True
            if name not in ("seed_matmul", "pinned_levels"):
                yield name, target, False


@pytest.mark.parametrize(("name", "target", "bound"), list(variants()))
@pytest.mark.sampled(3)
def test_a_mapped_program_computes_what_the_interpreter_computes(name: str, target: str, bound: bool) -> None:
    kernel, sizes = read(name)
    program = mapped(bind_sizes(kernel, sizes) if bound else kernel, target)
    given = arguments(program.kernel, sizes)
    got = simulate(program, given, seed=1)
    expected = interpret(program.kernel, given).outputs
    assert got.keys() == expected.keys()
    for buffer in got:
        np.testing.assert_allclose(got[buffer], expected[buffer], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_barriers_enforce_every_order_and_none_can_go(name: str) -> None:
    kernel, _ = read(name)
    for launch in launches(mapped(kernel, "cuda:sm_90a").host):
        assert unenforced(launch) == ()
        assert bool(barriers(launch)) == bool(launch.orders)
        for number in range(len(barriers(launch))):
            assert unenforced(without_barrier(launch, number))


@pytest.mark.parametrize("name", NAMES)
def test_the_mapping_prints_as_its_golden_text(name: str, golden: Any) -> None:
    kernel, _ = read(name)
    for target in TARGETS:
        golden(f"map/{name}.{target.partition(':')[0]}.txt", show(mapped(kernel, target)))
