"""The mapping's parts: digits cover threads, structure follows the program, attributes are kept or refused."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import mapped

from texpr.grammar.ast import IndexConst
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.polyhedral.map.digits import power_of_two, share, thread_digits
from texpr.polyhedral.map.placement import MAX_THREAD_BYTES
from texpr.polyhedral.mapped.places import GRID_PLACES, Memory, Place
from texpr.polyhedral.mapped.program import HostIf, HostLoop, Launch
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import launches, statements
from texpr.polyhedral.names import Names


def refusal(text: str, target: str = "cuda:sm_90a", **sizes: int) -> str:
    with pytest.raises(TExprError) as caught:
        mapped(text, target, **sizes)
    first = caught.value.diagnostics[0]
    assert first.primary is not None and first.help
    return first.code


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 2000), min_size=1, max_size=4),
    st.sampled_from([1, 2, 16, 32, 64, 96, 192, 256, 1024]),
    st.data(),
)
def test_thread_digits_give_every_thread_its_own_index(extents: list[int], threads: int, data: st.DataObject) -> None:
    dims = range(len(extents))
    order = tuple(data.draw(st.permutations(list(dims))))
    caps = [data.draw(st.sampled_from([1, 8, 32, 1024])) for _ in dims]
    pieces = share(extents, order, caps, threads)
    assert math.prod(radix for _, radix in pieces) == threads
    names = [f"i{d}" for d in dims]
    band = thread_digits(names, pieces, Names(names), 32)
    seen = set()
    for thread in range(threads):
        place = {Place.LANE: thread % 32, Place.WARP: thread // 32}
        point = []
        for digits in band.digits:
            parts = (
                d.weight * (place[d.place] // index_value(d.stride, {}) % index_value(d.radix, {})) for d in digits
            )
            point.append(sum(parts))
        assert all(value < covered for value, covered in zip(point, band.covered, strict=True))
        seen.add(tuple(point))
    assert len(seen) == threads == math.prod(band.covered)


@given(st.integers(-5, 5000))
def test_a_power_of_two_is_the_least_that_suffices(value: int) -> None:
    power = power_of_two(value)
    assert power & (power - 1) == 0 and power >= value and (power == 1 or power // 2 < value)


COPY = "kernel copy(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[M - 1 - i, j] = A[i, j] } }"
TRANSPOSED = "kernel copy(A: f32[M, N], B: f32[M, N]) { par N j, M i { B[i, j] = A[i, j] } }"


@pytest.mark.parametrize("text", [COPY, TRANSPOSED])
def test_lanes_run_over_the_contiguous_dimension(text: str) -> None:
    (launch,) = launches(mapped(text).host)
    assert {d.index for d in launch.digits if d.place is Place.LANE} == {"j"}


def test_every_access_of_a_copy_is_coalesced() -> None:
    report = mapped(COPY).report.accesses
    assert {a.buffer for a in report} == {"A", "B"}
    assert {(a.lane_stride, a.distance, a.sectors, a.ideal_sectors) for a in report} == {(4, 124, 16, 16)}


def test_a_band_of_no_statements_is_mapped() -> None:
    (launch,) = launches(mapped("kernel nothing(Z: i8[M]) { par 8 a, 5 b, M c { let v = min(c, 4) } }").host)
    assert not launch.orders


def test_free_sizes_stand_only_in_grid_and_serial_digits() -> None:
    (launch,) = launches(mapped(COPY).host)
    free = {d.place for d in launch.digits if not isinstance(d.radix, IndexConst)}
    assert free and free <= {*GRID_PLACES, Place.SERIAL}


def test_large_constant_extents_do_not_overflow_the_narrow_grid_axes() -> None:
    text = "kernel k(A: u8[300000, 4, 4, 70000]) { par 300000 a, 4 b, 4 c, 70000 d { A[a, b, c, d] = 1 } }"
    (launch,) = launches(mapped(text).host)
    x, y, z = (index_value(g, {}) for g in launch.grid)
    assert x <= 2**31 - 1 and y <= 65535 and z <= 65535
    together = math.prod(index_value(d.radix, {}) for d in launch.digits if d.place is Place.VECTOR)
    assert x * y * z * launch.threads * together >= 300000 * 16 * 70000


def test_more_blocks_than_a_grid_has_are_refused() -> None:
    text = "kernel k(A: u8[3000000, 3000000]) { par 3000000 i #grid { par 3000000 j #grid { A[i, j] = 1 } } }"
    assert refusal(text) == "E0401"


def test_no_padding_guard_stands_where_digits_cover_exactly() -> None:
    from texpr.polyhedral.mapped.tree import Guard
    from texpr.polyhedral.mapped.walks import located

    def guards(m: int, n: int) -> int:
        (launch,) = launches(mapped(COPY, M=m, N=n).host)
        return sum(isinstance(p.node, Guard) for p in located(launch.body))

    assert guards(64, 1024) == 0 and guards(64, 1028) == 1


def test_a_seq_around_pars_is_a_loop_of_launches_that_take_its_index() -> None:
    text = "kernel k(A: f32[T, N]) { seq T t { par N i { A[t, i] = 1.0 }; par N i { A[t, i] += 1.0 } } }"
    (loop,) = mapped(text).host
    assert isinstance(loop, HostLoop)
    assert [node.arguments for node in loop.body if isinstance(node, Launch)] == [("t",), ("t",)]


def test_an_if_on_sizes_around_pars_is_decided_on_the_host() -> None:
    (node,) = mapped("kernel k(A: f32[N]) { if N > 5 { par N i { A[i] = 1.0 } } }").host
    assert isinstance(node, HostIf)


def test_updates_of_one_element_by_many_threads_are_atomic_and_by_one_thread_not() -> None:
    text = "kernel k(A: f32[M, N], y: f32[M]) { par M i, N j { y[i] += A[i, j] } }"
    (launch,) = launches(mapped(text, N=8).host)
    assert [s.atomic for s in statements(launch.body)] == [True]
    (launch,) = launches(mapped(text, "cpu").host)
    assert not any(s.atomic for s in statements(launch.body))
    one = "kernel k(A: f32[M, N], y: f32[M]) { par M i { seq N j { y[i] += A[i, j] } } }"
    (launch,) = launches(mapped(one, N=8).host)
    assert not any(s.atomic for s in statements(launch.body))


def test_two_updates_that_meet_in_one_element_are_both_atomic() -> None:
    text = "kernel k(A: f32[N], y: f32[N + 1]) { par N i { y[i] += A[i]; y[i + 1] += A[i] } }"
    (launch,) = launches(mapped(text).host)
    assert [s.atomic for s in statements(launch.body)] == [True, True]


def test_long_reductions_of_a_band_need_no_atomics() -> None:
    text = "kernel k(A: f32[M, N], s: f32[1]) { par M i, N j { s[0] += A[i, j] } }"
    (launch,) = launches(mapped(text).host)
    assert not any(s.atomic for s in statements(launch.body))


def test_a_band_whose_extents_depend_on_one_another_is_not_combined() -> None:
    text = "kernel k(A: f32[N, N], y: f32[N]) where N <= 4096 { par N i, i j { y[i - 1] += A[i, j] } }"
    (launch,) = launches(mapped(text).host)
    assert [s.id for s in statements(launch.body)] == ["S0"]


def test_a_promise_of_uniqueness_needs_no_atomics() -> None:
    text = "kernel k(A: f32[N], p: i32[N], y: f32[N]) { par N i { y[p[i]] = A[i] #unique } }"
    (launch,) = launches(mapped(text).host)
    assert [s.atomic for s in statements(launch.body)] == [False]


LOCAL = """kernel k(A: f32[M, 64]) {
    par M i { new WORD t: f32[64]; par 64 j { t[j] = A[i, j] }; par 64 j { A[i, j] = t[63 - j] } }
}"""
PLACES = [("", Memory.SHARED), ("shared", Memory.SHARED), ("global", Memory.GLOBAL)]
IN_A_THREAD = """kernel k(A: f32[N, 4], B: f32[N]) {
    par N i { B[i] = 0.0; par 4 j { new shared t: f32[4]; t[0] = 1.0; A[i, j] = t[0] } }
}"""


@pytest.mark.parametrize(
    ("word", "memory"), [("", Memory.SHARED), ("shared", Memory.SHARED), ("global", Memory.GLOBAL)]
)
def test_a_local_that_threads_exchange_lies_where_the_author_says(word: str, memory: Memory) -> None:
    placed = mapped(LOCAL.replace("WORD ", f"{word} " if word else "")).buffers["t"]
    assert placed.memory is memory
    assert placed.expanded == (("i",) if memory is Memory.GLOBAL else ())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("E0401", LOCAL.replace("WORD", "reg")),
        ("E0401", "kernel k(A: f32[N]) { new shared t: f32[4]; t[0] = 1.0; par N i { A[i] = t[0] } }"),
        ("E0401", IN_A_THREAD),
        ("E0401", "kernel k(A: f32[N]) #threads(N) { par N i { A[i] = 1.0 } }"),
        ("E0401", "kernel k(A: f32[N, K]) { par N i { seq K k #unroll { A[i, k] = 1.0 } } }"),
        (
            "E0402",
            "kernel k(A: f32[N, 8]) { par N i { par 8 j #tile(8) { A[i, j] = 1.0; A[i, j] = 2.0 }; A[i, 0] = 3.0 } }",
        ),
        ("E0402", "kernel k(A: f32[M, N]) { par M i, N j #vector(4) { A[i, j] = 1.0 } }"),
        ("E0402", "kernel k(A: f32[N, 8]) { par N i { seq 8 k #vector(4) { A[i, k] = 1.0 } } }"),
        ("E0401", "kernel k(A: f32[N]) { par N i #vector(N) { A[i] = 1.0 } }"),
        ("E0402", "kernel k(A: f32[N, 8]) { par N i { seq 8 k #stages(2) { A[i, k] = 1.0 } } }"),
        ("E0402", "kernel k(A: f32[N]) { par N i #block { A[i] = 1.0 } }"),
        ("E0402", "kernel k(A: f32[N]) { par N i #thread { A[i] = 1.0 } }"),
        ("E0402", "kernel k(A: f32[N, 4], B: f32[N]) { par N i { B[i] = 1.0; par 4 j #grid { A[i, j] = 1.0 } } }"),
        ("E0402", "kernel k(A: f32[N]) { par N i #block #warp { A[i] = 1.0 } }"),
        ("E0403", LOCAL.replace("WORD", "shared").replace("[64]; ", "[64000]; ")),
        ("E0502", "kernel k(A: f32[32]) { fully par 32 i #align(32) #block { A[i] = 1.0 } }"),
    ],
)
def test_what_is_not_mapped_is_refused_with_a_way_round(code: str, text: str) -> None:
    assert refusal(text) == code


def test_a_cpu_has_no_use_for_threads_and_memories_of_a_gpu() -> None:
    text = LOCAL.replace("WORD", "shared").replace("kernel k(A: f32[M, 64])", "kernel k(A: f32[M, 64]) #threads(64)")
    placed = mapped(text, "cpu")
    assert placed.buffers["t"].memory is Memory.REG
    assert all(launch.threads == 1 for launch in launches(placed.host))


MATVEC = "kernel k(A: f32[M, K], x: f32[K], y: f32[M]) { par M i { y[i] = sum K k { A[i, k] * x[k] } } }"
SHORT = MATVEC.replace("sum K k", "sum 8 k").replace("K]", "8]")


def test_a_row_reduction_has_lanes_along_the_row() -> None:
    program = mapped(MATVEC, K=1 << 16)
    (launch,) = launches(program.host)
    lanes = {d.index for d in launch.digits if d.place is Place.LANE}
    assert "k" in lanes and "i" not in lanes
    assert [(a.width, a.sectors) for a in program.report.accesses if a.buffer == "A"] == [(4, 16)]


def test_short_rows_keep_a_thread_for_each_result() -> None:
    (launch,) = launches(mapped(SHORT).host)
    assert {d.index for d in launch.digits if d.place is Place.LANE} == {"i"}


def test_an_ordered_reduction_stays_in_one_thread() -> None:
    text = "kernel k(A: f32[M, K], y: f32[M]) { par M i { seq K k #ordered { y[i] += A[i, k] } } }"
    (launch,) = launches(mapped(text).host)
    assert {d.index for d in launch.digits} == {"i"}


def test_locals_beyond_what_a_thread_has_lie_in_global_memory() -> None:
    count = MAX_THREAD_BYTES // 1024 + 2
    lines = [f"new t{k}: f32[256]; seq 256 j {{ t{k}[j] = A[i] }}; A[i] += t{k}[1]" for k in range(count)]
    found = mapped("kernel k(A: f32[N]) { par N i { " + "; ".join(lines) + " } }", N=8)
    memories = [b.memory for b in found.buffers.values() if b.name.startswith("t")]
    assert memories.count(Memory.REG) == count - 2 and memories.count(Memory.GLOBAL) == 2


@pytest.mark.parametrize(("local", "shared_out"), [("new d: f32", True), ("new shared d: f32", False)])
def test_a_reduction_with_scalars_of_its_own_is_shared_out(local: str, shared_out: bool) -> None:
    loop = f"seq 2048 k {{ {local}; d = A[i, k]; C[i] += d * d }}"
    text = f"kernel k(A: f32[M, 2048], C: f32[M]) {{ par M i {{ C[i] = 0.0; {loop} }} }}"
    assert ("C_parts" in show(mapped(text))) == shared_out
