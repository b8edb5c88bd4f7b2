"""The C header of an artifact: its plain C interface as a prototype, with shapes and directions in comments."""

from texpr.codegen.cuda.names import comment, mangle
from texpr.codegen.cuda.usage import nodes_of
from texpr.codegen.graph import DTensor, Generic, PlannedGraph
from texpr.codegen.writer import Writer
from texpr.grammar.ast import Role
from texpr.grammar.indexing import write_index

_C_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f8e4m3": "uint8_t",
    "f8e5m2": "uint8_t",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u32": "uint32_t",
    "u8": "uint8_t",
    "bool": "uint8_t",
}


def c_header(planned: PlannedGraph, version: str) -> str:
    """The header's text: parameters in declared order, free sizes in order of appearance, the stream last."""
    graph = planned.graph
    written = {
        node.store.tensor
        for launch in graph.launches()
        for node in nodes_of(launch.body)
        if isinstance(node, Generic) and node.store is not None
    }
    guard = f"TEXPR_{mangle(graph.name).upper()}_H"
    out = Writer()
    out.line(f"/* {comment(graph.name)}: the C interface of the kernel, by TExpr {version}.")
    out.line(" * Arrays are device pointers, 16-byte aligned, and do not overlap; f16, bf16 and f8 are bit patterns.")
    for tensor in graph.tensors:
        if tensor.role is Role.PARAM:
            shape = ", ".join(write_index(e) for e in tensor.shape)
            direction = "written" if tensor.name in written else "read"
            out.line(f" *   {comment(tensor.name)}: {tensor.dtype}[{shape}], {direction}")
    out.line(" * `stream` is a CUstream or null. Returns 0, or an error code. */")
    out.line(f"#ifndef {guard}")
    out.line(f"#define {guard}")
    out.line("#include <stdint.h>")
    out.line("#ifdef __cplusplus")
    out.line('extern "C" {')
    out.line("#endif")
    arguments = [_argument(t, t.name in written) for t in graph.tensors if t.role is not Role.LOCAL]
    arguments += [f"int64_t {mangle(size)}" for size in graph.sizes]
    out.line(f"int tx_{mangle(graph.name)}({', '.join([*arguments, 'void *stream'])});")
    out.line("#ifdef __cplusplus")
    out.line("}")
    out.line("#endif")
    out.line("#endif")
    return out.text()


def _argument(tensor: DTensor, written: bool) -> str:
    name = mangle(tensor.name)
    if tensor.role is Role.SCALAR:
        return f"{_C_TYPES[tensor.dtype.name]} {name}"
    return f"{'' if written else 'const '}{_C_TYPES[tensor.dtype.name]} *{name}"
