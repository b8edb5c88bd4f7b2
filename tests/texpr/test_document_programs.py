"""Documents show what is so: programs are proved, messages come word for word, what is named exists."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import texpr
from texpr.cli import COMMANDS
from texpr.grammar.ast import Role
from texpr.grammar.index.expr import constant_value
from texpr.language import std

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/language.md", "docs/numerics.md", "docs/schemas.md")
HALVE = "kernel halve(A: f32[N], inout C: f32[N]) {\n    par N i {\n        C[i / 2] = A[i]\n    }\n}\n"
NOTATION = ("tstmt s ::=", "v[i, j]  = e ", "pip install")  # first words of what is no program
DECLARATION = re.compile(r"new (?:(reg|shared|global) )?(\w+)(?:: \w+)?(?:\[(.*?)\]| (\d+))?")
ADDS_TO_ITS_OUTPUT = "par M i {"  # the seed program, of which the text says so


def blocks(text: str) -> list[str]:
    """The indented blocks of a text, with lines between them that are empty."""
    found = re.findall(r"(?:^|\n\n)((?: {4}.*\n?|\n(?= {4}))+)", text)
    return ["\n".join(line[4:] for line in block.rstrip().split("\n")) for block in found]


SHOWN = [(name, block) for name in DOCUMENTS for block in blocks((ROOT / name).read_text(encoding="utf-8"))]
SHOWN += [("texpr.__doc__", block) for block in blocks(texpr.__doc__ or "")]


def title(case: tuple[str, str]) -> str:
    return f"{case[0]}: {case[1].split(chr(10))[0][:40]}"


def kernels_of(block: str, folder: Path) -> texpr.Module:
    if "@texpr.kernel" not in block:
        return texpr.parse(block, "shown.tex")
    path = folder / "shown.py"
    path.write_text(f"import texpr\n{block}", encoding="utf-8")
    return texpr.load(path)


def kind(block: str) -> str:
    if block.startswith("error["):
        return "message"
    if block.startswith("texpr "):
        return "commands"
    if block.startswith("new "):
        return "locals"
    if block.startswith("fn "):
        return "library"
    return "notation" if block.startswith(NOTATION) else "program"


def of_kind(wanted: str) -> list[tuple[str, str]]:
    return [case for case in SHOWN if kind(case[1]) == wanted]


def test_every_document_shows_something_and_every_kind_is_shown() -> None:
    assert {name for name, _ in SHOWN} >= {"README.md", "docs/language.md", "texpr.__doc__"}
    assert {kind(block) for _, block in SHOWN} == {"message", "commands", "locals", "library", "notation", "program"}
    assert len(of_kind("program")) >= 6


@pytest.mark.parametrize("case", of_kind("program"), ids=title)
def test_a_program_that_is_shown_is_proved_and_reads_no_output(case: tuple[str, str], tmp_path: Path) -> None:
    module = kernels_of(case[1], tmp_path)
    assert len(module)
    for kernel in module:
        compiled = kernel.compile(stop_after="prove")
        assert compiled.warnings == ()
        directions = set(compiled.build.result("prove").directions.values())
        assert ("inout" in directions) == (case[1].startswith(ADDS_TO_ITS_OUTPUT) or "inout" in case[1])


@pytest.mark.parametrize("case", [c for c in of_kind("program") if "fast = " in c[1]], ids=title)
def test_what_python_does_with_a_kernel_is_there(case: tuple[str, str], tmp_path: Path) -> None:
    tree = ast.parse(case[1])
    (compiling,) = [node for node in tree.body if isinstance(node, ast.Assign)]
    scope: dict[str, Any] = {"matmul": kernels_of(case[1], tmp_path).matmul, "texpr": texpr}
    exec(compile(ast.Module([compiling], []), "shown", "exec"), scope)
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    assert {"save", "mapping"} <= {node.attr for node in asked}
    for node in asked:
        assert getattr(scope[node.value.id], node.attr) is not None
    assert all(str(getattr(scope["fast"], name)) for name in ("mapping", "source"))


@pytest.mark.parametrize("case", of_kind("locals"), ids=title)
def test_a_declaration_that_is_shown_declares_what_it_says(case: tuple[str, str]) -> None:
    for line in case[1].split("\n"):
        core = texpr.parse(f"kernel k(A: f32[N]) {{ par N i {{\n{line}\nA[i] = 1.0 }} }}").only.core()
        (local,) = (b for b in core.buffers if b.role is Role.LOCAL)
        said = DECLARATION.match(line)
        assert said is not None
        memory, name, *shape = said.groups(default="")
        assert (local.memory or "", local.name) == (memory, name)
        assert [constant_value(extent) for extent in local.shape] == [
            int(e) for e in re.findall(r"\d+", " ".join(shape))
        ]


@pytest.mark.parametrize("case", of_kind("library"), ids=title)
def test_a_function_of_the_library_is_shown_as_it_is(case: tuple[str, str]) -> None:
    assert any(case[1] in path.read_text(encoding="utf-8") for path in (ROOT / "grammar" / "std").glob("*.tex"))


@pytest.mark.parametrize("case", of_kind("message"), ids=title)
def test_a_message_comes_word_for_word(case: tuple[str, str]) -> None:
    with pytest.raises(texpr.TExprError) as found:
        texpr.parse(HALVE, "halve.tex").only.compile(N=8)
    assert str(found.value) == case[1]


def test_every_command_is_documented_and_every_documented_one_is_there() -> None:
    known = {command.name: command for command in COMMANDS}
    ((_, table),) = of_kind("commands")
    named = {line.split()[1] for line in table.split("\n")} - {"--version"}
    assert named == {name.split()[0] for name in known} - {"version"}
    for line in table.split("\n"):
        command = known.get(line.split()[1])
        options = {name for o in command.options for name in o.names} if command else {"--version"}
        assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)) <= options | {"-o"}, line


@pytest.mark.parametrize("name", [*DOCUMENTS, "texpr/language.py", "grammar/explanations.py", "texpr/__init__.py"])
def test_every_module_of_std_that_is_named_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"\bstd[./]([a-z_]\w+)", text)) - {"nothing"}  # what `texpr explain E0210` fails to import
    there = {path.stem for path in (ROOT / "grammar" / "std").glob("*.tex")}
    assert named <= there
    if name == "docs/language.md":
        assert there - {"prelude"} <= named
    assert all(getattr(std, module) is not None for module in named)


def test_every_word_of_the_language_has_a_meaning() -> None:
    from texpr import language
    from texpr.grammar.check.imports import prelude
    from texpr.grammar.python.names import WORDS

    words = {name for name in language.__all__ if hasattr(getattr(language, name), "__texpr_word__")}
    assert words - {"size"} <= WORDS | set(prelude().names)
    assert set(prelude().names) <= words


def keys(value: Any) -> set[str]:
    """The names of all fields at any depth; what a witness holds is data."""
    if isinstance(value, list):
        return set().union(*map(keys, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value) | set().union(*(keys(v) for k, v in value.items() if k not in ("witness", "sizes")))


def documented(section: str) -> set[str]:
    text = (ROOT / "docs" / "schemas.md").read_text(encoding="utf-8").split(f"## `{section}`")[1]
    return set(re.findall(r'"(\w+)"', text.split("`{")[1].split("`")[0]))


def test_the_fields_of_every_json_are_documented(command, tmp_path: Path) -> None:
    path = tmp_path / "halve.tex"
    path.write_text(HALVE)
    assert keys(json.loads(command("check", path, "--json")[1])) == documented("texpr check --json")
    path.write_text(HALVE.replace("C[i / 2]", "C[i]"))
    assert set(json.loads(command("map", path, "--json")[1])) == documented("texpr map --json")
    found = keys(json.loads(command("run", path, "--json", "--check", "-D", "N=8")[1]))
    assert found - documented("texpr check --json") <= documented("texpr run --json")
    assert documented("texpr run --json") <= found
