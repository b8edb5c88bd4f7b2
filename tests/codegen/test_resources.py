"""What a cubin says of its kernels, and how many blocks have room."""

import json
from pathlib import Path

import pytest

import texpr
from texpr.codegen.resources import Resources, occupancy, resources
from texpr.execute import occupancy_of
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.target import parse_target

H200 = parse_target("cuda:sm_90a")


@pytest.mark.parametrize(
    "junk", [b"", b"\x7fELF\x02", b"\x7fELF\x01" + bytes(200), bytes(500), b"\x7fELF\x02" + bytes(99)]
)
def test_what_is_no_cubin_is_an_error(junk: bytes) -> None:
    with pytest.raises(TExprError, match="E0606"):
        resources(junk)


@pytest.mark.parametrize(
    ("registers", "threads", "shared_bytes", "blocks"),
    [(32, 256, 0, 8), (168, 384, 229440, 1), (255, 256, 0, 1), (16, 32, 0, 32), (33, 1024, 0, 1), (40, 128, 30000, 7)],
)
def test_as_many_blocks_have_room_as_the_scarcest_thing_lets(
    registers: int, threads: int, shared_bytes: int, blocks: int
) -> None:
    taken = Resources(registers=registers, stack_bytes=0, shared_bytes=1024)
    assert occupancy(taken, threads, shared_bytes, H200).blocks == blocks


def test_spills_are_said() -> None:
    taken = Resources(registers=255, stack_bytes=96, shared_bytes=0)
    assert "255 registers, 96 bytes of stack" in str(occupancy(taken, 64, 0, H200))


def test_a_target_without_a_cubin_has_none() -> None:
    compiled = texpr.parse("kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }").only.compile("cpu", N=8)
    with pytest.raises(TExprError, match="E0502"):
        occupancy_of(compiled.build)


@pytest.mark.nvcc
def test_an_artifact_says_what_its_kernels_take(tmp_path: Path) -> None:
    compiled = texpr.parse("kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }").only.compile("cuda:sm_90a", N=4096)
    folder = compiled.save(tmp_path / "k")
    (told,) = json.loads((folder / "resources.json").read_text(encoding="utf-8"))["kernels"].values()
    assert 8 <= told["registers"] <= 64 and told["stack_bytes"] == told["shared_bytes"] == 0
    assert told["blocks_per_multiprocessor"] >= 1
    assert "resources.json" in json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
