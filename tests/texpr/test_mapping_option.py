"""The choices of a mapping from outside: `compile(mapping=…)`, `--mapping FILE`, `texpr map --alternatives`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import texpr

ROOT = Path(__file__).resolve().parents[2]
MATMUL = """kernel mm(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}
"""
SIZES = {"M": 40, "N": 24, "K": 9}
GIVEN = [f"-D{name}={value}" for name, value in SIZES.items()]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mm.tex"
    path.write_text(MATMUL, encoding="utf-8")
    return path


@pytest.fixture
def choices(command: Command, program: Path) -> dict[str, Any]:
    code, out, _ = command("map", program, *GIVEN, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_mapping_goes_back_in_and_is_the_same(
    command: Command, program: Path, choices: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "choices.json"
    file.write_text(json.dumps(choices), encoding="utf-8")
    assert command("map", program, *GIVEN, "--mapping", file) == command("map", program, *GIVEN)


def test_an_edited_mapping_is_obeyed_and_right(
    command: Command, program: Path, choices: dict[str, Any], tmp_path: Path
) -> None:
    own = choices["candidate"]
    own["launches"]["mm_0"] |= {"threads": 64, "deal": [["i", 32], ["j", 2]], "grid": ["i", "j"]}
    file, folder = tmp_path / "choices.json", tmp_path / "art"
    file.write_text(json.dumps(own), encoding="utf-8")
    asked = (program, *GIVEN, "--mapping", file)
    code, out, _ = command("graph", *asked)
    assert code == 0 and "64 threads" in out
    code, out, _ = command("run", *asked, "--target", "cuda-host:sm_90a", "--check")
    assert code == 0 and "right" in out
    assert command("build", *asked, "-o", folder, "--source-only")[0] == 0
    assert "__launch_bounds__(64)" in (folder / "mm.cu").read_text(encoding="utf-8")


def test_a_python_user_changes_a_candidate() -> None:
    kernel = texpr.parse(MATMUL).mm
    own = kernel.compile("cuda:sm_90a", sizes=SIZES, stop_after="map").mapping.candidate
    flat = own.launches["mm_0"]
    wider = replace(own, launches={"mm_0": replace(flat, threads=512, deal=(("j", 32), ("i", 16)))})
    made = kernel.compile("cuda:sm_90a", sizes=SIZES, mapping=wider, stop_after="map")
    assert made.mapping.candidate == wider
    assert "512 threads" in str(made.mapping)


def test_alternatives_are_listed_with_their_cost(command: Command, program: Path) -> None:
    code, out, _ = command("map", program, *GIVEN, "--alternatives")
    assert code == 0
    lines = out[out.index("launch  choice") :].splitlines()
    assert lines[1].split()[:2] == ["mm_0", "flat,"]
    assert any("deal i*32" in line for line in lines) and any("blocks, threads 64" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{", "E0606", "is not JSON"),
        ("[" * 100_000, "E0606", "is not JSON"),
        ("3", "E0607", "the candidate is an object"),
        ('{"candidate": null}', "E0607", "the candidate is an object"),
        ('{"schema": 1, "wide": true, "kept": [], "launches": {}}', "E0401", "this kernel has mm_0"),
    ],
)
def test_a_file_that_holds_no_candidate_is_an_error(
    command: Command, program: Path, tmp_path: Path, text: str, code: str, said: str
) -> None:
    file = tmp_path / "choices.json"
    file.write_text(text, encoding="utf-8")
    exit_code, _, message = command("map", program, *GIVEN, "--mapping", file)
    assert exit_code == 1
    assert code in message and said in message


def test_a_missing_file_and_a_wrong_option_are_errors(command: Command, program: Path, tmp_path: Path) -> None:
    code, _, message = command("map", program, *GIVEN, "--mapping", tmp_path / "nothing.json")
    assert code == 1 and "E0606" in message
    with pytest.raises(texpr.TExprError, match=r"`mapping`: the candidate is an object .*, not 3"):
        texpr.parse(MATMUL).mm.compile("cpu", sizes=SIZES, mapping=3)  # type: ignore[arg-type]  # the point
