"""std/shuffle.tex: each function checks, its reference is what the instruction does, its text is PTX."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import texpr.grammar
from texpr.grammar import syntax
from texpr.grammar.check.stage import check
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.text.parser import parse_text

TEXT = (Path(texpr.grammar.__file__).parent / "std" / "shuffle.tex").read_text(encoding="utf-8")
FUNCTIONS = {item.name: item for item in parse_text(TEXT).items if isinstance(item, syntax.FnDef)}


def lanes_of(name: str, source: np.ndarray) -> np.ndarray:
    """The lane that each of the 32 lanes reads, as the PTX manual says it for a full warp."""
    lane = np.arange(32)
    if re.fullmatch(r"shfl_[fi]32", name):
        return source
    _, kind, distance, _ = name.split("_")
    match kind:
        case "xor":
            return lane ^ int(distance)
        case "up":
            return np.where(lane - int(distance) >= 0, lane - int(distance), lane)
        case "down":
            return np.where(lane + int(distance) < 32, lane + int(distance), lane)
        case _:
            raise AssertionError(f"{name} is no shuffle")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_s_reference_is_what_its_instruction_does(name: str) -> None:
    element = FUNCTIONS[name].params[0].type.element
    gathered = len(FUNCTIONS[name].params) == 3
    text = f"""import std.shuffle
    kernel k(A: {element}[32], S: i32[32], B: {element}[32]) {{
        {name}(A[0:32], {"S[0:32], " if gathered else ""}B[0:32])
    }}"""
    random = np.random.default_rng(3)
    values = random.integers(-1000, 1000, 32).astype(np.float32 if element == "f32" else np.int32)
    source = random.integers(0, 32, 32).astype(np.int32)
    (kernel,) = check(parse_text(text))
    result = interpret(kernel, {"A": values, "S": source, "B": np.zeros_like(values)}, mode="exact").outputs["B"]
    if name.startswith("redux"):
        expected = {"add": np.sum, "min": np.min, "max": np.max}[name.split("_")[1]](values) * np.ones_like(values)
    else:
        expected = values[lanes_of(name, source)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_instruction_says_what_the_name_says(name: str) -> None:
    texts = [
        node.text.text
        for loop in FUNCTIONS[name].body.body
        if isinstance(loop, syntax.Par)
        for node in loop.body.body
        if isinstance(node, syntax.Asm)
    ]
    assert len(texts) == 1
    if name.startswith("redux"):
        assert texts[0] == f"redux.sync.{name.split('_')[1]}.s32 %0, %1, 0xffffffff;"
    elif re.fullmatch(r"shfl_[fi]32", name):
        assert texts[0] == "shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
    else:
        _, kind, distance, _ = name.split("_")
        mode, clamp = {"xor": ("bfly", "0x1f"), "up": ("up", "0"), "down": ("down", "0x1f")}[kind]
        assert texts[0] == f"shfl.sync.{mode}.b32 %0, %1, {distance}, {clamp}, 0xffffffff;"


@pytest.mark.nvcc
def test_ptxas_takes_every_instruction(tmp_path: Path) -> None:
    from texpr.codegen.toolchain import find_nvcc

    found = find_nvcc()
    assert found is not None
    lines = ["__global__ void f(float* x, int* y) {", "float a = x[0], r; int i = y[0], s;"]
    for definition in FUNCTIONS.values():
        element = definition.params[0].type.element
        text = next(
            node.text.text
            for loop in definition.body.body
            if isinstance(loop, syntax.Par)
            for node in loop.body.body
            if isinstance(node, syntax.Asm)
        )
        result, given = ('"=f"(r)', '"f"(a)') if element == "f32" else ('"=r"(s)', '"r"(i)')
        lines.append(
            f'asm volatile("{text}" : {result} : {given}, "r"(i)); {"a += r" if element == "f32" else "i += s"};'
        )
    lines.append("x[threadIdx.x] = a; y[threadIdx.x] = i; }")
    source = tmp_path / "f.cu"
    source.write_text("\n".join(lines))
    command = [found.path, "-arch=sm_80", "-cubin", "-o", str(tmp_path / "f.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
