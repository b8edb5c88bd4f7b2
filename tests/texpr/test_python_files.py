"""Kernels of a Python file by name, for every command: the file is read and never run."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

import texpr

HEAD = """
import math
import os
import numpy as np
import texpr
from texpr import f32, par, seq
from texpr.language import inout as both, type_parameter as any_type
"""
KERNELS = (
    HEAD
    + """
RAN = open(os.environ["FILE_THAT_RAN"], "w")
BM = 8
BM = 16
SCALE: float = -0.5
T = any_type("T")

def meaning(x: T) -> T:
    return x * x

@texpr.fn
def squared(x: f32) -> f32:
    return x * x

@texpr.kernel
def matmul(A: f32["M", "K"], B: f32["K", "N"], C: f32["M", "N"]):
    \"\"\"C = A B.\"\"\"
    for i, j in par("M", "N"):
        C[i, j] = 0.0
        for k in seq("K"):
            C[i, j] += A[i, k] * B[k, j]

@texpr.kernel("#threads(64)", where="N % 16 == 0", dynamic=("N",))
def scaled(A: f32["N"], B: both(f32["N"])):
    for i, j in par("N / 16", BM):
        B[i * 16 + j] += squared(A[i * 16 + j]) * SCALE + math.pi

BM = int(os.environ.get("BM", "4"))
"""
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with kernels that would write another one if it ran."""
    monkeypatch.setenv("FILE_THAT_RAN", str(tmp_path / "ran"))
    path = tmp_path / "some.py"
    path.write_text(KERNELS)
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "other.py"
    path.write_text(HEAD + text)
    return path


def imported(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.RAN.close()
    return module


def told(path: Path) -> list[str]:
    with pytest.raises(texpr.TExprError) as found:
        texpr.load(path)
    return [f"{d.code} {d.message}" for d in found.value.diagnostics]


def test_a_file_that_is_read_has_the_kernels_that_running_it_makes(file: Path) -> None:
    read = texpr.load(file)
    assert not (file.parent / "ran").exists()
    ran = imported(file)
    assert (file.parent / "ran").exists()
    assert [kernel.name for kernel in read] == ["matmul", "scaled"]
    for kernel in read:
        other = getattr(ran, kernel.name)
        assert (str(kernel), kernel.dynamic, kernel.__doc__) == (str(other), other.dynamic, other.__doc__)
        assert kernel.core() == other.core()


@pytest.mark.parametrize("name", ["check", "map", "graph", "build", "run"])
def test_every_command_takes_a_kernel_of_a_python_file(command, name: str, file: Path) -> None:
    output = ("-o", file.parent / "out", "--source-only") if name == "build" else ()
    sizes = ("-D", "M=4", "-D", "N=16", "-D", "K=3")
    code, out, said = command(name, f"{file}:matmul", *sizes, *output)
    assert (code, said) == (0, "")
    assert "matmul" in out
    assert "scaled" not in out
    assert not (file.parent / "ran").exists()


def test_a_size_that_the_decorator_leaves_dynamic_has_a_value_in_a_run(command, file: Path) -> None:
    code, out, said = command("run", f"{file}:scaled", "-D", "N=32", "--check")
    assert (code, said) == (0, "")
    assert "N=32 (dynamic)" in out


def test_a_file_is_checked_whole_and_kernels_of_texts_have_names_too(command, file: Path, tmp_path: Path) -> None:
    assert command("check", file)[1] == f"{file}: matmul, scaled: no races, all accesses in bounds\n"
    assert command("check", file, "-D", "M=4", "-D", "N=16")[0] == 0  # one has no M, and leaves N dynamic
    assert "there is no size `Q`" in command("check", file, "-D", "Q=4")[2]
    text = tmp_path / "two.tex"
    text.write_text("kernel a(A: f32[N]) { par N i { A[i] = 1.0 } }\nkernel b(A: f32[N]) { par N i { A[0] = 1.0 } }\n")
    assert json.loads(command("check", f"{text}:a", "--json")[1])["kernels"] == ["a"]
    assert command("check", text)[0] == 1
    assert f"{text} has no kernel 'c'; it has a, b" in command("check", f"{text}:c")[2]


def test_a_kernel_that_is_named_is_not_held_up_by_another_one(command, tmp_path: Path) -> None:
    kernel = "@texpr.kernel\ndef {}(A: f32['N']):\n    for i in par('N'):\n        A[i] = {}\n"
    path = written(tmp_path, kernel.format("good", "1.0") + kernel.format("other", "np.pi"))
    assert command("check", f"{path}:good")[0] == 0
    for asked in (path, f"{path}:other", f"{path}:neither"):
        code, _, said = command("check", asked)
        assert (code, said.count("error[")) == (1, 1)
        assert "what `np.pi` is" in said


def test_all_kernels_of_a_file_are_checked_where_one_is_wrong(command, tmp_path: Path) -> None:
    kernel = "@texpr.kernel\ndef {}(A: f32['{}']):\n    for i in par('{}'):\n        A[{}] = {}\n"
    bodies = (("a", "N", "N", "i", "unknown"), ("b", "M", "M", "0", "1.0"))
    path = written(tmp_path, "".join(kernel.format(*body) for body in bodies))
    for sizes in ((), ("-D", "N=4"), ("-D", "M=4")):
        code, _, said = command("check", path, *sizes)
        assert code == 1
        assert "error[E0201]: `unknown` is not known here" in said
        assert "error[E0301]: two iterations of `par i` write the same element of A" in said


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("run", "FILE"), 2, "name one: FILE:matmul"),
        (("map", "FILE:matmull"), 1, "did you mean `matmul`?"),
        (("map", "FILE:matmul", "--kernel", "scaled"), 2, "names matmul, and --kernel scaled"),
        (("fmt", "FILE"), 1, "is Python, and fmt formats .tex and .texpr files"),
        (("check", "FILE.py:matmul"), 1, "cannot be read"),
    ],
)
def test_wrong_names_are_told_with_the_right_ones(
    command, file: Path, args: tuple[str, ...], code: int, says: str
) -> None:
    done = command(*(a.replace("FILE", str(file)) for a in args))
    assert done[0] == code
    assert says.replace("FILE", str(file)) in done[2]


