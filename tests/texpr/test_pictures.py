"""Pictures of mappings: whole SVG, no words over one another, colours that stay apart, pages without scripts."""

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest

import texpr
from texpr.cli import guarded, run_command
from texpr.footprints import bank_picture
from texpr.mapping_json import mapping_text
from texpr.page import drawing, page
from texpr.pictures import CHARACTER, lane_colour
from texpr.printed import MappingView

ROOT = Path(__file__).resolve().parents[2]
MATMUL = """kernel matmul(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}
"""
SVG = "{http://www.w3.org/2000/svg}"


def mapping(path: str, **sizes: int) -> MappingView:
    return texpr.load(ROOT / path).only.compile("cuda:sm_90a", sizes=sizes, stop_after="map").mapping


@pytest.fixture(scope="module")
def views() -> dict[str, MappingView]:
    return {
        "swizzled": mapping("tests/kernels/transpose_swizzled.tex"),
        "piped": mapping("examples/matmul.tex", M=4096, N=4096, K=4096),
        "contracted": texpr.parse(MATMUL).only.compile("cuda:sm_90a", stop_after="map").mapping,
        "gathered": mapping("examples/histogram.tex"),
    }


Box = tuple[float, float, float, float]


def words(node: ElementTree.Element, x: float = 0, y: float = 0) -> list[tuple[str, Box]]:
    """Every line of words with the box that it takes."""
    moved = re.match(r"translate\(([\d.]+) ([\d.]+)\)", node.get("transform", ""))
    x, y = (x + float(moved[1]), y + float(moved[2])) if moved else (x, y)
    found: list[tuple[str, Box]] = []
    if node.tag == f"{SVG}text":
        size, text = float(node.get("font-size", "0")), node.text or ""
        width = CHARACTER * size * len(text)
        left = x + float(node.get("x", "0")) - (width / 2 if node.get("text-anchor") == "middle" else 0)
        base = y + float(node.get("y", "0"))
        found.append((text, (left, base - 0.75 * size, left + width, base)))
    for inner in node:
        found += words(inner, x, y)
    return found


def overlap(a: Box, b: Box) -> bool:
    return min(a[2], b[2]) - max(a[0], b[0]) > 0.5 and min(a[3], b[3]) - max(a[1], b[1]) > 0.5


@pytest.mark.parametrize("name", ["swizzled", "piped", "contracted", "gathered"])
def test_no_words_lie_over_one_another_or_outside(views: dict[str, MappingView], name: str) -> None:
    root = ElementTree.fromstring(drawing(views[name].data()))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    found = words(root)
    assert len(found) > 10
    assert all(box[2] <= width + 1 and box[3] <= height and box[0] >= 0 for _, box in found)
    rows = sorted(found, key=lambda pair: pair[1][1])
    for (one, a), (other, b) in combinations(rows, 2):
        if b[1] > a[3]:
            continue
        assert not overlap(a, b), f"{one!r} and {other!r}"


def luminance(colour: str) -> float:
    r, g, b = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_lanes_grow_lighter_so_that_no_eye_needs_their_hue() -> None:
    seen = [luminance(lane_colour(lane, 32)) for lane in range(32)]
    assert all(b > a for a, b in pairwise(seen))


def test_conflicts_of_banks_are_drawn_as_wavefronts() -> None:
    entry: dict[str, Any] = {
        "statement": "S", "mode": "read", "relation": "t[j, 0]", "width": 1, "element_bytes": 4,
    }  # fmt: skip
    column = [128 * lane for lane in range(32)]
    padded = [132 * lane for lane in range(32)]
    drawn = bank_picture(entry, padded, column).svg()
    assert "as it lies: 1 wavefront, 1 at best" in drawn
    assert "without padding or swizzle: 32 wavefronts, 1 at best" in drawn


def test_boxes_of_engines_are_drawn_by_who_moves_them(views: dict[str, MappingView]) -> None:
    drawn = ElementTree.fromstring(drawing(views["piped"].data()))
    said = [text for text, _ in words(drawn)]
    assert {"A: 256 × 64", "B: 64 × 256, each box to all", "C: 256 × 256"} <= set(said)
    assert said.count("128 × 64") == 2 and said.count("64 × 64") == 4  # a box of A for each block, two of B
    for group, warp in product(range(2), range(4)):  # eight boxes of 32 columns from each of both blocks
        assert said.count(f"wg{group} w{warp}") == 16
    assert {"in plain rows: 8 wavefronts for a column", "as it lies: 1 wavefront for a column"} <= set(said)


def test_boxes_of_other_than_two_dimensions_are_named() -> None:
    text = """kernel c(X: bf16[B, H + 2, W + 2, C], F: bf16[3, 3, C, D], Y: bf16[B, H, W, D]) {
        par B b, H h, W w, D d { Y[b, h, w, d] = sum 3 p, 3 q, C c { X[b, h + p, w + q, c] * F[p, q, c, d] } }
    }"""
    kernel = texpr.parse(text).only
    view = kernel.compile("cuda:sm_90a", stop_after="map", B=32, H=56, W=56, C=128, D=128).mapping
    assert "not of two dimensions: the boxes of X" in drawing(view.data())


