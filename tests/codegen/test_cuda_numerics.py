"""Every operator of the language through the emitted text: on the CPU against the interpreter, for every type; the
same text compiles for every architecture."""

import numpy as np
import pytest

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.toolchain import compile_cubin, compile_host
from texpr.grammar import ast, numerics
from texpr.grammar.ast import AccOp, Fn
from texpr.grammar.types import BOOL, ELEMENT_TYPES, F32, F64, I32, I64, U8, U32, compute_type
from texpr.polyhedral.target import parse_target

TARGET = parse_target("cuda-host:sm_90a")
UNARY_FLOAT = (
    "neg",
    "abs",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "normcdf",
    "sin",
    "cos",
)
ROUNDING = ("floor", "ceil", "round")
BINARY_FLOAT = ("add", "sub", "mul", "div", "min", "max", "pow", "xlogy")
BITS = ("bitand", "bitor", "bitxor", "shl", "shr")
INTEGER = ("add", "sub", "mul", "min", "max", "floordiv", "mod", *BITS)
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
EXACT = frozenset({"neg", "abs", "sqrt", *ROUNDING, "add", "sub", "mul", "div", "min", "max", "fma"})
N = 1024

CASES = [
    *((fn, 1, t) for t in (F32, F64) for fn in (*UNARY_FLOAT, *ROUNDING)),
    *((fn, 2, t) for t in (F32, F64) for fn in (*BINARY_FLOAT, *COMPARE)),
    *(("fma", 3, t) for t in (F32, F64, I32)),
    *((fn, 2, t) for t in (I32, I64, U32) for fn in (*INTEGER, *COMPARE)),
    *((fn, 1, t) for t in (I32, I64) for fn in ("neg", "abs", "floor")),
    *((fn, 2, BOOL) for fn in ("bitand", "bitor", "bitxor", "eq", "ne", "min", "max", "add", "mul")),
    ("not", 1, BOOL),
    *((fn, 2, t) for t in map(ELEMENT_TYPES.get, ("f16", "bf16")) for fn in ("add", "mul", "max")),
    *((fn, 2, U8) for fn in ("add", "bitxor", "floordiv")),
]
IDS = [f"{fn}-{t}" for fn, _, t in CASES]


def result_type(fn, dtype):
    return BOOL if Fn(fn) in ast.COMPARISONS else dtype


