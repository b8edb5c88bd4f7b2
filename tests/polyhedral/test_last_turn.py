"""The rounds that are left behind whole turns of a reduction: where they are apart, and that nothing is added twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch
from test_map_programs import arguments
from test_part_lines import PROGRAMS
from test_parted import choice

from texpr.codegen.host_run import HostModule
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Parted
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Fresh, Loop
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.stage import simulate

CHUNKS = ("sum", "times a vector", "picked", "of a batch", "eight rows on")
ALONG = "kernel k(X: f32[N], Y: f32[N], S: f32[1]) { S[0] = sum N i { X[i] * Y[i] } }"


def in_turns(text: str, *, ahead: int, blocks: int = 1, next_turn: bool = False, **sizes: int) -> MappedProgram:
    """The program of 8 threads for each column, with so many rounds in a turn."""
    found = mapped(text)  # as sizes that a call decides are read, which are large
    candidate, first = found.candidate, choice(found)
    assert isinstance(candidate, Candidate) and isinstance(first, Parted) and first.lines
    changed = replace(first, deal=(("j", 8),), threads=64, ahead=ahead, resident=0, strip=0)
    changed = replace(changed, blocks={"i": blocks} if blocks > 1 else {}, next_turn=next_turn)
    (name,) = candidate.launches
    return mapped(text, choices=replace(candidate, launches={name: changed}), **sizes)


def turns(program: MappedProgram) -> list[str]:
    """The loops of turns over i."""
    return [loop.index for loop in of_kind(only_launch(program).body, Loop) if loop.index.startswith("i_serial")]


def loaded(program: MappedProgram) -> int:
    """How many arrays of registers rows are loaded to."""
    return sum("_run" in b.name for b in program.buffers.values() if b.memory is Memory.REG)


@pytest.mark.parametrize(
    ("rows", "ahead", "apart"),
    [(257, 4, True), (257, 16, True), (256, 4, False), (241, 4, False), (226, 4, True), (7, 4, False), (39, 4, True)],
)
def test_what_is_left_is_apart_where_it_is_half_of_a_turn_or_less(rows: int, ahead: int, apart: bool) -> None:
    program = in_turns(PROGRAMS["sum"], ahead=ahead, M=rows, N=131)
    assert loaded(program) == 1 + apart
    assert len(turns(program)) == (rows // (8 * ahead) > 1 or (rows > 8 * ahead and not apart))


def test_turns_and_the_last_one_print_as_their_golden_text(golden: Any) -> None:
    golden("map/last_turn.cuda.txt", show(in_turns(PROGRAMS["times a vector"], ahead=4, M=257, N=131)))


def test_turns_of_any_number_are_not_split() -> None:
    assert loaded(in_turns(PROGRAMS["sum"], ahead=4, N=131)) == 1


@pytest.mark.parametrize(
    ("rows", "apart"), [(288, False), (272, False), (257, True), (225, True), (100, True), (90, False)]
)
def test_several_blocks_have_equal_shares_of_what_is_left(rows: int, apart: bool) -> None:
    assert loaded(in_turns(PROGRAMS["sum"], ahead=4, blocks=3, M=rows, N=131)) == 1 + apart


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize(
    ("m", "n", "ahead", "blocks"),
    [(67, 83, 4, 1), (39, 131, 2, 1), (130, 9, 8, 1), (163, 83, 4, 3), (109, 131, 3, 2), (470, 35, 3, 3)],
)
@pytest.mark.parametrize("next_turn", [False, True])
def test_every_row_is_added_once(name: str, m: int, n: int, ahead: int, blocks: int, next_turn: bool) -> None:
    program = in_turns(PROGRAMS[name], ahead=ahead, blocks=blocks, next_turn=next_turn, M=m, N=n)
    sizes = {"M": m, "N": n}
    assert loaded(program) > 1
    values = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, values).outputs
    got = simulate(program, values, seed=m)
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=array)


def test_each_round_is_loaded_for_the_next_turn_as_soon_as_it_is_added(golden: Any) -> None:
    program = in_turns(PROGRAMS["picked"], ahead=2, next_turn=True, M=53, N=131)
    golden("map/next_turn.cuda.txt", show(program))
    assert loaded(program) == 2 and len(turns(program)) == 1
    (loop,) = (loop for loop in of_kind(only_launch(program).body, Loop) if loop.index.startswith("i_serial"))
    assert "X_run" not in {fresh.buffer for fresh in of_kind(loop.body, Fresh)}, "what is loaded lasts over turns"


@pytest.mark.parametrize(("rows", "several"), [(32, False), (64, True), (96, True)])
def test_one_turn_has_none_behind_it(rows: int, several: bool) -> None:
    program = in_turns(PROGRAMS["sum"], ahead=4, next_turn=True, M=rows, N=131)
    assert ("i_next" in show(program)) is several
    values = arguments(program.kernel, {"M": rows, "N": 131})
    np.testing.assert_array_equal(
        simulate(program, values, seed=1)["C"], interpret(program.kernel, values).outputs["C"]
    )


def test_what_is_left_along_a_row_is_added_once() -> None:
    found = mapped(ALONG, N=2**12 + 300)
    candidate, first = found.candidate, choice(found)
    assert isinstance(candidate, Candidate) and isinstance(first, Parted)
    (name,) = candidate.launches
    changed = replace(first, threads=64, ahead=4, blocks={}, resident=0)
    program = mapped(ALONG, choices=replace(candidate, launches={name: changed}), N=2**12 + 300)
    assert loaded(program) == 4
    values = arguments(program.kernel, {})
    np.testing.assert_array_equal(
        simulate(program, values, seed=1)["S"], interpret(program.kernel, values).outputs["S"]
    )


def test_blocks_that_share_what_lies_along_memory_have_no_last_turn() -> None:
    found = mapped(ALONG, N=2**12 + 300)
    candidate, first = found.candidate, choice(found)
    assert isinstance(candidate, Candidate) and isinstance(first, Parted)
    (name,) = candidate.launches
    changed = replace(first, threads=64, ahead=4, blocks={"i": 2}, resident=0)
    program = mapped(ALONG, choices=replace(candidate, launches={name: changed}), N=2**12 + 300)
    assert loaded(program) == 2
    values = arguments(program.kernel, {})
    np.testing.assert_array_equal(simulate(program, values)["S"], interpret(program.kernel, values).outputs["S"])


def test_what_is_emitted_of_turns_runs_on_the_cpu() -> None:
    kept = []
    for number, (name, m, n) in enumerate([("sum", 67, 83), ("times a vector", 41, 131), ("picked", 130, 9)]):
        text = PROGRAMS[name].replace("kernel k", f"kernel k{number}", 1)
        program = in_turns(text, ahead=4, next_turn=m > 2 * 32, M=m, N=n)
        kept.append((Emitted(program), program, {"M": m, "N": n}))
    module = HostModule("\n".join(emitted.source for emitted, *_ in kept), werror=True)
    for emitted, program, sizes in kept:
        values = arguments(program.kernel, sizes)
        expected = interpret(program.kernel, values).outputs
        assert emitted.run(module, values) is None
        for array, found in expected.items():
            np.testing.assert_array_equal(values[array], found, err_msg=array)


@pytest.mark.parametrize(
    ("rows", "columns", "ahead"),
    [
        (257, 100003, 4),
        (256, 100003, 4),
        (249, 100003, 6),
        (255, 100003, 6),
        (199, 100003, 4),
        (184, 100003, 0),
        (257, 4099, 0),
    ],
)
def test_few_rounds_of_chunks_are_read_at_a_time_where_little_is_left(rows: int, columns: int, ahead: int) -> None:
    found = choice(mapped(PROGRAMS["sum"], M=rows, N=columns))
    assert isinstance(found, Parted)
    few = found.lines and found.deal == (("j", 32),) and found.threads == 256
    assert (found.ahead if few and found.ahead < 8 else 0) == ahead


@pytest.mark.parametrize(
    ("columns", "threads", "strip"), [(100003, 768, 760), (90001, 768, 688), (130003, 1024, 992), (50021, 256, 0)]
)
def test_first_maxima_of_short_columns_have_a_block_for_each_multiprocessor(
    columns: int, threads: int, strip: int
) -> None:
    found = choice(mapped(PROGRAMS["picked"], M=257, N=columns))
    assert isinstance(found, Parted)
    assert (found.threads, found.strip, found.next_turn) == (threads, strip, bool(strip))
