"""Many sums of whole tiles, whose products are made by turns: the last one of a step in the next step."""

from dataclasses import replace

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, with_launch, without_barriers
from test_long_sums import EVERY
from test_map_programs import arguments

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.mapped.candidate import Candidate, Contracted
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

WAYS = {"M, K": "A[i, k]", "K, M": "A[k, i]"}, {"K, N": "B[k, j]", "N, K": "B[j, k]"}


def text(a: str = "M, K", b: str = "K, N", name: str = "k") -> str:
    return (
        f"kernel {name}(A: f32[{a}], B: f32[{b}], inout C: f32[M, N]) "
        f"{{ par M i, N j {{ seq K k {{ C[i, j] += {WAYS[0][a]} * {WAYS[1][b]} }} }} }}"
    )


def turned(
    source: str, *, parts: int = 1, depth: int = 16, each: tuple[int, int] = (8, 16), **sizes: int
) -> MappedProgram:
    """The product in tiles of 64 x 64, of which a thread has 8 x 16."""
    (found,) = mapped(text(), M=2048, N=2048, K=2048).candidate.launches.values()
    assert isinstance(found, Contracted)
    tile, own = {"i": 64, "j": 64}, dict(zip("ij", each, strict=True))
    other = replace(
        found,
        threads=64 * 64 // (each[0] * each[1]),
        tile=tile,
        each=own,
        depth=depth,
        ahead=2,
        parts=parts,
        resident=0,
    )
    name = source.split("(")[0].split()[1]
    program = mapped(source, choices=Candidate(launches={f"{name}_0": other}), **sizes)
    assert any(loop.unroll_by == 1 and loop.index.startswith("k_deep") for loop in of_kind(_body(program), Loop))
    return program


def _body(program: MappedProgram):
    return only_launch(program).body


SIZES = {"M": 64, "N": 128, "K": 48}


@pytest.mark.parametrize("a", WAYS[0])
@pytest.mark.parametrize("b", WAYS[1])
def test_products_by_turns_compute_what_the_interpreter_computes(a: str, b: str) -> None:
    for k, parts in ((16, 1), (48, 1), (96, 2)):
        program = turned(text(a, b), parts=parts, **{**SIZES, "K": k})
        arrays = arguments(program.kernel, {})
        expected = interpret(program.kernel, arrays).outputs["C"]
        if parts == 1:
            np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)
        else:
            np.testing.assert_allclose(simulate(program, arrays)["C"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("free", [False, True])
def test_cut_tiles_by_turns_compute_the_same(free: bool) -> None:
    few = [(1, 130, 15), (65, 64, 0), (0, 64, 16)]  # which are no sides of a product where they are known
    for m, n, k in [(61, 115, 37), (33, 130, 15), *(few if free else [])]:
        sizes = {"M": m, "N": n, "K": k}
        bound, left = ({}, sizes) if free else (sizes, {})
        program = turned(text(), **bound)
        arrays = arguments(program.kernel, left)
        expected = interpret(program.kernel, arrays, sizes=left).outputs["C"]
        np.testing.assert_array_equal(simulate(program, arrays, sizes=left)["C"], expected)


@pytest.mark.parametrize("dtype", ["f64", "i32", "f16"])
def test_other_types_go_by_turns_as_well(dtype: str) -> None:
    each = {"f64": (8, 8), "i32": (8, 16), "f16": (8, 16)}[dtype]
    source = text().replace("A: f32", f"A: {dtype}").replace("B: f32", f"B: {dtype}")
    source = source.replace("C: f32", f"C: {'f32' if dtype == 'f16' else dtype}")
    program = turned(source, each=each, M=67, N=70, K=35)
    arrays = arguments(program.kernel, {})
    expected = interpret(program.kernel, arrays).outputs["C"]
    np.testing.assert_allclose(simulate(program, arrays)["C"], expected, rtol=1e-6)


def test_a_product_of_zeros_is_no_addition() -> None:
    assert sums(turned(text(), M=64, N=64, K=4096), {})["C_sum"].additions == 4096


def test_a_long_sum_by_turns_has_the_last_product_of_each_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chunks that are shorter than those of users: the simulator runs each step."""
    for module in (module for module in EVERY if "CHAIN" in vars(module)):
        monkeypatch.setattr(module, "CHAIN", 512)
    program = turned(text(), M=64, N=64, K=512 + 32)
    assert sums(program, {})["C_sum"].additions == 512 and "C_total" in program.buffers
    ones = {name: np.ones_like(array) for name, array in arguments(program.kernel, {}).items()}
    np.testing.assert_array_equal(simulate(program, ones)["C"], np.full((64, 64), 512 + 33, np.float32))


@pytest.mark.gxx
def test_products_by_turns_run_on_the_cpu_as_emitted() -> None:
    kept = []
    for number, (a, b) in enumerate((a, b) for a in WAYS[0] for b in WAYS[1]):
        program = turned(text(a, b, f"k{number}"), **SIZES)
        kept.append((Emitted(program), program))
    module = HostModule("\n".join(emitted.source for emitted, _ in kept), werror=True)
    for emitted, program in kept:
        arrays = arguments(program.kernel, {})
        expected = interpret(program.kernel, {n: a.copy() for n, a in arrays.items()}).outputs["C"]
        assert emitted.run(module, arrays) is None
        np.testing.assert_array_equal(arrays["C"], expected)


def test_one_barrier_of_a_step_orders_products_by_turns() -> None:
    program = turned(text(), **SIZES)
    assert len(list(of_kind(_body(program), Barrier))) == 1
    wrong = with_launch(program, without_barriers(only_launch(program)))
    with pytest.raises(TExprError, match="_tile"):
        simulate(wrong, arguments(program.kernel, {}))
    with pytest.raises(InternalError, match="no barrier orders"):
        check_orders(wrong)


def test_the_text_has_each_part_once_and_accesses_of_many_are_an_address_and_a_number() -> None:
    program = turned(text(), **SIZES)
    source = emit_cuda(plan(program), program.target).source
    assert source.count("tx::load<4>(A_tile") == 2 and source.count("tx::store(B_tile") == 1
    assert source.count("tx::fma(") == 3 and source.count("tx::sync_") == 1
    assert source.count("tx::apart(") == 2 + 4  # of C, and of what both turns take of both tiles
