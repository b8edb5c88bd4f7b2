"""`#cooperative`: launches that follow one another are phases of one, whose blocks meet at barriers of the grid."""

from dataclasses import replace

import numpy as np
import pytest
from stages import mapped, only_launch, proved, with_launch

import texpr
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.between import GridBarrier
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import branches, launches, of_kind, with_branches
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

TWICE = """kernel twice(A: i32[N], C: i32[N]) #cooperative {
    new T: i32[N]
    par N i { T[i] = A[N - 1 - i] * 2 }
    par N j { C[j] = T[N - 1 - j] + T[j] }
}"""
TURNS = """kernel turns(inout A: i32[N, 9], inout B: i32[N, 9]) #cooperative {
    seq 3 t {
        par N i #grid { par 9 j { B[i, j] = A[N - 1 - i, j] + A[i, 8 - j] } }
        par N i #grid { par 9 j { A[i, j] = B[N - 1 - i, 8 - j] } }
    }
}"""
STAGED = """kernel staged(A: i32[N, 64], C: i32[N, 64], S: i32[N]) #cooperative {
    seq 3 t {
        par N b { new shared s: i32[64]; par 64 i { s[i] = A[b, i] + i32(t) }; par 64 i { C[b, i] = s[63 - i] } }
        par N b { S[b] = C[N - 1 - b, 5] }
    }
}"""


def few(text: str, multiprocessors: int = 1, **sizes: int) -> MappedProgram:
    """Mapped to a GPU with few multiprocessors."""
    target = replace(parse_target("cuda:sm_90a"), multiprocessors=multiprocessors)
    return map_program(proved(text, **sizes), target)


def barriers(program: MappedProgram) -> list[GridBarrier]:
    return list(of_kind(only_launch(program).body, GridBarrier))


def without(body: tuple[Node, ...], gone: GridBarrier) -> tuple[Node, ...]:
    kept = (node for node in body if node is not gone)
    return tuple(with_branches(node, [without(inside, gone) for inside in branches(node)]) for node in kept)


def test_two_launches_are_two_phases_of_one_with_a_barrier_of_the_grid_between() -> None:
    program = mapped(TWICE, N=5000)
    (barrier,) = barriers(program)
    assert {order.buffer for order in barrier.orders} == {"T"}
    made = texpr.parse(TWICE).only.compile("cuda:sm_90a", stop_after="emit", N=5000)
    assert [step.cooperative for step in made.manifest.host] == [True] and "tx::sync_grid(met, 0);" in made.source
    assert len(list(launches(mapped(TWICE.replace("#cooperative", ""), N=5000).host))) == 2


@pytest.mark.parametrize("n", [0, 1, 17])
@pytest.mark.parametrize("text", [TWICE, TURNS, STAGED])
def test_few_blocks_that_go_over_many_tiles_compute_what_the_launches_did(text: str, n: int) -> None:
    small = text.replace("#cooperative", "#cooperative #blocks_per_sm(2) #threads(32)")
    program = few(small, N=n)
    blocks = constant_value(only_launch(program).grid[0])
    assert blocks is not None and blocks <= 2
    rng = np.random.default_rng(n)
    shapes = {p.name: tuple(constant_value(e) or 0 for e in p.shape) for p in program.kernel.params}
    given = {name: rng.integers(-9, 9, shape).astype(np.int32) for name, shape in shapes.items()}
    wanted = simulate(mapped(text.replace("#cooperative", ""), N=n), given)
    free = few(small)
    found = simulate(free if n % 2 else program, given, seed=n)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("text", [TWICE, TURNS, STAGED])
def test_each_barrier_of_the_grid_is_needed_and_both_checks_miss_it(text: str) -> None:
    program = few(text.replace("#cooperative", "#cooperative #threads(32)"), N=33)
    rng = np.random.default_rng(1)
    shapes = {p.name: tuple(constant_value(e) or 0 for e in p.shape) for p in program.kernel.params}
    given = {name: rng.integers(-9, 9, shape).astype(np.int32) for name, shape in shapes.items()}
    found = barriers(program)
    assert found
    for gone in found:
        only = only_launch(program)
        spoilt = with_launch(program, replace(only, body=without(only.body, gone)))
        with pytest.raises(InternalError, match=r"no barrier orders|nothing orders"):
            check_orders(spoilt)
        with pytest.raises(TExprError):
            for seed in range(2):
                simulate(spoilt, given, seed=seed)


