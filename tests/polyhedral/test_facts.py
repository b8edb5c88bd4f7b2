"""What is known of sizes: in groups that no fact connects, with the same proofs as all together."""

import tomllib
from pathlib import Path

import pytest
from stages import program, proved

from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse
from texpr.polyhedral import facts
from texpr.polyhedral.facts import size_names, size_ranges
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.prove.boxes import boxes
from texpr.polyhedral.prove.stage import prove

KERNELS = Path(__file__).parent.parent / "kernels"
ERRORS = sorted((Path(__file__).parent.parent / "errors").glob("prove_[!f]*.tex"))
DYNAMIC = [n for n, c in tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8")).items() if "dynamic" in c]


def many_sizes(count: int, facts: str = "") -> str:
    params = ", ".join(f"A{k}: f32[N{k}]" for k in range(count))
    bands = " ".join(f"par N{k} x{k} {{ A{k}[x{k}] = 1.0 }}" for k in range(count))
    return f"kernel f({params}) {facts} {{ {bands} }}"


def answer(path: Path) -> object:
    """What is proved of a kernel with free sizes, or why it is refused."""
    (kernel,) = check(parse(SourceText(path.name, path.read_text(encoding="utf-8"))), folder=path.parent)
    try:
        found = prove(build_program(bind_sizes(kernel, {})))
    except TExprError as refused:
        return [(str(d), d.witness) for d in refused.diagnostics]
    return dict(found.directions), dict(found.accumulated), boxes(found.program), found.warnings


def test_sizes_that_no_fact_connects_are_apart() -> None:
    found = program(many_sizes(12, "where N0 <= N3, N3 != N5, N7 % 8 == 0")).facts
    assert sorted(size_names(group) for group in found.groups if len(size_names(group)) > 1) == [("N0", "N3", "N5")]
    assert len(found.groups) == 10


def test_a_proof_names_the_sizes_of_its_statement_and_those_that_facts_connect() -> None:
    found = program(many_sizes(12, "where N0 <= N3"))
    assert set(size_names(found.statements[0].domain)) == {"N0", "N3"}
    assert size_names(found.statements[5].accesses[0].relation) == ("N5",)


def test_many_free_sizes_are_proved_one_by_one() -> None:
    assert proved(many_sizes(80)).directions["A79"] == "out"
    assert proved(many_sizes(40, "where " + ", ".join(f"N{k} != 7" for k in range(40)))).directions["A39"] == "out"


def test_the_ranges_of_sizes_have_both_ends() -> None:
    (kernel,) = check(parse(SourceText("f.tex", many_sizes(4, "where N0 < 8, N0 > 2, N0 <= 9, N1 >= 5, N2 <= 3"))))
    found = {name: tuple(map(constant_value, ends)) for name, ends in size_ranges(kernel).items()}
    assert found == {"N0": (3, 7), "N2": (0, 3)}


def test_facts_that_contradict_each_other_allow_everything() -> None:
    text = many_sizes(12, "where N3 < 2, N3 > 5").replace("A0[x0]", "A0[x0 + 1]")
    assert "A0" in proved(text).directions


def test_a_witness_has_a_value_for_every_size() -> None:
    with pytest.raises(TExprError, match="with N0 = 1, N1 = 3, N2 = 0") as refused:
        proved(many_sizes(12, "where N1 >= 3").replace("A0[x0]", "A0[x0 + 1]"))
    (witness,) = [d.witness for d in refused.value.diagnostics]
    assert witness is not None and list(witness["sizes"]) == [f"N{k}" for k in range(12)]


@pytest.mark.parametrize("path", [*(KERNELS / f"{n}.tex" for n in DYNAMIC), *ERRORS], ids=lambda path: path.stem)
def test_groups_of_sizes_are_proved_as_all_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = answer(path)
    monkeypatch.setattr(facts, "MAX_TOGETHER", 0)
    assert answer(path) == together
