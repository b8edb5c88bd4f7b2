"""The front end's promise on random functions: a module that prints and reads back, or a TExprError; nothing else."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _generator() -> ModuleType:
    path = Path(__file__).with_name("python_functions.py")
    spec = importlib.util.spec_from_file_location("python_functions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(10))
def test_a_random_function_is_a_module_or_a_diagnostic(seed: int, tmp_path: Path) -> None:
    made = _generator()
    found = made.read_all(list(made.PythonFunctions(seed).texts(100)), tmp_path)
    assert found["module"] > 20
    assert found["E0105"] > 20
