"""Random reads in short loops, each iteration's behind those of the one before, simulated in runs of every length.

    python tests/properties/strides.py FIRST COUNT

prints one line of counts, and every program that is computed otherwise. Elements are -1, 0 and 1, so that sums are
exact in every order and agree bit by bit. Some programs are none of whose reads a run has whole: their rows begin at no
known multiple, they read further than the next iteration begins, or not surely; then no candidate fits.
"""

import random
import sys
from dataclasses import replace

from outcomes import main, outcome_of
from windows import arguments

import texpr
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.program import MappedProgram

WIDTHS = (2, 2, 4, 4, 8, 16)
OTHER = "no access is wide"


def place(draw: random.Random, index: str, count: int, loops: dict[str, int]) -> tuple[str, int]:
    """A subscript of an index, by a loop beside it or by none, and the extent that it needs."""
    kind = draw.random()
    if kind < 0.25:
        return index, count
    loop = draw.choice(sorted(loops))
    taps = loops[loop]
    step = taps if kind < 0.9 else draw.choice((1, 2, 3))
    offset = draw.choice((0, 0, 0, 0, 1, 4, 8))
    place = f"{step} * {index} + {loop}" + (f" + {offset}" if offset else "")
    return place, step * (count - 1) + taps + offset


def read(draw: random.Random, name: str, indices: dict[str, int], loops: dict[str, int], dtype: str) -> tuple[str, str]:
    """A parameter, and what reads it: subscripts of all indices, and of a loop alone here and there."""
    found = [place(draw, index, count, loops) for index, count in indices.items()]
    if draw.random() < 0.3:
        loop = draw.choice(sorted(loops))
        found.insert(draw.randint(0, len(found)), (loop, loops[loop]))
    row = found[-1][1]
    found[-1] = (found[-1][0], row + draw.choice((0, 0, 0, 1, 4, 8)))
    shape = ", ".join(str(extent) for _, extent in found)
    return f"{name}: {dtype}[{shape}]", f"{name}[{', '.join(subscript for subscript, _ in found)}]"


def program(draw: random.Random) -> str:
    """A kernel of a band."""
    dtype, result = draw.choice(("bf16", "f16", "f32", "f32")), draw.choice(("bf16", "f32", "f32"))
    letters = "hw" if draw.random() < 0.6 else draw.choice(("w", "bhw"))
    indices = {c: draw.choice((1, 2, 3, 5)) for c in letters} | {"w": draw.choice((4, 8, 8, 16, 24, 32, 40, 6, 7))}
    loops = {f"x{n}": draw.choice((1, 2, 2, 2, 3, 4)) for n in range(draw.choice((1, 2, 2, 3)))}
    params, reads = zip(*(read(draw, name, indices, loops, dtype) for name in "XZ"), strict=True)
    own, other = (text if dtype == "f32" else f"f32({text})" for text in reads)
    terms = draw.choice((own, f"{own} - {other}", f"{own} * {other}", f"abs({own}) + {other}"))
    if draw.random() < 0.05:
        terms = f"select(x0 < 1, {own}, {other})"
    target, around = f"Y[{', '.join(letters)}]", ", ".join(f"{n} {name}" for name, n in loops.items())
    cast = "" if result == "f32" else result
    nested = f"s += {terms}"
    for name, count in reversed(loops.items()):
        nested = f"seq {count} {name} {{ {nested} }}"
    body = draw.choice(
        (
            f"new s: f32; s = sum {around} {{ {terms} }}; {target} = {cast}(s)",
            f"new s: f32; s = maximum {around} {{ {terms} }}; {target} = {cast}(s + 1.0)",
            f"new s: f32; s = f32({target}); {nested}; {target} = {cast}(s)",
            f"{target} = {cast}(sum {around} {{ {terms} }})",
        )
    )
    pars = ", ".join(f"{n} {c}" for c, n in indices.items())
    shape = ", ".join(str(n) for n in indices.values())
    head = ", ".join((*params, f"inout Y: {result}[{shape}]"))
    return f"kernel g({head}) {{ par {pars} {{ {body} }} }}"


def mapped(text: str, draw: random.Random) -> MappedProgram | None:
    """The program in runs drawn at random; None where its threads take none."""
    kernel = texpr.parse(text).only
    first = kernel.compile("cuda:sm_90a", stop_after="map").mapping.program
    if not isinstance(first.candidate, Candidate) or not isinstance(first.candidate.launches.get("g_0"), Flat):
        return None
    usual = first.candidate.launches["g_0"]
    assert isinstance(usual, Flat), "asked above"
    own = replace(usual, widths={usual.grid[0]: draw.choice(WIDTHS)}, lines={}, turns={}, patch={})
    try:
        choice = replace(first.candidate, launches={"g_0": own})
        return kernel.compile("cuda:sm_90a", stop_after="map", mapping=choice).mapping.program
    except texpr.TExprError as wrong:
        if OTHER not in str(wrong):
            raise
        return None


def outcome(seed: int) -> str:
    """`right`, `another` form, or what is `wrong`."""
    return outcome_of(seed, program, mapped, arguments, orders=seed % 4 == 0)


if __name__ == "__main__":
    sys.exit(main(outcome))
