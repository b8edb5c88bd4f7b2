"""The façade of the compilers: what is missing or refused is a diagnostic, equal text gives equal bytes."""

import pytest

from texpr.codegen import headers, toolchain
from texpr.codegen.cuda.emit import emit_cuda
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.target import parse_target


def code_of(action):
    with pytest.raises(TExprError) as caught:
        action()
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def test_a_missing_nvcc_is_a_diagnostic_with_a_way_round(monkeypatch):
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: None)
    diagnostic = code_of(lambda: toolchain.compile_cubin("", "sm_90a", by="nvcc"))
    assert diagnostic.code == "E0503" and "cuda-host or cpu" in diagnostic.help
    assert diagnostic.message.startswith("nvcc was not found") and toolchain.describe_nvcc().startswith("not found")


def test_a_missing_gxx_is_a_diagnostic_with_a_way_round(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "find_gxx", lambda: None)
    diagnostic = code_of(lambda: toolchain.compile_host("", tmp_path))
    assert diagnostic.code == "E0503" and "apt install g++" in diagnostic.help
    assert toolchain.describe_gxx().startswith("not found")


def test_cuda_home_comes_before_the_path(monkeypatch, tmp_path):
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain._tool_path("nvcc") == str(nvcc)
    nvcc.chmod(0o644)
    assert toolchain._tool_path("nvcc") != str(nvcc)


def test_the_headers_of_an_artifact_are_those_of_the_device(build):
    names = emit_cuda(build.vadd(), parse_target("cuda:sm_80")).headers
    assert {"texpr/kernel.cuh", "texpr/memory.cuh", "texpr/types.cuh"} < set(names)
    assert not any("host" in path or path == "texpr/wgmma.cuh" for path in names)


@pytest.mark.nvcc
@pytest.mark.parametrize("header", ["texpr/kernel.cuh", "texpr/wgmma.cuh"])
def test_what_a_header_includes_is_all_that_it_needs(tmp_path, header):
    for path, text in headers.header_files(headers.included((header,))).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert toolchain.compile_cubin(f'#include "{header}"\n', "sm_90a", (tmp_path,)).startswith(b"\x7fELF")


def test_every_header_names_itself_from_a_root_of_its_own():
    files = sorted(p for p in headers.INCLUDE.rglob("*") if p.is_file())
    assert len(files) > 10
    for path in files:
        first = path.read_text().splitlines()[0]
        assert first == f'#line 2 "/texpr/include/{path.relative_to(headers.INCLUDE)}"'


@pytest.mark.gxx
def test_a_refusal_of_the_host_compiler_speaks_of_the_program_s_lines(tmp_path):
    text = '#include "texpr/kernel.cuh"\n#line 7 "/texpr/broken.tex"\nint x = nothing;\n'
    diagnostic = code_of(lambda: toolchain.compile_host(text, tmp_path))
    assert diagnostic.code == "E0504"
    assert diagnostic.notes[0].startswith("/texpr/broken.tex:7:")
    assert str(tmp_path) not in "".join(diagnostic.notes)


@pytest.mark.gxx
def test_a_compiler_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "TIMEOUT_S", 0.05)
    text = "".join(f"template <int N> struct A{k} {{ int x[N]; }};\n" for k in range(20000))
    diagnostic = code_of(lambda: toolchain.compile_host(text, tmp_path))
    assert diagnostic.code == "E0504" and "took longer" in diagnostic.message


@pytest.mark.nvcc
def test_a_refusal_of_nvcc_speaks_of_the_program_s_lines():
    text = '#include "texpr/kernel.cuh"\n#line 7 "/texpr/broken.tex"\n__global__ void k() { nothing(); }\n'
    diagnostic = code_of(lambda: toolchain.compile_cubin(text, "sm_90a", by="nvcc"))
    assert diagnostic.code == "E0504" and diagnostic.notes[0].startswith("/texpr/broken.tex(7)")


@pytest.mark.nvcc
def test_a_warning_of_nvcc_is_a_refusal_for_tests_only():
    text = '#include "texpr/kernel.cuh"\nextern "C" __global__ void k() { int unused; }\n'
    assert code_of(lambda: toolchain.compile_cubin(text, "sm_90a", werror=True)).code == "E0504"
    assert toolchain.compile_cubin(text, "sm_90a", by="nvcc")


@pytest.mark.nvcc
def test_equal_text_gives_equal_cubins_from_any_folder(build, monkeypatch, tmp_path):
    text = emit_cuda(build.reverse(), parse_target("cuda:sm_90a")).source
    first = toolchain.compile_cubin(text, "sm_90a")
    elsewhere = tmp_path / "a folder of another length"
    elsewhere.mkdir()
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(elsewhere))
    assert toolchain.compile_cubin(text, "sm_90a") == first
