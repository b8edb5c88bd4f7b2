"""Options of the Python face that are not what they should be: a diagnostic with a code, no exception of Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr

TEXT = "kernel add(A: f32[N], B: f32[N], s: f32) { par N i { B[i] = A[i] * s } }\n"
HUGE = 10**5000  # more digits than Python writes


def ascii_of(options: dict[str, Any]) -> str:
    return "-".join(options)


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(texpr.TExprError) as caught:
        action()
    return caught.value.diagnostics[0].code


def fill(A: texpr.f32["N"]) -> None:
    for i in texpr.par("N"):
        A[i] = 1.0


@pytest.mark.parametrize("value", [5, None, b"x", [], object()])
def test_a_text_or_its_name_that_is_none_is_refused(value: Any) -> None:
    assert code_of(lambda: texpr.parse(value)) == "E0606"
    assert code_of(lambda: texpr.parse(TEXT, name=value)) == "E0607"
    assert code_of(lambda: texpr.load(value)) == "E0606"
    assert code_of(lambda: texpr.load_artifact(value)) == "E0606"
    assert code_of(lambda: texpr.parse(TEXT)[value]) == "E0201"


@pytest.mark.parametrize("name", ["", "\0", "a\nb", "/", "\u202e", "é", "1x.tex", "x" * 10_000])
def test_any_text_names_a_program(name: str) -> None:
    assert texpr.parse("par N i { A[i] = 1.0 }", name).only.compile().source
    assert code_of(lambda: texpr.parse("par par", name)) == "E0101"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"target": 5}, "E0501"),
        ({"types": []}, "E0211"),
        ({"types": {1: "f32"}}, "E0211"),
        ({"types": {"A": 5}}, "E0211"),
        ({"sizes": {1: 2}}, "E0211"),
        ({"sizes": {"N": "x"}}, "E0211"),
        ({"sizes": {"N": HUGE}}, "E0211"),
        ({"sizes": {"N": 1}, "N": HUGE}, "E0211"),
        ({"sizes": 5}, "E0211"),
        ({"sizes": {"N": True}}, "E0211"),
        ({"dynamic": 3}, "E0211"),
        ({"dynamic": [1]}, "E0211"),
        ({"dynamic": "Q"}, "E0211"),
        ({"dynamic": "N", "N": 4}, "E0211"),
        ({"hints": 7}, "E0211"),
        ({"hints": {"N": "x"}}, "E0211"),
        ({"hints": {"N": -1}}, "E0211"),
        ({"hints": {"N": HUGE}}, "E0211"),
        ({"hints": {"Q": 1}}, "E0211"),
        ({"stop_after": "nonsense"}, "E0502"),
        ({"stop_after": 5}, "E0502"),
        ({"checks": "x"}, "E0607"),
        ({"checks": None}, "E0607"),
    ],
    ids=ascii_of,
)
def test_an_option_of_compile_is_checked(options: dict[str, Any], code: str) -> None:
    assert code_of(lambda: texpr.parse(TEXT).only.compile(**options)) == code


def test_one_name_is_dynamic_as_it_stands() -> None:
    def wide(A: texpr.f32["BM"]) -> None:
        for i in texpr.par("BM"):
            A[i] = 1.0

    assert texpr.parse(TEXT).only.compile(dynamic="N").dynamic == ("N",)
    assert texpr.kernel(dynamic="BM")(wide).dynamic == ("BM",)
    assert texpr.kernel(dynamic="BM")(wide).compile().dynamic == ("BM",)


@pytest.mark.parametrize("options", [{"types": 5}, {"types": {1: 2}}, {"sizes": 5}, {"sizes": {1: 2}}], ids=ascii_of)
def test_an_option_of_core_is_checked(options: dict[str, Any]) -> None:
    assert code_of(lambda: texpr.parse(TEXT).only.core(**options)) == "E0211"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"mode": "x"}, "E0607"),
        ({"mode": []}, "E0607"),
        ({"seed": "x"}, "E0607"),
        ({"seed": -1}, "E0607"),
        ({"seed": 1.5}, "E0607"),
        ({"seed": None}, "E0607"),
        ({"float64": "x"}, "E0607"),
        ({"types": 5}, "E0211"),
        ({"types": {1: 2}}, "E0211"),
        ({"N": HUGE}, "E0211"),
        ({"Q": 1}, "E0211"),
    ],
    ids=ascii_of,
)
def test_an_option_of_interpret_is_checked_before_it_runs(options: dict[str, Any], code: str) -> None:
    out = np.zeros(4, np.float32)
    assert code_of(lambda: texpr.parse(TEXT).only.interpret(np.ones(4, "f4"), out, 1.0, **options)) == code
    assert not out.any()


@pytest.mark.parametrize("size", [HUGE, -HUGE, 1.5, "4"], ids=["huge", "negative", "float", "text"])
def test_a_size_of_a_call_is_checked(size: Any) -> None:
    a, b = np.ones(4, "f4"), np.zeros(4, "f4")
    assert code_of(lambda: texpr.parse(TEXT).only(a, b, 1.0, N=size)) == "E0211"
    assert code_of(lambda: texpr.parse(TEXT).only.compile()(a, b, 1.0, N=size)) == "E0602"


def test_a_scalar_of_thousands_of_digits_does_not_fit() -> None:
    kernel = texpr.parse("kernel k(A: i32[N], s: i32) { par N i { A[i] = s } }").only
    for action in (kernel, kernel.interpret, kernel.compile()):
        assert code_of(lambda action=action: action(np.zeros(4, "i4"), HUGE)) == "E0601"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: texpr.kernel(where=5), "E0607"),
        (lambda: texpr.kernel(where=[]), "E0607"),
        (lambda: texpr.kernel(dynamic=5), "E0211"),
        (lambda: texpr.kernel(dynamic=[1]), "E0211"),
        (lambda: texpr.kernel(5), "E0607"),
        (lambda: texpr.kernel("#x", 6), "E0607"),
        (lambda: texpr.kernel("x")(fill), "E0105"),
        (lambda: texpr.kernel()(5), "E0106"),
        (lambda: texpr.kernel(int), "E0106"),
        (lambda: texpr.fn(5), "E0106"),
        (lambda: texpr.fn(reference=5), "E0607"),
        (lambda: texpr.kernel(dynamic=("Q",))(fill).compile(), "E0211"),
        (lambda: texpr.kernel(dynamic=("Q",))(fill)(np.zeros(4, "f4")), "E0211"),
    ],
)  # fmt: skip
def test_what_a_decorator_is_given_is_checked(make: Callable[[], object], code: str) -> None:
    assert code_of(make) == code


def test_an_artifact_needs_a_folder_that_can_be_written(tmp_path: Path) -> None:
    compiled = texpr.parse(TEXT).only.compile("cuda:sm_90a")
    file = tmp_path / "file"
    file.write_text("mine")
    for folder in (5, None, b"x", file, file / "below", "\0", "/proc/none", "x" * 300, "", tmp_path):
        assert code_of(lambda folder=folder: compiled.save(folder, source_only=True)) == "E0606"
    assert code_of(lambda: compiled.save(tmp_path / "new", source_only="yes")) == "E0607"
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]
