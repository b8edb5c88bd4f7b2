"""TExpr: an embedded tensor DSL with polyhedral scheduling, compiled ahead of time to readable CUDA C++.

    import texpr
    from texpr import f32, par, seq

    @texpr.kernel
    def matmul(A: f32["M", "K"], B: f32["K", "N"], C: f32["M", "N"]):
        for i, j in par("M", "N"):
            C[i, j] = 0.0
            for k in seq("K"):
                C[i, j] += A[i, k] * B[k, j]

    matmul(a, b, c)                                       # NumPy arrays run on the CPU, torch or cupy ones on their GPU
    fast = matmul.compile(target="cuda:sm_90a", M=4096, N=4096, K=4096)
    print(fast.mapping); fast.save("build/")

Names load when they are first used: importing texpr is quick, and a machine that only launches needs no compiler.
"""

from texpr import version

__version__ = version.VERSION

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than everything here
if TYPE_CHECKING:
    from typing import Any

    from texpr import tasks
    from texpr.frontends import Fn, fn, kernel, load, parse
    from texpr.grammar.diagnostics import Diagnostic, TExprError, TExprWarning
    from texpr.kernels import Compiled, Kernel
    from texpr.modules import Module
    from texpr.runtime.load import load as load_artifact
    from texpr.tuning import Tuning, tune

_HOME = {
    "Compiled": "texpr.kernels",
    "Diagnostic": "texpr.grammar.diagnostics",
    "Fn": "texpr.frontends",
    "Kernel": "texpr.kernels",
    "Module": "texpr.modules",
    "TExprError": "texpr.grammar.diagnostics",
    "Tuning": "texpr.tuning",
    "TExprWarning": "texpr.grammar.diagnostics",
    "fn": "texpr.frontends",
    "kernel": "texpr.frontends",
    "load": "texpr.frontends",
    "load_artifact": "texpr.runtime.load",
    "parse": "texpr.frontends",
    "tune": "texpr.tuning",
}

__all__ = [
    "Compiled",
    "Diagnostic",
    "Fn",
    "Kernel",
    "Module",
    "TExprError",
    "TExprWarning",
    "Tuning",
    "__version__",
    "fn",
    "kernel",
    "load",
    "load_artifact",
    "parse",
    "tasks",
    "tune",
]


def __getattr__(name: str) -> "Any":
    import importlib

    if name == "tasks":
        value: Any = importlib.import_module("texpr.tasks")
    elif name == "load_artifact":
        value = importlib.import_module("texpr.runtime.load").load
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        language = importlib.import_module("texpr.language")
        if name not in language.__all__ and name != "bool":
            raise AttributeError(f"module 'texpr' has no attribute {name!r}")
        value = getattr(language, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `__getattr__` gives; the words of the language are named in the one file that defines them."""
    from texpr.language import __all__ as words

    return sorted({*__all__, *words, "bool"})
