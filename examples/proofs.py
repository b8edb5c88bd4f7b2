"""What a refusal looks like: the race that TExpr proves, and the interpreter finding it at the witness."""

import numpy as np

import texpr

TEXT = """
kernel halve(A: f32[N], inout C: f32[N]) {
    par N i {
        C[i / 2] = A[i]
    }
}
"""


def main() -> None:
    kernel = texpr.parse(TEXT, "halve.tex").only
    try:
        kernel.compile("cpu", N=8)
    except texpr.TExprError as refusal:
        print(refusal)
        print("witness:", dict(refusal.diagnostics[0].witness))
    try:
        kernel.interpret(np.ones(8, np.float32), np.zeros(8, np.float32), mode="exact")
    except texpr.TExprError as found:
        print(found)


if __name__ == "__main__":
    main()
