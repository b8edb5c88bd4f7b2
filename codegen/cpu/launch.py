"""One launch as Numba functions.

A launch with core digits is a *part* function, which runs core iterations first to last - 1, and a `prange` over
CPU_TASKS parts; one whose work is surely small, or that has no core digits, is one serial function. Where the sizes of
a call say that its work is small, one thread runs the same parts in order: results do not depend on it. A part starts
its atomics once.

    def vadd_0_part(first, last, A, C, N):
        restrict()
        for i in range(1024 * first, min(1024 * last, N)):
            # vadd.tex:3
            C[i] = A[i] + np.float32(1.0)
"""

from texpr.codegen.cpu.body import declaration, emit_body
from texpr.codegen.cpu.context import Check, Context, CpuTensor, Partial, Writer
from texpr.codegen.cpu.names import Names, place
from texpr.codegen.cpu.pieces import whole_apart
from texpr.codegen.cpu.ranges import CpuNode, Range, Split, bound_ranges, flattened, over_indices
from texpr.codegen.cpu.work import SERIAL_OPERATIONS, operations
from texpr.codegen.layout import room
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, SizeVar
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.text import ATOM
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.mapped.operators import Elementwise
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.mapped.walks import block_buffers, of_kind
from texpr.polyhedral.target import CPU_TASKS

STACK_BYTES = 256 << 10  # locals of one function beyond this go to the heap
ALIGN_BYTES = 64  # of those: a line, and the widest vector

CORE, FIRST, LAST = "<core>", "<first>", "<last>"  # no source has such names

