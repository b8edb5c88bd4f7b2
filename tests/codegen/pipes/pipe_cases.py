"""The kernels of the texts beside this: how each is launched, on which arrays, and what it gives. Used on the CPU by
test_pipes_host.py and on a GPU by tests/gpu/pipes.py."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from texpr.codegen.tensor_map import TensorMap

HERE = Path(__file__).parent
TEXTS = ("rings", "clusters", "grids", "misuse")
STEPS = 9
HOW = ("dropped", "doubled", "moved")


def _operations() -> list[str]:
    """The enumeration of operations.cuh."""
    found = re.search(r"enum Operation \{(.*?)\}", (HERE / "operations.cuh").read_text(), re.DOTALL)
    assert found
    return re.findall(r"\w+", found[1])


OPERATIONS = _operations()


def source() -> str:
    """The texts as one."""
    parts = [(HERE / "operations.cuh").read_text().replace("#pragma once\n", "")]
    parts += [f'#line 1 "/texpr/{name}.cu"\n{(HERE / f"{name}.cu").read_text()}' for name in TEXTS]
    return "\n".join(parts)


def broken(operation: str, how: str) -> int:
    """The argument that breaks an operation of a text."""
    return 3 * OPERATIONS.index(operation) + 1 + HOW.index(how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A tensor map of an array."""

    array: str
    box: tuple[int, ...]
    swizzle: int = 0

    def of(self, data: Any, address: int) -> TensorMap:
        """Of an array of floats that lies there as this one in NumPy's memory."""
        return TensorMap(
            address=address,
            dtype="f32",
            element_bytes=data.itemsize,
            shape=data.shape,
            strides_bytes=data.strides,
            box=self.box,
            swizzle_bytes=self.swizzle,
            promotion_bytes=0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A launch. `arguments` are names of arrays, maps and ints; the kernel's last one, `broken`, is not among them.
    `expected` computes from the arrays what those that are written hold afterwards."""

    kernel: str
    arrays: Callable[[], dict[str, Any]]
    expected: Callable[[dict[str, Any]], dict[str, Any]]
    arguments: tuple[str | Map | int, ...] = ("a", "o")
    grid: int = 1
    block: int = 64
    shared: int = 0
    cooperative: bool = False
    least_arch: int = field(default=80)


def _words(*shape: int) -> Any:
    return np.random.default_rng(7).integers(-99, 99, shape).astype(np.float32)


def _turned(by: int, width: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Rows of `width` words, read that many places further and doubled."""
    return lambda arrays: {"o": 2 * np.roll(arrays["a"].reshape(-1, width), -by, axis=1).reshape(-1)}


def _ring(kind: str, stages: int) -> Case:
    width, by = (64, 33) if kind == "groups" else (32, 2)
    return Case(
        kernel=f"ring_{kind}_{stages}",
        arrays=lambda: {"a": _words(STEPS * width), "o": np.zeros(STEPS * width, np.float32)},
        expected=_turned(by, width),
        shared=(4 * width + 16) * stages,
        least_arch=90 if kind in ("transaction", "products") else 80,
    )


def _multicast(stages: int) -> Case:
    return Case(
        kernel=f"multicast_{stages}",
        arrays=lambda: {"a": _words(STEPS, 64), "o": np.zeros(2 * STEPS * 64, np.float32)},
        expected=lambda arrays: {"o": np.tile(2 * arrays["a"].reshape(-1), 2)},
        arguments=(Map(array="a", box=(1, 32)), "o"),
        grid=2,
        shared=(256 + 16) * stages,
        least_arch=90,
    )


def _across(stages: int) -> Case:
    return Case(
        kernel=f"across_{stages}",
        arrays=lambda: {"a": _words(2 * STEPS * 32), "o": np.zeros(2 * STEPS * 32, np.float32)},
        expected=_turned(2, 32),
        grid=2,
        shared=(128 + 16) * stages,
        least_arch=90,
    )


def _peers(arrays: dict[str, Any]) -> dict[str, Any]:
    most = arrays["a"].reshape(-1, 4, 32).max(axis=2)
    return {"o": (most.sum(axis=1, keepdims=True) + np.roll(most, -1, axis=1)).reshape(-1)}


def _neighbours(arrays: dict[str, Any]) -> dict[str, Any]:
    rows = np.roll(arrays["a"].reshape(-1, 4, 32), 1, axis=1)
    return {"o": 2 * np.roll(rows, -1, axis=2).reshape(-1)}


Corner = tuple[int, int]


def _boxed(
    row: int, column: int, width: int, load: int, store: int, to: Corner
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The box inside both arrays; with two swizzles its chunks of 16 bytes change places within a row."""

    def expected(arrays: dict[str, Any]) -> dict[str, Any]:
        a, o = arrays["a"], arrays["o"].copy()
        tile = np.zeros((8, width), np.float32)
        for r in range(8):
            for c in range(width):
                if 0 <= row + r < a.shape[0] and 0 <= column + c < a.shape[1]:
                    tile[r, c] = a[row + r, column + c]
        for r in range(8):
            for c in range(width):
                address = (r * width + c) * 4
                stored = address ^ (((address >> 7) & (store // 16 - 1 if store else 0)) << 4)
                loaded = stored ^ (((stored >> 7) & (load // 16 - 1 if load else 0)) << 4)
                if to[0] + r < o.shape[0] and to[1] + c < o.shape[1]:
                    o[to[0] + r, to[1] + c] = tile.reshape(-1)[loaded // 4]
        return {"o": o}

    return expected


def _boxes(row: int, column: int, width: int, load: int, store: int, to: Corner | None = None) -> Case:
    """A box goes to where it came from, from the array's first element on where that is before it."""
    at = (max(row, 0), max(column, 0)) if to is None else to
    return Case(
        kernel="boxes",
        arrays=lambda: {"a": _words(20, 48), "o": np.full((19, 52), -1, np.float32)},
        expected=_boxed(row, column, width, load, store, at),
        arguments=(
            Map(array="a", box=(8, width), swizzle=load),
            Map(array="o", box=(8, width), swizzle=store),
            32 * width,
            row,
            column,
            *at,
        ),
        block=32,
        shared=1024 + 16,
        least_arch=90,
    )


def _grid(kernel: str, blocks: int, expected: Callable[[dict[str, Any]], dict[str, Any]]) -> Case:
    return Case(
        kernel=kernel,
        arrays=lambda: {
            "a": _words(blocks * 64),
            "o": np.zeros(blocks * 64, np.float32),
            "sums": np.zeros(blocks * 64, np.float32),
            "words": np.zeros(blocks + 2, np.uint32),
        },
        expected=lambda arrays: expected(arrays) | {"words": np.zeros(blocks + 2, np.uint32)},
        arguments=("a", "o", "sums", "words", blocks),
        grid=blocks,
        shared=32,
        cooperative=kernel == "grid_steps",
    )


def _summed(arrays: dict[str, Any]) -> dict[str, Any]:
    o = arrays["o"].copy()
    o[:64] = arrays["a"].reshape(-1, 64).sum(axis=0)
    return {"o": o}


def _stepped(arrays: dict[str, Any]) -> dict[str, Any]:
    a = arrays["a"]
    # three turns of the top bit leave it set
    words = np.array([0x80000000] + [0] * (len(arrays["words"]) - 1), np.uint32)
    return {"o": 2 * np.roll(a.reshape(-1, 64), -2, axis=0).reshape(-1), "words": words}


def _all() -> list[Case]:
    cases = [_ring(kind, n) for kind in ("arrive", "copies", "groups", "transaction", "products") for n in (1, 2, 3, 4)]
    cases += [_multicast(n) for n in (1, 2, 3, 4)]
    singles = (
        ("parts_0", 2, 32, 80),
        ("parts_1", 2, 32, 80),
        ("ended_0", 2, 32, 80),
        ("stores_0", 33, 64, 90),
        ("dependent_0", 33, 64, 90),
        ("settled_0", 33, 64, 90),
    )
    for kernel, by, width, least in singles:
        cases.append(
            Case(
                kernel=kernel,
                arrays=lambda width=width: {"a": _words(STEPS * width), "o": np.zeros(STEPS * width, np.float32)},
                expected=_turned(by, width),
                shared=512,
                least_arch=least,
            )
        )
    cases += [_across(n) for n in (1, 2, 3, 4)]
    in_cluster = (("peers", 8, 32, _peers), ("neighbours", 256, 144, _neighbours), ("letters", 256, 144, _neighbours))
    for kernel, outputs, shared, expected in in_cluster:
        cases.append(
            Case(
                kernel=kernel,
                arrays=lambda outputs=outputs: {"a": _words(256), "o": np.zeros(outputs, np.float32)},
                expected=expected,
                grid=8,
                block=32,
                shared=shared,
                least_arch=90,
            )
        )
    places = (
        (0, 0, 32, 0, 0),
        (3, 4, 32, 128, 128),
        (-2, -4, 16, 64, 64),
        (15, 44, 8, 32, 32),
        (1, 0, 32, 128, 0),
        (0, 4, 16, 0, 64),
        (2, 8, 8, 0, 32),
        (13, 40, 16, 0, 0),
        (-7, -12, 16, 0, 0),
    )
    cases += [_boxes(*place) for place in places]
    cases.append(_grid("look_back", 7, lambda arrays: {"o": np.cumsum(arrays["a"])}))
    cases.append(_grid("ticket_sum", 7, _summed))
    cases.append(_grid("grid_steps", 5, _stepped))
    return cases


CASES = _all()
# What no device does, told on the CPU: a corner between the multiples of 16 bytes in a row, inside or before the array,
# and a store whose corner is before the array (on an H200 an illegal instruction; loads from there are legal).
REFUSED = [_boxes(0, column, 8, 0, 0, (0, 0)) for column in (1, 2, 6, -3)]
REFUSED_STORES = [_boxes(0, 0, 8, 0, 0, to) for to in ((-2, 0), (0, -4), (-1, -16))]
