"""Whatever the parser accepts, the checker turns into kernels or into a TExprError, and never into a traceback."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texpr.grammar.bind import bind_sizes, free_sizes
from texpr.grammar.check import check, show
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.parser import parse
from texpr.grammar.source import SourceText

PROGRAMS = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent.parent / "errors").glob("check_*.tex"))
    if "too_deep" not in path.name
]
WORDS = [
    "par",
    "seq",
    "if",
    "else",
    "let",
    "new",
    "reg",
    "fn",
    "kernel",
    "size",
    "N",
    "M",
    "i",
    "j",
    "k",
    "A",
    "B",
    "C",
    "f32",
    "f16",
    "i32",
    "bool",
    "0",
    "1",
    "2",
    "0.5",
    "true",
    "sum",
    "maximum",
    "select",
    "max",
    "atomic",
    "return",
    "out",
    "inout",
    "in",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ";",
    "=",
    "+=",
    "max=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "<",
    "and",
    "or",
    "not",
    "#tile(2)",
    "#grid",
    "..",
    "exp",
    "gelu",
]


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
    for _ in range(150):
        survives(mutated(random_.choice(PROGRAMS), random_))


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
@given(st.lists(statements(), min_size=1, max_size=4), st.booleans())
def test_generated_programs_are_checked_or_refused(body: list[str], bare: bool) -> None:
    inner = "\n".join(body)
    functions = "fn g(x: T) { return x + x }\nfn h(a: T[n], x: T) { let y = x\n seq n i { anchor a[i] * x } }\n"
    head = "" if bare else "kernel f(A: f32[N, M], B: f16[N], n: i32[N], s: i8) {\n"
    survives(f"{functions}{head}par N i {{\n{inner}\n}}\n{'' if bare else '}'}")
