"""Monoids: NumPy's meaning and C++ against the sequential statements, for every row with NaN, infinities, ties
and few elements; partials combine in any grouping."""

import cases
import monoid_cases
import numpy as np
import pytest
from compared import wrong
from monoid_cases import LENGTHS, PAIRS, bounds, component_types, rows, sequential, wanted

from texpr.codegen.host_run import HostModule
from texpr.grammar.types import F32, I32
from texpr.polyhedral.mapped.monoids import MONOIDS

IDS = [f"{m.name}-{t}" for m, t in PAIRS]


def of_numpy(monoid, dtype, row, rng):
    """The result of the row, combined in a random grouping, with partials of no elements between."""
    types = component_types(monoid, dtype)
    identity = tuple(np.asarray(v, t) for v, t in zip(monoid.identity(dtype), types, strict=True))
    parts = [monoid.lift(np.asarray(x), np.asarray(k, np.int32)) for k, x in enumerate(row)]
    for _ in range(3):
        parts.insert(rng.integers(0, len(parts) + 1), identity)
    while len(parts) > 1:
        at = rng.integers(0, len(parts) - 1)
        parts[at : at + 2] = [monoid.combine(parts[at], parts[at + 1])]
    return monoid.result(parts[0])


def check(monoid, dtype, row, got, depth):
    want, within = wanted(monoid, dtype, [row], depth)
    case = cases.Case(name=f"{monoid.name} of {row!r}", symbol="", inputs=(), want=want, within=within)
    found = [np.asarray(g, t).reshape(1) for g, t in zip(got, component_types(monoid, dtype), strict=True)]
    assert wrong(case, found) == ""


@pytest.mark.parametrize(("monoid", "dtype"), PAIRS, ids=IDS)
def test_any_grouping_means_the_sequential_statements(monoid, dtype):
    rng = np.random.default_rng(1)
    for count in LENGTHS:
        for row in rows(dtype, count):
            with np.errstate(all="ignore"):
                check(monoid, dtype, row, of_numpy(monoid, dtype, row, rng), count + 3)


@pytest.mark.parametrize(("monoid", "dtype"), PAIRS, ids=IDS)
def test_an_element_beside_nothing_is_what_it_is_alone(monoid, dtype):
    identity = [np.asarray(v, t) for v, t in zip(monoid.identity(dtype), component_types(monoid, dtype), strict=True)]
    with np.errstate(all="ignore"):
        for k, x in enumerate(np.concatenate(rows(dtype, 77))):
            element = monoid.lift(np.asarray(x), np.asarray(k, np.int32))
            alone = monoid.result(element)
            for beside in (monoid.combine(identity, element), monoid.combine(element, identity)):
                np.testing.assert_array_equal(monoid.result(beside), alone)


def test_every_monoid_of_the_catalogue_is_in_the_sequential_statements():
    assert set(MONOIDS) == set(monoid_cases._SEQUENTIAL)


def test_the_bound_is_of_use():
    """A sum that drops an element is outside of it."""
    row = rows(F32, 77)[3]
    (limit,) = bounds(MONOIDS["Sum"], F32, row, 8)
    assert limit < min(abs(row[row != 0]))
    assert bounds(MONOIDS["Sum"], I32, rows(I32, 5)[0], 8) == (0.0,)
    assert sequential(MONOIDS["FirstGreatest"], np.array([1.0, np.nan, 3.0]))[1] == 2


LATE = """
  const tx::Global<float> y(Y, "Y");
  y.store(tx::thread(), {value});
"""


@pytest.mark.gxx
class TestMeeting:
    """Lanes that do not come to an instruction of their warp are told, with both lines."""

    def report(self, body, threads=32, block=32):
        text = cases.HEADER + '#include "texpr/lanes.cuh"\n' + cases.kernel("k", "float* Y", body, threads)
        y = np.zeros(256, np.float32)
        return HostModule(text).launch("k", [cases.HostArray(y.ctypes.data, y.nbytes)], (1, 1, 1), block)

    def test_half_a_warp_that_shuffles_is_told(self):
        report = self.report("  if (tx::lane() < 16) tx::shuffle_xor(1.0f, 1);")
        assert report.kind == "divergence"
        assert report.message == "thread 0 waits for its warp to run shuffle_xor, thread 16 has ended"

    def test_two_shuffles_of_one_warp_at_two_lines_are_told(self):
        report = self.report(
            "  if (tx::lane() < 16) {\n    tx::shuffle_xor(1.0f, 1);\n  } else {\n    tx::shuffle_xor(1.0f, 2);\n  }"
        )
        assert report.kind == "divergence" and abs(report.line - report.other_line) == 2

    def test_a_shuffle_and_a_barrier_are_told(self):
        report = self.report("  if (tx::lane() < 16) tx::shuffle(1.0f, 1);\n  tx::sync_warp(0);")
        assert report.kind == "divergence" and "waits at warp barrier 0" in report.message

    def test_a_warp_that_is_not_whole_is_told(self):
        report = self.report("  tx::shuffle(1.0f, 1);", 48, 48)
        assert report.kind == "divergence" and "the block ends before" in report.message

    def test_a_shuffle_orders_no_memory(self):
        body = '  const tx::Global<float> y(Y, "Y");\n  y.store(tx::lane(), 1.0f);\n  tx::shuffle(1.0f, 1);\n'
        report = self.report(body + "  y.store(32 + tx::lane(), y.load(31 - tx::lane()));")
        assert report.kind == "race"
