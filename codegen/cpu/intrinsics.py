"""The LLVM instructions that emitted CPU code uses and Numba's Python does not have.

Everything here is called from generated text inside Numba functions. Pointers are `CPointer` types: no wrap-around of
negative subscripts, no reference counts. Floating-point operations carry their own flags, so that what the language
lets an accumulation do (`reassoc`) or a multiply-add in one statement (`contract`) is let to nothing else; `nnan` and
`ninf` are never set.

Importing this module imports Numba; only `codegen.cpu.build` and `codegen.cpu.half` do, when a kernel is built.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba import types as _types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic

types: Any = _types
cgutils: Any = _cgutils
intrinsic: Any = _intrinsic

Gen = Callable[[Any, Any, Any, Any], Any]

STORAGE: dict[str, Any] = {
    "f64": types.float64,
    "f32": types.float32,
    "f16": types.uint16,
    "bf16": types.uint16,
    "f8e4m3": types.uint8,
    "f8e5m2": types.uint8,
    "i64": types.int64,
    "i32": types.int32,
    "i16": types.int16,
    "i8": types.int8,
    "u32": types.uint32,
    "u8": types.uint8,
    "bool": types.uint8,
}
"""The Numba type of one stored element, by the name of the element type."""


def _binary(instruction: str, flags: tuple[str, ...]) -> Any:
    """One float instruction on two values of one type, with fast-math flags."""

    def typed(context: Any, left: Any, right: Any) -> tuple[Any, Gen]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(args[0], args[1], flags=flags)

        return left(left, left), generate

    return intrinsic(typed)


add_c = _binary("fadd", ("contract",))
sub_c = _binary("fsub", ("contract",))
mul_c = _binary("fmul", ("contract",))
add_r = _binary("fadd", ("reassoc",))
add_rc = _binary("fadd", ("reassoc", "contract"))
mul_r = _binary("fmul", ("reassoc",))


def _llvm(name: str, arity: int, *flags: str) -> Any:
    """`llvm.<name>` on floats of one type, with fast-math flags."""

    def emit(builder: Any, args: Any) -> Any:
        kind = args[0].type
        suffix = "f32" if kind == ir.FloatType() else "f64"
        signature = ir.FunctionType(kind, [kind] * arity)
        function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{suffix}")
        return builder.call(function, list(args), fastmath=flags)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit(builder, args)

    def unary(context: Any, x: Any) -> tuple[Any, Gen]:
        return x(x), generate

    def binary(context: Any, x: Any, y: Any) -> tuple[Any, Gen]:
        return x(x, x), generate

    def ternary(context: Any, x: Any, y: Any, z: Any) -> tuple[Any, Gen]:
        return x(x, x, x), generate

    return intrinsic({1: unary, 2: binary, 3: ternary}[arity])


exp = _llvm("exp", 1)
exp2 = _llvm("exp2", 1)
log = _llvm("log", 1)
log2 = _llvm("log2", 1)
sqrt = _llvm("sqrt", 1)
sin = _llvm("sin", 1)
cos = _llvm("cos", 1)
floor = _llvm("floor", 1)
ceil = _llvm("ceil", 1)
rint = _llvm("rint", 1)
fabs = _llvm("fabs", 1)
power = _llvm("pow", 2)
minimum = _llvm("minimum", 2, "nsz")  # 0 and -0 are equal, and either is the result
maximum = _llvm("maximum", 2, "nsz")
fma = _llvm("fma", 3)


def _saturating(target: Any, signed: bool) -> Any:
    """Float to integer: truncates, saturates, NaN to 0."""

    def typed(context: Any, x: Any) -> tuple[Any, Gen]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            result = ir.IntType(target.bitwidth)
            suffix = "f32" if args[0].type == ir.FloatType() else "f64"
            name = f"llvm.fpto{'s' if signed else 'u'}i.sat.i{target.bitwidth}.{suffix}"
            function = ir.FunctionType(result, [args[0].type])
            return builder.call(cgutils.get_or_insert_function(builder.module, function, name), list(args))

        return target(x), generate

    return intrinsic(typed)


to_i64 = _saturating(types.int64, True)
to_i32 = _saturating(types.int32, True)
to_i16 = _saturating(types.int16, True)
to_i8 = _saturating(types.int8, True)
to_u32 = _saturating(types.uint32, False)
to_u8 = _saturating(types.uint8, False)


def _bitcast(source: Any, target: Any) -> Any:
    def typed(context: Any, x: Any) -> tuple[Any, Gen]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return intrinsic(typed)


bits_of_f32 = _bitcast(types.float32, types.uint32)
f32_of_bits = _bitcast(types.uint32, types.float32)


def _half_to_f32(context: Any, x: Any) -> tuple[Any, Gen]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


def _f32_to_half(context: Any, x: Any) -> tuple[Any, Gen]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


half_to_f32 = intrinsic(_half_to_f32)
f32_to_half = intrinsic(_f32_to_half)


def _restrict(context: Any) -> tuple[Any, Gen]:
    """Marks every pointer argument of the calling function `noalias`: distinct tensors never overlap, which the
    launch checks of arguments and the workspace plan proves of the rest."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for argument in builder.function.args[2:]:  # the first two are Numba's result and exception slots
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), generate


