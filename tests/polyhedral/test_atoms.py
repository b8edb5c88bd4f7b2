"""The catalogue of atoms: what each entry says of its operands, and that its wrapper and the twin of it are there.
Their values are tested in `tests/atoms`."""

import numpy as np
import pytest

from texpr.codegen.toolchain import compile_cubin, compile_host
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.types import BF16, F8E4M3, F8E5M2, F16, F32, F64
from texpr.polyhedral.layout.injective import injective
from texpr.polyhedral.layout.place import every_place
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped import atoms
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import SharedOperand, Team
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.target import parse_target

H200 = parse_target("cuda:sm_90a")
NARROW = atoms.mma_blocks(F8E5M2, 64, 32, F8E4M3)
PRODUCTS = [
    atoms.fma(F64),
    *(atoms.mma(t, c) for t, c in ((F16, F32), (BF16, F32), (F16, F16), (F32, F32), (F64, F64))),
    *(atoms.mma_blocks(t, 64, 32) for t in (BF16, F64)),
    NARROW,
    *(atoms.wgmma(BF16, n, SharedOperand()) for n in (8, 104, 256)),
    atoms.wgmma(F16, 64, SharedOperand(k_contiguous=False), SharedOperand(swizzle_bytes=16)),
]
MOVES = [
    *(atoms.load_matrices(F16, n, transposed=t) for n in (1, 2, 4) for t in (False, True)),
    *(
        atoms.load_blocks(t, 32, SharedOperand(k_contiguous=k), role)
        for t in (F16, F64)
        for k in (False, True)
        for role in "ab"
    ),
    *(atoms.store_matrices(F16, n, transposed=t) for n in (1, 2, 4) for t in (False, True)),
]
TREES = [atoms.tree(m, F32, n, H200, scan=s) for m in MONOIDS.values() for n in (2, 32) for s in (False, True)]
ALL = [*PRODUCTS, *MOVES, *TREES]


def shape(operand):
    return tuple(constant_value(extent) for extent in operand.layout.shape)


@pytest.mark.parametrize("atom", ALL, ids=lambda atom: atom.name.replace(" ", "-"))
def test_every_element_has_a_place_of_its_own_in_registers_of_the_team(atom):
    threads = {Team.THREAD: 1, Team.WARP: 32, Team.WARPGROUP: 128}[atom.team]
    for operand in atom.operands.values():
        assert injective(operand.layout).holds
        places = every_place(operand.layout)
        if operand.memory is Memory.REG:
            assert set(operand.layout.units) <= {Unit.LANE, Unit.REGISTER}
            assert int(np.max(places.get(Unit.LANE, 0))) < threads
        else:
            assert operand.layout.units == (Unit.ADDRESS,) and operand.alignment_bytes >= operand.dtype.bits // 8


SHAPES = {  # of a, b, c; a tile in shared memory has whole panels
    "fma f64": ((1,), (1,), (1,)),
    "mma.m16n8k16 f16 f32": ((16, 16), (16, 8), (16, 8)),
    "mma.m16n8k4 f64 f64": ((16, 4), (4, 8), (16, 8)),
    "mma.m16n8k32 e5m2 e4m3 f32 of 64 x 32": ((64, 32), (32, 32), (64, 32)),
    "mma.m16n8k16 bf16 f32 of 64 x 32": ((64, 16), (16, 32), (64, 32)),
    "wgmma.m64n8k16 bf16": ((64, 16), (8, 64), (64, 8)),
    "wgmma.m64n104k16 bf16": ((64, 16), (104, 64), (64, 104)),
    "wgmma.m64n64k16 f16": ((64, 16), (16, 64), (64, 64)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_of_a_product(name):
    (atom,) = (atom for atom in PRODUCTS if atom.name == name)
    assert tuple(shape(atom.operands[role]) for role in "abc") == SHAPES[name]


def used():
    """A text that names every wrapper of the catalogue."""
    functions = sorted({(atom.wrapper.header, atom.wrapper.function.partition("<")[0]) for atom in ALL})
    includes = sorted({header for header, _ in functions} | {"texpr/kernel.cuh"})
    lines = [f'#include "{header}"' for header in includes]
    return "\n".join([*lines, "namespace used {", *(f"using {name};" for _, name in functions), "}", ""])


@pytest.mark.gxx
def test_every_wrapper_has_a_host_twin(tmp_path):
    assert compile_host(used(), tmp_path, werror=True).exists()


@pytest.mark.nvcc
def test_every_wrapper_is_there_for_the_device():
    assert compile_cubin(used(), "sm_90a", werror=True).startswith(b"\x7fELF")


def test_products_of_a_warpgroup_are_over_with_their_group():
    assert {a.completion for a in PRODUCTS if a.team is Team.WARPGROUP} == {Completion.WGMMA}
    assert {a.completion for a in ALL if a.team is not Team.WARPGROUP} == {Completion.NOW}


@pytest.mark.parametrize(
    ("arch", "names"),
    [("sm_80", ["mma"]), ("sm_89", ["mma", "mma f8"]), ("sm_90", ["mma", "mma f8", "stmatrix"]),
     ("sm_90a", ["mma", "mma f8", "stmatrix", "wgmma"]), ("sm_120", ["mma", "mma f8", "stmatrix"])],
)  # fmt: skip
def test_an_architecture_has_its_instructions(arch, names):
    one = {"mma": PRODUCTS[1], "mma f8": NARROW, "stmatrix": MOVES[-1], "wgmma": PRODUCTS[-1]}
    assert [name for name, atom in one.items() if atom.arch.has(parse_target(f"cuda:{arch}"))] == names
    assert not PRODUCTS[0].arch.has(parse_target("cpu"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: atoms.tree(MONOIDS["Sum"], F32, 12, H200),
        lambda: atoms.mma(BF16, F16),
        lambda: atoms.mma(F64, F32),
        lambda: atoms.mma(F8E4M3, F32, F16),
        lambda: atoms.wgmma(F64, 64, SharedOperand(), SharedOperand()),
        lambda: atoms.load_blocks(F32, 64, SharedOperand(k_contiguous=False), "b"),
        lambda: atoms.load_matrices(F32, 4),
        lambda: atoms.mma_blocks(F16, 24, 64),
        lambda: atoms.load_blocks(F16, 64, SharedOperand(swizzle_bytes=32), "a"),
        lambda: atoms.load_blocks(F16, 64, SharedOperand(), "c"),
        lambda: atoms.load_matrices(F16, 3),
        lambda: atoms.wgmma(F16, 12, SharedOperand()),
        lambda: atoms.wgmma(F16, 64, SharedOperand(swizzle_bytes=48)),
    ],
)
def test_what_no_instruction_does_is_no_atom(wrong):
    with pytest.raises(InternalError):
        wrong()
