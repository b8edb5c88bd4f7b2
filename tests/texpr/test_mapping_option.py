"""The choices of a mapping from outside: `compile(mapping=…)`, `--mapping FILE`, `texpr map --alternatives`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.polyhedral.mapped.candidate import Case, Cases
from texpr.polyhedral.mapped.when import read_condition

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


@pytest.fixture
def cases(choices: dict[str, Any], tmp_path: Path) -> Path:
    """Two candidates and when the first one is taken, in a file."""
    own = choices["candidate"]
    wide = {**own["launches"]["mm_0"], "threads": 64, "deal": [["i", 32], ["j", 2]], "grid": ["i", "j"]}
    first = {**own, "launches": {"mm_0": wide}}
    when = "M % 2 == 0 and stride(B, 0) % 4 == 0 and address(C) % 64 == 0"
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [{"when": when, "candidate": first}], "otherwise": own}), encoding="utf-8")
    return file


def test_the_cases_of_dynamic_sizes_are_printed_and_go_back_in(
    command: Command, program: Path, cases: Path, tmp_path: Path
) -> None:
    code, out, _ = command("map", program, "--mapping", cases)
    assert code == 0
    assert "host if M % 2 == 0 and N % 4 == 0 and address(C) % 64 == 0\n  launch mm_0_case0" in out
    assert "host else\n  launch mm_0_case1" in out
    printed = tmp_path / "printed.json"
    printed.write_text(command("map", program, "--mapping", cases, "--json")[1], encoding="utf-8")
    assert command("map", program, "--mapping", printed)[1] == out
    told, folders = "if M % 2 == 0 and N % 4 == 0 and address(C) % 64 == 0:", (tmp_path / "one", tmp_path / "two")
    for folder in folders:
        assert command("build", program, "--mapping", cases, "-o", folder, "--source-only")[0] == 0
        assert told in (folder / "mm.h").read_text(encoding="utf-8")
    assert [p.read_bytes() for p in sorted(folders[0].iterdir()) if p.is_file()] == [
        p.read_bytes() for p in sorted(folders[1].iterdir()) if p.is_file()
    ]


def test_bound_sizes_leave_what_they_do_not_decide(command: Command, program: Path, cases: Path) -> None:
    code, out, _ = command("map", program, *GIVEN, "--mapping", cases)
    assert code == 0 and "host if address(C) % 64 == 0\n  launch mm_0_case0" in out
    code, out, _ = command("map", program, "-DM=41", "--mapping", cases)
    assert code == 0 and "host if" not in out and "launch mm_0  grid" in out


@pytest.mark.gxx
@pytest.mark.parametrize("target", ["cpu", "cuda-host:sm_90a"])
def test_cases_run_on_every_target(cases: Path, target: str) -> None:
    kernel = texpr.parse(MATMUL).mm
    own = kernel.compile(target, stop_after="map").mapping
    first = own.alternatives()[0].others[0].choices
    when = "M % 2 == 0 and address(C) % 64 == 0"
    made = kernel.compile(target, mapping={"cases": [{"when": when, "candidate": first}], "otherwise": own.candidate})
    found = read_condition(when)
    assert found and made.mapping.candidate == Cases(
        cases=(Case(when=found, candidate=first),), otherwise=own.candidate
    )
    random = np.random.default_rng(1)
    for m, off in ((4, 0), (4, 16), (5, 0)):
        a, b = random.random((m, 6), np.float32), random.random((6, 9), np.float32)
        memory = np.zeros(4 * m * 9 + 128, np.uint8)
        start = (off - memory.ctypes.data) % 64
        c = memory[start : start + 4 * m * 9].view(np.float32).reshape(m, 9)
        made(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{", "E0606", "is not JSON"),
        ("[" * 100_000, "E0606", "is not JSON"),
        ("3", "E0607", "the candidate is an object"),
        ('{"candidate": null}', "E0607", "the candidate is an object"),
        (
            '{"schema": 1, "moves": [], "wide": true, "kept": [], "laid": [], "centred": [], "shared": [], '
            '"early": [], "launches": {}}',
            "E0401",
            "this kernel has mm_0",
        ),
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


SWEEPS = """kernel sweeps(inout A: f32[N], inout B: f32[N]) where N >= 2 {
    seq T t {
        par N - 2 i { B[i + 1] = A[i] + A[i + 2] }
        par N - 2 j { A[j + 1] = B[j] + B[j + 2] }
    }
}
"""
APART = """kernel apart(X: f32[2 * N], inout Y: f32[2 * N], inout Z: f32[3 * M]) {
    par N i { Y[2 * i] = X[2 * i] * 2.0 }
    par M j { Z[3 * j] = 1.0 }
}"""


def with_moves(command: Command, folder: Path, text: str, moves: object) -> tuple[Path, Path]:
    """The program, and its own mapping with other moves."""
    program, file = folder / "program.tex", folder / "choices.json"
    program.write_text(text, encoding="utf-8")
    code, out, _ = command("map", program, "--json")
    assert code == 0
    file.write_text(json.dumps(json.loads(out)["candidate"] | {"moves": moves}), encoding="utf-8")
    return program, file


def test_moves_of_a_file_are_made_and_told(command: Command, tmp_path: Path) -> None:
    fuse = {"move": "fuse", "first": "i", "second": "j", "shift": 0}
    program, file = with_moves(command, tmp_path, APART, [fuse])
    data = json.loads(file.read_text())
    del data["launches"]["apart_1"]
    file.write_text(json.dumps(data))
    code, out, _ = command("map", program, "--mapping", file)
    assert code == 0
    assert "schedule\n  fused `par i` (Y) and `par j` (Z) into one launch\n" in out and "apart_1" not in out
    code, out, _ = command("map", program, "--mapping", file, "--alternatives")
    assert code == 0 and "flat, as it is" in out
    code, out, _ = command(
        "run", program, "--mapping", file, "--target", "cuda-host:sm_90a", "-DN=40", "-DM=33", "--check"
    )
    assert code == 0 and "right" in out


@pytest.mark.parametrize(
    ("moves", "code", "said"),
    [
        (
            [{"move": "fuse", "first": "i", "second": "j", "shift": 0}],
            "E0404",
            "with N = 4, T = 1, S1 at t = 0, j = 0 writes A and would no longer wait for S0 at t = 0, i = 1",
        ),
        ([{"move": "interchange", "outer": "q"}], "E0404", "there is no loop 'q' to move"),
        ([{"move": "interchange", "outer": "t"}], "E0404", "`t` does not hold one loop alone"),
        ([{"move": "jump"}], "E0607", "moves.0.move is one of fuse, swap"),
        ([{"move": "interchange"}], "E0607", "moves.0 is an object of move, outer"),
        ([{"move": "fuse", "first": "i", "second": 3, "shift": 0}], "E0607", "moves.0.second is a name, not 3"),
        ([{"move": "fuse", "first": "i", "second": "j", "shift": -1}], "E0607", "moves.0.shift is a number from 0"),
        ({}, "E0607", "moves is a list of moves"),
    ],
)
def test_moves_that_cannot_be_made_are_errors(
    command: Command, tmp_path: Path, moves: object, code: str, said: str
) -> None:
    program, file = with_moves(command, tmp_path, SWEEPS, moves)
    exit_code, _, message = command("map", program, "--mapping", file)
    assert exit_code == 1
    assert code in message and said in message
