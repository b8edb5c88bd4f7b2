"""Orders say what threads of a block must wait for; barriers enforce them, and the checker misses none that goes."""

from dataclasses import replace
from pathlib import Path

import pytest
import stages
from graphs import define, do, last, launch, loop, order
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import PIPE, barriers, edited, mapped, without_barrier, without_barriers

from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral import isl
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.orders import find as hazards
from texpr.polyhedral.orders.flow import check_enforced, unenforced
from texpr.polyhedral.orders.synchronise import synchronise
from texpr.polyhedral.program import Hazard

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def only_launch(text: str) -> Launch:
    return stages.only_launch(mapped(text))


def inserted(launch: Launch, at: int, scope: Scope = Scope.BLOCK) -> Launch:
    """The launch without its barriers, and one before the node of that number."""
    bare = without_barriers(launch)
    return replace(bare, body=(*bare.body[:at], Barrier(scope=scope, orders=()), *bare.body[at:]))


def inside(launch: Launch, kind: type[Loop] | type[Guard]) -> Launch:
    """The launch without its barriers, and one at the start of the first node of a kind that all threads run."""
    waits = Barrier(scope=Scope.BLOCK, orders=())

    def with_barrier(node: Node) -> tuple[Node, ...]:
        own = isinstance(node, kind) and not (isinstance(node, Loop) and node.digit)
        return (replace(node, body=(waits, *node.body)),) if own else (node,)

    return edited(without_barriers(launch), with_barrier)


def summary(launch: Launch) -> set[tuple[str, str, str, Hazard, Scope, str | None]]:
    return {(o.source, o.sink, o.buffer, o.hazard, o.scope, o.carried_by) for o in launch.orders}


REVERSED = (
    "kernel k(A: f32[M, E]) { par M i { new t: f32[E]; par E a { t[a] = A[i, a] }; par E b { A[i, b] = t[R] } } }"
)


def reversed_rows(extent: int, read: str, threads: str = "") -> Launch:
    text = REVERSED.replace("E]", f"{extent}]").replace("par E", f"par {extent}").replace("[R]", f"[{read}]")
    return only_launch(text.replace(") {", f") {threads} {{", 1))


def test_threads_that_exchange_data_need_a_barrier_of_the_block() -> None:
    launch = reversed_rows(64, "63 - b")
    assert ("S0", "S1", "t", Hazard.FLOW, Scope.BLOCK, None) in summary(launch)
    assert [b.scope for b in barriers(launch)] == [Scope.BLOCK]


def test_an_author_s_atomic_updates_are_in_no_order_whatever_is_promised_of_them() -> None:
    update = "par 64 {0} {{ atomic w[at[{0}]] += 1 #unique }}"
    text = f"""kernel k(at: i32[64], inout H: i32[M, 64]) {{ par M b {{
        new w: i32[64]; par 64 z {{ w[z] = 0 }}
        {update.format("i")}; {update.format("j")}
        par 64 y {{ H[b, y] = w[y] }} }} }}"""
    launch = only_launch(text)
    assert {(o.source, o.sink) for o in launch.orders} == {("S0", "S1"), ("S0", "S2"), ("S1", "S3"), ("S2", "S3")}
    assert len(barriers(launch)) == 2
    updates = [line for line in show(mapped(text)).splitlines() if "w[data] += from at" in line]
    assert len(updates) == 2 and all(line.endswith("(atomic)") for line in updates)


def test_threads_that_read_their_own_data_need_none() -> None:
    launch = reversed_rows(64, "b")
    assert launch.orders == () and barriers(launch) == []


def test_an_order_that_takes_too_many_steps_to_decide_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "STEPS", 1)
    for extent, scope in ((32, Scope.WARP), (64, Scope.BLOCK)):
        launch = reversed_rows(extent, "b")
        assert ("S0", "S1", "t", Hazard.FLOW, scope, None) in summary(launch)
        assert {o.scope for o in launch.orders} == {scope}
        assert not any(o.computed or o.relation for o in launch.orders)


def test_threads_of_one_warp_need_a_barrier_of_the_warp() -> None:
    launch = reversed_rows(256, "b - b % 32 + 31 - b % 32")
    assert {o.scope for o in launch.orders} == {Scope.WARP}
    assert [b.scope for b in barriers(launch)] == [Scope.WARP]


def test_the_next_iteration_may_not_overwrite_what_is_still_read() -> None:
    found = summary(only_launch(PIPE))
    assert ("S0", "S1", "t", Hazard.FLOW, Scope.BLOCK, None) in found
    assert ("S1", "S0", "t", Hazard.ANTI, Scope.BLOCK, "k") in found


