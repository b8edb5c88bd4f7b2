"""The direct entry of target cpu: taken where it may be, and then the call means what it means without it."""

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.codegen.cpu.entry import emit_entry
from texpr.codegen.cpu.entry_sizes import EntrySizes, NotAskedError
from texpr.grammar.diagnostics import TExprError

SCALE = "kernel scale(a: f32, X: f32[M, N], k: i32, Y: i64[N]) { par N j { Y[j] = k + i64(a * X[0, j]) } }"


@cache
def compiled(text: str, **sizes: int) -> Any:
    return texpr.parse(text).only.compile("cpu", **sizes)


def took_entry(kernel: Any, *args: Any) -> bool:
    taken: bool = kernel._launcher.kernel.enter(args)
    return taken


def entry_of(kernel: Any) -> Any:
    return emit_entry(kernel._launcher.manifest, checked=bool(kernel._launcher.kernel._checks))


def test_text() -> None:
    entry = entry_of(compiled(SCALE, M=2, N=3))
    assert entry.kinds == (float, None, int, None)
    assert entry.source.split("\n\n", 1)[1] == (
        '@njit(int64(float64, types.Array(float32, 2, "C", readonly=True), int64, int64[::1]))\n'
        "def enter(scalar0, array1, scalar2, array3):\n"
        "    address1 = array1.ctypes.data\n"
        "    address3 = array3.ctypes.data\n"
        "    if array1.shape[0] != 2 or array1.shape[1] != 3 or address1 % 16 != 0:\n"
        "        return -1\n"
        "    if scalar2 < -2147483648 or scalar2 > 2147483647:\n"
        "        return -1\n"
        "    if array3.shape[0] != 3 or address3 % 16 != 0:\n"
        "        return -1\n"
        "    if address1 < address3 + 24 and address3 < address1 + 24:\n"
        "        return -1\n"
        "    return run(np.float32(scalar0), address1, np.int32(scalar2), address3, 0)\n"
    )


def test_same_result_on_both_ways() -> None:
    kernel = compiled(SCALE, M=2, N=3)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    ways = []
    for a, k in ((2.5, -4), (np.float32(2.5), np.int32(-4))):  # NumPy's scalars go the long way
        y = np.zeros(3, np.int64)
        kernel(a, x, k, y)
        ways.append(y.tolist())
        assert took_entry(kernel, a, x, k, y) == (type(a) is float)
    assert ways[0] == ways[1] == [-4, -2, 1]


def test_read_only_inputs_enter_and_read_only_outputs_do_not() -> None:
    kernel = compiled("kernel copy(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }", N=4)
    a, b = np.ones(4, np.float32), np.zeros(4, np.float32)
    a.flags.writeable = False
    assert took_entry(kernel, a, b)
    assert b.tolist() == [1.0] * 4
    b.flags.writeable = False
    assert not took_entry(kernel, a, b)
    with pytest.raises(TExprError, match="read-only"):
        kernel(a, b)


def _backed(count: int) -> Any:
    return np.zeros(count + 16, np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: (a.astype(np.float64), b), "has type f64"),
        (lambda a, b: (a[::2].repeat(1), b), "shape"),
        (lambda a, b: (np.zeros(8, np.float32)[::2], b), "strides"),
        (lambda a, b: (a.reshape(2, 2), b), "dimensions"),
        (lambda a, b: (a.astype(">f4"), b), "not in this machine.s order"),
        (lambda a, b: (b, b), "share memory"),
        (lambda a, b: (_backed(4)[1:5], b), "aligned"),
        (lambda a, b: (np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32), b), "aligned"),
        (lambda a, b: (a, b, b), "3 arguments"),
        (lambda a, b: (a,), "missing"),
        (lambda a, b: (None, b), "argument A"),
        (lambda a, b: (1.0, b), "argument A"),
        (lambda a, b: (np.ma.masked_array(a), b), "masked array"),
        (lambda a, b: (np.zeros(4, "f4,i4"), b), "argument A"),
        (lambda a, b: (np.array([None] * 4), b), "argument A"),
    ],
)
def test_wrong_calls_are_errors_and_write_nothing(make: Any, message: str) -> None:
    kernel = compiled("kernel copy(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }", N=4)
    store = np.zeros(32, np.float32)
    start = (-store.ctypes.data % 64) // 4
    a, b = np.ones(4, np.float32), store[start : start + 4]
    with pytest.raises(TExprError, match=message):
        kernel(*make(a, b))
    assert not store.any()


