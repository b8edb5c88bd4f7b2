"""Wide accesses under the host header: what they move, what they may touch, what is told of those that are wrong."""

import subprocess
from functools import cache

import cases
import numpy as np
import pytest

from texpr.codegen.host_run import HostModule
from texpr.codegen.toolchain import INCLUDE, find_gxx

pytestmark = pytest.mark.gxx

TEXT = """
extern "C" __global__ void single(const float* X, float* Y, long long at) {
  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  tx::store(y, 0, tx::load<4>(x, at));
}
TX_EXPORT(single);
extern "C" __global__ void piece(const float* X, float* Y, long long at) {
  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  tx::store(y, 0, tx::chunks<4>(x, at).shifted());
}
TX_EXPORT(piece);
extern "C" __global__ void chunk(const float* X, float* Y, long long at) {
  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  tx::store(y, 0, tx::load_wanted<4>(x, at, {0 - at, 7 - at}));
}
TX_EXPORT(chunk);
extern "C" __global__ void whole(const float* X, float* Y, long long at) {
  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  const auto wanted = tx::Wanted<4>(0ll, 4 - at).cut(false, true);
  tx::store(y, 0, tx::load_or_none<4>(x, at, 0, wanted));
}
TX_EXPORT(whole);
extern "C" __global__ void discarded(const float* X, float* Y, long long at) {
  const tx::Global<const float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  y.store(0, tx::load_wanted<4>(x, 4ll, {-4, 3}).get(at));
}
TX_EXPORT(discarded);
extern "C" __global__ void both(float* X, float* Y, long long at) {
  const tx::Global<float> x(X, "X");
  const tx::Global<float> y(Y, "Y");
  if (tx::lane() == 0) x.store(at, 1.0f);
  if (tx::lane() == 1) tx::store(y, 0, tx::load_wanted<4>(x, 4ll, {0, 3}));
}
TX_EXPORT(both);
"""


@cache
def singles():
    return HostModule('#include "texpr/wanted.cuh"\n#line 1 "/texpr/single.tex"' + TEXT)


def run(symbol, at, block=1):
    x, y = np.arange(7, dtype=np.float32), np.zeros(4, np.float32)
    report = singles().launch(
        symbol, [*(cases.HostArray(a.ctypes.data, a.nbytes) for a in (x, y)), at], (1, 1, 1), block
    )
    return report, y


def test_an_access_that_leaves_its_array_is_told_at_its_line():
    report, _ = run("single", 4)
    assert (report.kind, report.line, report.message) == ("bounds", 4, "X[7] is outside its 7 elements")
    assert run("single", 0)[0] is None


def test_chunks_that_are_not_wanted_are_zeros_and_are_not_read():
    report, y = run("whole", 0)
    assert report is None and np.array_equal(y, np.arange(4))
    report, y = run("whole", 4)  # elements 4 to 7 of 7
    assert report is None and np.array_equal(y, np.zeros(4))


def test_a_misaligned_access_is_told():
    report, _ = run("single", 2)
    assert report.kind == "alignment"
    assert report.message == "an access of 16 bytes at X[2], which lies 8 bytes behind a multiple of that"


@pytest.mark.parametrize("at", range(4))
def test_a_funnel_reads_what_exists_and_no_chunk_behind_the_array(at):
    report, y = run("piece", at)
    assert report is None and np.array_equal(y, np.arange(at, at + 4))


@pytest.mark.parametrize("at", [4, 5, -1])
def test_a_funnel_of_elements_that_do_not_exist_is_told(at):
    assert run("piece", at)[0].kind == "bounds"


def test_a_chunk_without_a_wanted_element_is_not_read():
    report, y = run("chunk", 8)
    assert report is None and not y.any()


def test_what_is_read_and_discarded_is_no_element():
    """The chunk's last element lies behind the array: the program sees a pattern, never the memory there."""
    report, y = run("discarded", 3)
    assert report is None and y.view(np.uint32)[0] == 0xCDCDCDCD
    assert run("discarded", 2)[1][0] == 6.0


def test_only_wanted_elements_race():
    assert run("both", 5, 32)[0].kind == "race"
    assert run("both", 3, 32)[0] is None


FAR = """
#define TX_HOST 1
#include "texpr/wanted.cuh"
struct Nowhere {
  using Element = float;
  static constexpr bool kShared = false;
  static constexpr bool kBeginsChunk = false;
  const char* name() const { return ""; }
  const float* address(tx::i64) const { return reinterpret_cast<const float*>(12); }
  const float* place(tx::i64, tx::host::Mode, tx::Here, bool) const { return nullptr; }
};
int main() {
  for (const int begin : {2147483647 - 1, -2147483647}) {
    const auto none = tx::chunks_wanted<4>(Nowhere{}, 0ll, tx::Wanted<4>(begin, begin + 1)).shifted();
    if (none.get(0) != 0.0f) return 1;
  }
}
"""


def test_bounds_far_from_a_chunk_overflow_nothing(tmp_path):
    source, compiler = tmp_path / "far.cpp", find_gxx()
    source.write_text(FAR)
    sanitized = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-std=c++17", "-O0", "-w"]
    made_by = [compiler.path, *sanitized, "-I", str(INCLUDE), "-o", str(tmp_path / "far"), str(source)]
    subprocess.run(made_by, check=True, capture_output=True)
    done = subprocess.run([str(tmp_path / "far")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
