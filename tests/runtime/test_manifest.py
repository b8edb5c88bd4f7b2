"""Manifests and artifacts are data from outside: read field by field, refused with E0505, never executed."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from texpr.codegen.artifact import save_artifact
from texpr.codegen.manifest import Manifest, check_condition, check_expr, evaluate, holds
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.load import load, read_artifact

SAMPLE: dict[str, Any] = {
    "format": "texpr-manifest",
    "version": 2,
    "texpr": "0.1.0",
    "name": "k",
    "target": "cuda:sm_90a",
    "arch": "sm_90a",
    "loadable": False,
    "parameters": [
        {
            "name": "A",
            "dtype": "f32",
            "rank": 2,
            "shape": ["M", ["+", "N", 1]],
            "strides": [["+", "N", 1], 1],
            "mode": "accumulate",
            "op": "add",
            "box": [[0, "M"], [1, ["+", "N", 1]]],
            "align": 16,
            "flat": False,
            "scalar": False,
        }
    ],
    "sizes": [["M", None], ["N", 8]],
    "facts": [["==", ["%", "M", 8], 0]],
    "workspace": {"bytes": 256, "tensors": [{"name": "t", "offset_bytes": 0, "size_bytes": ["*", 4, "M"]}]},
    "words": [{"name": "done", "size_bytes": ["*", 4, "M"], "init": "each call"}],
    "host": [
        {
            "loop": "t",
            "extent": "N",
            "body": [
                {
                    "if": ["<", "t", 4],
                    "then": [
                        {
                            "launch": "k_0",
                            "grid": [["ceildiv", "M", 256], 1, 1],
                            "cluster": [1, 1, 1],
                            "block": [256, 1, 1],
                            "shared_bytes": 0,
                            "arguments": [["param", "A"], ["words", "done"], ["map", "A_box"], ["index", "t"]],
                            "maps": [
                                {
                                    "name": "A_box",
                                    "array": "A",
                                    "dtype": "f32",
                                    "shape": ["M", ["+", "N", 1]],
                                    "strides": [["+", "N", 1], 1],
                                    "box": [8, 4],
                                    "swizzle_bytes": 32,
                                    "promotion_bytes": 128,
                                }
                            ],
                            "overlaps": True,
                            "cooperative": False,
                        }
                    ],
                    "else": [],
                }
            ],
        }
    ],
    "files": {},
}


def refused(text: str) -> str:
    with pytest.raises(TExprError) as caught:
        read_manifest(text)
    return caught.value.diagnostics[0].code


def test_writing_and_reading_is_the_identity() -> None:
    manifest = read_manifest(json.dumps(SAMPLE))
    assert read_manifest(write_manifest(manifest)) == manifest
    assert write_manifest(manifest) == write_manifest(read_manifest(write_manifest(manifest)))


def tensor_map(**changes: Any) -> str:
    """The sample with a tensor map that says something else."""
    found = copy.deepcopy(SAMPLE)
    found["host"][0]["body"][0]["then"][0]["maps"][0] |= changes
    return json.dumps(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"box": [8, 257]}, "a box has 1 to 256 elements along a dimension, not 257 along dimension 1"),
        ({"box": [0, 4]}, "a box has 1 to 256 elements along a dimension, not 0 along dimension 0"),
        ({"box": [8, 3]}, "the rows of a box have a multiple of 16 bytes, not 12"),
        ({"box": [8, 16]}, "the rows of a box have at most the 32 bytes of its swizzle, not 64"),
        ({"box": [8, True]}, "a tensor map's shape, strides and box disagree"),
        ({"box": [8]}, "a tensor map's shape, strides and box disagree"),
        ({"swizzle_bytes": 16}, "has a type, a swizzle or a promotion that there is not"),
        ({"promotion_bytes": 32}, "has a type, a swizzle or a promotion that there is not"),
        ({"dtype": "f4e2m1"}, "has a type, a swizzle or a promotion that there is not"),
        ({"shape": [], "strides": [], "box": []}, "a tensor map has 1 to 5 dimensions, not 0"),
    ],
)
def test_a_tensor_map_that_no_hardware_has_is_a_damaged_manifest(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TExprError, match=said) as caught:
        read_manifest(tensor_map(**changes))
    assert caught.value.diagnostics[0].code == "E0505"


def test_words_begin_in_one_of_three_ways() -> None:
    with pytest.raises(TExprError, match="words begin as nobody knows"):
        read_manifest(json.dumps({**SAMPLE, "words": [{**SAMPLE["words"][0], "init": "twice"}]}))
    with pytest.raises(TExprError, match="two words have one name"):
        read_manifest(json.dumps({**SAMPLE, "words": SAMPLE["words"] * 2}))


def test_another_version_says_what_is_read() -> None:
    with pytest.raises(TExprError, match="version 1; this TExpr reads 2"):
        read_manifest(json.dumps({**SAMPLE, "version": 1}))


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in items for path in paths(item, (*at, key)))]


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], to)
    return copy


def test_every_damaged_field_is_a_diagnostic_or_a_manifest() -> None:
    junk: list[Any] = [
        None,
        True,
        -1,
        10**30,
        0.5,
        "",
        "..",
        "/etc/passwd",
        "a b",
        [],
        {},
        ["/", 1, 0],
        [[[]]],
        "x" * 300,
    ]
    count = 0
    for path in paths(SAMPLE):
        for value in junk:
            text = json.dumps(changed(SAMPLE, path, value))
            try:
                assert isinstance(read_manifest(text), Manifest)
            except TExprError as wrong:
                count += wrong.diagnostics[0].code == "E0505"
    assert count > 500


def test_mutated_texts_are_diagnostics_or_manifests() -> None:
    generator = random.Random(1)
    text = json.dumps(SAMPLE)
    for _ in range(2000):
        at, length = generator.randrange(len(text)), generator.randrange(4)
        mutated = text[:at] + generator.choice(('"', "{", "[", "]", "9" * 50, "\x00", "é", "")) + text[at + length :]
        try:
            read_manifest(mutated)
        except TExprError as wrong:
            assert wrong.diagnostics[0].code == "E0505"


def test_deep_json_is_refused() -> None:
    assert refused("[" * 100_000) == "E0505"
    expr: Any = 1
    for _ in range(400):
        expr = ["+", expr, 1]
    assert refused(json.dumps(changed(SAMPLE, ("workspace", "bytes"), expr))) == "E0505"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", "a\\b", ""])
def test_file_names_stay_inside_the_folder(name: str) -> None:
    assert refused(json.dumps({**SAMPLE, "files": {name: "0" * 64}})) == "E0505"


def test_expressions_are_interpreted_with_floor_semantics() -> None:
    assert evaluate(["/", -7, 2], {}) == -4
    assert evaluate(["%", -7, 4], {}) == 1
    assert evaluate(["ceildiv", "N", 4], {"N": 9}) == 3
    assert holds(["and", ["<", "N", 3], ["not", ["==", "N", 1]]], {"N": 2})
    for wrong in (["/", 1, 0], "M", ["**", 2, 3], True, 1.5, ["+", 1]):
        with pytest.raises(TExprError):
            evaluate(check_expr(wrong), {"N": 1})
    with pytest.raises(TExprError):
        check_condition(["<", 1])


def test_saved_artifacts_verify_and_damaged_ones_do_not_load(tmp_path: Path) -> None:
    manifest = read_manifest(json.dumps(SAMPLE))
    folder = save_artifact(tmp_path / "out", manifest, {"k.cu": b"text", "include/a.cuh": b"more"})
    loaded, files = read_artifact(folder)
    assert loaded.name == "k"
    assert files == {"k.cu": b"text", "include/a.cuh": b"more"}
    (folder / "k.cu").write_bytes(b"tuxt")
    with pytest.raises(TExprError, match="not the one that was built"):
        read_artifact(folder)


def test_source_only_artifacts_say_so(tmp_path: Path) -> None:
    folder = save_artifact(tmp_path / "out", read_manifest(json.dumps(SAMPLE)), {"k.py": b""})
    with pytest.raises(TExprError, match="source text only") as caught:
        load(folder)
    assert caught.value.diagnostics[0].code == "E0505"


def test_saving_replaces_artifacts_and_nothing_else(tmp_path: Path) -> None:
    manifest = read_manifest(json.dumps(SAMPLE))
    folder = tmp_path / "out"
    save_artifact(folder, manifest, {"k.cu": b"1"})
    save_artifact(folder, manifest, {"k.cu": b"2"})
    assert (folder / "k.cu").read_bytes() == b"2"
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(TExprError) as caught:
        save_artifact(folder, manifest, {"k.cu": b"3"})
    assert caught.value.diagnostics[0].code == "E0606"
    assert (folder / "mine.txt").read_text() == "keep"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_missing_artifacts_are_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TExprError) as caught:
        load(tmp_path / "nowhere")
    assert caught.value.diagnostics[0].code == "E0606"
