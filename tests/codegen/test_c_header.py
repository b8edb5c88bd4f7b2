"""The C header of an artifact: programs in C and C++ include it, call every function of it, and link."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gemm_by_hand import Shape, gemm
from hand_built import GRAPHS
from memory_by_hand import cluster_softmax, ticket_sum

import texpr
from texpr.codegen.manifest import IfStep, LaunchStep, LoopStep, Manifest, Step, evaluate
from texpr.codegen.toolchain import find_gxx, find_nvcc
from texpr.pipeline import build_mapped

# Names that are words, types or macros of C, or names of the header's own.
STEPS = """
kernel steps(A: f32[int64_t], B: f16[grid, restrict], errno: f32, b: bool) where restrict >= 9, grid % 2 == 0 {
    new typeof: f32[int64_t]
    new bytes: f64[grid, min(restrict, 100) + 3]
    seq grid / 2 t {
        par int64_t - t i { typeof[i] = A[i] * errno }
        par max(int64_t - t, 1) i { if i < int64_t - t { A[i] = typeof[i] + 1.0 } }
    }
    par grid j, min(restrict, 100) k { bytes[j, k] = select(b, 1.0, 2.0) }
    par grid j, restrict % 7 + ceildiv(restrict, 8) k { if k < restrict { B[j, k] = f16(bytes[j, k % 9]) } }
}
"""
NAMED = """
kernel named(A: f32[texpr_ceildiv, texpr_max, CUresult]) {
    par texpr_ceildiv i, max(texpr_max, 3) j, CUresult k { if j < texpr_max { A[i, j, k] = 1.0 } }
}
"""
PLAIN = "kernel plain(A: f32[N], C: f32[N]) { par N i { C[i] = A[i] + 1.0 } }"
COMPILERS = {
    "c": (shutil.which("gcc"), ["-std=c11", "-Wstrict-prototypes", "-Wmissing-prototypes"]),
    "c++": (found.path if (found := find_gxx()) else None, ["-std=c++17"]),
}


def header_of(compiled: texpr.Compiled) -> str:
    return compiled.build.result("emit").files[f"{compiled.name}.h"].decode()


def launches(steps: tuple[Step, ...], indices: tuple[str, ...] = ()) -> list[tuple[LaunchStep, tuple[str, ...]]]:
    found: list[tuple[LaunchStep, tuple[str, ...]]] = []
    for step in steps:
        match step:
            case LaunchStep():
                found.append((step, indices))
            case LoopStep():
                found += launches(step.body, (*indices, step.index))
            case IfStep():
                found += launches(step.then + step.orelse, indices)
    return found


def program(compiled: texpr.Compiled, values: dict[str, int]) -> tuple[str, list[str]]:
    """A program that prints what the header says of every launch and workspace, and what the manifest says of them."""
    manifest: Manifest = compiled.manifest
    free = [str(values[name]) for name in compiled.dynamic]
    lines, expected = [], []
    for step, indices in launches(manifest.host):
        name, values = step.symbol, {**values, **dict.fromkeys(indices, 3)}
        given = ", ".join([*free, *("3" for _ in indices), "grid"])
        lines.append(f"texpr_{name}_grid({given});")
        lines.append(f'printf("%s %d %d\\n", TEXPR_{name}_SYMBOL, TEXPR_{name}_BLOCK, TEXPR_{name}_SHARED_BYTES);')
        lines.append('printf("%lld %lld %lld\\n", (long long)grid[0], (long long)grid[1], (long long)grid[2]);')
        expected += [f"{name} {step.block[0]} {step.shared_bytes}"]
        expected += [" ".join(str(evaluate(extent, values)) for extent in step.grid)]
    sizes = re.findall(r"inline int64_t (texpr_\w+_(?:workspace_bytes|offset_\w+))\(", header_of(compiled))
    wanted = [manifest.workspace_bytes, *(tensor.offset_bytes for tensor in manifest.workspace)] if sizes else []
    for function, expr in zip(sizes, wanted, strict=True):
        lines.append(f'printf("%lld\\n", (long long){function}({", ".join(free)}));')
        expected.append(str(evaluate(expr, values)))
    include = f'#include <stdio.h>\n#include "{compiled.name}.h"\n#include "{compiled.name}.h"\n'
    return f"{include}int main(void) {{\nint64_t grid[3];\n{chr(10).join(lines)}\nreturn 0;\n}}\n", expected


@pytest.mark.gxx
@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize(
    ("text", "bound", "sizes"),
    [
        (PLAIN, {"N": 1000}, {"N": 1000}),
        (PLAIN, {}, {"N": 0}),
        (STEPS, {}, {"int64_t": 5000, "grid": 12, "restrict": 61}),
        (STEPS, {"grid": 4}, {"int64_t": 1, "grid": 4, "restrict": 9}),
        (NAMED, {}, {"texpr_ceildiv": 3, "texpr_max": 2, "CUresult": 70}),
    ],
)
def test_programs_that_use_all_of_the_header_link_and_say_what_the_manifest_says(
    tmp_path: Path, need_gcc: None, language: str, text: str, bound: dict[str, int], sizes: dict[str, int]
) -> None:
    compiler, flags = COMPILERS[language]
    compiled = texpr.parse(text).only.compile("cuda:sm_90a", sizes=bound)
    (tmp_path / f"{compiled.name}.h").write_text(header_of(compiled))
    source, expected = program(compiled, sizes)
    (tmp_path / "main.c").write_text(source)
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror"]
    command = [compiler, "-x", language, *flags, *warnings, "main.c", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == expected


@pytest.mark.gxx
def test_headers_of_several_kernels_stand_in_one_program(tmp_path: Path) -> None:
    """Of `a` and `A`, too: their names differ in nothing but case."""
    names = ("a", "A", "linux")
    lines = [f'#include "{k}_{name}.h"' for k, name in enumerate(names)] + ["int main() {", "int64_t grid[3];"]
    for k, name in enumerate(names):
        compiled = texpr.parse(PLAIN.replace("plain", name)).only.compile("cuda:sm_90a")
        (tmp_path / f"{k}_{name}.h").write_text(header_of(compiled))
        lines.append(f"texpr_{launches(compiled.manifest.host)[0][0].symbol}_grid(4000, grid);")
    (tmp_path / "main.cpp").write_text("\n".join([*lines, "return grid[0] == 4 ? 0 : 1;", "}", ""]))
    found = find_gxx()
    assert found is not None
    subprocess.run([found.path, "-Wall", "-Wextra", "-Werror", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_a_header_declares_nothing_that_it_does_not_define() -> None:
    for text in (PLAIN, STEPS):
        header = header_of(texpr.parse(text).only.compile("cuda:sm_90a"))
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        assert ";" in code
        assert ";" not in re.sub(r"\{[^{}]*\}", "", code)  # outside of functions that are written out


def test_the_comment_lists_the_launches_in_order_with_their_arguments() -> None:
    header = header_of(texpr.parse(STEPS).only.compile("cuda:sm_90a"))
    comment = header[: header.index("*/")]
    assert comment.index("for t from 0 to grid / 2 - 1:") < comment.index("steps_0(") < comment.index("steps_2(")
    assert "B: f16[grid, restrict], written, 16 bytes" in comment
    assert "float errno" in comment and "uint8_t b" in comment and "int64_t t" in comment


ENCODED = """#include <stdio.h>
#include <cuda.h>
#include "gemm.h"
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *array,
                                const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  printf("%d %u %d", (int)type, rank, array == (void *)map);
  for (cuuint32_t d = 0; d < rank; ++d) printf(" %d %u %u", (int)extents[d], box[d], steps[d]);
  printf(" %d %d %d %d %d\\n", (int)strides[0], (int)interleave, (int)swizzle, (int)promotion, (int)fill);
  return CUDA_SUCCESS;
}
int main(void) {
  CUtensorMap map;
  return texpr_gemm_0_A_box(&map, &map) || texpr_gemm_0_C_box(&map, &map);
}
"""


@pytest.mark.gxx
@pytest.mark.nvcc
@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_launcher_in_c_encodes_tensor_maps_by_the_header(tmp_path: Path, language: str) -> None:
    made = build_mapped(gemm(Shape(136, 264, 72, 2)))
    (tmp_path / "gemm.h").write_bytes(made.result("emit").files["gemm.h"])
    source, wanted = tmp_path / "main.c", [(72, 64, 136, 128, 144), (264, 64, 136, 16, 528)]
    source.write_text(
        ENCODED if language == "c" else ENCODED.replace("CUresult cuTensor", 'extern "C" CUresult cuTensor')
    )
    command = [find_nvcc().path, "-x", language, "-Xcompiler", "-Wall,-Wextra,-Werror", "-cudart", "none", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "main")], check=True)
    out = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == [f"9 2 1 {a} {b} 1 {c} {d} 1 {s} 0 3 2 0" for a, b, c, d, s in wanted]


def test_the_header_says_how_words_begin_and_how_launches_are_made() -> None:
    text = build_mapped(ticket_sum(2, 2, 3)).result("emit").files["hand.h"].decode()
    assert " *   tickets: words of 32 bits, zeros, which each call leaves to the next one on its stream\n" in text
    assert "texpr_hand_words_tickets_bytes(int64_t N) {\n  (void)N;\n  return 4;\n}" in text
    text = build_mapped(GRAPHS["overlapping"].program).result("emit").files["hand.h"].decode()
    assert "may begin before the one above is over: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION" in text
    text = build_mapped(cluster_softmax(2, 1, 1)).result("emit").files["hand.h"].decode()
    assert " *     in clusters of 2 blocks, as the kernel itself says\n" in text
