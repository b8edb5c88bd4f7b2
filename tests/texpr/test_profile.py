"""`texpr profile`: counts of ncu beside predictions, by line; and reports, cubins and machines that are not right.

`counted/` has what an H200 said of `transpose.tex` at M = 1000, N = 700: the columns of ncu's pages that are read, and
the cubin.
"""

import json
import lzma
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from texpr.codegen.line_table import Line, line_tables
from texpr.counters import read_report
from texpr.grammar.diagnostics import TExprError

ROOT = Path(__file__).resolve().parents[2]
COUNTED = Path(__file__).parent / "counted"
SOURCE, RAW = COUNTED / "transpose-source.csv", COUNTED / "transpose-raw.csv"
CUBIN = lzma.decompress((COUNTED / "transpose.cubin.xz").read_bytes())
GIVEN = (ROOT / "tests/kernels/transpose.tex", "-DM=1000", "-DN=700", "-t", "cuda:sm_90a")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_cubin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("texpr.execute.cubin_of", lambda build: CUBIN)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)


def test_every_instruction_has_a_line_of_the_program() -> None:
    (table,) = line_tables(CUBIN).values()
    assert table.size_bytes == 200 * 16
    files = {line.file for line in table.lines}
    assert files == {"transpose.tex", "transpose.cu"}, "headers are inlined"
    stores = [r for r in SOURCE.read_text().splitlines() if "STG" in r]
    offsets = [int(row[1:15], 16) & 0xFFFF for row in stores]
    assert offsets and {table.at(offset) for offset in offsets} == {Line("transpose.tex", 3)}


@pytest.mark.parametrize("cut", [0, 4, 63, 100, 5000, 12000, len(CUBIN) - 800])
def test_a_cubin_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(TExprError) as caught:
        line_tables(CUBIN[:cut])
    assert [d.code for d in caught.value.diagnostics] == ["E0606"]


def test_counts_stand_beside_predictions(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = command("profile", *GIVEN, "--import", SOURCE, "--import", RAW, "--html", page)
    assert code == 0
    assert "transpose_0: 3.94 us; the hardware counted 16.91 sectors of each of 5,500 loads" in out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] == ["3"]]
    found = {(row[1], row[2]): (int(row[4].replace(",", "")), float(row[6])) for row in rows}
    assert found["global", "load"] == (5500, 16.91) and found["global", "store"] == (5600, 15.62)
    assert found["shared", "store"] == (5632, 4) and all("B[i, j] = A[j, i]" in line for line in out.splitlines()[3:])
    text = page.read_text(encoding="utf-8")
    assert "ncu counted 15.62 of each request of its line" in text and "counted each" in text
    code, out, _ = command("profile", *GIVEN, "--import", SOURCE, "--json")
    data = json.loads(out)
    assert code == 0 and data["schema"] == 1 and data["launches"]["transpose_0"] == {"time_us": None, "hardware": {}}
    assert {"global", "shared"} == {row["memory"] for row in data["lines"]}


def test_reports_of_several_launches_are_added() -> None:
    once, twice = (read_report([SOURCE.read_text()] * n)["transpose_0"] for n in (1, 2))
    assert once.instructions == twice.instructions == 200
    assert [2 * each.parts for each in once.accesses] == [each.parts for each in twice.accesses]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: "", "the report has no kernel of this program: it has none"),
        (lambda text: text.replace("transpose_0", "softmax_0"), "it has softmax_0, and not transpose_0"),
        (lambda text: text[: text.rindex('"0x')], "the report is of another cubin: transpose_0 has 199 instructions"),
        (lambda text: text[: len(text) // 2], "the report"),
        (
            lambda text: text.replace("L2 Theoretical Sectors Global", "Sectors", 1),
            "the report cannot be read: KeyError",
        ),
        (lambda text: text.replace('"1408","45056"', '"many","45056"').replace("LDC R1", "LDG R1"), "cannot be read"),
        (lambda text: text.replace('"0x7efba97a0000"', '"first"'), "the report cannot be read: ValueError"),
        (lambda text: "==ERROR== nothing\n", "it has none"),
    ],
)
def test_reports_that_are_not_right_are_refused(
    command: Command, tmp_path: Path, edit: Callable[[str], str], said: str
) -> None:
    file = tmp_path / "report.csv"
    file.write_text(edit(SOURCE.read_text()), encoding="utf-8")
    code, _, err = command("profile", *GIVEN, "--import", file)
    assert (code, "error[E0606]" in err) == (1, True) and said in err


def test_a_file_that_is_not_there_or_needs_ncu_is_an_error(command: Command, tmp_path: Path) -> None:
    assert command("profile", *GIVEN, "--import", tmp_path / "none.csv")[0] == 1
    report = tmp_path / "counted.ncu-rep"
    report.write_bytes(b"\0")
    code, _, err = command("profile", *GIVEN, "--import", report)
    assert code == 3 and "ncu was not found" in err
    assert command("profile", *GIVEN[:3], "-t", "cpu")[0] == 2


def fake_ncu(folder: Path, *lines: str) -> None:
    path = folder / "ncu"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_ncu_or_its_permission_there_is_a_way_round(command: Command, tmp_path: Path) -> None:
    code, _, err = command("profile", *GIVEN)
    assert code == 3 and "ncu was not found" in err and "--page source --csv" in err and "--import counted.csv" in err
    fake_ncu(tmp_path, "echo '==ERROR== ERR_NVGPUCTRPERM - no permission' >&2", "exit 1")
    code, _, err = command("profile", *GIVEN)
    assert code == 3 and "ncu ended with 1: ==ERROR== ERR_NVGPUCTRPERM" in err
    fake_ncu(tmp_path, "echo '==WARNING== No kernels were profiled.'")
    code, _, err = command("profile", *GIVEN)
    assert code == 3 and "ncu counted nothing: ==WARNING== No kernels were profiled." in err


def test_ncu_runs_the_kernel_with_the_same_arguments(command: Command, tmp_path: Path) -> None:
    fake_ncu(
        tmp_path,
        f'if [ "$1" = --force-overwrite ]; then echo "$@" > {tmp_path}/asked; : > "$3"; exit 0; fi',
        f'case "$*" in *"--page raw"*) /bin/cat {RAW};; *) /bin/cat {SOURCE};; esac',
    )
    code, out, _ = command("profile", *GIVEN, "--seed", 7)
    assert code == 0 and "5,500 loads" in out
    asked = (tmp_path / "asked").read_text()
    assert re.search(r"--kernel-name regex:\^\(transpose_0\)\$ \S+ -m texpr run \S+transpose.tex", asked)
    assert "--seed 7 -DM=1000 -DN=700" in asked and "--clock-control none" in asked
