"""Elements in emitted text: registers as plain scalars, accessors with subscripts, and what the CPU checks of both."""

import re
from pathlib import Path

import numpy as np
import pytest

import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.cuda.index import variable
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.toolchain import compile_cubin, compile_host
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.target import parse_target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def emitted(planned) -> str:
    """The CUDA text of a planned program."""
    return emit_cuda(planned, parse_target("cuda:sm_90a")).source


def source(text: str, **sizes: int) -> str:
    """The CUDA text of a kernel."""
    return texpr.parse(text).only.compile("cuda:sm_90a", sizes=sizes).source


def test_a_softmax_is_sixty_lines_for_its_three_statements(golden) -> None:
    text = texpr.load(EXAMPLES / "softmax.tex").only.compile("cuda:sm_90a").source
    golden("cuda/softmax.cu", text)
    lines = text.splitlines()
    assert lines.index("}") - lines.index('extern "C" __global__ void __launch_bounds__(256)') < 60


@pytest.mark.parametrize(("columns", "most"), [(4096, 45), (4093, 70)])
def test_a_softmax_of_known_rows_is_few_lines_of_code(columns: int, most: int) -> None:
    kernel = texpr.load(EXAMPLES / "softmax.tex").only.compile("cuda:sm_90a", sizes={"M": 32768, "N": columns})
    lines = (line.strip() for line in kernel.source.splitlines())
    assert sum(1 for line in lines if line and not line.startswith(("//", "#"))) <= most


def test_a_barrier_says_which_phases_of_a_buffer_s_life_it_keeps_apart(build) -> None:
    assert "tx::sync_block(0);  // tile is written (line 4) before it is read (line 5)\n" in emitted(build.reverse())
    text = source(ROUNDS, N=8)
    assert "// t is written (line 4) before it is read (line 5)\n" in text
    assert "// t is read (line 5) before it is written (line 4) in the next k\n" in text


ROUNDS = """\
kernel k(A: f32[64], B: f32[N, 64]) { par 1 b { new t: f32[64]
    seq N k {
        par 64 i {
            t[i] = A[i]
        }; par 64 j { B[k, j] = t[63 - j] }
    } } }
"""


def test_one_short_statement_stands_behind_its_condition(build) -> None:
    out = Lines()
    with out.condition("if (a)"):
        out.line("b = 1;")
    with out.condition("if (a)", ends=False):
        out.line("b = 1;")
    with out.condition("} else"):
        out.line("b = 2;")
    with out.condition("if (a)"):
        out.line("b(); c();")
    with out.condition("if (c)"):
        out.declare("d", "int", variable("e", 0, 1))
    with out.condition("if (c)"):
        out.line("f = 1;")
        out.line("g = 2;")
    lines, _ = out.finish()
    assert lines[:5] == ["if (a) b = 1;", "if (a) {", "  b = 1;", "} else {", "  b = 2;"]
    assert lines[5:9] == ["}", "if (a) {", "  b(); c();", "}"]
    assert lines[9:] == ["if (c) {", "}", "if (c) {", "  f = 1;", "  g = 2;", "}"]


def test_a_condition_that_always_holds_is_left_out() -> None:
    program = (EXAMPLES / "softmax.tex").read_text(encoding="utf-8")
    assert "if (N > 0)" not in source(program.replace("where N >= 1", "where N >= 1, N <= 3000"))
    assert "if (N > 0)" in source(program.replace("where N >= 1", "where N <= 3000"))


def test_a_register_that_its_bind_begins_is_a_plain_scalar() -> None:
    text = source(
        "kernel k(A: f32[N] #align(4)) { par N i { new t: f32; new u: f32; t = A[i]; u = exp(t); u += t; A[i] = u } }"
    )
    assert "const tx::f32 t = A(i);" in text and "tx::f32 u = tx::exp(t);" in text and "u += t;" in text
    assert "tx::Reg" not in text


def test_a_register_that_is_bound_under_a_condition_is_a_checked_one_where_it_begins() -> None:
    text = source(
        "kernel k(A: f32[N] #align(4)) { par N i { new t: f32; if i < 3 { t = 1.0 } else { t = 2.0 }; A[i] = t } }"
    )
    assert re.search(r'if \(i < N\) \{\n *tx::Reg<tx::f32, 1> t\("t"\);\n', text)
    assert "t(0) = 1.0f;" in text and "A(i) = t(0);" in text


def test_a_scalar_begins_again_in_every_block_that_declares_it(build) -> None:
    acc = build.block_tensor("acc", memory=Memory.REG)
    from texpr.codegen.cuda.facts import launch_facts
    from texpr.codegen.cuda.variables import Variable, variables
    from texpr.polyhedral.mapped.tree import Fresh, Loop

    def found(*body):
        block = build.launch("k_0", body, tensors=(acc,))
        planned = build.plan((block,), (build.tensor("C", 8),))
        return variables(launch_facts(planned, planned.program.host[0]))["acc"]

    bind, use = build.statement("acc", (), build.const(1.0)), build.statement("C", (0,), build.read("acc"), id="S1")
    begin = Fresh(buffer="acc")

    def loop(*body):
        return Loop(index="k", extent=build.number(2), body=body)

    assert found(begin, bind, use) == Variable(True, True, True, True)
    assert found(loop(begin, bind, use)) == Variable(True, True, True, True)
    assert found(bind, use) == Variable(True, True, False, True)  # no `new`: it begins with the kernel
    assert found(begin, loop(bind), use) == Variable(False, False, True, True)  # the bind would be in scope no longer
    assert found(begin, use, bind) == Variable(False, False, True, True)  # read first
    assert found(loop(begin, bind), use) == Variable(False, False, False, True)  # used where it is not in scope
    assert found(begin, bind, begin, bind, use) == Variable(False, False, False, True)  # declared twice in one block


