"""ARCHITECTURE says what is touched to add something: a copy of the compiler where just that is touched has it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Edits = Mapping[str, Sequence[tuple[str, str]]]

INDEX_OPERATOR: Edits = {
    "grammar/index/operators.py": [
        ('    MAX = "max"\n', '    MAX = "max"\n    ROUNDUP = "roundup"\n'),
        (
            "}\nDIVISIONS =",
            "    IndexOp.ROUNDUP: Operator(\n"
            "        value=lambda a, b: -(-a // b) * b,\n"
            "        isl=lambda a, b: a.div(b).ceil().mul(b),\n"
            "        divides=True,\n"
            "        range=lambda a, b: (min(a[0], 0), max(a[1], 0) + max(b[1], 1) - 1),\n"
            '        cuda="round_up",\n'
            '        c_name="texpr_roundup",\n'
            '        c="{ return texpr_ceildiv(a, b) * b; }",\n'
            "    ),\n"
            "}\nDIVISIONS =",
        ),
    ],
    "codegen/include/texpr/math.cuh": [
        (
            "template <class T, IfValue<T> = 0>\nTX_FN T shl(",
            "template <class T>\nTX_FN T round_up(T a, T b) {\n  return wrap_mul(ceil_div(a, b), b);\n}\n"
            "template <class T, IfValue<T> = 0>\nTX_FN T shl(",
        )
    ],
}
INDEX_PROGRAM = '''
import numpy as np
import texpr

kernel = texpr.parse("""kernel pad(A: f32[N], B: f32[roundup(N, 8)]) {
    par roundup(N, 8) i {
        if i < N { B[i] = A[min(roundup(i, 4), N - 1)] } else { B[i] = 0.0 }
    }
}""")["pad"]
A = np.arange(13, dtype=np.float32)
want = [A[min(-(-i // 4) * 4, 12)] if i < 13 else 0 for i in range(16)]
for sizes in ({}, {"N": 13}):
    for run in (kernel.interpret, kernel.compile("cpu", **sizes), kernel.compile("cuda-host:sm_90a", **sizes)):
        B = np.zeros(16, np.float32)
        run(A, B)
        assert B.tolist() == want, (run, B)
assert "tx::round_up(" in kernel.compile("cuda:sm_80", stop_after="emit").source
'''

ATTRIBUTE: Edits = {
    "grammar/attributes.py": [
        (
            '    "unique": Spec(',
            '    "rounded": Spec(\n'
            '        on=STATEMENTS, mapped=STATEMENTS, form="#rounded", inherited=True, needs=Needs.PRODUCTS\n'
            "    ),\n"
            '    "unique": Spec(',
        )
    ],
    "grammar/permissions.py": [('not leaf.has("strict")', 'not leaf.has("strict") and not leaf.has("rounded")')],
}
ATTRIBUTE_PROGRAM = """
import texpr

def built(attribute, value="A[i] * 2.0 + 1.0", word=""):
    text = f"kernel f(A: f32[N], B: f32[N]) {attribute} {{ par N i {{ B[i] = {value} {word} }} }}"
    made = texpr.parse(text).only.compile("cuda:sm_80", stop_after="emit")
    return made.source, str(made.mapping)

assert "strict_mul" not in built("")[0]
assert "strict_mul" in built("#rounded")[0] and "strict_mul" in built("", word="#rounded")[0]
assert "`#rounded` (line 1) changes nothing: no statement adds a product" in built("#rounded", value="A[i]")[1]
try:
    texpr.parse("kernel f(A: f32[N]) { par N i #rounded { A[i] = 1.0 } }").only.core()
except texpr.TExprError as refused:
    assert "`#rounded` has no meaning on a `par`" in str(refused)
else:
    raise AssertionError("it stands on a statement only")
