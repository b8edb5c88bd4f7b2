"""Random small programs: fast mode equals exact mode, and stays within four bounds of the float64 run."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texpr.grammar import numerics
from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Fn,
    Gather,
    If,
    IndexBinary,
    IndexConst,
    IndexOp,
    IndexVar,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Role,
    Select,
    Seq,
)
from texpr.grammar.check.stage import check
from texpr.grammar.interpret.bound import FUNCTION_ERRORS, roundoff
from texpr.grammar.interpret.cells import PlainArithmetic, PlainCells
from texpr.grammar.interpret.fast import FastInterpreter
from texpr.grammar.interpret.stage import Interpretation, interpret
from texpr.grammar.text.parser import parse_text
from texpr.grammar.types import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, I64, U8

FLOATS = (F64, F32, F32, F16, BF16, F8E4M3, F8E5M2)
N, M = 3, 4
UNARY = (
    Fn.NEG,
    Fn.ABS,
    Fn.EXP,
    Fn.EXP2,
    Fn.LOG,
    Fn.LOG2,
    Fn.SQRT,
    Fn.RSQRT,
    Fn.TANH,
    Fn.SIGMOID,
    Fn.ERF,
    Fn.NORMCDF,
    Fn.SIN,
    Fn.LOG1P,
    Fn.EXPM1,
)
STEPS = (Fn.FLOOR, Fn.CEIL, Fn.ROUND)
BINARY = (Fn.ADD, Fn.SUB, Fn.MUL, Fn.MUL, Fn.ADD, Fn.DIV, Fn.MIN, Fn.MAX, Fn.POW, Fn.XLOGY)
INTEGERS = (Fn.ADD, Fn.SUB, Fn.MUL, Fn.FLOORDIV, Fn.MOD, Fn.MIN, Fn.MAX, Fn.BITAND, Fn.BITXOR, Fn.SHL, Fn.SHR)
CONDITIONS = (Fn.LT, Fn.LE, Fn.GT, Fn.EQ, Fn.NE)


def var(name):
    return IndexVar(name=name)


def plus(name, shift, modulo):
    """(name + shift) % modulo"""
    moved = IndexBinary(op=IndexOp.ADD, left=var(name), right=IndexConst(value=shift))
    return IndexBinary(op=IndexOp.MOD, left=moved, right=IndexConst(value=modulo))


class Programs:
    """Legal kernels over inputs A, B (floats), X (integers), outputs C, D (floats), E (integers)."""

    def __init__(self, seed, integers):
        self.pick = random.Random(seed)
        self.integers = integers
        self.a, self.b, self.c, self.d = (self.pick.choice(FLOATS) for _ in range(4))
        self.x, self.e = self.pick.choice((I32, I64, I8, U8)), self.pick.choice((I32, I64, I8))
        self.wide = self.pick.choice((F32, F32, F64))

    def convert(self, expr, dtype):
        return expr if expr.dtype == dtype else Cast(operand=expr, dtype=dtype)

    def element(self, name, dtype, row, column):
        pick = self.pick
        if name in "AB" and pick.random() < 0.15:
            gathered = Op(fn=Fn.MOD, args=(self.integer(row, column, 0), Const(value=M, dtype=I64)), dtype=I64)
            return Read(buffer=name, subscripts=(var(row), Gather(value=gathered)), dtype=dtype)
        place = plus(column, pick.randrange(M), M) if pick.random() < 0.5 else var(column)
        return Read(buffer=name, subscripts=(var(row), place), dtype=dtype)

    def integer(self, row, column, depth):
        pick = self.pick
        if depth <= 0 or pick.random() < 0.3:
            if pick.random() < 0.3:
                return Const(value=pick.randrange(-3, 9), dtype=I64)
            return self.convert(self.element("X", self.x, row, column), I64)
        if not self.integers and pick.random() < 0.2:
            return Cast(operand=self.number(row, column, depth - 1), dtype=I64)
        args = (self.integer(row, column, depth - 1), self.integer(row, column, depth - 1))
        return Op(fn=pick.choice(INTEGERS), args=args, dtype=I64)

    def number(self, row, column, depth):
        pick, wide = self.pick, self.wide
        if depth <= 0 or pick.random() < 0.15:
            match pick.randrange(6):
                case 0:
                    return Const(value=pick.choice((0.5, 1.0, -2.0, 0.1, 3.0)), dtype=wide)
                case 1:
                    return Cast(operand=self.integer(row, column, 0), dtype=wide)
                case 2:
                    return self.convert(Read(buffer="s", subscripts=(), dtype=F32), wide)
                case n:
                    name, dtype = (("A", self.a), ("B", self.b))[n % 2]
                    return self.convert(self.element(name, dtype, row, column), wide)
        choice = pick.random()
        if choice < 0.2:
            fn = pick.choice(STEPS) if pick.random() < 0.15 else pick.choice(UNARY)
            return Op(fn=fn, args=(self.number(row, column, depth - 1),), dtype=wide)
        args = (self.number(row, column, depth - 1), self.number(row, column, depth - 1))
        if choice < 0.3:
            return Select(condition=self.condition(row, column, depth), then=args[0], other=args[1], dtype=wide)
        if choice < 0.4:
            return Op(fn=Fn.FMA, args=(*args, self.number(row, column, depth - 1)), dtype=wide)
        if choice < 0.5:
            narrow = pick.choice((F16, BF16, F8E4M3, F8E5M2))
            return Cast(operand=Cast(operand=args[0], dtype=narrow), dtype=wide)
        return Op(fn=pick.choice(BINARY), args=args, dtype=wide)

    def condition(self, row, column, depth):
        if self.pick.random() < 0.4:
            return Compare(op=CompareOp.LE, left=var(column), right=var(row))
        args = (self.number(row, column, depth - 1), self.number(row, column, depth - 1))
        return Op(fn=self.pick.choice(CONDITIONS), args=args, dtype=BOOL)

    def value(self, dtype, row, column):
        make = self.integer if dtype.is_integer else self.number
        return self.convert(make(row, column, self.pick.randrange(1, 4)), dtype)

    def updates(self, buffer, dtype, subscripts, row, column):
        pick = self.pick
        if dtype.is_integer:
            computed, expr = I64, self.integer(row, column, 2)
            ops = (AccOp.ADD, AccOp.MUL) if dtype != I64 else tuple(AccOp)
        else:
            computed = self.wide if self.wide == F64 or dtype != F64 else F64
            expr = self.convert(self.number(row, column, pick.randrange(0, 3)), computed)
            ops = (AccOp.ADD, AccOp.ADD, AccOp.ADD, AccOp.MUL, AccOp.MAX, AccOp.MIN)
        return Accumulate(
            id="S", op=pick.choice(ops), buffer=buffer, subscripts=subscripts, value=self.convert(expr, computed)
        )

    def kernel(self):
        pick = self.pick
        out, kind = ("E", self.e) if self.integers else ("C", self.c)
        place = (var("i"), var("j"))
        inner = [Bind(id="S", buffer=out, subscripts=place, value=self.value(kind, "i", "j"))]
        if pick.random() < 0.6:
            inner.append(loop(Seq, "k", pick.choice((M, 2)), self.updates(out, kind, place, "i", "k")))
        if pick.random() < 0.4:
            inner += [
                New(buffer="c"),
                Bind(id="S", buffer="c", subscripts=(), value=self.as_bool(self.condition("i", "j", 2))),
                If(
                    condition=Read(buffer="c", subscripts=(), dtype=BOOL),
                    then=(Bind(id="S", buffer=out, subscripts=place, value=self.value(kind, "i", "j")),),
                    orelse=(self.updates(out, kind, place, "i", "j"),) if pick.random() < 0.5 else (),
                ),
            ]
        total = self.updates("F" if self.integers else "D", self.e if self.integers else self.d, (var("i"),), "i", "j")
        extent = M if pick.random() < 0.5 else IndexBinary(op=IndexOp.ADD, left=var("i"), right=IndexConst(value=1))
        first = Read(buffer="A", subscripts=(var("i"), IndexConst(value=0)), dtype=self.a)
        start = Bind(id="S", buffer="s", subscripts=(), value=self.convert(first, F32))
        body = [New(buffer="s"), start, loop(Par, "j", extent, *inner), loop(Par, "j1", M, rename(total))]
        buffers = [
            array("A", self.a, N, M),
            array("B", self.b, N, M),
            array("X", self.x, N, M),
            array("C", self.c, N, M),
            array("D", self.d, N),
            array("E", self.e, N, M),
            array("F", self.e, N),
            array("s", F32, role=Role.LOCAL),
            array("c", BOOL, role=Role.LOCAL),
        ]
        return Kernel(
            name="k", buffers=tuple(buffers), sizes=(), body=(loop(pick.choice((Par, Par, Seq)), "i", N, *body),)
        )

    def as_bool(self, condition):
        if isinstance(condition, Compare):
            return Select(
                condition=condition,
                then=Const(value=True, dtype=BOOL),
                other=Const(value=False, dtype=BOOL),
                dtype=BOOL,
            )
        return condition

    def arrays(self, special):
        generator = np.random.default_rng(self.pick.randrange(2**32))
        result = {}
        for name, dtype, shape in (
            ("A", self.a, (N, M)), ("B", self.b, (N, M)), ("X", self.x, (N, M)), ("C", self.c, (N, M)),
            ("D", self.d, (N,)), ("E", self.e, (N, M)), ("F", self.e, (N,)),
        ):  # fmt: skip
            if dtype.is_float:
                values = generator.standard_normal(shape) * generator.choice([0.5, 1, 4, 100 if special else 2], shape)
                if special:
                    odd = generator.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 6e4], shape)
                    values = np.where(generator.random(shape) < 0.25, odd, values)
                result[name] = np.array(numerics.cast(values, F64, dtype))
            else:
                result[name] = generator.integers(0, 100, shape).astype(numerics.storage(dtype))
        return result


def rename(node):
    """The statement with its index j called j1, so that sibling loops differ in name."""
    if isinstance(node, IndexVar):
        return IndexVar(name="j1") if node.name == "j" else node
    if isinstance(node, tuple):
        return tuple(rename(part) for part in node)
    if hasattr(node, "__dataclass_fields__") and hasattr(node, "span"):
        return type(node)(**{name: rename(getattr(node, name)) for name in node.__dataclass_fields__})
    return node


def loop(kind, index, extent, *body):
    extent = IndexConst(value=extent) if isinstance(extent, int) else extent
    more = {"band": 0} if kind is Par else {}
    return kind(index=index, source_name=index, extent=extent, body=body, **more)


def array(name, dtype, *shape, role=Role.PARAM):
    return Buffer(name=name, dtype=dtype, shape=tuple(IndexConst(value=n) for n in shape), role=role)


def within(result, reference, name):
    """Elements that differ by more than the bound allows, and how many were decided."""
    got = result.outputs[name]
    wide = numerics.cast(got, next(t for t in FLOATS if numerics.storage(t) == got.dtype), F64)
    expected, bound, undecided = (x[name] for x in (reference.outputs, reference.bounds, reference.undecided))
    with np.errstate(invalid="ignore"):
        near = (np.abs(wide - expected) <= 4 * bound) | (wide == expected) | (np.isnan(wide) & np.isnan(expected))
    return ~(near | undecided), int((~undecided).sum())


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_fast_and_exact_mode_agree_bit_by_bit_on_integers(seed):
    programs = Programs(seed, integers=True)
    kernel, arrays = programs.kernel(), programs.arrays(special=False)
    fast = interpret(kernel, arrays)
    exact = interpret(kernel, arrays, mode="exact", seed=seed % 7)
    for name in arrays:
        assert np.array_equal(fast.outputs[name].view(np.uint8), exact.outputs[name].view(np.uint8)), name
    reference = interpret(kernel, arrays, float64=True)
    for name in "EF":
        assert ((fast.outputs[name] == reference.outputs[name]) | reference.undecided[name]).all()


@pytest.mark.parametrize("special", [False, True], ids=["tame", "special"])
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_both_modes_stay_within_four_bounds_of_the_float64_run(special, seed):
    programs = Programs(seed, integers=False)
    kernel, arrays = programs.kernel(), programs.arrays(special)
    reference = interpret(kernel, arrays, float64=True)
    for mode in ("fast", "exact"):
        result = interpret(kernel, arrays, mode=mode, seed=seed % 5)
        for name in "CD":
            wrong, _ = within(result, reference, name)
            assert not wrong.any(), (mode, name)


class Sloppy(PlainArithmetic):
    """An implementation that errs as much as it may: functions off by their ulps, products contracted into sums."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def apply(self, fn, args, operand_dtype, dtype):
        result = super().apply(fn, args, operand_dtype, dtype)
        entry = FUNCTION_ERRORS.get(fn)
        if entry is None or not dtype.is_float:
            return result
        room = (entry.f32_ulps if dtype == F32 else entry.f64_ulps) - 0.5
        with np.errstate(all="ignore"):
            factor = 1 + self.random.choice([-1, 1], result.shape) * room * 2 * roundoff(dtype)
            moved = result.astype(np.longdouble) * factor
            return np.where(np.isfinite(result), moved, result).astype(result.dtype)


