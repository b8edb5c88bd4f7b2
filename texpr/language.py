"""The words of the language as Python names, for the bodies and annotations of decorated functions.

    from texpr.language import f16, f32, par, seq, inp

    def matmul(A: f16["M", "K"], B: inp(f16["K", "N"], "#strides(1, K)"), C: f32["M", "N"]): ...

The front end (`grammar/python`) reads a decorated function's text and never runs it, so these objects carry no
behaviour: they exist that linters and editors know the names, and that an annotation can be evaluated. Calling one
outside a decorated function is a TExprError (E0212). The front end knows them by attributes, not by import:

    __texpr_word__    str: the word that the object stands for
    __texpr_type__    (direction, element, shape, attributes): a type as `inp(f16["M", 8], "#align(4)")` gives it
    __texpr_module__  tuple of str: the path of an import, ("std", "mma")

`sum`, `max`, `min`, `abs`, `round` and `pow` are Python's own names and mean their TExpr namesakes in a body.
"""

from types import TracebackType
from typing import Any, NoReturn

from texpr.grammar.diagnostics import TExprError, fail

type_tuple = tuple[str | None, str, tuple[int | str, ...] | None, tuple[str, ...]]


def _outside(word: str) -> TExprError:
    return fail(
        "E0212",
        f"`{word}` has a meaning only inside a decorated function",
        help="write it in the body of a function under @texpr.kernel or @texpr.fn; that body is read, never run",
    )


class Word:
    """A word of the language: a loop, a statement, a reduction or a function."""

    def __init__(self, name: str, meaning: str) -> None:
        self.__texpr_word__ = name
        self.__doc__ = meaning

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        raise _outside(self.__texpr_word__)

    def __repr__(self) -> str:
        return f"<texpr word {self.__texpr_word__}>"


class AssignableWord(Word):
    """`fragment[c, table.c, lane] = r`: the Python form of an assignment through a relation."""

    def __setitem__(self, key: object, value: object) -> None:
        raise _outside(self.__texpr_word__)


class BlockWord(Word):
    """A word that opens a `with` block."""

    def __enter__(self) -> NoReturn:
        raise _outside(self.__texpr_word__)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Type:
    """A type in an annotation: `f32` a scalar, `f32[()]` a buffer of rank 0, `f16["M", 8]` one of rank 2,
    `inp(f16["M"], "#align(4)")` one with a direction.

    `shape` is None for a scalar. A string of a shape is an index expression in TExpr's own syntax, or an attribute
    where it begins with `#`; both are read when the function is decorated.
    """

    def __init__(
        self,
        element: str,
        shape: tuple[int | str, ...] | None = None,
        attributes: tuple[str, ...] = (),
        direction: str | None = None,
    ) -> None:
        self.__texpr_type__: type_tuple = (direction, element, shape, attributes)

    def __getitem__(self, shape: Any) -> "Type":
        direction, element, old_shape, attributes = self.__texpr_type__
        if old_shape is not None or direction is not None:
            raise fail("E0105", f"`{self!r}` has its shape already", help='write the whole shape once: f16["M", "K"]')
        parts = shape if isinstance(shape, tuple) else (shape,)
        added = tuple(part for part in parts if isinstance(part, str) and part.lstrip().startswith("#"))
        return Type(element, tuple(part for part in parts if part not in added), attributes + added)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        raise _outside(self.__texpr_type__[1])

    def __repr__(self) -> str:
        direction, element, shape, attributes = self.__texpr_type__
        text = element if shape is None else f"{element}[{', '.join(str(part) for part in shape)}]"
        text = " ".join((text, *attributes))
        return text if direction is None else f"{direction} {text}"


