"""The gallery of mappings is what its script makes of the compiler as it is."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_gallery_is_what_the_compiler_says(request: pytest.FixtureRequest) -> None:
    made: dict[str, str] = script().files()
    if request.config.getoption("--update-golden"):
        for name, text in made.items():
            (DOCS / name).write_text(text, encoding="utf-8")
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, f"python docs/gallery.py makes {', '.join(stale)} anew"
    assert {path.name for path in (DOCS / "pictures").glob("gallery_*.svg")} == {Path(n).name for n in made if "/" in n}