def contracted(node):
    """The tree with every a * b + c as an fma."""
    if isinstance(node, tuple):
        return tuple(contracted(part) for part in node)
    if not hasattr(node, "__dataclass_fields__") or not hasattr(node, "span"):
        return node
    node = type(node)(**{name: contracted(getattr(node, name)) for name in node.__dataclass_fields__})
    if isinstance(node, Op) and node.fn is Fn.ADD and node.dtype.is_float:
        for product, addend in (node.args, node.args[::-1]):
            if isinstance(product, Op) and product.fn is Fn.MUL:
                return Op(fn=Fn.FMA, args=(*product.args, addend), dtype=node.dtype)
    return node


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_an_implementation_that_errs_as_it_may_stays_within_the_bound(seed):
    programs = Programs(seed, integers=False)
    kernel, arrays = programs.kernel(), programs.arrays(special=False)
    reference = interpret(kernel, arrays, float64=True)
    memory = {b.name: PlainCells(b.dtype, arrays[b.name].reshape(-1).copy(), ()) for b in kernel.params}
    FastInterpreter(contracted(kernel), {}, Sloppy(seed), memory, grid_limit=1 + seed % 20).run()
    for name in "CD":
        got = Interpretation(outputs={name: memory[name].flat.reshape(arrays[name].shape)})
        wrong, _ = within(got, reference, name)
        assert not wrong.any(), name


