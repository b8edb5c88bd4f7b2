"""Fixtures for all tests: golden files with an update flag."""

from pathlib import Path
from typing import Protocol

import pytest

GOLDEN = Path(__file__).parent / "golden"


class Golden(Protocol):
    def __call__(self, name: str, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("stage/case.txt", text)` compares with the committed file; a missing one fails."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}: did you forget --update-golden?")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; --update-golden rewrites it"

    return compare
