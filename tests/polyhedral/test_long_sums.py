"""No accumulation makes more than 4096 additions into one f32 partial, and sums in partials are the same sums."""

from typing import Any

import numpy as np
import pytest

import texpr
from texpr.grammar.index.expr import names
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.polyhedral.map.chains import Sum, sums
from texpr.polyhedral.map.choose import block_limits
from texpr.polyhedral.map.long_sums import CHAIN
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Define, Guard
from texpr.polyhedral.mapped.walks import located
from texpr.polyhedral.simulate.stage import simulate

TARGETS = ("cuda:sm_90a", "cpu")
PROGRAMS = {
    "rows": "kernel k(A: f32[M, K], S: f32[M]) { par M i { S[i] = sum K k { A[i, k] } } }",
    "columns": "kernel k(A: f32[K, M], S: f32[M]) { par M i { S[i] = sum K k { A[k, i] } } }",
    "all": "kernel k(A: f32[K], S: f32[1]) { par 1 z { S[z] = 0.0 }\n par K k { S[0] += A[k] } }",
    "one thread": "kernel k(A: f32[K], S: f32[1]) { S[0] = sum K k { A[k] } }",
    "product": """kernel k(A: f16[M, K], B: f16[K, N], C: f32[M, N]) {
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

STORED = {  # each addition goes to memory
    "beside an atomic": """kernel k(A: f32[K, M], inout S: f32[M]) {
        par M i { seq K k { S[i] += A[k, i] ; atomic S[i] += 2.0 } }
    }""",
}


def mapped(text: str, target: str, **sizes: int) -> MappedProgram:
    program: MappedProgram = texpr.parse(text).only.compile(target, sizes=sizes, stop_after="map").build.result("map")
    return program


def into_f32(program: MappedProgram, **sizes: int) -> dict[str, int]:
    """The most additions into one element of each buffer that is no f64."""
    return {n: s.additions for n, s in sums(program, sizes).items() if program.buffers[n].dtype.name != "f64"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("terms", [4096, 10**5, 2**27, 2**36])
def test_no_f32_partial_gets_more_than_4096_additions(name: str, target: str, terms: int) -> None:
    free = mapped(PROGRAMS[name], target)
    sizes = {s.name: terms if s.name == "K" else 1000 for s in free.kernel.sizes}
    assert sums(free, sizes)
    assert max(into_f32(free, **sizes).values(), default=0) <= CHAIN


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
        "beside an atomic",
    ],
)
def test_sums_in_partials_are_the_sums(name: str, target: str) -> None:
    kernel = texpr.parse((PROGRAMS | STORED)[name]).only.core()
    sizes = {s.name: 4104 if s.name == "K" else 2 for s in kernel.sizes}
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for buffer in kernel.params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        arrays[buffer.name] = random.integers(-1, 3, shape).astype(storage(buffer.dtype))
    want = interpret(kernel, arrays, sizes=sizes, float64=True)
    got = simulate(mapped((PROGRAMS | STORED)[name], target), arrays, sizes=sizes)
    for output, values in want.outputs.items():
        assert np.array_equal(got[output].astype(np.float64), values)
        assert not want.bounds[output].any()


@pytest.mark.parametrize("rows", [1, 1024, 1025, 4096, 4097, 5000])
@pytest.mark.parametrize("columns", [4096, 100000, 4096 * 4097])
def test_what_blocks_reach_beyond_the_extents_is_cut_off(rows: int, columns: int) -> None:
    (launch,) = mapped(PROGRAMS["columns of a band"], "cuda:sm_90a", M=rows, K=columns).host
    assert isinstance(launch, Launch)
    found = [p.node for p in located(launch.body)]
    defines = {node.index: node.digits for node in found if isinstance(node, Define)}
    beyond = False
    for index, extent in (("i", rows), ("k", columns)):
        reached = 1 + sum(d.weight * (int(index_value(d.radix, {})) - 1) for d in defines[index])
        assert reached >= extent
        beyond |= reached > extent
    cut = [node for node in found if isinstance(node, Guard) and names(node.condition) & {"i", "k"}]
    assert bool(cut) == beyond


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
    text = "kernel k(A: f32[K], inout S: f32[2]) { seq K k { S[1] += A[k] ; S[0] = A[k] } }"
    assert sums(mapped(text, target), {"K": 10**5})["S"].chain == 10**5


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
