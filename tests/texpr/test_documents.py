"""Documents say what the code says."""

from pathlib import Path
from typing import Any

from texpr.grammar.codes import CODES
from texpr.grammar.interpret.bound import FUNCTION_ERRORS

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_function_errors_is_the_code_s() -> None:
    text = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    for fn, allowed in FUNCTION_ERRORS.items():
        assert f"| {fn.value} | {allowed.f32_ulps:g} | {allowed.f64_ulps:g} | {allowed.fast_ulps:g}" in text


def test_every_code_has_a_program_that_shows_it() -> None:
    shown = {path.stem for path in (ROOT / "tests" / "errors").glob("*.txt")}
    texts = "".join((ROOT / "tests" / "errors" / f"{name}.txt").read_text(encoding="utf-8") for name in shown)
    texts += "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    assert not [code for code in CODES if code not in texts]


def test_the_readme_s_python_program_runs(tmp_path: Path) -> None:
    import numpy as np

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program = text.split("## From Python")[1].split("    matmul(a, b, c)")[0]
    lines = [line[4:] for line in program.splitlines() if line.startswith("    ") or not line.strip()]
    source = tmp_path / "readme_program.py"
    source.write_text("\n".join(lines), encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), scope)
    a, b = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
    c = np.zeros((4, 5), np.float32)
    scope["matmul"](a, b, c)
    assert np.array_equal(c, a @ b)
