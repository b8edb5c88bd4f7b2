"""CPU emission of small mapped programs written by hand: the text, and what it computes."""

from functools import cache

import numpy as np
import pytest

from texpr.codegen.cpu.build import build_cpu
from texpr.codegen.cpu.emit import emit_cpu
from texpr.codegen.plan import plan
from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    And,
    Bind,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Fn,
    Gather,
    IndexBinary,
    IndexConst,
    IndexOp,
    IndexVar,
    Kernel,
    Op,
    Read,
    Role,
    Size,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import F16, F32, I32, I64
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import HostLoop, Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.tree import Define, Guard, Loop
from texpr.polyhedral.target import parse_target

pytestmark = pytest.mark.usefixtures("threads")  # who shares out what is what these tests are about

CPU = parse_target("cpu")
ONE = IndexConst(value=1)


def number(value):
    return IndexConst(value=value)


def size(name):
    return SizeVar(name=name)


def var(name):
    return IndexVar(name=name)


def binary(op, left, right):
    return IndexBinary(op=op, left=left, right=right)


def less(left, right):
    return Compare(op=CompareOp.LT, left=left, right=right)


def array(name, dtype, *shape, role=Role.PARAM, memory=None):
    return Buffer(name=name, dtype=dtype, shape=shape, role=role, memory=memory)


def read(buffer, *subscripts, dtype=F32):
    return Read(buffer=buffer, subscripts=subscripts, dtype=dtype)


def bind(id, buffer, subscripts, value):
    return Generic(id=id, leaf=Bind(id=id, buffer=buffer, subscripts=subscripts, value=value))


def accumulate(id, buffer, subscripts, value, op=AccOp.ADD, atomic=False):
    leaf = Accumulate(id=id, op=op, buffer=buffer, subscripts=subscripts, value=value)
    return Generic(id=id, leaf=leaf, atomic=atomic)


def core(name, index, weight, radix):
    return Digit(name=name, index=index, weight=weight, radix=radix, stride=ONE, place=Place.CORE)


def serial(name, index, weight, radix):
    return Digit(name=name, index=index, weight=weight, radix=number(radix), stride=ONE, place=Place.VECTOR)


def launch(name, body, digits=(), blocks=ONE, arguments=()):
    return Launch(
        name=name, grid=(blocks, ONE, ONE), threads=1, digits=tuple(digits), body=tuple(body), arguments=arguments
    )


def program(name, buffers, host, sizes=()):
    mapped = {}
    for b in buffers:
        memory = Memory(b.memory) if b.memory else Memory.GLOBAL
        scope = Scope.THREAD if memory is Memory.REG else Scope.GRID
        mapped[b.name] = MappedBuffer(
            name=b.name, dtype=b.dtype, memory=memory, scope=scope, layout=row_major(b.shape), role=b.role
        )
    kernel = Kernel(name=name, buffers=tuple(buffers), sizes=tuple(Size(name=s) for s in sizes), body=())
    return MappedProgram(
        kernel=kernel, proved=None, target=CPU, host=tuple(host), buffers=mapped, candidate=Candidate(launches={})
    )


def compiled(mapped):
    text = emit_cpu(plan(mapped), CPU)
    return build_cpu(text), text


def chunked(index, extent, chunk, body):
    """A parallel index in chunks over the cores, with the padding guard that the mapping makes."""
    digits = (
        core(f"{index}_core", index, chunk, binary(IndexOp.CEILDIV, extent, number(chunk))),
        serial(f"{index}_vec", index, 1, chunk),
    )
    inner = (Define(index=index, digits=digits), Guard(condition=less(var(index), extent), body=tuple(body)))
    loop = Loop(index=f"{index}_vec", extent=number(chunk), body=inner, digit=digits[1], parallel=True, vector=True)
    return digits, binary(IndexOp.CEILDIV, extent, number(chunk)), (loop,)


def test_an_index_with_an_offset_begins_before_its_first_digit():
    digits = (core("i_core", "i", 16, binary(IndexOp.CEILDIV, binary(IndexOp.ADD, size("N"), number(3)), number(16))),
              serial("i_vec", "i", 1, 16))  # fmt: skip
    low = Compare(op=CompareOp.LE, left=number(0), right=var("i"))
    inner = (
        Define(index="i", digits=digits, offset=number(-3)),
        Guard(
            condition=And(parts=(low, less(var("i"), size("N")))),
            body=(bind("S0", "C", (var("i"),), read("A", var("i"))),),
        ),
    )
    loop = Loop(index="i_vec", extent=number(16), body=inner, digit=digits[1], parallel=True, vector=True)
    buffers = [array(n, F32, size("N")) for n in "AC"]
    run, text = compiled(program("shifted", buffers, [launch("s0", [loop], digits, digits[0].radix)], ["N"]))
    for n in (0, 1, 13, 14, 40):
        a, c = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        run(a, c, n, 0)
        assert (c == a).all(), text.source


