"""Random Python functions, in the language and far outside it, for the front end's promise: a module or a TExprError.

    for text in PythonFunctions(seed=7).texts(10_000): ...

Every text compiles as Python. `python tests/properties/python_functions.py 10000` runs that many and says what came.
"""

import ast
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

HEADER = '''"""Functions made by python_functions.py."""

import math
import texpr.language as tx
from texpr.language import *
from types import SimpleNamespace

BM, EPS, DEBUG, NAME, TABLE, HUGE = 64, 1e-6, True, "N", [1, 2], 1 << 70


def plain(x):
    return x


def doubled(x: f32) -> f32:
    return x * 2


helper = SimpleNamespace(__texpr_fn__=doubled)
'''

NAMES = ["i", "j", "k", "A", "B", "C", "D", "M", "N", "K", "x", "y", "s", "t", "n", "BM", "EPS"]
ODD_NAMES = [
    "HUGE",
    "NAME",
    "TABLE",
    "plain",
    "helper",
    "par",
    "exp",
    "f32",
    "tx",
    "math",
    "size",
    "out",
    "größe",
    "_",
    "inf",
    "print",
]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "@", "and", "or", "<", "<=", "==", "!=", "is",
          "in", "not in"]  # fmt: skip
FUNCTIONS = ["exp", "max", "min", "abs", "f32", "i32", "round", "select", "helper", "gelu", "tx.sqrt", "ceildiv",
             "plain", "sum", "math.exp", "prod", "par", "new", "std.mma.f", "fragment", "print", "x"]  # fmt: skip
REDUCTIONS = ["sum", "prod", "max", "min", "exp"]
UPDATES = ["=", "=", "+=", "-=", "*=", "/=", "|="]
TF32 = '"#tf32"'
STRINGS = ['"N"', '"M - 1"', "'1..N'", '"#tile(8, 8)"', '"#unroll"', 'r"N"', '"ceildiv(N, 8)"', '"N" "M"', '"N\\x41"',
           '"#tile("', '"N j"', '"("', '""', '" "', '"--"', '"#"', '"{}"', '"N |i| {} par M"', '"é"', '"\\n"', '"a[i]"',
           '"true"', '"out"', '"0x10"', '"99999999999999999999999"', '"#stages(3) #ordered"', '"""N"""']  # fmt: skip
NUMBERS = ["0", "1", "2", "16", "0x1F", "0b11", "1_000", "1.5", "1e-6", "1.", ".5", "1e999", "3j", "10**3", "True",
           "None", "...", "b'x'", "18446744073709551616", "'text'", "f'{i}'"]  # fmt: skip
ANNOTATIONS = ['f32["N"]', 'f16["M", "K"]', "f32", "i32", 'inp(f32["N"], "#align(4)")', 'out(f32["M", 8])', '"f32[N]"',
               "f32[BM]", 'inout(bf16["N - 1"])', "float", "T", '"f32["', "[1]", 'f32["N +"]', 'tx.f32["N"]',
               '"inp(f16[\'M\'])"', 'i8["N", "#align(2)"]', "f32[()]", 'f32["N":2]']  # fmt: skip