class Direction(Word):
    """`inp(f16["M", "K"], "#strides(1, M)")`: a type with a direction and attributes, in an annotation."""

    def __init__(self, name: str, direction: str, meaning: str) -> None:
        super().__init__(name, meaning)
        self._direction = direction

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        of = getattr(args[0], "__texpr_type__", None) if args else None
        attributes = args[1:]
        if keywords or not isinstance(of, tuple) or of[0] is not None:
            raise fail("E0105", f"`{self.__texpr_word__}` wraps one type of the language", help=_DIRECTION_HELP)
        if not all(isinstance(attribute, str) for attribute in attributes):
            raise fail("E0105", "an attribute is a string that begins with `#`", help=_DIRECTION_HELP)
        return Type(of[1], of[2], (*of[3], *attributes), self._direction)


_DIRECTION_HELP = 'write for example inp(f16["M", "K"], "#strides(1, M)")'


def type_parameter(name: str) -> Type:
    """A type that the caller of a `fn` decides: `T = type_parameter("T")`, then `a: T["n"]`."""
    return Type(name)


class Library:
    """A library of `.tex` files: in a body `std.mma.name(…)` is `import std.mma` and a call of `name`."""

    def __init__(self, *path: str) -> None:
        self.__texpr_module__ = path

    def __getattr__(self, name: str) -> "Library":
        if name.startswith("_"):
            raise AttributeError(name)
        return Library(*self.__texpr_module__, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        raise _outside(".".join(self.__texpr_module__))

    def __repr__(self) -> str:
        return f"<texpr library {'.'.join(self.__texpr_module__)}>"


std = Library("std")

inp = Direction("inp", "in", "inp(type, attributes): a parameter that is only read.")
out = Direction("out", "out", "out(type, attributes): a parameter that is wholly written before any read.")
inout = Direction("inout", "inout", "inout(type, attributes): a parameter that is read and written.")

f64, f32, f16, bf16 = Type("f64"), Type("f32"), Type("f16"), Type("bf16")
f8e4m3, f8e5m2 = Type("f8e4m3"), Type("f8e5m2")
i64, i32, i16, i8 = Type("i64"), Type("i32"), Type("i16"), Type("i8")
u32, u8 = Type("u32"), Type("u8")
bool = Type("bool")

par = Word("par", 'for i, j in par("M", "N", "#tile(64, 64)"): iterations that may run concurrently.')
seq = Word("seq", 'for k in seq("K"): iterations in order, except as dependences and accumulation allow.')
fully_par = Word("fully_par", "for lane in fully_par(32): hardware threads that truly run at once.")
new = Word("new", 't = new(f16[128, 64], "shared", "#strides(72, 1)"): a buffer private to the enclosing iteration.')
reg = Word("reg", "x = reg(f16[8], e): a register buffer with one bind per element.")
atomic = BlockWord("atomic", "with atomic: H[b] += 1: one indivisible update.")
attr = Word("attr", 'with attr("#tf32"): the attributes of the assignments in the block.')
anchor = Word("anchor", "anchor(e): e is evaluated here for its effect.")
asm = Word("asm", 'asm("…", inout=(rc,), in_=(ra, rb)): instructions of the hardware.')
fragment = AssignableWord("fragment", "fragment(a, mma16816.a, lane); fragment[c, mma16816.c, lane] = r stores.")
size = Word("size", "def f(A: f32['N'], *, stride: size): a size that a call gives, though it stands in no shape.")
select = Word("select", "select(c, a, b), also a if c else b: only the chosen arm is evaluated.")
prod = Word("prod", 'prod(e for k in seq("K")): the product.')
maximum = Word("maximum", 'maximum(e for k in seq("K")), also max(…): the greatest; NaN propagates.')
minimum = Word("minimum", 'minimum(e for k in seq("K")), also min(…): the least; NaN propagates.')

fma = Word("fma", "a * b + c, rounded once.")
exp = Word("exp", "e to the power x.")
exp2 = Word("exp2", "2 to the power x.")
log = Word("log", "The natural logarithm.")
expm1 = Word("expm1", "e to the power x, less 1; accurate near 0.")
log1p = Word("log1p", "The natural logarithm of 1 + x; accurate near 0.")
xlogy = Word("xlogy", "xlogy(x, y): x * log(y), and 0 where x is 0 and y is a number.")
log2 = Word("log2", "The logarithm to base 2.")
sqrt = Word("sqrt", "The square root.")
rsqrt = Word("rsqrt", "1 / sqrt(x).")
tanh = Word("tanh", "The hyperbolic tangent.")
sigmoid = Word("sigmoid", "1 / (1 + exp(-x)).")
erf = Word("erf", "The error function.")
normcdf = Word("normcdf", "The normal distribution: (1 + erf(x / sqrt(2))) / 2, accurate also where that is tiny.")
sin = Word("sin", "The sine of x radians.")
cos = Word("cos", "The cosine of x radians.")
floor = Word("floor", "The greatest integer that is not above x, as a float.")
ceil = Word("ceil", "The least integer that is not below x, as a float.")
bitand = Word("bitand", "Bitwise and of integers, also a & b.")
bitor = Word("bitor", "Bitwise or of integers, also a | b.")
bitxor = Word("bitxor", "Bitwise exclusive or of integers, also a ^ b.")
shl = Word("shl", "Shift left, also a << b.")
shr = Word("shr", "Shift right, also a >> b.")
ceildiv = Word("ceildiv", "a / b rounded up, of index expressions.")
gelu = Word("gelu", "x * normcdf(x).")
gelu_tanh = Word("gelu_tanh", "gelu by its approximation with tanh.")
silu = Word("silu", "x * sigmoid(x).")
relu = Word("relu", "max(x, 0).")
softplus = Word("softplus", "log(1 + exp(x)).")
elu = Word("elu", "elu(x, alpha): x where it is positive, else alpha * (exp(x) - 1).")
celu = Word("celu", "celu(x, alpha): x where it is positive, else alpha * (exp(x / alpha) - 1).")
selu = Word("selu", "elu with its own alpha, scaled so that means and variances stay.")
hardsigmoid = Word("hardsigmoid", "x / 6 + 1/2, between 0 and 1.")
hardswish = Word("hardswish", "x * hardsigmoid(x).")
mish = Word("mish", "x * tanh(softplus(x)).")
log_sigmoid = Word("log_sigmoid", "log(sigmoid(x)) without underflow.")
huber = Word("huber", "huber(x, delta): x * x / 2 up to delta, and linear beyond.")
smooth_l1 = Word("smooth_l1", "smooth_l1(x, beta): huber(x, beta) / beta; abs(x) where beta is 0.")
leaky_relu = Word("leaky_relu", "leaky_relu(x, slope): x where it is positive, else slope * x.")
clamp = Word("clamp", "clamp(x, low, high): x between two bounds.")
square = Word("square", "x * x.")
sign = Word("sign", "1 or -1; x itself where it is 0 or NaN.")

__all__ = [
    "anchor", "asm", "atomic", "attr", "bf16", "bitand", "bitor", "bitxor", "ceil", "ceildiv", "celu", "clamp", "cos",
    "elu", "erf", "exp", "exp2", "expm1", "f8e4m3", "f8e5m2", "f16", "f32", "f64", "floor", "fma", "fragment",
    "fully_par", "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "huber", "i8", "i16", "i32", "i64", "inout", "inp",
    "leaky_relu", "log", "log1p", "log2", "log_sigmoid", "maximum", "minimum", "mish", "new", "normcdf", "out", "par",
    "prod", "reg", "relu", "rsqrt", "select", "selu", "seq", "shl", "shr", "sigmoid", "sign", "silu", "sin", "size",
    "smooth_l1", "softplus", "sqrt", "square", "std", "tanh", "type_parameter", "u8", "u32", "xlogy",
]  # fmt: skip
"""What `from texpr.language import *` gives: all but `bool`, which would hide Python's own."""
