"""How many blocks of a launch its author wants on a multiprocessor together, `#blocks_per_sm(n)`, and whether they fit.

4 blocks of 256 threads      __launch_bounds__(256, 4): a thread has at most 64 registers
4 blocks of 1024 threads     refused: 4096 threads, where a multiprocessor has room for 2048
"""

from dataclasses import replace

from texpr.grammar.ast import IndexConst, Kernel
from texpr.grammar.diagnostics import fail
from texpr.grammar.permissions import blocks_per_sm_of
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.target import Target


def blocks_asked(kernel: Kernel, target: Target) -> int | None:
    """The argument of the kernel's `#blocks_per_sm(n)`, or None. Raises E0401 for a number that is not known, or that
    the target does not run."""
    attr = blocks_per_sm_of(kernel)
    if attr is None or not target.is_cuda:
        return None
    value = attr.args[0]
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "the number of a multiprocessor's blocks is not known", attr.span, "a free size", help=help)
    if value.value > target.resident_blocks:
        raise fail(
            "E0401",
            f"a multiprocessor of {target.name} has room for {target.resident_blocks} blocks",
            attr.span,
            f"this asks for {value.value}",
            help="write a smaller number",
        )
    return value.value


def resident(launch: Launch, kernel: Kernel, target: Target) -> Launch:
    """The launch with as many blocks on a multiprocessor as its author asks for. Raises E0401 where their threads do
    not fit; their shared memory is counted when it is planned."""
    asked, attr = blocks_asked(kernel, target), blocks_per_sm_of(kernel)
    if asked is None or attr is None:
        return launch
    threads = asked * launch.threads
    if threads > target.resident_threads:
        most = target.resident_threads // asked // target.warp_size * target.warp_size
        raise fail(
            "E0401",
            f"{asked} blocks of {launch.threads} threads do not fit on a multiprocessor of {target.name}: these are "
            f"{threads} threads, and it has room for {target.resident_threads}",
            attr.span,
            "this attribute",
            help=f"write a smaller number, or #threads({most})",
        )
    return replace(launch, min_blocks=asked)