def vadd():
    value = Op(fn=Fn.ADD, args=(read("A", var("i")), read("B", var("i"))), dtype=F32)
    digits, blocks, body = chunked("i", size("N"), 4096, [bind("S0", "C", (var("i"),), value)])
    buffers = [array(n, F32, size("N")) for n in "ABC"]
    return program("vadd", buffers, [launch("vadd_0", body, digits, blocks)], ["N"])


def test_the_padding_guard_of_a_chunk_becomes_its_loop_bound(golden):
    _, text = compiled(vadd())
    golden("cpu/vadd.py.txt", text.source)


@cache
def added():
    return compiled(vadd())[0]


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 100_003])
def test_a_free_size_runs_at_any_value(n):
    run = added()
    rng = np.random.default_rng(n)
    a, b, c = (rng.standard_normal(n + 1).astype(np.float32) for _ in range(3))
    last = c[n]
    run(a, b, c, n, 0)
    assert np.array_equal(c[:n], a[:n] + b[:n])
    assert c[n] == last


def test_a_sum_over_cores_is_carried_and_added_once_per_core(golden):
    digits, blocks, body = chunked("i", size("N"), 1000, [accumulate("S1", "s", (), read("A", var("i")), atomic=True)])
    mapped = program(
        "total",
        [array("A", F32, size("N")), array("s", F32)],
        [
            launch("total_0", [bind("S0", "s", (), Const(value=0.0, dtype=F32))]),
            launch("total_1", body, digits, blocks),
        ],
        ["N"],
    )
    run, text = compiled(mapped)
    golden("cpu/total.py.txt", text.source)
    for n in (0, 1, 999, 54_321):
        a = np.random.default_rng(n).integers(-8, 9, n).astype(np.float32)
        s = np.full((), np.nan, np.float32)
        run(a, s, n, 0)
        assert s == a.sum()


def histogram(atomic_dtype):
    gather = Gather(value=Cast(operand=read("idx", var("i"), dtype=I32), dtype=I64))
    statement = accumulate("S0", "H", (gather,), Const(value=1, dtype=F32), atomic=True)
    digits, blocks, body = chunked("i", size("N"), 64, [statement])
    buffers = [array("idx", I32, size("N")), array("H", atomic_dtype, size("B"))]
    return program("histogram", buffers, [launch("histogram_0", body, digits, blocks)], ["N", "B"])


@pytest.mark.parametrize("dtype", [F32, F16])
def test_atomic_updates_of_many_cores_lose_nothing(dtype):
    run, _ = compiled(histogram(dtype))
    idx = np.random.default_rng(0).integers(0, 5, 8000).astype(np.int32)
    h = np.zeros(5, np.float32 if dtype is F32 else np.float16)
    run(idx, h, idx.size, 5, 0)
    assert np.array_equal(h, np.bincount(idx, minlength=5))


@cache
def counted():
    return compiled(histogram(F32))[0]


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_a_gathered_subscript_outside_its_dimension_is_reported(bad):
    run = counted()
    idx = np.zeros(8000, np.int32)
    idx[777] = bad
    with pytest.raises(TExprError) as caught:
        run(idx, np.zeros(5, np.float32), idx.size, 5, 0)
    assert caught.value.diagnostics[0].code == "E0604"
    assert "subscript 1 of H" in str(caught.value)


def matmul():
    product = Op(fn=Fn.MUL, args=(read("A", var("i"), var("k")), read("B", var("k"), var("j"))), dtype=F32)
    out = (var("i"), var("j"))
    body = (
        Define(index="i", digits=(core("i_core", "i", 1, size("M")),)),
        Loop(index="j", extent=size("N"), parallel=True, body=(bind("S0", "C", out, Const(value=0.0, dtype=F32)),)),
        Loop(
            index="k",
            extent=size("K"),
            body=(Loop(index="j_1", extent=size("N"), parallel=True, vector=True, body=(_renamed(product),)),),
        ),
    )
    buffers = [
        array("A", F32, size("M"), size("K")),
        array("B", F32, size("K"), size("N")),
        array("C", F32, size("M"), size("N")),
    ]
    digits = (core("i_core", "i", 1, size("M")),)
    return program("matmul", buffers, [launch("matmul_0", body, digits, size("M"))], ["M", "N", "K"])


def _renamed(product):
    a, _ = product.args
    b = read("B", var("k"), var("j_1"))
    return accumulate("S1", "C", (var("i"), var("j_1")), Op(fn=Fn.MUL, args=(a, b), dtype=F32))


def test_a_matmul_contracts_its_multiply_and_add(golden):
    run, text = compiled(matmul())
    golden("cpu/matmul.py.txt", text.source)
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 5, (33, 65)).astype(np.float32)
    b = rng.integers(-4, 5, (65, 17)).astype(np.float32)
    c = np.full((33, 17), np.nan, np.float32)
    run(a, b, c, 33, 17, 65, 0)
    assert np.array_equal(c, a @ b)