def test_phases_that_touch_nothing_alike_do_not_wait_for_one_another() -> None:
    text = "kernel f(A: i32[N], B: i32[N]) #cooperative { par N i { A[i] = 1 }; par N i { B[i] = 2 } }"
    assert not barriers(mapped(text, N=64))


def test_a_barrier_where_blocks_diverge_is_no_barrier() -> None:
    program = few(TURNS, N=34)
    only = only_launch(program)
    (first, *_) = barriers(program)

    def deeper(node: Node) -> Node:
        inside = [tuple(map(deeper, body)) for body in branches(node)]
        if inside and not any(of_kind((node,), GridBarrier)):
            inside[0] = (first, *inside[0])
        return with_branches(node, inside)

    with pytest.raises(InternalError, match="blocks diverge"):
        check_orders(with_launch(program, replace(only, body=tuple(map(deeper, only.body)))))


def test_all_phases_have_blocks_of_as_many_threads() -> None:
    text = """kernel f(A: f32[300, 4000], s: f32[300], x: f32[1]) #cooperative {
        par 300 i { s[i] = sum 4000 j { A[i, j] } }
        x[0] = s[7]
        par 300 i { s[i] = s[i] * x[0] }
    }"""
    alone = {launch.threads for launch in launches(mapped(text.replace("#cooperative", "")).host)}
    assert len(alone) > 2 and only_launch(mapped(text)).threads == max(alone)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (TWICE.replace("#cooperative", "#cooperative #cluster_shape(2)"), "E0402", "are in clusters"),
        (
            "kernel f(A: f32[64, 64]) #cooperative { par 64 i, 64 j #tile(4, 4) { A[i, j] = 1.0 }\n"
            " par 64 i, 64 j { A[i, j] = A[i, j] + 1.0 } }",
            "E0401",
            "have 16 threads, and those of another phase",
        ),
    ],
)
def test_phases_that_cannot_be_are_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(TExprError, match=said) as caught:
        mapped(text)
    assert {d.code for d in caught.value.diagnostics} == {code} and all(d.help for d in caught.value.diagnostics)


def test_a_launch_whose_blocks_are_counted_stays_one_and_the_report_says_so() -> None:
    text = """kernel f(A: f32[9000000], s: f32[1], C: f32[64]) #cooperative {
        s[0] = sum 9000000 k { A[k] }
        par 64 i { C[i] = s[0] }
        par 64 i { C[i] = C[i] + C[63 - i] }
    }""".replace("C[i] = C[i] + C[63 - i]", "C[i] += s[0]")
    program = mapped(text)
    assert [any(of_kind(launch.body, GridBarrier)) for launch in launches(program.host)] == [False, True]
    assert any("f_0 stays a launch of its own" in note for note in program.report.notes)


def test_a_launch_whose_long_rows_have_clusters_stays_one() -> None:
    text = """kernel g(X: f32[257, 100003], Y: f32[257, 100003], s: f32[257]) #cooperative {
        par 257 i { new t: f32; t = maximum 100003 j { X[i, j] }; par 100003 k { Y[i, k] = X[i, k] - t } }
        par 257 i { s[i] = Y[256 - i, 0] }
    }"""
    program = mapped(text)
    assert [launch.cluster for launch in launches(program.host)] == [(8, 1, 1), (1, 1, 1)]
    assert any("in clusters" in note for note in program.report.notes)


@pytest.mark.gxx
def test_the_text_computes_it_too() -> None:
    given = {"A": np.arange(33, dtype=np.int32), "C": np.zeros(33, np.int32)}
    text = TWICE.replace("#cooperative", "#cooperative #threads(32)")
    texpr.parse(text).only.compile("cuda-host:sm_90a")(**given)
    doubled = 2 * given["A"][::-1]
    assert np.array_equal(given["C"], doubled[::-1] + doubled)
