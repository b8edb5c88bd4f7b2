"""A real manifest with every field removed or of another type in turn: a diagnostic on reading or at the call."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import texpr
from texpr.codegen.manifest import check_expr, evaluate
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.runtime.launch import Launcher

TEXT = """kernel k(A: f32[N, M], B: f32[N], s: f32) where N % 2 == 0, M >= 1 {
    new t: f32[N]
    par N i { t[i] = A[i, 0] }
    seq 3 q { par N i { B[i] += t[N - 1 - i] * s } }
}
"""
HUGE = 10**4000
SQUARES = ["*", ["*", ["*", ["*", "N", "N"], ["*", "N", "N"]], 2**62], 2**62]
VALUES = [
    None, True, 0, -1, 2**62, 2**70, HUGE, -HUGE, 1.5, "", "x", "\0", "\ud800", "../x", [], {}, [None], {"x": 1},
    ["%", 1, 0], ["*", HUGE, HUGE], SQUARES, "N" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def document() -> Any:
    """Of a kernel whose first launch also takes what only programs written by hand take yet."""
    found = json.loads(write_manifest(texpr.parse(TEXT).only.compile("cuda:sm_90a").manifest))
    found["words"] = [{"name": "w", "size_bytes": ["*", 4, "N"], "init": "once"}]
    step = found["host"][0]
    step["maps"] = [
        {
            "name": "A_box", "array": "A", "dtype": "f32", "shape": ["N", 4], "strides": [4, 1], "box": [2, 4],
            "swizzle_bytes": 0, "promotion_bytes": 128,
        }
    ]  # fmt: skip
    step["arguments"] += [["words", "w"], ["map", "A_box"]]
    return found


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value below this one, as keys and positions."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*above, key)
        yield from places(value[key], (*above, key))


def changed(document: Any, place: tuple[Any, ...], *values: Any) -> str:
    """The document with the value at a place removed, or replaced by the one given."""
    result = copy.deepcopy(document)
    parent = result
    for key in place[:-1]:
        parent = parent[key]
    if values:
        parent[place[-1]] = values[0]
    else:
        del parent[place[-1]]
    return json.dumps(result)


def use(text: str) -> bool:
    """Reads a manifest and launches it, on a backend that does nothing; whether both were possible."""
    try:
        launcher = Launcher(read_manifest(text), MagicMock(devices=(1,)))
        launcher(np.ones((4, 3), "f4"), np.ones(4, "f4"), 1.0)
    except texpr.TExprError:
        return False
    return True


def test_the_manifest_itself_is_of_use(document: Any) -> None:
    assert use(json.dumps(document))


def test_every_key_is_needed(document: Any) -> None:
    keys = [place for place in places(document) if isinstance(place[-1], str)]
    assert len(keys) > 60
    for place in keys:
        with pytest.raises(texpr.TExprError, match="E0505"):
            read_manifest(changed(document, place))


def test_every_value_is_looked_at_and_none_is_more_than_a_diagnostic(document: Any) -> None:
    for place in places(document):
        if isinstance(place[-1], int):
            use(changed(document, place))
        used = [use(changed(document, place, value)) for value in VALUES]
        assert not all(used), place


@pytest.mark.parametrize("field", ["parameters", "sizes"])
def test_names_are_given_once(document: Any, field: str) -> None:
    with pytest.raises(texpr.TExprError, match="have one name"):
        read_manifest(changed(document, (field,), document[field] + document[field][:1]))


@pytest.mark.parametrize(("mode", "op"), [("read", "add"), ("accumulate", None), ("write", "x")])
def test_an_operator_stands_with_accumulation_only(document: Any, mode: str, op: str | None) -> None:
    parameter = {**document["parameters"][0], "mode": mode, "op": op}
    with pytest.raises(texpr.TExprError, match="E0505"):
        read_manifest(changed(document, ("parameters", 0), parameter))


def test_a_box_has_the_dimensions_of_its_shape(document: Any) -> None:
    parameter = {**document["parameters"][0], "box": [[0, 1]]}
    with pytest.raises(texpr.TExprError, match="box"):
        read_manifest(changed(document, ("parameters", 0), parameter))


@pytest.mark.parametrize("place", [("workspace", "bytes"), ("sizes", 0, 1), ("version",), ("host", 0, "grid", 0)])
def test_a_number_of_any_length_is_refused_in_a_short_sentence(document: Any, place: tuple[Any, ...]) -> None:
    with pytest.raises(texpr.TExprError, match="E0505") as caught:
        read_manifest(changed(document, place, HUGE))
    assert len(str(caught.value)) < 200


def test_an_expression_s_value_has_a_limit() -> None:
    expr: Any = 2**62
    for _ in range(12):
        expr = ["*", expr, expr]
    with pytest.raises(texpr.TExprError, match="out of range"):
        evaluate(check_expr(expr), {})


@pytest.mark.parametrize("field", ["target", "arch", "texpr"])
@pytest.mark.parametrize("value", ["\ud800", "\x1b[2J", "\u202e", "x" * 300])
def test_a_word_that_is_shown_to_people_is_plain(document: Any, field: str, value: str) -> None:
    with pytest.raises(texpr.TExprError, match=f"{field} is malformed"):
        read_manifest(changed(document, (field,), value))
