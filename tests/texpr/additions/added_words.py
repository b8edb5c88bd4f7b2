"""Words of the language that ARCHITECTURE says how to add: edits that add one of each, and programs that use them."""

from collections.abc import Mapping, Sequence

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
    "grammar/permissions.py": [
        ('_named(part.attrs, "strict") is None', 'all(_named(part.attrs, n) is None for n in ("strict", "rounded"))')
    ],
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