def test_a_python_file_without_kernels_is_one_message(command, tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("import json\nprint(json)\n")
    for name in ("check", "map", "run"):
        code, out, said = command(name, path)
        assert (code, out) == (1, "")
        assert said.count("error[E0606]") == said.count("error") == 1
        assert "has no function under @texpr.kernel" in said


@pytest.mark.parametrize(
    ("before", "used"),
    [
        ("Q = int(os.environ['Q'])", "Q"),
        ("Q = [4]", "Q"),
        ("Q = 4 * 4", "Q"),
        ("Q = 4\nif Q:\n    Q = 5", "Q"),
        ("Q = 4\nfor Q in (5,): pass", "Q"),
        ("Q = 4\nwith open(os.devnull) as Q: pass", "Q"),
        ("Q = 4\ntry:\n    pass\nexcept OSError as Q:\n    pass", "Q"),
        ("Q = 4\nmatch 5:\n    case Q: pass", "Q"),
        ("Q = 4\nQ += 1", "Q"),
        ("Q = 4\n(Q := 5)", "Q"),
        ("Q = 4\ndel Q", "Q"),
        ("Q = 4\ndef change():\n    global Q\n    Q = 5\nchange()", "Q"),
        ("Q, R = 4, 5", "Q"),
        ("class Q: pass", "Q"),
        ("from elsewhere import Q", "Q"),
        ("import elsewhere.Q as Q", "Q"),
        ("", "np.pi"),
        ("", "os.x.y"),
    ],
)
def test_what_only_running_the_file_tells_is_refused(before: str, used: str, tmp_path: Path) -> None:
    body = f"    for i in par('N'):\n        A[i] = {used}"
    path = written(tmp_path, f"{before}\n@texpr.kernel\ndef k(A: f32['N']):\n{body}\n")
    assert told(path) == [f"E0106 what `{used}` is, only running the file tells"]


def test_each_name_that_is_not_known_is_told_once_where_it_stands(tmp_path: Path) -> None:
    text = (
        "Q = os.getpid()\n@texpr.kernel\ndef k(A: f32[Q], B: Q):\n    for i in par(Q):\n        A[i] = Q(B[i]) + Q[i]\n"
    )
    assert told(written(tmp_path, text)) == ["E0106 what `Q` is, only running the file tells"] * 5
    decorator = "@texpr.kernel(where=os.environ['FACT'])\ndef k(A: f32['N']):\n    A[0] = 1.0\n"
    assert "known only where the file runs" in told(written(tmp_path, decorator))[0]


def test_errors_of_all_kernels_of_a_file_come_at_once(tmp_path: Path) -> None:
    kernel = "@texpr.kernel\ndef {}(A: f32['N']):\n    A[0] = lambda: 0\n"
    assert [line[:5] for line in told(written(tmp_path, kernel.format("a") + kernel.format("b")))] == ["E0105"] * 2


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"def f(:\n", "E0606"),
        (b"x = '\\d'\n", "E0606"),  # a warning of Python's own compiler, and no kernel
        (b"\xff\xfe\n", "E0606"),
        (b"x = 1\0\n", "E0606"),
        (b"# -*- coding: nonsense -*-\n", "E0606"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "E0606"),
        (b"x = " + b"-" * 100_000 + b"1", "E0103"),
        (b"#" * (1 << 20) + b"#", "E0103"),
    ],
    ids=["syntax", "escape", "not-utf8", "null", "coding", "brackets", "deep", "long"],
)
def test_any_file_is_a_diagnostic(content: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / "any.py"
    path.write_bytes(content)
    assert told(path)[0][:5] == code
