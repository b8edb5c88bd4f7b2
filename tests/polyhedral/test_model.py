"""Kernels are lifted to statements with named domains, exact accesses."""

import islpy as isl
import pytest
from stages import program

from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.program import AccessMode

SEED = "par M i { par N j { seq K k { C[i * N + j] += A[i * K + k] * B[k * N + j] } } }"


def is_map(relation: isl.Map, text: str) -> bool:
    return bool(relation.is_equal(isl.Map(text, context=relation.get_ctx())))


def is_set(points: isl.Set, text: str) -> bool:
    return bool(points.is_equal(isl.Set(text, context=points.get_ctx())))


def test_a_matmul_is_a_bind_and_an_update() -> None:
    lifted = program(
        "kernel f(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {"
        " par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } } }"
    )
    init, update = lifted.statements
    assert (init.position, update.position) == ((0, "i", 0, "j", 0), (0, "i", 0, "j", 1, "k", 0))
    assert [a.mode for a in update.accesses] == [AccessMode.READ, AccessMode.READ, AccessMode.ACCUMULATE]
    domain = "[M, K, N] -> { S1[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K }"
    assert is_set(update.domain, domain)
    assert [update.domain.get_dim_name(isl.dim_type.set, d) for d in range(3)] == ["i", "j", "k"]
    assert is_map(update.accesses[1].relation, domain.replace("k] :", "k] -> B[k, j] :"))


def test_flat_subscripts_with_free_sizes_are_split() -> None:
    lifted = program(SEED)
    (statement,) = lifted.statements
    domain = "0 <= i < M and 0 <= j < N and 0 <= k < K }"
    assert is_map(statement.accesses[0].relation, f"[M, N, K] -> {{ S0[i, j, k] -> A[i, k] : {domain}")
    rows = "[M, N, K] -> { C[i, j] : 0 <= i < M and 0 <= j < N and K >= 0 }"
    assert is_set(lifted.buffers["C"].elements, rows)
    assert len(lifted.buffers["C"].flat_strides) == 2
    assert len(statement.accesses[0].subscripts) == 1


def test_flat_subscripts_with_bound_sizes_are_split() -> None:
    lifted = program(SEED, M=6, N=5, K=4)
    domain = "0 <= i < 6 and 0 <= j < 5 and 0 <= k < 4 }"
    assert is_map(lifted.statements[0].accesses[1].relation, f"{{ S0[i, j, k] -> B[k, j] : {domain}")
    assert is_set(lifted.buffers["B"].elements, "{ B[k, j] : 0 <= k < 4 and 0 <= j < 5 }")


def test_a_reversed_flat_subscript_is_split_with_a_carry() -> None:
    lifted = program("par M i, N j { B[i * N + j] = A[(M - 1 - i) * N + N - 1 - j] }")
    read = lifted.statements[0].accesses[0]
    text = "[M, N] -> { S0[i, j] -> A[M - 1 - i, N - 1 - j] : 0 <= i < M and 0 <= j < N }"
    assert is_map(read.relation, text)


def test_tiles_of_a_flat_buffer_are_its_dimensions() -> None:
    lifted = program("par 4 b, 8 t { B[b * 8 + t] = A[b * 8 + 7 - t] }")
    assert is_set(lifted.buffers["A"].elements, "{ A[b, t] : 0 <= b < 4 and 0 <= t < 8 }")


def test_a_buffer_with_an_unsplit_access_keeps_its_dimension() -> None:
    lifted = program("kernel f(A: f32[32], B: f32[32]) { par 4 b, 8 t { B[b * 8 + t] = A[b * 8 + t] + A[b + t] } }")
    assert lifted.buffers["A"].flat_strides == () and len(lifted.buffers["B"].flat_strides) == 2


def test_locals_have_the_loops_around_them_in_their_elements() -> None:
    lifted = program("kernel f(B: f32[N]) { par N i { new s: f32[4]\n seq 4 k { s[k] = 1.0 }\n B[i] = s[3] } }")
    assert lifted.buffers["s"].outer == ("i",)
    write = lifted.statements[0].accesses[0]
    assert is_map(write.relation, "[N] -> { S0[i, k] -> s[i, k] : 0 <= i < N and 0 <= k < 4 }")


