"""One launch as one CUDA kernel: signature and body.

extern "C" __global__ void __launch_bounds__(256)
vadd_0(const tx::f32* __restrict__ A_data, ..., tx::i64 N) {
  ...
}
TX_EXPORT(vadd_0);
"""

from collections.abc import Collection, Mapping

from texpr.codegen.cuda.body import emit_body
from texpr.codegen.cuda.copies import BoxMap
from texpr.codegen.cuda.facts import LaunchFacts
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.names import kernel_symbol, listed
from texpr.codegen.writer import Writer
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.between import AfterLaunch, GridBarrier, Init
from texpr.polyhedral.mapped.walks import meets_simply

MAX_WIDTH = 100  # of a signature on one line


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel: its symbol, the arguments that a launch passes, as (kind, name) in order, and what its
    tensor maps describe, by name."""

    symbol: str
    arguments: tuple[tuple[str, str], ...]
    maps: Mapping[str, BoxMap]


def emit_kernel(facts: LaunchFacts, settled: Collection[str], out: Writer, *, exact: bool = False) -> Kernel:
    """Write the kernel of one launch. `settled` are the arrays that no launch writes; `exact` as of `Lines`. Raises
    E0502 for what is not emitted."""
    launch = facts.launch
    symbol = kernel_symbol(launch.name)
    frame = Frame(facts, settled)
    body, used = emit_body(frame, exact=exact)
    arguments = frame.arguments(used)
    bounds = f"{launch.threads}, {launch.min_blocks}" if launch.min_blocks else f"{launch.threads}"
    cluster = f" __cluster_dims__({listed(map(str, launch.cluster))})" if launch.cluster != (1, 1, 1) else ""
    out.line(f'extern "C" __global__ void{cluster} __launch_bounds__({bounds})')
    head = f"{symbol}({', '.join(a.declaration for a in arguments)}) {{"
    if len(head) <= MAX_WIDTH:
        out.line(head)
    else:
        out.line(f"{symbol}(")
        for number, argument in enumerate(arguments, start=1):
            out.line(f"    {argument.declaration}{',' if number < len(arguments) else ') {'}")
    with out.indented():
        for line in body:
            if line.startswith("#"):
                out.directive(line)
            else:
                out.line(line)
    out.line("}")
    way = _way(facts)
    out.line(f"TX_EXPORT_AS({symbol}, tx::Launched(){way});" if way is not None else f"TX_EXPORT({symbol});")
    return Kernel(
        symbol=symbol,
        arguments=tuple((a.kind, a.name) for a in arguments),
        maps={own: map_ for map_, own in frame.maps.items()},
    )


def _way(facts: LaunchFacts) -> str | None:
    """How the blocks of a launch run on the CPU; None where they have no more than barriers."""
    launch, words = facts.launch, facts.words
    init = {w.init for w in facts.planned.program.words if w.name in words}
    ways = [f".cluster({listed(map(str, launch.cluster))})"] if launch.cluster != (1, 1, 1) else []
    ways += [".restoring()" if init == {Init.ZERO_ONCE} else ".flags()"] if words else []
    ways += [".cooperative()"] if facts.has(GridBarrier) else []
    ways += [".dependent()"] if facts.has(AfterLaunch) else []
    plain = not launch.pipes and launch.cluster == (1, 1, 1) and all(map(meets_simply, facts.nodes))
    return None if plain and not ways else "".join(ways)
