"""Rows of several loops: loops of a block over the same elements go over one row, where it has room."""

import pytest
from stages import only_launch

import texpr
from texpr.grammar.ast import IndexVar
from texpr.grammar.index.expr import combine, const
from texpr.grammar.index.operators import IndexOp
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.vector import vector_width
from texpr.polyhedral.mapped.candidate import Blocks, Candidate
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, operators

GROUPS = """kernel k(X: {t}[B, D, N], G: f32[D], Y: {t}[B, D, N]) {{ par B b {{
    new mean: f32
    mean = sum D d, N n {{ f32(X[b, d, n]) }}
    par D d, N n {{ Y[b, d, n] = (f32(X[b, d, n]) - mean) * G[d] }}
}} }}"""
CHANNELS = """kernel k(X: f32[B, C, N], Y: f32[B, C, N]) {
    new mean: f32[C]
    par C c { mean[c] = sum B b, N n { X[b, c, n] } }
    par B b, C c, N n { Y[b, c, n] = X[b, c, n] - mean[c] }
}"""


def mapped(text: str, **sizes: int) -> MappedProgram:
    """In the schedule that costs the least."""
    program: MappedProgram = (
        texpr.parse(text).only.compile("cuda:sm_90a", sizes=sizes, stop_after="map").mapping.program
    )
    return program


def blocks_of(program: MappedProgram) -> Blocks:
    assert isinstance(program.candidate, Candidate)
    (choice,) = program.candidate.launches.values()
    assert isinstance(choice, Blocks)
    return choice


def reads(program: MappedProgram) -> int:
    return sum(read.buffer == "X" for op in operators(only_launch(program).body) for read in op.reads)


def test_a_group_is_one_row_though_a_factor_tells_its_outer_index() -> None:
    program = mapped(GROUPS.format(t="f32"), B=256, D=32, N=16384)
    choice = blocks_of(program)
    assert (choice.cluster, choice.threads, choice.widths[choice.rows[0].indices[0]]) == (16, 512, 4)
    assert (len(choice.rows), reads(program)) == (1, 1)


def test_elements_of_16_bits_stay_packed_where_a_thread_has_no_register_for_each() -> None:
    sizes = {"B": 256, "D": 32, "N": 16384}
    compiled = texpr.parse(GROUPS.format(t="bf16")).only.compile("cuda:sm_90a", sizes=sizes, stop_after="emit")
    choice = blocks_of(compiled.mapping.program)
    assert (choice.cluster, choice.threads, choice.resident) == (16, 512, 2)
    before, *loops = compiled.source.split("X_row.keep();")
    assert "tx::put(X_row, " in before
    assert ["_serial < 8" in loop.partition("for (")[2].partition("\n")[0] for loop in loops] == [True, True]
    wide = texpr.parse(GROUPS.format(t="f32")).only
    assert ".keep()" not in wide.compile("cuda:sm_90a", sizes=sizes, stop_after="emit").source


@pytest.mark.parametrize(("n", "width"), [(1024, 4), (1022, 2), (1023, 1)])
def test_a_channel_of_many_images_is_one_row_of_one_launch(n: int, width: int) -> None:
    program = mapped(CHANNELS, B=64, C=512, N=n)
    choice = blocks_of(program)
    assert (reads(program), choice.widths.get(choice.rows[0].indices[0], 1)) == (1, width)


def test_what_has_no_room_as_a_row_stays_as_it_is() -> None:
    assert "b_n" not in str(mapped(CHANNELS, B=64, C=128, N=32000).candidate)
    assert len(list(launches(mapped(CHANNELS, B=64, C=128, N=32000).host))) == 2
    assert "d_n" not in str(mapped(GROUPS.format(t="bf16"), B=256, D=32, N=32768).candidate)
    narrow = CHANNELS.replace("f32[B", "bf16[B").replace("{ X[b, c, n] }", "{ f32(X[b, c, n]) }")
    narrow = narrow.replace("= X[b, c, n] - ", "= f32(X[b, c, n]) - ")
    assert "b_n" in str(mapped(narrow, B=32, C=256, N=16384).candidate)
    assert "b_n" not in str(mapped(narrow, B=31, C=257, N=16383).candidate)  # no two neighbours are one access


@pytest.mark.parametrize("shape", [{"D": 1, "N": 33473}, {"D": 33473, "N": 1}])
def test_a_loop_of_one_iteration_is_none_beside_the_other(shape: dict[str, int]) -> None:
    program = mapped(GROUPS.format(t="bf16"), B=2056, **shape)
    choice = blocks_of(program)
    assert (len(choice.rows), reads(program)) == (1, 1)
    assert choice.rows[0].line and choice.widths[choice.rows[0].indices[0]] == 8
    assert " / " not in str(program.candidate)


@pytest.mark.parametrize(("turn", "stride", "width"), [(64, 256, 4), (6, 256, 2), (64, 66, 2), (5, 8, 1)])
def test_neighbours_in_one_turn_of_a_quotient_are_one_access(turn: int, stride: int, width: int) -> None:
    layout = row_major((const(9), const(stride)))
    index = IndexVar(name="i")
    place = (combine(IndexOp.DIV, index, const(turn)), combine(IndexOp.MOD, index, const(turn)))
    assert vector_width(layout, place, "i", 4) == width
