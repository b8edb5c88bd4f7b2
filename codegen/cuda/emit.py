"""Emission of CUDA C++: a planned program becomes one `.cu` text, a C header for launchers in C and C++, and
the table of what each kernel's launch passes.

    // vadd: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from vadd.tex
    //   vadd_0: grid (ceildiv(N, 256), 1, 1), block 256 threads, shared 0 bytes

The text compiles for every `sm_80` and later with nvcc, and unchanged with a host compiler under host/host.hpp.
"""

from collections.abc import Mapping

from texpr.codegen.cuda.copies import BoxMap
from texpr.codegen.cuda.facts import launch_facts
from texpr.codegen.cuda.header import c_header
from texpr.codegen.cuda.kernel import Kernel, emit_kernel
from texpr.codegen.cuda.names import comment, file_name, kernel_symbol, listed, virtual_path
from texpr.codegen.cuda.sync import needed_headers
from texpr.codegen.cuda.tiles import product_columns
from texpr.codegen.cuda.wide import headers
from texpr.codegen.headers import included
from texpr.codegen.writer import Writer
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.walks import launches, waits_for_queue
from texpr.polyhedral.target import Target

VERSION = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaText:
    """`source` is the .cu text, `header` the C header, `headers` the include files that the source needs (paths under
    the include folder). `arguments` gives for each symbol of a kernel its arguments in order as (kind, name), kind one
    of param, scalar, workspace, words, map, size, index: the arrays used, the scalars used, the workspaces used (each
    in the program's order), the counters and flags, the tensor maps, the sizes used, the host indices used. `maps` says
    by symbol and name what a tensor map describes."""

    source: str
    header: str
    headers: tuple[str, ...]
    arguments: dict[str, tuple[tuple[str, str], ...]]
    maps: dict[str, Mapping[str, BoxMap]]


def emit_cuda(planned: PlannedProgram, target: Target, *, checks: bool = False, exact: bool = False) -> CudaText:
    """The texts of a planned program; equal input gives equal bytes. With `checks`, subscripts that are read from data
    are checked on the device too; with `exact`, `#line` says of every line where it is from. Raises E0502 for what is
    not emitted, E0506 for too long a text."""
    found = tuple(launches(planned.program.host))
    facts = [launch_facts(planned, launch) for launch in found]
    written = frozenset[str]().union(*(one.written for one in facts))
    settled = planned.program.buffers.keys() - written
    own_path = virtual_path(f"{planned.program.kernel.name}.cu")
    out = Writer()
    _title(planned, target, found, out)
    if checks:
        out.line("#define TX_CHECKS 1")
    if columns := product_columns(node for one in facts for node in one.of(Contract)):
        out.line(columns)
    includes = sorted(
        {"texpr/kernel.cuh", *(header for one in facts for header in (*needed_headers(one), *headers(one)))}
    )
    for header in includes:
        out.line(f'#include "{header}"')
    kernels: dict[str, Kernel] = {}
    for one in facts:
        out.line()
        out.directive(f'#line {out.line_number + 1} "{own_path}"')
        before = () if waits_for_queue(one.launch) else settled  # or any of them may be written there
        kernels[one.launch.name] = emit_kernel(one, before, out, exact=exact)
    arguments = {kernel.symbol: kernel.arguments for kernel in kernels.values()}
    maps = {kernel.symbol: kernel.maps for kernel in kernels.values()}
    return CudaText(
        source=out.text(),
        header=c_header(planned, written, arguments, maps, VERSION),
        headers=included(tuple(includes)),
        arguments=arguments,
        maps=maps,
    )


def _title(planned: PlannedProgram, target: Target, found: tuple[Launch, ...], out: Writer) -> None:
    kernel = planned.program.kernel
    source = file_name(kernel.span.source.name)
    out.line(f"// {comment(kernel.name)}: CUDA C++ by TExpr {VERSION} for {target.name}, from {source}")
    for launch in found:
        shape = comment(listed(in_words(extent) for extent in launch.grid))
        out.line(
            f"//   {kernel_symbol(launch.name)}: grid ({shape}), block {launch.threads} threads, "
            f"shared {planned.shared_bytes[launch.name]} bytes"
        )
    out.line(
        "// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and"
    )
    out.line("// checked ones when the same text runs on the CPU.")
    out.line()
