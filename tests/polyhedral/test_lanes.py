"""Which index of a nest inside a block has the lanes: what goes to memory decides, and what stays near it only then."""

import pytest

import texpr

TURNED = """kernel turned(A: f32[M, N], B: f32[N, M]) where M % 16 == 0, N % 16 == 0 {
    par M / 16 bi, N / 16 bj {
        new shared tile: f32[16, 16] #strides(STRIDE, 1)
        par 16 i, 16 j { tile[i, j] = A[bi * 16 + i, bj * 16 + j] }
        par 16 i, 16 j { B[bj * 16 + i, bi * 16 + j] = tile[j, i] }
    }
}"""


@pytest.mark.parametrize("stride", [16, 17, 20])
def test_a_tile_is_read_across_so_that_memory_is_written_along(stride: int) -> None:
    kernel = texpr.parse(TURNED.replace("STRIDE", str(stride))).only
    program = kernel.compile("cuda:sm_90a", M=256, N=512, stop_after="map").mapping.program
    found = {access.buffer: access for access in program.report.accesses}
    assert found.keys() == {"A", "B"}
    assert all(access.sectors == access.ideal_sectors for access in found.values()), found


def test_where_nothing_goes_to_memory_the_near_accesses_decide() -> None:
    text = """kernel near(A: f32[16, 16], B: f32[N]) {
        par N n {
            new shared t: f32[16, 16]
            new shared u: f32[16, 16]
            par 16 i, 16 j { t[i, j] = A[i, j] }
            par 16 i, 16 j { u[j, i] = t[j, i] }
            B[n] = u[0, 0] + u[15, 15]
        }
    }"""
    mapping = str(texpr.parse(text).only.compile("cuda:sm_90a", N=8, stop_after="map").mapping)
    assert "i_1_lane  lane % 16" in mapping and "j_lane    lane % 16" in mapping