class PythonFunctions:
    """A stream of function texts; equal seeds give equal streams."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.wild = True
        self.made = 0

    def texts(self, count: int) -> Iterator[str]:
        """`count` texts of one function each, called `f`, all of which compile."""
        made = 0
        while made < count:
            self.wild = self.random.random() < 0.5
            text = self.function()
            if self.random.random() < 0.2:
                text = mutated(text, self.random)
            if _is_one_function(text):
                made += 1
                yield text

    def often(self, likely: float) -> bool:
        """Whether to take the common way; a function that is not wild takes it wherever it is far likelier."""
        return (not self.wild and likely > 0.8) or self.random.random() < likely

    def pick(self, choices: list[str]) -> str:
        return self.random.choice(choices)

    def name(self) -> str:
        return self.pick(NAMES if self.often(0.93) else ODD_NAMES)

    def function_name(self) -> str:
        return self.pick(FUNCTIONS[:12] if self.often(0.9) else FUNCTIONS)

    # ---- expressions ----

    def expression(self, depth: int = 0) -> str:
        if depth > 4 or self.often(0.3):
            return self.name() if self.often(0.6) else self.pick(NUMBERS[:10] if self.often(0.85) else NUMBERS)
        sub = partial(self.expression, depth + 1)
        common = [
            lambda: f"{sub()} {self.pick(BINARY[:4] if self.often(0.8) else BINARY)} {sub()}",
            lambda: f"({sub()} {self.pick(BINARY[:4] if self.often(0.8) else BINARY)} {sub()})",
            lambda: f"({self.pick(['-', '+', 'not '] if self.often(0.9) else ['~'])}{sub()})",
            lambda: f"({sub()} {self.pick(['<', '<=', '==', '!=', '>'])} {sub()})",
            lambda: self.view(depth + 1),
            lambda: self.view(depth + 1),
            lambda: f"{self.function_name()}({', '.join(sub() for _ in range(self.random.randint(0, 3)))})",
            lambda: f"({sub()} if {sub()} else {sub()})",
            lambda: f"{self.pick(REDUCTIONS[:4] if self.often(0.9) else REDUCTIONS)}({sub()} for {self.head('seq')})",
        ]
        rare = [
            lambda: f"{sub()} < {sub()} < {sub()}",
            lambda: f"(lambda q: {sub()})",
            lambda: f"[{sub()} for q in {sub()}]",
            lambda: f"{{{sub()}: {sub()} for q in {sub()}}}",
            lambda: f"({sub()}, {sub()})",
            lambda: f"[{sub()}]",
            lambda: f"{{{sub()}}}",
            lambda: f"(w := {sub()})",
            lambda: f"f'{{{self.name()}}}'",
            lambda: f"{self.name()}.{self.pick(['T', 'shape', 'a', 'par', 'pi'])}",
            lambda: f"{self.pick(FUNCTIONS)}(*{self.name()}, key={sub()}, **{self.name()})",
            lambda: f"{sub()}({sub()})",
            lambda: f"({sub()})[{sub()}]",
            lambda: "(yield)",
            lambda: f"(yield from {self.name()})",
            lambda: f"sum({sub()} for a, b in seq({self.arguments(2)}) for c in seq(2) if {sub()})",
            lambda: self.pick(STRINGS),
            lambda: "(" * 100 + self.name() + ")" * 100,
            lambda: " + ".join([self.name()] * self.random.choice([100, 140])),
        ]
        return self.random.choice(common if self.often(0.94) else rare)()

    def view(self, depth: int) -> str:
        parts = [self.subscript(depth) for _ in range(self.random.randint(1, 3))]
        return (
            f"{self.pick(['A', 'B', 'C', 't', 'fragment', 'x'] if self.often(0.3) else ['A', 'B'])}[{', '.join(parts)}]"
        )

    def subscript(self, depth: int) -> str:
        if self.often(0.85):
            return self.expression(depth)
        if self.often(0.85):
            return f"{self.expression(depth)}:{self.expression(depth)}"
        start, stop = self.expression(depth), self.expression(depth)
        return self.pick([f"{start}:{stop}", f"{start}:8", f":{stop}", f"{start}:", "::2", "...", f"*{self.name()}"])

    # ---- loops ----

    def arguments(self, count: int) -> str:
        parts = [
            self.pick(STRINGS[:3]) if self.often(0.5) else self.expression(3) if self.often(0.7) else "range(1, N)"
            for _ in range(count)
        ]
        if self.often(0.3):
            parts.append(self.pick(['"#tile(8, 8)"', '"#unroll"'] if self.often(0.85) else STRINGS))
        return ", ".join(parts)

    def head(self, word: str) -> str:
        indices = self.random.sample(["i", "j", "k", "l", "m"], self.random.choice([1, 1, 1, 2, 3]))
        count = len(indices) if self.often(0.95) else 2
        if self.often(0.04):
            word = self.pick(["range", "tx.par", "plain", "seq.par", "atomic"])
        target = ", ".join(indices) if self.often(0.97) else self.pick(["A[0]", "(i, (j, k))", "i, *j", "A.x"])
        return f"{target} in {word}({self.arguments(count)})"

    # ---- statements ----

    def block(self, indent: str, depth: int) -> str:
        count = self.random.randint(1, 3 if depth else 6)
        return "".join(self.remark() + self.statement(indent, depth) for _ in range(count)) + self.remark()

    def remark(self) -> str:
        """Nothing, mostly; or an empty line, or a comment at any depth."""
        if self.random.random() < 0.85:
            return ""
        return self.pick(["\n", "\n\n", " " * self.random.randint(0, 12) + "# a remark -- of some kind \n"])

    def statement(self, indent: str, depth: int) -> str:
        inner = indent + self.pick(["    ", "  ", "\t"] if self.often(0.1) else ["    "])
        body = partial(self.block, inner, depth + 1)
        value = self.expression
        simple = [
            lambda: f"{self.view(2)} {self.pick(UPDATES[:5] if self.often(0.9) else UPDATES)} {value()}",
            lambda: f"{self.view(2)} = {value()}",
            lambda: f"{self.local()} = {value()}",
            lambda: f"{self.local()} = max({self.pick(['s', 't', 'x'])}, {value(2)})",
            lambda: f"{self.pick(['s', 't', 'n'])} {self.pick(['+=', '*='])} {value()}",
            lambda: f"{self.local()} = new({self.new_arguments()})",
            lambda: f"{self.local()} = reg({self.pick(['f32[8], ', 'f16, ', ''])}{value(2)})",
            lambda: f"anchor({value(2)})",
            lambda: f"helper({value(2)})",
            lambda: f"asm({self.pick(STRINGS[:3])}, in_=({value(3)},), inout={value(3)}, clobber='memory')",
            lambda: "pass",
        ]
        odd = [
            lambda: f"return {value(2)}",
            lambda: f"del {self.name()}",
            lambda: f"assert {value(2)}",
            lambda: f"x, y = {value(2)}, {value(2)}",
            lambda: f"a = b = {value(2)}",
            lambda: f"z: f32 = {value(2)}",
            lambda: "import math",
            lambda: "global G",
            lambda: "break",
            lambda: "continue",
            lambda: f"raise {value(2)}",
            lambda: value(),
            lambda: self.pick(STRINGS),
            lambda: f"A.x = {value(2)}",
            lambda: f"fragment[A, table.c, i] = {value(2)}",
        ]
        compound = [
            lambda: f"for {self.head(self.pick(['par', 'par', 'seq', 'fully_par']))}:\n{body()}",
            lambda: f"for {self.head('par')}:\n{body()}",
            lambda: f"if {value(2)}:\n{body()}",
            lambda: f"if {value(2)}:\n{body()}{indent}else:\n{body()}",
            lambda: f"if {value(2)}:\n{body()}{indent}elif {value(2)}:\n{body()}{indent}else:\n{body()}",
            lambda: f"with atomic:\n{inner}{self.view(2)} += {value(2)}\n",
            lambda: f"with attr({TF32 if self.often(0.9) else self.pick(STRINGS)}):\n{inner}A[0] = {value(2)}\n",
        ]
        strange = [
            lambda: f"with atomic:\n{body()}",
            lambda: f"with attr({self.pick(STRINGS)}):\n{body()}",
            lambda: f"while {value(2)}:\n{body()}",
            lambda: f"try:\n{body()}{indent}finally:\n{body()}",
            lambda: f"try:\n{body()}{indent}except ValueError as e:\n{body()}",
            lambda: f"for {self.head('par')}:\n{body()}{indent}else:\n{body()}",
            lambda: f"with attr('#tf32') as a, atomic, open('x'):\n{body()}",
            lambda: f"def g(q={value(3)}):\n{body()}",
            lambda: f"class G({self.name()}):\n{body()}",
            lambda: f"match {value(2)}:\n{inner}case [{self.pick(['a', '*a'])}]:\n{self.block(inner + '    ', 5)}",
            lambda: f"if {value(2)}:\n{body()}" + f"{indent}elif i:\n{inner}pass\n" * self.random.choice([5, 80]),
        ]
        if depth < 4 and self.often(0.4):
            return indent + self.random.choice(compound if self.often(0.95) else strange)()
        end = "\n" if self.often(0.9) else self.pick([" # comment ä\n", "; pass\n", "\n\n"])
        return indent + self.random.choice(simple if self.often(0.95) else odd)() + end

    def local(self) -> str:
        self.made += 1
        return f"v{self.made}" if self.often(0.85) else self.pick(["x", "y", "s", "t", "A", "n", "i", "size"])

    def new_arguments(self) -> str:
        if self.often(0.8):
            return self.pick(["f32", 'f16[16, 8], "shared"', 'i32["N"], "reg", "#align(4)"', "f32[BM, i]", "16"])
        return f"{self.expression(3)}, {self.pick(STRINGS)}"

    # ---- functions ----

    def function(self) -> str:
        names = self.random.sample(["A", "B", "C", "D", "n", "out"] if self.often(0.1) else ["A", "B", "C"], 3)
        likely = ANNOTATIONS[:6] if self.often(0.9) else ANNOTATIONS
        params = [f"{name}: {self.pick(likely)}" for name in names]
        if self.often(0.03):
            params.append(self.pick(["q", "q: f32 = 1", "*q", "*, q: f32", "**q", "*q: f32"]))
        word = "def" if self.often(0.99) else "async def"
        result = "" if self.often(0.95) else self.pick([" -> None", " -> f32", " -> 'f32[2]'"])
        name = "f"
        doc = "" if self.often(0.8) else '    """A docstring\n  of two lines."""\n'
        return f"{word} {name}({', '.join(params)}){result}:\n{doc}{self.block('    ', 0)}"


def _is_one_function(text: str) -> bool:
    """Whether a text compiles and is one definition of `f`, so that importing it runs nothing else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(HEADER + _indented_after_try(text), "made.py", "exec")
            body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef) and body[0].name == "f"


