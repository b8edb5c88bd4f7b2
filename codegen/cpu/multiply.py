"""The products of two panels, with their sums in registers, as a function of LLVM's vectors.

    multiply(c, a, b, count, rows, columns, c_row, a_row, a_deep, b_deep, fused)
        c[c_row*i + j] += a[a_row*i + a_deep*k] * b[b_deep*k + j]      for k < count, i < rows, j < columns, k outermost

All but the pointers and the count are literals, so that each row of sums is a few vectors; where this machine's
registers are too few for all of them, columns go in pieces, and all products of a piece come before those of the next.
It is a function of its own, that LLVM does not inline: what is around it keeps its own registers, and ragged edges
make no copies of it.

Importing this module imports Numba.
"""

from typing import Any

from llvmlite import binding, ir

from texpr.codegen.cpu.intrinsics import Gen, intrinsic, types

WORD, LANE = (ir.IntType(bits) for bits in (64, 32))


def _registers() -> tuple[int, int]:
    """Bits of a vector register of this machine, and how many of them there are."""
    from numba.core import config

    named = getattr(config, "CPU_FEATURES", None)
    has = binding.get_host_cpu_features().flatten() if named is None else named
    if "+avx512f" in has:
        width_bits, count = 512, 32
    elif binding.get_default_triple().startswith(("aarch64", "arm64")):
        width_bits, count = 128, 32
    else:
        width_bits, count = 256 if "+avx" in has else 128, 16
    return width_bits, count


def _multiply(context: Any, *given: Any) -> Any:
    pointers, count, literals = given[:3], given[3], given[4:]
    if not all(isinstance(number, types.IntegerLiteral) for number in literals):
        return None
    shape = tuple(number.literal_value for number in literals)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = context.get_data_type(pointers[0].dtype)
        integer = context.cast(builder, args[3], count, types.int64)
        builder.call(_function(builder.module, element, *shape), [*args[:3], integer])
        return context.get_dummy_value()

    return types.void(*given), generate


def _typed(
    context: Any, c: Any, a: Any, b: Any, k: Any, m: Any, n: Any, c_row: Any, a_row: Any, a_k: Any, b_k: Any, f: Any
) -> Any:
    """Numba asks for the number of arguments by name."""
    return _multiply(context, c, a, b, k, m, n, c_row, a_row, a_k, b_k, f)


multiply = intrinsic(prefer_literal=True)(_typed)


def _function(module: Any, element: Any, *shape: int) -> Any:
    """The function of a shape, once in a module."""
    kind = ir.FunctionType(ir.VoidType(), [element.as_pointer()] * 3 + [WORD])
    name = f"texpr_multiply_{element}_{'_'.join(map(str, shape))}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    for pointer in function.args[:3]:
        pointer.add_attribute("noalias")
    rows, columns = shape[:2]
    builder = ir.IRBuilder(function.append_basic_block())
    for first, width, vectors in _pieces(rows, columns, element):
        _piece(builder, function, element, shape, first, width, vectors)
    builder.ret_void()
    return function


def _pieces(rows: int, columns: int, element: Any) -> Any:
    """First columns, the elements of a vector, and vectors, of pieces whose sums and factors have registers."""
    width_bits, count = _registers()
    width = width_bits // (8 * element_bytes(element))
    most = max(1, (count - 1) // (rows + 1))
    first = 0
    while first < columns:
        while width > columns - first:
            width //= 2
        vectors = min(most, (columns - first) // width)
        yield first, width, vectors
        first += width * vectors


def _piece(builder: Any, function: Any, element: Any, shape: Any, column: int, width: int, vectors: int) -> None:
    """All products of a few columns: one loop over k, with the sums as its variables."""
    rows, _, c_row, a_row, a_deep, b_deep, fused = shape
    c, a, b, count = function.args
    vector, align = ir.VectorType(element, width), element_bytes(element)
    flags = ("contract",) if fused else ()

    def at(pointer: Any, offset: int) -> Any:
        return builder.bitcast(builder.gep(pointer, [WORD(offset)]), vector.as_pointer())

    def spread(value: Any) -> Any:
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, LANE(0))
        return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(LANE, width), [0] * width))

    def added(total: Any, left: Any, right: Any) -> Any:
        if isinstance(element, ir.IntType):
            return builder.add(total, builder.mul(left, right))
        return builder.fadd(total, builder.fmul(left, right, flags=flags), flags=flags)

    places = [[at(c, c_row * row + column + width * n) for n in range(vectors)] for row in range(rows)]
    starts = [[builder.load(place, align=align) for place in row] for row in places]
    before = builder.block
    loop, after = function.append_basic_block("deep"), function.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", count, WORD(0)), loop, after)
    builder.position_at_end(loop)
    k = builder.phi(WORD)
    sums = [[builder.phi(vector) for _ in row] for row in starts]
    left = builder.gep(a, [builder.mul(k, WORD(a_deep))])
    right = builder.gep(b, [builder.mul(k, WORD(b_deep))])
    beside = [builder.load(at(right, column + width * n), align=align) for n in range(vectors)]
    made = []
    for row in range(rows):
        down = spread(builder.load(builder.gep(left, [WORD(a_row * row)]), align=align))
        made.append([added(total, down, other) for total, other in zip(sums[row], beside, strict=True)])
    following = builder.add(k, WORD(1))
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    k.add_incoming(WORD(0), before)
    k.add_incoming(following, loop)
    builder.position_at_end(after)
    for start_row, sum_row, made_row in zip(starts, sums, made, strict=True):
        for start, total, result in zip(start_row, sum_row, made_row, strict=True):
            total.add_incoming(start, before)
            total.add_incoming(result, loop)
    ends = []
    for start_row, made_row in zip(starts, made, strict=True):
        for start, result in zip(start_row, made_row, strict=True):
            end = builder.phi(vector)
            end.add_incoming(start, before)
            end.add_incoming(result, loop)
            ends.append(end)
    for end, place in zip(ends, (place for row in places for place in row), strict=True):
        builder.store(end, place, align=align)


def element_bytes(element: Any) -> int:
    """Bytes of an element of LLVM."""
    return element.width // 8 if isinstance(element, ir.IntType) else 4 if element == ir.FloatType() else 8


def _at(context: Any, pointer: Any, offset: Any) -> tuple[Any, Gen]:
    """The pointer to an element."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [context.cast(builder, args[1], signature.args[1], types.int64)])

    return pointer(pointer, offset), generate


at = intrinsic(_at)


def _hold(context: Any, array: Any) -> tuple[Any, Gen]:
    """The array lives up to here, whoever has its address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_dummy_value()

    return types.void(array), generate


hold = intrinsic(_hold)
