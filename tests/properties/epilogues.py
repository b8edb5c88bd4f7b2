"""Random programs around products of matrices on tensor cores, simulated in random tiles beside the interpreter.

    python tests/properties/epilogues.py FIRST COUNT

prints one line of counts, and every program that is computed otherwise. Factors are -1, 0 and 1, so that sums are exact
in every order; all that is done with them has to agree bit by bit.
"""

import random
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from outcomes import main, outcome_of

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.program import MappedProgram

TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
AT = {"M, K": "i, k", "K, M": "k, i", "K, N": "k, j", "N, K": "j, k", "M, N": "i, j", "N, M": "j, i"}
FACTORS = ("A", "B", "E")


def value(draw: random.Random, depth: int, names: list[str]) -> str:
    """An expression over these."""
    if depth == 0 or draw.random() < 0.25:
        return draw.choice(names)
    a, b = (value(draw, depth - 1, names) for _ in range(2))
    forms = ("({a} + {b})", "({a} * {b})", "({a} - {b})", "max({a}, {b})", "min({a}, {b})", "f32(bf16({a}))")
    more = ("f32(f16({a}))", "select(i < j, {a}, {b})", "select({a} > {b}, {a}, {b})")
    return draw.choice((*forms, *more)).format(a=a, b=b)


def program(draw: random.Random) -> str:
    """A kernel of one or two sums of products, with leaves before and behind them."""
    dtype, left, right = draw.choice(("bf16", "f16")), draw.choice(("M, K", "K, M")), draw.choice(("K, N", "N, K"))
    c, two = draw.choice(("M, N", "N, M")), draw.random() < 0.3
    head = [f"A: {dtype}[{left}]", f"B: {dtype}[{right}]", *([f"E: {dtype}[{right}]"] if two else [])]
    head += ["b: f32[N]", "u: bf16[M]", "R: f16[M, N]", "Q: f32[N, M]", "alpha: f32"]
    names, element = ["b[j]", "u[i]", "R[i, j]", "Q[j, i]", "2.0", "alpha"], f"C[{AT[c]}]"
    term = f"A[{AT[left]}] * B[{AT[right]}]"
    forms = {
        element: [f"{element} = {draw.choice(('0.0', 'b[j]', 'u[i]'))}", f"seq K k {{ {element} += {term} }}"],
        f"{element} ": [f"{element} += sum K k {{ {term} }}"],
        "s": [
            f"new s: {draw.choice(('f32', 'bf16', 'f16'))}",
            f"s = {draw.choice(('0.0', 'b[j]', 'R[i, j]'))}",
            f"seq K k {{ s += {term} }}",
        ],
        "s ": [f"let s = sum K k {{ {term} }}"],
    }
    held = draw.choice(list(forms))
    body = [*forms[held]]
    names += [held.strip()] * 3
    if two:
        body.append(f"let v = sum K k {{ E[{AT[right]}] * A[{AT[left]}] }}")
        names.append("v")
    if draw.random() < 0.4:
        body.append(f"let w = {value(draw, 2, names)}")
        names.append("w")
    body.append(f"{element} {draw.choice(('=', '+=', 'max='))} {value(draw, 2, names)}")
    head.append(f"inout C: {draw.choice(('f32', 'bf16', 'f16'))}[{c}]")
    if draw.random() < 0.4:
        head.append(f"inout D: {draw.choice(('f32', 'bf16', 'f64'))}[N, M]")
        body.append(f"D[j, i] {draw.choice(('=', '+='))} {value(draw, 1, [*names, element])}")
    if draw.random() < 0.3:  # of a row, whose greatest and least are exact in every order
        head.append("inout S: f32[M]")
        body.append(f"S[i] {draw.choice(('max=', 'min='))} {value(draw, 1, [*names, element])}")
    return f"kernel g({', '.join(head)}) {{ par M i, N j {{ {'; '.join(body)} }} }}"


