"""No accumulation makes more than 4096 additions into one f32 partial, and sums in partials are the same sums."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest
from stages import mapped as as_it_stands

import texpr
from texpr import polyhedral
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.grammar.types import F64
from texpr.polyhedral.map.chains import Sum, sums
from texpr.polyhedral.map.choose_combined import block_limits
from texpr.polyhedral.mapped.candidate import Candidate, Contracted
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.simulate.stage import simulate

TARGETS = ("cuda:sm_90a", "cpu")
EVERY = [import_module(found.name) for found in walk_packages(polyhedral.__path__, f"{polyhedral.__name__}.")]
PROGRAMS = {
    "rows": "kernel k(A: f32[M, K], S: f32[M]) { par M i { S[i] = sum K k { A[i, k] } } }",
    "columns": "kernel k(A: f32[K, M], S: f32[M]) { par M i { S[i] = sum K k { A[k, i] } } }",
    "all": "kernel k(A: f32[K], S: f32[1]) { par 1 z { S[z] = 0.0 }\n par K k { S[0] += A[k] } }",
    "one thread": "kernel k(A: f32[K], S: f32[1]) { S[0] = sum K k { A[k] } }",
    "product": """kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
        par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
    }""",
    "flat product": "par M i { par N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } } }",
    "narrow": "kernel k(A: bf16[M, K], S: f16[M]) { par M i { S[i] = 0.0 ; seq K k { S[i] += A[i, k] } } }",
    "local": """kernel k(A: f32[M, K], S: f32[M]) {
        par M i { new s: f32 ; s = 0.0 ; seq K k { s += A[i, k] } ; S[i] = 2.0 * s }
    }""",
    "condition": "kernel k(A: f32[M, K], S: f32[M]) { par M i { seq K k { if k > i { S[i] += A[i, k] } } } }",
    "data": "kernel k(A: f32[K], G: bool[K], S: f32[1]) { seq K k { if G[k] { S[0] += A[k] } } }",
    "tile of a block": """kernel k(A: f32[M, Q, K], S: f32[M]) {
        par M i { S[i] = 0.0 ; seq Q q { par K e { S[i] += A[i, q, e] } } }
    }""",
    "two": "kernel k(A: f32[K], S: f32[2]) { par 2 z { S[z] = 0.0 }\n seq K k { S[0] += A[k] ; S[1] += A[k] * A[k] } }",
    "nest": "kernel k(A: f32[M, K], S: f32[1]) { S[0] = sum M i, K k { A[i, k] } }",
    "tiles": """kernel k(A: f32[M, K], S: f32[M]) where K % 8 == 0 {
        par M i {
            new t: f32[8] ; new s: f32[8]
            par 8 a { s[a] = 0.0 }
            seq K / 8 q { par 8 a { t[a] = A[i, 8 * q + a] } ; par 8 a { s[a] += t[7 - a] } }
            par 1 z { S[i] = sum 8 a { s[a] } }
        }
    }""",
    "inner par": """kernel k(A: f32[M, K], S: f32[M]) {
        par M i { new s: f32 ; s = 0.0 ; par K k { s += A[i, k] } ; S[i] = s }
    }""",
    "registers": """kernel k(A: f32[M, K], S: f32[M]) {
        par M i {
            new s: f32[4]
            seq 4 a { s[a] = 0.0 }
            seq K k { seq 4 a { s[a] += A[i, k] } }
            S[i] = s[1] + s[2]
        }
    }""",
    "nest without a bind": """kernel k(A: f32[M, N, K], inout S: f32[M]) {
        par M i { seq N j { seq K k { S[i] += A[i, j, k] } } }
    }""",
    "one of two bound": """kernel k(A: f32[M, K], inout S: f32[M], T: f32[M]) {
        par M i { T[i] = 0.0 ; seq K k { let d = A[i, k] ; S[i] += d ; T[i] += d * d } }
    }""",
    "inside another sum": """kernel k(A: f32[M, N, K], inout S: f32[M], inout D: f32[M, N]) {
        par M i { seq N j { S[i] += 1.0 ; seq K k { D[i, j] += A[i, j, k] } } }
    }""",
    "rows of a band": "kernel k(A: f32[K, N], inout S: f32[1]) { par K k, N j { S[0] += A[k, j] } }",
    "columns of a band": "kernel k(A: f32[M, K], inout S: f32[1]) { par M i, K k { S[0] += A[i, k] } }",
    "band of three": """kernel k(A: f32[M, N, K], inout S: f32[M]) {
        par N j, M i, K k { S[i] += A[i, j, k] * 2.0 }
    }""",
    "ends apart": """kernel k(A: f32[K, M], S: f32[M]) where K >= 1 {
        par M i { seq i + K k { S[i] += A[min(k, K - 1), i] } }
    }""",
}

IN_MEMORY = {  # nothing carries these: their elements are kept in f64
    "lanes along the elements": "kernel k(A: f32[K, N], inout S: f32[N]) { par K k, N j { S[j] += A[k, j] } }",
    "bound before": """kernel k(A: f32[K, N], S: f32[N]) {
        par N j { S[j] = 1.0 } ; par K k, N j { S[j] += A[k, j] }
    }""",
    "short extents": """kernel k(A: f32[17, 17, 17], inout S: f32[2]) {
        par 17 a, 17 b, 17 c { S[1] += A[a, b, c] }
    }""",
    "triangle": "kernel k(A: f32[K, K], inout S: f32[K]) { par K k, k + 1 j { S[j] += A[k, j] } }",
    "triangle of one element": "kernel k(A: f32[K], inout S: f32[2]) { par K k, k + 1 j { S[0] += A[j] } }",
    "element along a sum": """kernel k(A: f32[K, N], inout S: f32[1], inout T: f32[N]) {
        par K k, N j { S[0] += A[k, j] ; T[j] += 1.0 }
    }""",
    "rounds": "kernel k(A: f32[K, N], inout S: f32[N]) { seq K t { par N j { S[j] += A[t, j] } } }",
    "rounds of sums": """kernel k(A: f32[K, N], inout S: f32[N], B: f32[3, N]) {
        seq 3 t { par K k, N j { S[j] += A[k, j] } ; par N j { B[t, j] = S[j] } }
    }""",
    "two rounds": """kernel k(A: f32[K, N], inout S: f32[N]) {
        seq K t { par N j { S[j] += A[t, j] } ; par N j { S[N - 1 - j] += 2.0 } }
    }""",
    "atomic": "kernel k(A: f32[K, N], inout S: f32[N]) { par K k, N j { atomic S[j] += A[k, j] } }",
    "gathered": "kernel k(A: u8[K], inout S: f32[256]) { par K k { atomic S[A[k]] += 0.5 } }",
    "beside an atomic": """kernel k(A: f32[K, M], inout S: f32[M]) {
        par M i { seq K k { S[i] += A[k, i] ; atomic S[i] += 2.0 } }
    }""",
    "of no dimensions": "kernel k(A: f32[K], inout L: f32[]) { par K k { if A[k] > 0.0 { atomic L += A[k] } } }",
    "strided": "kernel k(A: f32[K, N], inout S: f32[2 * N + 1, 3]) { par K k, N j { S[2 * j + 1, j % 2] += A[k, j] } }",
    "in strides": """kernel k(A: f32[K, N], inout S: f32[N, 2] #strides(1, lda)) where lda >= N {
        par K k, N j { S[j, 1] += A[k, j] }
    }""",
    "flat": "par K k { par N j { C[5 * j + 1] += A[k * N + j] } }",
    "part": "kernel k(A: f32[K, N], inout S: f32[N]) { par K k, N - 1 j { S[j + 1] += A[k, j] } }",
    "condition": "kernel k(A: f32[K, N], inout S: f32[N]) { par K k, N j { if k + j > 2 { S[j] += A[k, j] } } }",
    "data": "kernel k(A: f32[K, N], G: bool[K], inout S: f32[N]) { par K k, N j { if G[k] { S[j] += A[k, j] } } }",
    "narrow": "kernel k(A: f32[K, N], inout S: f16[N]) { par K k, N j { S[j] += 0.001 * A[k, j] } }",
    "maximum between": """kernel k(A: f32[K, N], inout S: f32[N]) {
        par K k, N j { S[j] += A[k, j] } ; par N j { S[j] max= 3.0 } ; par K k, N j { S[j] -= A[k, j] }
    }""",
    "workspace": """kernel k(A: f32[K, N], S: f32[N]) {
        new s: f32[N]
        par N j { s[j] = 0.0 } ; par K k, N j { s[j] += A[k, j] } ; par N j { S[j] = s[j] }
    }""",
    "local histogram": """kernel k(A: u8[M, K], inout S: f32[M, 256]) {
        par M i {
            new h: f32[256]
            par 256 a { h[a] = 0.0 }
            par K k { atomic h[A[i, k]] += 0.5 }
            par 256 a { S[i, a] = h[a] }
        }
    }""",
    "elimination": """kernel k(inout A: f32[K, K]) {
        seq K q { par K - q - 1 i, K - q - 1 j { A[i + q + 1, j + q + 1] -= A[i + q + 1, q] * A[q, j + q + 1] } }
    }""",
    "one thread": """kernel k(A: f32[K], inout S: f32[2]) { seq K k { S[k % 2] += A[k] ; S[0] += 1.0 } }""",
    "inside a block": "kernel k(A: f32[M, K], S: f32[M]) { par M i { S[i] = 0.0 ; par K j { S[i] += A[i, j] } } }",
    "element beside a bind": """kernel k(A: f32[K], inout S: f32[2]) { seq K k { S[1] += A[k] ; S[0] = A[k] } }""",
}
STATES = {  # the program looks at the element between any two additions
    "read after": """kernel k(V: f32[N], inout X: f32[N], W: f32[K, N]) {
        seq K t { par N i { X[i] += 0.5 * V[i] } ; par N i { W[t, i] = X[i] } }
    }""",
    "read before": """kernel k(inout V: f32[N], inout X: f32[N]) {
        seq K t { par N i { V[i] = V[i] - 0.01 * X[i] } ; par N i { X[i] += 0.01 * V[i] } }
    }""",
    "read by itself": "kernel k(inout X: f32[N]) { seq K t { par N i { X[i] += 0.01 * X[i] } } }",
    "bound": """kernel k(A: f32[K, N], inout X: f32[N], W: f32[K, N]) {
        seq K t { par N i { X[i] = A[t, i] } ; par N i { X[i] += 1.0 } ; par N i { W[t, i] = X[i] } }
    }""",
    "in a thread": "kernel k(A: f32[K], inout X: f32[1], W: f32[K]) { seq K t { X[0] += A[t] ; W[t] = X[0] } }",
}


def mapped(text: str, target: str, **sizes: int) -> MappedProgram:
    program: MappedProgram = texpr.parse(text).only.compile(target, sizes=sizes, stop_after="map").build.result("map")
    return program


mapped_once = cache(mapped)


def is_contracted(program: MappedProgram) -> bool:
    found = program.candidate
    return isinstance(found, Candidate) and any(isinstance(one, Contracted) for one in found.launches.values())


def in_small_tiles(name: str, program: MappedProgram) -> MappedProgram:
    """A product in tiles for one warp: the simulator takes a quarter of the time for it."""
    assert isinstance(program.candidate, Candidate)
    ((launch, choice),) = program.candidate.launches.items()
    small = replace(choice, threads=32, tile={"i": 16, "j": 32}, each={"i": 4, "j": 4})
    candidate = replace(program.candidate, launches={launch: small})
    compiled = texpr.parse(PROGRAMS[name]).only.compile(program.target.name, mapping=candidate, stop_after="map")
    found: MappedProgram = compiled.build.result("map")
    assert "C_total" in found.buffers
    return found


def into_f32(program: MappedProgram, **sizes: int) -> dict[str, int]:
    """The most additions into one element of each buffer that is no f64."""
    return {n: s.additions for n, s in sums(program, sizes).items() if program.buffers[n].dtype.name != "f64"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*PROGRAMS, *(f"in memory: {name}" for name in IN_MEMORY)])
def test_no_f32_partial_gets_more_than_4096_additions(name: str, target: str) -> None:
    text = PROGRAMS.get(name) or IN_MEMORY[name.removeprefix("in memory: ")]
    free = mapped_once(text, target)
    for terms in (4096, 10**5, 2**27, 2**36):
        sizes = {s.name: terms if s.name == "K" else 1000 for s in free.kernel.sizes}
        found = sums(free, sizes)
        assert found
        assert max((s.additions for n, s in found.items() if free.buffers[n].dtype != F64), default=0) <= CHAIN
        assert max(s.chain for s in found.values()) <= 2 * CHAIN


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in STATES if name != "in a thread"])
def test_what_the_program_looks_at_between_additions_is_a_value_and_no_partial(name: str, target: str) -> None:
    free = as_it_stands(STATES[name], target)  # in another schedule a bind may come before each addition
    assert all(buffer.dtype != F64 for buffer in free.buffers.values())
    assert sums(free, {"N": 10, "K": 10**5})["X"].chain == 10**5
    assert free.report.notes == ("X is read or bound between its additions: each sum is a value of f32, rounded",)


@pytest.mark.parametrize("target", TARGETS)
def test_a_running_sum_of_blocks_or_of_pieces_is_carried_in_f64(target: str) -> None:
    free = mapped(STATES["in a thread"], target)
    assert not free.report.notes
    for terms in (10**5, 2**36):
        found = sums(free, {"N": 10, "K": terms})
        narrow = {n: s for n, s in found.items() if free.buffers[n].dtype != F64}  # a tile's, whatever the sizes
        assert narrow and max(max(s.chain, s.additions) for s in narrow.values()) <= 128


def test_a_state_that_is_added_to_long_between_two_looks_is_a_sum() -> None:
    text = """kernel k(A: f32[R, K, N], inout X: f32[N], W: f32[R, N]) {
        seq R t { par K k, N i { X[i] += A[t, k, i] } ; par N i { W[t, i] = X[i] } }
    }"""
    for target in TARGETS:
        assert "X_sum" in mapped(text, target).buffers
        assert "X_sum" not in mapped(text, target, K=CHAIN).buffers
        assert "X_sum" in mapped(text, target, K=CHAIN + 1).buffers


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["rows", "columns", "product", "local", "one thread", "inner par"])
def test_loops_of_4096_terms_are_mapped_as_ever(name: str, target: str) -> None:
    for program in (
        mapped(PROGRAMS[name], target, K=CHAIN),
        mapped(PROGRAMS[name].replace(") {", ") where K <= 4096 {", 1), target),
    ):
        assert all(buffer.dtype.name != "f64" for buffer in program.buffers.values())
        assert not any(name.endswith("_chunk") for name in program.buffers)
    one_more = mapped(PROGRAMS[name], target, K=300 * CHAIN)
    assert any(buffer.dtype.name == "f64" for buffer in one_more.buffers.values())


@pytest.mark.parametrize("target", TARGETS)
def test_an_ordered_sum_stays_serial(target: str) -> None:
    text = "kernel k(A: f32[K], S: f32[1]) { S[0] = 0.0 ; seq K k #ordered { S[0] += A[k] } }"
    program = mapped(text, target)
    assert all(buffer.dtype.name == "f32" for buffer in program.buffers.values())
    assert max(into_f32(program, K=10**6).values()) == 10**6


def test_a_long_ordered_sum_is_warned_of() -> None:
    def codes(where: str, **sizes: int) -> list[str]:
        text = f"kernel k(A: f32[K], S: f32[1]) {where} {{ S[0] = 0.0 ; seq K k #ordered {{ S[0] += A[k] }} }}"
        return [w.code for w in texpr.parse(text).only.compile("cpu", sizes=sizes, stop_after="prove").warnings]

    assert codes("") == codes("", K=4097) == ["W0303"]
    assert codes("", K=4096) == codes("where K <= 4096") == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name",
    [
        "rows",
        "columns",
        "all",
        "product",
        "condition",
        "two",
        "tiles",
        "tile of a block",
        "registers",
        "rows of a band",
        "columns of a band",
        "band of three",
        "nest without a bind",
        "one of two bound",
        "inside another sum",
    ],
)
def test_sums_in_partials_are_the_sums(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a partial and a bit. Most partials are shorter than those of users: the simulator runs each step."""
    chain = CHAIN if name in ("rows", "columns of a band") else 128
    for module in (module for module in EVERY if "CHAIN" in vars(module)):
        monkeypatch.setattr(module, "CHAIN", chain)
    kernel = texpr.parse(PROGRAMS[name]).only.core()
    sizes = {s.name: chain + 8 if s.name == "K" else 2 for s in kernel.sizes}
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for buffer in kernel.params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        arrays[buffer.name] = random.integers(-1, 3, shape).astype(storage(buffer.dtype))
    want = interpret(kernel, arrays, sizes=sizes, float64=True)
    program = mapped(PROGRAMS[name], target)
    got = simulate(in_small_tiles(name, program) if is_contracted(program) else program, arrays, sizes=sizes)
    for output, values in want.outputs.items():
        assert np.array_equal(got[output].astype(np.float64), values)
        assert not want.bounds[output].any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("terms", [0, 1, 7])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_elements_kept_in_f64_have_the_sums_and_others_stay_as_they_are(name: str, terms: int, target: str) -> None:
    kernel = texpr.parse(IN_MEMORY[name]).only.core()
    sizes = {s.name: terms if s.name == "K" else 3 if s.name == "lda" else 2 for s in kernel.sizes}
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for buffer in kernel.params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        values = random.integers(0, 3, shape) if buffer.name in "AG" else np.full(shape, -0.0)
        arrays[buffer.name] = values.astype(storage(buffer.dtype))
    want = interpret(kernel, arrays, sizes=sizes, float64=True)
    got = simulate(mapped_once(IN_MEMORY[name], target), arrays, sizes=sizes)
    exact = interpret(kernel, arrays, sizes=sizes)
    for output, values in want.outputs.items():
        assert (abs(got[output].astype(np.float64) - values) <= 4 * want.bounds[output]).all()
        assert np.array_equal(np.signbit(got[output]), np.signbit(exact.outputs[output]))


