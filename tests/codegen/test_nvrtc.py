"""NVRTC as the compiler for GPUs: it makes what nvcc makes, and where it is missing or broken somebody is told."""

import ast
import os
from pathlib import Path

import pytest

import texpr
from texpr import execute
from texpr.codegen import nvrtc, toolchain
from texpr.codegen.elf import sections
from texpr.codegen.resources import resources
from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.settings import settings

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
SPLIT = b"-split-compile 8"
KERNEL = 'extern "C" __global__ void k() {}\n'
SAME = {
    "matmul_seed": {"M": 128, "N": 128, "K": 64},
    "softmax": {"M": 64, "N": 512},
    "histogram": {},
    "int8_matmul": {},
}


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch):
    """None sees the compilers of another test."""
    finders = (toolchain.find_nvcc, toolchain.find_nvrtc)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    for find in finders:
        find.cache_clear()
    yield
    for find in finders:
        find.cache_clear()
    settings.cache_clear()


def refusal(action) -> Diagnostic:
    with pytest.raises(TExprError) as caught:
        action()
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def toolkit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library's place in a toolkit that comes before all others."""
    (folder / "lib64").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(folder))
    return folder / "lib64" / "libnvrtc.so.13"


def text_of(name: str) -> str:
    return texpr.load(KERNELS / f"{name}.tex").only.compile("cuda:sm_90a", sizes=SAME[name]).source


@pytest.mark.nvrtc
@pytest.mark.nvcc
@pytest.mark.parametrize("name", SAME)
def test_both_compilers_make_the_same_kernels(name):
    text = text_of(name)
    by_nvrtc, by_nvcc = (resources(toolchain.compile_cubin(text, "sm_90a", by=by)) for by in ("nvrtc", "nvcc"))
    assert by_nvrtc.keys() == by_nvcc.keys() != set()
    for symbol, taken in by_nvrtc.items():
        assert taken.stack_bytes <= by_nvcc[symbol].stack_bytes
        assert taken.shared_bytes == by_nvcc[symbol].shared_bytes


@pytest.mark.nvrtc
def test_every_header_is_compiled_by_nvrtc():
    headers = sorted(path.relative_to(toolchain.INCLUDE) for path in toolchain.INCLUDE.glob("texpr/*.cuh"))
    text = "#define TX_CHECKS 1\n" + "".join(f'#include "{path}"\n' for path in headers)
    assert toolchain.compile_cubin(text + KERNEL, "sm_90a", by="nvrtc").startswith(b"\x7fELF")


@pytest.mark.nvrtc
def test_equal_text_gives_equal_cubins_of_nvrtc_from_any_folder(monkeypatch, tmp_path):
    text = text_of("softmax")
    first = toolchain.compile_cubin(text, "sm_90a", by="nvrtc")
    elsewhere = tmp_path / "a folder of another length"
    elsewhere.mkdir()
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(elsewhere))
    assert toolchain.compile_cubin(text, "sm_90a", by="nvrtc") == first


@pytest.mark.nvrtc
def test_kernels_that_are_compiled_side_by_side_have_the_code_of_each_alone():
    each = [
        f"""#line 1 "/texpr/k.cu"
        extern "C" __global__ void k{n}(float* x) {{
          float s = 0;
          for (int i = threadIdx.x; i < {97 * n}; i += {n}) s += x[i] * x[i + {n}];
          x[threadIdx.x] = s;
        }}\n"""
        for n in range(1, 5)
    ]
    together = toolchain.compile_cubin("".join(each), "sm_90a", by="nvrtc")
    assert toolchain.compile_cubin("".join(each), "sm_90a", by="nvrtc") == together
    assert SPLIT in together, "a cubin says how it was made"
    for number, text in enumerate(each, 1):
        alone = toolchain.compile_cubin(text, "sm_90a", by="nvrtc")
        assert SPLIT not in alone
        found = [sections(cubin)[f".text.k{number}"] for cubin in (together, alone)]
        code = [cubin[one.offset : one.offset + one.size] for cubin, one in zip((together, alone), found, strict=True)]
        assert code[0] == code[1] != b""


@pytest.mark.nvrtc
def test_nvrtc_makes_the_ptx_to_read_too():
    assert ".entry k" in toolchain.compile_ptx(KERNEL, "sm_90a", by="nvrtc")


@pytest.mark.nvrtc
def test_a_refusal_of_nvrtc_speaks_of_the_program_s_lines():
    text = '#include "texpr/kernel.cuh"\n#line 7 "/texpr/broken.tex"\n__global__ void k() { nothing(); }\n'
    diagnostic = refusal(lambda: toolchain.compile_cubin(text, "sm_90a", by="nvrtc"))
    assert diagnostic.code == "E0504" and diagnostic.message.startswith("NVRTC refused")
    assert diagnostic.notes[0].startswith("/texpr/broken.tex(7)")


