"""Bands of `atomic` updates whose blocks have copies of what they update: which have them, and what is right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import barriers, mapped, only_launch, with_launch, without_barrier

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.mapped.candidate import Candidate, Tallied
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

COUNTS = "kernel k(K: i32[N], inout H: i32[12]) { par N i { atomic H[K[i]] += 1 } }"
PROGRAMS = {
    "counts": COUNTS,
    "bytes": "kernel k(K: u8[N], inout H: i32[12]) { par N i { atomic H[K[i]] += 1 } }",
    "unaligned": "kernel k(K: i32[N + 1], inout H: u32[12]) { par N i { atomic H[K[i + 1]] += 1 } }",
    "weights": "kernel k(K: i32[N], W: i64[N], inout H: i64[12]) { par N i { atomic H[K[i]] += W[i] } }",
    "floats": "kernel k(K: i32[N], W: f32[N], inout H: f32[12]) where N <= 4096 { par N i { atomic H[K[i]] += W[i] } }",
    "long floats": "kernel k(K: i32[N], W: f32[N], inout H: f32[12]) { par N i { atomic H[K[i]] += W[i] } }",
    "greatest": "kernel k(K: i32[N], W: f32[N], inout H: f32[12]) { par N i { atomic H[K[i]] max= W[i] } }",
    "least": "kernel k(K: i32[N], W: i32[N], inout H: i32[12]) { par N i { atomic H[K[i]] min= W[i] } }",
    "product": "kernel k(K: i32[N], W: i32[N], inout H: i32[12]) { par N i { atomic H[K[i]] *= W[i] } }",
    "chosen": "kernel k(K: i32[N], W: i32[N], inout H: i32[12]) { par N i { if W[i] > 0 { atomic H[K[i]] += 1 } } }",
    "clamped": """kernel k(X: f32[N], inout H: i32[12]) {
        par N i { let b = min(max(i32(X[i] * 3.0), 0), 11); atomic H[b] += 1 }
    }""",
    "lazy": """kernel k(K: i32[N], W: i32[N], inout H: i32[12]) {
        par N i { atomic H[K[i]] += select(i >= 1, W[i - 1], 5) }
    }""",
    "pairs": "kernel k(K: i32[N], L: i32[N], inout H: i32[12, 12]) { par N i { atomic H[K[i], L[i]] += 1 } }",
    "image": "kernel k(K: i32[M, N], inout H: i32[M, 12]) { par M i, N j { atomic H[i, K[i, j]] += 1 } }",
    "two": """kernel k(K: i32[N], W: i32[N], inout H: i32[12], inout G: f32[12], inout Y: i32[N]) {
        par N i { atomic H[K[i]] += 1; atomic G[K[i]] max= f32(W[i]); atomic H[11] += W[i]; atomic Y[i] += 1 }
    }""",
    "inside": "kernel k(K: i32[N, 3], inout H: i32[12]) { par N i { seq 3 j { atomic H[K[i, j]] += i32(j + 1) } } }",
    "one": "kernel k(X: i32[N], inout S: i32[1]) { par N i { atomic S[0] += X[i] } }",
    "by remainder": "kernel k(X: i32[N], inout S: i32[12]) { par N i { atomic S[i % 12] += X[i] } }",
}
SIZES = {"M": 3, "N": 301}


def tallies(program: MappedProgram) -> dict[str, Tallied]:
    assert isinstance(program.candidate, Candidate)
    return {name: one for name, one in program.candidate.launches.items() if isinstance(one, Tallied)}


def narrowed(text: str, **changes: Any) -> MappedProgram:
    """The program with few threads and blocks, so that small sizes have several of them."""
    bound = {"M": SIZES["M"]} if "M" in text else {}
    candidate = mapped(text, **bound).candidate
    assert isinstance(candidate, Candidate)
    small = {
        name: replace(
            one,
            **{
                "threads": 64,
                "copies": dict.fromkeys(one.copies, 4),
                "blocks": dict.fromkeys(one.blocks, 3),
                "ahead": 2,
                "resident": 0,
                **changes,
            },
        )
        for name, one in tallies(mapped(text, **bound)).items()
    }
    assert small, "it is a tally"
    return mapped(text, choices=replace(candidate, launches={**candidate.launches, **small}), **bound)


def arguments(program: MappedProgram, sizes: dict[str, int]) -> dict[str, Any]:
    """Keys below 12, half of them the same, and small whole numbers."""
    random, found = np.random.default_rng(7), dict[str, Any]()
    for buffer in program.kernel.params:
        shape = [int(index_value(extent, sizes)) for extent in buffer.shape]
        keys = np.where(random.random(shape) < 0.5, 5, random.integers(0, 12, shape))
        values = keys if buffer.name in "KL" else random.integers(-3, 4, shape)
        found[buffer.name] = values.astype(storage(buffer.dtype))
    return found


def results(program: MappedProgram, seed: int = 0, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the program computes, and what the interpreter says."""
    sizes = how.pop("sizes", SIZES)
    values = arguments(program, sizes)
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    expected = interpret(program.kernel, values, sizes=known).outputs
    return simulate(program, values, seed=seed, sizes=known, **how), expected


def same(got: dict[str, Any], expected: dict[str, Any], name: str = "") -> None:
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=f"{name} {array}")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [301, 384, 0])
def test_what_blocks_have_in_their_copies_is_what_the_iterations_update(name: str, n: int) -> None:
    got, expected = results(narrowed(PROGRAMS[name]), sizes={**SIZES, "N": n})
    same(got, expected)


