"""What the compilers make of emitted text: no warning on any architecture, accessors that cost nothing, the machine's
instructions where they mean the same."""

import re
import subprocess

import pytest

import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.cuda.names import mangle
from texpr.codegen.toolchain import INCLUDE, compile_cubin, compile_host, compile_ptx, find_gxx, find_nvcc
from texpr.grammar import ast
from texpr.grammar.types import BF16, F8E4M3, F16, F32, F64, I8, I32, I64
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Loop
from texpr.polyhedral.target import parse_target

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


def instructions(ptx):
    """The instructions of a PTX text without line information, labels and registers' numbers."""
    body = ptx[ptx.index("{\n") :]
    lines = (line.strip() for line in body.splitlines())
    kept = [line for line in lines if line.endswith(";") and not line.startswith((".loc", ".reg", ".file"))]
    return [re.sub(r"%(\w+?)\d+", r"%\1", line) for line in kept if not line.startswith((".section", ".b8"))]


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["vadd", "matmul", "reverse"])
def test_a_kernel_compiles_without_a_warning(build, name, arch):
    text = emit_cuda(getattr(build, name)(), parse_target(f"cuda:{arch}"))
    assert compile_cubin(text.source, arch, werror=True).startswith(b"\x7fELF")


LITERALS = """
kernel literals(A: f32[8], B: f32[16], C: f64[8], H: u32[8], b: bool[8]) {
    par 8 i {
        B[i] = A[i] / 0.0 + inf / 0 + (1.0 / (2.0 - 2.0)) + 3.0e38 * 10.0 - A[i] / -0.0
        B[i + 8] = A[i] / 2.0 + 1.0 / 3 - A[i] / select(1 < 2, 0.0, 1.0) + A[i] / 1e-45
        C[i] = f64(A[i]) / 0.0 + 1e300 * 1e300 / 0 - f64(1.0) / (C[i] / -0.0)
        H[i] = select(H[i] < 0, 1, shl(H[i], 40)) + select(0 <= H[i], 3, 5 / 0) + select(0 > H[i], 3, 5 % 0)
        b[i] = H[i] < bitand(0, 1) or 2147483647 + 1 < -7 / 2 or true
    }
}
"""


@pytest.mark.nvcc
@pytest.mark.gxx
def test_operations_on_literals_and_comparisons_with_zero_compile_without_a_warning(tmp_path):
    text = texpr.parse(LITERALS).only.compile("cuda:sm_90a").source
    assert compile_cubin(text, "sm_90a", werror=True).startswith(b"\x7fELF")
    assert compile_host(text, tmp_path, werror=True).exists()


PLAIN = """
extern "C" __global__ void __launch_bounds__(256)
vadd_0(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, long long N) {
  const long long i = 256ll * (int)blockIdx.x + 32 * (int)(threadIdx.x / 32) + (int)(threadIdx.x % 32);
  if (i < N) C[i] = A[i] + B[i];
}
"""


@pytest.mark.nvcc
def test_an_accessor_is_a_plain_pointer_on_the_device(build):
    emitted = instructions(compile_ptx(emit_cuda(build.vadd(), parse_target("cuda:sm_90a")).source, "sm_90a"))
    plain = instructions(compile_ptx(PLAIN, "sm_90a"))
    assert sorted(emitted) == sorted(plain)
    assert sum("ld.global.nc" in line for line in emitted) == 2


@pytest.mark.nvcc
def test_the_ptx_of_a_compiled_kernel_can_be_read():
    kernel = texpr.parse("kernel f(A: f32[N]) { par N i { A[i] = 1.0 } }").only
    assert ".visible .entry f_0" in kernel.compile("cuda:sm_90a").ptx
    with pytest.raises(texpr.TExprError, match="target cpu has no PTX") as refused:
        _ = kernel.compile("cpu").ptx
    assert refused.value.diagnostics[0].code == "E0502"


