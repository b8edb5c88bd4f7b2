"""Imports stay in their folders, growth is counted, and all findings of a module come at once."""

from pathlib import Path

import pytest
from checked import lines, refused

from texpr.grammar import ast
from texpr.grammar.check import context
from texpr.grammar.check.stage import check
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse
from texpr.grammar.walk import walk


def test_an_import_is_looked_up_under_the_files_own_folder(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ops.tex").write_text(
        "size W = 3\nfn triple(x: T) { return x * W0(x) }\nfn W0(x: T) { return 3.0 }\n"
    )
    text = "import lib.ops\nkernel f(A: f32[N]) { par N i { A[i] = triple(A[i]) } }"
    assert lines(text, folder=tmp_path)[-1] == "S0: A[i] = mul.f32(A[i], 3.0:f32)"


def test_an_import_that_leaves_the_folder_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.tex").write_text("fn g(x: f32) { return x }\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "lib.tex").symlink_to(tmp_path / "outside.tex")
    found = refused("import lib\nkernel f(A: f32[N]) { par N i { A[i] = 0.0 } }", folder=tmp_path / "home")
    assert found == [("E0210", "`lib` leads out of the program's folder")]


def test_modules_that_import_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tex").write_text("import b\nfn fa(x: f32) { return x }\n")
    (tmp_path / "b.tex").write_text("import a\nfn fb(x: f32) { return x }\n")
    found = refused("import a\nkernel f(A: f32[N]) { par N i { A[i] = fa(A[i]) } }", folder=tmp_path)
    assert found == [("E0210", "`a` imports itself")]


def test_a_text_without_a_folder_imports_only_std() -> None:
    assert refused("import lib.ops\npar N i { A[i] = 0.0 }")[0][0] == "E0210"


def test_the_nodes_of_a_kernel_are_counted_after_inlining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MAX_NODES", 2000)
    calls = "".join(f"fn g{i}(x: f32[n], out y: f32[n]) {{ g{i + 1}(x, y); g{i + 1}(x, y) }}\n" for i in range(12))
    text = (
        calls
        + "fn g12(x: f32[n], out y: f32[n]) { par n i { y[i] = x[i] } }\nkernel k(A: f32[N], B: f32[N]) { g0(A, B) }"
    )
    assert refused(text) == [("E0103", "the kernel has more than 2000 nodes after inlining")]


@pytest.mark.parametrize(
    "text",
    [
        "par N i {\n" + "".join(f"let a{k} = min(a{k - 1}, a{k - 1} + 1)\n" for k in range(1, 60)) + "A[a59] = 0.0 }",
        "fn d(x: T) { return x * x }\nkernel f(A: f32[N]) { par N i { A[i] = select(i > 0, "
        + "d(" * 60 + "A[i] + 1.0" + ")" * 60 + ", 0.0) } }",
        "kernel f(A: f32[N]) { par N i {\nlet c0 = i > 0\n"
        + "".join(f"let c{k} = c{k - 1} and not c{k - 1}\n" for k in range(1, 60)) + "if c59 { A[i] = 0.0 } } }",
    ],
)  # fmt: skip
def test_what_doubles_in_each_step_is_refused_by_count(text: str) -> None:
    text = text.replace("a0", "i")
    found = refused(text)
    assert [code for code, _ in found] == ["E0103"]


def test_views_that_begin_at_one_another_do_not_double() -> None:
    steps = "".join(f"let v{k} = A[v{k - 1}[0] + v{k - 1}[1]:4]\n" for k in range(1, 40))
    text = f"kernel f(A: i32[N], B: i32[N]) {{ par N i {{\nlet v0 = A[0:4]\n{steps}B[i] = v39[0] }} }}"
    (kernel,) = check(parse(SourceText("t.tex", text)))
    assert sum(isinstance(node, ast.Read) for node in walk(kernel)) < 200  # each start is read once, into a local


def test_all_findings_come_at_once_in_text_order_and_each_unknown_name_once() -> None:
    text = "kernel f(A: f32[N]) {\n par N i {\n A[i] = x\n A[i] = x + y\n A[i, i] = 0.0\n A[i] = y\n }\n}"
    assert [code for code, _ in refused(text)] == ["E0201", "E0203", "E0201"]
