"""Hand-built mapped programs for the tests of emission, planned: small kernels with digits, buffers and barriers."""

from types import SimpleNamespace

import pytest

from texpr.codegen.plan import plan as plan_program
from texpr.grammar import ast
from texpr.grammar.source import NO_SPAN, SourceText, Span
from texpr.grammar.types import F16, F32, I32
from texpr.polyhedral.layout.make import row_major, strided
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Generic, Unused
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop
from texpr.polyhedral.program import Hazard
from texpr.polyhedral.target import parse_target


def number(value):
    return ast.IndexConst(value=value)


def index(name):
    return ast.IndexVar(name=name)


def size(name):
    return ast.SizeVar(name=name)


def expr(value):
    """An index expression of an int, the name of a size (capital) or of an index."""
    if isinstance(value, int):
        return number(value)
    if isinstance(value, str):
        return size(value) if value[0].isupper() else index(value)
    return value


def binary(op, left, right):
    return ast.IndexBinary(op=ast.IndexOp(op), left=expr(left), right=expr(right))


def read(name, *subscripts, dtype=F32):
    return ast.Read(buffer=name, subscripts=tuple(expr(s) for s in subscripts), dtype=dtype)


def op(fn, *args, dtype=F32):
    return ast.Op(fn=ast.Fn(fn), args=args, dtype=dtype)


def cast(operand, dtype):
    return ast.Cast(operand=operand, dtype=dtype)


def const(value, dtype=F32):
    return ast.Const(value=value, dtype=dtype)


def less(left, right):
    return ast.Compare(op=ast.CompareOp.LT, left=expr(left), right=expr(right))


def tensor(name, *shape, dtype=F32, role=ast.Role.PARAM, strides=None):
    extents = tuple(expr(s) for s in shape)
    layout = strided(extents, tuple(map(expr, strides))) if strides else row_major(extents)
    memory = Memory.REG if role is ast.Role.SCALAR else Memory.GLOBAL
    return MappedBuffer(
        name=name, dtype=dtype, memory=memory, scope=Scope.GRID, layout=layout, role=role
    )  # fmt: skip


def block_tensor(name, *shape, dtype=F32, memory=Memory.SHARED, strides=None):
    layout = row_major(shape) if strides is None else strided(shape, strides)
    scope = Scope.THREAD if memory is Memory.REG else Scope.BLOCK
    return MappedBuffer(
        name=name, dtype=dtype, memory=memory, scope=scope, layout=layout, role=ast.Role.LOCAL
    )  # fmt: skip


def digit(name, place, radix, *, weight=1, stride=1, of="i"):
    return Digit(name=name, index=of, weight=weight, radix=expr(radix), stride=expr(stride), place=Place(place))


def define(name, *terms, offset=0):
    digits = tuple(digit(digit_name, "serial", 1, weight=weight, of=name) for weight, digit_name in terms)
    return Define(index=name, digits=digits, offset=expr(offset))


def statement(target, subscripts, value, *, op=None, atomic=False, id="S0", span=NO_SPAN, attrs=(), once=False):
    subscripts = tuple(expr(s) for s in subscripts)
    common = {"id": id, "buffer": target, "subscripts": subscripts, "value": value, "span": span, "attrs": attrs}
    if op is None:
        leaf = ast.Bind(**common)
    else:
        kind = ast.Atomic if atomic else ast.Accumulate
        leaf = kind(op=op, **common)
    return Generic(id=id, leaf=leaf, atomic=atomic, unused=Unused.ONCE if once else None)


def attr(name):
    return ast.Attr(name=name)


def order(source, sink, buffer, source_span, sink_span, scope=Scope.BLOCK, carried_by=None):
    return Order(
        source=source, sink=sink, buffer=buffer, hazard=Hazard.FLOW, scope=scope, carried_by=carried_by,
        source_span=source_span, sink_span=sink_span,
    )  # fmt: skip


def plan(blocks, tensors, *, sizes=(), facts=(), name="kernel", source="kernel.tex"):
    """A planned program of launches in order, each as `launch` gives it with its buffers."""
    kernel = ast.Kernel(
        name=name,
        buffers=tuple(ast.Buffer(name=t.name, dtype=t.dtype, shape=t.shape, role=t.role) for t in tensors),
        sizes=tuple(ast.Size(name=size) for size in sizes),
        facts=tuple(facts),
        body=(),
        span=Span(SourceText(source, ""), 0, 0),
    )
    own = [buffer for _, local in blocks for buffer in local]
    program = MappedProgram(
        kernel=kernel, proved=None, target=parse_target("cuda:sm_90a"), host=tuple(found for found, _ in blocks),
        buffers={buffer.name: buffer for buffer in (*tensors, *own)}, candidate=Candidate(launches={}),
    )  # fmt: skip
    return plan_program(program)


def launch(name, body, *, grid=(1, 1, 1), block=32, digits=(), tensors=(), arguments=()):
    """A launch, and the buffers of its blocks and threads."""
    found = Launch(
        name=name, grid=tuple(expr(e) for e in grid), threads=block, digits=tuple(digits), body=tuple(body),
        arguments=tuple(arguments),
    )  # fmt: skip
    return found, tuple(tensors)


def span_of(text, part, name="kernel.tex"):
    """The span of a part of a source text."""
    source = SourceText(name, text)
    start = text.index(part)
    return Span(source, start, start + len(part))


