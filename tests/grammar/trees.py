"""Core trees built by hand in few words, and runs of them: the outputs, or the one diagnostic that stops."""

import numpy as np
import pytest

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Cast,
    Const,
    Fn,
    IndexBinary,
    IndexConst,
    IndexOp,
    IndexVar,
    Kernel,
    Op,
    Par,
    Read,
    Role,
    Seq,
    Size,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.types import ELEMENT_TYPES, F16, F32

INDICES = set("ijkpq")


def ix(value):
    """An index expression from an int, a name, or (op, left, right)."""
    if isinstance(value, int):
        return IndexConst(value=value)
    if isinstance(value, str):
        return IndexVar(name=value) if value[0] in INDICES else SizeVar(name=value)
    if isinstance(value, tuple):
        return IndexBinary(op=IndexOp(value[0]), left=ix(value[1]), right=ix(value[2]))
    return value


def par(index, extent, *body, **more):
    return Par(index=index, source_name=index, extent=ix(extent), band=0, body=body, **more)


def seq(index, extent, *body, **more):
    return Seq(index=index, source_name=index, extent=ix(extent), body=body, **more)


def rd(buffer, *subscripts, dtype=F32):
    return Read(buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), dtype=dtype)


def bind(buffer, subscripts, value, **more):
    return Bind(id="S", buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), value=value, **more)


def acc(buffer, subscripts, value, op=AccOp.ADD, atomic=False, **more):
    kind = Atomic if atomic else Accumulate
    return kind(id="S", op=op, buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), value=value, **more)


def num(value, dtype=F32):
    return Const(value=value, dtype=dtype)


def op(fn, *args, dtype=F32):
    return Op(fn=fn, args=args, dtype=dtype)


def param(text, **more):
    """`A f32 M N` or, for a scalar, `s f32`; `role=Role.LOCAL` for a `new`."""
    name, dtype, *shape = text.split()
    shape = tuple(ix(int(n) if n.isdigit() else n) for n in shape)
    role = more.pop("role", Role.PARAM if shape else Role.SCALAR)
    return Buffer(name=name, dtype=ELEMENT_TYPES[dtype], shape=shape, role=role, source_name=name, **more)


def local(text):
    return param(text, role=Role.LOCAL)


def kernel(buffers, *body, **more):
    names = {n.name for b in buffers for n in b.shape if isinstance(n, SizeVar)} | set(more.pop("sizes", ()))
    sizes = tuple(Size(name=n) for n in sorted(names))
    return Kernel(name="k", buffers=tuple(buffers), sizes=sizes, body=body, **more)


MATMUL = kernel(
    [param("A f16 M K"), param("B f16 K N"), param("C f32 M N")],
    par(
        "i",
        "M",
        par(
            "j",
            "N",
            bind("C", "ij", num(0.0)),
            seq(
                "k",
                "K",
                acc(
                    "C",
                    "ij",
                    op(
                        Fn.MUL,
                        Cast(operand=rd("A", "i", "k", dtype=F16), dtype=F32),
                        Cast(operand=rd("B", "k", "j", dtype=F16), dtype=F32),
                    ),
                ),
            ),
        ),
    ),
)


def run(program, mode="fast", **arrays):
    sizes = arrays.pop("sizes", None)
    return interpret(program, arrays, mode=mode, sizes=sizes).outputs


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype=dtype)


def ramp(*shape, dtype=np.float32):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def code_of(program, mode="exact", seed=0, **arrays):
    """The one diagnostic that stops the run."""
    sizes = arrays.pop("sizes", None)
    with pytest.raises(TExprError) as caught:
        interpret(program, arrays, mode=mode, seed=seed, sizes=sizes)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


BOTH = pytest.mark.parametrize("mode", ["fast", "exact"])