"""

EXPRESSION_OPERATOR: Edits = {
    "grammar/operators.py": [
        ('    COS = "cos"\n', '    COS = "cos"\n    CBRT = "cbrt"\n'),
        ('    "cos": _float(Fn.COS),\n', '    "cos": _float(Fn.COS),\n    "cbrt": _float(Fn.CBRT),\n'),
    ],
    "grammar/functions.py": [
        (
            "FLOAT_FUNCTIONS = {\n",
            "FLOAT_FUNCTIONS = {\n"
            "    Fn.CBRT: FloatFunction(np.cbrt, FunctionError(2, 2, 4), lambda r, v, b: 2.0 * np.cbrt(b[0])),\n",
        )
    ],
    "codegen/cpu/library.py": [
        (
            "def _floordiv(",
            "def _cbrt(x: Any) -> Any:\n    return np.cbrt(x)\n\n\ncbrt = inline(_cbrt)\n\n\ndef _floordiv(",
        ),
    ],
    "codegen/include/texpr/math.cuh": [
        ("TX_UNARY(tanh, tanh)\n", "TX_UNARY(tanh, tanh)\nTX_UNARY(cbrt, cbrt)\n"),
    ],
}
EXPRESSION_PROGRAM = """
import numpy as np
import texpr

kernel = texpr.parse("kernel roots(A: f32[N], C: f32[N]) { par N i { C[i] = cbrt(A[i]) + 1.0 } }")["roots"]
A = np.asarray([0.0, 8.0, -27.0, 2.0], np.float32)
reference = kernel.interpret(A, np.zeros(4, np.float32), float64=True)
for run in (kernel.interpret, kernel.compile("cpu"), kernel.compile("cuda-host:sm_90a")):
    C = np.zeros(4, np.float32)
    run(A, C)
    assert np.all(np.abs(C - reference.outputs["C"]) <= 4 * reference.bounds["C"]), (run, C)
    assert np.allclose(C, np.cbrt(A) + 1)
assert "tx::cbrt(" in kernel.compile("cuda:sm_80", stop_after="emit").source
"""

ATOM: Edits = {
    "polyhedral/mapped/atoms.py": [
        (
            "def mma(dtype: DType, sums: DType)",
            "def vote(target: Target) -> Atom:\n"
            '    """Every lane gets the number of lanes whose value is not 0."""\n'
            "    lanes = target.warp_size\n"
            "    term = Term(dim=0, stride=const(1), unit=Unit.LANE)\n"
            "    each = Layout(shape=(const(lanes),), terms=(term,))\n"
            "    same = Layout(shape=(), terms=(term,), copies=(lanes,))\n"
            '    return _atom("vote", Team.WARP, SM_80, ("lanes", "vote"), source=_held(F32, each), '
            "target=_held(F32, same))\n\n\n"
            "def mma(dtype: DType, sums: DType)",
        )
    ],
    "codegen/include/texpr/lanes.cuh": [
        (
            "// The value of lane `source` (0 to 31).\n",
            "TX_FN f32 vote(f32 x, Here = Here::now()) {\n"
            "  return static_cast<f32>(__popc(__ballot_sync(0xffffffffu, x != 0.0f)));\n}\n"
            "// The value of lane `source` (0 to 31).\n",
        )
    ],
    "codegen/include/texpr/host/lanes.hpp": [
        (
            "template <class T>\ninline T shuffle(T",
            "inline f32 vote(f32 x, Here here = Here::now()) {\n"
            "  struct Operands {\n    f32 x, count;\n  };\n  Operands mine{x, 0.0f};\n"
            "  const auto perform = [](Operands* const* all) {\n"
            "    for (int i = 0; i < 32; ++i) {\n"
            "      for (int j = 0; j < 32; ++j) all[i]->count += all[j]->x != 0.0f ? 1.0f : 0.0f;\n    }\n  };\n"
            '  host::gather(32, "vote", mine, perform, here);\n  return mine.count;\n}\n'
            "template <class T>\ninline T shuffle(T",
        )
    ],
}
ATOM_PROGRAM = """
import numpy as np
from texpr.codegen.host_run import HostArray, HostModule
from texpr.polyhedral.mapped import atoms
from texpr.polyhedral.target import parse_target