def test_arrays_that_only_read_may_overlap_and_neighbours_may_touch() -> None:
    kernel = compiled("kernel add(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }", N=4)
    store = np.arange(64, dtype=np.float32)
    start = (-store.ctypes.data % 64) // 4
    a, c = store[start : start + 4], store[start + 4 : start + 8]
    want = (2 * a).tolist()
    assert took_entry(kernel, a, a, c)
    assert c.tolist() == want


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63, 2**80, True, 1.5])
def test_integers_out_of_range_and_of_other_types_are_refused(value: Any) -> None:
    kernel = compiled("kernel fill(k: i32, Y: i32[4]) { par 4 j { Y[j] = k } }")
    y = np.zeros(4, np.int32)
    assert not took_entry(kernel, value, y)
    with pytest.raises(TExprError):
        kernel(value, y)
    kernel(2**31 - 1, y)
    assert y.tolist() == [2**31 - 1] * 4


def test_gathers_are_checked_behind_the_entry() -> None:
    kernel = compiled("kernel pick(I: i32[4], A: f32[N], B: f32[4]) { par 4 j { B[j] = A[I[j]] } }", N=3)
    b = np.zeros(4, np.float32)
    with pytest.raises(TExprError) as found:
        kernel(np.array([0, 1, 2, 3], np.int32), np.ones(3, np.float32), b)
    assert found.value.diagnostics[0].code == "E0604"
    assert took_entry(kernel, np.array([0, 1, 2, 2], np.int32), np.ones(3, np.float32), b)


def test_the_entry_makes_room_for_a_small_workspace_alone() -> None:
    text = "kernel k(X: f32[N], S: f64[1]) { new T: f32[N] ; par N i { T[i] = X[N - 1 - i] } "
    text += "S[0] = sum N i { f64(T[i] * X[i]) } }"
    kernel, s = compiled(text, N=1000), np.zeros(1)
    assert "workspace = (memory.ctypes.data + 255) & -256" in entry_of(kernel).source
    assert took_entry(kernel, np.arange(1000, dtype=np.float32), s)
    assert s[0] == sum(i * (999 - i) for i in range(1000))
    assert entry_of(compiled(text, N=1 << 20)) is None


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(A: f16[4], B: f16[4]) { par 4 i { B[i] = A[i] } }",
        "kernel k(a: bf16, B: f32[4]) { par 4 i { B[i] = a } }",
        "kernel k(A: f32[0], B: f32[4]) { par 4 i { B[i] = 1.0 } }",
        "par 4 i { B[i] = A[i] + 1 }",  # bare programs take arrays of any shape
    ],
)
def test_no_entry_where_numba_would_not_take_the_arguments(text: str) -> None:
    assert entry_of(compiled(text)) is None


PRODUCT = """kernel product(A: f32[M * K], B: f32[K, N], C: f32[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i * K + k] * B[k, j] } }
}"""


def test_sizes_are_told_by_axes_that_are_one_alone() -> None:
    entry = entry_of(compiled(PRODUCT))
    assert entry.source.split("def enter")[1] == (
        "(array0, array1, array2):\n"
        "    address0 = array0.ctypes.data\n"
        "    address1 = array1.ctypes.data\n"
        "    address2 = array2.ctypes.data\n"
        "    size0 = array2.shape[0]\n"
        "    size1 = array1.shape[0]\n"
        "    size2 = array1.shape[1]\n"
        "    if size0 < 1 or size0 > 2147483647:\n"
        "        return -1\n"
        "    if size1 < 1 or size1 > 2147483647:\n"
        "        return -1\n"
        "    if size2 < 1 or size2 > 2147483647:\n"
        "        return -1\n"
        "    if array0.shape[0] != (size0 * size1) or address0 % 16 != 0:\n"
        "        return -1\n"
        "    if array1.shape[0] != size1 or array1.shape[1] != size2 or address1 % 16 != 0:\n"
        "        return -1\n"
        "    if array2.shape[0] != size0 or array2.shape[1] != size2 or address2 % 16 != 0:\n"
        "        return -1\n"
        "    if address0 < address2 + array2.nbytes and address2 < address0 + array0.nbytes:\n"
        "        return -1\n"
        "    if address1 < address2 + array2.nbytes and address2 < address1 + array1.nbytes:\n"
        "        return -1\n"
        "    return run(address0, address1, address2, size0, size1, size2, 0)\n"
    )


@pytest.mark.parametrize("bound", [{}, {"M": 3, "K": 2}, {"N": 5}])
def test_calls_of_free_sizes_enter_and_are_right(bound: dict[str, int]) -> None:
    kernel, random = compiled(PRODUCT, **bound), np.random.default_rng(0)
    for _ in range(8):
        m, n, k = (bound.get(name) or int(random.integers(1, 9)) for name in "MNK")
        a, b = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
        c = np.full((m, n), np.nan, np.float32)
        assert took_entry(kernel, a.reshape(-1), b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((7,), (2, 5), (3, 5)), "A has"),
        (((6,), (2, 5), (3, 4)), "C has shape"),
        (((6,), (2, 5, 1), (3, 5)), "dimensions"),
    ],
)
def test_shapes_that_contradict_one_another_are_errors_and_write_nothing(shapes: Any, message: str) -> None:
    kernel = compiled(PRODUCT)
    a, b, c = (np.ones(shape, np.float32) for shape in shapes)
    assert not took_entry(kernel, a, b, c)
    with pytest.raises(TExprError, match=message):
        kernel(a, b, c)
    assert (c == 1).all()


