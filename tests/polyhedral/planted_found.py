"""Who finds the faults of `planted.py`: the checkers, the simulator, and `cuda-host`.

    python tests/polyhedral/planted_found.py [KERNEL…]       prints the table; 1 where one is not found by both

The checkers are those of syncs and of where buffers lie; the simulator runs the planned program, `cuda-host` the text
that is emitted of it, each under a few seeds. `tests/golden/planted_faults.md` is what this prints.
"""

import sys
import warnings

from planted import KERNELS, faults

from texpr.codegen.host_run import HostBackend, HostModule
from texpr.codegen.layout import check_layouts
from texpr.codegen.shared_memory import check_shared
from texpr.codegen.sync_memory import check_syncs
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import constant_value
from texpr.pipeline import Build, _emit
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.walks import block_buffers
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.runtime.launch import Launcher

SEEDS = 4
MISSED = "–"


def by_checkers(wrong: PlannedProgram) -> str:
    """What the checkers of syncs and of addresses say."""
    try:
        check_orders(wrong.program)
        for launch in wrong.program.host:
            assert isinstance(launch, Launch)
            found = block_buffers(wrong.program, launch)
            check_layouts(found)
            check_planned(wrong, launch)
    except (InternalError, TExprError) as said:
        return str(said).split(": ", 1)[-1]
    return MISSED


def check_planned(wrong: PlannedProgram, launch: Launch) -> None:
    places = {
        b.name: constant_value(wrong.addresses[b.name].offset_bytes) or 0
        for b in block_buffers(wrong.program, launch)
        if b.memory.value in ("shared", "cluster")
    }
    total = wrong.shared_bytes[launch.name]
    end = check_shared(launch.name, block_buffers(wrong.program, launch), places, total, launch.stages)
    check_syncs(launch, end, wrong.sync_offsets[launch.name], total)


def by_simulator(kernel: str, wrong: PlannedProgram) -> str:
    arrays = KERNELS[kernel].arrays(wrong.program)
    for seed in range(SEEDS):
        try:
            got = simulate(wrong, arrays, seed=seed)["C"]
        except TExprError as said:
            return said.diagnostics[0].message
        except InternalError as said:
            return str(said)
        if not KERNELS[kernel].is_right(arrays, got):
            return "values"
    return MISSED


def by_host(kernel: str, wrong: PlannedProgram) -> str:
    """What the text of the program says when it runs on the CPU."""
    made = Build(wrong.program.kernel, wrong.program.target, {})
    try:
        emission = _emit(made, wrong.program.proved, wrong, False)
        module = HostModule(emission.source)
    except TExprError as said:
        return f"{said.diagnostics[0].code}: {said.diagnostics[0].message}"
    for seed in range(SEEDS):
        arrays = KERNELS[kernel].arrays(wrong.program)
        try:
            Launcher(emission.manifest, HostBackend(module, seed))(**arrays)
        except TExprError as said:
            return said.diagnostics[0].message
        if not KERNELS[kernel].is_right(arrays, arrays["C"]):
            return "values"
    return MISSED


def main() -> int:
    warnings.simplefilter("ignore")
    chosen, missed, count = sys.argv[1:] or list(KERNELS), 0, 0
    print("| kernel | fault | checkers | simulator | cuda-host |\n| --- | --- | --- | --- | --- |", flush=True)
    for kernel in chosen:
        for fault in faults(kernel):
            said = (by_checkers(fault.planned), by_simulator(kernel, fault.planned), by_host(kernel, fault.planned))
            count += 1
            missed += said[:2] == (MISSED, MISSED) or said[2] == MISSED
            print(
                f"| {kernel} | {fault.kind}: {fault.text} | "
                + " | ".join(s[:90].replace("\n", " ").strip() for s in said)
                + " |",
                flush=True,
            )
    print(f"\n{count} faults, {missed} of them missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