@pytest.mark.nvrtc
def test_nvrtc_is_ended_when_it_takes_too_long(monkeypatch):
    monkeypatch.setattr(toolchain, "TIMEOUT_S", 0.05)
    text = "".join(f"template <int N> struct A{k} {{ int x[N]; }};\n" for k in range(20000))
    diagnostic = refusal(lambda: toolchain.compile_cubin(text, "sm_90a", by="nvrtc"))
    assert diagnostic.code == "E0504" and "NVRTC took longer" in diagnostic.message


@pytest.mark.nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_not_our_text_s_fault():
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_999", by="nvrtc"))
    assert diagnostic.code == "E0503" and "sm_999" in diagnostic.help


@pytest.mark.nvrtc
def test_nvrtc_without_its_builtins_is_an_error_of_the_environment(monkeypatch, tmp_path):
    real = toolchain.find_nvrtc()
    assert real is not None
    toolkit(tmp_path, monkeypatch).symlink_to(real.path)
    toolchain.find_nvrtc.cache_clear()
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_90a"))
    assert diagnostic.code == "E0503" and f"{tmp_path}/lib64/libnvrtc.so.13 does not work" in diagnostic.message
    assert any("builtins" in note for note in diagnostic.notes) and "builtins" in diagnostic.help


def test_a_library_that_is_none_is_an_error_of_the_environment(monkeypatch, tmp_path):
    toolkit(tmp_path, monkeypatch).write_bytes(b"no library")
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_90a"))
    assert diagnostic.code == "E0503" and "libnvrtc.so.13 does not work" in diagnostic.message
    assert "does not work" in toolchain.describe_nvrtc()


def test_the_newest_library_of_a_toolkit_is_taken(monkeypatch, tmp_path):
    library = toolkit(tmp_path, monkeypatch)
    for name in ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0"):
        library.with_name(name).touch()
    assert nvrtc.nvrtc_path() == str(library)


def test_a_library_of_an_older_toolkit_is_passed_over(monkeypatch, tmp_path):
    before = nvrtc.nvrtc_path()
    toolkit(tmp_path, monkeypatch).with_name("libnvrtc.so.12").touch()
    assert nvrtc.nvrtc_path() == before


def test_without_nvrtc_nvcc_is_taken_and_the_doctor_says_so(monkeypatch):
    nvcc = toolchain.Compiler("/opt/nvcc", "release 13.0")
    monkeypatch.setattr(toolchain, "find_nvrtc", lambda: None)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: nvcc)
    assert toolchain.device_compiler() is nvcc
    assert toolchain.describe_nvrtc().startswith("not found: nvcc makes cubins")
    assert refusal(lambda: toolchain.device_compiler("nvrtc")).message.startswith("NVRTC was not found")


def test_without_both_compilers_is_an_error_of_the_environment(monkeypatch):
    for finder in ("find_nvrtc", "find_nvcc"):
        monkeypatch.setattr(toolchain, finder, lambda: None)
    diagnostic = refusal(toolchain.device_compiler)
    assert diagnostic.code == "E0503" and diagnostic.message.startswith("neither NVRTC nor nvcc was found")


def test_nvrtc_comes_before_nvcc_where_none_is_named(monkeypatch):
    own, nvcc = toolchain.Compiler("/opt/libnvrtc.so.13", "", driver=("python",)), toolchain.Compiler("/opt/nvcc", "")
    monkeypatch.setattr(toolchain, "find_nvrtc", lambda: own)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: nvcc)
    assert [toolchain.device_compiler(by) for by in ("", "nvrtc", "nvcc")] == [own, own, nvcc]


def test_a_compiler_that_the_environment_names_wrongly_is_refused(monkeypatch):
    monkeypatch.setenv("TEXPR_DEVICE_COMPILER", "clang")
    settings.cache_clear()
    made = texpr.load(KERNELS / "vector_add.tex").only.compile("cuda:sm_90a", sizes={"N": 8})
    diagnostic = refusal(lambda: execute.cubin_of(made.build))
    assert diagnostic.code == "E0607" and "TEXPR_DEVICE_COMPILER" in diagnostic.message


def test_the_driver_imports_next_to_nothing():
    tree = ast.parse(nvrtc.DRIVER.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"ctypes", "os", "select", "sys"} and not any(
        isinstance(node, ast.ImportFrom) for node in ast.walk(tree)
    )
    assert os.access(nvrtc.DRIVER, os.R_OK)
