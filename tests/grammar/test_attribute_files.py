"""To add an attribute: its row in `grammar/attributes.py`, and the one file that obeys it."""

import ast
from pathlib import Path

import pytest

from texpr.grammar.attributes import ATTRIBUTES

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "grammar" / "attributes.py"
SOURCES = sorted(p for floor in ("grammar", "polyhedral", "codegen", "runtime") for p in (ROOT / floor).rglob("*.py"))
# Also places, marks of loops, fields of candidates and manifests, checks at run time, modes: these are counted where a
# name is compared.
OTHER_MEANINGS = frozenset(
    ["grid", "cluster", "block", "warp", "thread", "warpgroup", "vector", "unroll", "align", "strides", "layout"]
) | {"threads", "unique", "fast", "tile", "cooperative", "stages", "persistent", "tf32"}


def constants(node: ast.AST) -> set[object]:
    return {found.value for found in ast.walk(node) if isinstance(found, ast.Constant)}


def is_name_of_something(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "name"


def read_by(tree: ast.AST) -> set[object]:
    """The strings that a file compares with names of attributes, or could."""
    found = set[object]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=value) if value not in OTHER_MEANINGS:
                found.add(value)
            case ast.Call(func=ast.Attribute(attr="has"), args=args):
                found |= {value for arg in args for value in constants(arg)}
            case ast.Call(func=ast.Name(id="_named")):
                found |= constants(node)
            case ast.Compare(left=left, comparators=right) if any(map(is_name_of_something, (left, *right))):
                found |= constants(node)
            case ast.Match(subject=subject) if is_name_of_something(subject):
                found |= {value for case in node.cases for value in constants(case.pattern)}
    return found


@pytest.fixture(scope="module")
def scanned() -> dict[Path, set[object]]:
    return {path: read_by(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES if path != TABLE}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_read_by_one_file_beside_the_table(name: str, scanned: dict[Path, set[object]]) -> None:
    files = {path.relative_to(ROOT).as_posix() for path, read in scanned.items() if name in read}
    assert len(files) <= 1, sorted(files)
    spec = ATTRIBUTES[name]
    assert files or spec.fineness is not None or not spec.mapped, "an attribute that is mapped is obeyed somewhere"


def test_the_scan_sees_an_attribute_that_is_read() -> None:
    text = (
        'if a.has("block") or a.name in ("grid",) or _named(x, "align"): pass\nmatch a.name:\n    case "layout": pass'
    )
    assert {"block", "grid", "align", "layout"} <= read_by(ast.parse(text))
    assert not {"block", "warp"} & read_by(ast.parse('x = {"block": "warp"}'))
