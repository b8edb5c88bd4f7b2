"""Random contractions: texts with sums of products, as matrix units and FMA tiles take them or almost do.

Products of matrices with batches, in any order of dimensions, reversed, strided or in parts of their arrays; windows
with strides, dilation and padding; triangles; several sums beside or behind one another; factors that are computed,
values that a sum begins with, what becomes of it, and several outputs. `contraction_run.py` maps and runs them.

    contraction(17).text     kernel g(A: bf16[P, K, M], B: bf16[N, K], …) { par P p, M i, N j { … } }

To add a kind of program: a function of a `Maker`, and its name in `KINDS`.
"""

import random
from collections.abc import Callable, Sequence

from programs import Case

NARROW = ("bf16", "f16")
EIGHTS = ("f8e4m3", "f8e5m2")  # a product may be of both
FACTORS = (*NARROW * 6, "f32", "f32", "i8", "f64", "f8e4m3")
RESULTS = {"i8": ("i32",), "f64": ("f64",), "f32": ("f32", "f32", "f64", "bf16")}
SIDES = (1, 2, 3, 8, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 72, 96, 104, 127, 128, 129, 136, 150)
DEPTHS = (1, 2, 7, 8, 16, 24, 31, 32, 33, 40, 63, 64, 65, 72, 96, 100, 128, 130, 136)
FREE = 0.2  # of the programs have free sizes
Dim = tuple[str, str]  # a subscript and its extent


