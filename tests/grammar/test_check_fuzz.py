"""Whatever the parser accepts, the checker turns into kernels or into a TExprError, and never into a traceback."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texpr.grammar import ast
from texpr.grammar.check.bind import bind_sizes, free_sizes
from texpr.grammar.check.stage import check, show
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import leaves
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse
from texpr.grammar.types import BOOL, I64, compute_type

PROGRAMS = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent.parent / "errors").glob("check_*.tex"))
    if "too_deep" not in path.name
]
VALID = """
import std.mma
size BM = 4
fn tile(a: T[m, k], b: T[k, n], out c: f32[m, n]) {
    par m i, n j { c[i, j] = sum k q { a[i, q] * b[q, j] } }
}
fn norm(a: T[n]): f32 {
    let s = sum n i { a[i] * a[i] }
    return sqrt(s)
}
kernel f(A: f16[M, K], B: f16[K, N], C: f32[M, N], v: f32[M], alpha: f32, q: i8[M], h: u32[16]) where M % BM == 0 {
    par M / BM b { tile(A[b * BM:BM, 0:K], B, C[b * BM:BM, 0:N]) }
    par M i #tile(32) {
        v[i] = alpha * norm(A[i, 0:K]) + f32(i) - gelu(v[i])
        q[i] += 1
        atomic h[q[i] % 16] += 1
        new acc: f32[4]
        seq 4 e { acc[e] = 0.0 }
        let k0 = min(i, K - 1)
        if i < 3 and A[i, k0] > 0.0 { v[i] = acc[1] } else if v[i] > 0.5 { v[i] = max(v[i], 1) }
        v[i] = select(i > 0 and v[i] < 1.0, C[i - 1, 0], relu(v[i]))
    }
}
kernel g(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) { mma_m16n8k16(A, B, C) }
"""
WORD_TEXT = """
par seq if else let new reg fn kernel size N M i j k A B C f32 f16 i32 bool 0 1 2 0.5 true sum maximum select max
atomic return out inout in ( ) [ ] { } , : ; = += max= + - * / % == < and or not #tile(2) #grid .. exp gelu
"""
WORDS = WORD_TEXT.split()


def rules(kernel: ast.Kernel) -> None:
    """The docstring of ast.py, asserted: types agree, names are unique and in scope, ranks fit."""
    buffers = {b.name: b for b in kernel.buffers}
    sizes = {s.name for s in kernel.sizes}
    assert len(buffers) == len(kernel.buffers)
    taken: list[str] = [*buffers, *sizes]
    numbers: list[str] = []

    def index(e: ast.IndexExpr, scope: frozenset[str]) -> None:
        for leaf in leaves(e):
            if isinstance(leaf, ast.IndexVar):
                assert leaf.name in scope
            elif isinstance(leaf, ast.SizeVar):
                assert leaf.name in sizes

    def place(buffer: str, subscripts: tuple[ast.Subscript, ...], scope: frozenset[str]) -> None:
        assert len(subscripts) == len(buffers[buffer].shape)
        for subscript in subscripts:
            if isinstance(subscript, ast.Gather):
                assert subscript.value.dtype == I64
                value(subscript.value, scope)
            else:
                index(subscript, scope)

    def condition(c: ast.Condition, scope: frozenset[str]) -> None:
        for leaf in leaves(c):
            index(leaf, scope)

    def value(e: ast.Expr, scope: frozenset[str]) -> None:
        match e:
            case ast.Const():
                if e.dtype.is_integer:
                    low, high = e.dtype.integer_range
                    assert isinstance(e.value, int) and low <= e.value <= high
                else:
                    assert isinstance(e.value, float if e.dtype.is_float else bool)
            case ast.IndexValue():
                index(e.index, scope)
            case ast.ConditionValue():
                condition(e.condition, scope)
            case ast.Read():
                assert e.dtype == buffers[e.buffer].dtype
                place(e.buffer, e.subscripts, scope)
            case ast.Op():
                types = {arg.dtype for arg in e.args}
                assert len(types) == 1
                (found,) = types
                assert found == compute_type(found)
                assert e.dtype == (BOOL if e.fn in ast.COMPARISONS else found)
                assert e.fn not in (ast.Fn.DIV,) or found.is_float
                assert e.fn not in (ast.Fn.FLOORDIV, ast.Fn.MOD, ast.Fn.SHL, ast.Fn.BITAND) or found.is_integer
                for arg in e.args:
                    value(arg, scope)
            case ast.Cast():
                value(e.operand, scope)
            case ast.Select():
                assert e.then.dtype == e.other.dtype == e.dtype
                if isinstance(e.condition, ast.Condition):
                    condition(e.condition, scope)
                else:
                    assert e.condition.dtype == BOOL
                    value(e.condition, scope)
                value(e.then, scope)
                value(e.other, scope)

    def block(body: tuple[ast.Stmt, ...], scope: frozenset[str]) -> None:
        for s in body:
            match s:
                case ast.Par() | ast.Seq():
                    taken.append(s.index)
                    index(s.extent, scope)
                    block(s.body, scope | {s.index})
                case ast.If():
                    if isinstance(s.condition, ast.Read):
                        assert s.condition.dtype == BOOL
                    else:
                        condition(s.condition, scope)
                    block(s.then, scope)
                    block(s.orelse, scope)
                case ast.Bind():
                    numbers.append(s.id)
                    assert s.value.dtype == buffers[s.buffer].dtype
                    place(s.buffer, s.subscripts, scope)
                    value(s.value, scope)
                case ast.Accumulate() | ast.Atomic():
                    numbers.append(s.id)
                    assert s.value.dtype == compute_type(s.value.dtype)
                    place(s.buffer, s.subscripts, scope)
                    value(s.value, scope)
                case ast.Anchor():
                    numbers.append(s.id)
                    value(s.value, scope)
                case ast.New():
                    assert buffers[s.buffer].role is ast.Role.LOCAL
                case ast.Intrinsic():
                    block(s.reference, scope)
                    block(s.hardware, scope)
                case ast.Asm():
                    numbers.append(s.id)

    block(kernel.body, frozenset())
    assert len(set(taken)) == len(taken)
    assert numbers == [f"S{number}" for number in range(len(numbers))]


def survives(text: str) -> bool:
    """Whether a text is accepted; any exception but a TExprError is a failure."""
    try:
        module = parse(SourceText("t.tex", text))
        kernels = check(module)
    except TExprError as refused:
        assert refused.diagnostics, "a refusal says why"
        return False
    for kernel in kernels:
        show(kernel)
        rules(kernel)
        for value in (0, 1, 7):
            try:
                assert free_sizes(bind_sizes(kernel, dict.fromkeys(free_sizes(kernel), value))) == ()
            except TExprError as refused:
                assert all(d.code == "E0211" for d in refused.diagnostics)
    return True


def mutated(text: str, random_: random.Random) -> str:
    """The text with a few of its words dropped, doubled, swapped or replaced."""
    words = text.replace("(", " ( ").replace(")", " ) ").replace("[", " [ ").replace("]", " ] ").split(" ")
    for _ in range(random_.randint(1, 3)):
        place = random_.randrange(len(words))
        match random_.randrange(4):
            case 0:
                del words[place]
            case 1:
                words.insert(place, random_.choice(words))
            case 2:
                words[place] = random_.choice(WORDS)
            case _:
                other = random_.randrange(len(words))
                words[place], words[other] = words[other], words[place]
        if not words:
            break
    return " ".join(words)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_programs_are_checked_or_refused(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(100):
        survives(mutated(random_.choice(PROGRAMS), random_))
    accepted = sum(survives(mutated(VALID, random_)) for _ in range(60))
    assert accepted > 0, "some mutations are programs"


KERNELS = sorted((Path(__file__).parent.parent / "kernels").glob("*.tex"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_core_of_every_kernel_follows_the_rules(path: Path) -> None:
    assert survives(path.read_text(encoding="utf-8"))


def test_the_program_that_is_mutated_is_accepted() -> None:
    assert survives(VALID)


def test_the_deepest_text_is_checked_without_recursion_errors() -> None:
    loops = "".join(f"seq 1 k{d} {{ " for d in range(60))
    value = "(" * 60 + "A[i]" + " + 1.0)" * 60 + " + 1.0" * 60
    assert survives("kernel f(A: f32[N]) { par N i { " + loops + f"A[i] = {value} " + "} " * 60 + "} }")


NAMES = st.sampled_from(["A", "B", "n", "s", "i", "j", "N", "M", "t", "v", "relu", "x"])
SUBSCRIPTS = st.sampled_from(["i", "j", "i + 1", "N - 1 - i", "n[i]", "i * j", "i / 2", "0:4", "i % N", "1.5"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 2))
    inner = expressions(depth=depth - 1) if depth else st.just("1")
    match kind:
        case 0:
            return draw(st.sampled_from(["1", "0", "0.5", "true", "inf", "0x10", "300", "4294967296"]))
        case 1:
            return draw(NAMES)
        case 2:
            count = draw(st.integers(1, 2))
            return f"{draw(NAMES)}[{', '.join(draw(SUBSCRIPTS) for _ in range(count))}]"
        case 3 | 4:
            op = draw(st.sampled_from(["+", "-", "*", "/", "%", "<", "==", "and", "or"]))
            return f"({draw(inner)} {op} {draw(inner)})"
        case 5:
            return f"{draw(st.sampled_from(['-', 'not ']))}({draw(inner)})"
        case 6:
            name = draw(st.sampled_from(["exp", "abs", "f16", "i8", "u32", "bool", "relu", "gelu", "floor", "g"]))
            return f"{name}({draw(inner)})"
        case 7:
            name = draw(st.sampled_from(["min", "max", "bitand", "shl", "pow", "ceildiv"]))
            return f"{name}({draw(inner)}, {draw(inner)})"
        case 8:
            return f"select({draw(inner)}, {draw(inner)}, {draw(inner)})"
        case _:
            return f"{draw(st.sampled_from(['sum', 'prod', 'maximum']))} N q {{ {draw(inner)} }}"


@st.composite
def statements(draw: st.DrawFn, depth: int = 2) -> str:
    value = draw(expressions())
    match draw(st.integers(0, 9 if depth else 6)):
        case 0 | 1:
            op = draw(st.sampled_from(["=", "+=", "-=", "max="]))
            return f"{draw(NAMES)}[{draw(SUBSCRIPTS)}] {op} {value}"
        case 2:
            return f"let {draw(st.sampled_from(['v', 'w', 'z']))} = {value}"
        case 3:
            return f"new t: {draw(st.sampled_from(['f32', 'i8', 'bool', 'u32', 'T']))}[{draw(SUBSCRIPTS)}]"
        case 4:
            return f"reg t{draw(st.integers(0, 3))} = {value}"
        case 5:
            return f"atomic {draw(NAMES)}[{draw(SUBSCRIPTS)}] += {value}"
        case 6:
            return f"h({draw(NAMES)}, {value})"
        case 7:
            return f"if {value} {{ {draw(statements(depth=depth - 1))} }}"
        case 8:
            return f"par {draw(SUBSCRIPTS.filter(lambda s: ':' not in s))} j {{ {draw(statements(depth=depth - 1))} }}"
        case _:
            return f"seq {draw(expressions(depth=1))} |k| {{ {draw(statements(depth=depth - 1))} }}"


@settings(max_examples=300, deadline=None)
@given(st.lists(statements(), min_size=1, max_size=2), st.booleans())
def test_generated_programs_are_checked_or_refused(body: list[str], bare: bool) -> None:
    inner = "\n".join(body)
    functions = "fn g(x: T) { return x + x }\nfn h(a: T[n], x: T) { let y = x\n seq n i { anchor a[i] * x } }\n"
    head = "" if bare else "kernel f(A: f32[N, M], B: f16[N], n: i32[N], s: i8) {\n"
    survives(f"{functions}{head}par N i {{\n{inner}\n}}\n{'' if bare else '}'}")