def mapped(text: str, draw: random.Random) -> MappedProgram | None:
    """The program in tiles drawn at random, at small sizes; None where it is none of the tensor cores."""
    kernel = texpr.parse(text).only
    found = kernel.compile("cuda:sm_90a", stop_after="map", M=512, N=512, K=512).mapping.candidate
    ((name, choice),) = found.launches.items()
    if not isinstance(choice, Piped):
        return None
    if draw.random() < 0.35 and "S[i]" not in text:
        return _shared(text, draw, found)
    cluster = draw.choice((1, 1, 2, 4))
    own = replace(
        choice,
        tile={choice.across: draw.choice((64, 128)), choice.along: draw.choice((32, 64, 96, 128))},
        stages=draw.choice((2, 3)),
        cluster=cluster,
        persistent=cluster * draw.choice((1, 2)),
    )
    own = replace(own, alternate=draw.random() < 0.4 and own.tile[choice.along] <= 96)  # also of two sums
    sizes = {"M": 8 * draw.randint(1, 12), "N": 8 * draw.randint(1, 12), "K": 8 * draw.randint(1, 10)}
    if not own.alternate and draw.random() < 0.5:
        beside = draw.choice((1, 2))
        tile = {choice.across: draw.choice((128, 256)), choice.along: draw.choice((32, 48, 64, 80))}
        high = replace(own, tile=tile, high=2, abreast=beside, cluster=1, persistent=beside * draw.choice((1, 2)))
        with suppress(texpr.TExprError):  # refused where the result goes back in no boxes, say
            return _built(kernel, replace(found, launches={name: high}), sizes)
    if not own.alternate and draw.random() < 0.4:  # blocks share the steps of all tiles
        own = replace(own, streamed=True, persistent=cluster * draw.choice((2, 3)))
        sizes["K"] = 8 * draw.randint(17, 32)
    return _built(kernel, replace(found, launches={name: own}), sizes)


def _built(kernel: texpr.Kernel, candidate: Candidate, sizes: dict[str, int]) -> MappedProgram:
    program: MappedProgram = kernel.compile("cuda:sm_90a", stop_after="map", mapping=candidate, **sizes).mapping.program
    return program


def _shared(text: str, draw: random.Random, found: Candidate) -> MappedProgram:
    """In one tile that several blocks share, sometimes of the columns of the result as rows."""
    ((name, choice),) = found.launches.items()
    assert isinstance(choice, Piped)
    few = draw.random() < 0.5 and "E[" not in text
    split = draw.choice((2, 4)) if few else 2
    columns = 16 * split if few else 32 * split  # each block ends whole groups of 16
    sides = (choice.along, choice.across) if few else (choice.across, choice.along)
    most = dict(zip(sides, (64, columns), strict=True))
    own = replace(choice, across=sides[0], along=sides[1], tile=most, stages=2, split=split, persistent=split)
    sizes = {size: 8 * draw.randint(1, most[index] // 8) for size, index in zip("MN", "ij", strict=True)}
    return (
        texpr.parse(text)
        .only.compile(
            "cuda:sm_90a",
            stop_after="map",
            mapping=replace(found, launches={name: own}),
            K=8 * draw.randint(8 * split, 12 * split),
            **sizes,
        )
        .mapping.program
    )


def arguments(found: MappedProgram, seed: int) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for buffer in found.kernel.params:
        shape, dtype = tuple(constant_value(extent) or 0 for extent in buffer.shape), TYPES[str(buffer.dtype)]
        exact = buffer.name in FACTORS
        drawn = numbers.integers(-1, 2, shape) if exact else numbers.standard_normal(shape)
        values[buffer.name] = np.asarray(drawn).astype(dtype)
    return values


def outcome(seed: int) -> str:
    """`right`, the form that it has in place of the tensor cores', or what is wrong."""
    return outcome_of(seed, program, mapped, arguments)


if __name__ == "__main__":
    sys.exit(main(outcome))