VADD = "kernel vadd(A: f32[N], B: f32[N], C: f32[N]) {\n    par N i {\n        C[i] = A[i] + B[i]\n    }\n}\n"


def vadd():
    """C = A + B on blocks of 256 threads, for a free size N."""
    body = (
        define("i", (256, "i_block"), (32, "i_warp"), (1, "i_lane")),
        Guard(
            condition=less("i", "N"),
            body=(
                statement(
                    "C", ("i",), op("add", read("A", "i"), read("B", "i")), span=span_of(VADD, "C[i] =", "vadd.tex")
                ),
            ),
        ),
    )
    block = launch(
        "vadd_0",
        body,
        grid=(binary("ceildiv", "N", 256), 1, 1),
        block=256,
        digits=(
            digit("i_block", "grid.x", binary("ceildiv", "N", 256), weight=256),
            digit("i_warp", "warp", 8, weight=32),
            digit("i_lane", "lane", 32),
        ),
    )
    return plan(
        (block,), (tensor("A", "N"), tensor("B", "N"), tensor("C", "N")), sizes=("N",), name="vadd", source="vadd.tex"
    )


MATMUL = """kernel matmul(A: f16[M, K], B: f16[K, N], C: f32[M, N]) {
    par M i, N j {
        C[i, j] = sum K k { A[i, k] * B[k, j] }
    }
}
"""


def matmul(m=48, n=40, k=24):
    """C = A B with bound sizes, one element per thread of a 4 x 32 block, f16 operands."""
    init, acc = span_of(MATMUL, "C[i, j] =", "matmul.tex"), span_of(MATMUL, "A[i, k] *", "matmul.tex")
    a, b = (cast(read("A", "i", "k", dtype=F16), F32), cast(read("B", "k", "j", dtype=F16), F32))
    body = (
        define("i", (4, "i_block"), (1, "i_warp")),
        define("j", (32, "j_block"), (1, "j_lane")),
        Guard(
            condition=ast.And(parts=(less("i", m), less("j", n))),
            body=(
                statement("C", ("i", "j"), const(0.0), span=init),
                Loop(
                    index="k", extent=number(k), span=acc,
                    body=(statement("C", ("i", "j"), op("mul", a, b), op=ast.AccOp.ADD, id="S1", span=acc),),
                ),
            ),
        ),
    )  # fmt: skip
    block = launch(
        "matmul_0",
        body,
        grid=(-(-n // 32), -(-m // 4), 1),
        block=128,
        digits=(
            digit("j_block", "grid.x", -(-n // 32), weight=32, of="j"),
            digit("i_block", "grid.y", -(-m // 4), weight=4),
            digit("i_warp", "warp", 4),
            digit("j_lane", "lane", 32, of="j"),
        ),
    )
    tensors = (tensor("A", m, k, dtype=F16), tensor("B", k, n, dtype=F16), tensor("C", m, n))
    return plan((block,), tensors, name="matmul", source="matmul.tex")


REVERSE = """kernel reverse(A: f32[4, 64], C: f32[4, 64]) {
    par 4 b #grid {
        new shared tile: f32[64]
        par 64 i #block { tile[i] = A[b, i] }
        par 64 j #block { C[b, j] = tile[63 - j] }
    }
}
"""


def reverse(*, barrier=True, shift=0, condition=None, scope=Scope.BLOCK, reach=63, plain=True):
    """Every block reverses its row through shared memory; parts of it can be broken for the mutation tests."""
    first, second = span_of(REVERSE, "tile[i] =", "reverse.tex"), span_of(REVERSE, "C[b, j] =", "reverse.tex")
    row = "b" if plain else 0
    inner = (
        define("i", (32, "i_warp"), (1, "i_lane")),
        statement("tile", ("i",), read("A", "b", "i"), span=first),
        define("j", (32, "i_warp"), (1, "i_lane")),
        statement("C", (row, "j"), read("tile", binary("-", reach + shift, "j")), id="S1", span=second),
    )
    body = (define("b", (1, "b_block")), Fresh(buffer="tile"), *inner)
    waits = ()
    if barrier:
        waits = (Barrier(scope=scope, orders=(order("S0", "S1", "tile", first, second, scope),)),)
    if condition is not None:
        waits = (Guard(condition=condition, body=waits),)
    body = (*body[:4], *waits, *body[4:])
    block = launch(
        "reverse_0",
        body,
        grid=(4, 1, 1),
        block=64,
        digits=(
            digit("b_block", "grid.x", 4, of="b"),
            digit("i_warp", "warp", 2, weight=32),
            digit("i_lane", "lane", 32),
        ),
        tensors=(block_tensor("tile", 64),),
    )
    return plan(
        (block,),
        (tensor("A", 4, 64), tensor("C", 4, 64)),
        name="reverse",
        source="reverse.tex",
    )


@pytest.fixture(scope="session")
def build():
    """The builders above, as one namespace."""
    return SimpleNamespace(
        number=number, index=index, size=size, binary=binary, read=read, op=op, cast=cast, const=const, less=less,
        tensor=tensor, block_tensor=block_tensor, digit=digit, define=define, statement=statement, attr=attr, plan=plan,
        launch=launch, span_of=span_of, vadd=vadd, matmul=matmul, reverse=reverse, order=order, I32=I32,
    )  # fmt: skip