STAGES = """kernel stages(A: f32[K, 64], B: f32[K, 64]) {
    par 1 i {
        new t: f32[S, 64]
        seq K k { par 64 a { t[k % S, a] = A[k, a] }; par 64 b { B[k, b] = t[k % S, 63 - b] } }
    }
}"""


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_buffer_of_many_stages_is_overwritten_as_many_iterations_later(stages: int) -> None:
    launch = only_launch(STAGES.replace("S,", f"{stages},").replace("% S", f"% {stages}"))
    carried = {(o.hazard, o.carried_by): o.distance for o in launch.orders if o.buffer == "t"}
    assert carried == {(Hazard.FLOW, None): None, (Hazard.ANTI, "k"): stages, (Hazard.FLOW, "k"): stages}


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_barrier_of_the_iteration_between_orders_what_is_further_apart(stages: int) -> None:
    launch = only_launch(STAGES.replace("S,", f"{stages},").replace("% S", f"% {stages}"))
    assert len(barriers(launch)) == (1 if stages > 1 else 2)
    for number in range(len(barriers(launch))):
        assert unenforced(without_barrier(launch, number))


def test_an_order_keeps_between_which_threads_it_is() -> None:
    (order,) = reversed_rows(64, "63 - b").orders
    assert order.relation is not None
    meant = isl.Map(
        "[M, i] -> { thread[lane, warp] -> thread[31 - lane, 1 - warp] : 0 <= lane < 32 and 0 <= warp < 2 }",
        context=order.relation.get_ctx(),
    )
    assert order.relation.project_out_all_params().is_equal(meant.project_out_all_params())


@pytest.mark.parametrize(("slot", "spoken"), [("0", 0), ("i % 2", 1)])
def test_a_digit_of_the_block_is_in_a_question_only_where_an_access_speaks_of_it(slot: str, spoken: int) -> None:
    launch = only_launch(f"""kernel k(A: f32[8, 64], C: f32[8, 64]) {{
        par 8 i {{
            new t: f32[2, 64]
            par 64 a {{ t[{slot}, a] = A[i, a] }}
            par 64 b {{ C[i, b] = t[{slot}, 63 - b] }}
        }}
    }}""")
    (order,) = launch.orders
    assert order.relation is not None and order.relation.dim(isl.dim_type.param) == spoken


def test_a_new_entry_of_a_local_carries_no_flow() -> None:
    assert not any(o.hazard is Hazard.FLOW and o.carried_by == "k" for o in only_launch(PIPE).orders)


def test_a_loop_needs_two_barriers_for_one_exchange() -> None:
    launch = only_launch(PIPE)
    assert len(barriers(launch)) == 2
    assert unenforced(launch) == ()
    for number in range(2):
        assert unenforced(without_barrier(launch, number))


def test_every_barrier_names_an_order_that_only_it_enforces() -> None:
    launch = only_launch(PIPE)
    for number, barrier in enumerate(barriers(launch)):
        assert barrier.orders[0] in unenforced(without_barrier(launch, number))


def test_a_barrier_in_a_loop_that_may_not_run_does_not_count_outside_it() -> None:
    text = """kernel k(A: f32[M, 64], B: f32[M, 64], D: f32[N]) where N <= 4096 {
        par M i {
            new t: f32[64]
            par 64 a { t[a] = A[i, a] }
            seq N k { par 64 b { B[i, b] += 1.0 } }
            par 64 c { A[i, c] = t[63 - c] }
        }
    }"""
    launch = only_launch(text)
    (order,) = launch.orders
    loop = next(n for n, node in enumerate(without_barriers(launch).body) if isinstance(node, Loop))
    assert unenforced(inside(launch, Loop)) == (order,)
    assert unenforced(inserted(launch, loop)) == ()


def test_a_barrier_of_a_warp_does_not_order_the_block() -> None:
    launch = reversed_rows(64, "63 - b")
    narrow = edited(launch, lambda n: (replace(n, scope=Scope.WARP),) if isinstance(n, Barrier) else (n,))
    assert unenforced(narrow) == launch.orders


def test_a_barrier_where_threads_diverge_is_a_defect() -> None:
    launch = reversed_rows(48, "47 - b")
    with pytest.raises(InternalError, match="diverge"):
        unenforced(inside(launch, Guard))


def test_an_order_that_no_barrier_enforces_is_a_defect() -> None:
    with pytest.raises(InternalError, match="no barrier orders S0 before S1 on t"):
        check_enforced(without_barriers(reversed_rows(64, "63 - b")))