@pytest.mark.parametrize("name", ["counts", "two", "floats"])
def test_any_order_of_warps_and_blocks_is_right(name: str) -> None:
    for seed in (0, 1):
        got, expected = results(narrowed(PROGRAMS[name]), seed, interleaved=True, sizes={**SIZES, "N": 97})
        same(got, expected)


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu_in_every_order() -> None:
    programs = {name: narrowed(text) for name, text in PROGRAMS.items()}
    renamed = {
        name: Emitted(with_names(program, f"tallied_{number}"))
        for number, (name, program) in enumerate(programs.items())
    }
    module = HostModule("\n".join(e.source for e in renamed.values()), werror=True)
    for name, emitted in renamed.items():
        values = arguments(programs[name], SIZES)
        known = {size.name: SIZES[size.name] for size in programs[name].kernel.sizes}
        expected = interpret(programs[name].kernel, values, sizes=known).outputs
        for seed in (0, 7):
            arrays = {n: np.array(v) for n, v in values.items()}
            assert emitted.run(module, arrays, seed) is None
            same(arrays, expected, name)


def with_names(program: MappedProgram, name: str) -> MappedProgram:
    host = tuple(
        replace(node, name=f"{name}_{number}") if isinstance(node, Launch) else node
        for number, node in enumerate(program.host)
    )
    return replace(program, host=host)


def test_a_histogram_has_a_copy_for_each_lane_and_blocks_as_many_as_a_gpu_runs() -> None:
    text = "kernel k(K: i32[N], inout H: i32[256]) { par N i { atomic H[K[i]] += 1 } }"
    wanted = Tallied(threads=1024, over="i", copies={"H": 32}, blocks={"i": 264}, ahead=2, resident=2, widths={"i": 4})
    assert list(tallies(mapped(text, N=1 << 27)).values()) == [wanted]
    assert list(tallies(mapped(text)).values()) == [wanted]


@pytest.mark.parametrize(("bins", "copies"), [(1, 32), (1024, 16), (4096, 4), (28 * 1024, 1), (56 * 1024, 1)])
def test_larger_arrays_have_fewer_copies(bins: int, copies: int) -> None:
    text = f"kernel k(K: i32[N], inout H: i32[{bins}]) {{ par N i {{ atomic H[K[i]] += 1 }} }}"
    ((_, found),) = tallies(mapped(text, N=1 << 27)).items()
    assert found.copies == {"H": copies}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (COUNTS, {"N": 4096}),
        (COUNTS.replace("i32[12]", "i32[1000000]"), {}),
        (COUNTS.replace("i32[12]", "i32[B]"), {}),
        (COUNTS.replace("i32[12]", "i16[12]"), {}),
        (COUNTS.replace("i32[12]", "i32[N]"), {"N": 1 << 15}),
        ("kernel k(K: i32[N], Y: i32[N], inout H: i32[12]) { par N i { Y[i] = 1; atomic H[K[i]] += 1 } }", {}),
        ("kernel k(K: i32[M, N], inout H: i32[12]) where N >= M { par M i, i + 1 j { atomic H[K[i, j]] += 1 } }", {}),
    ],
)
def test_what_gains_nothing_or_is_no_tally_updates_memory(text: str, sizes: dict[str, int]) -> None:
    assert not tallies(mapped(text, **sizes))


def test_as_many_blocks_are_together_as_the_author_asks_for() -> None:
    text = COUNTS.replace(") {", ") #blocks_per_sm(4) {", 1).replace("i32[12]", "i32[2048]")
    (found,) = tallies(mapped(text)).values()
    assert (found.threads, found.resident, found.copies) == (512, 4, {"H": 4})
    with pytest.raises(TExprError, match="the author asks for 4 blocks, and the candidate has 2"):
        narrowed(text, resident=2)


def test_sums_in_copies_are_as_long_as_they_may_be() -> None:
    assert sums(mapped(PROGRAMS["long floats"]), {"N": 1 << 30})["H"].chain <= 4096


def test_every_barrier_of_a_tally_is_needed() -> None:
    program = narrowed(COUNTS)
    launch = only_launch(program)
    assert len(barriers(launch)) == 2
    for number in range(2):
        wrong = with_launch(program, without_barrier(launch, number))
        with pytest.raises(InternalError, match="no barrier orders"):
            check_orders(wrong)
        with pytest.raises(TExprError, match="no barrier orders"):
            results(wrong)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"over": "j"}, "the iterations of j are no updates that go to copies"),
        ({"copies": {}}, "`copies` has none; the arrays that may have some are H"),
        ({"copies": {"K": 4}}, "`copies` has K; the arrays that may have some are H"),
        ({"copies": {"H": 3}}, "`copies`: 64 threads do not share 3 of them evenly"),
        ({"threads": 1024, "copies": {"H": 1024}, "text": COUNTS.replace("12", "64")}, "262144 bytes of shared"),
        ({"blocks": {"j": 3}}, "`blocks` has j, not one of i"),
        ({"ahead": 3}, "`ahead` is a power of two"),
        ({"ahead": 1 << 20}, "`ahead` is a power of two up to 8"),
        ({"resident": 64}, "64 blocks have more threads than a multiprocessor runs"),
        ({"widths": {"j": 2}}, "`widths` has j; threads take neighbours of i"),
        ({"widths": {"i": 64}}, "no access is wide where a thread takes 64 iterations of i"),
        ({"threads": 48}, "a block cannot have 48 threads"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(change: dict[str, Any], why: str) -> None:
    text = change.pop("text", COUNTS) if "text" in change else COUNTS
    with pytest.raises(TExprError, match=why):
        narrowed(text, **{k: v for k, v in change.items() if k != "text"})
