"""Soup: programs of the whole language in odd combinations, as text, which the checker accepts more often than not.

`programs.py` makes kernels as people write them; `brew(seed)` makes what nobody writes and everybody may: every builtin
and library function on every element type, operations on literals alone, casts between all types, lazy arms, calls with
views and type parameters, `let` of every kind of entity, locals of rank 0 to 3, atomics of all operators on all types,
gathers through every integer type, bare programs, `size` constants, facts and dynamic sizes. Whatever the checker takes
must pass every later stage or be refused by a diagnostic; `soup_run.py` sees to it.
"""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

from programs import Case
from soup_values import FLOATS, FOLDS, NUMBERS, Index, Values, View

FUNCTIONS = """
fn twice(x: T) { return x + x }
fn squared(x: T): T { return T(x * x) }
fn nested(x: T) { return twice(max(x, 0)) - x }
fn mixed(x: T, y: U) { return select(x < 1, U(x), y) }
fn total(x: T[n]) { return sum n i { x[i] } }
fn inner(x: T[n], y: U[n]): f64 { return f64(sum n i { f32(x[i]) * f32(y[i]) }) }
fn count(x: T[n]) { return n }
fn row(x: T[n, m], k: i64): T[m] { return x[0, 0:m] }
fn scaled(x: T[n], a: f32): T[n] { new r: T[n]; seq n i { r[i] = T(f32(x[i]) * a) }; return r }
fn fill(out b: T[n], v: f32) { seq n i { b[i] = T(v) } }
fn spread(inout b: T[n], v: U) { par n i { b[i] = T(v) } }
"""
UPDATES = ("+=", "-=", "*=", "max=", "min=")


