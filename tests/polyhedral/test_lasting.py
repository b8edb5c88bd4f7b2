"""What the L2 gives up first and last of long arrays: which launches ask so, and that they compute the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved
from test_map_programs import arguments

import texpr
from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Candidate, Cases, widths_of
from texpr.polyhedral.mapped.candidate_json import candidate_json, read_candidate
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
FULL = {"M": 32768, "N": 4096}
TURNED = "kernel k(A: {t}[M, N], B: {t}[N, M]) {{ par M i, N j {{ B[j, i] = A[i, j] }} }}"
ADDED = "kernel k(A: {t}[M, N], V: {t}[N], B: {t}[M, N]) {{ par M i, N j {{ B[i, j] = A[i, j] + V[j] }} }}"
IN_PLACE = "kernel k(inout A: f32[M, N]) { par M i, N j { A[i, j] = A[i, j] + 1.0 } }"
BESIDE = "kernel k(inout A: f32[M, N], C: f32[M, N]) { par M i, N j { A[i, j] = A[i, j] + C[i, j] } }"
GATHERED = "kernel k(T: f32[M, N], W: i32[M], B: f32[M, N]) { par M i, N j { B[i, j] = T[W[i], j] } }"
SCALED = """kernel k(A: {t}[M, N], B: {t}[M, N]) {{
    par M i {{
        let most = maximum N j {{ f32(A[i, j]) }}
        let all = sum N j {{ exp(f32(A[i, j]) - most) }}
        par N j {{ B[i, j] = {t}(exp(f32(A[i, j]) - most) / all) }}
    }}
}}"""
CENTRED = """kernel k(A: bf16[M, N], G: bf16[N], B: bf16[M, N]) {
    par M i {
        let mean = (sum N j { f32(A[i, j]) }) / f32(N)
        let spread = (sum N j { (f32(A[i, j]) - mean) * (f32(A[i, j]) - mean) }) / f32(N)
        par N j { B[i, j] = bf16((f32(A[i, j]) - mean) * rsqrt(spread + 1.0e-5) * f32(G[j])) }
    }
}"""
RUNNING = """kernel k(A: f32[M, N], B: f32[M, N]) {
    par M i { new s: f32; s = 0.0; seq N j { s += A[i, j]; B[i, j] = s } }
}"""
SUMS = "kernel k(A: f32[M, N], B: f32[M]) { par M i { B[i] = sum N j { A[i, j] } } }"
COLUMNS = "kernel k(A: f32[M, N], B: f32[N]) { par N j { B[j] = sum M i { A[i, j] } } }"
POOLED = """kernel k(A: f32[M, 4 * N], B: f32[M, N]) {
    par M i, N j { B[i, j] = A[i, 4 * j] + A[i, 4 * j + 1] + A[i, 4 * j + 2] + A[i, 4 * j + 3] }
}"""
PRODUCT = "kernel k(A: f32[M, N], B: f32[M, M]) { par M i, M j { B[i, j] = sum N n { A[i, n] * A[j, n] } } }"


TWICE = """kernel k(A: f32[M, N], B: f32[2]) {
    B[0] = sum M i, N j { A[i, j] }
    B[1] = sum M i, N j { A[i, j] * A[i, j] }
}"""
SPREAD = """kernel k(A: f32[N], B: f32[]) {
    let mean = (sum N i { A[i] }) / f32(N)
    B = (sum N i { (A[i] - mean) * (A[i] - mean) }) / f32(N)
}"""
COUNTED = "kernel k(K: i32[N], H: i32[256]) { par N i { atomic H[K[i]] += 1 } }"


def found_launches(text: str, target: str = "cuda:sm_90a", **sizes: int) -> list[Launch]:
    program = texpr.parse(text).only.compile(target, sizes=sizes, stop_after="map").mapping.program
    assert isinstance(program, MappedProgram)
    return list(launches(program.host))


def lasting(text: str, target: str = "cuda:sm_90a", **sizes: int) -> list[tuple[str, ...]]:
    return [launch.lasting for launch in found_launches(text, target, **sizes)]


def passing(text: str, target: str = "cuda:sm_90a", **sizes: int) -> list[tuple[str, ...]]:
    return [launch.passing for launch in found_launches(text, target, **sizes)]


@pytest.mark.parametrize(
    ("text", "rows", "columns", "arrays"),
    [
        (TURNED.format(t="bf16"), 32768, 4096, ("A",)),
        (TURNED.format(t="f32"), 32749, 4093, ("A",)),
        (TURNED.format(t="bf16"), 257, 100003, ("A",)),
        (TURNED.format(t="bf16"), 4096, 4096, ()),  # which the L2 holds
        (TURNED.format(t="f32"), 4096, 4096, ("A",)),
        (ADDED.format(t="bf16"), 32768, 4096, ("A",)),  # V is short
        (IN_PLACE, 32768, 4096, ()),  # what is written is not to last
        (BESIDE, 32768, 4096, ("C",)),
        (GATHERED, 32768, 4096, ("T",)),
        (SCALED.format(t="f32"), 32768, 4096, ("A",)),
        (SCALED.format(t="bf16"), 32749, 4093, ("A",)),
        (SCALED.format(t="bf16"), 4096, 4096, ()),
        (CENTRED, 32768, 4096, ("A",)),
        (CENTRED, 32749, 4093, ()),  # ragged, beside vectors
        (RUNNING, 32768, 4096, ("A",)),
        (POOLED, 32768, 1024, ("A",)),
        (SUMS, 32768, 4096, ()),  # nothing would make room
        (PRODUCT, 4096, 4096, ()),  # what is read is read again
    ],
)
def test_long_arrays_last_where_about_as_much_is_written(
    text: str, rows: int, columns: int, arrays: tuple[str, ...]
) -> None:
    assert lasting(text, M=rows, N=columns) == [arrays]
    assert not any(lasting(text, "cpu", M=rows, N=columns))


@pytest.mark.parametrize(("target", "arrays"), [("cuda:sm_80", ("A",)), ("cuda:sm_100a", ()), ("cuda:sm_120a", ())])
def test_what_is_long_depends_on_the_l2(target: str, arrays: tuple[str, ...]) -> None:
    assert lasting(TURNED.format(t="f32"), target, M=4096, N=4096) == [arrays]  # 67 MB; they hold 40, 126 and 96


@pytest.mark.parametrize(
    ("text", "sizes", "arrays"),
    [
        (SUMS, {"M": 32768, "N": 4096}, [("A",)]),
        (SUMS, {"M": 1024, "N": 4096}, [()]),
        (COLUMNS, {"M": 32768, "N": 4096}, [("A",)]),
        (COLUMNS, {"M": 32749, "N": 4093}, [("A",)]),  # neighbouring blocks read some chunks twice
        (COUNTED, {"N": 1 << 26}, [("K",)]),
        (COUNTED, {"N": 1 << 20}, [()]),
        (TURNED.format(t="f32"), {"M": 32768, "N": 4096}, [()]),  # what is written makes room
        (PRODUCT, {"M": 4096, "N": 4096}, [()]),
        (SPREAD, {"N": 1 << 26}, None),  # the second sum reads what the first one read
        (TWICE, {"M": 32768, "N": 4096}, None),
    ],
)
def test_long_arrays_pass_where_they_are_read_once_and_little_is_written(
    text: str, sizes: dict[str, int], arrays: list[tuple[str, ...]] | None
) -> None:
    found = passing(text, **sizes)
    assert found == arrays if arrays is not None else not any(found)
    assert not any(passing(text, "cpu", **sizes))


def test_narrow_elements_that_are_read_one_by_one_are_asked_nothing() -> None:
    text = """kernel k(A: {t}[B, 3, H], Y: {t}[B, H, 3]) {{ par B b, H h, 3 c {{ Y[b, h, c] = A[b, c, h] }} }}"""
    sizes = {"B": 1028, "H": 33473}
    assert lasting(text.format(t="bf16"), **sizes) == [()] and lasting(text.format(t="f32"), **sizes) == [("A",)]


def test_of_free_sizes_threads_that_load_one_element_do_not_ask() -> None:
    program = mapped(SCALED.format(t="bf16"))
    assert isinstance(program.candidate, Cases)
    found = [case.candidate for case in program.candidate.cases]
    wide = [any(widths_of(choice) for choice in one.launches.values()) for one in found]
    assert [bool(one.lasting) for one in found] == wide and True in wide and False in wide


@pytest.mark.parametrize("text", [TURNED.format(t="f32"), ADDED.format(t="bf16"), RUNNING])
def test_of_free_sizes_the_kernel_asks_how_long_an_array_is(text: str) -> None:
    """And computes the same, also in tiles and rows that are cut."""
    sizes = {"M": 19, "N": 147}
    program = mapped(text)
    assert isinstance(program.candidate, Candidate)
    launches_so = only_launch(program)
    assert program.candidate.lasting == {"k_0"} and "A" in launches_so.lasting and "B" not in launches_so.lasting
    emitted, arrays = Emitted(program), arguments(program.kernel, sizes)
    size = 2 if "bf16" in text else 4
    assert f"(tx::lasting(A_data, M * N * {size} > 50000000)" in emitted.source
    expected = interpret(program.kernel, {name: np.copy(array) for name, array in arrays.items()}).outputs["B"]
    assert emitted.run(HostModule(emitted.source, werror=True), arrays) is None
    np.testing.assert_allclose(
        arrays["B"].astype(np.float64), expected.astype(np.float64), rtol=0.02 if size == 2 else 1e-5
    )


def test_of_known_sizes_it_asks_nothing_and_the_mapping_says_so() -> None:
    program = mapped(TURNED.format(t="bf16"), M=32768, N=4096)
    assert "A(tx::lasting(A_data), " in Emitted(program).source
    assert "  the L2 gives up last what was read of A\n" in show(program)
    short = mapped(TURNED.format(t="bf16"), M=1024, N=4096)
    assert "lasting" not in Emitted(short).source and "gives up" not in show(short)


def test_a_mapping_file_may_leave_it_or_ask_for_it() -> None:
    sizes = {"M": 32768, "N": 4096}
    text = SUMS
    found = mapped(text, **sizes).candidate
    assert isinstance(found, Candidate) and not found.lasting and found.passing == {"k_0"}
    found = replace(found, passing=frozenset())
    assert only_launch(map_program(proved(text, **sizes), SM90, choices=found)).passing == ()
    asked = replace(found, lasting=frozenset({"k_0"}))
    assert read_candidate(candidate_json(asked)) == asked
    program = map_program(proved(text, **sizes), SM90, choices=asked)
    assert only_launch(program).lasting == ("A",) and "tx::lasting(A_data)" in Emitted(program).source
    assert read_candidate({k: v for k, v in candidate_json(asked).items() if k != "lasting"}) == found
    short = map_program(proved(text, M=64, N=64), SM90, choices=asked)  # a mapping is for all sizes
    assert only_launch(short).lasting == () and "lasting" not in Emitted(short).source


@pytest.mark.parametrize(
    ("text", "sizes", "field", "changes", "code", "said"),
    [
        (IN_PLACE, FULL, "lasting", ["k_0"], "E0401", "`lasting`: k_0 reads no array that it does not write"),
        (IN_PLACE, FULL, "passing", ["k_0"], "E0401", "`passing`: k_0 reads no array that it does not write"),
        (TURNED.format(t="f32"), FULL, "lasting", ["k_1"], "E0401", "`lasting`: k_1 reads no array"),
        (TURNED.format(t="f32"), FULL, "passing", ["k_0"], "E0401", "`passing`: k_0 is in `lasting`"),
        (TURNED.format(t="f32"), FULL, "lasting", True, "E0607", "lasting is"),
    ],
)
def test_what_the_l2_cannot_be_asked_is_refused(
    text: str, sizes: dict[str, int], field: str, changes: Any, code: str, said: str
) -> None:
    found = mapped(text, **sizes).candidate
    assert isinstance(found, Candidate)
    with pytest.raises(TExprError, match=said) as refused:
        map_program(proved(text, **sizes), SM90, choices=read_candidate({**candidate_json(found), field: changes}))
    assert [d.code for d in refused.value.diagnostics] == [code]
