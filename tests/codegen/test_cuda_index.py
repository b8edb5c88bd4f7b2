"""C++ of random index expressions has their values, and no `int` and no i64 overflows on the way."""

import subprocess
from pathlib import Path
from random import Random

import pytest
from index_expressions import meaning, random_expression

from texpr.codegen.cuda.index import IndexScope, term, variable
from texpr.codegen.toolchain import INCLUDE, find_gxx
from texpr.grammar.ast import IndexBinary, IndexExpr
from texpr.grammar.index.expr import const
from texpr.grammar.index.interval import bounds
from texpr.grammar.index.value import index_value

# An int below 2^31, an int of either sign, and two sizes: one of 64 bits, one that is small.
SPANS = {"i": (0, (1 << 31) - 1), "j": (-70_000, 70_000), "N": (0, 1 << 40), "M": (0, 1000)}
RANGES = {name: (const(low), const(high)) for name, (low, high) in SPANS.items()}
SCOPE = IndexScope(
    {"i": variable("i", *SPANS["i"]), "j": variable("j", *SPANS["j"])},
    {"N": variable("N", *SPANS["N"], wide=True), "M": variable("M", *SPANS["M"], wide=True)},
)
COUNT, POINTS = 400, 12
MAIN = """
#define TX_HOST 1
#include "texpr/math.cuh"
#include <cstdio>
{functions}
struct Case {{
  int i, j;
  tx::i64 N, M, want, (*f)(int, int, tx::i64, tx::i64);
  const char *of;
}};
static const Case cases[] = {{ {cases} }};
int main() {{
  int wrong = 0;
  for (const Case &c : cases) {{
    const tx::i64 got = c.f(c.i, c.j, c.N, c.M);
    if (got != c.want && ++wrong < 5)
      std::printf("%s at i=%d j=%d N=%lld M=%lld: %lld, not %lld\\n", c.of, c.i, c.j, c.N, c.M, got, c.want);
  }}
  return wrong != 0;
}}
"""


def stays_in_64_bits(e: IndexExpr) -> bool:
    """What may leave 64 bits is refused before emission (E0307)."""
    stack = [e]
    while stack:
        node = stack.pop()
        known = bounds(node, RANGES)
        assert known is not None
        if not all(-(1 << 62) <= int(index_value(end, {})) <= 1 << 62 for end in known):
            return False
        if isinstance(node, IndexBinary):
            stack += (node.left, node.right)
    return True


def literal(value: int) -> str:
    return f"({value + 1}ll - 1)" if value == -(1 << 63) else f"{value}ll"


@pytest.mark.gxx
def test_cpp_means_the_expression_and_nothing_overflows(tmp_path: Path, need_gxx: None) -> None:
    random = Random(7)
    functions: list[str] = []
    cases: list[str] = []
    while len(functions) < COUNT:
        e = random_expression(random, 4)
        if not stays_in_64_bits(e):
            continue
        made = term(e, SCOPE)
        number = len(functions)
        functions.append(f"static tx::i64 f{number}(int i, int j, tx::i64 N, tx::i64 M) {{ return {made.text}; }}")
        for _ in range(POINTS):
            point = {n: random.choice((low, high, random.randint(low, high))) for n, (low, high) in SPANS.items()}
            want = meaning(e, point)
            assert made.low <= want <= made.high
            given = ", ".join(literal(point[name]).removesuffix("ll") for name in ("i", "j"))
            given += f", {literal(point['N'])}, {literal(point['M'])}, {literal(want)}"
            cases.append(f'{{ {given}, f{number}, "{made.text}" }}')
    source = tmp_path / "index.cpp"
    source.write_text(MAIN.format(functions="\n".join(functions), cases=",\n".join(cases)), encoding="utf-8")
    compiler = find_gxx()
    assert compiler is not None
    sanitized = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-std=c++17", "-O0", "-w"]
    made_by = [compiler.path, *sanitized, "-I", str(INCLUDE), "-o", str(tmp_path / "index"), str(source)]
    subprocess.run(made_by, check=True, capture_output=True)
    done = subprocess.run([str(tmp_path / "index")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