def test_empty_arrays_and_shared_memory_take_the_long_way() -> None:
    kernel = compiled("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }")
    for n in (0, 1, 5):
        b = np.zeros(n, np.float32)
        assert took_entry(kernel, np.ones(n, np.float32), b) == (n > 0)
        kernel(np.ones(n, np.float32), b)
        assert b.tolist() == [1.0] * n
    a = np.zeros(32, np.float32)
    assert not took_entry(kernel, a[:16], a[:16])
    with pytest.raises(TExprError, match="share memory"):
        kernel(a[:16], a[:16])


def test_facts_of_sizes_are_asked() -> None:
    text = "kernel k(A: f32[M, N], B: f32[N]) where M >= N and N % 4 == 0 { par N i { B[i] = A[i, i] } }"
    kernel, b = compiled(text), np.zeros(8, np.float32)
    a = np.arange(80, dtype=np.float32)
    assert took_entry(kernel, a.reshape(10, 8), b) and b.tolist() == [9.0 * i for i in range(8)]
    for rows, columns in ((7, 8), (10, 6)):
        wrong = a[: rows * columns].reshape(rows, columns)
        assert not took_entry(kernel, wrong, np.zeros(columns, np.float32))
        with pytest.raises(TExprError, match="E0602"):
            kernel(wrong, np.zeros(columns, np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(A: f32[2 * N], B: f32[2 * N]) { par N i { B[i] = A[i] } }",  # no axis is N
        "kernel k(A: f32[N], B: f32[ceildiv(N, 2)]) { par N i { if i == 0 { B[i] = A[i] } } }",
        "kernel k(A: f32[N, M] #strides(1, N), B: f32[N, M]) { par N i, M j { B[i, j] = A[i, j] } }",
        "kernel k(A: f32[N, M] #strides(lda, 1), B: f32[N, M]) { par N i, M j { B[i, j] = A[i, j] } }",
    ],
)
def test_no_entry_where_compiled_code_cannot_tell_the_sizes(text: str) -> None:
    assert entry_of(compiled(text)) is None


def test_expressions_that_may_leave_64_bits_are_not_asked() -> None:
    sizes = EntrySizes(compiled(PRODUCT)._launcher.manifest)
    square = ["*", "M", "N"]
    assert sizes.expression(["/", ["-", square, 5], 4]) == "(((size0 * size2) - 5) // 4)"
    for wrong in (["*", square, "K"], ["*", square, 1 << 40], ["/", 4, "N"], ["min", "M", "N"], "P"):
        with pytest.raises(NotAskedError):
            sizes.expression(wrong)


def test_every_native_type_enters() -> None:
    kinds = ("f64", "f32", "i64", "i32", "i16", "i8", "u32", "u8", "bool")
    numpy_kinds = ("f8", "f4", "i8", "i4", "i2", "i1", "u4", "u1", "?")
    for name, code in zip(kinds, numpy_kinds, strict=True):
        kernel = compiled(f"kernel k(s: {name}, A: {name}[3, 2], B: {name}[2]) {{ B[0] = s; B[1] = A[2, 1] }}")
        a, b = np.ones((3, 2), code), np.zeros(2, code)
        scalar = True if name == "bool" else 1.0 if name.startswith("f") else 1
        assert took_entry(kernel, scalar, a, b), name
        assert b.tolist() == [1, 1]


def test_a_usual_call_comes_through_one_frame_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the launcher does then is for calls that the entry refuses, or that data may end."""
    kernel = compiled("kernel copy(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }", N=4)
    a, b, long_way = np.ones(4, np.float32), np.zeros(4, np.float32), []
    whole = type(kernel._launcher).__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        long_way.append(args)
        whole(self, *args, **kwargs)

    monkeypatch.setattr(type(kernel._launcher), "__call__", counted)
    kernel(a, b)
    assert b.tolist() == [1.0] * 4 and not long_way
    kernel(a.view(Other), b)  # a subclass, and an argument by name
    kernel(a, B=b)
    with pytest.raises(TExprError, match="B has type f64 and needs f32"):
        kernel(a, b.astype(np.float64))
    assert len(long_way) == 3
    again = pickle.loads(pickle.dumps(kernel))
    again(2 * a, b)
    assert b.tolist() == [2.0] * 4
    gather = compiled("kernel g(R: i64[N], A: f32[N], B: f32[N]) { par N i { B[i] = A[R[i]] } }", N=4)
    assert gather._entry is None  # of which a subscript may be outside


class Other(np.ndarray[Any, Any]):
    pass
