"""One launch as one CUDA kernel: signature and body.

extern "C" __global__ void __launch_bounds__(256)
vadd_0(const tx::f32* __restrict__ A_data, ..., tx::i64 N) {
  ...
}
TX_EXPORT(vadd_0);
"""

from dataclasses import dataclass

from texpr.codegen.cuda.body import emit_body
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.names import kernel_symbol
from texpr.codegen.writer import Writer
from texpr.grammar.diagnostics import fail
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch

MAX_WIDTH = 100  # of a signature on one line


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel: its symbol and the arguments that a launch passes, as (kind, name) in order."""

    symbol: str
    arguments: tuple[tuple[str, str], ...]


def emit_kernel(planned: PlannedProgram, launch: Launch, out: Writer) -> Kernel:
    """Write the kernel of one launch. Raises E0502 for what is not emitted."""
    if launch.cluster != (1, 1, 1):
        raise fail("E0502", f"clusters of {launch.cluster} blocks are not emitted for CUDA", launch.span)
    for pipe in launch.pipes:
        raise fail("E0502", f"the pipe {pipe.name} is not emitted for CUDA", launch.span)
    symbol = kernel_symbol(launch.name)
    frame = Frame(planned, launch)
    body = emit_body(frame)
    arguments = frame.arguments(body)
    out.line(f'extern "C" __global__ void __launch_bounds__({launch.threads})')
    head = f"{symbol}({', '.join(a.declaration for a in arguments)}) {{"
    if len(head) <= MAX_WIDTH:
        out.line(head)
    else:
        out.line(f"{symbol}(")
        for number, argument in enumerate(arguments, start=1):
            out.line(f"    {argument.declaration}{',' if number < len(arguments) else ') {'}")
    with out.indented():
        for line in body.splitlines():
            if line.startswith("#"):
                out.directive(line)
            else:
                out.line(line)
    out.line("}")
    out.line(f"TX_EXPORT({symbol});")
    return Kernel(symbol=symbol, arguments=tuple((a.kind, a.name) for a in arguments))
