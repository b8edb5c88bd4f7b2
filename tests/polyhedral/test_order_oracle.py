"""The orders of a launch are complete: enumeration of threads and accesses, which starts from no list, adds none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from block_programs import SIZES, block_program
from order_oracle import RaceError, launches_at, missing, needed
from stages import PIPE, mapped

from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.mapped.walks import statements, tree_buffers
from texpr.polyhedral.orders import find as hazards
from texpr.polyhedral.orders.actors import collect
from texpr.polyhedral.simulate.stage import simulate

BRANCHES = """kernel branches(A: i32[M, 64], G: i32[M]) {
    par M i {
        new t: i32[64]
        par 64 a { t[a] = A[i, a] }
        seq 2 q {
            if G[i] > q { par 64 b { A[i, b] = t[63 - b] } } else { par 64 c { t[c] = 7 } }
        }
    }
}"""
SUM = """kernel sum_rows(A: i32[M, 512], C: i32[M, 512]) {
    par M i { new s: i32 ; s = 0 ; seq 512 k { s += A[i, 511 - k] } ; par 512 j { C[i, j] = s } }
}"""


def only_launch(program: MappedProgram) -> Launch:
    (launch,) = program.host
    assert isinstance(launch, Launch)
    return launch


def with_launch(program: MappedProgram, **changes: Any) -> MappedProgram:
    return replace(program, host=(replace(only_launch(program), **changes),))


@pytest.mark.parametrize("text", [PIPE, BRANCHES, SUM], ids=["pipe", "branches", "sum"])
def test_every_order_that_enumeration_finds_is_missed_when_it_is_dropped(text: str) -> None:
    program = mapped(text)
    launch = only_launch(program)
    assert missing(program, SIZES) == []
    found = list(needed(program, launch, SIZES))
    assert found
    for source, sink, buffer, carrier, _ in found:
        same = [
            o for o in launch.orders if (o.source, o.sink, o.buffer, o.carried_by) == (source, sink, buffer, carrier)
        ]
        kept = tuple(o for o in launch.orders if o not in same)
        lost = missing(with_launch(program, orders=kept), SIZES)
        assert (source, sink, buffer, carrier) in {key[:4] for key in lost}


def test_an_order_between_threads_of_a_warp_is_too_narrow_for_a_block() -> None:
    program = mapped(PIPE)
    narrow = tuple(replace(order, scope=Scope.WARP) for order in only_launch(program).orders)
    assert all(key[4] is Scope.BLOCK for key in missing(with_launch(program, orders=narrow), SIZES))
    assert missing(with_launch(program, orders=narrow), SIZES)


def test_pairs_that_are_not_asked_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the list of pairs, from which both the barriers and their checker start."""
    asked = hazards._Finder.pair

    def without_carried(self: Any, *given: Any) -> Any:
        return (question for question in asked(self, *given) if question[4] is None)

    monkeypatch.setattr(hazards._Finder, "pair", without_carried)
    assert missing(mapped(PIPE), SIZES)
    monkeypatch.undo()
    monkeypatch.setattr(hazards, "_exclusive", lambda *_: True)
    assert missing(mapped(PIPE), SIZES)


def test_threads_that_meet_in_one_par_are_a_race_that_no_order_mends() -> None:
    program = mapped("kernel rows(C: i32[M, 64]) { par M i { par 64 a { C[i, 63 - a] = 1 } } }")

    def collapsed(node: Any) -> Any:
        if isinstance(node, Define) and node.index == "a":
            return replace(node, digits=tuple(replace(d, weight=1) for d in node.digits))
        return node

    body = tuple(collapsed(node) for node in only_launch(program).body)
    with pytest.raises(RaceError, match="both reach C in S0 and S0"):
        missing(with_launch(program, body=body), SIZES)


def test_digits_that_mean_nothing_where_a_statement_stands_are_a_defect() -> None:
    launch = only_launch(mapped(PIPE))
    names = tuple(d.name for d in launch.digits if d.place.value in ("lane", "warp"))
    strays = tuple(replace(n, digits=names) if isinstance(n, Generic) else n for n in launch.body)
    moved = next(s for s in _statements(launch) if s.digits)
    with pytest.raises(InternalError, match="mean nothing where it stands"):
        collect(replace(launch, body=(moved, *strays)), 32, tree_buffers(launch.body))