def test_branches_of_one_condition_are_not_ordered_but_their_barriers_are_uniform() -> None:
    text = """kernel k(A: f32[M, 64], f: i32[M]) {
        par M i {
            new t: f32[64]
            par 64 a { t[a] = A[i, a] }
            if f[i] > 0 { par 64 b { t[b] = t[b] + 1.0 } } else { par 64 c { t[63 - c] = 2.0 } }
            par 64 d { A[i, d] = t[(d + 1) % 64] }
        }
    }"""
    launch = only_launch(text)
    writers = {o.source for o in launch.orders} | {o.sink for o in launch.orders}
    assert not any({o.source, o.sink} == {"S2", "S3"} for o in launch.orders) and {"S2", "S3"} <= writers
    assert unenforced(launch) == ()


@st.composite
def exchanges(draw: st.DrawFn) -> str:
    """A block whose threads pass data round through shared buffers, in and out of loops and conditions."""
    count = draw(st.integers(1, 3))
    buffers = [f"t{n}" for n in range(count)]
    lines = [f"new {b}: f32[64]" for b in buffers]
    lines += [f"par 64 a {{ {b}[a] = A[i, a] }}" for b in buffers]

    def steps(depth: int) -> list[str]:
        found: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(["move", "move", "move", "seq", "if"] if depth < 2 else ["move"]))
            if kind == "move":
                source, sink = draw(st.sampled_from(buffers)), draw(st.sampled_from(buffers))
                shift = draw(st.sampled_from(["a", "63 - a", "(a + 1) % 64", "a / 2"]))
                if source == sink:
                    shift = "a"
                found.append(f"par 64 a {{ {sink}[a] = {source}[{shift}] + 1.0 }}")
            elif kind == "seq":
                extent = draw(st.sampled_from(["3", "i", "K"]))
                found += [f"seq {extent} k{depth} {{", *steps(depth + 1), "}"]
            else:
                condition = draw(st.sampled_from(["i > 1", "f[i] > 0"]))
                found += [f"if {condition} {{", *steps(depth + 1), "}"]
        return found

    body = "\n".join([*lines, *steps(0), *(f"par 64 a {{ A[i, a] = {b}[63 - a] }}" for b in buffers[:1])])
    return f"kernel k(A: f32[M, 64], f: i32[M], z: f32[K]) {{ par M i {{\n{body}\n}} }}"


@settings(max_examples=25, deadline=None)
@given(exchanges())
def test_no_barrier_of_a_random_exchange_can_go(text: str) -> None:
    launch = only_launch(text)
    assert unenforced(launch) == ()
    for number in range(len(barriers(launch))):
        assert unenforced(without_barrier(launch, number))


BAND = "par 64 p{0} {{ t[p{0}] = t[63 - p{0}] + 1.0 }} par 64 q{0} {{ u[q{0}] = t[(q{0} * 5 + s) % 64] }}"


def unrolled(bands: int) -> Launch:
    body = " ".join(BAND.replace("= t[63 - p{0}]", "= u[63 - p{0}]").format(k) for k in range(bands))
    return only_launch(
        f"kernel k(A: f32[8]) {{ par 8 b {{ new shared t: f32[64]; new shared u: f32[64]; "
        f"par 64 z {{ t[z] = 0.0; u[z] = 0.0 }} seq 9 s {{ {body} }} A[b] = t[0] }} }}"
    )


def test_unrolled_bands_are_some_questions_and_not_thousands() -> None:
    assert len(unrolled(40).orders) > 2_500


def test_pairs_of_accesses_that_differ_in_names_only_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two products of a step read the same elements of a tile, so what brings it meets both alike."""
    looked_for, asked = list[object](), list[object]()
    order, meet = hazards._Finder.order, hazards.meetings
    monkeypatch.setattr(hazards._Finder, "order", lambda *given: looked_for.append(given) or order(*given))
    monkeypatch.setattr(hazards, "meetings", lambda *given: asked.append(given) or meet(*given))
    mapped((KERNELS / "matmul_seed.tex").read_text(encoding="utf-8"), M=4096, N=4096, K=4096)
    assert len(asked) == 9 and len(looked_for) == 12


def test_one_more_band_changes_no_order_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "STEPS", 4_000)
    few, more = summary(unrolled(6)), summary(unrolled(7))
    last = {"S14", "S15", "S16"}
    assert {o for o in more if not last.intersection(o[:2])} == {o for o in few if not last.intersection(o[:2])}


def test_a_count_of_blocks_is_a_barrier_but_not_for_an_order_that_a_loop_carries() -> None:
    fill = loop("k", 3, do("S0", "t[i] = A[k, i]"))
    body = (define("i", lane=32, warp=2), define("b", grid="N"), fill, last("met", "N", do("S1", "B[i] = t[63 - i]")))
    plain, carried = (launch(*body, threads=64, grid="N", orders=[order("S0", "S1", "t", after=k)]) for k in ("", "k"))
    assert not barriers(synchronise(plain))
    assert not unenforced(plain)
    with pytest.raises(InternalError, match="carried by k, which is not around both of its statements"):
        synchronise(carried)
