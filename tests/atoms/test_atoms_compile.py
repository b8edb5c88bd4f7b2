"""The texts of all atoms compile without a warning for every architecture that has them, and are refused with a
sentence by those that have not. (The host twins are compiled with warnings as errors by the other tests.)"""

import pytest
from families import families, has

from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.diagnostics import TExprError

FAMILIES = families()
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def texts(arch):
    """The kernels that `arch` has; those of monoids are the same for all."""
    families = [family for family in FAMILIES if family.name != "monoids" or arch == "sm_90a"]
    return "".join(text for family in families for least, text in family.texts.items() if has(arch, least))


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.sampled(2)
def test_the_atoms_compile_without_a_warning(arch):
    assert compile_cubin(texts(arch), arch, werror=True).startswith(b"\x7fELF")


TILE = 'TX_DYN_SMEM(s); tx::Shared<tx::f16> tile(s, 64, "");'
MATRICES = f"{TILE} tx::Fragment<tx::f16, 2> f = {{}}; tx::store_matrices(tile, 0, f);"
NARROW = "tx::Accumulator<16, 8> c; tx::OperandA<tx::f8e4m3> a; tx::OperandB<tx::f8e5m2> b; tx::mma(c, a, b);"
PRODUCT = "tx::Accumulator<64, 8> c; tx::MatrixDescriptor<tx::f16, tx::Major::kK> a{0}; tx::wgmma(c, a, a);"
MISSING = {
    "sm_86": ("texpr/mma.cuh", NARROW, "products of f8: sm_89 or newer is needed"),
    "sm_80": ("texpr/mma.cuh", MATRICES, "stmatrix: sm_90 or newer is needed"),
    "sm_100a": ("texpr/wgmma.cuh", PRODUCT, "wgmma: only sm_90a has it"),
}


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", MISSING)
def test_an_architecture_without_the_instruction_says_so(arch):
    include, body, sentence = MISSING[arch]
    with pytest.raises(TExprError) as refused:
        compile_cubin(f'#include "{include}"\n__global__ void k() {{ {body} }}', arch)
    assert sentence in str(refused.value.diagnostics[0].notes)