def _statements(launch: Launch) -> list[Generic]:
    return list(statements(launch.body))


def test_a_digit_that_is_defined_twice_is_a_defect() -> None:
    launch = only_launch(mapped("kernel rows(C: i32[M, 64]) { par M i { par 64 a { C[i, 63 - a] = 1 } } }"))
    twice = next(n for n in launch.body if isinstance(n, Define) and n.index == "a")
    with pytest.raises(InternalError, match="defined twice"):
        collect(replace(launch, body=(twice, *launch.body)), 32, {"C"})


def test_what_one_statement_alone_touches_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    look = hazards.collect
    monkeypatch.setattr(hazards, "collect", lambda *given: asked.append(given[2]) or look(*given))
    mapped("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] * 2.0 } }")
    assert asked == []
    mapped("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] + B[i] } }")  # it is loaded, and stored
    mapped("kernel k(A: f32[N], B: f32[N]) { par N i { seq 3 k { B[i] = A[i] } } }")
    assert asked == [{"B"}, {"B"}]


@pytest.mark.parametrize("batch", range(4))
def test_random_block_programs_lack_no_order(batch: int) -> None:
    orders = 0
    for seed in range(batch * 10, batch * 10 + 10):
        text = block_program(seed)
        program = mapped(text, **({} if seed % 4 == 0 else SIZES))
        assert missing(program, SIZES) == [], text
        orders += sum(len(launch.orders) for launch, _ in launches_at(program.host, SIZES))
    assert orders >= 50


@pytest.mark.parametrize("seed", [2, 5, 9, 13])
def test_questions_that_share_an_answer_have_the_orders_that_each_has_alone(seed: int) -> None:
    program = mapped(block_program(seed), **SIZES)
    launch = only_launch(program)
    actors, alone = collect(launch, 32, tree_buffers(launch.body)), dict[Any, None]()
    for source in actors.touches:
        for sink in actors.touches:
            if source.buffer != sink.buffer or program.buffers[source.buffer].memory is Memory.REG:
                continue
            touches = [touch for touch in actors.touches if touch.buffer == source.buffer]
            fixed = hazards._Fixed.of(launch, program.proved.program, actors.alike, touches)
            finder = hazards._Finder(launch, program.proved.program, 32, {source.buffer: fixed})
            for question in finder.pair(source, sink, actors.entries.get(source.buffer, ())):
                finder.answers.clear()
                alone.update(dict.fromkeys(o for o in (finder.order(*question),) if o is not None))
    assert launch.orders and set(alone) == set(launch.orders)


@pytest.mark.parametrize("seed", [2, 5, 9, 13])
def test_one_more_band_changes_no_order_of_the_others(seed: int) -> None:
    text = block_program(seed)
    n = text.split("A: i32[M, ")[1].split("]")[0]
    more = (
        f"new y: i32[{n}]; par {n} y1 {{ y[y1] = A[i, y1] }}; par {n} y2 {{ D[i, y2] = y[{n} - 1 - y2] }}\n    }}\n}}\n"
    )
    assert text.endswith("    }\n}\n")
    longer = text.removesuffix("    }\n}\n").replace("Z: i32[K]", f"Z: i32[K], D: i32[M, {n}]") + "        " + more
    before, after = (only_launch(mapped(t, **SIZES)) for t in (text, longer))
    assert set(before.orders) == {o for o in after.orders if o.buffer not in ("y", "D")}
    assert {o.buffer for o in after.orders} - {o.buffer for o in before.orders} == {"y"}


def test_random_block_programs_are_right_when_simulated() -> None:
    for seed in (5, 17, 23, 28, 46, 55):
        text = block_program(seed)
        program = mapped(text, **SIZES)
        generator = np.random.default_rng(seed)
        shapes = {b.name: tuple(int(index_value(e, {})) for e in b.shape) for b in program.kernel.params}
        arrays = {name: generator.integers(-3, 9, shape).astype(np.int32) for name, shape in shapes.items()}
        want = interpret(program.kernel, {n: a.copy() for n, a in arrays.items()}, mode="fast").outputs
        got = simulate(program, arrays, seed=seed)
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array, err_msg=text)