def case_launch(build, number, fn, arity, dtype):
    """Launch k_<number>: O<number>[i] = fn(a<number>[i], ...)."""
    args = tuple(build.read(f"{name}{number}", "i", dtype=dtype) for name in "abc"[:arity])
    value = build.op(fn, *args, dtype=result_type(fn, dtype))
    body = (
        build.define("i", (32, "i_block"), (1, "i_lane")),
        build.statement(f"O{number}", ("i",), value),
    )
    digits = (build.digit("i_block", "grid.x", N // 32, weight=32), build.digit("i_lane", "lane", 32))
    return build.launch(f"k_{number}", body, grid=(N // 32, 1, 1), digits=digits)


def all_cases(build):
    launches, tensors = [], []
    for number, (fn, arity, dtype) in enumerate(CASES):
        launches.append(case_launch(build, number, fn, arity, dtype))
        tensors += [build.tensor(f"{name}{number}", N, dtype=dtype) for name in "abc"[:arity]]
        tensors.append(build.tensor(f"O{number}", N, dtype=result_type(fn, dtype)))
    return emit_cuda(build.plan(launches, tensors), TARGET).source


@pytest.fixture(scope="module")
def text(build):
    return all_cases(build)


@pytest.fixture(scope="module")
def module(text, need_gxx):
    return HostModule(text)


def data(dtype, seed):
    rng = np.random.default_rng(seed)
    storage = numerics.storage(dtype)
    if dtype.is_bool:
        return rng.integers(0, 2, N).astype(np.bool_)
    if dtype.is_float:
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, 1e-40, -88.0, 100.0])
        values = np.concatenate([np.repeat(specials, 14), np.tile(specials, 14), rng.normal(0, 4, N)])
        with np.errstate(all="ignore"):
            return values[:N][np.roll(np.arange(N), seed * 7)].astype(storage)
    low, high = dtype.integer_range
    edges = np.array([low, low + 1, high, high - 1, 0, 1, 2, 31, 32, 33, 63, 64, max(low, -1), max(low, -5), 7, 3])
    edges = np.where(edges > high, 5, edges).astype(storage)
    noise = rng.integers(low, high, N, dtype=storage, endpoint=True)
    return np.concatenate([np.repeat(edges, 16), np.tile(edges, 16), noise])[:N][
        np.roll(np.arange(N), 0 if seed < 2 else 5)
    ]


def inputs(dtype, arity):
    first = data(dtype, 1)
    if arity == 1:
        return (first,)
    if dtype.is_float or dtype.is_bool:
        return (first, data(dtype, 2), data(dtype, 3))[:arity]
    pairs = data(dtype, 1)
    tiled = np.concatenate([np.tile(pairs[:256:16], 16), pairs[256:][::-1]])  # every edge with every edge
    return (first, tiled, data(dtype, 3))[:arity]


@pytest.mark.gxx
@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_an_operator_gives_what_the_interpreter_gives(module, number):
    fn, arity, dtype = CASES[number]
    arrays = inputs(dtype, arity)
    out = np.zeros(N, numerics.storage(result_type(fn, dtype)))
    arguments = [HostArray(a.ctypes.data, a.nbytes) for a in (*map(np.ascontiguousarray, arrays), out)]
    assert module.launch(f"k_{number}", arguments, (N // 32, 1, 1), 32) is None
    want = numerics.apply(Fn(fn), arrays, result_type(fn, dtype) if Fn(fn) not in ast.COMPARISONS else BOOL)
    if not result_type(fn, dtype).is_float:
        assert np.array_equal(out, want)
        return
    got, want = out.astype(np.float64), want.astype(np.float64)
    if fn in EXACT:
        assert np.array_equal(got, want, equal_nan=True)
    else:
        ulp = 4 * 2.0 ** -(dtype.mantissa + 1)
        with np.errstate(all="ignore"):
            close = np.abs(got - want) <= ulp * np.abs(want) + 1e-44
        assert np.all(close | (got == want) | (np.isnan(got) & np.isnan(want)))


UPDATES = [(op, t) for op in AccOp for t in ELEMENT_TYPES.values() if not t.is_bool or op in (AccOp.MAX, AccOp.MIN)]


def update_launches(build):
    """u_<n>: a plain update by one thread in turn; a_<n>: an atomic update of one element by all threads."""
    launches, tensors = [], []
    for number, (op, dtype) in enumerate(UPDATES):
        wide = compute_type(dtype)
        for kind, atomic in (("u", False), ("a", True)):
            value = build.cast(build.read(f"V{number}", "i", dtype=dtype), wide)
            target = ("i",) if not atomic else (1,)
            body = (
                build.define("i", (32, "i_warp"), (1, "i_lane")),
                build.statement(f"O{number}", target, value, op=op, atomic=atomic),
            )
            digits = (build.digit("i_warp", "warp", 2, weight=32), build.digit("i_lane", "lane", 32))
            launches.append(build.launch(f"{kind}_{number}", body, block=64, digits=digits))
        tensors += [build.tensor(f"V{number}", 64, dtype=dtype), build.tensor(f"O{number}", 64, dtype=dtype)]
    return build.plan(launches, tensors)


@pytest.fixture(scope="module")
def updates(build, need_gxx):
    return HostModule(emit_cuda(update_launches(build), TARGET).source)


@pytest.mark.gxx
@pytest.mark.parametrize("number", range(len(UPDATES)), ids=[f"{op}-{t}" for op, t in UPDATES])
def test_an_update_rounds_once_from_the_wide_type(updates, number):
    op, dtype = UPDATES[number]
    rng = np.random.default_rng(number)
    storage = numerics.storage(dtype)
    raw = rng.integers(0, 2 if dtype.is_bool else 9, (2, 64))
    values, old = ((raw[k] * (0.375 if dtype.is_float else 1)).astype(storage) for k in (0, 1))
    if dtype.is_float:
        old[5] = storage.type(np.nan)
    wide = compute_type(dtype)
    out = old.copy()
    arguments = [HostArray(values.ctypes.data, values.nbytes), HostArray(out.ctypes.data, out.nbytes)]
    assert updates.launch(f"u_{number}", arguments, (1, 1, 1), 64) is None
    with np.errstate(all="ignore"):
        want = numerics.accumulate(op, old, dtype, numerics.cast(values, dtype, wide), wide)
    assert np.array_equal(out.astype(np.float64), want.astype(np.float64), equal_nan=True)
    assert updates.launch(f"a_{number}", arguments, (1, 1, 1), 64) is None
    one = want[1:2]
    for value in values:
        with np.errstate(all="ignore"):
            one = numerics.accumulate(op, one, dtype, numerics.cast(value[None], dtype, wide), wide)
    assert np.array_equal(out[1:2].astype(np.float64), one.astype(np.float64), equal_nan=True)


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.sampled(3)
def test_every_operator_and_update_compiles_without_a_warning(build, text, arch):
    assert compile_cubin(text, arch, werror=True)
    assert compile_cubin(emit_cuda(update_launches(build), TARGET).source, arch, werror=True)


@pytest.mark.gxx
def test_every_operator_and_update_compiles_on_the_host_without_a_warning(build, text, tmp_path):
    for source in (text, emit_cuda(update_launches(build), TARGET).source):
        assert compile_host(source, tmp_path, werror=True).exists()
