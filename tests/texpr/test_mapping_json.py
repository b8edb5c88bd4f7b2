"""`texpr map --json` alone says where every iteration runs: the grid and the digits are rebuilt from it here."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

import texpr
from texpr.mapping_json import mapping_json

Values = dict[str, int]
Iterations = set[tuple[int, ...]]


LINE = 32  # elements of 4 bytes in a line of memory


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__, "%": int.__mod__,
    "ceildiv": ceildiv, "min": min, "max": max,
    "==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__,
}  # fmt: skip


def by_tree(tree: Any, values: Values) -> int:
    match tree:
        case int():
            return tree
        case str():
            return values[tree]
        case ["and", *parts]:
            return all(by_tree(part, values) for part in parts)
        case ["or", *parts]:
            return any(by_tree(part, values) for part in parts)
        case ["not", part]:
            return not by_tree(part, values)
        case ["true" | "false" as word]:
            return word == "true"
        case [op, left, right]:
            return OPERATORS[op](by_tree(left, values), by_tree(right, values))
    raise AssertionError(tree)


def by_text(text: str, values: Values) -> int:
    words = {"ceildiv": ceildiv, "min": min, "max": max, "true": True, "false": False}
    return int(eval(text.replace("/", "//"), {"__builtins__": {}}, {**words, **values}))


def value(expression: dict[str, Any], values: Values) -> int:
    found = by_tree(expression["tree"], values)
    assert by_text(expression["text"], values) == found, expression
    return int(found)


def launches(nodes: list[dict[str, Any]], values: Values) -> Iterator[tuple[dict[str, Any], Values]]:
    for node in nodes:
        match node["kind"]:
            case "Launch":
                yield node, values
            case "HostLoop":
                for turn in range(value(node["extent"], values)):
                    yield from launches(node["body"], {**values, node["index"]: turn})
            case "HostIf":
                yield from launches(node["then" if value(node["condition"], values) else "orelse"], values)
            case kind:
                raise AssertionError(kind)


def runs(launch: dict[str, Any], warp: int, values: Values) -> Iterator[tuple[str, tuple[int, ...], Values]]:
    """Statement, block and values of the indices, for every thread of a launch and every statement that it runs."""
    grid = [value(extent, values) for extent in launch["grid"]]
    for z, y, x in product(*(range(extent) for extent in reversed(grid))):
        for thread in range(launch["threads"]):
            places = {"grid.x": x, "grid.y": y, "grid.z": z, "core": x, "warp": thread // warp, "lane": thread % warp}
            own = {
                digit["name"]: places[digit["place"]] // value(digit["stride"], values) % value(digit["radix"], values)
                for digit in launch["digits"]
                if digit["place"] in places
            }
            for statement, found in walked(launch["body"], {**values, **own}):
                if statement["unused"] != "once" or thread == 0:
                    yield statement["id"], (x, y, z, 0 if statement["unused"] else thread), found


def walked(body: list[dict[str, Any]], values: Values) -> Iterator[tuple[dict[str, Any], Values]]:
    values = dict(values)
    for node in body:
        match node["kind"]:
            case "Define":
                values[node["index"]] = sum(
                    (d["weight"] * values[d["name"]] for d in node["digits"]), value(node["offset"], values)
                )
            case "Lead":  # whatever an address decides
                values[node["index"]] = values["lead"]
            case "Loop":
                for turn in range(value(node["extent"], values)):
                    yield from walked(node["body"], {**values, node["index"]: turn})
            case "Guard":
                yield from walked(node["body" if value(node["condition"], values) else "orelse"], values)
            case "Generic":
                yield node, values
            case "Fresh" | "Barrier" | "AfterLaunch" | "TriggerNext" | "Copy" | "Reduce":  # move, combine, wait
                pass
            case kind:
                raise AssertionError(kind)


CASES: dict[str, tuple[str, Values, str, str, Callable[[Values], Iterations]]] = {
    "flat": (
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }",
        {"N": 77}, "S0", "i", lambda s: {(i,) for i in range(s["N"])},
    ),
    "sums": (
        "kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) { "
        "par M i, N j { C[i, j] = sum K k { A[i, k] + B[k, j] } } }",
        {"M": 5, "N": 37, "K": 3}, "S1", "i j k",
        lambda s: set(product(range(s["M"]), range(s["N"]), range(s["K"]))),
    ),
    "triangle": (
        "kernel k(inout A: f32[N, N]) { par N i { par N - i - 1 j { A[i, i + 1 + j] = 1.0 } } }",
        {"N": 19}, "S0", "i j", lambda s: {(i, j) for i in range(s["N"]) for j in range(s["N"] - i - 1)},
    ),
    "guarded": (
        "kernel k(inout A: f32[N]) where N % 4 == 0 { "
        "par N / 4 i, 4 j { if i > 0 and not (j == 1) { A[4 * i + j] = 1.0 } } }",
        {"N": 40}, "S0", "i j", lambda s: {(i, j) for i in range(1, s["N"] // 4) for j in (0, 2, 3)},
    ),
    "tiles": (
        "kernel k(A: f32[N], B: f32[N]) where N % 64 == 0 { par N / 64 b { new shared t: f32[64]; "
        "par 64 i { t[i] = A[64 * b + i] }; par 64 j { B[64 * b + j] = t[63 - j] } } }",
        {"N": 192}, "S1", "b j", lambda s: set(product(range(s["N"] // 64), range(64))),
    ),
    "rows": (
        "kernel k(A: f32[M, N], B: f32[M]) { par M r { new s: f32; s = sum N c { A[r, c] }; B[r] = s } }",
        {"M": 3, "N": 100}, "S1", "r c", lambda s: set(product(range(s["M"]), range(s["N"]))),
    ),
    "steps": (
        "kernel k(inout A: f32[2, N]) { seq T t { "
        "par N - 2 i { A[(t + 1) % 2, i + 1] = A[t % 2, i] + A[t % 2, i + 2] } } }",
        {"N": 40, "T": 3}, "S0", "t i", lambda s: set(product(range(s["T"]), range(s["N"] - 2))),
    ),
    "three dims": (
        "kernel k(A: f32[P, Q, R], X: f32[Q, P], Y: f32[R]) { par P a, Q b, R c { A[a, b, c] = X[b, a] * Y[c] } }",
        {"P": 3, "Q": 5, "R": 256}, "S0", "a b c",
        lambda s: set(product(range(s["P"]), range(s["Q"]), range(s["R"]))),
    ),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu"])
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "dynamic"])
@pytest.mark.parametrize("case", CASES)
def test_every_iteration_runs_once_as_the_json_alone_says(case: str, bound: bool, target: str) -> None:
    text, sizes, statement, indices, expected = CASES[case]
    compiled = texpr.parse(text).only.compile(target, sizes=sizes if bound else {}, stop_after="map")
    data = json.loads(json.dumps(mapping_json(compiled.mapping.program)))
    assert bool(data["sizes"]) is not bound
    wanted = expected(sizes)
    leads = (0, 3, LINE - 1) if '"Lead"' in json.dumps(data) else (0,)
    for lead in leads:
        count: Counter[tuple[int, ...]] = Counter()
        for launch, values in launches(data["host"], {"lead": lead} if bound else {**sizes, "lead": lead}):
            seen = {
                (where, tuple(found[name] for name in indices.split()))
                for name, where, found in runs(launch, data["warp_size"], values)
                if name == statement
            }
            count.update(iteration for _, iteration in seen)
        assert {count[iteration] for iteration in wanted} == {1}
        beyond = set(count) - wanted  # what a run or a line of memory has beside a row is computed, and not stored
        assert not beyond or '"vector"' in json.dumps(data)
        ends = {row: max(i[-1] for i in wanted if i[:-1] == row) for row in {i[:-1] for i in wanted}}
        for *row, last in beyond:
            assert count[*row, last] == 1 and not 0 <= last <= ends.get(tuple(row), -1)
            assert tuple(row) in ends or all(0 <= value < max(sizes.values()) for value in row)  # one without elements


def test_every_expression_and_condition_has_its_text_and_its_tree() -> None:
    head = "kernel k(inout A: f32[N, M], B: f32[N, M], idx: i32[N]) where N >= 4, M >= 1"
    text = f"{head} {{ par N i {{ if B[i, 0] > 0.0 {{ A[i, M - 1] = B[idx[i], 0] }} }} }}"
    data = mapping_json(texpr.parse(text).only.compile("cuda:sm_90a", stop_after="map").mapping.program)
    assert data["facts"][0] == {"text": "N >= 4", "tree": [">=", "N", 4]}
    assert data["buffers"]["A"]["layout"]["shape"] == [{"text": "N", "tree": "N"}, {"text": "M", "tree": "M"}]
    assert data["buffers"]["A"]["layout"]["terms"][1]["stride"] == {"text": "1", "tree": 1}
    (statement,) = [s for s in every_statement(data["host"]) if s["writes"]["buffer"] == "A"]
    assert statement["writes"] == {
        "text": "A[i, M - 1]",
        "buffer": "A",
        "subscripts": [{"text": "i", "tree": "i"}, {"text": "M - 1", "tree": ["-", "M", 1]}],
    }
    assert {"text": "data", "tree": None} in [s for read in statement["reads"] for s in read["subscripts"]]


def every_statement(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        if node["kind"] == "Generic":
            yield node["leaf"]
        yield from every_statement([*node.get("body", ()), *node.get("orelse", ())])


def test_barriers_stand_where_the_text_shows_them() -> None:
    compiled = texpr.parse(CASES["tiles"][0]).only.compile("cuda:sm_90a", N=192)
    (launch,) = mapping_json(compiled.mapping.program)["host"]
    (barrier,) = [node for node in launch["body"] if node["kind"] == "Barrier"]
    assert barrier["scope"] == "block"
    assert str(compiled.mapping).count("barrier (block)") == 1
    assert barrier["orders"][0]["buffer"] == "t"
