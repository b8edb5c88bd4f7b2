"""Element types and the arithmetic that docs/language.md's Numerics section gives them.

One table, `ELEMENT_TYPES`, says everything that a stage may ask about a type; `compute_type` and `common_type` are the
promotion rules. Standard library only: the runtime loads this file on machines without NumPy's extensions.
"""

from enum import Enum

from texpr.grammar.records import dataclass


class Kind(Enum):
    """What a type's values are."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `bits` counts storage; `mantissa` counts explicit fraction bits of a float (0 otherwise)."""

    name: str
    kind: Kind
    bits: int
    mantissa: int = 0
    dlpack: tuple[int, int] = (0, 0)  # (DLDataTypeCode, bits)

    @property
    def size_bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL

    @property
    def integer_range(self) -> tuple[int, int]:
        """Least and greatest value of an integer type; ValueError for any other."""
        if self.kind is Kind.SIGNED:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind is Kind.UNSIGNED:
            return 0, (1 << self.bits) - 1
        raise ValueError(f"{self.name} is not an integer type")

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", Kind.FLOAT, 64, 52, (2, 64))
F32 = DType("f32", Kind.FLOAT, 32, 23, (2, 32))
F16 = DType("f16", Kind.FLOAT, 16, 10, (2, 16))
BF16 = DType("bf16", Kind.FLOAT, 16, 7, (4, 16))
F8E4M3 = DType("f8e4m3", Kind.FLOAT, 8, 3, (10, 8))  # the finite form ("fn"): greatest 448, no infinity
F8E5M2 = DType("f8e5m2", Kind.FLOAT, 8, 2, (12, 8))
I64 = DType("i64", Kind.SIGNED, 64, 0, (0, 64))
I32 = DType("i32", Kind.SIGNED, 32, 0, (0, 32))
I16 = DType("i16", Kind.SIGNED, 16, 0, (0, 16))
I8 = DType("i8", Kind.SIGNED, 8, 0, (0, 8))
U32 = DType("u32", Kind.UNSIGNED, 32, 0, (1, 32))
U8 = DType("u8", Kind.UNSIGNED, 8, 0, (1, 8))
BOOL = DType("bool", Kind.BOOL, 8, 0, (6, 8))

ELEMENT_TYPES: dict[str, DType] = {
    t.name: t for t in (F64, F32, F16, BF16, F8E4M3, F8E5M2, I64, I32, I16, I8, U32, U8, BOOL)
}


def compute_type(dtype: DType) -> DType:
    """The type in which arithmetic on values of `dtype` is done: f32 for narrow floats, i32 for narrow integers."""
    if dtype.is_float and dtype.bits < 32:
        return F32
    if dtype.is_integer and dtype.bits < 32:
        return I32
    return dtype


def common_type(left: DType, right: DType) -> DType | None:
    """The compute type of an operation on two typed operands, or None where they do not mix.

    Floats go to the wider compute type, so do signed integers; u8 and i8 compute in i32 and widen with it; u32 mixes
    only with itself and u8; bool only with bool.
    """
    a, b = compute_type(left), compute_type(right)
    if a == b:
        return a
    if a.is_float and b.is_float:
        return a if a.bits >= b.bits else b
    if a.is_integer and b.is_integer:
        if U32 in (a, b):
            return U32 if U8 in (left, right) else None
        return a if a.bits >= b.bits else b
    return None
