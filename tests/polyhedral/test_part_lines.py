"""Columns whose rows begin anywhere, read in chunks that are aligned for each thread."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stages import mapped, only_launch
from test_map_programs import arguments
from test_parted import choice

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.candidate import Candidate, Parted
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.simulate.stage import simulate

SUM = "kernel k(X: bf16[M, N], C: f32[N]) { par N j { C[j] = sum M i { f32(X[i, j]) } } }"
PROGRAMS = {
    "sum": SUM,
    "greatest": "kernel k(X: f32[M, N], C: f32[N]) where M >= 1 { par N j { C[j] = maximum M i { X[i, j] } } }",
    "times a vector": """kernel k(A: bf16[M, N], w: bf16[M], C: f32[N]) {
        par N j { C[j] = sum M i { f32(w[i]) * f32(A[i, j]) } }
    }""",
    "plus one": "kernel k(X: f32[M, N], C: f32[N]) { par N j { C[j] = sum M i { X[i, j] + 1.0 } } }",
    "backwards": "kernel k(X: bf16[M, N], C: f32[N]) { par N j { C[j] = sum M i { f32(X[M - 1 - i, j]) } } }",
    "eight rows on": """kernel k(X: bf16[M + 8, N], C: f32[N]) {
        par N j { C[j] = sum M i { f32(X[i, j]) * f32(X[i + 8, j]) } }
    }""",
    "of a batch": "kernel k(X: bf16[3, M, N], C: f32[3, N]) { par 3 b, N j { C[b, j] = sum M i { f32(X[b, i, j]) } } }",
    "picked": """kernel k(X: bf16[M, N], I: i64[N]) { par N j {
        new top: f32; new at: i64; top = -inf; at = 0
        seq M i { if f32(X[i, j]) > top { top = f32(X[i, j]); at = i } }
        I[j] = at
    } }""",
}


def narrowed(text: str, **changes: Any) -> MappedProgram:
    """The program with few lanes and blocks, so that small sizes have several of them."""
    found = mapped(text)
    candidate, first = found.candidate, choice(found)
    assert isinstance(candidate, Candidate) and isinstance(first, Parted) and first.lines, "it is read in chunks"
    small = replace(first, deal=(("j", 8),), threads=64, blocks={"i": 3}, ahead=3, resident=0, strip=0)
    (name,) = candidate.launches
    return mapped(text, choices=replace(candidate, launches={name: replace(small, **changes)}))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("m", "n"), [(61, 131), (200, 56), (3, 1)])
def test_what_is_read_in_chunks_is_what_the_program_says(name: str, m: int, n: int) -> None:
    program, sizes = narrowed(PROGRAMS[name]), {"M": m, "N": n}
    values = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, values, sizes=sizes).outputs
    got = simulate(program, values, seed=m, sizes=sizes)
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=array)


GROUPS = {
    "of a strip": {"strip": 16, "blocks": {"i": 19}},
    "at any address": {"lines": {}, "deal": (("j", 4),), "ahead": 2, "blocks": {"i": 19}},
}


@pytest.mark.parametrize("name", ["greatest", "times a vector", "picked"])
@pytest.mark.parametrize("groups", GROUPS)
def test_several_threads_share_what_many_blocks_left_of_an_element(name: str, groups: str) -> None:
    sizes = {"M": 470, "N": 35}
    program = narrowed(PROGRAMS[name], **GROUPS[groups])
    assert any(b.name.endswith("_totals") for b in program.buffers.values() if b.memory is Memory.SHARED)
    values = arguments(program.kernel, sizes)
    expected = interpret(program.kernel, values, sizes=sizes).outputs
    got = simulate(program, values, seed=5, sizes=sizes)
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=array)


@pytest.mark.parametrize(("threads", "lanes", "strip"), [(96, 8, 48), (224, 8, 0)])
def test_threads_that_are_no_power_of_two_share_no_element_of_the_last_block(
    threads: int, lanes: int, strip: int
) -> None:
    text = "kernel k(X: bf16[M, 8 * N], C: f32[8 * N]) { par 8 * N j { C[j] = sum M i { f32(X[i, j]) } } }"
    first = choice(mapped(SUM))
    assert isinstance(first, Parted)
    changed = replace(first, deal=(("j", lanes),), threads=threads, blocks={"i": 19}, ahead=2, resident=0, strip=strip)
    found = mapped(text)
    assert isinstance(found.candidate, Candidate)
    (name,) = found.candidate.launches
    program = mapped(text, choices=replace(found.candidate, launches={name: changed}))
    assert not any(b.name.endswith("_totals") for b in program.buffers.values() if b.memory is Memory.SHARED)


def test_a_block_ends_one_chunk_less_than_it_reads() -> None:
    found = choice(mapped(SUM, M=2000, N=601))
    assert isinstance(found, Parted)
    assert (found.deal, found.widths, found.lines) == ((("j", 8),), {"j": 8}, {"j": "X[i, j]"})
    launch = only_launch(mapped(SUM, M=2000, N=601))
    assert constant_value(launch.grid[0]) == -(-601 // 56)


@pytest.mark.parametrize(
    ("m", "n", "threads", "strip", "blocks"),
    [
        (32749, 4093, 512, 416, 10 * 13),
        (22343, 6007, 512, 504, 12 * 11),
        (10007, 10007, 512, 456, 22 * 6),  # 20 strips would leave 12 of 132 multiprocessors idle
        (89418, 1501, 512, 504, 3 * 44),
        (134083, 1001, 512, 208, 5 * 26),  # few columns: one block for each multiprocessor leaves parts enough
        (300007, 255, 512, 128, 2 * 66),
        (500009, 127, 512, 64, 2 * 66),  # 16 lanes, for two strips
        (1000003, 51, 512, 56, 132),
        (100, 4093, 512, 456, 9 * 4),  # rows for so few turns of eight rounds that wide strips are better
        (2003, 60001, 256, 0, 242),
        (4096, 100003, 256, 192, 521),
        (4096, 131001, 256, 128, 1024),
    ],
)
def test_strips_come_out_even_on_the_multiprocessors(m: int, n: int, threads: int, strip: int, blocks: int) -> None:
    program = mapped(SUM, M=m, N=n)
    found = choice(program)
    assert isinstance(found, Parted)
    assert (found.threads, found.strip) == (threads, strip)
    extents = [constant_value(extent) or 0 for extent in only_launch(program).grid]
    assert extents[0] * extents[1] == blocks


@pytest.mark.parametrize(("asked", "threads"), [(1, 512), (2, 512), (3, 256), (5, 256), (8, 256)])
def test_as_many_blocks_as_are_asked_for_have_room(asked: int, threads: int) -> None:
    found = choice(mapped(SUM.replace(") {", f") #blocks_per_sm({asked}) {{", 1), M=32749, N=4093))
    assert isinstance(found, Parted) and (found.threads, found.resident) == (threads, asked)


@pytest.mark.parametrize("threads", [96, 160, 192, 384])
@pytest.mark.parametrize(("m", "n"), [(520, 100003), (1000, 65521), (32749, 4093)])
def test_threads_that_are_asked_for_lie_across_in_whole_warps(threads: int, m: int, n: int) -> None:
    for text in (SUM, SUM.replace("bf16", "f32")):
        found = choice(mapped(text.replace(") {", f") #threads({threads}) {{", 1), M=m, N=n))
        assert isinstance(found, Parted) and found.threads == threads


@pytest.mark.parametrize(
    "text",
    [
        SUM.replace("f32(X[i, j])", "f32(X[i, j]) * f32(X[i, j + 1])").replace("bf16[M, N]", "bf16[M, N + 1]"),
        SUM.replace("f32(X[i, j])", "f32(X[i, j]) * f32(X[i + 1, j])").replace("bf16[M, N]", "bf16[M + 1, N]"),
        SUM.replace("bf16[M, N]", "bf16[M, N] #align(2)"),
        "kernel k(X: bf16[3, M + 1, N], C: f32[N]) { par N j { C[j] = sum 3 b, M i { f32(X[b, i, j]) } } }",
        SUM.replace("f32(X[i, j])", "f32(X[i / 2, j])"),
    ],
)
def test_what_is_not_aligned_alike_is_shifted(text: str) -> None:
    found = choice(mapped(text, M=32749, N=4093))
    assert not isinstance(found, Parted) or not found.lines


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"lines": {"j": "C[j]"}}, "are counted from X.i, j., not from C"),
        ({"lines": {"i": "X[i, j]"}}, "are counted from none"),
        ({"threads": 32}, "are counted from none"),
        ({"widths": {"j": 4}}, "is no multiple of 4"),
        ({"ahead": 21}, "`ahead` is at most 20"),
        ({"strip": 64}, "are sure to read 56 neighbours of j, not 64"),
        ({"strip": 12}, "12 neighbours of j are no whole chunks"),
        ({"strip": 32, "lines": {}, "ahead": 2}, "32 neighbours that are counted from no line"),
    ],
)
def test_lines_that_do_not_fit_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why):
        narrowed(SUM, **change)


@pytest.mark.parametrize(
    ("dtype", "n", "lanes", "width", "parts"),
    [("bf16", 64, 8, 8, 132), ("bf16", 256, 8, 8, 33), ("bf16", 512, 16, 8, 33), ("f32", 128, 8, 4, 33)],
)
def test_few_aligned_columns_have_a_block_for_each_multiprocessor(
    dtype: str, n: int, lanes: int, width: int, parts: int
) -> None:
    found = choice(mapped(SUM.replace("bf16", dtype), M=1 << 20, N=n))
    assert isinstance(found, Parted)
    assert (found.threads, found.resident, found.lines) == (512, 1, {})
    assert (found.deal, found.widths, found.blocks) == ((("j", lanes),), {"j": width}, {"i": parts})
    short = choice(mapped(SUM.replace("bf16", dtype), M=2000, N=n))  # rows for less than a turn of each part
    assert isinstance(short, Parted) and short.resident > 1