atom = atoms.vote(parse_target("cuda:sm_90a"))
text = f'''#include "{atom.wrapper.header}"
extern "C" __global__ void k(float* Y) {{
  const tx::Global<float> y(Y, "Y");
  y.store(tx::lane(), {atom.wrapper.function}(tx::lane() % 3 == 0 ? 1.0f : 0.0f));
}}
TX_EXPORT(k);
'''
y = np.zeros(32, np.float32)
assert HostModule(text, werror=True).launch("k", [HostArray(y.ctypes.data, y.nbytes)], (1, 1, 1), 32) is None
assert np.all(y == 11)
"""

MONOID: Edits = {
    "polyhedral/mapped/monoids.py": [
        (
            '    _scalar("Product",',
            '    _scalar("Nearest", lambda dtype: np.inf, lambda a, b: np.where(abs(b) < abs(a), b, a), _exact),\n'
            '    _scalar("Product",',
        )
    ],
    "codegen/include/texpr/monoid.cuh": [
        (
            "template <class T>\nstruct Product :",
            "template <class T>\nstruct Nearest : Scalar<T, Min> {\n"
            "  static constexpr bool kSymmetric = false;\n"
            "  static TX_FN T identity() { return highest<T>(); }\n"
            "  static TX_FN T combine(T a, T b) { return abs(b) < abs(a) ? b : a; }\n};\n"
            "template <class T>\nstruct Product :",
        )
    ],
    "codegen/cpu/monoids.py": [
        (
            "def _product(kind: Any)",
            "def _nearest(kind: Any) -> Functions:\n"
            "    return _scalar(inline(lambda a, b: b if abs(b) < abs(a) else a))\n\n\n"
            "def _product(kind: Any)",
        ),
        ('    "Product": _product,\n', '    "Nearest": _nearest,\n    "Product": _product,\n'),
    ],
}
MONOID_PROGRAM = """
import functools
import numpy as np
from texpr.codegen.cpu.monoids import numba_monoid
from texpr.codegen.host_run import HostArray, HostModule
from texpr.grammar.types import F32
from texpr.polyhedral.mapped.monoids import MONOIDS

x = np.asarray([3 - 2 * k for k in range(16)] + [40 + k for k in range(16)], np.float32)
monoid, compiled = MONOIDS["Nearest"], numba_monoid("Nearest", F32)
partials = [monoid.lift(value, 0) for value in x]
assert monoid.result(functools.reduce(monoid.combine, partials))[0] == 1
partials = [compiled.lift(value, 0) for value in x]
assert compiled.result(functools.reduce(compiled.combine, partials, compiled.identity))[0] == 1
text = '''#include "texpr/lanes.cuh"
#include "texpr/monoid.cuh"
extern "C" __global__ void k(float* Y) {
  const tx::Global<float> y(Y, "Y");
  y.store(tx::lane(), tx::reduce_lanes<tx::Nearest<float>>(y.load(tx::lane())));
}
TX_EXPORT(k);
'''
assert HostModule(text, werror=True).launch("k", [HostArray(x.ctypes.data, x.nbytes)], (1, 1, 1), 32) is None
assert np.all(x == 1)
"""

PLACE: Edits = {
    "polyhedral/mapped/places.py": [
        ('    LANE = "lane"\n', '    LANE = "lane"\n    HALF = "half warp"\n'),
        (
            "    Place.VECTOR: PlaceRow(",
            "    Place.HALF: PlaceRow(lambda at: at.thread // (at.warp_size // 2), Scope.THREAD),\n"
            "    Place.VECTOR: PlaceRow(",
        ),
    ],
    "codegen/cuda/stand.py": [
        (
            "    Place.CLUSTER: _Coordinate(",
            '    Place.HALF: _Coordinate(name="half", text="tx::thread() / 16", threads=lambda warp: warp // 2),\n'
            "    Place.CLUSTER: _Coordinate(",
        )
    ],
}
PLACE_PROGRAM = """
from dataclasses import replace

import numpy as np
import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.plan import plan
from texpr.grammar.index.expr import const
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.mapped.walks import map_launches, map_nodes
from texpr.polyhedral.simulate.stage import simulate

# i = 32 * i_warp + i_lane   becomes   16 * half + i_lane % 16
kernel = texpr.parse("kernel f(A: i32[128], C: i32[128]) { par 128 i { C[i] = A[i] + 1 } }").only
made = kernel.compile("cuda-host:sm_90a", stop_after="map").mapping.program
half = {
    Place.WARP: lambda d: replace(d, place=Place.HALF, weight=16, radix=const(8)),
    Place.LANE: lambda d: replace(d, radix=const(16)),
}
def halved(digits):
    return tuple(half.get(d.place, lambda d: d)(d) for d in digits)