ELEMENT = {
    "f64": "float64",
    "f32": "float32",
    "f16": "uint16",
    "bf16": "uint16",
    "f8e4m3": "uint8",
    "f8e5m2": "uint8",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u32": "uint32",
    "u8": "uint8",
    "bool": "uint8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A possible argument of a launch's functions, and its type in a signature."""

    identifier: str
    type_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchText:
    """The functions of a launch; `identifier(*arguments)` runs it and returns 0, or a finding if `checked`."""

    identifier: str
    arguments: tuple[str, ...]
    text: str
    checked: bool


def emit_launch(
    block: Launch,
    planned: PlannedProgram,
    tensors: dict[str, CpuTensor],
    candidates: list[Variable],
    names: Names,
    checks: list[Check],
) -> LaunchText:
    """The text of a launch. `tensors` are those of the device, `candidates` what its functions may take; run-time
    checks are appended to `checks`."""
    if block.threads != 1 or block.cluster != (1, 1, 1) or block.pipes:
        raise fail(
            "E0502", f"{block.name}: blocks of threads, clusters and pipes are not emitted for a CPU", block.span
        )
    local, declarations, ends = _locals(block, planned, names)
    names.named.clear()
    blocks = _count(block.grid)
    each = operations(block)
    parallel = _is_parallel(block, blocks, each)
    before = len(checks)
    writer = Writer(depth=1)
    context = Context(names=names, tensors=tensors | local, writer=writer, checks=checks, parallel=parallel)
    emit_body(whole_apart(over_indices(_core_loop(block, blocks, parallel))), context)
    checked = len(checks) > before

    count = names.text(blocks)
    few = _is_small(blocks, each, names) if parallel else ""
    offered = [*candidates, *(Variable(identifier=names.of("value", a), type_text="int64") for a in block.arguments)]
    used = [v for v in offered if v.identifier in names.named]
    owners = [(owner, names.text(extent(context.tensors[t].layout))) for t, owner in context.owners.items()]
    used += [v for v in offered if v.identifier in names.named and v not in used]
    arguments = [v.identifier for v in used]
    types = ", ".join(v.type_text for v in used)
    identifier = names.of("function", block.name)
    out = Writer()
    out.line(f"# {place(block.span)}")
    two = parallel or bool(owners)
    part = names.of("function", f"{block.name}_part") if two else identifier
    partials = context.partials
    bounds = (["first", "last", "task"] if partials else ["first", "last"]) if parallel else []
    extra = [f"{owner}_array" for owner, _ in owners]
    extra += [f"{p.variable}_{what}" for p in partials for what in ("parts", "done")]
    returned = "finding_type" if checked else "int64"
    result = returned if checked or not parallel else "void"
    kinds = ["int64"] * len(bounds) + [v.type_text for v in used] + ["int64[::1]"] * len(owners)
    kinds += [f"{kind}[::1]" for p in partials for kind in (ELEMENT[p.dtype.name], "uint8")]
    out.line(f'@njit({result}({", ".join(kinds)}), error_model="numpy")')
    with out.block(f"def {part}({', '.join([*bounds, *arguments, *extra])}):"):
        out.line("restrict()")
        for owner, _ in owners:
            out.line(f"{owner} = pointer_i64({owner}_array.ctypes.data)")
        for line in [*declarations, *(f"{p.variable}_done[task] = 0" for p in partials)]:
            out.line(line)
        out.lines += writer.lines
        for line in ends:
            out.line(line)
        if checked or not parallel:
            out.line("return finding(0, 0, 0)" if checked else "return 0")
    if two:
        out.line()
        out.line()
        out.line(f'@njit({returned}({types}), error_model="numpy"{", parallel=True" if parallel else ""})')
        with out.block(f"def {identifier}({', '.join(arguments)}):"):
            for owner, length in owners:
                out.line(f"{owner}_array = zeros({length})")
            if parallel:
                _emit_parts(out, part, [*bounds, *arguments, *extra], count, few, checked, partials)
            else:
                out.line(f"return {part}({', '.join([*arguments, *extra])})")
    return LaunchText(identifier=identifier, arguments=tuple(arguments), text=out.text(), checked=checked)


def _emit_parts(
    out: Writer, part: str, arguments: list[str], count: str, few: str, checked: bool, partials: list[Partial]
) -> None:
    """The calls of the part function, by one thread where the condition `few` holds, and what combines results."""
    call = f"{part}({', '.join('np.int64(task)' if a == 'task' else a for a in arguments)})"
    out.line(f"blocks = np.int64({count})")
    out.line(f"tasks = max(0, min(blocks, {CPU_TASKS}))")
    if checked:
        out.line("failed = np.empty((tasks, 3), np.int64)")
    for partial in partials:
        count = "tasks" if partial.elements == 1 else f"{partial.elements} * tasks"
        out.line(f"{partial.variable}_parts = np.empty({count}, np.{ELEMENT[partial.dtype.name]})")
        out.line(f"{partial.variable}_done = np.empty(tasks, np.uint8)")

    def loop(header: str) -> None:
        with out.block(header):
            out.line("first = np.int64(task) * blocks // tasks")
            out.line("last = (np.int64(task) + 1) * blocks // tasks")
            out.line(f"failed[task, 0], failed[task, 1], failed[task, 2] = {call}" if checked else call)

    if few:
        with out.block(f"if {few}:  # operations: waking the other cores would cost more"):
            loop("for task in range(tasks):")
        with out.block("else:"):
            loop("for task in prange(tasks):")
    else:
        loop("for task in prange(tasks):")
    for partial in partials:
        with out.block("for each in range(tasks):"), out.block(f"if {partial.variable}_done[each] != 0:"):
            for line in partial.combine:
                out.line(line)
    if checked:
        with out.block("for each in range(tasks):"), out.block("if failed[each, 0] != 0:"):
            out.line("return finding(failed[each, 0], failed[each, 1], failed[each, 2])")
    out.line("return finding(0, 0, 0)" if checked else "return 0")


def _locals(block: Launch, planned: PlannedProgram, names: Names) -> tuple[dict[str, CpuTensor], list[str], list[str]]:
    """The tensors of a block, the lines that make room for them, and those up to which it is needed."""
    found: dict[str, CpuTensor] = {}
    lines: list[str] = []
    ends: list[str] = []
    # LLVM does not come to an end with calls in loops that have addresses of the stack.
    wide = of_kind(block.body, Elementwise)
    called_with = {name for node in wide for name in (*(n for n, _ in node.writes), *(r.buffer for r in node.reads))}
    stack = 0
    for tensor in block_buffers(planned.program, block):
        identifier = names.of("value", tensor.name)
        cpu = CpuTensor(
            name=tensor.name,
            identifier=identifier,
            dtype=tensor.dtype,
            layout=planned.addresses[tensor.name].layout,
            scalar=not tensor.shape,
        )
        found[tensor.name] = cpu
        if cpu.scalar:
            lines.append(declaration(cpu))
            continue
        count = max(1, room(tensor))
        stack += count * tensor.dtype.size_bytes
        if stack <= STACK_BYTES and tensor.name not in called_with:
            lines.append(f"{identifier} = stack_{tensor.dtype.name}({count})")
        else:
            held = names.fresh("room")
            lines.append(f"{held} = np.empty({count * tensor.dtype.size_bytes + ALIGN_BYTES}, np.uint8)")
            start = f"({held}.ctypes.data + {ALIGN_BYTES - 1}) & -{ALIGN_BYTES}"
            lines.append(f"{identifier} = pointer_{tensor.dtype.name}({start})")
            ends.append(f"hold({held})")
    return found, lines, ends


def _core_loop(block: Launch, blocks: IndexExpr, parallel: bool) -> tuple[CpuNode, ...]:
    """The body inside the loop over core iterations; a single iteration needs no loop."""
    body = bound_ranges(block.body)
    cores = [d for d in block.hardware if d.place is Place.CORE]
    if not parallel and blocks == IndexConst(value=1):
        return (*(Define(index=d.name, digits=()) for d in cores), *body)
    counter = cores[0].name if len(cores) == 1 else CORE
    digits: tuple[CpuNode, ...] = ()
    if len(cores) > 1:
        digits = tuple(Split(index=d.name, source=CORE, stride=d.stride, radix=d.radix) for d in cores)
    low: IndexExpr = SizeVar(name=FIRST) if parallel else IndexConst(value=0)
    high: IndexExpr = SizeVar(name=LAST) if parallel else blocks
    return (
        flattened(Range(index=counter, low=low, high=high, body=(*digits, *body), cores=parallel, span=block.span)),
    )


def _count(grid: tuple[IndexExpr, IndexExpr, IndexExpr]) -> IndexExpr:
    total = grid[0]
    for axis in grid[1:]:
        if axis != IndexConst(value=1):
            total = IndexBinary(op=IndexOp.MUL, left=total, right=axis)
    return total


def _is_parallel(block: Launch, blocks: IndexExpr, each: IndexExpr | None) -> bool:
    """Whether other cores may help: not where there is one core iteration, or surely less work than waking costs."""
    if blocks == IndexConst(value=1) or not any(d.place is Place.CORE for d in block.hardware):
        return False
    if isinstance(blocks, IndexConst) and isinstance(each, IndexConst):
        return blocks.value * each.value >= SERIAL_OPERATIONS
    return True


def _is_small(blocks: IndexExpr, each: IndexExpr | None, names: Names) -> str:
    """The condition under which a call stays on its thread; none where emission decided, or nothing is known."""
    alone = "" if isinstance(blocks, IndexConst) else "blocks < 2"  # no other core has anything to do
    if each is None or (not alone and isinstance(each, IndexConst)):
        return alone
    work = f"blocks * {names.text(each, ATOM)} < {SERIAL_OPERATIONS}"
    return f"{alone} or {work}" if alone else work