restrict = intrinsic(_restrict)


def _pointer(element: Any) -> Any:
    """An address (i64) as a typed pointer."""

    def typed(context: Any, address: Any) -> tuple[Any, Gen]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(types.CPointer(element)))

        return types.CPointer(element)(types.int64), generate

    return intrinsic(typed)


def _stack(element: Any) -> Any:
    """`n` uninitialised elements on the stack of the calling function; `n` is a literal."""

    def typed(context: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = context.get_data_type(element)
            with (
                builder.goto_entry_block()
            ):  # Numba's own stores zeros, one by one: LLVM takes minutes for 32768 of them
                block = builder.alloca(ir.ArrayType(item, count.literal_value))
            block.align = 64
            return builder.bitcast(block, item.as_pointer())

        return types.CPointer(element)(count), generate

    return intrinsic(prefer_literal=True)(typed)


pointers: dict[str, Any] = {name: _pointer(element) for name, element in STORAGE.items()}
stacks: dict[str, Any] = {name: _stack(element) for name, element in STORAGE.items()}


def _peek(context: Any, pointer: Any, offset: Any) -> tuple[Any, Gen]:
    """An indivisible load."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size, integer = _integer_like(args[0].type.pointee)
        address = builder.bitcast(builder.gep(args[0], [args[1]]), integer.as_pointer())
        value = builder.load_atomic(address, "monotonic", size)
        return builder.bitcast(value, args[0].type.pointee)

    return pointer.dtype(pointer, types.int64), generate


def _exchange(context: Any, pointer: Any, offset: Any, expected: Any, desired: Any) -> tuple[Any, Gen]:
    """Compare-and-exchange of one element by its bits; true when `desired` was stored."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, integer = _integer_like(args[0].type.pointee)
        address = builder.bitcast(builder.gep(args[0], [args[1]]), integer.as_pointer())
        old, new = (builder.bitcast(a, integer) for a in args[2:])
        pair = builder.cmpxchg(address, old, new, "monotonic", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(pointer, types.int64, pointer.dtype, pointer.dtype), generate


def _integer_like(element: Any) -> tuple[int, Any]:
    if isinstance(element, ir.IntType):
        return element.width // 8, element
    size = 4 if element == ir.FloatType() else 8
    return size, ir.IntType(8 * size)


peek = intrinsic(_peek)
exchange = intrinsic(_exchange)


def _keep(context: Any, value: Any) -> tuple[Any, Gen]:
    """Makes the value count as used, so that its computation is never removed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slot = cgutils.alloca_once_value(builder, args[0])
        function = ir.FunctionType(ir.VoidType(), [slot.type])
        builder.asm(function, "", "r,~{memory}", [slot], True)
        return context.get_dummy_value()

    return types.void(value), generate


keep = intrinsic(_keep)


def _opaque(context: Any, value: Any) -> tuple[Any, Gen]:
    """The same number, unknown to the compiler: a loop up to it is vectorised and not unrolled away."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(64)
        return builder.asm(ir.FunctionType(integer, [integer]), "", "=r,0", [args[0]], False)

    return types.int64(types.int64), generate


opaque = intrinsic(_opaque)


def inline(function: Callable[..., Any]) -> Any:
    """A small helper compiled into its callers; integer division follows the language, not Python's exceptions."""
    return njit(error_model="numpy", inline="never", boundscheck=False)(function)
