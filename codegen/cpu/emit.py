"""Emission for the CPU: a planned program becomes a Python module of Numba functions.

Each launch is one or two functions (`launch.py`). The module's `run` takes addresses of arrays, scalars, sizes and the
workspace, walks the host program and returns 0, or where there are run-time checks a finding. The text is a
function of the program alone.

    @njit(int64(int64, int64, int64, int64), error_model="numpy")
    def run(address0, address1, N, workspace):
        A = pointer_f32(address0)
        C = pointer_f32(address1)
        code = vadd_0(A, C, N)
        if code != 0:
            return code
        return 0
"""

from typing import assert_never

from texpr.codegen.cpu.context import Check, CpuTensor, Writer
from texpr.codegen.cpu.launch import CORE, ELEMENT, FIRST, LAST, LaunchText, Variable, emit_launch
from texpr.codegen.cpu.names import Names, file_name, place
from texpr.grammar.ast import IndexExpr, Role
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.text import SUM
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.candidate import address_of
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch
from texpr.polyhedral.mapped.walks import device_buffers, launches
from texpr.polyhedral.target import Target

MAX_BYTES = 4 << 20
IMPORTS = "import numpy as np\n\nfrom texpr.codegen.cpu.library import *\n\n\n"


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


def emit_cpu(planned: PlannedProgram, target: Target) -> CpuText:
    """The module text of a planned program. Raises E0506 when it is longer than 4 MiB."""
    kernel = planned.program.kernel
    for words in planned.program.words:
        raise fail("E0502", f"the words {words.name} are not emitted for a CPU", kernel.span)
    names = Names()
    for name, identifier in ((CORE, "core"), (FIRST, "first"), (LAST, "last")):
        names.reserve("value", name, identifier)
    tensors: dict[str, CpuTensor] = {}
    candidates: list[Variable] = []
    for tensor in device_buffers(planned.program):
        scalar = tensor.role is Role.SCALAR
        identifier = names.of("value", tensor.name)
        tensors[tensor.name] = CpuTensor(
            name=tensor.name,
            identifier=identifier,
            dtype=tensor.dtype,
            layout=planned.addresses[tensor.name].layout,
            scalar=scalar,
            device=not scalar,
        )
        text = _scalar_type(tensor.dtype) if scalar else f"pointer({ELEMENT[tensor.dtype.name]})"
        candidates.append(Variable(identifier=identifier, type_text=text))
    candidates += [Variable(identifier=names.of("value", size.name), type_text="int64") for size in kernel.sizes]

    checks: list[Check] = []
    parts: list[str] = []
    functions: dict[str, LaunchText] = {}
    for block in launches(planned.program.host):
        function = emit_launch(block, planned, tensors, candidates, names, checks)
        functions[block.name] = function
        parts.append(function.text)
    run = Writer()
    parameters = _emit_run(planned, tensors, functions, names, run)
    parts.append(run.text())
    parts.append(_tables(parameters, checks))
    origin = f"# {file_name(kernel.name)} from {file_name(kernel.span.source.name)} for {target.name}\n\n"
    source = origin + IMPORTS + "\n\n".join(parts)
    if len(source) > MAX_BYTES:
        raise fail("E0506", f"the module of {kernel.name} is longer than {MAX_BYTES} bytes", help="unroll less")
    return CpuText(
        name=kernel.name,
        source=source,
        parameters=parameters,
        checks=tuple(checks),
        workspace_bytes=planned.workspace_bytes,
    )


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
    return "boolean" if dtype.is_bool else ELEMENT[dtype.name]


def _emit_run(
    planned: PlannedProgram,
    tensors: dict[str, CpuTensor],
    functions: dict[str, LaunchText],
    names: Names,
    out: Writer,
) -> tuple[CpuParameter, ...]:
    program = planned.program
    parameters: list[CpuParameter] = []
    arguments: list[str] = []
    types: list[str] = []
    opening: list[str] = []
    for tensor in device_buffers(program):
        identifier = tensors[tensor.name].identifier
        if tensor.role is Role.LOCAL:
            offset = names.text(planned.addresses[tensor.name].offset_bytes, SUM)
            opening.append(f"{identifier} = pointer_{tensor.dtype.name}(workspace + {offset})")
            continue
        scalar = tensor.role is Role.SCALAR
        parameters.append(CpuParameter(name=tensor.name, kind="scalar" if scalar else "array", dtype=tensor.dtype.name))
        if scalar:
            arguments.append(identifier)
            types.append(_scalar_type(tensor.dtype))
        else:
            address = names.fresh("address")
            names.reserve("value", address_of(tensor.name).name, address)
            arguments.append(address)
            types.append("int64")
            opening.append(f"{identifier} = pointer_{tensor.dtype.name}({address})")
    for size in program.kernel.sizes:
        parameters.append(CpuParameter(name=size.name, kind="size"))
        arguments.append(names.of("value", size.name))
        types.append("int64")
    parameters.append(CpuParameter(name="", kind="workspace"))
    arguments.append("workspace")
    types.append("int64")
    out.line(f"# {file_name(program.kernel.span.source.name)}: the host program")
    checked = any(function.checked for function in functions.values())
    out.line(f'@njit({"finding_type" if checked else "int64"}({", ".join(types)}), error_model="numpy")')
    with out.block(f"def run({', '.join(arguments)}):"):
        for line in opening:
            out.line(line)
        _emit_host(program.host, functions, names, out)
        out.line("return finding(0, 0, 0)" if checked else "return 0")
    return tuple(parameters)


def _emit_host(body: tuple[HostNode, ...], functions: dict[str, LaunchText], names: Names, out: Writer) -> None:
    for node in body:
        match node:
            case Launch(name=name):
                function = functions[name]
                call = f"{function.identifier}({', '.join(function.arguments)})"
                if not function.checked and any(f.checked for f in functions.values()):
                    out.line(call)
                    continue
                out.line(f"code = {call}")
                with out.block("if code[0] != 0:" if function.checked else "if code != 0:"):
                    out.line("return code")
            case HostLoop(index=index, extent=extent, body=inner):
                with out.block(f"for {names.of('value', index)} in range({names.text(extent)}):"):
                    _emit_host(inner, functions, names, out)
            case HostIf(condition=condition, then=then, orelse=orelse):
                with out.block(f"if {names.text(condition)}:"):
                    _emit_host(then, functions, names, out)
                if orelse:
                    with out.block("else:"):
                        _emit_host(orelse, functions, names, out)
            case _:
                assert_never(node)
