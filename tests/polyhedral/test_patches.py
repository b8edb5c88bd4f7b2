"""Patches: what neighbouring iterations read in common is loaded once, and held in windows in a thread's registers."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved
from stencils import stencil
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.long_sums import carried_wide
from texpr.polyhedral.map.problem import make_problem
from texpr.polyhedral.map.windows import Patch, flat_patch
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

JACOBI = """kernel k(X: f32[M, N], inout Y: f32[M, N]) {
    par 1..M - 1 i, 1..N - 1 j { Y[i, j] = X[i, j] + X[i, j - 1] + X[i, j + 1] + X[i - 1, j] + X[i + 1, j] }
}"""
HEAT = """kernel k(X: f32[D, M, N], inout Y: f32[D, M, N]) {
    par 1..D - 1 d, 1..M - 1 i, 1..N - 1 j { Y[d, i, j] = X[d, i, j - 1] + X[d, i, j + 1] + X[d, i - 1, j]
        + X[d, i + 1, j] + X[d - 1, i, j] + X[d + 1, i, j] }
}"""
BLUR = "kernel k(X: bf16[N + 2], Y: bf16[N]) { par N j { Y[j] = X[j] + X[j + 1] + X[j + 2] } }"
COPY = "kernel k(X: f32[M, N], Y: f32[M, N]) { par M i, N j { Y[i, j] = X[i, j] } }"
LOOK_UP = (
    "kernel k(R: i32[M], X: f32[V, N + 1], Y: f32[M, N]) { par M i, N j { Y[i, j] = X[R[i], j] + X[R[i], j + 1] } }"
)
BELOW = "kernel k(X: f32[M, N], Y: f32[M, N]) { par M - 1 i, N j #tile(8, 128) { Y[i, j] = X[i, j] + X[i + 1, j] } }"
TURNED = "kernel k(X: f32[M, N + 1], Y: f32[M, N]) { par M i, i j { Y[i, j] = X[i, j] + X[i, j + 1] } }"


TWO_MOVE = (  # one row down is another place of two dimensions, and no shifted copy
    "kernel k(X: f32[M + 1, 83], Y: f32[M, N]) { par M i, N j { Y[i, j] = X[i, i + j] + X[i + 1, i + j] } }",
    "kernel k(X: f32[M, M + 1, N], Y: f32[M, N]) { par M i, N j { Y[i, j] = X[i / 2, i, j] + X[i / 2, i + 1, j] } }",
    "kernel k(X: f32[M + 1, M + 1, N], Y: f32[M, N]) { par M i, N j { Y[i, j] = X[i, i, j] + X[i + 1, i, j] } }",
)


def flat(program: MappedProgram) -> Flat:
    assert isinstance(program.candidate, Candidate)
    (found,) = program.candidate.launches.values()
    assert isinstance(found, Flat)
    return found


def with_rows(text: str, sizes: dict[str, int], rows: dict[str, int]) -> MappedProgram:
    first = mapped(text, **sizes)
    assert isinstance(first.candidate, Candidate)
    (name,) = first.candidate.launches
    return mapped(text, choices=Candidate(launches={name: replace(flat(first), patch=rows)}), **sizes)


def patch(text: str, rows: dict[str, int], **sizes: int) -> Patch | None:
    """The patch of so many rows of a kernel's band."""
    kept = keep_nothing(proved(text, **sizes))
    given = make_problem(kept, carried_wide(kept.proved.program, kept.long), parse_target("cuda:sm_90a"), {})
    (region,) = given.regions()
    return flat_patch(given, region.nest[0], replace(flat(mapped(text, **sizes)), patch=rows))


