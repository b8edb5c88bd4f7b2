"""Compiled kernels as functions of tasks: accesses from manifests, arguments checked when submitted, versions."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import texpr
from texpr.codegen.manifest import Manifest, Parameter
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.engine import Engine
from texpr.runtime.tasks.functions import FunctionDefinition
from texpr.runtime.tasks.permissions import may_accumulate, may_read, read, read_write, write
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.tensors import Block, Tensor

MATMUL = """
kernel matmul(A: f64[M, K], B: f64[K, N], C: f64[M, N]) {
    par M i, N j { seq K k { C[i, j] += A[i, k] * B[k, j] } }
}
"""


@pytest.fixture(scope="module")
def matmul() -> texpr.Kernel:
    return texpr.parse(MATMUL).only


@contextmanager
def refused(code: str, said: str) -> Iterator[None]:
    with pytest.raises(texpr.TExprError) as caught:
        yield
    [told] = caught.value.diagnostics
    assert told.code == code and re.search(said, str(told)), str(told)


class Kernel:
    """What a compiled kernel is to the runtime: a manifest, and a call."""

    def __init__(self, modes: dict[str, str], body: Any, op: str = "add", target: str = "cpu", **fields: Any) -> None:
        kinds = {name: mode if mode != "scalar" else "read" for name, mode in modes.items()}
        parameters = tuple(
            Parameter(
                name=name,
                dtype="f64",
                shape=() if modes[name] == "scalar" else ("N",),
                strides=() if modes[name] == "scalar" else (1,),
                mode=kind,
                op=op if kind == "accumulate" else None,
                scalar=modes[name] == "scalar",
            )
            for name, kind in kinds.items()
        )
        given = {"sizes": {"N": None}, "facts": (), **fields}
        self.manifest = Manifest(
            name="kernel", target=target, arch="", loadable=False, parameters=parameters, workspace_bytes=0,
            workspace=(), host=(), files={}, texpr="", **given,
        )  # fmt: skip
        self.body = body

    def __call__(self, *arrays: Any, **sizes: int) -> None:
        self.body(*arrays, **sizes)


def axpy(x: Any, y: Any, alpha: float) -> None:
    y += alpha * x


def vector(name: str, *values: float, **options: Any) -> Tensor:
    return Tensor(name, (tiled(len(values), 2),), data=numpy.array(values, float), **options)


AXPY = Kernel({"x": "read", "y": "accumulate", "alpha": "scalar"}, axpy)


@pytest.fixture(params=["home", "away"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options: dict[str, dict[str, Any]] = {
        "home": {"workers": 2},
        "away": {"workers": {"fast": 2}, "memories": {"fast": 3 * 8 * 8}},
    }
    with Engine(**options[request.param], debug=True) as made:
        yield made


def test_a_compiled_kernel_runs_on_blocks_of_several_tensors(engine: Engine, matmul: texpr.Kernel) -> None:
    kernel = matmul.compile("cpu")
    rng = numpy.random.default_rng(0)
    a, b = rng.integers(-4, 5, (5, 4)).astype(float), rng.integers(-4, 5, (4, 3)).astype(float)
    m, k, n = tiled(5, 2), tiled(4, 2), tiled(3, 2)
    x, y = Tensor("A", (m, k), data=a, packed=True), Tensor("B", (k, n), data=b, packed=True)
    z = Tensor("C", (m, n))
    for i in range(3):
        for j in range(2):
            for step in range(2):
                task = engine.submit(kernel, x[i, step], B=y[step, j], C=z[i, j])
    assert str(task) == "task matmul#11"
    assert numpy.array_equal(engine.array(z), a @ b)


@pytest.mark.parametrize(
    ("mode", "op", "begins"),
    [
        ("read", "add", "read(y[0])"),
        ("write", "add", "write(y[0])"),
        ("read-write", "add", "read_write(y[0])"),
        ("accumulate", "add", "accumulate(y[0])"),
        ("accumulate", "max", "read_write(y[0])"),
    ],
)
def test_accesses_follow_from_the_modes_of_parameters(mode: str, op: str, begins: str) -> None:
    seen: list[str] = []

    def outer(context: TaskContext) -> None:
        task = context.submit(Kernel({"y": mode}, lambda y: None, op), y[0])
        seen.extend(map(str, task.grants.accesses))

    y = vector("y", 1, 2)
    with Engine(1) as engine:
        engine.submit(outer, *({"read": [may_read(y)]}.get(mode) or [read_write(y[0])]))
    assert seen == [begins]


def test_additions_of_kernels_run_in_any_order_and_other_kernels_in_theirs(engine: Engine) -> None:
    x, y = vector("x", 1, 2, 3, 4), vector("y", 0, 0, 0, 0)
    double = Kernel({"y": "read-write"}, lambda y: numpy.multiply(y, 2, out=y))
    for block, other in zip(x.blocks(), y.blocks(), strict=True):
        for _ in range(3):
            engine.submit(AXPY, block, other, 2.0)
        engine.submit(double, other)
        engine.submit(AXPY, y=other, x=block, alpha=1)
    assert engine.array(y).tolist() == [13, 26, 39, 52]


def test_a_zero_block_is_zeros_to_a_kernel(engine: Engine) -> None:
    seen = []

    def body(x: Any, y: Any) -> None:
        seen.append((x.tolist(), x.flags.c_contiguous and x.strides == (8,)))

    x = Tensor("x", (tiled(4, 2),), zero=lambda i: i == 0)
    y = vector("y", 1, 2)
    engine.submit(Kernel({"x": "read", "y": "write"}, body), x[0], y[0])
    engine.wait()
    assert seen == [([0.0, 0.0], True)]
    with refused("E0709", r"task kernel#1: parameter y is written, and x\[0\] is a zero block \(x is y"):
        engine.submit(Kernel({"x": "read", "y": "write"}, body), y[0], x[0])


def test_sizes_that_no_block_tells_go_by_name(engine: Engine) -> None:
    seen = []
    sized = Kernel({"x": "read"}, lambda x, **sizes: seen.append(sizes), sizes={"N": None, "K": None})
    engine.submit(sized, vector("x", 1, 2)[0], K=3)
    engine.wait()
    assert seen == [{"K": 3}]


def test_declared_permissions_bound_what_a_kernel_does(engine: Engine) -> None:
    x, y = vector("x", 1, 2), vector("y", 0, 0)
    with refused("E0704", r"task kernel#0: `accumulate` of y\[0\], but the task may only read it"):
        engine.submit(AXPY, may_read(y), x[0], y[0], 1.0)
    with refused(
        "E0704", r"task kernel#0: the kernel needs `accumulate` of y\[0\], its y, .* declares `write\(y\[0\]\)`"
    ):
        engine.submit(AXPY, read(x[0]), write(y[0]), x[0], y[0], 1.0)
    engine.submit(AXPY, may_accumulate(y), read(x[0]), x[0], y[0], 1.0)
    engine.submit(AXPY, read_write(y[0]), x[0], y[0], 1.0)
    assert engine.array(y).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("code", "said", "given"),
    [
        ("E0601", r"kernel: missing arguments: y, alpha", lambda x, y, short, whole: (x,)),
        ("E0601", r"y has shape \(1,\) and needs \(2,\) \(x is x\[0\], y is s\[1\]\)", lambda x, y, s, w: (x, s, 1.0)),
        ("E0601", r"alpha is a scalar of type f64, not a str", lambda x, y, s, w: (x, y, "much")),
        ("E0601", r"alpha is a scalar of type f64, not a Block", lambda x, y, s, w: (x, y, y)),
        ("E0703", r"parameter y takes a block of a tensor, not w\[0:1\]", lambda x, y, s, w: (x, w.tensor[0:1], 1.0)),
        ("E0703", r"parameter y takes a block of a tensor, not a ndarray", lambda x, y, s, w: (x, numpy.ones(2), 1.0)),
        ("E0601", r"parameter y has type f64, not float32", lambda x, y, s, w: (x, w, 1.0)),
        ("E0603", r"task kernel#0: x\[0\] is both x and y, and the kernel writes one", lambda x, y, s, w: (x, x, 1.0)),
    ],
)  # fmt: skip
def test_arguments_that_a_kernel_does_not_take_are_refused_at_submission(code: str, said: str, given: Any) -> None:
    x, y, short = vector("x", 1, 2), vector("y", 0, 0), vector("s", 1, 2, 3)
    other = Tensor("w", (tiled(2, 2),), dtype="f32")
    with Engine(1) as engine, refused(code, f"task kernel#0.*{said}" if "task" not in said else said):
        engine.submit(AXPY, *given(x[0], y[0], short[1], other[0]))


def test_conditions_on_sizes_are_checked_at_submission() -> None:
    even = Kernel({"x": "read"}, lambda x: None, facts=(["==", ["%", "N", 2], 0],))
    with Engine(1) as engine:
        engine.submit(even, vector("x", 1, 2)[0])
        with refused("E0602", r"task kernel#1: kernel: `where N % 2 == 0` does not hold for N = 1 \(x is x\[0\]\)"):
            engine.submit(even, vector("x", 1)[0])


def test_what_a_kernel_refuses_at_its_call_names_task_and_blocks(matmul: texpr.Kernel) -> None:
    kernel = matmul.compile("cpu")
    data = numpy.ones((4, 4))
    a, c = Tensor("A", (tiled(4, 2),) * 2, data=data), Tensor("C", (tiled(4, 2),) * 2)
    with Engine(1) as engine:
        task = engine.submit(kernel, a[0, 0], a[0, 1], c[0, 0])
        with refused("E0715", r"task matmul#0: matmul: A has strides \(4, 1\) and needs \(2, 1\).*A is A\[0, 0\]"):
            engine.wait()
    assert isinstance(task.exception(), texpr.TExprError) and "packed=True" in str(task.exception())


def test_a_definition_runs_the_entry_of_its_worker() -> None:
    seen: list[Any] = []

    def python(context: TaskContext, x: Block, y: Block, alpha: float) -> None:
        seen.append((context.kind, str(x), str(y), alpha))
        context.get_buf(y).commit()

    cuda = Kernel({"x": "read", "y": "accumulate", "alpha": "scalar"}, axpy, target="cuda:sm_90a")
    both = FunctionDefinition(cpu=python, cuda=cuda, name="both")
    with Engine(1) as engine:
        task = engine.submit(both, vector("x", 1, 2)[0], alpha=2, y=vector("y", 1, 2)[0])
        assert str(task) == "task both#0"
        with refused("E0716", r"task kernel#1 has an entry for `cuda`, and the engine has workers for `cpu`"):
            engine.submit(cuda, vector("x", 1, 2)[0], vector("y", 1, 2)[0], 1.0)
        engine.wait()
    assert seen == [("cpu", "x[0]", "y[0]", 2.0)]


def test_versions_of_one_function_agree() -> None:
    cuda = Kernel({"x": "read", "y": "write", "alpha": "scalar"}, axpy, target="cuda:sm_90a")
    with refused("E0703", "kernels kernel and kernel are entries of one function, and have not the same parameters"):
        FunctionDefinition(cpu=AXPY, cuda=cuda)
    with refused("E0703", "the cuda entry is kernel kernel, which is compiled for cpu"):
        FunctionDefinition(cuda=AXPY)
    with refused("E0703", "the cpu entry of a function is a int, no function"):
        FunctionDefinition(cpu=3)  # type: ignore[arg-type]  # on purpose
    with refused("E0703", "has an entry for"):
        FunctionDefinition()


def test_only_kernels_take_blocks_and_names(matmul: texpr.Kernel) -> None:
    def plain(context: TaskContext) -> None:
        pass

    block = vector("x", 1, 2)[0]
    with Engine(1) as engine:
        with refused("E0703", "task plain#0 is submitted with `alpha=`"):
            engine.submit(plain, alpha=2)
        with refused("E0703", "kernel matmul is not compiled"):
            engine.submit(matmul, block, block, block)


def test_kernels_run_without_the_compiler() -> None:
    code = (
        "import sys\n"
        "for name in ('lark', 'islpy', 'z3', 'numba', 'llvmlite'): sys.modules[name] = None\n"
        "from texpr.codegen.manifest import Manifest, Parameter\n"
        "from texpr.tasks import Engine, Tensor, tiled\n"
        "class Fill:\n"
        "    x = Parameter(name='x', dtype='f64', shape=('N',), strides=(1,), mode='write')\n"
        "    manifest = Manifest(name='fill', target='cpu', arch='', loadable=False, workspace_bytes=0, workspace=(),\n"
        "        host=(), files={}, texpr='', sizes={'N': None}, facts=(), parameters=(x,))\n"
        "    def __call__(self, x): x[...] = 7\n"
        "x = Tensor('x', (tiled(3, 3),))\n"
        "with Engine(1) as engine:\n"
        "    engine.submit(Fill(), x[0])\n"
        "    print(engine.array(x).tolist(), 'texpr.polyhedral' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[7.0, 7.0, 7.0] False"