def define(node):
    return replace(node, digits=halved(node.digits)) if isinstance(node, Define) else node
def launch(old):
    return replace(old, digits=halved(old.digits), body=map_nodes(old.body, define))
program = replace(made, host=map_launches(made.host, launch))
A = np.arange(128, dtype=np.int32)
assert np.array_equal(simulate(program, {"A": A, "C": A * 0})["C"], A + 1)
text = emit_cuda(plan(program), program.target).source
assert "tx::thread() / 16" in text
C = np.zeros_like(A)
arrays = [HostArray(a.ctypes.data, a.nbytes) for a in (A, C)]
assert HostModule(text, werror=True).launch("f_0", arrays, (1, 1, 1), 128) is None
assert np.array_equal(C, A + 1)
"""

TARGET: Edits = {
    "polyhedral/target.py": [
        ('    CUDA_HOST = "cuda-host"\n', '    CUDA_HOST = "cuda-host"\n    SIMULATED = "simulated"\n')
    ],
    "texpr/pipeline.py": [
        (
            "        case Family.CPU:\n",
            "        case Family.SIMULATED:\n"
            "            from texpr.polyhedral.mapped.show import show\n\n"
            "            manifest = make_manifest(kernel, proved, planned, made.target, {}, VERSION)\n"
            '            return Emission(main="graph", files={"graph": show(planned).encode()}, manifest=manifest)\n'
            "        case Family.CPU:\n",
        )
    ],
    "texpr/execute.py": [
        (
            "        case Family.CPU:\n",
            "        case Family.SIMULATED:\n"
            "            from texpr.polyhedral.simulate.stage import simulate\n\n"
            "            def run(*arrays: Any, stream: Any = None, **sizes: int) -> None:\n"
            "                given = dict(zip((b.name for b in build.kernel.params), arrays, strict=True))\n"
            '                found = simulate(build.result("plan"), given, sizes=sizes)\n'
            "                for name, array in given.items():\n"
            "                    array[...] = found[name]\n\n"
            "            return run\n"
            "        case Family.CPU:\n",
        )
    ],
}
TARGET_PROGRAM = """
import numpy as np
import texpr

kernel = texpr.parse("kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = A[i] + 1.0 } }").only
made = kernel.compile("simulated:sm_90a")
A, C = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
made(A, C)
assert np.array_equal(C, A + 1) and "i_lane" in made.source
try:
    kernel.compile("simulate:sm_90a")
except texpr.TExprError as refused:
    assert "`simulated:sm_90a`" in str(refused) and "cuda-host:sm_XX and simulated:sm_XX" in str(refused)
else:
    raise AssertionError("no such target")
"""


def touched(what: str) -> set[str]:
    """The files that the table names."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## To add")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| {what} \| (.*?) \|", table, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


def copy_with(edits: Edits, folder: Path) -> None:
    """The compiler with edits, in a folder of its own."""
    for part in ("grammar", "polyhedral", "codegen", "runtime", "texpr"):
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in edits.items():
        text = (folder / name).read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, f"{name} has {before!r} {text.count(before)} times"
            text = text.replace(before, after)
        (folder / name).write_text(text, encoding="utf-8")


ADDED = [
    ("an index operator", 2, INDEX_OPERATOR, INDEX_PROGRAM),
    ("an attribute", 2, ATTRIBUTE, ATTRIBUTE_PROGRAM),
    ("an expression operator, such as a function of floats", 4, EXPRESSION_OPERATOR, EXPRESSION_PROGRAM),
    ("a place", 3, PLACE, PLACE_PROGRAM),
    ("a target", 3, TARGET, TARGET_PROGRAM),
    ("an atom, such as a vote of a warp", 3, ATOM, ATOM_PROGRAM),
    ("a monoid", 3, MONOID, MONOID_PROGRAM),
]


@pytest.mark.parametrize(("what", "most", "edits", "program"), ADDED, ids=[added[0].split(",")[0] for added in ADDED])
def test_what_the_table_names_is_enough(what: str, most: int, edits: Edits, program: str, tmp_path: Path) -> None:
    assert touched(what) == set(edits) and len(edits) <= most
    copy_with(edits, tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "TEXPR_CACHE_DIR": str(tmp_path / "cache")},
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