def test_most_elements_are_decided():
    decided = total = 0
    for seed in range(60):
        programs = Programs(seed, integers=False)
        kernel, arrays = programs.kernel(), programs.arrays(special=False)
        reference = interpret(kernel, arrays, float64=True)
        result = interpret(kernel, arrays)
        for name in "CD":
            decided += within(result, reference, name)[1]
            total += reference.outputs[name].size
    assert decided > 0.8 * total


def test_what_no_iteration_updates_is_not_rounded_again() -> None:
    """An infinity in f8 saturates when it is stored again, and the negative zero ends when a zero is added."""
    text = "kernel f(A: f8e5m2[4], B: f32[4]) { par 4 i, i j { A[j] max= 1.0\n B[j] += 1.0 } }"
    (kernel,) = check(parse_text(text))
    values = {"A": np.full(4, -np.inf).astype(numerics.storage(F8E5M2)), "B": np.full(4, -0.0, np.float32)}
    for mode in ("fast", "exact"):
        outputs = interpret(kernel, values, mode=mode).outputs
        assert [float(x) for x in outputs["A"]] == [1.0, 1.0, 1.0, -np.inf], mode
        assert list(outputs["B"][:3]) == [3.0, 2.0, 1.0] and np.signbit(outputs["B"][3]), mode


def test_an_index_beyond_64_bits_wraps_where_nothing_proved_it_away() -> None:
    (kernel,) = check(parse_text("kernel f(A: i64[4]) { par 4 i { A[i] = i * 9223372036854775807 } }"))
    for mode in ("fast", "exact"):
        outputs = interpret(kernel, {"A": np.zeros(4, np.int64)}, mode=mode).outputs
        assert list(outputs["A"]) == [0, 2**63 - 1, -2, 2**63 - 3], mode
