"""Random programs that pick: the greatest or least value of rows, columns, arrays, with where it is, in many writings.
And data in which values come several times, with NaN, infinities and zeros of both signs among them."""

import random
from typing import Any

import numpy as np

from texpr.grammar.ast import Kernel
from texpr.grammar.index.value import index_value
from texpr.grammar.numerics import cast, storage
from texpr.grammar.types import F64

TYPES = ("f32", "f32", "bf16", "f16", "f64", "i32", "i64", "i16")
LEAST = {"i32": "-2147483648", "i64": "-9223372036854775808", "i16": "-32768"}
GREATEST = {"i32": "2147483647", "i64": "9223372036854775807", "i16": "32767"}


def pick_program(rng: random.Random) -> str:
    """A kernel over X: T[M, N]; of other shapes, over a part of it."""
    dtype, across = rng.choice(TYPES), rng.choice(("rows", "columns", "all", "array"))
    real, op = dtype[0] != "i", rng.choice((">", ">=", "<", "<="))
    over, extent = ("i", "M") if across == "columns" else ("j", "N")
    start = rng.choice(("none", "first", "some", *(["nan"] if real else [])))
    place = {"rows": "i", "columns": "j"}.get(across)
    at = "" if place is None else f"[{place}]"
    shape = {"rows": "[M]", "columns": "[N]"}.get(across, "[]")
    own = place is not None and rng.random() < 0.5
    best, index = ("v", "a") if own else (f"V{at}", f"A{at}")
    element = "X[0, j]" if across == "array" else "X[i, j]"
    value = rng.choice((element, element, f"max({element}, {'0.5' if real else '0'})", f"-{element}"))
    if dtype in ("bf16", "f16", "i16"):
        value = element  # what is computed is wider
    low = "-inf" if real else LEAST[dtype]
    high = "inf" if real else GREATEST[dtype]
    first = value.replace("X[0, j]", "X[0, 0]") if across == "array" else value.replace("[i, j]", _begin(across))
    starts = {"none": low if op[0] == ">" else high, "first": first, "some": "0.5" if real else "1", "nan": "nan"}
    where = [f"{over} % 3 != 1", "Y[i, j] > 0.0" if across != "array" else "Y[0, j] > 0.0"]
    asked = f"{value} {op} {best}" if rng.random() < 0.7 else f"{best} {_turned(op)} {value}"
    lets, kept = "", value
    if rng.random() < 0.4:
        lets, kept = f"let x = {value}\n", "x"
        asked = asked.replace(value, "x")
    if rng.random() < 0.3:
        asked = f"{rng.choice(where)} and {asked}" if rng.random() < 0.5 else f"{asked} and {rng.choice(where)}"
    if rng.random() < 0.3:
        lets, asked = f"{lets}let better = {asked}\n", "better"
    number = {"rows": "j", "columns": "i", "all": "N * i + j", "array": "j"}[across]
    given = rng.choice((number, f"2 * ({number}) + 3", f"{extent} - 1 - ({number})"))
    more = rng.choice(("", "", f"W{at} = Y[i, j]\n" if across != "array" else f"W{at} = Y[0, j]\n"))
    binds = [f"{best} = {kept}", f"{index} = {given}"]
    rng.shuffle(binds)
    body = f"{lets}if {asked} {{\n{more}{binds[0]}\n{binds[1]}\n}}\n"
    if not more and rng.random() < 0.3:
        body = f"{lets}{index} = select({asked}, {given}, {index})\n{best} = select({asked}, {kept}, {best})\n"
    one, none = ("1.0" if real else "1"), "-1"
    match rng.choice(("", "", "", "sum", "count", "first", "last")):
        case "sum":
            body, none = body + f"C{at} += {given}\n", "0"
        case "count":
            body, none = body + f"if {element} >= {one} {{ C{at} += 1 }}\n", "0"
        case "first":
            body += f"if {element} == {one} and C{at} {rng.choice(('< 0', '== -1'))} {{ C{at} = {number} }}\n"
        case "last":
            body += f"C{at} = select({element} == {one}, {number}, C{at})\n"
    loop = f"seq {extent} {over} {{\n{body}}}\n"
    if across == "all":
        loop = f"seq M i {{\nseq N j {{\n{body}}}\n}}\n"
    begin = f"new v: {dtype}\nnew a: i64\n" if own else ""
    end = f"V{at} = v\nA{at} = a\n" if own else ""
    inside = f"{begin}{best} = {starts[start]}\n{index} = -7\nW{at} = 0.25\nC{at} = {none}\n{loop}{end}"
    if place is not None:
        inside = f"par {'M i' if across == 'rows' else 'N j'} {{\n{inside}}}\n"
    head = f"kernel k(X: {dtype}[M, N], Y: f32[M, N], V: {dtype}{shape}, A: i64{shape}, W: f32{shape}, C: i64{shape})"
    return f"{head} where M >= 1, N >= 1 {{\n{inside}}}\n"


def _begin(across: str) -> str:
    return {"rows": "[i, 0]", "columns": "[0, j]"}.get(across, "[0, 0]")


def _turned(op: str) -> str:
    return op.replace(">", "?").replace("<", ">").replace("?", "<")


def odd_data(kernel: Kernel, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    """Arrays of few values, some of them odd; now and then of nothing else."""
    random_ = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for buffer in kernel.params:
        shape = tuple(int(index_value(extent, sizes)) for extent in buffer.shape)
        values = random_.integers(-3, 4, shape)
        if buffer.dtype.is_float:
            odd = random_.choice([np.nan, -np.inf, np.inf, -0.0, 0.0], shape)
            real = np.where(random_.random(shape) < random_.choice([0.02, 0.3, 1.0]), odd, values)
            only = random_.choice([0.0, np.nan, -np.inf], shape)
            real = np.where(random_.random(shape) < 0.5, real, only) if random_.random() < 0.2 else real
            found[buffer.name] = cast(np.asarray(real, np.float64), F64, buffer.dtype)
        elif buffer.dtype.is_bool:
            found[buffer.name] = values > 0
        else:
            low, high = buffer.dtype.integer_range
            odd = random_.choice(np.array([low, high, 0], np.int64), shape)
            found[buffer.name] = np.where(random_.random(shape) < 0.2, odd, values).astype(storage(buffer.dtype))
    return found