@pytest.mark.nvcc
def test_line_information_speaks_of_the_program_and_of_no_folder(build):
    ptx = compile_ptx(emit_cuda(build.vadd(), parse_target("cuda:sm_90a")).source, "sm_90a")
    files = re.findall(r'\.file\s+\d+ "(.*)"', ptx)
    assert "/texpr/vadd.tex" in files and all(name.startswith("/texpr/") for name in files)
    number = 1 + files.index("/texpr/vadd.tex")
    assert re.search(rf"\.loc\s+{number} 3 ", ptx)


@pytest.mark.nvcc
def test_a_tensor_of_one_thread_lies_in_registers_where_loops_are_unrolled(build):
    acc = build.block_tensor("acc", 16, memory=Memory.REG)
    at = build.span_of("a\nb\n", "b")  # the line directive stands between the pragma and its loop
    fill = build.statement("acc", ("k",), build.read("A", "i", "k"), span=at)
    drain = build.statement("C", ("i", build.binary("-", 15, "q")), build.read("acc", "q"), span=at, id="S1")
    loops = (
        Loop(index=name, extent=build.number(16), body=(leaf,), unroll=True, span=at)
        for name, leaf in (("k", fill), ("q", drain))
    )
    digits = (build.digit("i_lane", "lane", 32),)
    block = build.launch("k_0", (build.define("i", (1, "i_lane")), *loops), digits=digits, tensors=(acc,))
    plan = build.plan((block,), (build.tensor("A", 32, 16), build.tensor("C", 32, 16)))
    ptx = compile_ptx(emit_cuda(plan, parse_target("cuda:sm_90a")).source, "sm_90a")
    assert ".local" not in ptx and "bra" not in ptx and ptx.count("ld.global") == 16


@pytest.mark.nvcc
def test_a_load_is_not_moved_across_a_barrier(build):
    """Another thread writes the element between the two loads: a restricted pointer would make them one."""
    body = (
        build.define("i", (1, "i_lane")),
        build.statement("x", (), build.read("T", build.binary("-", 31, "i"))),
        build.statement("T", ("i",), build.const(1.0), id="S1"),
        build.statement(
            "C", ("i",), build.op("add", build.read("x"), build.read("T", build.binary("-", 31, "i"))), id="S2"
        ),
    )
    nowhere = build.span_of("a\n", "a")
    barrier = Barrier(scope=Scope.BLOCK, orders=(build.order("S0", "S1", "T", nowhere, nowhere),))
    body = (*body[:2], barrier, body[2], barrier, *body[3:])
    local = build.block_tensor("x", memory=Memory.REG)
    block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32),), tensors=(local,))
    plan = build.plan((block,), (build.tensor("T", 32), build.tensor("C", 32)))
    ptx = compile_ptx(emit_cuda(plan, parse_target("cuda:sm_90a")).source, "sm_90a")
    assert [ptx.count(word) for word in ("ld.global", "bar.sync")] == [2, 2]


@pytest.mark.nvcc
def test_shared_memory_is_addressed_as_shared_memory(build):
    ptx = instructions(compile_ptx(emit_cuda(build.reverse(), parse_target("cuda:sm_90a")).source, "sm_90a"))
    assert [sum(word in line for line in ptx) for word in ("st.shared.f32", "ld.shared.f32", "bar.sync")] == [1, 1, 1]


def scaled(build, value, **more):
    """C[i] = value over i on one warp."""
    body = (build.define("i", (1, "i_lane")), build.statement("C", ("i",), value, **more))
    block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32),))
    plan = build.plan((block,), tuple(build.tensor(n, 32) for n in "ABC"))
    return instructions(compile_ptx(emit_cuda(plan, parse_target("cuda:sm_90a")).source, "sm_90a"))


