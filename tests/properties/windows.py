"""Random windows over images on tensor cores, simulated in random tiles and boxes beside the interpreter.

    python tests/properties/windows.py FIRST COUNT

prints one line of counts, and every program that is computed otherwise. Elements are -1, 0 and 1, so that sums are
exact in every order and agree bit by bit. Many programs are none that boxes do: their conditions are narrower than
images, their indices are mirrored, or go in other steps; then no candidate fits.
"""

import random
import sys
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from outcomes import compared, main

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram

TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
OTHER = "no product of matrices"


@dataclass
class Dim:
    """One dimension of an image: how many values its index has, those of the window, its subscript, the extent of the
    array, and the conditions that the subscript is inside, where it may not be."""

    index: str
    count: int
    tap: str
    taps: int
    place: str
    extent: int
    inside: list[str]


def dim(draw: random.Random, number: int) -> Dim:
    index, tap = f"h{number}", f"r{number}"
    count, taps = draw.choice((1, 2, 3, 5, 6, 9)), draw.choice((1, 2, 3))
    apart, back, step = draw.choice((1, 1, 2)), draw.random() < 0.2, 2 if draw.random() < 0.03 else 1
    first = f"{step} * {index}" if step > 1 else index
    reach = apart * (taps - 1)
    place = f"{first} + {reach} - {apart} * {tap}" if back else f"{first} + {apart} * {tap}"
    if draw.random() < 0.05 and step == 1:
        place = f"{count - 1} - {place}" if not back else place
        return Dim(index, count, tap, taps, f"{place} + {2 * reach}", count + 3 * reach + 2, [])
    whole = step * (count - 1) + reach + 1
    pad = draw.choice((0, 0, 1, 2))
    extent = whole - 2 * pad
    if pad == 0 or extent < 1:
        return Dim(index, count, tap, taps, place, whole + draw.choice((0, 0, 1)), [])
    low, high = pad, extent + pad
    if draw.random() < 0.04:
        low += 1
    if draw.random() < 0.04:
        high -= 1
    inside = [f"{place} >= {low}", f"{place} < {high}"]
    if draw.random() < 0.3:
        inside = [f"{low - 1} < {place}", f"not ({place} >= {high})"]
    return Dim(index, count, tap, taps, f"{place} - {pad}", extent, inside)


def program(draw: random.Random) -> tuple[str, list[Dim]]:
    """A kernel, and its dimensions."""
    dtype, result = draw.choice(("bf16", "f16")), draw.choice(("bf16", "f16", "f32"))
    dims = [dim(draw, number) for number in range(draw.choice((1, 2, 2, 3)))]
    batch, channels, filters = draw.choice((1, 2, 3, 5)), draw.choice((8, 40, 64, 72)), draw.choice((8, 40, 64, 136))
    places, inside = ", ".join(d.place for d in dims), [one for d in dims for one in d.inside]
    element, kind = f"X[n, {places}, c]", draw.random()
    if inside:
        zero = "0.0" if draw.random() < 0.93 else draw.choice(("1.0", "-0.0"))
        met = " and ".join(inside) + (" and o < 5" if draw.random() < 0.05 else "")
        element = f"select({met}, {element}, {zero})"
        if kind < 0.25:
            element = f"select(not ({met}), {zero}, X[n, {places}, c])"
    taps = [d.tap for d in dims]
    letters = draw.choice(([*taps, "c", "o"], ["o", *taps, "c"], [*taps, "o", "c"], ["c", *taps, "o"]))
    extents = (
        {"c": channels, "o": filters, "n": batch} | {d.tap: d.taps for d in dims} | {d.index: d.count for d in dims}
    )
    indices = [d.index for d in dims]
    out = draw.choice((["n", *indices, "o"], ["n", *indices, "o"], ["n", "o", *indices], [*indices, "n", "o"]))
    shape = {name: ", ".join(str(extents[letter]) for letter in of) for name, of in {"F": letters, "Y": out}.items()}
    loops = [*taps, "c"]
    draw.shuffle(loops)
    total = f"sum {', '.join(f'{extents[name]} {name}' for name in loops)} {{ {element} * F[{', '.join(letters)}] }}"
    head = [
        f"X: {dtype}[{batch}, {', '.join(str(d.extent) for d in dims)}, {channels}]",
        f"F: {dtype}[{shape['F']}]",
        f"b: f32[{filters}]",
        f"inout Y: {result}[{shape['Y']}]",
    ]
    target = f"Y[{', '.join(out)}]"
    body = draw.choice(
        (
            f"{target} = {total}",
            f"{target} += {total}",
            f"let s = {total}; {target} = max(s + b[o], 0.0)",
        )
    )
    pars = ", ".join(f"{extents[name]} {name}" for name in ("n", *indices, "o"))
    return f"kernel g({', '.join(head)}) {{ par {pars} {{ {body} }} }}", dims


def boxes(draw: random.Random, indices: list[str]) -> dict[str, int]:
    """Sizes of 64 rows together."""
    found = dict.fromkeys(indices, 1)
    for _ in range(6):
        found[draw.choice(indices)] *= 2
    return found


def mapped(text: str, dims: list[Dim], draw: random.Random) -> MappedProgram | None:
    """The program in tiles drawn at random; None where it is none of boxes."""
    kernel = texpr.parse(text).only
    cluster, columns = draw.choice((1, 1, 2)), draw.choice((32, 64, 96, 128, 192))
    groups = draw.choice((1, 2, 3, 4) if columns <= 128 else (1, 2))
    rows = ["n", *(d.index for d in dims)]
    while rows:
        some = [name for name in rows if f" 1 {name}" not in text.split("par ")[1].split("{")[0].replace(",", "")]
        own = Piped(
            along="o", across=rows[-1], tile={rows[-1]: 64 * groups, "o": columns}, stages=draw.choice((2, 3)),
            persistent=cluster * draw.choice((1, 2)), cluster=cluster,
            box=boxes(draw, some) if len(some) > 1 else {}, memory={"s": Memory.REG} if "let s" in text else {},
        )  # fmt: skip
        try:
            choice = Candidate(launches={"g_0": own})
            return kernel.compile("cuda:sm_90a", stop_after="map", mapping=choice).mapping.program
        except texpr.TExprError as wrong:
            if all(word not in str(wrong) for word in (OTHER, "`box`", "`across`", "`tile`", "shared memory")):
                raise
            if "shared memory" in str(wrong):
                return mapped(text, dims, draw)
        rows.pop()
    return None


def arguments(found: MappedProgram, seed: int) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for buffer in found.kernel.params:
        shape, dtype = tuple(constant_value(extent) or 0 for extent in buffer.shape), TYPES[str(buffer.dtype)]
        values[buffer.name] = np.asarray(numbers.integers(-1, 2, shape)).astype(dtype)
    return values


def outcome(seed: int) -> str:
    """`right`, `another` form, or what is `wrong`."""
    draw = random.Random(seed)
    text, dims = program(draw)
    found = mapped(text, dims, draw)
    if found is None:
        return "another form"
    return compared(found, text, arguments(found, seed), orders=seed % 4 == 0)


if __name__ == "__main__":
    sys.exit(main(outcome))
