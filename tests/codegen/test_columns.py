"""A text says of which numbers of columns its warpgroups multiply, and the header has those alone."""

import re
from pathlib import Path

import pytest

import texpr
from texpr.codegen.headers import INCLUDE

PRODUCT = """kernel product(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""


@pytest.mark.parametrize("size", [4096, 512])
def test_a_product_names_the_columns_of_its_instructions(size: int) -> None:
    built = texpr.parse(PRODUCT, "product").only.compile("cuda:sm_90a", sizes={"M": size, "N": size, "K": size})
    text = built.build.result("emit").source
    columns = sorted({int(number) for number in re.findall(r"Accumulator<64, (\d+)>", text)})
    assert columns
    assert f"#define TX_COLUMNS(n) ({' || '.join(f'n == {n}' for n in columns)})" in text.splitlines()
    assert text.index("#define TX_COLUMNS") < text.index("#include")


def test_a_text_without_products_names_none() -> None:
    built = texpr.parse("kernel k(x: f32[N]) { par N i { x[i] = 1.0 } }", "k").only.compile("cuda:sm_90a", sizes={})
    assert "TX_COLUMNS" not in built.build.result("emit").source


def test_the_header_has_every_number_of_columns_under_its_own_condition() -> None:
    text = Path(INCLUDE / "texpr/wgmma.cuh").read_text(encoding="utf-8")
    found = re.findall(r"#if TX_COLUMNS\((\d+)\)\nTX_WGMMA\((\d+), .*\)\n#endif\n", text)
    assert [(int(asked), int(made)) for asked, made in found] == [(n, n) for n in range(8, 257, 8)]
