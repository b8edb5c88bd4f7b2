"""Tiles that the author chose: what a block has of a band, and why it cannot."""

import re
from math import prod

import numpy as np
import pytest
from stages import mapped, only_launch, proved

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value, product
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Contracted, Flat
from texpr.polyhedral.mapped.places import GRID_PLACES, Place
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.simulate.stage import simulate

SCALED = "kernel f(A: f32[64, 96], C: f32[64, 96]) { par 64 i, 96 j %s { C[i, j] = A[i, j] * 2.0 } }"
FOLD = "kernel f(A: f32[9, 30], C: f32[9]) { par 9 i { C[i] = 1.0; seq 30 k %s { C[i] = C[i] + A[i, k] } } }"
ROWS = "kernel f(A: f32[8], C: f32[8, 64]) { par 8 b %s { new s: f32; s = A[b]; par 64 j %s { C[b, j] = s } } }"


@pytest.mark.parametrize("tile", [(1, 1), (8, 32), (6, 48), (7, 5), (64, 96), (1, 96), (3, 64)])
def test_a_block_has_the_iterations_of_its_authors_tile(tile: tuple[int, int]) -> None:
    """Also of tiles that threads take in turns, and of sides that do not divide an extent."""
    program = mapped(SCALED % f"#tile{tile}")
    launch = only_launch(program)
    assert constant_value(product(launch.grid)) == -(-64 // tile[0]) * -(-96 // tile[1])
    for index, size in zip("ij", tile, strict=True):
        own = [d for d in launch.digits if d.index == index and d.place not in GRID_PLACES]
        counts = [constant_value(d.radix) for d in own]
        assert prod(count for count in counts if count is not None) == size
    given = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    np.testing.assert_array_equal(simulate(program, {"A": given, "C": np.zeros_like(given)})["C"], 2 * given)


@pytest.mark.parametrize(
    "tile",
    ["block: 8, 96, warp: 2, 32, thread: 1, 2", "block: 4, 64, warp: 4, 8, thread: 1, 1", "block: 8, 64, thread: 1, 4"],
)
def test_warps_and_threads_have_their_authors_shares_of_a_tile(tile: str) -> None:
    program = mapped(SCALED % f"#tile({tile})")
    sizes = {level: [int(n) for n in part.split(",") if n.strip()] for level, part in _levels(tile)}
    launch = only_launch(program)
    for number, index in enumerate("ij"):
        own = {
            place: prod(constant_value(d.radix) or 0 for d in launch.digits if d.index == index and d.place is place)
            for place in (Place.VECTOR, Place.LANE, Place.WARP, Place.SERIAL)
        }
        each = sizes.get("thread", [1, 1])[number]
        assert own[Place.VECTOR] == each
        assert each * own[Place.LANE] == sizes.get("warp", [each * own[Place.LANE]] * 2)[number]
        assert prod(own.values()) == sizes["block"][number]
    given = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    np.testing.assert_array_equal(simulate(program, {"A": given, "C": np.zeros_like(given)})["C"], 2 * given)


def candidate_of(program: MappedProgram) -> Candidate:
    assert isinstance(program.candidate, Candidate)
    return program.candidate


def _levels(tile: str) -> list[tuple[str, str]]:
    words = re.split(r"(block|warp|thread):", tile)[1:]
    return list(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 33])
def test_iterations_in_tiles_are_the_same_ones_in_the_same_order(n: int) -> None:
    text = "kernel f(A: f32[9, N], C: f32[9]) { par 9 i { C[i] = 1.0; seq N k %s { C[i] = C[i] * 0.5 + A[i, k] } } }"
    given = {"A": np.random.default_rng(n).standard_normal((9, n)).astype(np.float32), "C": np.zeros(9, np.float32)}
    wanted = simulate(mapped(text % "", N=n), given)["C"]
    for tile in {1, min(n, 8) or 1}:
        found = mapped(text % f"#tile({tile}) #unroll", N=n), mapped(text % f"#tile({tile})")
        for program in found:
            np.testing.assert_array_equal(simulate(program, given)["C"], wanted)


MATMUL = (
    "kernel f(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {"
    " par M i, N j %s { C[i, j] = sum K k %s { A[i, k] * B[k, j] } } }"
)


@pytest.mark.parametrize(
    ("tile", "depth", "found"),
    [
        ("#tile(128, 64)", "#tile(8)", {"tile": (128, 64), "depth": 8}),
        ("#tile(block: 128, 64, warp: 32, 64, thread: 8, 8)", "", {"tile": (128, 64), "each": (8, 8)}),
        ("", "#tile(32)", {"depth": 32}),
        ("#tile(256, 32)", "", {"tile": (256, 32)}),
    ],
)
def test_a_contraction_has_the_tiles_of_its_author(tile: str, depth: str, found: dict[str, object]) -> None:
    (choice,) = candidate_of(mapped(MATMUL % (tile, depth), M=600, N=512, K=96)).launches.values()
    assert isinstance(choice, Contracted)
    own = {name: getattr(choice, name) for name in found}
    assert {n: (v["i"], v["j"]) if isinstance(v, dict) else v for n, v in own.items()} == found


