"""Functions that others call by their address: LLVM has each of them once.

Numba links what a function calls into its own module, and optimises all of that again; a parallel function has three
modules. So loops of a part of a launch took four times what they take alone, and more where they are large.

    @apart
    @njit(void(int64, int64, pointer(float32)))
    def part(first, last, A): …                  optimised here, and nowhere else
"""

from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir

from texpr.codegen.cpu.intrinsics import Gen, cgutils, intrinsic


def apart(function: Any) -> Any:
    """A function compiled for one signature, which compiled functions call by its address in this process."""
    (compiled,) = function.overloads.values()
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    result, kinds = compiled.signature.return_type, compiled.signature.args

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(result, kinds)
        callee = builder.inttoptr(ir.Constant(ir.IntType(64), address), kind.as_pointer())
        status, value = context.call_conv.call_function(builder, callee, result, kinds, args)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value

    def typed(context: Any, *values: Any) -> tuple[Any, Gen]:
        return result(*kinds), generate

    names = ("context", *(f"a{k}" for k in range(len(kinds))))
    call: Any = typed
    call.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    call.function = function  # lives as long as what calls it
    return intrinsic(call)