@pytest.mark.parametrize(
    ("text", "sizes", "rows", "deal"),
    [
        (JACOBI, {"M": 32768, "N": 4096}, {"i": 2}, (("j", 64), ("i", 4))),
        (JACOBI, {"M": 32749, "N": 4093}, {"i": 2}, (("j", 64), ("i", 4))),
        (JACOBI.replace("f32", "bf16"), {"M": 32749, "N": 4093}, {"i": 2}, (("j", 32), ("i", 4))),  # 17 warps of a row
        (JACOBI.replace("f32", "bf16"), {"M": 131072, "N": 1024}, {"i": 2}, (("j", 128), ("i", 2))),  # 4 warps of a row
        (JACOBI, {"M": 131072, "N": 1024}, {"i": 2}, (("j", 256), ("i", 2))),  # 8 warps of a row
        (JACOBI.replace("f32", "bf16"), {"M": 65536, "N": 2048}, {"i": 2}, (("j", 256), ("i", 2))),
        (HEAT, {"D": 512, "M": 512, "N": 512}, {"i": 2}, (("j", 128), ("i", 2))),
        (
            BELOW.replace(" #tile(8, 128)", "").replace("N j", "1..N j"),
            {"M": 8192, "N": 8192},
            {"i": 2},
            (("j", 64), ("i", 4)),
        ),
    ],
)
def test_a_thread_takes_rows_that_share_reads(
    text: str, sizes: dict[str, int], rows: dict[str, int], deal: Any
) -> None:
    found = flat(mapped(text, **sizes))
    assert (found.patch, found.deal) == (rows, deal)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (JACOBI, {"M": 64, "N": 256}),  # too few for a GPU
        (JACOBI, {}),  # no number says how rows lie
        (COPY, {"M": 8192, "N": 8192}),
        (LOOK_UP, {"M": 8192, "V": 64, "N": 8192}),
        (BELOW, {"M": 8192, "N": 8192}),  # the author says what a block has
        (BLUR, {"N": 1 << 26}),
    ],
)
def test_others_take_one(text: str, sizes: dict[str, int]) -> None:
    assert not flat(mapped(text, **sizes)).patch


def test_a_window_has_each_row_once() -> None:
    found = patch(JACOBI, {"i": 4}, M=64, N=256)
    assert found is not None
    (window,) = found.windows
    assert (window.rows, window.above, window.chunks, window.before) == (6, -1, 3, -1)
    found = patch(HEAT, {"i": 4}, D=9, M=64, N=256)
    assert found is not None
    assert [(window.rows, window.chunks) for window in found.windows] == [(6, 3), (4, 1), (4, 1)]


