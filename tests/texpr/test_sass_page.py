"""The page from a product's text to its machine code is what its script makes of the compiler as it is."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.nvrtc
@pytest.mark.nvdisasm
def test_the_page_is_what_the_compiler_says(request: pytest.FixtureRequest) -> None:
    from texpr.codegen.toolchain import describe_nvrtc

    if "release 13.0" not in describe_nvrtc():
        pytest.skip("another NVRTC makes other machine code")
    spec = importlib.util.spec_from_file_location("sass_page", DOCS / "sass.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if request.config.getoption("--update-golden"):
        module.main()
    assert (DOCS / "sass.md").read_text(encoding="utf-8") == module.made(), "python docs/sass.py makes sass.md anew"
