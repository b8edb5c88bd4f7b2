"""Sums of products in tiles: which bands run so, and that they compute what the program says."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stages import mapped, only_launch, proved, with_launch, without_barriers
from test_map_programs import arguments

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.codegen.toolchain import INCLUDE, NVCC_FLAGS, NVCC_WERROR, find_nvcc
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.layout.banks import bank_use
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.map.contracted_tiles import DEEP, bringing, factor_layout, lanes, square
from texpr.polyhedral.map.contraction import contracted_nest, contraction
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.objective import lane_values
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Cases, Contracted
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.names import Names
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
SEED = "kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) { par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } } }"
ADDED = """kernel k(A: f32[M, K], B: f32[K, N], inout C: f32[M, N]) {
    par M i, N j { seq K k { let x = A[i, k]; C[i, j] += B[k, j] * x } }
}"""
ALL_PAR = (
    "kernel k(A: f32[M, K], B: f32[K, N], inout C: f32[M, N]) { par K k, M i, N j { C[i, j] += A[i, k] * B[k, j] } }"
)
FLAT = """kernel k(A: f32[M * K], B: f32[K * N], C: f32[M * N]) {
    par M i, N j { C[i * N + j] = sum K k { A[i * K + k] * B[k * N + j] } }
}"""
AROUND = """kernel k(A: f32[M, K], B: f32[K, N], D: f32[N], E: f32[M, N], C: f32[M, N]) {
    par M i, N j {
        new s: f32
        s = D[j]
        seq K k { s += A[i, k] * B[k, j] }
        C[i, j] = select(s > 0.0, s, E[i, j])
    }
}"""
SQUARED = "kernel k(A: f32[M, K], C: f32[M, M]) { par M i, M j { C[i, j] = sum K k { A[i, k] * A[j, k] } } }"
BATCH = """kernel k(A: f32[P, M, K], B: f32[K, P, N], C: f32[P, M, N]) {
    par P p, M i, N j { C[p, i, j] = sum K k { A[p, i, k] * B[k, p, j] } }
}"""
SEVERAL = """kernel k(A: f32[M, P, K], B: f32[P, K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum P p, K k { A[i, p, k] * B[p, k, j] } }
}"""
WINDOWS = """kernel k(A: f32[P, C, M + 2], B: f32[N, C, 3], O: f32[P, N, M]) {
    par P p, N j, M i { O[p, j, i] = sum C c, 3 w { A[p, c, i + w] * B[j, c, w] } }
}"""
STEPS = """kernel k(A: f32[M, 2 * K], B: f32[2 * K, 3 * N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[M - 1 - i, 2 * k] * B[2 * K - 1 - k, 3 * j + 1] } }
}"""


def typed(
    factor: str, result: str, product: str = "A[i, k] * B[k, j]", *, left: str = "M, K", right: str = "K, N"
) -> str:
    return (
        f"kernel k(A: {factor}[{left}], B: {factor}[{right}], C: {result}[M, N]) "
        f"{{ par M i, N j {{ C[i, j] = sum K k {{ {product} }} }} }}"
    )


def choice(found: MappedProgram) -> Contracted | None:
    """Of the last case, where the sizes that a call gives decide: the others are tensor cores'."""
    own = found.candidate.otherwise if isinstance(found.candidate, Cases) else found.candidate
    assert isinstance(own, Candidate)
    *_, last = own.launches.values()
    return last if isinstance(last, Contracted) else None


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        (SEED, ("j", "i")),
        (ADDED, ("j", "i")),
        (ALL_PAR, ("j", "i")),
        (FLAT, ("j", "i")),
        (AROUND, ("j", "i")),
        (SQUARED, ("j", "i")),
        (BATCH, ("j", "i")),
        (SEVERAL, ("j", "i")),
        (WINDOWS, ("i", "j")),
        (STEPS, ("j", "i")),
        (typed("f64", "f64"), ("j", "i")),
        (typed("bf16", "f32"), ("j", "i")),
        (typed("i8", "i32", "i32(A[i, k]) * i32(B[k, j])"), ("j", "i")),
        (SEED.replace("C: f32[M, N]", "C: f32[N, M]").replace("C[i, j]", "C[j, i]"), ("i", "j")),
        (SEED.replace("par M i, N j {", "par M i, N j #tile(16, 32) {"), ("j", "i")),
        (SEED.replace("sum K k {", "sum i + 1 k {").replace("M, K", "M, M").replace("K, N", "M, N"), None),
        (SEED.replace("B[k, j]", "B[k, i]").replace("K, N", "K, M"), None),
        (SEED.replace("A[i, k] *", "A[i, k] * A[i, k] *"), None),
        (SEED.replace("A[i, k] *", "A[i, k] +"), None),
        (
            SEED.replace("M i, N j", "64 i, 64 j")
            .replace("M, K", "64, K")
            .replace("K, N", "K, 64")
            .replace("M, N", "64, 64"),
            None,
        ),
        (ADDED.replace("seq K k", "seq K k #ordered"), None),
        (
            SEED.replace("M i,", "8 i,").replace("M, K", "8, K").replace("M, N", "8, N"),
            None,
        ),
    ],
)
def test_sums_of_products_run_in_tiles_whatever_their_text(text: str, sides: tuple[str, str] | None) -> None:
    found = choice(mapped(text))
    assert (None if found is None else (found.along, found.across)) == sides


