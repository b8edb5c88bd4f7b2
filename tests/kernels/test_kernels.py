"""Every program of this folder gives the interpreter's result on every backend; the refused ones are refused."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from differential import Reference, copied, random_arguments, reference

import texpr
from texpr.grammar.interpret.stage import interpret

HERE = Path(__file__).resolve().parent
CASES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
REFUSED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "refused" / "cases.toml").read_text(encoding="utf-8"))


@cache
def kernel_of(name: str) -> texpr.Kernel:
    return texpr.load(HERE / f"{name}.tex").only


@cache
def reference_of(name: str, index: int) -> Reference:
    sizes = CASES[name]["sizes"][index]
    values = random_arguments(kernel_of(name).core(sizes=sizes), sizes, 1000 + index)
    return reference(kernel_of(name), sizes, values)


def variants() -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """(kernel, index of its sizes, sizes left free): every size bound, and the dynamic ones free."""
    for name, case in CASES.items():
        for index in range(len(case["sizes"])):
            yield name, index, ()
            if "dynamic" in case:
                yield name, index, tuple(case["dynamic"])


VARIANTS = list(variants())


def label(variant: tuple[str, int, tuple[str, ...]]) -> str:
    name, index, free = variant
    return f"{name}-{index}{'-dynamic' if free else ''}"


IDS = [label(variant) for variant in VARIANTS]


def is_turn(variant: tuple[str, int, tuple[str, ...]], turn: int) -> bool:
    """Whether it is the turn of one of three to do what one of them does; a variant's name says which."""
    return crc32(label(variant).encode()) % 3 == turn


def in_turn(turn: int) -> list[tuple[str, int, tuple[str, ...]]]:
    """What one of three backends runs: the first sizes bound, and all sizes left free; the other sizes bound are run by
    one of the three."""
    return [v for v in VARIANTS if v[1] == 0 or v[2] or is_turn(v, turn)]


def on_cpu() -> list[tuple[str, int, tuple[str, ...]]]:
    """Of kernels that run with free sizes the CPU has the first sizes bound by turns, too: Numba takes long."""
    return [v for v in in_turn(0) if v[2] or "dynamic" not in CASES[v[0]] or is_turn(v, 0)]


def halved(variants: list[tuple[str, int, tuple[str, ...]]], half: int) -> list[Any]:
    """Of one of the two backends that compile: one has half of the kernels, the other one those that are left. With
    `--long` each has all of them."""
    return [
        pytest.param(*v, id=label(v), marks=[pytest.mark.long] if crc32(v[0].encode()) % 2 != half else [])
        for v in variants
    ]


def right(ref: Reference, got: Any) -> None:
    found = ref.compare(got)
    assert found and not any(c.wrong for c in found), found


@cache
def compiled(
    name: str, target: str, bound: tuple[tuple[str, int], ...], stop_after: str | None = None
) -> texpr.Compiled:
    return kernel_of(name).compile(target, sizes=dict(bound), stop_after=stop_after)


def compiled_variant(
    name: str, index: int, free: tuple[str, ...], target: str, stop_after: str | None = None
) -> texpr.Compiled:
    sizes = CASES[name]["sizes"][index]
    bound = tuple(sorted((key, value) for key, value in sizes.items() if key not in free))
    return compiled(name, target, bound, stop_after)


def run(name: str, index: int, free: tuple[str, ...], target: str) -> None:
    ref = reference_of(name, index)
    values = copied(ref.values)
    made = compiled_variant(name, index, free, target)
    made(**values, **{key: ref.sizes[key] for key in made.dynamic})
    right(ref, values)


@pytest.mark.parametrize(("name", "index", "free"), halved(on_cpu(), 0))
@pytest.mark.sampled(4)
def test_cpu_computes_what_the_interpreter_says(
    name: str, index: int, free: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """With free sizes all parts of a launch are run, by several threads for a third of the kernels, and else by one."""
    if free:
        request.getfixturevalue("every_core" if is_turn((name, 0, free), 0) else "every_part")
    run(name, index, free, "cpu")


@pytest.mark.gxx
@pytest.mark.parametrize(("name", "index", "free"), halved(in_turn(1), 1))
@pytest.mark.sampled(4)
def test_cuda_host_computes_what_the_interpreter_says(
    name: str, index: int, free: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    if not free and index == 0 and is_turn((name, index, free), 1):
        request.getfixturevalue("optimised")
    run(name, index, free, "cuda-host:sm_90a")


@pytest.mark.parametrize(("name", "index", "free"), in_turn(2), ids=map(label, in_turn(2)))
def test_the_mapping_computes_what_the_interpreter_says(name: str, index: int, free: tuple[str, ...]) -> None:
    from texpr.polyhedral.simulate.stage import simulate

    ref = reference_of(name, index)
    made = compiled_variant(name, index, free, "cuda:sm_90a", "map")
    sizes = {key: ref.sizes[key] for key in free}
    right(ref, simulate(made.mapping.program, copied(ref.values), seed=index, sizes=sizes))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_exact_mode_finds_nothing_wrong(name: str) -> None:
    ref = reference_of(name, len(CASES[name]["sizes"]) - 1)
    core = kernel_of(name).core(sizes=ref.sizes)
    right(ref, interpret(core, copied(ref.values), mode="exact", seed=3, sizes=ref.sizes).outputs)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("arch", "first", "step"),
    [
        ("sm_90a", 1, 4),
        ("sm_80", 0, 4),
        ("sm_100a", 3, 4),
        ("sm_120a", 2, 4),
        pytest.param("sm_90a", 0, 1, marks=pytest.mark.long),
    ],
)
@pytest.mark.sampled(3)
def test_emitted_cuda_compiles_without_warnings(
    arch: str, first: int, step: int, need_nvcc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels as one translation unit: symbols are unique, and every warning is an error. The architectures share the
    kernels, and compile them in a hurry; sm_90a has all of them with `--long`."""
    from texpr.codegen import toolchain
    from texpr.codegen.toolchain import compile_cubin

    if arch != "sm_90a":
        flags = [word for flag in toolchain.NVCC_FLAGS for word in (("-Ofc", "max") if flag == "-O3" else (flag,))]
        monkeypatch.setattr(toolchain, "NVCC_FLAGS", tuple(flags))
    sources = []
    for name, case in list(CASES.items())[first::step]:
        if int(arch[3:].rstrip("a")) < case.get("least_sm", 0):
            continue
        free = tuple(case.get("dynamic", ()))
        sources.append(compiled_variant(name, 0, free, f"cuda:{arch}").source)
    assert compile_cubin("\n".join(sources), arch, werror=True)


@pytest.mark.parametrize("name", REFUSED)
def test_illegal_programs_are_refused_with_the_least_witness(name: str) -> None:
    case = REFUSED[name]
    kernel = texpr.load(HERE / "refused" / f"{name}.tex").only
    with pytest.raises(texpr.TExprError) as caught:
        kernel.compile("cpu", sizes=case["sizes"])
    assert [d.code for d in caught.value.diagnostics] == case["codes"]
    if "witness" in case:
        witness = caught.value.diagnostics[0].witness
        assert {key: witness[key] for key in case["witness"]} == case["witness"]
