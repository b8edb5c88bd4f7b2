"""The memory-bound problems: sizes, inputs, and what the results are, in float64 of NumPy or CuPy.

The program of each stands in `kernels/memory`, in f32; in bf16 its parameters have that type and its locals stay f32.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from texpr.codegen.manifest import Parameter, evaluate
from texpr.grammar.types import ELEMENT_TYPES

PROGRAMS = Path(__file__).parent / "kernels" / "memory"
SIZES = ((32768, 4096), (32749, 4093), (131072, 1024), (8192, 32000), (257, 100003))  # rows and columns
FACTORS: dict[tuple[int, int], tuple[tuple[int, int, int], tuple[int, int, int, int]]] = {  # about as many elements
    (32768, 4096): ((256, 512, 1024), (32, 256, 128, 128)),
    (32749, 4093): ((509, 521, 503), (31, 257, 129, 127)),
    (131072, 1024): ((1024, 128, 1024), (128, 1024, 32, 32)),
    (8192, 32000): ((128, 64, 32000), (64, 128, 160, 200)),
    (257, 100003): ((257, 307, 331), (257, 3, 187, 179)),
    (2048, 4096): ((256, 128, 256), (8, 128, 64, 128)),  # these three for the CPU
    (2039, 4093): ((257, 131, 251), (7, 127, 97, 97)),
    (67, 100003): ((67, 307, 331), (67, 3, 187, 179)),
}
TOLERANCE = {"f32": 1e-4, "bf16": 5e-3, "i32": 0.0}  # of the norm

Arrays = Mapping[str, Any]
Shape = tuple[int, ...]


class Draws(Protocol):
    """Arrays of one library, of the language's element types."""

    def normal(self, shape: Shape, dtype: str) -> Any: ...
    def uniform(self, shape: Shape, dtype: str) -> Any: ...
    def below(self, limit: int, shape: Shape, dtype: str) -> Any: ...
    def permutation(self, count: int, dtype: str) -> Any: ...
    def full(self, shape: Shape, value: float, dtype: str) -> Any: ...