def test_select_arms_and_ifs_restrict_accesses_and_domains() -> None:
    lifted = program(
        "kernel f(A: f32[N], B: f32[N]) {"
        " par N i { if i % 2 == 0 { B[i] = select(i > 0, A[i - 1], 0.0) } else { B[i] = 1.0 } } }"
    )
    even, odd = lifted.statements
    text = "[N] -> { S0[i] -> A[i - 1] : 0 < i < N and i mod 2 = 0 }"
    assert is_map(even.accesses[0].relation, text) and even.accesses[0].must
    assert is_set(odd.domain, "[N] -> { S1[i] : 0 <= i < N and i mod 2 = 1 }")


def test_a_data_condition_makes_may_accesses_that_begin_with_its_read() -> None:
    lifted = program("kernel f(A: f32[N], B: f32[N]) { par N i { if A[i] > 0.0 { B[i] = 1.0 } else { B[i] = 2.0 } } }")
    _, then, other = lifted.statements
    assert then.guards and not then.accesses[-1].must
    assert then.accesses[0].mode is AccessMode.READ and lifted.buffers[then.accesses[0].buffer].outer == ("i",)
    assert [(g.number, g.value, g.depth) for g in then.guards + other.guards] == [(0, True, 1), (0, False, 1)]


def test_a_gather_has_the_whole_range_of_its_dimension() -> None:
    lifted = program(
        "kernel f(idx: i32[N], E: f32[V, 8], Y: f32[N, 8]) { par N i, 8 j { Y[i, j] = E[idx[i] + 1, j] } }"
    )
    index, gathered, _ = lifted.statements[0].accesses
    assert (index.buffer, gathered.buffer, gathered.must) == ("idx", "E", False)
    text = "[N, V] -> { S0[i, j] -> E[r, j] : 0 <= i < N and 0 <= j < 8 and 0 <= r < V }"
    assert is_map(gathered.relation, text)


@pytest.mark.parametrize("extent", ["0", "N - 9", "1", "i - 4"])
def test_empty_and_single_ranges_are_domains_like_any_other(extent: str) -> None:
    lifted = program(
        f"kernel f(A: f32[8, 8]) {{ par 4 i {{ par {extent} j {{ A[i, j] = 1.0 }} }} }}",
        **({"N": 8} if "N" in extent else {}),
    )
    assert lifted.statements[0].domain.is_empty() == (extent != "1")


def test_facts_are_the_context() -> None:
    lifted = program("kernel f(A: f32[N]) where N % 8 == 0, N <= 64 { par N / 8 i { A[8 * i + 7] = 1.0 } }")
    assert is_set(lifted.context, "[N] -> { : 0 <= N <= 64 and N mod 8 = 0 }")


def test_names_that_isl_reserves_are_names_like_any_other() -> None:
    lifted = program("kernel f(Exists: f32[Mod, rat]) { par Mod ceild, rat implies { Exists[ceild, implies] = 1.0 } }")
    assert lifted.statements[0].domain.dim(isl.dim_type.set) == 2
    assert lifted.statements[0].domain.is_subset(lifted.statements[0].accesses[0].relation.domain())


def test_too_many_accesses_are_refused_by_count() -> None:
    lines = "\n".join(f"A[{i}] = A[{i}] + 1.0" for i in range(1600))
    with pytest.raises(TExprError) as refused:
        program(f"kernel f(A: f32[1600]) {{ {lines} }}")
    assert [d.code for d in refused.value.diagnostics] == ["E0307"]


MMA = """
fn mma(in a: f16[16, 16], in b: f16[16, 8], inout c: f32[16, 8]) reference {
    par 16 i, 8 j { seq 16 k { c[i, j] += a[i, k] * b[k, j] } }
} {
    fully par 32 |lane| #align(32) #block {
        reg ra: f16[8] = fragment(a, mma16816.a, lane); reg rb: f16[4] = fragment(b, mma16816.b, lane)
        reg rc: f32[4] = fragment(c, mma16816.c, lane)
        asm("mma", inout: rc, in: ra, rb)
        fragment(c, mma16816.c, lane) = rc
    }
}
kernel f(A: f16[M, 16], B: f16[16, 8], C: f32[M, 8]) where M % 16 == 0 {
    par M / 16 t {
        par 16 i, 8 j { C[16 * t + i, j] = 0.0 }
        mma(A[16 * t:16, 0:16], B[0:16, 0:8], C[16 * t:16, 0:8])
    }
}
"""


def test_the_reference_stands_for_an_intrinsic() -> None:
    lifted = program(MMA)
    assert [s.accesses[-1].mode for s in lifted.statements] == [AccessMode.WRITE, AccessMode.ACCUMULATE]
    assert set(lifted.buffers) == {"A", "B", "C"}