def test_a_long_table_of_alternatives_is_folded() -> None:
    table = "".join(f"choice {number}\n" for number in range(40))
    found = page(mapping("tests/kernels/vector_add.tex").data(), "", [], table)
    assert found.count("choice 15") == 2 and found.count("choice 16") == 1 and "<summary>all 40</summary>" in found


@pytest.mark.parametrize("name", ["swizzled", "piped", "gathered"])
def test_a_page_is_whole_without_scripts_or_other_files(views: dict[str, MappingView], name: str) -> None:
    whole = views[name].page()
    assert whole.startswith("<!doctype html>") and whole.count("<svg") == whole.count("</svg>") >= 1
    assert "<script" not in whole and "src=" not in whole and "@import" not in whole
    assert not re.findall(r'href="|url\(', whole)
    for launch in views[name].data()["host"]:
        assert launch["name"] in whole
    assert {"swizzled": "without padding or swizzle", "piped": "pipe ring of 4 slots"}.get(name, "data tells") in whole


def test_a_notebook_shows_mapping_graph_and_source(views: dict[str, MappingView]) -> None:
    compiled = texpr.load(ROOT / "tests/kernels/vector_add.tex").only.compile("cuda:sm_90a")
    assert compiled.mapping._repr_mimebundle_()["image/svg+xml"].startswith("<svg")
    for view in (compiled.graph, compiled.source):
        bundle = view._repr_mimebundle_()  # type: ignore[attr-defined]  # the source is a str that can be shown
        assert bundle["text/plain"] == str(view) and bundle["text/html"].startswith("<pre>")


def called(*arguments: str) -> int:
    return guarded(lambda: run_command(list(arguments)))


def test_map_writes_a_page_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, svg = tmp_path / "m.html", tmp_path / "m.svg"
    assert called("map", str(ROOT / "tests/kernels/vector_add.tex"), "--html", str(html), "--svg", str(svg)) == 0
    assert capsys.readouterr().out == f"{html}, {svg}\n"
    ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    assert "What is proved" in html.read_text(encoding="utf-8")
    assert called("map", str(ROOT / "tests/kernels/vector_add.tex"), "--html", str(tmp_path / "no" / "m.html")) == 1
    assert "error[E0606]" in capsys.readouterr().err


@pytest.mark.parametrize("asked", ["C", "C[i, j]", "B[ k,j ]", "S1_A_stage"])
def test_an_access_is_explained(asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "matmul.tex").write_text(MATMUL, encoding="utf-8")
    assert called("map", str(tmp_path / "matmul.tex"), "--explain", asked) == 0
    said = capsys.readouterr().out
    assert "by its certificate" in said and "next best: " in said and " a request, " in said


def test_lines_of_an_explanation_fit_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert called("map", str(ROOT / "tests/kernels/softmax.tex"), "--explain", "Y") == 0
    said = capsys.readouterr().out.splitlines()
    assert said and max(map(len, said)) <= 40


def test_an_access_that_there_is_not_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "matmul.tex").write_text(MATMUL, encoding="utf-8")
    assert called("map", str(tmp_path / "matmul.tex"), "--explain", "C[i, k]") == 2
    assert "no access 'C[i, k]'" in capsys.readouterr().err


def test_mappings_are_compared(
    views: dict[str, MappingView], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("contracted", "piped"):
        (tmp_path / f"{name}.json").write_text(mapping_text(views[name].data()), encoding="utf-8")
    first, second = (str(tmp_path / f"{name}.json") for name in ("contracted", "piped"))
    assert called("compare", first, first) == 0
    assert capsys.readouterr().out == "the mappings are alike\n"
    monkeypatch.setenv("COLUMNS", "40")
    assert called("compare", first, second) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[said.index("matmul_0: form") :][:3] == ["matmul_0: form", "  contracted", "  piped"]
    own = json.loads((tmp_path / "contracted.json").read_text(encoding="utf-8"))
    changed = {**own["candidate"], "launches": {"matmul_0": {**own["candidate"]["launches"]["matmul_0"], "depth": 8}}}
    for name, candidate in (("cases", changed), ("others", own["candidate"])):
        cases = {"cases": [{"when": "M > 3", "candidate": candidate}], "otherwise": own["candidate"]}
        (tmp_path / f"{name}.json").write_text(json.dumps({**own, "candidate": cases}), encoding="utf-8")
    assert called("compare", str(tmp_path / "cases.json"), str(tmp_path / "others.json")) == 0
    said = capsys.readouterr().out
    assert "matmul_0_case0: depth" in said and "matmul_0_case1" not in said and "cases" not in said.split()
    (tmp_path / "other.json").write_text('{"schema": 6}', encoding="utf-8")
    assert called("compare", first, str(tmp_path / "other.json")) == 1
    assert "no mapping of schema 6" in capsys.readouterr().err