IDLE = """\
kernel k(X: f32[N], A: f32[N]) { par N i {
    new s: f32
    s = X[i]
    let u = s + 1.0
    new v: f32
    v = s
    v += 1.0
    if s > 0.0 { let w = u }
    A[i] = 1.0
} }
"""


@pytest.mark.gxx
@pytest.mark.nvcc
def test_a_scalar_that_nothing_reads_compiles_without_a_warning(tmp_path) -> None:
    text = source(IDLE)
    assert "  const tx::f32 s = X" in text and "[[maybe_unused]] tx::f32 v = s;" in text
    assert compile_cubin(text, "sm_80", werror=True).startswith(b"\x7fELF")
    assert compile_host(text, tmp_path, werror=True).exists()


def test_an_accessor_takes_the_program_s_subscripts_and_computes_in_32_bits_where_its_elements_fit() -> None:
    text = "kernel k(A: f32[M, N], B: f32[N, M]) { par M i { seq N j #ordered { B[j, i] = A[i, j] } } }"
    free, bound = source(text), source(text, M=8, N=40)
    assert (
        'const tx::Global<const tx::f32, tx::Strides<2>> A(A_data, {N, 1}, "A");' in free
        and "B(j, i) = A(i, j);" in free
    )
    assert 'const tx::Global<tx::f32, tx::Fixed<8, 1>> B(B_data, "B");' in bound and "B(j, i) = A(i, j);" in bound
    large = source(text, M=1 << 16, N=1 << 16)
    assert 'const tx::Global<const tx::f32, tx::Strides<2>> A(tx::lasting(A_data), {65536, 1}, "A");' in large


ELEMENTS = """\
#include "texpr/kernel.cuh"
extern "C" __global__ void __launch_bounds__(32)
k(tx::i64* Y_data, tx::b8* B_data) {
  const tx::Global<tx::i64> Y(Y_data, "Y");
  const tx::Global<tx::b8> B(B_data, "B");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::i64, tx::Fixed<3, 1>> t(smem + 0, 6, "t");
  if (tx::thread() != 0) return;
  t(0, 0) = 1ll << 40;
  t(1, 2) = t(0, 0);
  t(0, 1) = tx::wrap_add(t(0, 0), t(1, 2));
  Y(0) = tx::max(t(0, 0), t(0, 1));
  Y(1) = tx::min(t(0, 0), 7ll);
  t(0, 0) += 1;
  Y(2) = tx::cast<tx::i64>(t(0, 0));
  B(0) = t(0, 0) > t(1, 2);
  B(1) = !B(0);
  tx::atomic<tx::Add>(Y(3), t(0, 0));
  MORE
}
TX_EXPORT(k);
"""


@pytest.mark.gxx
class TestElements:
    def run(self, more: str = ""):
        y, b = np.full(4, 5, np.int64), np.full(2, 9, np.uint8)
        arrays = [HostArray(a.ctypes.data, a.nbytes) for a in (y, b)]
        report = HostModule(ELEMENTS.replace("MORE", more), werror=True).launch("k", arrays, (1, 1, 1), 32, 48, 0)
        return report, y.tolist(), b.tolist()

    def test_they_are_values_where_they_are_used_and_places_where_they_are_assigned_to(self) -> None:
        big = 1 << 40
        assert self.run() == (None, [2 * big, 7, big + 1, 5 + big + 1], [1, 0])

    def test_a_read_that_nothing_defined_is_told_with_its_line_also_in_an_update(self) -> None:
        line = ELEMENTS.splitlines().index("  MORE") + 1
        for more in ("Y(0) = t(1, 0);", "t(1, 0) += 1;", "Y(0) = tx::max(t(0, 0), t(1, 0));"):
            report, *_ = self.run(more)
            assert (report.kind, report.line) == ("undefined", line)
            assert report.message == "t[3] is read before anything wrote it"

    def test_a_subscript_beyond_all_elements_is_told(self) -> None:
        report, *_ = self.run("t(1, 3) = 0;")
        assert (report.kind, report.message) == ("bounds", "t[6] is outside its 6 elements")


@pytest.mark.parametrize(
    ("body", "plain"),
    [
        ("C[i] += b[i]; D[i] = select(i < 7, C[i], b[i + 1])", {"b"}),
        ("C[i] += b[i]; if i < 7 { D[i] = C[i] } else { D[i] = b[i] * c[i] }", {"b", "c"}),
        ("C[i] += b[i]; D[i] = select(i < 7, c[i], b[i])", set()),
        ("let t = b[i] * 2.0; C[i] += t; D[i] = select(i < 7, t, b[i])", set()),
    ],
)
def test_no_load_of_what_is_written_is_merged_with_one_of_what_nobody_writes(body: str, plain: set[str]) -> None:
    """nvcc makes one load of both arms of a choice, `ld.global.nc` where one of them is of a `const __restrict__`."""
    head = "kernel k(b: f32[65], c: f32[65], inout C: f32[64], D: f32[64])"
    made = texpr.parse(f"{head} {{ par 64 i {{ {body} }} }}").only.compile("cuda:sm_90a", stop_after="emit").source
    assert {name for name in "bc" if f"const tx::f32* {name}_data" in made} == plain
    for name in "bc":
        assert name in plain or f"{name}_data" not in made or f"const tx::f32* __restrict__ {name}_data" in made
