"""Emission for the CPU: a planned graph becomes a Python module of Numba functions.

Each launch is a function; where it has core digits, a block function of the core's number and a `prange` over it. The
module's `run` takes addresses of arrays, scalars, sizes and the workspace, walks the host program and returns 0, or
the number of the run-time check that failed. The text is a function of the graph alone.

    @njit(void(int64, pointer(float32), pointer(float32), int64), error_model="numpy")
    def vadd_block(core, A, C, N):
        restrict()
        for i_v in range(min(4096, N - 4096 * core)):
            i = 4096 * core + i_v
            # vadd.tex:3
            C[i] = A[i] + np.float32(1.0)
"""

import re
from dataclasses import dataclass
from typing import assert_never

from texpr.codegen.cpu.body import declaration, emit_body
from texpr.codegen.cpu.context import Check, Context, CpuTensor, Writer
from texpr.codegen.cpu.names import Names, condition_text, file_name, index_text, place
from texpr.codegen.cpu.ranges import bound_ranges
from texpr.codegen.graph import BlockGraph, BlockNode, Guard, HostIf, HostLoop, KernelNode, Launch, Loop, PlannedGraph
from texpr.codegen.layout import span_elements
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, Role
from texpr.grammar.diagnostics import fail
from texpr.grammar.types import DType
from texpr.polyhedral.mapping import Digit, Place
from texpr.polyhedral.target import Target

MAX_BYTES = 4 << 20
STACK_BYTES = 256 << 10  # locals of one block function beyond this go to the heap
SERIAL_WORK = 1 << 14  # statement instances below which waking the other cores costs more than it gains

