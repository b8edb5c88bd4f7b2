"""The C header of an artifact: what a launcher written in C or C++ needs, and nothing that it would have to link.

The kernels lie in the cubin, so the header declares no function of theirs. It has their symbols and shapes as macros,
grids and workspaces as inline functions of the sizes, and the order of the launches with their arguments as a comment.
For a tensor map it has, behind cuda.h, a function that encodes it.

    /* ...
     * The launches, one after the other on one stream; one whose grid is empty is left out:
     *   vadd_0(const float *A, float *C, int64_t N)
     */
    #define TEXPR_vadd_0_SYMBOL "vadd_0"
    #define TEXPR_vadd_0_BLOCK 256
    #define TEXPR_vadd_0_SHARED_BYTES 0
    static inline void texpr_vadd_0_grid(int64_t N, int64_t grid[3]) {
      grid[0] = texpr_ceildiv(N, 256);
      ...
    }
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import assert_never

from texpr.codegen.cuda.copies import BoxMap
from texpr.codegen.cuda.names import comment, kernel_symbol, mangle
from texpr.codegen.tensor_map import PROMOTION_BYTES, SWIZZLE_BYTES, TYPES
from texpr.codegen.writer import Writer
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, Role
from texpr.grammar.index.expr import ONE, ZERO, const, multiply, names
from texpr.grammar.index.operators import BETWEEN, OPERATORS
from texpr.grammar.index.text import Infix, in_words, text
from texpr.grammar.walk import walk
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.mapped.between import GridBarrier, Init, words_bytes
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch
from texpr.polyhedral.mapped.walks import device_buffers, launches, of_kind, overlaps, waits_for_queue

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
_ARRAY, _MAP = "texpr_array", "texpr_map"  # no size is called so (`_c_name`)
_C_WORDS = frozenset(
    [
        "restrict",
        "typeof",
        "typeof_unqual",
        "complex",
        "imaginary",
        "noreturn",
        "grid",
        "extents",
        "strides",
        "box",
        "steps",
    ]
)
_FOREIGN = ("texpr_", "CU", "cuTensorMap")  # so begin the names of this header, and those it takes from cuda.h
_CALLED = {op: row.c_name for op, row in OPERATORS.items() if row.c}
_FUNCTIONS = (
    "#ifndef TEXPR_INDEX",
    "#define TEXPR_INDEX",
    *(f"static inline int64_t {row.c_name}(int64_t a, int64_t b) {row.c}" for row in OPERATORS.values() if row.c),
    "#endif",
)

MAX_WIDTH = 96  # of a line in the comment

Arguments = Mapping[str, tuple[tuple[str, str], ...]]
Maps = Mapping[str, Mapping[str, BoxMap]]


def c_header(planned: PlannedProgram, written: Collection[str], arguments: Arguments, maps: Maps, version: str) -> str:
    """The header's text. `written` are the buffers that any launch writes; `arguments` gives for each kernel's symbol
    what its launch passes, as (kind, name), and `maps` what the tensor maps among them describe; functions take the
    free sizes in order of appearance, then the indices of the host loops around the launch."""
    program = planned.program
    name, sizes = program.kernel.name, tuple(size.name for size in program.kernel.sizes)
    guard = f"TEXPR_{mangle(name)}_H"
    out = Writer()
    _say(planned, written, arguments, version, out)
    out.line(f"#ifndef {guard}")
    out.line(f"#define {guard}")
    out.line("#include <stdint.h>")
    body = Writer()
    for launch, indices in _launches(program.host, ()):
        _launch(launch, planned, (*sizes, *indices), body)
        _maps(launch, planned, maps.get(kernel_symbol(launch.name), {}), sizes, body)
    spaces = [buffer.name for buffer in device_buffers(program) if buffer.role is Role.LOCAL]
    if spaces:
        stem = f"texpr_{mangle(name)}"
        body.line()
        _function(f"{stem}_workspace_bytes", sizes, planned.workspace_bytes, body)
        for space in spaces:
            _function(f"{stem}_offset_{mangle(space)}", sizes, planned.addresses[space].offset_bytes, body)
    for words in program.words:
        body.line()
        _function(f"texpr_{mangle(name)}_words_{mangle(words.name)}_bytes", sizes, words_bytes(words), body)
    results = [extent for launch in launches(program.host) for extent in launch.grid]
    results += [words_bytes(words) for words in program.words]
    results += [e for found in maps.values() for map_ in found.values() for e in _lies(map_, planned)]
    if spaces:
        results += [planned.workspace_bytes, *(planned.addresses[space].offset_bytes for space in spaces)]
    if any(isinstance(node, IndexBinary) and node.op in _CALLED for result in results for node in walk(result)):
        out.line()
        for line in _FUNCTIONS:
            out.line(line)
    for line in body.text().splitlines():
        out.line(line)
    out.line()
    out.line("#endif")
    return out.text()


def _say(planned: PlannedProgram, written: Collection[str], arguments: Arguments, version: str, out: Writer) -> None:
    """The comment: arrays, and the host program."""
    program = planned.program
    buffers = device_buffers(program)
    out.line(f"/* {comment(program.kernel.name)}: what a launcher in C or C++ needs, by TExpr {version}.")
    out.line(
        " * There is nothing to link: load the cubin with the CUDA driver (cuModuleLoadData), take each kernel by its"
    )
    out.line(" * symbol and launch it (cuLaunchKernel) with its block, its bytes of shared memory and its grid.")
    out.line(" *")
    out.line(
        " * Arrays are device pointers, aligned as given, and share no memory unless they are only read; f16, bf16 and"
    )
    out.line(" * f8 are bit patterns.")
    for tensor in buffers:
        if tensor.role is Role.PARAM:
            shape = ", ".join(in_words(e) for e in tensor.shape)
            use = "written" if tensor.name in written else "read"
            out.line(f" *   {comment(f'{tensor.name}: {tensor.dtype}[{shape}], {use}, {tensor.align} bytes')}")
    for words in program.words:
        out.line(f" *   {comment(f'{words.name}: words of 32 bits, {_BEGIN[words.init]}')}")
    out.line(" *")
    out.line(" * The launches, one after the other on one stream; one whose grid is empty is left out:")
    types = {
        t.name: f"{_C_TYPES[t.dtype.name]} "
        if t.role is Role.SCALAR
        else f"{'' if t.name in written else 'const '}{_C_TYPES[t.dtype.name]} *"
        for t in buffers
    }
    for depth, line in _host_program(program.host, arguments, types, 0):
        out.line(f" *   {'  ' * depth}{comment(line)}")
    out.line(" */")


_BEGIN = {
    Init.NONE: "of any values when a call begins",
    Init.ZERO_EACH_CALL: "zeros when a call begins",
    Init.ZERO_ONCE: "zeros, which each call leaves to the next one on its stream",
}
_OWN_TYPES = {"size": "int64_t ", "index": "int64_t ", "words": "uint32_t *", "map": "CUtensorMap "}


def _host_program(
    body: tuple[HostNode, ...], arguments: Arguments, types: Mapping[str, str], depth: int
) -> Iterator[tuple[int, str]]:
    """The lines of the host program with their depths."""
    for node in body:
        match node:
            case Launch(name=name):
                symbol = kernel_symbol(name)
                passed = [f"{_OWN_TYPES.get(kind) or types[name]}{name}" for kind, name in arguments.get(symbol, ())]
                if len(line := f"{symbol}({', '.join(passed)})") <= MAX_WIDTH:
                    yield depth, line
                else:
                    yield depth, f"{symbol}("
                    yield from ((depth + 2, f"{text},") for text in passed[:-1])
                    yield depth + 2, f"{passed[-1]})"
                yield from ((depth + 1, text) for text in _ways(node))
            case HostLoop(index=index, extent=extent, body=inner):
                yield depth, f"for {index} from 0 to {in_words(extent)} - 1:"
                yield from _host_program(inner, arguments, types, depth + 1)
            case HostIf(condition=condition, then=then, orelse=orelse):
                yield depth, f"if {in_words(condition)}:"
                yield from _host_program(then, arguments, types, depth + 1)
                if orelse:
                    yield depth, "else:"
                    yield from _host_program(orelse, arguments, types, depth + 1)
            case _:
                assert_never(node)


def _ways(launch: Launch) -> Iterator[str]:
    """How a launch is made, where it is not made as all others."""
    if launch.cluster != (1, 1, 1):
        yield f"in clusters of {prod(launch.cluster)} blocks, as the kernel itself says"
    if overlaps(launch):
        before = "what is on the stream" if waits_for_queue(launch) else "the one above"
        yield f"may begin before {before} is over: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,"
        if not waits_for_queue(launch):
            yield "which only a launch has that follows another one of this list"
    if any(of_kind(launch.body, GridBarrier)):
        yield "all its blocks run together: CU_LAUNCH_ATTRIBUTE_COOPERATIVE"


def _lies(map_: BoxMap, planned: PlannedProgram) -> tuple[IndexExpr, ...]:
    """The extents of a tensor map's array, and then its strides in bytes but for the last one; from the contiguous
    dimension."""
    buffer = planned.program.buffers[map_.buffer]
    steps = strides(planned.addresses[map_.buffer].layout) or ()
    size = const(buffer.dtype.size_bytes)
    return (*reversed(buffer.shape), *(multiply(step, size) for step in reversed(steps[:-1])))


def _maps(
    launch: Launch, planned: PlannedProgram, maps: Mapping[str, BoxMap], sizes: tuple[str, ...], out: Writer
) -> None:
    """The functions that encode the tensor maps of a launch, for who has included cuda.h."""
    if not maps:
        return
    out.line()
    out.line("#ifdef CUDA_VERSION /* cuda.h stands before this file */")
    for name, map_ in maps.items():
        rank, found = len(map_.box), _lies(map_, planned)
        parameters = [*(f"int64_t {_c_name(value)}" for value in sizes), f"void *{_ARRAY}", f"CUtensorMap *{_MAP}"]
        symbol = kernel_symbol(launch.name)
        with out.block(f"static inline CUresult texpr_{symbol}_{name}({', '.join(parameters)})"):
            _unused(sizes, found, out)
            numbers: dict[str, list[IndexExpr]] = {
                "cuuint64_t extents": list(found[:rank]),
                "cuuint64_t strides": list(found[rank:]) or [ZERO],
                "cuuint32_t box": [const(extent) for extent in reversed(map_.box)],
                "cuuint32_t steps": [ONE] * rank,
            }
            for declared, each in numbers.items():
                out.line(f"const {declared}[] = {{{', '.join(_unsigned(e, declared.split()[0]) for e in each)}}};")
            dtype = planned.program.buffers[map_.buffer].dtype.name
            words = (
                "CU_TENSOR_MAP_INTERLEAVE_NONE",
                f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLE_BYTES[map_.swizzle_bytes][0]}",
                f"CU_TENSOR_MAP_L2_PROMOTION_{PROMOTION_BYTES[map_.promotion_bytes][0]}",
                "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
            )
            out.line(
                f"return cuTensorMapEncodeTiled({_MAP}, CU_TENSOR_MAP_DATA_TYPE_{TYPES[dtype][0]}, {rank}, {_ARRAY},"
            )
            out.line(f"                              extents, strides, box, steps, {', '.join(words[:2])},")
            out.line(f"                              {', '.join(words[2:])});")
    out.line("#endif")


def _unsigned(expr: IndexExpr, kind: str) -> str:
    """A number in an unsigned type of C."""
    written = text(expr, _C).text
    return written if isinstance(expr, IndexConst) else f"({kind})({written})"


def _launches(body: tuple[HostNode, ...], indices: tuple[str, ...]) -> Iterator[tuple[Launch, tuple[str, ...]]]:
    """Every launch with the indices of the host loops around it."""
    for node in body:
        match node:
            case Launch():
                yield node, indices
            case HostLoop(index=index, body=inner):
                yield from _launches(inner, (*indices, index))
            case HostIf(then=then, orelse=orelse):
                yield from _launches((*then, *orelse), indices)
            case _:
                assert_never(node)


def _launch(launch: Launch, planned: PlannedProgram, values: tuple[str, ...], out: Writer) -> None:
    """The macros and the grid of one launch."""
    symbol = kernel_symbol(launch.name)
    out.line()
    out.line(f'#define TEXPR_{symbol}_SYMBOL "{symbol}"')
    out.line(f"#define TEXPR_{symbol}_BLOCK {launch.threads}")
    out.line(f"#define TEXPR_{symbol}_SHARED_BYTES {planned.shared_bytes[launch.name]}")
    parameters = [*(f"int64_t {_c_name(value)}" for value in values), "int64_t grid[3]"]
    with out.block(f"static inline void texpr_{symbol}_grid({', '.join(parameters)})"):
        _unused(values, launch.grid, out)
        for axis, extent in enumerate(launch.grid):
            out.line(f"grid[{axis}] = {text(extent, _C).text};")


def _function(name: str, sizes: tuple[str, ...], result: IndexExpr, out: Writer) -> None:
    """A function of the sizes."""
    parameters = ", ".join(f"int64_t {_c_name(size)}" for size in sizes) or "void"
    with out.block(f"static inline int64_t {name}({parameters})"):
        _unused(sizes, (result,), out)
        out.line(f"return {text(result, _C).text};")


def _unused(values: tuple[str, ...], results: tuple[IndexExpr, ...], out: Writer) -> None:
    """A line that names the parameters that no result uses: compilers warn of those."""
    used = frozenset().union(*map(names, results))
    idle = [f"(void){_c_name(value)};" for value in values if value not in used]
    if idle:
        out.line(" ".join(idle))


def _c_name(name: str) -> str:
    """The C name of a size or a host index, as `mangle` gives it, clear of C's own words, of types (`int64_t`), and of
    the names here and in cuda.h."""
    mangled = mangle(name)
    foreign = mangled in _C_WORDS or mangled.endswith("_t") or mangled.startswith(_FOREIGN)
    return f"{mangled}_v" if foreign else mangled


_C = Infix(
    signs=BETWEEN,
    calls=_CALLED,
    spelled=lambda leaf: _c_name(leaf.name),
    brackets=True,
)