INPUTS: Mapping[str, Callable[[Draws, Shape, str, Mapping[str, int]], Any]] = {
    "normal": lambda draws, shape, dtype, sizes: draws.normal(shape, dtype),
    "positive": lambda draws, shape, dtype, sizes: draws.uniform(shape, dtype),
    "rows": lambda draws, shape, dtype, sizes: draws.permutation(shape[0], dtype),
    "classes": lambda draws, shape, dtype, sizes: draws.below(sizes["N"], shape, dtype),
    "keys": lambda draws, shape, dtype, sizes: draws.below(256, shape, dtype),
    "one_key": lambda draws, shape, dtype, sizes: draws.full(shape, 77, dtype),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """NumPy or CuPy as `np`, and the function that they have elsewhere."""

    np: Any
    erf: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A kernel of the group: `sizes` of so many rows and columns; the output's `expected` value from all arrays, floats
    as float64; `inputs` that are not normal floats, by a word of INPUTS. `exact` results have no tolerance."""

    name: str
    program: str
    group: str
    expected: Callable[[Numbers, Arrays], Any]
    sizes: Callable[[int, int], dict[str, int]]
    inputs: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    dtypes: tuple[str, ...] = ("f32", "bf16")

    def text(self, dtype: str) -> str:
        """The program with parameters of this type."""
        head, brace, body = (PROGRAMS / f"{self.program}.tex").read_text(encoding="utf-8").partition("{")
        return head.replace("f32[", f"{dtype}[") + brace + body if dtype != "i32" else head + brace + body

    def tolerance(self, dtype: str) -> float:
        return 0.0 if self.exact else TOLERANCE[dtype]


Case = tuple[Problem, tuple[int, int], str]
"""At so many rows and columns, of an element type."""


def arrays_of(
    problem: Problem, parameters: Iterable[Parameter], sizes: Mapping[str, int], draws: Draws
) -> dict[str, Any]:
    """Arrays by name; outputs are full of NaN or -1, but normal where they may keep floats that they had. Raises
    ValueError for inputs that nothing defines."""
    found: dict[str, Any] = {}
    for p in parameters:
        shape, floats = tuple(evaluate(extent, sizes) for extent in p.shape), ELEMENT_TYPES[p.dtype].is_float
        word = problem.inputs.get(p.name, "normal" if floats else "")
        if p.mode == "write" or (p.writes and not word):
            found[p.name] = draws.full(shape, math.nan if floats else -1, p.dtype)
        elif word in INPUTS:
            found[p.name] = INPUTS[word](draws, shape, p.dtype, sizes)
        else:
            raise ValueError(f"{problem.name}: the input {p.name} is {word!r}, and not one of {', '.join(INPUTS)}")
    foreign = set(problem.inputs) - set(found)
    if foreign:
        raise ValueError(f"{problem.name} has no {', '.join(sorted(foreign))}, only {', '.join(found)}")
    return found


def error_of(np: Any, got: Any, want: Any, *, exact: bool) -> float:
    """The share of elements that are different, or the norm of the difference over the norm."""
    if got.shape != want.shape:
        return math.inf
    return float((got != want).mean()) if exact else float(np.linalg.norm(got - want) / np.linalg.norm(want))


def _matrix(rows: int, columns: int) -> dict[str, int]:
    return {"M": rows, "N": columns}


def _stream(rows: int, columns: int) -> dict[str, int]:
    return {"N": rows * columns}


def _cube(rows: int, columns: int) -> dict[str, int]:
    small = (rows, max(columns // 5, 1), 5)
    return dict(zip("PQR", FACTORS.get((rows, columns), (small,))[0], strict=True))


def _images(rows: int, columns: int) -> dict[str, int]:
    small = (3, rows, max(columns // 5, 1), 5)
    return dict(zip("BCHW", FACTORS.get((rows, columns), ((), small))[1], strict=True))


def _groups(rows: int, columns: int) -> dict[str, int]:
    sizes = _images(rows, columns)
    return {"B": sizes["B"], "D": max(sizes["C"] // 8, 1), "H": sizes["H"], "W": sizes["W"]}


def _windows(rows: int, columns: int) -> dict[str, int]:
    sizes = _images(rows, columns)
    return sizes | {"H": max(sizes["H"] // 2, 1), "W": max(sizes["W"] // 2, 1)}


def _gelu(n: Numbers, a: Arrays) -> Any:
    x = a["A"] + a["B"]
    return 0.5 * x * (1 + n.erf(x / math.sqrt(2)))


def _swiglu(n: Numbers, a: Arrays) -> Any:
    return a["A"] / (1 + n.np.exp(-a["A"])) * a["B"]


def _jacobi(n: Numbers, a: Arrays) -> Any:
    x, y = a["X"], a["Y"].copy()
    y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    return y


def _softmax(n: Numbers, a: Arrays) -> Any:
    e = n.np.exp(a["X"] - a["X"].max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _rmsnorm(n: Numbers, a: Arrays) -> Any:
    return a["X"] / n.np.sqrt((a["X"] ** 2).mean(axis=1, keepdims=True) + 1e-6) * a["G"]


def _layernorm(n: Numbers, a: Arrays) -> Any:
    x = a["X"] - a["X"].mean(axis=1, keepdims=True)
    return x / n.np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * a["G"] + a["B"]


def _normed(n: Numbers, x: Any, axes: tuple[int, ...]) -> Any:
    off = x - x.mean(axis=axes, keepdims=True)
    return off / n.np.sqrt((off**2).mean(axis=axes, keepdims=True) + 1e-5)


def _channels(of: Any, dims: int = 4) -> Any:
    """Values of channels, or of groups of them, beside images."""
    return of.reshape((1, *of.shape) + (1,) * (dims - 1 - of.ndim))


def _batch_norm(n: Numbers, a: Arrays) -> Any:
    return _normed(n, a["X"], (0, 2, 3)) * _channels(a["G"]) + _channels(a["O"])


def _group_norm(n: Numbers, a: Arrays) -> Any:
    return _normed(n, a["X"], (2, 3, 4)) * _channels(a["G"], 5) + _channels(a["O"], 5)


def _rmsnorm_channels(n: Numbers, a: Arrays) -> Any:
    return a["X"] / n.np.sqrt((a["X"] ** 2).mean(axis=1, keepdims=True) + 1e-6) * _channels(a["G"])


def _l2_normalise(n: Numbers, a: Arrays) -> Any:
    return a["X"] / n.np.sqrt(n.np.maximum((a["X"] ** 2).sum(axis=1, keepdims=True), 1e-24))


def _kl_divergence(n: Numbers, a: Arrays) -> Any:
    y = a["Y"]
    return (n.np.where(y > 0, y * n.np.log(n.np.maximum(y, 1e-300)), 0) - y * a["X"]).mean()[None]


def _huber(n: Numbers, a: Arrays) -> Any:
    far = n.np.abs(a["X"] - a["Y"])
    return n.np.where(far < 1, 0.5 * far**2, far - 0.5).mean()[None]


def _pooled(a: Arrays, window: int, steps: tuple[int, int]) -> list[Any]:
    """The elements of each window, by their places in it."""
    (rows, columns), x = steps, a["X"]
    places = [(i, j) for i in range(window) for j in range(window)]
    return [x[:, :, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2] for i, j in places]


def _max_pool(n: Numbers, a: Arrays) -> Any:
    found, *others = _pooled(a, 3, a["Y"].shape[2:])
    for other in others:
        found = n.np.maximum(found, other)
    return found


def _average_pool(n: Numbers, a: Arrays) -> Any:
    return sum(_pooled(a, 2, a["Y"].shape[2:])) / 4


def _cross_entropy(n: Numbers, a: Arrays) -> Any:
    x, top = a["X"], a["X"].max(axis=1)
    chosen = n.np.take_along_axis(x, a["T"][:, None], axis=1)[:, 0]
    return n.np.log(n.np.exp(x - top[:, None]).sum(axis=1)) + top - chosen


def _first_maximum(axis: int) -> Callable[[Numbers, Arrays], Any]:
    def first(n: Numbers, a: Arrays) -> Any:
        x, count = a["X"], a["X"].shape[axis]
        index = n.np.arange(count).reshape((1, -1) if axis else (-1, 1))
        return n.np.where(x == x.max(axis=axis, keepdims=True), index, count).min(axis=axis)

    return first


PROBLEMS = (
    Problem(name="add_gelu", program="add_gelu", group="elementwise", expected=_gelu, sizes=_matrix),
    Problem(name="swiglu", program="swiglu", group="elementwise", expected=_swiglu, sizes=_matrix),
    Problem(
        name="copy_offset", program="copy_offset", group="elementwise", expected=lambda n, a: a["X"][1:], sizes=_stream,
        exact=True,
    ),
    Problem(name="jacobi2d", program="jacobi2d", group="elementwise", expected=_jacobi, sizes=_matrix),
    Problem(
        name="row_sum", program="row_sum", group="rows", expected=lambda n, a: a["X"].sum(axis=1), sizes=_matrix
    ),
    Problem(name="softmax", program="softmax", group="rows", expected=_softmax, sizes=_matrix),
    Problem(name="rmsnorm", program="rmsnorm", group="rows", expected=_rmsnorm, sizes=_matrix),
    Problem(name="layernorm", program="layernorm", group="rows", expected=_layernorm, sizes=_matrix),
    Problem(
        name="cross_entropy", program="cross_entropy", group="rows", expected=_cross_entropy, sizes=_matrix,
        inputs={"T": "classes"},
    ),
    Problem(
        name="argmax_rows", program="argmax_rows", group="rows", expected=_first_maximum(1), sizes=_matrix, exact=True
    ),
    Problem(
        name="column_sum", program="column_sum", group="columns", expected=lambda n, a: a["X"].sum(axis=0),
        sizes=_matrix,
    ),
    Problem(
        name="cumsum_rows", program="cumsum_rows", group="columns", expected=lambda n, a: a["X"].cumsum(axis=1),
        sizes=_matrix,
    ),
    Problem(
        name="cumsum_columns", program="cumsum_columns", group="columns", expected=lambda n, a: a["X"].cumsum(axis=0),
        sizes=_matrix,
    ),
    Problem(
        name="argmax_columns", program="argmax_columns", group="columns", expected=_first_maximum(0), sizes=_matrix,
        exact=True,
    ),
    Problem(
        name="transpose", program="transpose", group="permutes", expected=lambda n, a: a["X"].T, sizes=_matrix,
        exact=True,
    ),
    Problem(
        name="permute_3d", program="permute_3d", group="permutes", expected=lambda n, a: a["X"].transpose(2, 1, 0),
        sizes=_cube, exact=True,
    ),
    Problem(
        name="nchw_to_nhwc", program="nchw_to_nhwc", group="permutes",
        expected=lambda n, a: a["X"].transpose(0, 2, 3, 1), sizes=_images, exact=True,
    ),
    Problem(
        name="gather_rows", program="gather_rows", group="gathers", expected=lambda n, a: a["E"][a["R"]],
        sizes=_matrix, inputs={"R": "rows"}, exact=True,
    ),
    *(
        Problem(
            name=f"histogram_{inputs}", program="histogram", group="gathers", sizes=_stream, exact=True,
            expected=lambda n, a: n.np.bincount(a["K"], minlength=256), inputs={"K": inputs}, dtypes=("i32",),
        )
        for inputs in ("keys", "one_key")
    ),
    Problem(
        name="dot", program="dot", group="reductions", expected=lambda n, a: (a["X"] * a["Y"]).sum()[None],
        sizes=_stream, inputs={"X": "positive", "Y": "positive"},
    ),
    Problem(
        name="mean_squared_error", program="mean_squared_error", group="losses", sizes=_stream,
        expected=lambda n, a: ((a["X"] - a["Y"]) ** 2).mean()[None],
    ),
    Problem(
        name="kl_divergence", program="kl_divergence", group="losses", expected=_kl_divergence, sizes=_stream,
        inputs={"Y": "positive"},
    ),
    Problem(name="huber_loss", program="huber_loss", group="losses", expected=_huber, sizes=_stream),
    Problem(name="batch_norm", program="batch_norm", group="norms", expected=_batch_norm, sizes=_images),
    Problem(name="group_norm", program="group_norm", group="norms", expected=_group_norm, sizes=_groups),
    Problem(
        name="instance_norm", program="instance_norm", group="norms", sizes=_images,
        expected=lambda n, a: _normed(n, a["X"], (2, 3)),
    ),
    Problem(
        name="rmsnorm_channels", program="rmsnorm_channels", group="norms", expected=_rmsnorm_channels, sizes=_images
    ),
    Problem(
        name="softmax_channels", program="softmax_channels", group="norms", expected=_softmax, sizes=_images
    ),
    Problem(name="l2_normalise", program="l2_normalise", group="norms", expected=_l2_normalise, sizes=_matrix),
    Problem(
        name="max_pool_2d", program="max_pool_2d", group="pools", expected=_max_pool, sizes=_windows, exact=True
    ),
    Problem(name="average_pool_2d", program="average_pool_2d", group="pools", expected=_average_pool, sizes=_windows),
    Problem(
        name="matrix_vector", program="matrix_vector", group="reductions", expected=lambda n, a: a["A"] @ a["X"],
        sizes=_matrix,
    ),
    Problem(
        name="vector_matrix", program="vector_matrix", group="reductions", expected=lambda n, a: a["X"] @ a["A"],
        sizes=_matrix,
    ),
)  # fmt: skip
GROUPS = tuple(dict.fromkeys(problem.group for problem in PROBLEMS))
