"""A misspelt option, target, command, kernel or code is told with the name that was meant."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import texpr
from texpr.runtime import device

TEXT = "kernel fill(A: f32[N]) { par N i { A[i] = 1.0 } }"
FILL = texpr.parse(TEXT, "fill.tex")
A = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("action", "code", "meant"),
    [
        (lambda: FILL.only.compile(traget="cpu"), "E0607", "target"),
        (lambda: FILL.only.compile(target_="cpu"), "E0607", "target"),
        (lambda: FILL.only.compile(stop_afer="map"), "E0607", "stop_after"),
        (lambda: FILL.only.compile(hint={"N": 4}), "E0607", "hints"),
        (lambda: FILL.only.compile("cpu", n_=4, size={"N": 4}), "E0607", "sizes"),
        (lambda: FILL.only.interpret(A, mod="exact"), "E0607", "mode"),
        (lambda: FILL.only(A, steam=None), "E0607", "stream"),
        (lambda: FILL.only.compile()(A, steam=None), "E0601", "stream"),
        (lambda: FILL.only.compile("cpuu"), "E0501", "cpu"),
        (lambda: FILL.only.compile("sm_90a"), "E0501", "cuda:sm_90a"),
        (lambda: FILL.only.compile("cuda:sm90a"), "E0501", "cuda:sm_90a"),
        (lambda: FILL.only.compile("cudahost:sm_80"), "E0501", "cuda-host:sm_80"),
        (lambda: FILL.only.compile(stop_after="mapp"), "E0502", "map"),
        (lambda: FILL.only.compile(hints={"NN": 4}), "E0211", "N"),
        (lambda: FILL["fil"], "E0201", "fill"),
    ],
)
def test_the_name_that_was_meant_is_told(action: Callable[[], object], code: str, meant: str) -> None:
    with pytest.raises(texpr.TExprError) as found:
        action()
    assert found.value.diagnostics[0].code == code
    assert f"did you mean `{meant}`?" in str(found.value.diagnostics[0].help)


def test_a_size_that_resembles_an_option_is_a_size() -> None:
    kernel = texpr.parse("kernel k(A: f32[types]) { par types i { A[i] = 1.0 } }".replace("types", "hint")).only
    assert kernel.compile(hint=4).manifest.sizes == {"hint": 4}
    kernel(A, hint=4)
    assert A.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("chek", "FILE"), "did you mean `check`?"),
        (("map", "FILE", "--traget", "cpu"), "did you mean `--target`?"),
        (("map", "FILE", "--target", "cuda:sm_9a"), "did you mean `cuda:sm_90a`?"),
        (("map", "FILE", "--kernel", "fil"), "did you mean `fill`?"),
        (("map", "FILE", "-D", "NN=4"), "did you mean `N`?"),
        (("explain", "E031"), "did you mean `E0301`?"),
    ],
)
def test_the_command_line_tells_the_name_that_was_meant(
    command, args: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "fill.tex").write_text(TEXT)
    code, _, said = command(*(a.replace("FILE", str(tmp_path / "fill.tex")) for a in args))
    assert code in (1, 2)
    assert says in said


def test_the_target_cuda_is_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, target in (((8, 6), "cuda:sm_86"), ((9, 0), "cuda:sm_90a"), ((12, 0), "cuda:sm_120a")):
        monkeypatch.setattr(device, "compute_capability", lambda number, found=capability: found)
        assert FILL.only.compile("cuda", N=4).target == target
    monkeypatch.setattr(device, "compute_capability", lambda number: (7, 5))
    with pytest.raises(texpr.TExprError, match="unknown target 'cuda:sm_75'"):
        FILL.only.compile("cuda", N=4)


def test_the_target_cuda_without_a_gpu_says_how_to_name_one(
    command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none(number: int) -> tuple[int, int]:
        raise device.fail("E0503", "GPU 0 cannot be asked: no driver")

    monkeypatch.setattr(device, "compute_capability", none)
    (tmp_path / "fill.tex").write_text(TEXT)
    code, _, said = command("map", tmp_path / "fill.tex", "--target", "cuda")
    assert code == 3
    assert "the target `cuda` is the GPU of this machine: GPU 0 cannot be asked: no driver" in said
    assert "name one, such as cuda:sm_90a: targets are cpu," in said
