"""Whether a launch on the CPU wakes the other cores: decided by counted operations, at emission or at the call."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.codegen.cpu.work import SERIAL_OPERATIONS, operations
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr
from texpr.grammar.index.expr import apply
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import launches

pytestmark = pytest.mark.usefixtures("threads")  # who shares out what is what these tests are about

VADD = "kernel vadd(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }"
GELU = "kernel gelu_all(A: f32[N], C: f32[N]) { par N i { C[i] = 0.5 * A[i] * (1.0 + erf(A[i])) } }"
TOTAL = "kernel total(A: f32[N], s: f32[1]) { s[0] = 0.0; par N i { s[0] += A[i] } }"
GATHER = "kernel gather(A: f32[N], idx: i32[N], C: f32[N]) { par N i { C[i] = A[idx[i]] } }"
MATMUL = """kernel mm(A: f32[M, K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""
TRIANGLE = "kernel below(A: f32[N, N], C: f32[N]) { par N i { C[i] = sum i + 1 j { A[i, j] } } }"
UPPER = "kernel above(A: f32[N, N], C: f32[N]) { par N i { C[i] = sum N - i j { A[i, N - 1 - j] } } }"
BANDED = """kernel banded(A: f32[N, N], C: f32[N]) {
    par N i { C[i] = 0.0; seq min(8, N - i) j { if i % 3 == 0 { C[i] += A[i, i + j] } else { C[i] -= A[i, i + j] } } }
}"""
STEPS = """kernel steps(A: f32[N], T: f32[K]) where N >= 1 {
    seq K t { par N - t i { A[i] = A[i] * 0.5 }; T[t] = A[0] }
}"""


def source_of(text: str, **sizes: int) -> str:
    return texpr.parse(text).only.compile("cpu", sizes=sizes).source


def wakes(source: str, **values: int) -> list[str]:
    """The launches of an emitted module that call `prange` for these sizes. The functions around the parts run as
    Python, with arrays of any address and parts that do nothing."""
    woken: list[str] = []
    running = SimpleNamespace(name="")

    def prange(count: int) -> range:
        woken.append(running.name)
        return range(count)

    scope: dict[str, Any] = {
        "np": SimpleNamespace(**{**vars(np), "empty": np.zeros}),  # parts that do nothing leave nothing
        "prange": prange,
        "finding": lambda *found: found,
        "ceildiv": lambda a, b: -(-a // b),
    }
    functions = re.findall(r"@njit.*\n(def (\w+)\((.*)\):\n(?:(?: {4}.*)?\n)+)", source)
    for text, name, _ in functions:
        exec(text, scope)
        if name.endswith("_part"):
            scope[name] = lambda *arguments: (0, 0, 0)  # nothing was found
    for text, name, parameters in functions:
        if "prange" in text:
            running.name = name
            scope[name](*(values.get(p.strip(), _Anything()) for p in parameters.split(",") if p))
    return woken


class _Anything:
    def __getitem__(self, index: int) -> float:
        return 0.0

    def __setitem__(self, index: int, value: float) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "few", "many"),
    [
        (VADD, {"N": 10_000}, {"N": 1 << 18}),
        (VADD, {"N": 0}, {"N": SERIAL_OPERATIONS}),
        (GELU, {"N": 10_000}, {"N": 1 << 16}),
        (TOTAL, {"N": 10_000}, {"N": 1 << 19}),
        (GATHER, {"N": 10_000}, {"N": 1 << 19}),
        (MATMUL, {"M": 30, "N": 30, "K": 30}, {"M": 300, "N": 64, "K": 64}),
        (MATMUL, {"M": 100, "N": 1, "K": 1 << 18}, {"M": 300, "N": 1, "K": 1 << 10}),
        (TRIANGLE, {"N": 100}, {"N": 1000}),
        (UPPER, {"N": 100}, {"N": 1000}),
        (BANDED, {"N": 1000}, {"N": 100_000}),
    ],
)
def test_the_sizes_of_a_call_decide_whether_the_other_cores_are_woken(
    text: str, few: dict[str, int], many: dict[str, int]
) -> None:
    source = source_of(text)
    assert wakes(source, **few) == []
    assert len(wakes(source, **many)) == 1


def test_bound_sizes_decide_at_emission() -> None:
    assert "prange" not in source_of(VADD, N=100_000)
    large = source_of(VADD, N=1 << 18)
    assert "prange" in large and "operations" not in large
    assert "prange" not in source_of(MATMUL, M=32, N=32, K=32)
    assert "prange" in source_of(MATMUL, M=512, N=64, K=64)


def test_results_do_not_depend_on_who_runs_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(3).integers(-8, 9, 60_000).astype(np.float32)  # sums are exact in any order
    found = []
    for limit in (0, SERIAL_OPERATIONS):
        monkeypatch.setattr("texpr.codegen.cpu.launch.SERIAL_OPERATIONS", limit)
        kernel = texpr.parse(TOTAL).only.compile("cpu")
        assert bool(wakes(kernel.source, N=60_000)) == (limit == 0)
        out = np.zeros(1, np.float32)
        kernel(a, out)
        found.append(out[0])
    assert found[0] == found[1] == a.astype(np.float64).sum()


# ---- the count is never below what runs, and near it for loops that are boxes


def value(expr: IndexExpr, env: Mapping[str, int]) -> int:
    match expr:
        case IndexConst(value=constant):
            return constant
        case IndexBinary(op=op, left=left, right=right):
            return apply(op, value(left, env), value(right, env))
        case _:
            return env[expr.name]


def instances(block: Launch, sizes: Mapping[str, int]) -> int:
    """Statement instances of the core iteration that has most of them, as if guards held."""
    cores = [d for d in block.digits if d.place.name == "CORE"]
    choices: list[dict[str, int]] = [dict(sizes)]
    for digit in cores:
        choices = [env | {digit.name: n} for env in choices for n in range(max(value(digit.radix, env), 0))]
    return max((count(block.body, env) for env in choices), default=0)


def count(body: tuple[Node, ...], env: dict[str, int]) -> int:
    total = 0
    for node in body:
        match node:
            case Define(index=index, digits=digits):
                env = env | {index: sum(d.weight * env[d.name] for d in digits)}
            case Loop(index=index, extent=extent, body=inner):
                total += sum(count(inner, env | {index: n}) for n in range(value(extent, env)))
            case Guard(body=inner, orelse=orelse):
                total += count(inner + orelse, env)
            case Generic():
                total += 1
    return total


def blocks_of(text: str, **sizes: int) -> Iterator[Launch]:
    yield from launches(texpr.parse(text).only.compile("cpu", sizes=sizes).mapping.program.host)


@pytest.mark.parametrize("text", [VADD, TOTAL, MATMUL, TRIANGLE, UPPER, BANDED, STEPS])
def test_the_count_covers_all_that_runs(text: str) -> None:
    for block in blocks_of(text):
        each = operations(block)
        assert each is not None
        for size in (0, 1, 7, 20):
            env = {"M": size, "N": size, "K": 3, "t": 0} | dict.fromkeys(block.arguments, 0)
            assert instances(block, env) <= value(each, env)


def test_every_kernel_of_the_tests_is_counted() -> None:
    """At bound sizes all loops say how long they are, so that a number comes out."""
    folder = Path(__file__).resolve().parents[1] / "kernels"
    for name in ("atax", "softmax", "matmul_tiled", "two_mm"):
        kernel = texpr.load(folder / f"{name}.tex").only
        sizes = {size.name: 32 for size in kernel.core().sizes if size.default is None}
        for block in launches(kernel.compile("cpu", sizes=sizes).mapping.program.host):
            assert isinstance(operations(block), IndexConst)
