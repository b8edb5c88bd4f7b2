"""Products of a warp and matrices in shared memory under the host header: values, and what is told of wrong ones."""

from functools import cache

import cases
import mma_cases
import numpy as np
import pytest

from texpr.codegen.host_run import HostModule

pytestmark = pytest.mark.gxx

TEXT = """#include "texpr/mma.cuh"
#line 1 "/texpr/matrices.tex"
extern "C" __global__ void load(int* Y, long long past, long long rows, long long meet) {
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f16> tile(smem, 64 + 8, "tile");
  for (int k = tx::lane(); k < 72; k += 32) tile.store(k, tx::f16{0});
  if (meet != 0) tx::sync_warp(0);
  tx::Fragment<tx::f16, 2> held = {};
  tx::load_matrices(held, tile, static_cast<int>(tx::lane() < 8 ? rows * tx::lane() + past : 0));
}
TX_EXPORT(load);
extern "C" __global__ void accumulator(int* Y) {
  const tx::Global<int> y(Y, "Y");
  const tx::Accumulator<64, 16> c = {};
  for (int i = 0; i < 8; ++i) {
    y.store(16 * tx::thread() + 2 * i, c.row(i));
    y.store(16 * tx::thread() + 2 * i + 1, c.column(i));
  }
}
TX_EXPORT(accumulator);
"""


@cache
def small():
    return HostModule(TEXT)


def load(past, rows, meet):
    y = np.zeros(1, np.int32)
    arguments = [cases.HostArray(y.ctypes.data, y.nbytes), past, rows, meet]
    return small().launch("load", arguments, (1, 1, 1), 32, 144)


def test_rows_of_matrices_are_aligned_inside_and_written_before():
    assert load(0, 8, 1) is None
    assert load(2, 8, 1).kind == "alignment" and "16 bytes at tile[2]" in load(2, 8, 1).message
    assert (load(16, 8, 1).kind, load(16, 8, 1).line) == ("bounds", 7)
    assert load(0, 8, 0).kind in ("race", "undefined")


def test_an_accumulator_knows_its_elements():
    """Every element of 64 x 16 has one owner, the one of the layout."""
    from texpr.polyhedral.layout.make import fragment

    y = np.zeros((128, 8, 2), np.int32)
    assert small().launch("accumulator", [cases.HostArray(y.ctypes.data, y.nbytes)], (1, 1, 1), 128) is None
    rows, columns = np.meshgrid(np.arange(64), np.arange(16), indexing="ij")
    for unit, want in ((0, rows), (1, columns)):
        halves = [mma_cases.held(fragment("wgmma", "c"), want[:, k : k + 8], 128) for k in (0, 8)]
        assert np.array_equal(y[:, :, unit], np.concatenate(halves, axis=1))


def test_sums_of_f8_keep_14_bits_and_no_more():
    texts = mma_cases.of_f8()
    module = HostModule(mma_cases.HEADER + '#include "texpr/mma.cuh"\n' + "".join(texts[1]))
    for case in texts[0]:
        (got,) = cases.run_on_host(module, case)
        assert np.array_equal(got, case.want[0]), case.name