@pytest.mark.nvcc
def test_contraction_happens_where_the_text_says_and_nowhere_else(build):
    value = build.op("add", build.op("mul", build.read("A", "i"), build.read("B", "i")), build.const(1.0))
    assert sum(line.startswith("fma.rn.f32") for line in scaled(build, value)) == 1
    strict = scaled(build, value, attrs=(build.attr("strict"),))
    assert not [line for line in strict if line.startswith("fma")]
    twice = (
        build.define("i", (1, "i_lane")),
        build.statement("t", (), build.op("mul", build.read("A", "i"), build.read("B", "i"))),
        build.statement("C", ("i",), build.op("add", build.read("t"), build.const(1.0)), id="S1"),
    )
    block = build.launch(
        "k_0",
        twice,
        digits=(build.digit("i_lane", "lane", 32),),
        tensors=(build.block_tensor("t", memory=Memory.REG),),
    )
    plan = build.plan((block,), tuple(build.tensor(n, 32) for n in "ABC"))
    ptx = instructions(compile_ptx(emit_cuda(plan, parse_target("cuda:sm_90a")).source, "sm_90a"))
    assert [sum(line.startswith(word) for line in ptx) for word in ("fma", "mul.rn.f32", "add.rn.f32")] == [0, 1, 1]


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("dtype", "op", "instruction"),
    [
        (F32, "add", "(red|atom).*add.f32"),
        (F64, "add", "(red|atom).*add.f64"),
        (I32, "add", "(red|atom).*add.(u|s)32"),
        (I64, "add", "(red|atom).*add.u64"),
        (I32, "max", "(red|atom).*max.s32"),
        (I64, "min", "(red|atom).*min.s64"),
        (F32, "max", "atom.*cas.b32"),
        (F64, "min", "atom.*cas.b64"),
        (I64, "mul", "atom.*cas.b64"),
        (F16, "add", "atom.*cas.b16"),
        (BF16, "add", "atom.*cas.b16"),
        (I8, "add", "atom.*cas.b16"),
        (F8E4M3, "max", "atom.*cas.b16"),
    ],
    ids=str,
)
def test_an_atomic_update_is_the_machine_s_where_that_means_the_same(build, dtype, op, instruction):
    wide = F32 if dtype.is_float and dtype.bits < 32 else I32 if dtype == I8 else dtype
    value = build.cast(build.read("A", "i", dtype=dtype), wide)
    body = (
        build.define("i", (1, "i_lane")),
        build.statement("C", (0,), value, op=ast.AccOp(op), atomic=True),
    )
    block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32),))
    plan = build.plan((block,), (build.tensor("A", 32, dtype=dtype), build.tensor("C", 1, dtype=dtype)))
    ptx = compile_ptx(emit_cuda(plan, parse_target("cuda:sm_90a")).source, "sm_90a")
    assert [line for line in ptx.splitlines() if re.search(instruction, line)]
    if "cas" not in instruction:
        assert "cas" not in ptx


@pytest.mark.nvcc
def test_checks_of_gathered_subscripts_compile_and_trap(build):
    gather = ast.Gather(value=build.read("idx", "i", dtype=I32))
    body = (build.define("i", (1, "i_lane")), build.statement("C", ("i",), build.read("A", gather)))
    block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32),))
    plan = build.plan((block,), (build.tensor("A", 9), build.tensor("idx", 32, dtype=I32), build.tensor("C", 32)))
    target = parse_target("cuda:sm_90a")
    assert "trap;" in compile_ptx(emit_cuda(plan, target, checks=True).source, "sm_90a")
    assert "trap;" not in compile_ptx(emit_cuda(plan, target).source, "sm_90a")


def macros(command):
    done = subprocess.run(command, input=b'#include "texpr/kernel.cuh"\n', capture_output=True, check=True)
    return re.findall(r"^#define ([A-Za-z_][A-Za-z0-9_]*)", done.stdout.decode(), re.MULTILINE)


@pytest.mark.nvcc
@pytest.mark.gxx
def test_no_macro_of_the_compilers_passes_as_a_name(tmp_path):
    source = tmp_path / "k.cu"
    source.write_text('#include "texpr/kernel.cuh"\n')
    host = [find_gxx().path, "-std=c++17", "-dM", "-E", f"-I{INCLUDE}", "-include", "texpr/host/host.hpp", "-xc++", "-"]
    device = [find_nvcc().path, "-std=c++17", "-E", "-Xcompiler", "-dM", f"-I{INCLUDE}", str(source)]
    found = set(macros(host)) | set(macros(device))
    assert {"EOF", "TX_FN"} <= found and len(found) > 500
    assert sorted(name for name in found if mangle(name) == name) == []