class Soup(Values):
    """Statements: each method appends lines that are legal but for what the values do."""

    @property
    def pars(self) -> list[Index]:
        return [index for index in self.indices if index.parallel]

    @contextmanager
    def block(self, head: str, indices: tuple[Index, ...] = ()) -> Iterator[None]:
        """A block in braces: what it defines is gone after it."""
        before = list(self.locals_), list(self.scalars), list(self.indices), self.level
        self.line(f"{head} {{")
        self.indices += indices
        self.level += 1
        yield
        self.locals_, self.scalars, self.indices, self.level = before
        self.line("}")

    # ---- writes

    def written(self) -> tuple[str, str]:
        """An element that no two iterations of the `par`s around share, and its type."""
        own = [view for view in self.locals_ if view.depth == len(self.pars) and view.name[0] != "c"]
        if own and self.chance(0.4):
            view = self.rng.choice(own)
            self.gathers = False
            text = self.element(view)
            self.gathers = True
            return text, view.dtype
        places = [(i.cover, self.pick(i.name, i.name, f"{i.cover} - 1 - {i.name}")) for i in self.pars]
        if self.bare:
            text, stride = "0", ""
            for cover, subscript in places:
                text, stride = (f"({text}) * ({cover}) + {subscript}" if stride else subscript), cover
            name, dtype = self.fresh("W"), self.pick("f32", "i32", "f16", "u8")
            self.params.append(View(name, dtype, ("1",)))
            return f"{name}[{text}]", dtype
        unique = ""
        if self.chance(0.1) and places and not self.dynamic:
            name, unique = self.fresh("y"), "#unique"
            self.line(f"let {name} = {self.pick('i32', 'i64')}({places[0][1]})")
            places[0] = places[0][0], f"{name} * 1"
        if self.chance(0.3):
            self.gathers = False
            extent = self.some()
            places.append((extent, self.subscript(extent)))
            self.gathers = True
        self.rng.shuffle(places)
        places = places or [("1", "0")]
        shape = tuple(cover for cover, _ in places)
        view = View(self.fresh("W"), self.pick(*NUMBERS, "bool"), shape, self.attributes(shape))
        self.params.append(view)
        return f"{view.name}[{', '.join(subscript for _, subscript in places)}]{unique}", view.dtype

    def assign(self) -> None:
        target, dtype = self.written()
        unique = " #unique" if target.endswith("#unique") else ""
        target = target.removesuffix("#unique")
        note = unique or (self.pick(*[" #strict"] * 10, " #unique") if self.chance(0.06) else "")
        if dtype != "bool" and self.chance(0.3):
            self.line(f"{target} {self.pick(*UPDATES)} {self.fit(dtype, 1)}{note}")
        elif dtype != "bool" and self.chance(0.2):
            kind = "float" if dtype in FLOATS else "uint" if dtype == "u32" else "int"
            name, extent = self.fresh("k"), self.extent()
            self.indices.append(Index(name, extent, parallel=False))
            body = self.fit(dtype, 1) if kind == "int" else self.value(kind, 1)
            self.indices.pop()
            self.line(f"{target} {self.pick('=', '=', '+=')} {self.pick(*FOLDS)} {extent} {name} {{ {body} }}{note}")
        else:
            self.line(f"{target} = {self.fit(dtype, 3)}{note}")
            if self.chance(0.3) and not unique:
                self.scalars.append((target, dtype))

    def reduced(self) -> None:
        """An accumulation that iterations share, plain or atomic, anywhere in a buffer of its own."""
        view = View(self.fresh("H"), self.pick(*NUMBERS), tuple(self.some() for _ in range(self.rng.randint(1, 2))))
        if self.bare or any(extent == "0" or self.number(extent) == 0 for extent in view.shape):
            self.assign()
            return
        self.params.append(view)
        atomic = self.chance(0.6)
        self.gathers = atomic
        target = self.element(view)
        self.gathers = True
        op = self.pick(*UPDATES)
        for _ in range(self.rng.choice((1, 1, 2))):
            self.line(f"{'atomic ' * atomic}{target} {op} {self.fit(view.dtype, 2)}")

    # ---- names

    def let(self) -> None:
        name = self.fresh("v")
        match self.rng.randrange(7):
            case 0 if self.indices:
                index = self.rng.choice(self.indices)
                n = max(1, self.number(index.cover))
                self.line(f"let {name} = {self.pick(f'min({index.name}, {n - 1})', f'{index.name} % {n}')}")
                self.indices.append(Index(name, str(n), parallel=False))
            case 1:
                vector = self.vector((*NUMBERS, "bool"))
                if vector is not None:
                    self.line(f"let {name} = {vector[0]}")
                    self.locals_.append(View(name, vector[2], (vector[1],), depth=-2))
            case 2:
                kind = self.pick("float", "int")
                self.line(f"let {name} = {self.literal(kind, 1)}")
                self.scalars.append((name, "f32" if kind == "float" else "i64"))
            case 3:
                self.line(f"let {name} = {self.condition(2)}")
                self.scalars.append((name, "bool"))
            case 4:
                dtype = self.pick(*NUMBERS)
                self.line(f"let {name} = {dtype}({self.value(self.pick('float', 'int', 'uint', 'bool'), 2)})")
                self.scalars.append((name, dtype))
            case 5:
                kind, dtype = self.rng.choice((("float", "f64"), ("int", "i64"), ("uint", "u32")))
                self.line(f"let {name} = {self.fold(kind, 2)}")
                self.scalars.append((name, dtype))
            case _:
                dtype = self.pick(*NUMBERS, "bool")
                self.line(f"reg {name}: {dtype} = {self.fit(dtype, 2)}")
                self.scalars.append((name, dtype))

    def new(self) -> None:
        """A local of rank 0 to 3, filled by a `seq`, a `par` or a call."""
        name, dtype = self.fresh("t"), self.pick(*NUMBERS, "bool")
        if self.bare and self.chance(0.5):
            self.line(f"new {name} 3")
            self.line(f"seq 3 e{name} {{ {name}[e{name}] = {self.fit('f32', 1)} }}")
            self.locals_.append(View(name, "f32", ("3",), depth=len(self.pars)))
            return
        shape = tuple(self.some() for _ in range(self.rng.randint(0, 3)))
        fixed = not self.dynamic and self.pars
        places = ("",) * 5 + (("reg ", "shared ") if fixed else ()) + (() if self.pars else ("global ",))
        attrs = (
            self.pick("", "", "", " #align(16)", " #layout(col)", " #pad" if len(shape) > 1 else "") if shape else ""
        )
        self.line(f"new {self.pick(*places)}{name}: {dtype}{'[' + ', '.join(shape) + ']' if shape else ''}{attrs}")
        view = View(name, dtype, shape, depth=len(self.pars))
        if not shape:
            self.line(f"{name} = {self.fit(dtype, 2)}")
            self.scalars.append((name, dtype))
        elif len(shape) == 1 and dtype != "bool" and not self.bare and self.chance(0.3):
            calls = (f"fill({name}, {self.read(('f32', 'f16'))})", f"spread({name}, {self.read((dtype,))})")
            self.line(self.pick(*calls))
        else:
            names = [self.fresh("e") for _ in shape]
            loops = tuple(Index(n, extent, parallel=False) for n, extent in zip(names, shape, strict=True))
            with self.block(f"{self.pick('seq', 'par')} {', '.join(f'{i.cover} {i.name}' for i in loops)}", loops):
                self.line(f"{name}[{', '.join(names)}] = {self.fit(dtype, 2)}")
        self.locals_.append(view)

    def copied(self) -> None:
        """Whole arrays: a `reg` of a view, a slice bound to a function's array."""
        vector = self.vector(FLOATS)
        if vector is None:
            self.assign()
            return
        text, extent, dtype = vector
        name = self.fresh("r")
        source = text if self.chance(0.4) else f"scaled({text}, {self.literal('float', 1)})"
        if self.chance(0.5):
            self.line(f"reg {name} = {source}" if self.chance(0.5) else f"reg {name}: {dtype}[{extent}] = {source}")
            self.locals_.append(View(name, dtype, (extent,), depth=len(self.pars)))
        else:
            covers = [index.cover for index in self.pars]
            view = View(self.fresh("W"), dtype, (*covers, extent))
            self.params.append(view)
            self.line(f"{view.name}[{', '.join([*(i.name for i in self.pars), f'0:{extent}'])}] = {source}")

    def crosswise(self) -> None:
        """A local that the iterations of one inner `par` write or count into, and those of the next read."""
        name, dtype, extent = self.fresh("c"), self.pick(*NUMBERS), self.some()
        place = "shared " if len(self.pars) == 1 and not self.dynamic and self.chance(0.3) else ""
        self.line(f"new {place}{name}: {dtype}[{extent}]")
        x, y, z = (Index(self.fresh("p"), extent, parallel=True) for _ in range(3))
        with self.block(f"par {extent} {x.name}", (x,)):
            self.line(f"{name}[{x.name}] = {self.fit(dtype, 1)}")
        if self.chance(0.5):
            z = Index(z.name, self.extent(), parallel=True)
            with self.block(f"par {z.cover} {z.name}", (z,)):
                self.gathers = atomic = self.chance(0.5)
                target = f"{name}[{self.subscript(extent)}]"
                self.gathers = True
                self.line(f"{'atomic ' * atomic}{target} {self.pick(*UPDATES)} {self.fit(dtype, 2)}")
        with self.block(f"par {extent} {y.name}", (y,)):
            read = self.pick(
                f"{name}[{extent} - 1 - {y.name}]", f"{name}[{y.name}]", f"{name}[{self.subscript(extent)}]"
            )
            self.scalars += [(read, dtype)] * 4
            self.assign()

    def aliased(self) -> None:
        """Writes through a view of a parameter: a `let` of a slice, an `inout` argument."""
        shape = (*(index.cover for index in self.pars), self.pick("2", "4", "5"))
        view = View(self.fresh("W"), self.pick(*NUMBERS), shape)
        self.params.append(view)
        row = f"{view.name}[{', '.join([*(i.name for i in self.pars), '1:' + str(int(shape[-1]) - 1)])}]"
        if self.chance(0.5):
            self.line(f"{self.pick('spread', 'fill')}({row}, {self.read(('f32', 'f16'))})")
            return
        name = self.fresh("v")
        self.line(f"let {name} = {row}")
        self.line(f"{name}[0] {self.pick('=', *UPDATES)} {self.fit(view.dtype, 2)}")

    # ---- structure

    def loop(self, depth: int) -> None:
        parallel = self.chance(0.6)
        made: list[Index] = []
        dims = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            name = self.fresh("p" if parallel else "s")
            roll = self.rng.random()
            extent = self.extent()
            cover = extent
            outer = [index for index in self.indices if index.name[0] in "ps"]
            if roll < 0.15 and outer:
                index = self.rng.choice(outer)
                cover = index.cover
                extent = self.pick(f"{index.name} + 1", f"{cover} - {index.name}", f"min({index.name}, {cover})")
            elif roll < 0.22:
                extent = f"1..{extent}"
            elif roll < 0.24:
                extent = self.pick(f"max({extent}, 0)", f"min({extent}, 3)", f"{extent} / 2", f"{extent} % 3")
            elif roll < 0.27 and not self.dynamic:
                extent, cover = f"ceildiv({extent}, 2)", extent + " + 1"
            dims.append(f"{extent} {name}" if self.chance(0.8) else f"{extent} |{name}|")
            made.append(Index(name, cover, parallel))
        hint = ""
        if self.chance(0.12):
            hint = (
                self.pick(" #unroll", " #unroll", " #unroll(2)")
                if self.chance(0.6)
                else ""
                if parallel
                else " #ordered"
            )
            if parallel and not self.pars and self.chance(0.5):
                hint = " #grid"
        with self.block(f"{'par' if parallel else 'seq'} {', '.join(dims)}{hint}", tuple(made)):
            self.body(depth - 1)

    def choice(self, depth: int) -> None:
        with self.block(f"if {self.condition(2)}"):
            self.body(depth - 1)
        if self.chance(0.4):
            self.lines[-1] += f" else {'if ' + self.condition(1) + ' ' if self.chance(0.3) else ''}{{"
            before = list(self.locals_), list(self.scalars), list(self.indices)
            self.level += 1
            self.body(depth - 1)
            self.level -= 1
            self.locals_, self.scalars, self.indices = before
            self.line("}")

    def body(self, depth: int) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            roll = self.rng.random()
            if depth > 0 and roll < (0.35 if self.pars else 0.6):
                self.loop(depth)
            elif depth > 0 and roll < 0.45:
                self.choice(depth)
            elif roll < 0.55:
                self.let()
            elif roll < 0.65:
                self.new()
            elif roll < 0.69:
                self.copied()
            elif roll < 0.73 and not self.bare:
                self.crosswise() if self.chance(0.6) else self.aliased()
            elif roll < 0.76:
                self.line(f"anchor {self.value(self.pick('float', 'int', 'uint', 'bool'), 2)}")
            elif roll < 0.83:
                self.reduced()
            else:
                self.assign()
        if self.chance(0.5):
            self.assign()

    def direction(self, param: View) -> str:
        if param.name[0] in "RG" and self.chance(0.1):
            return "in "
        return "inout " if param.name[0] in "WH" and self.chance(0.1) else ""

    def program(self, seed: int) -> Case:
        names = ("N", "M", "K")[: self.rng.randint(1, 3)]
        self.sizes = {name: self.rng.choice((0, 1, 2, 3, 4, 5, 7)) for name in names}
        if self.chance(0.12):  # lanes, warps and blocks that are full, or more
            names, self.sizes = ("N",), {"N": self.rng.choice((32, 33, 64, 67, 128, 130, 256))}
        self.bare = self.chance(0.12)
        self.dynamic = tuple(n for n in names if self.chance(0.5)) if not self.bare and self.chance(0.15) else ()
        for _ in range(self.rng.choice((1, 1, 2))):
            self.loop(2) if self.chance(0.8) else self.body(2)
        inner = "\n".join(self.lines)
        constant = self.rng.choice(names) if self.chance(0.15) and not self.dynamic else ""
        head = f"size {constant} = {self.rng.randint(1, 3)}\n" if constant else ""
        types = {}
        if self.bare:
            words = set(re.findall(r"\w+", inner))
            types = {p.name: p.dtype for p in self.params if p.name in words}
            self.sizes = {n: v for n, v in self.sizes.items() if n in words}
            text = FUNCTIONS + inner
        else:
            shown = [
                self.direction(p)
                + p.name
                + f": {p.dtype}"
                + (f"[{', '.join(p.shape)}]{p.attrs}" if p.shape else p.attrs)
                for p in self.params
            ]
            facts = [f"{n} {self.pick(f'<= {v + 60}', f'>= {v}', f'== {v}', '< 1000')}" for n, v in self.sizes.items()]
            where = f" where {', '.join(self.rng.sample(facts, 1))}" if self.chance(0.3) else ""
            hint = self.pick(*[""] * 40, *[" #strict"] * 2, " #unique", " #threads(64)")
            shown = [*shown, *(f"Z{n}: i8[{n}]" for n in names)]
            text = f"{head}{FUNCTIONS}kernel soup_{seed}({', '.join(shown)}){where}{hint} {{\n{inner}\n}}"
        return Case(seed, text + "\n", self.sizes, False, types, self.dynamic)


def brew(seed: int) -> Case:
    """The program of a seed."""
    return Soup(random.Random(seed)).program(seed)