RAGGED = {"M": 66, "N": 67, "K": 19}
WHOLE = {"M": 128, "N": 64, "K": 16}
CASES = [("M, K", "A[i, k]"), ("K, M", "A[k, i]")], [("K, N", "B[k, j]"), ("N, K", "B[j, k]")]
SAME = [
    *(
        (typed("f32", "f32", f"{a} * {b}", left=left, right=right), sizes)
        for left, a in CASES[0]
        for right, b in CASES[1]
        for sizes in (WHOLE, RAGGED)
    ),
    *((text, RAGGED) for text in (ADDED, ALL_PAR, AROUND, FLAT, typed("f64", "f64"), typed("f16", "f32"))),
    (typed("i8", "i32", "i32(A[i, k]) * i32(B[k, j])"), WHOLE),
    (SQUARED, {"M": 66, "K": 20}),
    (BATCH, {"P": 2, "M": 70, "N": 64, "K": 20}),
    (SEVERAL, {"M": 64, "N": 66, "K": 5, "P": 4}),
    (WINDOWS, {"P": 2, "C": 6, "M": 70, "N": 64}),
    (STEPS, {"M": 66, "N": 64, "K": 18}),
    (ADDED, {"M": 64, "N": 65, "K": 16}),
]


@pytest.mark.parametrize(("text", "sizes"), SAME)
def test_tiles_of_products_compute_what_the_interpreter_computes(text: str, sizes: dict[str, int]) -> None:
    program = mapped(text, **sizes)
    assert choice(program) is not None
    found = simulate(program, arrays := arguments(program.kernel, sizes))
    for name, expected in interpret(program.kernel, arrays).outputs.items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ADDED, RAGGED),
        (ADDED, {"M": 64, "N": 1, "K": 0}),
        (ADDED, {"M": 5, "N": 64, "K": 8}),
        (SEVERAL, {"M": 6, "N": 64, "K": 3, "P": 5}),
        (SEVERAL, {"M": 6, "N": 64, "K": 0, "P": 5}),
    ],
)
def test_tiles_of_free_sizes_compute_what_the_interpreter_computes(text: str, sizes: dict[str, int]) -> None:
    program = mapped(text)
    assert choice(program) is not None
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays, sizes=sizes).outputs["C"]
    np.testing.assert_array_equal(simulate(program, arrays, sizes=sizes)["C"], expected)