def test_blocks_are_shared_out_among_the_summed_dimensions() -> None:
    assert block_limits({"i": None}, 4096) == {"i": 4096}
    assert block_limits({"i": None, "j": None}, 4096) == {"i": 64, "j": 64}
    assert block_limits({"i": 10**6, "j": 4}, 4096) == {"j": 4, "i": 1024}
    assert block_limits({"i": None, "j": None, "k": 1}, 4096) == {"k": 1, "i": 64, "j": 64}
    assert block_limits({"i": 0, "j": 5000, "k": 3}, 10) == {"i": 1, "k": 3, "j": 3}


def test_compiled_says_chain_and_partials() -> None:
    compiled = texpr.parse(PROGRAMS["columns"]).only.compile("cpu", stop_after="map")
    assert compiled.sums(M=10, K=10**6) == {"S": Sum(chain=4096, partials=245, additions=0)}
    assert compiled.sums(M=10, K=100)["S"].chain == 100


@pytest.mark.parametrize("target", TARGETS)
def test_a_bind_of_one_element_does_not_end_the_sum_of_another(target: str) -> None:
    text = "kernel k(A: f32[K], inout S: f32[2]) { seq K k #ordered { S[1] += A[k] ; S[0] = A[k] } }"
    assert sums(mapped(text, target), {"K": 10**5})["S"].chain == 10**5