@pytest.mark.parametrize("threads", [32, 64])
def test_a_tile_smaller_than_an_access_has_smaller_accesses(threads: int) -> None:
    head = f"kernel f(A: f16[256, 256], B: f16[256, 256]) #threads({threads})"
    text = f"{head} {{ par 256 i, 256 j #tile(128, 4) {{ B[j, i] = A[i, j] }} }}"
    given = (np.arange(256 * 256) % 251).reshape(256, 256).astype(np.float16)
    found = simulate(mapped(text), {"A": given, "B": np.zeros_like(given)})["B"]
    np.testing.assert_array_equal(found, given.T)


def test_every_candidate_of_a_band_with_a_tile_has_it() -> None:
    text = SCALED % "#tile(8, 32)"
    found = list(candidates(problem_of(proved(text), mapped(text))))
    choices = [candidate.launches["f_0"] for candidate in found]
    assert len(choices) > 3 and all(isinstance(choice, Flat) for choice in choices)
    for candidate in found:
        launch = only_launch(mapped(text, choices=candidate))
        assert constant_value(product(launch.grid)) == 24


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (SCALED % "#tile(65, 32)", "E0401", "a tile has 65 iterations of i, and there are 64"),
        (SCALED.replace("]) {", "]) #threads(64) {") % "#tile(6, 8)", "E0401", "shares for 16 threads, and the author"),
        (
            SCALED % "#tile(block: 8, 32, warp: 3, 32)",
            "E0401",
            "a warp has 3 iterations of i, which do not divide the 8",
        ),
        (
            SCALED % "#tile(block: 8, 32, warp: 4, 32, thread: 1, 1)",
            "E0401",
            "shares for 128 threads, and a warp has 32",
        ),
        (
            SCALED % "#tile(block: 64, 32, warp: 1, 32, thread: 1, 1)",
            "E0401",
            "shares for 2048 threads, and a block has at most 1024",
        ),
        (
            SCALED % "#tile(block: 8, 32, thread: 2, 1)",
            "E0402",
            "2 iterations of i, along which no access is contiguous",
        ),
        (SCALED % "#tile(warp: 8, 32)", "E0402", "is a share of a block's"),
        (SCALED % "#tile(cluster: 8, 32)", "E0402", "a cluster has no tiles"),
        (FOLD % "#tile(31)", "E0401", "a tile has 31 iterations of k, and there are 30"),
        ("kernel f(A: f32[8, N]) { seq 8 k #tile(2) { par N i { A[k, i] = 1.0 } } }", "E0402", "as a loop of launches"),
        (ROWS % ("#tile(4)", ""), "E0402", "each iteration has a block"),
        (ROWS % ("", "#tile(4)"), "E0402", "only an outermost band"),
    ],
)
def test_a_tile_that_cannot_be_is_refused_with_the_limit_and_the_value(program: str, code: str, said: str) -> None:
    with pytest.raises(TExprError, match=said) as caught:
        mapped(program)
    assert {d.code for d in caught.value.diagnostics} == {code} and all(d.help for d in caught.value.diagnostics)


def test_what_is_staged_in_tiles_has_those_of_the_author() -> None:
    text = "kernel f(A: f32[256, 256], C: f32[256, 256]) { par 256 i, 256 j %s { C[j, i] = A[i, j] } }"
    assert "i_tile = 64*i_block" in show(mapped(text % ""))
    assert "i_tile = 32*i_block" in show(mapped(text % "#tile(32, 64)"))


def test_a_candidate_of_other_tiles_than_the_authors_does_not_fit() -> None:
    flat = Flat(threads=64, deal=(("j", 64),), grid=("j", "i"))
    with pytest.raises(TExprError, match="64 iterations of j at once, and a tile has 32"):
        mapped(SCALED % "#tile(8, 32)", choices=Candidate(launches={"f_0": flat}))


def test_a_tile_of_a_size_is_judged_when_it_is_bound() -> None:
    text = "kernel f(A: f32[N], C: f32[N]) { size T = 64; par N i #tile(T) { C[i] = A[i] } }"
    assert constant_value(only_launch(mapped(text, N=640, T=64)).grid[0]) == 10
    with pytest.raises(TExprError, match="not known"):
        mapped(text.replace("#tile(T)", "#tile(N)"), T=64)
