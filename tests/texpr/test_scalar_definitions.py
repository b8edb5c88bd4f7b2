"""`-D` for a scalar parameter: `run` passes it, and the other commands say how it gets its value."""

from pathlib import Path

import numpy as np
import pytest

import texpr

AXPY = """kernel axpy(A: f32[N], B: f32[N], alpha: f32, n: i32, on: bool, h: f16) {
    par N i { if on { B[i] = A[i] * alpha + f32(n) } else { B[i] = f32(h) } }
}
"""


@pytest.fixture
def axpy(tmp_path: Path) -> Path:
    path = tmp_path / "axpy.tex"
    path.write_text(AXPY)
    return path


def test_run_passes_scalars_by_name(axpy: Path, command, tmp_path: Path) -> None:
    given = ("-D", "N=4", "-D", "alpha=-2.5", "-D", "n=7", "-D", "on=true", "-D", "h=3")
    code, _, said = command("run", axpy, *given, "--output", tmp_path / "o.npz", "--check")
    assert (code, said) == (0, "")
    with np.load(tmp_path / "o.npz") as file:
        assert (float(file["alpha"]), int(file["n"]), bool(file["on"]), float(file["h"])) == (-2.5, 7, True, 3.0)
        assert np.allclose(file["B"], file["A"] * np.float32(-2.5) + 7)


def test_what_run_wrote_it_takes_back(axpy: Path, command, tmp_path: Path) -> None:
    assert command("run", axpy, "-D", "N=4", "-D", "n=7", "--output", tmp_path / "o.npz")[0] == 0
    assert command("run", axpy, "--input", tmp_path / "o.npz", "--output", tmp_path / "p.npz")[0] == 0
    with np.load(tmp_path / "o.npz") as first, np.load(tmp_path / "p.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)


@pytest.mark.parametrize("value", ["1e30", "nan", "inf", "-inf", "3", "-0.0", "1.", "65504"])
def test_run_takes_every_number_of_the_type(axpy: Path, command, value: str) -> None:
    assert command("run", axpy, "-D", "N=4", "-D", f"{'h' if value == '65504' else 'alpha'}={value}")[0] == 0


@pytest.mark.parametrize(
    ("definition", "code", "words"),
    [
        ("n=2.5", 1, "E0601"),
        ("n=99999999999", 1, "E0601"),
        ("n=true", 1, "E0601"),
        ("n=" + "9" * 390, 1, "E0601"),
        ("on=1", 1, "E0601"),
        ("alpha=1e39", 1, "E0601"),
        ("alpha=" + "9" * 390, 1, "E0601"),
        ("h=65536", 1, "E0601"),
        ("alpha=1e999", 2, "scalar parameter"),
        ("alpha=f32", 2, "scalar parameter"),
        ("alpha=", 2, "scalar parameter"),
        ("alpha=1_000", 2, "scalar parameter"),
        ("alpha=0x10", 2, "scalar parameter"),
        ("alpha=" + "9" * 5000, 2, "scalar parameter"),
        ("beta=3", 1, "E0211"),
        ("A=3", 1, "E0211"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(axpy: Path, command, definition: str, code: int, words: str) -> None:
    done = command("run", axpy, "-D", "N=4", "-D", definition)
    assert (done[0], words in done[2]) == (code, True), done


def test_a_scalar_is_not_given_twice(axpy: Path, command, tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", n=3)
    code, _, said = command("run", axpy, "-D", "N=4", "-D", "n=7", "--input", tmp_path / "i.npz")
    assert (code, "n is given by -D" in said) == (1, True)


@pytest.mark.parametrize("name", ["map", "check", "graph", "build"])
def test_other_commands_say_how_a_scalar_gets_its_value(axpy: Path, command, name: str, tmp_path: Path) -> None:
    more = ("-o", tmp_path / "out") if name == "build" else ()
    code, _, said = command(name, axpy, "-D", "alpha=3", *more)
    assert (code, "E0211" in said) == (1, True)
    assert "scalar parameter of `axpy`" in said and "texpr run -D alpha=" in said
    code, _, said = command(name, axpy, "-D", "alpha=2.5", *more)
    assert (code, "texpr run" in said) == (2, True)
    assert not (tmp_path / "out").exists()


def test_compile_says_that_a_scalar_is_no_size() -> None:
    with pytest.raises(texpr.TExprError, match="`alpha` is a scalar parameter of `axpy`, not a size"):
        texpr.parse(AXPY).only.compile(alpha=3)


def test_help_of_run_names_scalars(command) -> None:
    assert "scalar" in command("run", "--help")[1]