def test_sums_of_more_ones_than_an_f32_counts_are_right_where_nothing_carries_them() -> None:
    text = """kernel k(B: u8[256], inout S: f32[N], inout R: f32[N]) {
        par K k, N j { S[j] += 1.0 ; atomic R[i32(B[k % 256])] += 0.5 }
    }"""
    terms = 2**24 + 6
    run = texpr.parse(text).only.compile("cpu", K=terms)
    s, r = np.zeros(1, np.float32), np.zeros(1, np.float32)
    run(np.zeros(256, np.uint8), s, r)
    assert (s[0], r[0]) == (terms, terms / 2)  # in f32 they stop at 2**24 and 2**23


def test_the_bound_follows_the_chain() -> None:
    terms = 10**6
    kernel = texpr.parse(PROGRAMS["one thread"]).only.core()
    arrays = {"A": np.full(terms, 0.1, np.float32), "S": np.zeros(1, np.float32)}
    serial = interpret(kernel, arrays, float64=True)
    chained = interpret(kernel, arrays, float64=True, chains={"S": CHAIN})
    total, unit = serial.outputs["S"][0], 2.0**-24
    assert serial.bounds["S"][0] == pytest.approx(terms * unit * total, rel=0.05)
    assert chained.bounds["S"][0] == pytest.approx((CHAIN + 1) * unit * total, rel=0.05)
    lost = np.add.accumulate(arrays["A"], dtype=np.float32)[-1]  # what one f32 register keeps of it
    assert 4 * chained.bounds["S"][0] < abs(lost - total) < 4 * serial.bounds["S"][0]