_ELEMENT = {
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
class CpuParameter:
    """An argument of the callable: kind is array, scalar, size or workspace; `dtype` is empty for the last two."""

    name: str
    kind: str
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuText:
    """An emitted module: `source` defines `run`, whose arguments are `parameters` in order; `checks[n - 1]` is what a
    result of n says. Both stand in the text, too, as ARGUMENTS and CHECKS, so that the text is all that a build needs.
    `workspace_bytes` is an expression of the sizes."""

    name: str
    source: str
    parameters: tuple[CpuParameter, ...]
    checks: tuple[Check, ...]
    workspace_bytes: IndexExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    identifier: str
    type_text: str


def emit_cpu(planned: PlannedGraph, target: Target) -> CpuText:
    """The module text of a planned graph. Raises E0506 when it is longer than 4 MiB."""
    graph = planned.graph
    names = Names()
    tensors: dict[str, CpuTensor] = {}
    candidates: list[_Variable] = []
    for tensor in graph.tensors:
        scalar = tensor.role is Role.SCALAR
        identifier = names.of("value", tensor.name)
        tensors[tensor.name] = CpuTensor(
            name=tensor.name,
            identifier=identifier,
            dtype=tensor.dtype,
            shape=tensor.shape,
            strides=tensor.strides,
            scalar=scalar,
        )
        text = _scalar_type(tensor.dtype) if scalar else f"pointer({_ELEMENT[tensor.dtype.name]})"
        candidates.append(_Variable(identifier=identifier, type_text=text))
    candidates += [_Variable(identifier=names.of("value", size), type_text="int64") for size in graph.sizes]

    checks: list[Check] = []
    parts: list[str] = []
    functions: dict[str, _Function] = {}
    for block in graph.launches():
        function = _emit_launch(block, planned, tensors, candidates, names, checks)
        functions[block.name] = function
        parts.append(function.text)
    run = Writer()
    parameters = _emit_run(planned, tensors, functions, names, run)
    parts.append(run.text())
    parts.append(_tables(parameters, checks))
    body = "\n\n".join(parts)
    source = _header(graph.name, graph.source_name, body, target) + body
    if len(source) > MAX_BYTES:
        raise fail("E0506", f"the module of {graph.name} is longer than {MAX_BYTES} bytes", help="unroll less")
    return CpuText(
        name=graph.name,
        source=source,
        parameters=parameters,
        checks=tuple(checks),
        workspace_bytes=planned.workspace.total_bytes,
    )


def _header(name: str, source_name: str, body: str, target: Target) -> str:
    from texpr.codegen.cpu.names import MODULE_NAMES

    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", re.sub(r"#.*", "", body)))
    local = {"core", "blocks", "code", "failed", "workspace", "run", "old", "new", "np"}
    offered = {n for n in MODULE_NAMES - local if n in words}
    offered |= {w for w in words if re.fullmatch(r"(pointer|stack|decode|encode)_(f|bf|i|u|bool)[a-z0-9]*", w)}
    if "void" in words:
        offered.add("void")
    lines = [f"# {file_name(name)} from {file_name(source_name)} for {target.name}", "", "import numpy as np", ""]
    lines += ["from texpr.codegen.cpu.library import (", *(f"    {n}," for n in sorted(offered)), ")", "", "", ""]
    return "\n".join(lines)


def _tables(parameters: tuple[CpuParameter, ...], checks: list[Check]) -> str:
    """The tables that a build reads; strings of the program stand there as ASCII literals."""
    out = Writer()
    out.line("ARGUMENTS = (")
    for parameter in parameters:
        out.line(f"    ({parameter.name!a}, {parameter.kind!a}, {parameter.dtype!a}),")
    out.line(")")
    out.line("CHECKS = (" if checks else "CHECKS = ()")
    for check in checks:
        out.line(f"    ({check.message!a}, {place(check.span)!a}),")
    if checks:
        out.line(")")
    return out.text()


def _scalar_type(dtype: DType) -> str:
    return "boolean" if dtype.is_bool else _ELEMENT[dtype.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    identifier: str
    arguments: tuple[str, ...]
    text: str


def _emit_launch(
    block: BlockGraph,
    planned: PlannedGraph,
    tensors: dict[str, CpuTensor],
    candidates: list[_Variable],
    names: Names,
    checks: list[Check],
) -> _Function:
    strides = planned.strides[block.name]
    local = dict(tensors)
    declarations: list[str] = []
    stack = 0
    for tensor in block.tensors:
        identifier = names.of("value", tensor.name)
        cpu = CpuTensor(
            name=tensor.name,
            identifier=identifier,
            dtype=tensor.dtype,
            shape=tuple(IndexConst(value=e) for e in tensor.shape),
            strides=tuple(IndexConst(value=s) for s in strides[tensor.name]),
            scalar=not tensor.shape,
        )
        local[tensor.name] = cpu
        if cpu.scalar:
            declarations.append(declaration(cpu))
            continue
        count = max(1, span_elements(tensor.shape, strides[tensor.name]))
        stack += count * tensor.dtype.size_bytes
        if stack <= STACK_BYTES:
            declarations.append(f"{identifier} = stack_{tensor.dtype.name}({count})")
        else:
            declarations.append(f"{identifier} = np.empty({count}, np.{_ELEMENT[tensor.dtype.name]})")

    blocks = _count(block.grid_dim)
    parallel = _is_parallel(block, blocks)
    before = len(checks)
    writer = Writer(depth=1 if parallel or blocks == IndexConst(value=1) else 2)
    context = Context(names=names, tensors=local, writer=writer, checks=checks, parallel=parallel)
    for digit in block.digits:
        if digit.place is Place.CORE:
            writer.line(f"{names.of('value', digit.name)} = {_digit_text(digit, block, names)}")
    emit_body(bound_ranges(block.body), context)
    checked = len(checks) > before
    inner = writer.text() if writer.lines else ""

    count_text = index_text(blocks, names)
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", inner + count_text))
    host = [_Variable(identifier=names.of("value", a), type_text="int64") for a in block.arguments]
    used = [v for v in [*candidates, *host] if v.identifier in words]
    arguments = ", ".join(v.identifier for v in used)
    types = [v.type_text for v in used]
    identifier = names.of("function", block.name)
    comment = f"# {place(block.span)}"
    out = Writer()
    if parallel:
        name = names.of("function", f"{block.name}_block")
        result = "int64" if checked else "void"
        out.line(comment)
        out.line(f'@njit({result}({", ".join(["int64", *types])}), error_model="numpy")')
        with out.block(f"def {name}({', '.join(['core', *(v.identifier for v in used)])}):"):
            out.line("restrict()")
            for line in declarations:
                out.line(line)
            out.lines += writer.lines
            if checked:
                out.line("return 0")
        out.line()
        out.line()
        out.line(f'@njit(int64({", ".join(types)}), error_model="numpy", parallel=True)')
        with out.block(f"def {identifier}({arguments}):"):
            if checked:
                out.line("failed = np.zeros(1, np.int64)")
            with out.block(f"for core in prange({count_text}):"):
                call = f"{name}({', '.join(['np.int64(core)', *(v.identifier for v in used)])})"
                out.line(f"code = {call}" if checked else call)
                if checked:
                    with out.block("if code != 0:"):
                        out.line("failed[0] = code")
            out.line("return failed[0]" if checked else "return 0")
    else:
        out.line(comment)
        out.line(f'@njit(int64({", ".join(types)}), error_model="numpy")')
        with out.block(f"def {identifier}({arguments}):"):
            out.line("restrict()")
            for line in declarations:
                out.line(line)
            if writer.depth == 2:
                out.line(f"for core in range({count_text}):")
            elif any(d.place is Place.CORE for d in block.digits):
                out.line("core = 0")
            out.lines += writer.lines or (["        pass"] if writer.depth == 2 else [])
            out.line("return 0")
    return _Function(identifier=identifier, arguments=tuple(v.identifier for v in used), text=out.text())


def _count(grid: tuple[IndexExpr, IndexExpr, IndexExpr]) -> IndexExpr:
    total = grid[0]
    for extent in grid[1:]:
        if extent != IndexConst(value=1):
            total = IndexBinary(op=IndexOp.MUL, left=total, right=extent)
    return total


def _digit_text(digit: Digit, block: BlockGraph, names: Names) -> str:
    text = "core"
    if digit.stride != IndexConst(value=1):
        text = f"{text} // {index_text(digit.stride, names, 3)}"
    if sum(d.place is Place.CORE for d in block.digits) > 1:
        text = f"{text} % {index_text(digit.radix, names, 3)}"
    return text


def _is_parallel(block: BlockGraph, blocks: IndexExpr) -> bool:
    if blocks == IndexConst(value=1) or not any(d.place is Place.CORE for d in block.digits):
        return False
    work = _work(block.body)
    if isinstance(blocks, IndexConst) and work is not None:
        return blocks.value * work >= SERIAL_WORK
    return True


def _work(body: tuple[BlockNode, ...]) -> int | None:
    """Statement instances of a body, or None where sizes decide."""
    total = 0
    for node in body:
        match node:
            case Loop(extent=IndexConst(value=extent), body=inner):
                part = _work(inner)
                factor = max(extent, 0)
            case Loop():
                return None
            case Guard(body=inner, orelse=orelse):
                part, factor = _work(inner + orelse), 1
            case _:
                part, factor = 1, 1
        if part is None:
            return None
        total += factor * part
    return total


def _emit_run(
    planned: PlannedGraph,
    tensors: dict[str, CpuTensor],
    functions: dict[str, _Function],
    names: Names,
    out: Writer,
) -> tuple[CpuParameter, ...]:
    graph = planned.graph
    parameters: list[CpuParameter] = []
    arguments: list[str] = []
    types: list[str] = []
    opening: list[str] = []
    for tensor in graph.tensors:
        identifier = tensors[tensor.name].identifier
        if tensor.role is Role.LOCAL:
            offset = index_text(planned.workspace.offsets[tensor.name], names, 1)
            opening.append(f"{identifier} = pointer_{tensor.dtype.name}(workspace + {offset})")
            continue
        scalar = tensor.role is Role.SCALAR
        parameters.append(CpuParameter(name=tensor.name, kind="scalar" if scalar else "array", dtype=tensor.dtype.name))
        if scalar:
            arguments.append(identifier)
            types.append(_scalar_type(tensor.dtype))
        else:
            address = names.fresh("address")
            arguments.append(address)
            types.append("int64")
            opening.append(f"{identifier} = pointer_{tensor.dtype.name}({address})")
    for size in graph.sizes:
        parameters.append(CpuParameter(name=size, kind="size"))
        arguments.append(names.of("value", size))
        types.append("int64")
    parameters.append(CpuParameter(name="", kind="workspace"))
    arguments.append("workspace")
    types.append("int64")
    out.line(f"# {file_name(graph.source_name)}: the host program")
    out.line(f'@njit(int64({", ".join(types)}), error_model="numpy")')
    with out.block(f"def run({', '.join(arguments)}):"):
        for line in opening:
            out.line(line)
        _emit_host(graph.body, functions, names, out)
        out.line("return 0")
    return tuple(parameters)


def _emit_host(body: tuple[KernelNode, ...], functions: dict[str, _Function], names: Names, out: Writer) -> None:
    for node in body:
        match node:
            case Launch(graph=graph):
                function = functions[graph.name]
                out.line(f"code = {function.identifier}({', '.join(function.arguments)})")
                with out.block("if code != 0:"):
                    out.line("return code")
            case HostLoop(index=index, extent=extent, body=inner):
                with out.block(f"for {names.of('value', index)} in range({index_text(extent, names)}):"):
                    _emit_host(inner, functions, names, out)
            case HostIf(condition=condition, then=then, orelse=orelse):
                with out.block(f"if {condition_text(condition, names)}:"):
                    _emit_host(then, functions, names, out)
                if orelse:
                    with out.block("else:"):
                        _emit_host(orelse, functions, names, out)
            case _:
                assert_never(node)