class Maker:
    """A program in the making: parameters, sizes, chances."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.params: list[str] = []
        self.sizes: dict[str, int] = {}
        self.dtype = self.draw.choice(FACTORS)
        self.result = self.draw.choice(RESULTS.get(self.dtype, ("f32", *NARROW)))
        self.odd = 0.05 if self.chance(0.75) else 1.0  # how much of what is odd a program has
        self.flat = False  # whether arrays have one dimension, and subscripts that count in it

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def size(self, name: str, values: Sequence[int]) -> str:
        """A size with one of these values, often one that tensor maps take."""
        value = self.draw.choice(values)
        self.sizes[name] = -(-value // 8) * 8 if self.chance(0.5) and max(values) > 8 else value
        return name

    def array(self, name: str, dtype: str, dims: Sequence[Dim], *, bent: float = 0.25) -> str:
        """A parameter over these dimensions and its element: in any order, or the last two after the others."""
        ahead = 0 if self.chance(self.odd) else max(len(dims) - 2, 0)
        order = [*dims[:ahead], *self.draw.sample(dims[ahead:], len(dims) - ahead)]
        if self.flat and order:
            self.params.append(f"{name}: {dtype}[{' * '.join(f'({extent})' for _, extent in order)}]")
            element = order[0][0]
            for subscript, extent in order[1:]:
                element = f"({element}) * ({extent}) + ({subscript})"
            return f"{name}[{element}]"
        if self.chance(bent * self.odd):
            k = self.draw.randrange(len(order))
            order[k] = self._bent(*order[k])
        shape, attr = [extent for _, extent in order], ""
        if len(order) > 1 and self.chance(0.15 * self.odd):
            steps = ["1"]
            for extent in reversed([*shape[1:-1], f"{shape[-1]} + {self.draw.choice((3, 8))}"]):
                steps.insert(0, f"({extent})" if steps == ["1"] else f"({extent}) * {steps[0]}")
            attr = f" #strides({', '.join(steps)})"
        elif dims and self.chance(0.04):
            attr = " #align(8)"
        self.params.append(f"{name}: {dtype}[{', '.join(shape)}]{attr}")
        return f"{name}[{', '.join(subscript for subscript, _ in order)}]"

    def _bent(self, at: str, extent: str) -> Dim:
        """A subscript that is not the index of a whole dimension by itself."""
        ahead = self.draw.choice((1, 3, 8))
        forms = (
            (f"{at} + {ahead}", f"{extent} + {ahead}"),
            (at, f"{extent} + {ahead}"),
            (f"2 * ({at})", f"2 * ({extent})"),
        )
        more = ((f"{extent} - 1 - ({at})", extent), (f"{at} + {ahead}", f"{extent} + 2 * {ahead}"))
        return self.draw.choice((*forms, *more))

    def factor(self, name: str, dims: Sequence[Dim], along: Sequence[Dim]) -> str:
        """A factor of a product: an element, seldom computed from one and from what else is along its dimensions."""
        kind = self.draw.choice(EIGHTS) if self.dtype in EIGHTS else self.dtype
        own = self.array(name, kind, dims)
        wide = {"i8": "i32", "f64": "f64"}.get(self.dtype, "f32")
        if not self.chance(0.3 * self.odd):
            return f"{wide}({own})" if self.chance(0.5 if self.dtype in EIGHTS else 0.2) else own
        scale = self.array(f"{name}_scale", "i8" if wide == "i32" else wide, [self.draw.choice(list(along))], bent=0.0)
        forms = [f"{own} * {scale}", f"max({own}, 0{'' if wide == 'i32' else '.0'})", f"({own} + {scale})"]
        forms += [f"select({scale} > 0{'' if wide == 'i32' else '.0'}, {wide}({own}), {wide}({scale}))"]
        if self.dtype in NARROW:
            forms += [f"{self.dtype}(f32({own}) * {scale})", f"{self.dtype}({own} + {scale})"]
        return self.draw.choice(forms)

    def value(self, depth: int, names: Sequence[str], left: str, right: str) -> str:
        """An expression over these, and over two indices."""
        if depth == 0 or self.chance(0.3):
            return self.draw.choice(list(names))
        a, b = (self.value(depth - 1, names, left, right) for _ in range(2))
        if self.result == "i32":
            forms: tuple[str, ...] = ("({a} + {b})", "({a} * {b})", "max({a}, {b})", "select({i} < {j}, {a}, {b})")
        else:
            forms = ("({a} + {b})", "({a} * {b})", "({a} - {b})", "max({a}, {b})", "min({a}, {b})")
            forms += ("select({i} < {j}, {a}, {b})", "select({a} > {b}, {a}, {b})", "relu({a})")
            forms += () if self.result == "f64" else ("f32(bf16({a}))", "f32(f16({a}))")
        return self.draw.choice(forms).format(a=a, b=b, i=left, j=right)

    def body(self, target: str, sums: str, names: list[str], sides: tuple[str, str]) -> list[str]:
        """What is before a sum, the sum, and what becomes of it; `sums` is `K k, 3 r { term }`."""
        zero = "0" if self.result == "i32" else "0.0"
        held = {"i32": "i32", "f64": "f64"}.get(self.result, self.draw.choice(("f32", *NARROW)))
        begin = self.draw.choice((zero, zero, self.draw.choice(names)))
        loops, term = sums.split(" { ", 1)
        forms = {
            target: [f"{target} = {begin}", f"seq {loops} {{ {target} += {term}"],
            f"{target} ": [f"{target} += sum {sums}"],
            f"{target}  ": [f"seq {loops} {{ {target} += {term}"],
            "s": [f"new s: {held}", f"s = {begin}", f"seq {loops} {{ s += {term}"],
            "s ": [f"let s = sum {sums}"],
        }
        if self.chance(0.35):
            return [f"{target} = sum {sums}"]
        name = self.draw.choice(list(forms))
        made, own = [*forms[name]], [*names, *[name.strip()] * 3]
        if name.strip() == target and self.chance(0.5):
            return made
        if self.chance(0.25):
            made.append(f"let w = {self.value(2, own, *sides)}")
            own.append("w")
        how = self.draw.choice(("=", "=", "+=", "max="))
        return [*made, f"{target} {how} {self.value(self.draw.choice((0, 1, 2)), own, *sides)}"]

    def around(self, row: Dim, column: Dim, others: Sequence[Dim]) -> list[str]:
        """What a program has beside its factors to compute with."""
        if self.result == "i32":
            return [self.array("b", "i32", [column], bent=0.0), self.array("u", "i8", [row], bent=0.0), "2"]
        wide = "f64" if self.result == "f64" else "f32"
        names = [self.array("b", wide, [column], bent=0.0), "2.0"]
        if self.chance(0.4):
            names.append(self.array("u", self.draw.choice(NARROW), [row], bent=0.0))
        if self.chance(0.4):
            names.append(self.array("R", self.draw.choice((wide, "f16", "bf16")), [*others, row, column]))
        if self.chance(0.2):
            self.params.append(f"alpha: {wide}")
            names.append("alpha")
        return names

    def outputs(self, body: list[str], names: list[str], row: Dim, column: Dim, others: Sequence[Dim]) -> None:
        """Seldom a second output, in an order of its own."""
        if self.chance(0.2):
            second = self.array("D", self.draw.choice((self.result, "f64")) if self.result != "i32" else "i32",
                                [*others, row, column], bent=0.0)  # fmt: skip
            body.append(f"{second} {self.draw.choice(('=', '+='))} {self.value(1, names, row[0], column[0])}")

    def text(self, head: str, body: Sequence[str]) -> str:
        return f"kernel g({', '.join(self.params)}) {{ {head} {{ {'; '.join(body)} }} }}"


def product(make: Maker) -> str:
    """A product of matrices, often of a batch, in any orders; seldom of flat arrays."""
    make.flat = make.chance(0.15)
    row, column = ("i", make.size("M", SIDES)), ("j", make.size("N", SIDES))
    depth = [("k", make.size("K", DEPTHS))]
    if make.chance(0.1 * make.odd):
        depth.append(("l", make.size("L", (1, 2, 3, 5))))
    batch = [("p", make.size("P", (1, 2, 3)))] if make.chance(0.3) else []
    batch += [("q", make.size("Q", (1, 2)))] if batch and make.chance(0.2) else []
    second = batch if make.chance(0.6) else batch[:-1]
    a = make.factor("A", [*batch, row, *depth], [row, *depth])
    b = make.factor("B", [*second, *depth, column], [column, *depth])
    names = make.around(row, column, batch)
    loops = ", ".join(f"{extent} {at}" for at, extent in depth)
    term = f"{a} * {b}" if make.chance(0.8) else f"{b} * {a}"
    body = []
    if make.chance(0.15) and make.dtype != "i8":
        other = make.array("E", make.dtype, [*second, *depth, column])
        cast = "f32({})" if make.dtype == "f8e4m3" else "{}"
        body.append(f"let v = sum {loops} {{ {cast.format(other)} * {a} }}")
        names += ["v", "v"]
    target = make.array("C", make.result, [*batch, row, column])
    body += make.body(target, f"{loops} {{ {term} }}", names, ("i", "j"))
    make.outputs(body, [*names, target], row, column, batch)
    bands = make.draw.sample([row, column, *batch], 2 + len(batch)) if make.chance(0.3) else [*batch, row, column]
    return make.text("par " + ", ".join(f"{extent} {at}" for at, extent in bands), body)


def windows(make: Maker) -> str:
    """A convolution of one or two dimensions with strides, dilation, padding."""
    make.dtype = make.draw.choice(("bf16", "bf16", "f16", "f32"))
    make.result = make.draw.choice(("f32", make.dtype))
    spatial, loops, inside, where = list[Dim](), list[Dim](), list[Dim](), list[str]()
    for n in range(make.draw.choice((1, 2, 2))):
        extent, window = make.size("HV"[n], (1, 3, 5, 8, 12, 16, 17)), make.draw.choice((1, 2, 3, 3, 5))
        stride, dilation, pad = make.draw.choice((1, 1, 1, 2)), make.draw.choice((1, 1, 1, 2)), 0
        at = f"{stride} * {'hv'[n]} + {dilation} * {'rz'[n]}" if stride * dilation > 1 else f"{'hv'[n]} + {'rz'[n]}"
        reach = f"{stride} * {extent} + {dilation * (window - 1)}"
        if make.chance(0.3) and window > 1:
            pad = dilation * ((window - 1) // 2) or dilation
            where += [f"{at} >= {pad}", f"{at} - {pad} < {reach} - {2 * pad}"]
            at, reach = f"{at} - {pad}", f"{reach} - {2 * pad}"
            if stride * make.sizes[extent] + dilation * (window - 1) <= 2 * pad:
                make.sizes[extent] += 2 * pad
        spatial.append(("hv"[n], extent))
        loops.append(("rz"[n], str(window)))
        inside.append((at, reach))
    batch, out = [("p", make.size("P", (1, 2, 3)))], ("o", make.size("O", (1, 8, 16, 24, 33, 64, 72)))
    channels = [("c", make.size("G", (1, 3, 8, 16, 20, 32, 64)))]
    x = make.array("X", make.dtype, [*batch, *channels, *inside], bent=0.0)
    if make.chance(0.6):  # channels last, in rows
        make.params.pop()
        shape = [*batch, *inside, *channels]
        make.params.append(f"X: {make.dtype}[{', '.join(extent for _, extent in shape)}]")
        x = f"X[{', '.join(at for at, _ in shape)}]"
    w = make.array("W", make.dtype, [*channels, *loops, out], bent=0.0)
    term = f"{x} * {w}"
    if where:
        zero = f"{make.dtype}(0.0)"
        read = f"select({' and '.join(where)}, {x}, {zero})"
        term = f"{read} * {w}" if make.chance(0.6) else f"select({' and '.join(where)}, {x} * {w}, 0.0)"
    names = make.around(spatial[-1], out, [])
    target = make.array("C", make.result, [*batch, *spatial, out], bent=0.0)
    every = make.draw.sample([*channels, *loops], 1 + len(loops))
    sums = ", ".join(f"{extent} {at}" for at, extent in every) + f" {{ {term} }}"
    body = make.body(target, sums, names, ("h", "o"))
    bands = make.draw.sample([*batch, *spatial, out], 2 + len(spatial))
    return make.text("par " + ", ".join(f"{extent} {at}" for at, extent in bands), body)


def triangle(make: Maker) -> str:
    """The lower or upper part of a product, of an array with itself or with another."""
    row, column, depth = ("i", make.size("M", SIDES)), ("j", "M"), [("k", make.size("K", DEPTHS))]
    lower = make.chance(0.6)
    column = ("j", "M") if lower else ("i + j", "M")
    a = make.array("A", make.dtype, [row, *depth], bent=0.0)
    same = a.replace("[i,", f"[{column[0]},").replace(" i]", f" {column[0]}]")
    b = same if make.chance(0.6) else make.array("B", make.dtype, [*depth, column], bent=0.0)
    wide = "f32({})" if make.dtype == "f8e4m3" else "{}"
    names = ["2" if make.result == "i32" else "2.0"]
    target = make.array("C", make.result, [row, column], bent=0.0)
    body = make.body(target, f"K k {{ {wide.format(a)} * {wide.format(b)} }}", names, ("i", "j"))
    return make.text(f"par M i {{ par {'i + 1' if lower else 'M - i'} j", [*body[:-1], body[-1] + " }"])


def chained(make: Maker) -> str:
    """A product of a product, through an array of the call."""
    make.dtype = make.draw.choice(NARROW)
    make.result = make.draw.choice(("f32", make.dtype))
    m, n, k, o = (make.size(name, SIDES) for name in "MNKO")
    a = make.factor("A", [("i", m), ("k", k)], [("k", k)])
    b = make.factor("B", [("k", k), ("j", n)], [("j", n)])
    e = make.factor("E", [("j", n), ("o", o)], [("o", o)])
    target = make.array("C", make.result, [("i", m), ("o", o)], bent=0.0)
    first = f"par M i, N j {{ T[i, j] = {make.draw.choice(('{}', 'relu({})')).format(f'sum K k {{ {a} * {b} }}')} }}"
    second = f"par M i, O o {{ {target} {make.draw.choice(('=', '+='))} sum N j {{ T[i, j] * {e} }} }}"
    return f"kernel g({', '.join(make.params)}) {{ new T: {make.dtype}[M, N]; {first}; {second} }}"


KINDS: dict[Callable[[Maker], str], int] = {product: 12, windows: 4, triangle: 1, chained: 1}


def contraction(seed: int) -> Case:
    """The program of a seed, with sizes to run it at; some of these are not bound before the call."""
    make = Maker(seed)
    (kind,) = make.draw.choices(list(KINDS), list(KINDS.values()))
    text = kind(make)
    free: tuple[str, ...] = ()
    if make.chance(FREE) and not make.flat:  # of which not all are split for all sizes
        free = tuple(make.sizes) if make.chance(0.6) else tuple(make.draw.sample(list(make.sizes), 1))
    return Case(seed, text, make.sizes, False, {}, free)
