"""`texpr sass`: machine code under the lines of the program, and what must and must not be in that of our kernels."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import texpr
from texpr.codegen.elf import sections
from texpr.codegen.line_table import Line, LineTable, line_tables
from texpr.codegen.sass import LOCAL, Listing, Loop, listings
from texpr.codegen.toolchain import disassembled
from texpr.execute import cubin_of, placed_cubin_of
from texpr.grammar.diagnostics import TExprError

ROOT = Path(__file__).resolve().parents[2]
MATMUL = {"M": 2048, "N": 2048, "K": 2048}
Command = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.nvcc, pytest.mark.nvdisasm]


def listing_of(name: str, target: str, **sizes: int) -> tuple[Listing, texpr.Compiled]:
    """The code of an example's only kernel."""
    compiled = texpr.load(ROOT / "examples" / f"{name}.tex").only.compile(target, sizes=sizes)
    cubin = placed_cubin_of(compiled.build)
    (found,) = listings(disassembled(cubin), line_tables(cubin))
    return found, compiled


def names(found: Listing, group: str, loop: Loop | None = None) -> set[str]:
    return {each.name for each in found.of(group, loop)}


def test_a_product_on_hopper_is_made_of_wgmma_and_boxes_and_waits_for_nothing_else() -> None:
    found, _ = listing_of("matmul", "cuda:sm_90a", **MATMUL)
    loop = found.main_loop()
    assert loop is not None
    assert names(found, "tensor cores", loop) == {"HGMMA"} and not found.of("global memory", loop)
    assert names(found, "global memory") == {"UTMALDG", "UTMASTG"}, "all of A, B and C moves as boxes"
    assert not found.of(LOCAL)
    working = [own for own in found.loops() if found.of("tensor cores", own) or found.of("global memory", own)]
    fences = {each.opcode for own in working for each in found.within(own) if each.name == "MEMBAR"}
    assert not any("GPU" in opcode or "SYS" in opcode for opcode in fences)


def test_a_product_on_ampere_is_made_of_mma_sync_and_a_ring_of_asynchronous_copies() -> None:
    found, _ = listing_of("matmul", "cuda:sm_80", **MATMUL)
    loop = found.main_loop()
    assert loop is not None
    assert names(found, "tensor cores", loop) == {"HMMA"}
    assert names(found, "global memory", loop) == {"LDGSTS"} and "LDSM" in names(found, "shared memory", loop)
    assert not found.of(LOCAL)


@pytest.mark.parametrize("target", ["cuda:sm_89", "cuda:sm_120a"])
def test_a_product_of_f8_is_made_of_mma_sync_where_there_are_such_tensor_cores(target: str) -> None:
    """(Of sm_90 and sm_100 the assembler makes products of f16 of it.)"""
    body = "par M i, N j { C[i, j] = sum K k { A[i, k] * B[j, k] } }"
    text = f"kernel g(A: f8e4m3[M, K], B: f8e5m2[N, K], C: f32[M, N]) {{ {body} }}"
    cubin = placed_cubin_of(texpr.parse(text).only.compile(target, sizes=MATMUL).build)
    (found,) = listings(disassembled(cubin), line_tables(cubin))
    loop = found.main_loop()
    assert loop is not None
    opcodes = {each.opcode for each in found.of("tensor cores", loop)}
    assert opcodes == {"QMMA.16832.F32.E4M3.E5M2"} and "FADD" in names(found, "arithmetic", loop)
    assert names(found, "global memory", loop) == {"LDGSTS"} and "LDSM" in names(found, "shared memory", loop)
    assert not found.of(LOCAL)


def test_a_row_of_softmax_is_read_once_in_runs_of_16_bytes() -> None:
    found, _ = listing_of("softmax", "cuda:sm_90a", M=4096, N=4096)
    moved = [each.opcode for each in found.of("global memory")]
    assert len(moved) == 4 and all(".128" in opcode for opcode in moved)
    assert not found.of(LOCAL)


def test_bytes_and_bf16_are_converted_at_the_rate_of_arithmetic() -> None:
    """I2F and F2F run at a quarter of it, and nothing is rounded bit by bit."""
    text = """kernel k(W: i8[N], U: u8[N], s: f32[N], Y: bf16[N]) where N % 64 == 0 {
        par N i { Y[i] = bf16(f32(bf16(f32(W[i]) * s[i])) * f32(bf16(U[i]))) }
    }"""
    cubin = placed_cubin_of(texpr.parse(text).only.compile("cuda:sm_90a", sizes={"N": 1 << 20}).build)
    (found,) = listings(disassembled(cubin), line_tables(cubin))
    opcodes = {each.name for each in found.instructions}
    assert "F2FP" in opcodes and "PRMT" in opcodes and not opcodes & {"I2F", "F2F", "SEL"}


def test_the_text_that_tells_of_places_makes_the_same_code() -> None:
    _, compiled = listing_of("softmax", "cuda:sm_90a", M=64, N=100)
    cubins = (cubin_of(compiled.build), placed_cubin_of(compiled.build))
    plain, placed = (
        cubin[own.offset :][: own.size] for cubin in cubins for own in [sections(cubin)[".text.softmax_0"]]
    )
    assert plain == placed and cubins[0] != cubins[1]


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100a"])
def test_every_line_that_is_named_is_one_of_a_statement(target: str) -> None:
    found, compiled = listing_of("softmax", target, M=64, N=1000)
    text = (ROOT / "examples" / "softmax.tex").read_text().splitlines()
    named = {each.line.number for each in found.instructions if each.line and each.line.file == "softmax.tex"}
    statements = {k for k, line in enumerate(text, 1) if " = " in line and "kernel" not in line}
    assert named == statements
    loads = {each.line for each in found.instructions if each.name == "LDG"}
    assert loads <= {Line("softmax.tex", k) for k in statements}
    assert compiled.name == "softmax"