def mutated(text: str, choice: random.Random) -> str:
    """The text with a few of its characters or words changed, left out or doubled."""
    for _ in range(choice.randint(1, 3)):
        at = choice.randrange(len(text))
        end = min(len(text), at + choice.randint(0, 4))
        insert = choice.choice(
            ["", "", text[at:end] * 2, *"()[]:,.\"'#=+-*/%@\\\n ", " for ", " if ", "N", "0", "é", "\x0c"]
        )
        text = text[:at] + insert + text[end:]
    return text


def read_all(texts: list[str], folder: Path) -> Counter[str]:
    """Write the texts into a file of `folder`, import it, read each function as a kernel and as a fn; count what came.

    A module is printed and read back, and must be the same; every diagnostic must render.
    """
    import importlib.util

    from texpr.grammar.diagnostics import TExprError
    from texpr.grammar.python.function import Kind, parse_function
    from texpr.grammar.text.parser import parse_text
    from texpr.grammar.text.printer import print_module

    found: Counter[str] = Counter()
    kinds: dict[Kind, str] = {"kernel": "", "fn": "from __future__ import annotations\n"}
    for kind, postponed in kinds.items():
        path = folder / f"made_{len(list(folder.iterdir()))}.py"
        parts = [postponed, HEADER, "kept = []\n"]
        for text in texts:
            parts.append(_indented_after_try(text))
        path.write_text("".join(parts), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spec.loader.exec_module(module)
        for function in module.kept:
            try:
                tree = parse_function(function, kind=kind)
            except TExprError as failure:
                assert failure.diagnostics
                str(failure)
                found.update(d.code for d in failure.diagnostics[:1])
                for diagnostic in failure.diagnostics:
                    span = diagnostic.primary.span if diagnostic.primary is not None else None
                    assert span is None or 0 <= span.start <= span.end <= len(span.source.text)
                    diagnostic.to_json()
            else:
                found["module"] += 1
                printed = print_module(tree)
                try:
                    assert parse_text(printed, name=tree.name) == tree
                except (TExprError, AssertionError) as failure:
                    raise AssertionError(f"not the same after printing:\n{printed}") from failure
    return found


def _indented_after_try(text: str) -> str:
    """A definition that may raise when it is made, as a wrong annotation does."""
    lines = "".join(f"    {line}" for line in text.splitlines(keepends=True))
    return f"try:\n    pass\n\n{lines}\n    kept.append(f)\nexcept Exception as e:\n    pass\n"


def main(count: int, seed: int) -> None:
    import tempfile

    made = PythonFunctions(seed)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(0, count, 100):
            total += read_all(list(made.texts(min(100, count))), Path(folder))
    print(dict(total))


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
