"""The front end's promise on random functions: a module that prints and reads back, or a TExprError; nothing else."""

from pathlib import Path

import pytest
from python_functions import PythonFunctions, read_all


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_function_is_a_module_or_a_diagnostic(seed: int, tmp_path: Path) -> None:
    found = read_all(list(PythonFunctions(seed).texts(100)), tmp_path)
    assert found["module"] > 20
    assert found["E0105"] > 20