def told(*instructions: str) -> str:
    """What nvdisasm would say of a kernel `k`."""
    rows = []
    for each in instructions:
        *predicate, opcode, operands = each.split(" ", 2) if each.startswith("@") else each.split(" ", 1)
        rows.append({"opcode": opcode, "operands": operands} | ({"predicate": predicate[0]} if predicate else {}))
    return json.dumps([{}, [{"function-name": "k", "sass-instructions": rows}]])


def test_the_main_loop_is_the_innermost_one_with_the_most_work_and_has_its_waits_within() -> None:
    (found,) = listings(
        told(
            "MOV R1,R2",  # 00
            "LDG.E R4,desc[R2]",  # 10: a loop of loads
            "@P0 BRA 0x10",  # 20
            "SYNCS.PHASECHK P0,[UR4]",  # 30: the loop with tensor cores, which waits in a loop
            "@!P0 BRA 0x30",  # 40
            "HMMA.16816.F32 R4,R8,R12,R4",  # 50
            "@P1 BRA P2,0x30",  # 60
            "@P3 BRA 0x0",  # 70: around both
            "BRA 0x80",  # 80: the end
        ),
        {},
    )
    assert found.loops() == (Loop(0x0, 0x70), Loop(0x10, 0x20), Loop(0x30, 0x60))
    assert found.main_loop() == Loop(0x30, 0x60)
    assert [each.address for each in found.within(found.main_loop())] == [0x30, 0x40, 0x50, 0x60]
    assert str(found.instructions[2]) == "@P0 BRA 0x10" and found.instructions[0].line is None
    assert found.counted()["BRA"] == 5 and found.of("waits")[0].name == "SYNCS"


def test_a_kernel_without_a_loop_has_no_main_loop() -> None:
    (found,) = listings(told("LDG.E R4,desc[R2]", "EXIT ", "BRA 0x20"), {"k": LineTable(48, (0,), (Line("k.tex", 3),))})
    assert found.main_loop() is None and found.within(None) == found.instructions
    assert {each.line for each in found.instructions} == {Line("k.tex", 3)}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[1, 2]", '[{}, [{"function-name": "k"}]]', "[{}, 7]", "nvdisasm: no"]
)
def test_another_text_than_that_of_nvdisasm_is_refused(text: str) -> None:
    with pytest.raises(TExprError) as caught:
        listings(text, {})
    assert [d.code for d in caught.value.diagnostics] == ["E0606"]


def test_the_command_prints_the_main_loop_under_the_lines_of_the_program(command: Command) -> None:
    given = ("sass", ROOT / "examples/matmul.tex", *(f"-D{name}={size}" for name, size in MATMUL.items()))
    code, out, _ = command(*given)
    assert code == 0
    head, counts, *rest = out.splitlines()
    assert head.startswith("matmul_0: ") and "in the main loop" in head and head.endswith("; no local memory")
    assert counts.split() == ["all", "loop"] and any("tensor cores: HGMMA.64x" in line for line in rest)
    assert "matmul.tex:4  C[i, j] = sum K k { A[i, k] * B[k, j] }" in rest
    code, whole, _ = command(*given, "--all")
    assert code == 0 and "UTMALDG" in whole.split("\n\n")[1] and len(whole) > len(out)
    code, short, _ = command(*given, "--work")
    assert code == 0 and len(short) < len(out) and "HGMMA" in short.split("\n\n")[1] and " … " in short
    parts = [part.split("\n\n")[1].splitlines() for part in (out, short)]
    made, kept = (sum(line.startswith("  ") and " … " not in line for line in part) for part in parts)
    assert made == kept + sum(int(line.split("…")[1]) for line in parts[1] if " … " in line), "none is left untold"
    code, data, _ = command(*given, "--json")
    (kernel,) = json.loads(data)["kernels"]
    assert code == 0 and kernel["name"] == "matmul_0" and kernel["main_loop"] in kernel["loops"]
    assert {"address", "predicate", "opcode", "operands", "line"} == kernel["instructions"][0].keys()


def test_a_cpu_has_no_machine_code_to_show(command: Command) -> None:
    code, _, said = command("sass", ROOT / "examples/matmul.tex", "-t", "cpu")
    assert code == 2 and "the target is cuda" in said


def test_without_nvdisasm_or_with_a_broken_one_the_command_says_so(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("sass", ROOT / "examples/softmax.tex", "-DM=8", "-DN=8")
    assert command(*given)[0] == 0, "the cubin is in the cache from here on"
    monkeypatch.setattr("texpr.codegen.toolchain._tool_path", lambda name: None)
    code, _, said = command(*given)
    assert code == 3 and "error[E0503]: nvdisasm was not found" in said and "pip install" in said
    broken = tmp_path / "nvdisasm"
    broken.write_text("#!/bin/sh\necho 'unknown option -json' >&2\nexit 4\n")
    broken.chmod(stat.S_IRWXU)
    monkeypatch.setattr("texpr.codegen.toolchain._tool_path", lambda name: str(broken))
    code, _, said = command(*given)
    assert code == 3 and "ended with exit code 4" in said and "unknown option -json" in said