def test_rows_that_are_no_multiples_of_a_chunk_begin_earlier() -> None:
    found = patch(JACOBI, {"i": 4}, M=64, N=261)
    assert found is not None
    assert [found.skew.at(row) for row in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("sizes", [{}, {"N": 1000}])
def test_neighbours_are_in_one_window_whatever_the_size(sizes: dict[str, int]) -> None:
    loads = [copy for copy in of_kind(only_launch(mapped(BLUR, **sizes)).body, Copy) if copy.source.buffer == "X"]
    assert {copy.target.buffer for copy in loads} == {"X_window"}


def test_rows_ends_are_asked_for_where_chunks_may_leave_the_array_alone() -> None:
    source = Emitted(mapped(JACOBI, M=64, N=261)).source
    assert "if (0 <= i * 261 + j_first - " in source and "tx::load_around<4>(X" in source


def test_no_value_stands_for_what_no_iteration_reads() -> None:
    source = Emitted(mapped(JACOBI, M=64, N=256)).source
    assert "tx::load_wanted<4>(X" in source and "tx::fill" not in source


@pytest.mark.parametrize(
    ("text", "sizes", "rows"),
    [
        (JACOBI, {"M": 64, "N": 256}, {"j": 2}),
        (JACOBI, {"M": 64, "N": 256}, {"i": 1}),
        (JACOBI, {"M": 64, "N": 256}, {"k": 2}),
        (JACOBI, {}, {"i": 2}),
        (COPY, {"M": 64, "N": 256}, {"i": 2}),
        (TURNED, {"M": 512, "N": 512}, {"i": 2}),
        *((text, {"M": 16, "N": 64}, {"i": 2}) for text in TWO_MOVE),
    ],
)
def test_rows_that_share_no_reads_are_refused(text: str, sizes: dict[str, int], rows: dict[str, int]) -> None:
    why = "`patch` says of which index beside a run a thread takes rows, at least 2, that share reads"
    with pytest.raises(TExprError, match=why) as found:
        with_rows(text, sizes, rows)
    assert [d.code for d in found.value.diagnostics] == ["E0401"]


@pytest.mark.gxx
def test_nothing_is_read_where_there_is_no_iteration() -> None:
    program = mapped("kernel k(X: f32[K], Y: f32[N + 1]) where K >= 2 * N { par N j { Y[j + 1] = X[j] + X[j + 1] } }")
    one = Emitted(program)
    module = HostModule(one.source, werror=True)
    for n in (0, 1, 130):
        x = np.arange(2 * n, dtype=np.float32)
        values = {"X": x, "Y": np.zeros(n + 1, np.float32)}
        assert one.run(module, values) is None
        np.testing.assert_array_equal(values["Y"][1:], x[:n] + x[1 : n + 1])
        np.testing.assert_array_equal(simulate(program, values)["Y"], values["Y"])


WORKSPACE = """kernel k(X: f32[M, N], inout Y: f32[M, N]) where M >= 4, N >= 4 {
    new T: f32[M, N]
    par 1..M - 1 i, 2..N - 2 j { T[i, j] = X[i, j] + 1.0 }
    par 2..M - 2 r { T[r, 1] = X[r, 1]; T[r, N - 2] = X[r, N - 2] }
    par 2..M - 2 k, 2..N - 2 l { Y[k, l] = T[k, l - 1] + MIDDLE + T[k, l + 1] + T[k - 1, l] + T[k + 1, l] }
}"""


@pytest.mark.gxx
@pytest.mark.parametrize(("middle", "n", "rows"), [("T[k, l]", 261, {"k": 2}), ("2.0", 260, {})])
def test_of_a_workspace_only_what_iterations_read_is_in_windows(middle: str, n: int, rows: dict[str, int]) -> None:
    text, sizes = WORKSPACE.replace("MIDDLE", middle), {"M": 8, "N": n}
    first = mapped(text, **sizes)
    assert isinstance(first.candidate, Candidate)
    last = first.candidate.launches["k_2"]
    assert isinstance(last, Flat)
    choices = replace(first.candidate, launches={**first.candidate.launches, "k_2": replace(last, patch=rows)})
    program = mapped(text, choices=choices, **sizes)
    one, values = Emitted(program), arguments(program.kernel, sizes)
    assert ("T_window" in one.source) == (middle != "2.0")
    expected = interpret(program.kernel, values).outputs["Y"]
    np.testing.assert_array_equal(simulate(program, values)["Y"], expected)
    assert one.run(HostModule(one.source, werror=True), values) is None
    np.testing.assert_array_equal(values["Y"], expected)


def drawn(seed: int, name: str) -> tuple[MappedProgram, dict[str, int]]:
    """A random stencil, in patches of each index that may have some, or as it is chosen where none."""
    one = stencil(seed, name)
    program = mapped(one.text, **one.sizes)
    for down in one.indices[-2::-1]:
        with suppress(TExprError):
            return with_rows(one.text, one.sizes, {down: 2 + seed % 3}), one.sizes
    return program, one.sizes


def same(seeds: Iterable[int]) -> int:
    """Random stencils are what the interpreter computes, in the simulator and as text; how many have windows."""
    made = [drawn(seed, f"k{seed}") for seed in seeds]
    emitted = [Emitted(program) for program, _ in made]
    module = HostModule("\n".join(one.source for one in emitted), werror=True)
    for one, (program, sizes) in zip(emitted, made, strict=True):
        values = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, values).outputs["Y"]
        np.testing.assert_array_equal(simulate(program, values)["Y"], expected)
        assert one.run(module, values) is None
        np.testing.assert_array_equal(values["Y"], expected)
    return sum("_window" in one.source for one in emitted)


@pytest.mark.gxx
def test_random_stencils_compute_what_the_interpreter_computes() -> None:
    assert same(range(12)) >= 4
