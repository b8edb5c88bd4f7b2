"""Random programs: small kernels as text, mostly legal, with the shapes and values where compilers go wrong.

`generate(seed)` is deterministic. Sizes are bound to 0, 1, primes and odd numbers, and some programs have one that
fills the lanes of a warp or the threads of a block, or misses or passes them by one; element types mix; pars nest, with
seqs, triangles, locals, reductions, conditions on indices and on data, gathers and atomics between them. With some
probability a subscript is bent so that the program may race or leave its buffer: proofs must then say so.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

FLOATS = ("f64", "f32", "f32", "f16", "bf16", "f8e4m3", "f8e5m2")
SIGNED = ("i64", "i32", "i32", "i16", "i8", "u8")
FILLS = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)  # lanes, warps and blocks, one less, one more
LARGE = (16_384, 20_011)  # iterations that the cores of a CPU share out
UNARY = ("abs", "exp", "tanh", "sqrt", "floor", "ceil", "round", "sigmoid", "erf", "sin", "cos", "relu")


@dataclass(frozen=True)
class Case:
    """A program with the sizes to run it at; `bent` says that a subscript was made doubtful on purpose.

    `types` are given to the buffers of a bare program; the sizes in `dynamic` are not bound before the launch.
    """

    seed: int
    text: str
    sizes: dict[str, int]
    bent: bool
    types: dict[str, str] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()

    @property
    def bound(self) -> dict[str, int]:
        """The sizes that are known when it is compiled."""
        return {name: value for name, value in self.sizes.items() if name not in self.dynamic}


@dataclass
class Index:
    name: str
    extent: str
    parallel: bool


@dataclass
class Param:
    name: str
    dtype: str
    shape: list[str]
    written: bool = False
    gathered: bool = False


@dataclass
class Local:
    name: str
    dtype: str
    shape: list[str]


@dataclass
class Generator:
    """State of one program's making; every method appends lines or returns an expression."""

    rng: random.Random
    bend: float
    lines: list[str] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    counter: int = 0
    bent: bool = False
    fill: bool = False  # whether there is a size F of `FILLS`; no triangle, and at most one loop of a nest, has it

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # ---- extents and subscripts ---------------------------------------------------------------------------------

    def extent(self, around: list[Index], beside: Sequence[Index] = ()) -> str:
        if self.filling([*around, *beside]) and self.chance(0.3):
            return "F"
        roll = self.rng.random()
        if roll < 0.55:
            return self.rng.choice(sorted(self.sizes))
        if roll < 0.75:
            return str(self.rng.choice((1, 2, 3, 4, 5)))
        small = [index for index in around if not {"F", "L"} & set(index.extent.split())]
        if roll < 0.85 and small:
            outer = self.rng.choice(small)
            return self.rng.choice((f"{outer.name} + 1", f"{outer.extent} - {outer.name}"))
        return f"{self.rng.choice(sorted(self.sizes))} + 1"

    def filling(self, around: list[Index]) -> bool:
        return self.fill and not any("F" in index.extent.split() for index in around)

    def plain_extent(self, index: Index, around: list[Index]) -> str | None:
        """An extent of sizes only that covers the index, or None where it depends on outer indices otherwise."""
        names = [other for other in around if other.name in index.extent.replace("(", " ").split()]
        if not names:
            return index.extent
        outer = names[0]
        inner = self.plain_extent(outer, around)
        if inner is None:
            return None
        return inner if index.extent in (f"{outer.name} + 1", f"{outer.extent} - {outer.name}") else None

    def subscript(self, index: Index) -> str:
        """A subscript that stays within the index's own extent, unless it is bent."""
        if self.chance(self.bend):
            self.bent = True
            return self.rng.choice((f"{index.name} + 1", f"{index.name} - 1", f"{index.name} / 2", f"2 * {index.name}"))
        return index.name

    # ---- values ------------------------------------------------------------------------------------------------

    def read(self, dtype: str, around: list[Index], locals_: list[Local]) -> str:
        """A read of a buffer of the type: a local, or a parameter with dims of some indices around."""
        scalars = [local for local in locals_ if local.dtype == dtype and not local.shape]
        if scalars and self.chance(0.5):
            return self.rng.choice(scalars).name
        usable = [index for index in around if self.plain_extent(index, around) is not None]
        chosen = self.rng.sample(usable, k=min(len(usable), self.rng.randint(0, 3)))
        shape = [self.plain_extent(index, around) or "1" for index in chosen] or ["3"]
        subscripts = [self.subscript(index) for index in chosen] or [str(self.rng.randint(0, 2))]
        if chosen and self.chance(0.15):
            k = self.rng.randrange(len(chosen))
            subscripts[k] = f"{shape[k]} - 1 - {chosen[k].name}"
        if chosen and self.chance(0.1):
            k = self.rng.randrange(len(chosen))
            shape[k], subscripts[k] = f"{shape[k]} + 2", f"{chosen[k].name} + {self.rng.randint(0, 2)}"
        same = [p for p in self.params if not p.written and p.dtype == dtype and p.shape == shape and not p.gathered]
        if same and self.chance(0.6):
            param = self.rng.choice(same)
        else:
            param = Param(self.fresh("R"), dtype, shape)
            self.params.append(param)
        if chosen and self.chance(0.08):
            gathered = Param(self.fresh("G"), "i32", [shape[0]], gathered=True)
            self.params.append(gathered)
            self.params.remove(param) if param not in same else None
            table = Param(self.fresh("T"), dtype, ["4", *shape[1:]])
            self.params.append(table)
            inside = [f"{gathered.name}[{chosen[0].name}]", *subscripts[1:]]
            return f"{table.name}[{', '.join(inside)}]"
        return f"{param.name}[{', '.join(subscripts)}]"

    def float_value(self, depth: int, around: list[Index], locals_: list[Local]) -> str:
        roll = self.rng.random()
        if depth <= 0 or roll < 0.3:
            if self.chance(0.2):
                return self.rng.choice(("0.0", "1.0", "0.5", "-2.0", "3.25", "1.0e-3"))
            return self.read(self.rng.choice(FLOATS), around, locals_)
        left = self.float_value(depth - 1, around, locals_)
        if roll < 0.7:
            right = self.float_value(depth - 1, around, locals_)
            op = self.rng.choice(("+", "-", "*", "*", "+", "/"))
            return f"({left} {op} {right})" if op != "/" else f"({left} / (abs({right}) + 1.0))"
        if roll < 0.78:
            return f"-{left}" if not left.startswith("-") else f"abs({left})"
        if roll < 0.86:
            fn = self.rng.choice(UNARY)
            if fn == "exp":
                return f"exp(min({left}, 2.0))"
            return f"sqrt(abs({left}))" if fn == "sqrt" else f"{fn}({left})"
        if roll < 0.92:
            right = self.float_value(depth - 1, around, locals_)
            return f"{self.rng.choice(('min', 'max'))}({left}, {right})"
        if roll < 0.96:
            return f"f32({self.int_value(depth - 1, around, locals_)})"
        right = self.float_value(depth - 1, around, locals_)
        return f"select({self.condition(depth - 1, around, locals_)}, f64({left}), f64({right}))"

    def int_value(self, depth: int, around: list[Index], locals_: list[Local]) -> str:
        roll = self.rng.random()
        if depth <= 0 or roll < 0.35:
            if around and self.chance(0.25):
                return self.rng.choice(around).name
            if self.chance(0.2):
                return str(self.rng.choice((0, 1, 2, 7, 100)))
            return self.read(self.rng.choice(SIGNED), around, locals_)
        left, right = (self.int_value(depth - 1, around, locals_) for _ in range(2))
        if roll < 0.75:
            return f"({left} {self.rng.choice(('+', '-', '*', '/', '%'))} i32({right}))"
        if roll < 0.85:
            return f"{self.rng.choice(('min', 'max'))}({left}, {right})"
        if roll < 0.92:
            return f"bitxor(i32({left}), i32({right}))"
        return f"select({self.condition(depth - 1, around, locals_)}, i64({left}), i64({right}))"

    def condition(self, depth: int, around: list[Index], locals_: list[Local]) -> str:
        roll = self.rng.random()
        comparison = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        if around and roll < 0.4:
            return f"{self.rng.choice(around).name} {comparison} {self.rng.randint(0, 3)}"
        if roll < 0.6:
            sides = [self.int_value(depth - 1, around, locals_) for _ in range(2)]
            return f"i64({sides[0]}) {comparison} i64({sides[1]})"
        if roll < 0.85 or depth <= 0:
            return f"{self.float_value(0, around, locals_)} {comparison} 0.5"
        left, right = (self.condition(depth - 1, around, locals_) for _ in range(2))
        return f"({left} {self.rng.choice(('and', 'or'))} {right})"

    def value(self, dtype: str, depth: int, around: list[Index], locals_: list[Local]) -> str:
        """A value that may be bound to a buffer of the type."""
        if dtype == "bool":
            return self.condition(depth, around, locals_)
        if dtype in FLOATS:
            return self.float_value(depth, around, locals_)
        return f"{dtype}({self.int_value(depth, around, locals_)})"

    # ---- statements --------------------------------------------------------------------------------------------

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def target(self, around: list[Index], *, partial: bool) -> tuple[Param, str] | None:
        """A new output with one dim per index of every par around (in random order), so that no two iterations meet."""
        pars = [index for index in around if index.parallel]
        shape = []
        for index in pars:
            covering = self.plain_extent(index, around)
            if covering is None:
                return None
            shape.append(covering)
        seqs = [index for index in around if not index.parallel and self.plain_extent(index, around) is not None]
        chosen = pars + ([self.rng.choice(seqs)] if seqs and partial and self.chance(0.3) else [])
        shape += [self.plain_extent(index, around) or "1" for index in chosen[len(pars) :]]
        order = self.rng.sample(range(len(chosen)), k=len(chosen))
        subscripts = [self.subscript(chosen[k]) for k in order] or ["0"]
        dtype = self.rng.choice((*FLOATS, *SIGNED, "bool"))
        param = Param(self.fresh("W"), dtype, [shape[k] for k in order] or ["1"], written=True)
        self.params.append(param)
        return param, f"{param.name}[{', '.join(subscripts)}]"

    def leaf(self, level: int, around: list[Index], locals_: list[Local]) -> None:
        if around and self.chance(0.1):
            self.tally(level, around, locals_)
            return
        found = self.target(around, partial=True)
        if found is None:
            self.line(level, "anchor 1.0")
            return
        param, view = found
        roll = self.rng.random()
        if param.dtype == "bool" or roll < 0.6:
            self.line(level, f"{view} = {self.value(param.dtype, 2, around, locals_)}")
        elif roll < 0.75:
            op = self.rng.choice(("+=", "-=", "max=", "min="))
            self.line(level, f"{view} {op} {self.value(param.dtype, 1, around, locals_)}")
        elif roll < 0.92:
            op = self.rng.choice(("sum", "maximum", "minimum", "sum"))
            index = Index(self.fresh("k"), self.extent(around), parallel=False)
            body = self.value(param.dtype, 1, [*around, index], locals_)
            if param.dtype in ("f32", "f64", "i32", "i64") and self.chance(0.3):
                name = self.fresh("t")
                body = f"let {name} = {body}; max({name}, {name} * {name})"
            self.line(level, f"{view} = {op} {index.extent} {index.name} {{ {body} }}")
        else:
            counts = Param(self.fresh("H"), "i32", ["4"], written=True)
            self.params.append(counts)
            where = self.read("i32", around, [])
            self.line(level, f"atomic {counts.name}[{where} % 4] += 1")
            self.line(level, f"{view} = {self.value(param.dtype, 1, around, locals_)}")

    def tally(self, level: int, around: list[Index], locals_: list[Local]) -> None:
        """Updates of elements of a small array that data tells."""
        dtype = self.rng.choice(("i32", "i64", "f32", "f64"))
        shape = self.rng.choice(([4], [3], [4, 2]))
        counts = Param(self.fresh("H"), dtype, [str(extent) for extent in shape], written=True)
        self.params.append(counts)
        at = ", ".join(f"{self.read('i32', around, [])} % {extent}" for extent in shape)
        op = self.rng.choice(("+=", "+=", "max=", "min="))
        condition = self.chance(0.3)
        if condition:
            self.line(level, f"if {self.read('i32', around, [])} > 0 {{")
        value = self.value(dtype, 1, around, locals_) if self.chance(0.7) else "1" if dtype in SIGNED else "1.0"
        self.line(level + condition, f"atomic {counts.name}[{at}] {op} {value}")
        if condition:
            self.line(level, "}")

    def locals_block(self, level: int, around: list[Index], locals_: list[Local]) -> list[Local]:
        dtype = self.rng.choice(("f32", "f64", "i32", "bf16"))
        local = Local(self.fresh("s"), dtype, [])
        self.line(level, f"new {local.name}: {dtype}")
        self.line(level, f"{local.name} = {self.value(dtype, 1, around, locals_)}")
        if self.chance(0.5):
            index = Index(self.fresh("q"), self.extent(around), parallel=False)
            self.line(level, f"seq {index.extent} {index.name} {{")
            body = self.value(dtype, 1, [*around, index], locals_)
            self.line(level + 1, f"{local.name} {self.rng.choice(('+=', 'max='))} {body}")
            self.line(level, "}")
        return [*locals_, local]

    def shared_block(self, level: int, around: list[Index], locals_: list[Local]) -> None:
        """A buffer of the iteration, written by one inner par and read crosswise by the next."""
        extent = self.rng.choice((*sorted(self.sizes), "3", "5", *["F"] * 4 * self.filling(around)))
        name, i, j = self.fresh("b"), self.fresh("x"), self.fresh("y")
        self.line(level, f"new {name}: f32[{extent}]")
        self.line(level, f"par {extent} {i} {{")
        inner = [*around, Index(i, extent, parallel=True)]
        self.line(level + 1, f"{name}[{i}] = {self.float_value(1, inner, locals_)}")
        self.line(level, "}")
        self.line(level, f"par {extent} {j} {{")
        inner = [*around, Index(j, extent, parallel=True)]
        found = self.target(inner, partial=False)
        if found is None:
            self.line(level + 1, f"anchor {name}[{j}]")
        else:
            param, view = found
            read = self.rng.choice((f"{name}[{extent} - 1 - {j}]", f"{name}[{j}]"))
            cast = read if param.dtype in FLOATS else f"{param.dtype}({read})"
            self.line(level + 1, f"{view} = {cast if param.dtype != 'bool' else read + ' > 0.0'}")
        self.line(level, "}")

    def tiled_sum(self, level: int, around: list[Index], locals_: list[Local]) -> None:
        """An accumulation over the tiles of a `seq` and over an inner par, into an element of the pars around."""
        found = self.target(around, partial=False)
        if found is None or found[0].dtype == "bool":
            self.line(level, "anchor 1.0")
            return
        param, view = found
        tile = Index(self.fresh("q"), self.rng.choice(("2", "3", *sorted(self.sizes))), parallel=False)
        extent = "F" if self.filling(around) else self.extent(around)
        inner = Index(self.fresh("x"), extent, parallel=True)
        self.line(level, f"seq {tile.extent} {tile.name} {{")
        self.line(level + 1, f"par {extent} {inner.name} {{")
        value = self.value(param.dtype, 1, [*around, tile, inner], locals_)
        self.line(level + 2, f"{view} {self.rng.choice(('+=', '+=', 'max=', 'min='))} {value}")
        self.line(level + 1, "}")
        self.line(level, "}")

    def body(self, level: int, depth: int, around: list[Index], locals_: list[Local]) -> None:
        for _ in range(self.rng.choice((1, 1, 2))):
            roll = self.rng.random()
            if depth > 0 and roll < 0.2:
                self.loop(level, depth - 1, around, locals_, parallel=True)
            elif depth > 0 and roll < 0.35:
                self.loop(level, depth - 1, around, locals_, parallel=False)
            elif roll < 0.5:
                locals_ = self.locals_block(level, around, locals_)
                self.leaf(level, around, locals_)
            elif depth > 0 and roll < 0.6:
                self.shared_block(level, around, locals_)
            elif depth > 0 and roll < 0.65:
                self.tiled_sum(level, around, locals_)
            elif depth > 0 and roll < 0.72:
                self.line(level, f"if {self.condition(1, around, locals_)} {{")
                self.body(level + 1, depth - 1, around, locals_)
                self.line(level, "}")
            else:
                self.leaf(level, around, locals_)

    def loop(self, level: int, depth: int, around: list[Index], locals_: list[Local], *, parallel: bool) -> None:
        count = self.rng.choice((1, 1, 2)) if parallel else 1
        made: list[Index] = []
        for _ in range(count):
            made.append(Index(self.fresh("p" if parallel else "t"), self.extent(around, made), parallel))
        dims = ", ".join(f"{index.extent} {index.name}" for index in made)
        self.line(level, f"{'par' if parallel else 'seq'} {dims} {{")
        self.body(level + 1, depth, [*around, *made], locals_)
        self.line(level, "}")

    def program(self, seed: int, *, large: bool) -> Case:
        names = ("N", "M", "K")[: self.rng.randint(1, 3)]
        self.sizes = {name: self.rng.choice((0, 1, 1, 2, 3, 3, 5, 5, 7)) for name in names}
        own: dict[str, int] = {}
        if large:
            own["L"] = self.rng.choice(LARGE)
            self.line(1, "par L i {")
            self.body(2, 1, [Index("i", "L", parallel=True)], [])
            self.line(1, "}")
        else:
            self.fill = self.chance(0.15)
            if self.fill:
                own["F"] = self.rng.choice(FILLS)
            for _ in range(self.rng.choice((1, 1, 2))):
                parallel = self.chance(0.85)
                self.loop(1, 2, [], [], parallel=parallel)
        names, self.sizes = (*names, *own), {**self.sizes, **own}
        params = ", ".join(f"{p.name}: {p.dtype}[{', '.join(p.shape)}]" for p in self.params)
        anchors = ", ".join(f"Z{name}: i8[{name}]" for name in names)
        head = f"kernel random_{seed}({params + ', ' if params else ''}{anchors}) {{"
        return Case(seed, "\n".join([head, *self.lines, "}"]) + "\n", self.sizes, self.bent)


def generate(seed: int, *, bend: float = 0.03, large: bool = False) -> Case:
    """The program of a seed; `bend` is the probability of a doubtful subscript, a `large` one is for many cores."""
    return Generator(random.Random(seed), bend).program(seed, large=large)