@pytest.mark.gxx
def test_tiles_of_products_run_on_the_cpu_as_emitted() -> None:
    kept: list[tuple[Emitted, MappedProgram, dict[str, int]]] = []
    for number, (text, sizes) in enumerate(SAME[1::3]):
        program = mapped(text.replace("kernel k", f"kernel k{number}", 1), **(sizes if number % 2 else {}))
        assert choice(program) is not None
        kept.append((Emitted(program), program, sizes))
    module = HostModule("\n".join(emitted.source for emitted, *_ in kept), werror=True)
    for emitted, program, sizes in kept:
        arrays = arguments(program.kernel, sizes)
        own = sizes if program.kernel.sizes else {}
        expected = interpret(program.kernel, {n: a.copy() for n, a in arrays.items()}, sizes=own).outputs
        assert emitted.run(module, arrays) is None
        for name, wanted in expected.items():
            np.testing.assert_array_equal(arrays[name], wanted)


INDICES = ("p", "i", "j")


@st.composite
def contracted(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A sum of products of any order of dimensions and loops, and its sizes."""
    batch = draw(st.booleans())
    own = {"C": "pij" if batch else "ij", "A": "pik" if batch else "ik", "B": "pkj" if batch else "kj"}
    order = {name: draw(st.permutations(list(indices))) for name, indices in own.items()}
    factor, result, cast = draw(st.sampled_from([("f32", "f32", ""), ("f64", "f64", ""), ("f16", "f32", "f32")]))
    extents = {"i": "M", "j": "N", "k": "K", "p": "P"}
    buffers = ", ".join(
        f"{'inout ' * (n == 'C')}{n}: {result if n == 'C' else factor}[{', '.join(extents[x] for x in order[n])}]"
        for n in own
    )
    loops = ", ".join(f"{extents[x]} {x}" for x in draw(st.permutations(list(own["C"]))))
    a, b, c = (f"{name}[{', '.join(order[name])}]" for name in "ABC")
    value = f"{cast}({a}) * {cast}({b})" if cast else f"{a} * {b}"
    strict = " #strict" if factor == "f64" else ""  # else tensor cores may take it
    text = f"kernel k({buffers}) {{ par {loops} {{ seq K k {{ {c} += {value}{strict} }} }} }}"
    sizes = {
        "M": draw(st.sampled_from([65, 67, 72, 128])),  # of f64 two tiles at least, or no blocks are worth it
        "N": draw(st.sampled_from([65, 66, 72])),
        "K": draw(st.sampled_from([16, 17, 24])),
        **({"P": draw(st.integers(1, 2))} if batch else {}),
    }
    return text, sizes


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contracted())
def test_random_sums_of_products_compute_what_the_interpreter_computes(case: tuple[str, dict[str, int]]) -> None:
    text, sizes = case
    program = mapped(text, **sizes)
    assert choice(program) is not None
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays).outputs["C"]
    np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)


def test_the_text_of_the_seed_matmul(golden: Callable[[str, str], None]) -> None:
    program = mapped(SEED, M=2048, N=2048, K=2048)
    golden("cuda/contraction.cu", emit_cuda(plan(program), program.target).source)


@pytest.mark.nvcc
@pytest.mark.parametrize("product", ["A[i, k] * B[k, j]", "A[k, i] * B[j, k]"])
def test_a_product_keeps_its_sums_in_registers(product: str, tmp_path: Path) -> None:
    left, right = ("M, K", "K, N") if "A[i" in product else ("K, M", "N, K")
    program = mapped(typed("f32", "f32", product, left=left, right=right), M=2048, N=2048, K=2048)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in ptxas_says(program, tmp_path)


def ptxas_says(program: MappedProgram, folder: Path) -> str:
    """What the assembler says of a program: registers, and what is spilled."""
    text = folder / "k.cu"
    text.write_text(emit_cuda(plan(program), program.target).source)
    flags = [*NVCC_FLAGS, *NVCC_WERROR, "-gencode", "arch=compute_90a,code=sm_90a", "-I", str(INCLUDE), "-Xptxas", "-v"]
    command = [find_nvcc().path, *flags, "-cubin", "-o", str(folder / "k.cubin"), str(text)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_a_step_of_products_in_a_row_waits_once() -> None:
    by_turns = mapped(SEED, M=128, N=128, K=64)
    row = Candidate(launches={"k_0": replace(choice(by_turns) or pytest.fail("no tiles"), ahead=1)})
    program = mapped(SEED, choices=row, M=128, N=128, K=64)
    assert len(list(of_kind(only_launch(program).body, Barrier))) == 2  # one of them in the loop
    wrong = with_launch(program, without_barriers(only_launch(program)))
    with pytest.raises(TExprError, match="_tile"):
        simulate(wrong, arguments(program.kernel, {}))
    with pytest.raises(InternalError, match="no barrier orders"):
        check_orders(wrong)


@pytest.mark.parametrize("product", ["A[i, k] * B[k, j]", "A[k, i] * B[j, k]"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_warp_meets_in_few_banks_of_a_factor(product: str, dtype: str) -> None:
    left, right = ("M, K", "K, N") if "A[i" in product else ("K, M", "N, K")
    text, sizes = typed(dtype, dtype, product, left=left, right=right), {"M": 2048, "N": 2048, "K": 2048}
    text = text.replace("} } }", "} #strict } }")  # of f64 tensor cores take others
    program = mapped(text, **sizes)
    problem, found = problem_of(proved(text, **sizes), program), choice(program)
    assert found is not None
    (region,) = problem.regions()
    one = contraction(problem, contracted_nest(region), found)
    assert one is not None

    def values(pieces: tuple[tuple[str, int], ...], each: dict[str, int]) -> Any:
        ways = tuple(each)
        dealt = tuple((ways.index(way), n) for way, n in pieces)
        return lane_values(thread_digits(ways, dealt, Names(()), 32, each), ways, 32)

    for side in found.tile:
        own = bringing(problem, one, found, side)
        layout, size = factor_layout(one, found, own), one.dtype.size_bytes
        put = values(own.pieces, {way: own.each(way) for way in own.threads})
        zero = 0 * put[DEEP]
        width = 1 if own.turned else own.width
        assert bank_use(layout, size, [zero, put[DEEP], put[side]], SM90, width=width).degree <= 1 + own.turned
        taken = values(lanes(found, 32), dict.fromkeys((found.along, found.across), square(one)))[side]
        assert bank_use(layout, size, [zero, zero, taken], SM90, width=square(one)).degree == 1


def test_a_long_sum_of_products_has_short_chains() -> None:
    for sizes in ({}, {"M": 512, "N": 512, "K": 1 << 20}):
        program = mapped(SEED, **sizes)
        assert choice(program) is not None
        found = sums(program, {"M": 64, "N": 64, "K": 1 << 20} if not sizes else {})
        assert found["C"].chain <= CHAIN + 2 and found["C"].partials >= (1 << 20) // CHAIN
    short = sums(mapped(SEED, M=2048, N=2048, K=CHAIN), {})
    assert short["C"].partials == 1 and "C_total" not in short


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"along": "i"}, "`along` and `across`: i, i are no sides of a sum of products"),
        ({"tile": {"i": 128}}, "`tile` gives i, j powers of two up to 256"),
        ({"tile": {"i": 96, "j": 128}}, "`tile` gives i, j powers of two up to 256"),
        ({"each": {"i": 8, "j": 3}}, "`each` gives i, j powers of two up to 256"),
        ({"each": {"i": 8, "j": 2}}, "`each` gives a thread no squares of 4 by 4 of the tile"),
        ({"each": {"i": 16, "j": 16}, "threads": 64}, "`each`: a thread has 512 bytes for its sums"),
        ({"depth": 12}, "`depth` is a power of two up to 64"),
        ({"depth": 1}, "`depth`: 256 threads have no equal shares of what 1 products need"),
        ({"threads": 128}, "a tile has shares for 256 threads, and the candidate has 128"),
        ({"threads": 48}, "a block cannot have 48 threads"),
        ({"parts": 9}, "`parts`: 9 blocks share fewer steps"),
        ({"ahead": 3}, "`ahead` is 1 or 2, and no more than the depth"),
        ({"resident": 9}, "`resident`: a multiprocessor has room for 2048 threads"),
        (
            {"tile": {"i": 256, "j": 256}, "each": {"i": 8, "j": 8}, "threads": 1024, "depth": 64},
            "bytes of shared memory",
        ),
        ({"grid": ("i",)}, "`grid` orders i; the band has i, j"),
    ],
)
def test_tiles_of_products_that_do_not_fit_are_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    sizes = {"M": 2048, "N": 2048, "K": 64}
    found = choice(mapped(SEED, **sizes))
    assert found is not None
    fitting = replace(found, threads=256, each={"i": 8, "j": 8}, depth=8, ahead=1)
    mapped(SEED, choices=Candidate(launches={"k_0": fitting}), **sizes)
    wrong = Candidate(launches={"k_0": replace(fitting, **changes)})
    with pytest.raises(TExprError, match=said) as refused:
        map_program(proved(SEED, **sizes), SM90, choices=wrong)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]


@pytest.mark.parametrize(
    ("text", "sizes", "parts"),
    [
        (ADDED, {"M": 130, "N": 66, "K": 80}, 2),
        (ADDED, {"M": 70, "N": 129, "K": 75}, 3),
        (AROUND, {"M": 70, "N": 66, "K": 37}, 3),
        (typed("f64", "f64"), {"M": 130, "N": 66, "K": 40}, 2),
    ],
)
def test_blocks_that_share_the_products_of_a_tile_compute_the_same(
    text: str, sizes: dict[str, int], parts: int
) -> None:
    found = choice(mapped(text, **sizes))
    assert found is not None and found.parts == 1
    program = mapped(text, choices=Candidate(launches={"k_0": replace(found, parts=parts)}), **sizes)
    arrays = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, arrays).outputs["C"]
    np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)


def test_blocks_share_products_where_tiles_are_few() -> None:
    counts = {n: choice(mapped(SEED, M=n, N=n, K=k)) for n, k in ((1000, 1000), (4096, 4096), (256, 65536))}
    parts = {n: found.parts for n, found in counts.items() if found is not None}
    assert parts[4096] == 1 and parts[1000] > 1 and parts[256] >= 16


def test_a_sum_that_blocks_share_has_short_chains() -> None:
    program = mapped(SEED, M=256, N=256, K=65536)
    own, found = choice(program), sums(program, {})
    assert own is not None and found["C"].chain <= CHAIN + 1 and found["C"].partials == own.parts


def test_other_tiles_compute_the_same() -> None:
    """As a tuner has them: threads with other shares, deeper, more of them together."""
    sizes = {"M": 130, "N": 132, "K": 40}
    found = choice(mapped(SEED, **sizes))
    assert found is not None
    for high, wide, own, depth in (
        (64, 64, (4, 4), 16),
        (128, 64, (8, 4), 16),
        (256, 128, (16, 8), 8),
        (32, 64, (4, 8), 32),
    ):
        other = replace(
            found,
            threads=high * wide // (own[0] * own[1]),
            tile={"i": high, "j": wide},
            each={"i": own[0], "j": own[1]},
            depth=depth,
            ahead=2 if depth == 16 else 1,
            resident=0,
        )
        program = mapped(SEED, choices=Candidate(launches={"k_0": other}), **sizes)
        arrays = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, arrays).outputs["C"]
        np.testing.assert_array_equal(simulate(program, arrays)["C"], expected)
