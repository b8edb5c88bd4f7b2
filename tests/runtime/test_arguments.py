"""Everything that can be wrong with a call is an error before launch."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from texpr.codegen.manifest import Manifest, Parameter, names_of, text_of
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.arguments import Bound, bind_arguments, solve_sizes
from texpr.runtime.arrays import CPU, _DLManagedTensorVersioned, _DLTensor, _pointer_of, view_of


def parameter(name: str, dtype: str, *shape: Any, mode: str = "read", **more: Any) -> Parameter:
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(shape):
        strides.append(step)
        step = extent if step == 1 else ["*", step, extent]
    return Parameter(name=name, dtype=dtype, shape=shape, strides=tuple(reversed(strides)), mode=mode, **more)


def manifest(*parameters: Parameter, sizes: dict[str, int | None], facts: tuple[Any, ...] = ()) -> Manifest:
    return Manifest(
        name="k",
        target="cpu",
        arch="",
        loadable=False,
        parameters=parameters,
        sizes=sizes,
        facts=facts,
        workspace_bytes=0,
        workspace=(),
        host=(),
        files={},
        texpr="0",
    )


MATMUL = manifest(
    parameter("A", "f32", "M", "K"),
    parameter("B", "f32", "K", "N"),
    parameter("C", "f32", "M", "N", mode="write"),
    sizes={"M": None, "K": None, "N": None},
)


def bind(m: Manifest, *args: Any, **kwargs: Any) -> Bound:
    return bind_arguments(m, args, kwargs, (CPU,))


def code_of(m: Manifest, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(TExprError) as caught:
        bind(m, *args, **kwargs)
    return caught.value.diagnostics[0].code


def array(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def test_sizes_are_solved_from_shapes() -> None:
    assert bind(MATMUL, array(3, 5), array(5, 7), array(3, 7)).sizes == {"M": 3, "K": 5, "N": 7}


def test_arguments_go_by_position_and_by_name() -> None:
    bound = bind(MATMUL, array(3, 5), C=array(3, 7), B=array(5, 7))
    assert bound.arrays["C"].shape == (3, 7)


def test_sizes_behind_sums_products_and_differences_are_solved() -> None:
    m = manifest(
        parameter("A", "f32", ["+", "N", 4], ["*", 2, "K"], ["-", 10, "L"]), sizes={"N": None, "K": None, "L": None}
    )
    assert bind(m, array(9, 6, 3)).sizes == {"N": 5, "K": 3, "L": 7}
    other = (["+", 4, "N"], ["*", "K", 2], ["-", "L", 10])
    m = manifest(parameter("A", "f32", *other), sizes={"N": None, "K": None, "L": None})
    assert bind(m, array(9, 6, 3)).sizes == {"N": 5, "K": 3, "L": 13}


def test_a_size_that_no_shape_gives_is_asked_for_by_keyword() -> None:
    m = manifest(parameter("A", "f32", ["ceildiv", "N", 4]), sizes={"N": None})
    assert code_of(m, array(3)) == "E0602"
    assert bind(m, array(3), N=11).sizes == {"N": 11}
    assert code_of(m, array(3), N=13) == "E0601"


@pytest.mark.parametrize(
    ("args", "kwargs", "code"),
    [
        ((array(3, 5), array(5, 7)), {}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 7), array(1)), {}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 7)), {"D": 1}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 7)), {"A": array(3, 5)}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 8)), {}, "E0601"),
        ((array(3, 5), array(6, 7), array(3, 7)), {}, "E0601"),
        ((array(3, 5, dtype=np.float64), array(5, 7), array(3, 7)), {}, "E0601"),
        ((array(3, 5, 1), array(5, 7), array(3, 7)), {}, "E0601"),
        ((array(5, 3).T, array(5, 7), array(3, 7)), {}, "E0601"),
        (([1.0], array(5, 7), array(3, 7)), {}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 7)), {"M": 4}, "E0601"),
        ((array(3, 5), array(5, 7), array(3, 7)), {"M": "x"}, "E0602"),
        ((array(3, 5), array(5, 7), array(3, 7)), {"M": -1}, "E0602"),
    ],
)
def test_wrong_calls_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any], code: str) -> None:
    assert code_of(MATMUL, *args, **kwargs) == code


def test_strides_of_extent_one_do_not_matter() -> None:
    row = np.zeros((4, 5), np.float32)[::4]
    assert row.strides == (80, 4)
    assert bind(MATMUL, row, array(5, 7), array(1, 7)).sizes["M"] == 1


def test_empty_arrays_are_taken() -> None:
    assert bind(MATMUL, array(0, 5), array(5, 7), array(0, 7)).sizes["M"] == 0


def test_a_read_only_array_may_be_read_and_not_written() -> None:
    frozen = array(3, 5)
    frozen.flags.writeable = False
    bind(MATMUL, frozen, array(5, 7), array(3, 7))
    result = array(3, 7)
    result.flags.writeable = False
    assert code_of(MATMUL, array(3, 5), array(5, 7), result) == "E0601"


def test_written_arrays_may_not_overlap_others() -> None:
    memory = np.zeros(64, np.float32)
    square = memory[:16].reshape(4, 4)
    assert code_of(MATMUL, square, array(4, 4), square) == "E0603"
    assert code_of(MATMUL, square, array(4, 4), memory[12:28].reshape(4, 4)) == "E0603"
    bind(MATMUL, square, square, memory[16:32].reshape(4, 4))


def test_base_pointers_are_aligned() -> None:
    memory = np.zeros(64, np.float32)
    odd = memory[1:17].reshape(4, 4) if memory.ctypes.data % 16 == 0 else memory[:16].reshape(4, 4)
    if odd.ctypes.data % 16 == 0:
        odd = memory[2:18].reshape(4, 4)
    assert code_of(MATMUL, odd, array(4, 4), array(4, 4)) == "E0601"


def test_facts_are_checked() -> None:
    m = manifest(parameter("A", "f32", "N"), sizes={"N": None}, facts=(["==", ["%", "N", 8], 0],))
    assert code_of(m, array(12)) == "E0602"
    assert bind(m, array(16)).sizes == {"N": 16}


def test_a_fact_is_told_as_its_author_wrote_it() -> None:
    fact = ["and", ["==", ["%", ["-", "N", 1], 4], 0], ["<=", "N", ["ceildiv", "M", 2]]]
    assert text_of(fact) == "((N - 1) % 4 == 0) and (N <= ceildiv(M, 2))"
    assert names_of(fact) == {"N", "M"}


def test_a_size_bound_at_compile_time_is_held() -> None:
    m = manifest(parameter("A", "f32", "N"), sizes={"N": 8})
    assert code_of(m, array(9)) == "E0601"
    assert code_of(m, array(8), N=9) == "E0602"


def test_flat_parameters_take_any_rank_that_is_long_enough() -> None:
    m = manifest(parameter("A", "f32", 12, flat=True), sizes={})
    bind(m, array(3, 4))
    bind(m, array(20))
    assert code_of(m, array(11)) == "E0601"
    assert code_of(m, array(4, 3).T) == "E0601"


@pytest.mark.parametrize(("dtype", "value", "right"), [("f32", 2, True), ("f32", "x", False), ("i8", 128, False)])
def test_scalars_are_checked(dtype: str, value: Any, right: bool) -> None:
    m = manifest(parameter("s", dtype, scalar=True), sizes={})
    if right:
        assert bind(m, value).scalars == {"s": 2.0}
    else:
        assert code_of(m, value) == "E0601"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e4m3fn, "f8e4m3"),
        (ml_dtypes.float8_e5m2, "f8e5m2"),
        (bool, "bool"),
    ],
)
def test_narrow_types_are_recognised(dtype: Any, name: str) -> None:
    assert view_of("A", np.zeros(3, dtype)).dtype.name == name


class Foreign:
    """An array that is known by DLPack alone, its first element `offset_bytes` behind the address that it tells."""

    def __init__(self, array: Any, offset_bytes: int = 0) -> None:
        self.array, self.offset_bytes = array, offset_bytes

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__(**options)
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
        tensor.data, tensor.byte_offset = tensor.data - self.offset_bytes, self.offset_bytes
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_arrays_are_seen_without_a_copy() -> None:
    source = np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2]
    view = view_of("A", Foreign(source))
    assert view.pointer == source.ctypes.data
    assert (view.shape, view.strides, view.dtype.name) == ((3, 2), (4, 2), "i16")
    assert view_of("A", Foreign(source, offset_bytes=256)) == view


class Versioned(Foreign):
    """The same behind a versioned capsule, as NumPy exports it since 2.1; `major` is its DLPack version."""

    def __init__(self, array: Any, major: int = 1) -> None:
        super().__init__(array)
        self.major = major

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__(**options, max_version=(1, 0))
        _DLManagedTensorVersioned.from_address(_pointer_of(capsule, b"dltensor_versioned")).major = self.major
        return capsule


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy exports versioned DLPack since 2.1")
def test_dlpack_of_version_1_says_whether_an_array_may_be_written() -> None:
    source = array(3)
    assert not view_of("A", Versioned(source)).readonly
    source.flags.writeable = False
    assert view_of("A", Versioned(source)).readonly
    with pytest.raises(TExprError, match="DLPack version 2 is not 1"):
        view_of("A", Versioned(source, major=2))


def test_negative_strides_give_the_right_byte_range() -> None:
    source = np.arange(5, dtype=np.int32)
    view = view_of("A", source[::-1])
    assert view.byte_range == (source.ctypes.data, source.ctypes.data + 20)


def test_solving_needs_no_order_among_parameters() -> None:
    m = manifest(parameter("A", "f32", ["*", "N", "M"]), parameter("B", "f32", "M"), sizes={"N": None, "M": None})
    assert solve_sizes(m, {"A": (12,), "B": (4,)}, {}) == {"N": 3, "M": 4}
