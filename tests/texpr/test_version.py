"""One version in both places that say it."""

import tomllib
from pathlib import Path

from texpr.version import VERSION


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
