"""The guide for newcomers shows what is so: its programs are saved, its commands and Python run, in order."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
Command = Callable[..., tuple[int, str, str]]


def blocks(text: str) -> list[str]:
    """The indented blocks of a text, with lines between them that are empty, in order."""
    found = re.findall(r"(?:^|\n\n)((?: {4}.*\n?|\n(?= {4}))+)", text)
    parts = ["\n".join(line[4:] for line in block.rstrip().split("\n")) for block in found]
    return [piece for part in parts for piece in re.split(r"\n\n(?=\$ |-- \w+\.tex)", part)]


def lines_shown(shown: list[str], said: str) -> None:
    """Every shown line stands in what was said, in order; only where `…` stands there are others between."""
    lines, at, skip = [line.rstrip() for line in said.splitlines()], 0, False
    for line in (line.rstrip() for line in shown):
        if line.strip() == "…":
            skip = True
            continue
        found = lines.index(line, at) if line in lines[at:] else -1
        assert found == at or (skip and found >= at), f"{line!r} is not in, or not next in:\n{said}"
        at, skip = found + 1, False
    assert skip or not any(line.strip() for line in lines[at:]), f"more is said:\n{said}"


def run(line: str, command: Command) -> str:
    """What a line of a shell prints."""
    words = shlex.split(line)
    assert words[0] == "texpr"
    target = words[words.index(">") + 1] if ">" in words else None
    arguments = words[1 : words.index(">")] if target else words[1:]
    _, out, err = command(*arguments)
    if target:
        Path(target).write_text(out, encoding="utf-8")
        return err
    return out + err


def test_everything_in_the_guide_is_so(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    kinds = set()
    for block in blocks(GUIDE):
        head = block.split("\n")[0]
        if named := re.fullmatch(r"-- (\w+\.tex)", head):
            (tmp_path / named[1]).write_text(block + "\n", encoding="utf-8")
            kinds.add("program")
        elif head.startswith("import "):
            exec(compile(block, "guide.md", "exec"), {})
            kinds.add("python")
        else:
            assert head.startswith("$ "), block
            for call in re.split(r"(?:^|\n)\$ ", block)[1:]:
                line, *shown = call.split("\n")
                lines_shown(shown, run(line, command))
            kinds.add("commands")
    assert kinds == {"program", "python", "commands"}


def test_pages_that_are_linked_exist() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_a_line_that_is_not_said_is_found() -> None:
    for shown in (["b"], ["a", "c"], ["a"], ["…", "d"]):
        with pytest.raises(AssertionError):
            lines_shown(shown, "a\nb\nc\n")
    for shown in (["a", "b", "c"], ["…", "b", "…"], ["a", "…", "c"]):
        lines_shown(shown, "a\nb\nc\n")