def test_a_narrow_accumulator_is_carried_in_f32_and_rounded_once():
    value = Cast(operand=read("A", var("k"), dtype=F16), dtype=F32)
    body = [
        bind("S0", "s", (number(0),), Const(value=0.0, dtype=F16)),
        Loop(index="k", extent=size("N"), body=(accumulate("S1", "s", (number(0),), value),)),
    ]
    run, _ = compiled(
        program("narrow", [array("A", F16, size("N")), array("s", F16, ONE)], [launch("n0", body)], ["N"])
    )
    a = np.full(5000, 1.0, np.float16)  # step by step the sum would stick at 2048
    s = np.zeros(1, np.float16)
    run(a, s, a.size, 0)
    assert s[0] == 5000


@pytest.mark.parametrize("inner", [0, 3])
def test_a_carried_element_does_not_keep_other_statements_of_its_loop_from_running(inner):
    loop = Loop(
        index="i",
        extent=size("N"),
        body=(
            bind("S0", "C", (var("i"),), read("A", var("i"))),
            Loop(index="j", extent=size("K"), body=(accumulate("S1", "s", (number(0),), read("A", var("i"))),)),
        ),
    )
    buffers = [array("A", F32, size("N")), array("C", F32, size("N")), array("s", F32, ONE)]
    run, _ = compiled(program("both", buffers, [launch("b0", [loop])], ["N", "K"]))
    a, c, s = np.arange(9, dtype=np.float32), np.full(9, np.nan, np.float32), np.ones(1, np.float32)
    run(a, c, s, 9, inner, 0)
    assert np.array_equal(c, a)
    assert s[0] == 1 + inner * a.sum()


def test_locals_live_in_registers_and_on_the_stack():
    loop = Loop(
        index="i",
        extent=number(8),
        body=(
            bind("S0", "t", (), read("A", var("i"))),
            bind("S1", "row", (var("i"),), Op(fn=Fn.MUL, args=(read("t"), read("t")), dtype=F32)),
        ),
    )
    reverse = binary(IndexOp.SUB, number(7), var("j"))
    after = Loop(index="j", extent=number(8), body=(bind("S2", "C", (var("j"),), read("row", reverse)),))
    buffers = [
        array("A", F32, number(8)),
        array("C", F32, number(8)),
        array("t", F32, role=Role.LOCAL, memory="reg"),
        array("row", F32, number(8), role=Role.LOCAL, memory="reg"),
    ]
    run, text = compiled(program("locals", buffers, [launch("l0", [loop, after])]))
    assert "row = stack_f32(8)" in text.source
    a, c = np.arange(8, dtype=np.float32), np.empty(8, np.float32)
    run(a, c, 0)
    assert np.array_equal(c, (a * a)[::-1])


def test_a_host_loop_passes_its_index_and_workspaces_have_their_place():
    step = bind("S0", "W", (var("t"),), Op(fn=Fn.ADD, args=(read("A", var("t")), read("A", var("t"))), dtype=F32))
    copy = Loop(index="i", extent=size("T"), body=(bind("S1", "C", (var("i"),), read("W", var("i"))),))
    host = [
        HostLoop(index="t", extent=size("T"), body=(launch("h0", [step], arguments=("t",)),)),
        launch("h1", [copy]),
    ]
    buffers = [array("A", F32, size("T")), array("C", F32, size("T")), array("W", F32, size("T"), role=Role.LOCAL)]
    run, text = compiled(program("steps", buffers, host, ["T"]))
    a, c = np.arange(7, dtype=np.float32), np.empty(7, np.float32)
    run(a, c, 7, np.empty(256, np.uint8))
    assert np.array_equal(c, 2 * a)
    assert text.workspace_bytes is not None


def test_names_that_python_uses_are_kept_apart():
    value = Op(fn=Fn.ADD, args=(read("lambda", var("range")), read("lambda_", var("range"))), dtype=F32)
    body = [Loop(index="range", extent=number(4), body=(bind("S0", "np", (var("range"),), value),))]
    buffers = [array("lambda", F32, number(4)), array("lambda_", F32, number(4)), array("np", F32, number(4))]
    run, _ = compiled(program("class", buffers, [launch("import", body)]))
    a, c = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    run(a, a + 1, c, 0)
    assert np.array_equal(c, 2 * a + 1)


def test_a_triangle_bounds_its_loop_from_the_guard():
    condition = And(parts=(Compare(op=CompareOp.LE, left=var("j"), right=var("i")), less(var("i"), size("N"))))
    body = (
        Loop(
            index="i",
            extent=number(64),
            body=(
                Loop(
                    index="j",
                    extent=number(64),
                    body=(Guard(condition=condition, body=(accumulate("S0", "s", (var("i"),), read("A", var("j"))),)),),
                ),
            ),
        ),
    )
    buffers = [array("A", F32, size("N")), array("s", F32, size("N"))]
    run, text = compiled(program("triangle", buffers, [launch("t0", body)], ["N"]))
    assert "range(min(64, i + 1))" in text.source
    assert "j <= i" not in text.source
    assert "i < N" not in text.source
    a, s = np.arange(1, 41, dtype=np.float32), np.zeros(40, np.float32)
    run(a, s, 40, 0)
    assert np.array_equal(s, np.cumsum(a))
