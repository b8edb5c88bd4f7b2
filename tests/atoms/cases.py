"""Kernels that try one atom each, with their inputs and what NumPy says of their outputs.

`tests/atoms/test_*.py` run them on the CPU under the checking host header; `tests/gpu/atoms.py` runs the same texts on
a GPU. A kernel takes its arrays in order, inputs first, then `sizes` as `long long`.
"""

from dataclasses import dataclass, field

import numpy as np
from compared import outputs

from texpr.codegen.host_run import HostArray

HEADER = '#line 1 "/texpr/atoms.tex"\n'


@dataclass(frozen=True, kw_only=True)
class Case:
    """`want` is what the outputs hold afterwards, any NaN for a NaN; where `within` is given, to within that much.
    `before` is what they hold first (else a pattern). `arch`: the least architecture, with a suffix where it needs one.
    """

    name: str
    symbol: str
    inputs: tuple[np.ndarray, ...]
    want: tuple[np.ndarray, ...]
    within: tuple[np.ndarray | float, ...] = ()
    before: tuple[np.ndarray, ...] = ()
    sizes: tuple[int, ...] = ()
    grid: int = 1
    block: int = 32
    shared_bytes: int = 0
    arch: str = "sm_80"


@dataclass(frozen=True, kw_only=True)
class Family:
    """The cases of some atoms, and the text of their kernels by the least architecture that has them."""

    name: str
    cases: list[Case]
    texts: dict[str, str] = field(default_factory=dict)


def kernel(symbol, parameters, body, threads=32, way=None):
    """The text of one kernel with its entry for the host build; `way` is how its blocks run together there, for one
    with more than barriers."""
    entry = f"TX_EXPORT({symbol});" if way is None else f"TX_EXPORT_AS({symbol}, tx::Launched(){way});"
    return f'extern "C" __global__ void __launch_bounds__({threads})\n{symbol}({parameters}) {{\n{body}\n}}\n{entry}\n'


def run_on_host(module, case, seed=0):
    """The outputs, or the report of a finding."""
    inputs, results = [np.ascontiguousarray(a) for a in case.inputs], outputs(case)
    arguments = [HostArray(a.ctypes.data, a.nbytes) for a in (*inputs, *results)]
    report = module.launch(
        case.symbol, [*arguments, *case.sizes], (case.grid, 1, 1), case.block, case.shared_bytes, seed
    )
    return report or results