def test_what_ends_in_16_bits_may_be_approximate_in_a_long_sum_too() -> None:
    text = """kernel f(X: bf16[64, 8192], Y: bf16[64]) { par 64 i {
        new t: f32; t = sum 8192 j { exp(X[i, j]) }; Y[i] = t } }"""
    source = texpr.parse(text).only.compile("cuda:sm_90a").source
    assert "tx::f64 t" in source and "tx::fast_exp(" in source and "tx::exp(" not in source


def test_a_pinned_tile_without_room_in_f64_stays_in_f32_and_says_so() -> None:
    text = """kernel k(A: f32[M, K], S: f32[M]) {
        par M i {
            new PLACE s: f32[200, 200]
            par 200 a, 200 b { s[a, b] = 0.0 }
            seq K q { par 200 a, 200 b { s[a, b] += A[i, q] } }
            par 1 z { S[i] = s[3, 4] }
        }
    }"""
    pinned = mapped(text.replace("PLACE", "shared"), "cuda:sm_90a")
    assert (pinned.buffers["s"].dtype.name, pinned.buffers["s"].memory.value) == ("f32", "shared")
    assert pinned.report.notes == ("s has no room in f64: its long sums stay in f32, of every addition",)
    assert into_f32(pinned, M=10, K=10**6)["s"] == 10**6
    placed = mapped(text.replace("PLACE", ""), "cuda:sm_90a")
    assert (placed.buffers["s"].dtype.name, placed.buffers["s"].memory.value) == ("f64", "global")
    assert placed.report.notes == ()


def test_a_sum_that_its_author_has_in_f64_is_in_f64() -> None:
    """Of f32 products, in a band that tiles of sums in f32 are for: these are 1e-5 beside it."""
    text = (
        "kernel k(A: f32[M, K], B: f32[K, N], C: f64[M, N]) {"
        " par M i, N j { C[i, j] = sum K k { f64(A[i, k] * B[k, j]) } } }"
    )
    random = np.random.default_rng(0)
    a, b = random.standard_normal((192, 64), np.float32), random.standard_normal((64, 192), np.float32)
    got = simulate(as_it_stands(text, M=192, N=192, K=64), {"A": a, "B": b, "C": np.zeros((192, 192))})["C"]
    assert np.abs(got - (a[:, :, None] * b[None]).astype(np.float64).sum(1)).max() < 1e-12
