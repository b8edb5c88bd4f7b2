"""Values of soup: expressions of every builtin, type and laziness, mostly of the wanted kind and within bounds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

FLOATS = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2")
INTS = ("i64", "i32", "i16", "i8", "u8")
NUMBERS = (*FLOATS, *INTS, "u32")
UNARY = tuple("exp exp2 expm1 log log2 log1p sqrt rsqrt tanh sigmoid erf normcdf sin cos floor ceil round".split())  # noqa: SIM905 -- a list
LIBRARY = (
    "relu",
    "silu",
    "gelu",
    "gelu_tanh",
    "softplus",
    "selu",
    "mish",
    "log_sigmoid",
    "abs",
    "twice",
    "squared",
    "nested",
)
BITS = ("bitand", "bitor", "bitxor", "shl", "shr")
FOLDS = ("sum", "prod", "maximum", "minimum")
COMPARES = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Index:
    """An index below `cover`, an extent of sizes alone; `exact` where its extent is that."""

    name: str
    cover: str
    parallel: bool
    exact: bool = True


@dataclass(frozen=True)
class View:
    name: str
    dtype: str
    shape: tuple[str, ...]
    attrs: str = ""
    depth: int = -1  # the number of `par`s around a local; -1 for a parameter


@dataclass
class Values:
    """State of one program's making; expressions are returned, statements are appended as lines."""

    rng: random.Random
    sizes: dict[str, int] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()
    bare: bool = False
    lines: list[str] = field(default_factory=list)
    params: list[View] = field(default_factory=list)
    inputs: list[View] = field(default_factory=list)
    indices: list[Index] = field(default_factory=list)
    locals_: list[View] = field(default_factory=list)
    scalars: list[tuple[str, str]] = field(default_factory=list)
    lazy: bool = False
    gathers: bool = True
    level: int = 1
    counter: int = 0

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.level + text)

    def number(self, extent: str) -> int:
        return int(eval(extent, {}, dict(self.sizes)))

    # ---- extents, subscripts, reads

    def extent(self) -> str:
        large = any(size > 7 for size in self.sizes.values())
        if self.sizes and self.chance(0.3 if large else 0.6):
            return self.rng.choice(sorted(self.sizes)) + self.rng.choice(("", "", "", " + 1"))
        return str(self.rng.choice((0, 1, 1, 2, 3, 4, 5, 8)))

    def some(self) -> str:
        """An extent of a dimension that has elements; now and then of any."""
        extent = self.extent()
        return extent if self.number(extent) or self.chance(0.05) else "2"

    def subscript(self, extent: str) -> str:
        """A subscript below the extent, by an index, a number or, through data, a gather."""
        n = self.number(extent)
        if n >= 1 and self.gathers and not self.bare and self.chance(0.1):
            return self.gathered(n)
        options = [] if self.dynamic and not extent.isdigit() else [str(self.rng.randrange(n))] if n else []
        for index in self.indices:
            name = index.name
            if index.cover == extent or (not self.dynamic and self.number(index.cover) <= n):
                options += [name] * 4 + [f"{extent} - 1 - {name}", f"max({name}, 0)"]
            elif n and (not self.dynamic or extent.isdigit()):
                options += [f"{name} % {n}", f"min({name}, {n - 1})", f"(3 * {name} + 1) % {n}", f"{name} / 8 % {n}"]
        return self.rng.choice(options) if options else "0"

    def gathered(self, n: int) -> str:
        if self.chance(0.3):
            dtype = self.pick("i64", "i32", "u8", "i8", "i16", "u32")
            view = View(self.fresh("G"), dtype, (self.extent(),))
            self.params.append(view)
            return f"{view.name}[{self.subscript(view.shape[0])}]"
        value = self.read(INTS)
        masks = (f"bitand({value}, {n - 1})",) if n & (n - 1) == 0 else ()
        clamped = (f"min(max({value}, 0), {n - 1})", f"clamp({value}, 0, {n - 1})", f"max(0, min({n - 1}, {value}))")
        return self.pick(f"{value} % {n}", f"i32({value}) % {n}", f"({value} - 1) % {n}", *clamped, *masks)

    def shape(self) -> tuple[str, ...]:
        covers = [index.cover for index in self.indices]
        rank = 1 if self.bare else self.rng.choice((1, 1, 2, 3))
        return tuple(self.rng.choice(covers) if covers and self.chance(0.6) else self.some() for _ in range(rank))

    def attributes(self, shape: Sequence[str]) -> str:
        """A layout of a parameter, or nothing."""
        if self.bare or self.chance(0.8):
            return ""
        inner = f" * ({shape[1]} + 1)" if len(shape) == 2 else ""
        strides = f" #strides({'2' + inner if len(shape) < 3 else '64, 8'}{', 1' * (len(shape) > 1)})"
        return self.pick(" #layout(col)", " #layout(row)", " #align(64)", strides if len(shape) < 3 else " #align(4)")

    def read(self, types: Sequence[str]) -> str:
        """A read of one of the types: a scalar, a local, or a parameter, new or known."""
        scalars = [text for text, dtype in self.scalars if dtype in types]
        if scalars and self.chance(0.35):
            return self.rng.choice(scalars)
        if self.bare:
            types = [t for t in types if t in ("f32", "i32", "f16", "u8")] or types
        known = [view for view in (*self.locals_, *self.inputs) if view.dtype in types]
        if known and (self.chance(0.7) or len(self.params) > 12):
            view = self.rng.choice(known)
        elif self.chance(0.15) and not self.bare:
            view = View(self.fresh("a"), self.rng.choice(types), (), self.pick("", "[]"))  # a scalar, or rank 0
            self.params.append(view)
            self.scalars.insert(0, (view.name, view.dtype))
        else:
            shape = self.shape()
            view = View(self.fresh("R"), self.rng.choice(types), shape, self.attributes(shape))
            self.params.append(view)
            self.inputs.append(view)
        return self.element(view)

    def element(self, view: View) -> str:
        return f"{view.name}[{', '.join(self.subscript(e) for e in view.shape)}]" if view.shape else view.name

    def vector(self, types: Sequence[str]) -> tuple[str, str, str] | None:
        """A whole row or a slice of a known buffer: its text, extent and type."""
        known = [v for v in (*self.locals_, *self.inputs) if v.dtype in types and v.shape and v.shape[-1] != "0"]
        if not known or self.bare:
            return None
        view = self.rng.choice(known)
        *outer, last = view.shape
        if not outer and self.chance(0.5):
            return view.name, last, view.dtype
        n = self.number(last)
        whole = not last.isdigit() or n < 2 or self.chance(0.5)
        start, length = ("0", last) if whole else ("1", str(n - 1))
        subscripts = ", ".join([*(self.subscript(e) for e in outer), f"{start}:{length}"])
        return f"{view.name}[{subscripts}]", length, view.dtype

    # ---- values

    def literal(self, kind: str, depth: int) -> str:
        """An expression of literals only."""
        if self.chance(0.03):  # the ends of types
            ends = ("2147483647", "-2147483648", "0x7fffffffffffffff", "4294967296", "255", "-128", "32768")
            return (
                self.pick("1e38", "-inf", "nan", "1e-45", "-0.0", "1e300", "16777217")
                if kind == "float"
                else self.pick(*ends)
            )
        if depth <= 0 or self.chance(0.3):
            if kind == "float":
                return self.pick("0.0", "1", "2.5", "-0.5", "1e-3", "0", "7.0", "inf", "65504.0", "0.1", "-3")
            return self.pick("0", "1", "7", "100", "0x10", "5") if kind == "uint" else self.pick("0", "-1", "3", "9")
        a, b, c = (self.literal(kind, depth - 1) for _ in range(3))
        roll = self.rng.randrange(8)
        if roll == 0:
            return f"select({self.pick('true', '1 < 2', '0.5 > 1', 'not false')}, {a}, {b})"
        if roll == 1:
            return f"{self.pick('min', 'max')}({a}, {b})"
        if roll == 2:
            return f"fma({a}, {b}, {c})"
        if roll == 3 and kind == "float":
            return f"{self.pick(*UNARY, *LIBRARY)}({a})"
        if roll == 3:
            return f"{self.pick(*BITS)}({a}, {self.pick('0', '1', '5', '40')})"
        if roll == 4 and kind != "uint":
            return f"{self.pick('abs', 'twice', 'relu')}({a})" if kind != "float" else f"pow({a}, {b})"
        if roll == 5:
            return f"{self.pick(*(FLOATS if kind == 'float' else ('u32',) if kind == 'uint' else INTS))}({a})"
        return f"({a} {self.pick('+', '-', '*', '/', '+' if kind == 'float' else '%')} {b})"

    def value(self, kind: str, depth: int) -> str:
        if self.chance(0.004):  # now and then the wrong kind: most often a refusal, and if not, so much the better
            kind = self.pick("float", "int", "uint", "bool")
        if kind == "bool":
            return self.condition(depth)
        if self.chance(0.12):
            return self.literal(kind, 2)
        if depth <= 0 or self.chance(0.15):
            return self.leaf(kind)
        roll = self.rng.random()
        if roll < 0.34:
            a, b = self.value(kind, depth - 1), self.value(kind, depth - 1)
            return f"({a} {self.pick('+', '-', '*', '/', '+' if kind == 'float' else '%')} {b})"
        if roll < 0.42:
            return f"{self.pick('min', 'max')}({self.value(kind, depth - 1)}, {self.value(kind, depth - 1)})"
        if roll < 0.56:
            inner = self.value(kind, depth - 1)
            if kind == "float":
                return f"{self.pick(*UNARY, *LIBRARY)}({inner})"
            return f"{self.pick(*BITS)}({inner}, {self.value(kind, depth - 2)})"
        if roll < 0.66:
            return self.selected(kind, depth)
        if roll < 0.78:
            return self.converted(kind, depth)
        if roll < 0.82:
            return f"-{self.leaf(kind)}"
        if roll < 0.88 and not self.lazy:
            return self.fold(kind, depth)
        return self.call(kind, depth)

    def leaf(self, kind: str) -> str:
        if kind == "float":
            return self.read(FLOATS)
        if kind == "uint":
            return self.read(("u32", "u32", "u8"))
        if self.indices and self.chance(0.25):
            return self.rng.choice(self.indices).name
        if self.sizes and not self.bare and self.chance(0.1):
            return self.rng.choice(sorted(self.sizes))
        return self.read(INTS)

    def selected(self, kind: str, depth: int) -> str:
        condition = self.condition(depth - 1)
        before, self.lazy = self.lazy, True
        arms = [self.value(kind, depth - 1), self.value(kind, depth - 1)]
        rows = [v for v in self.inputs if len(v.shape) == 1 and v.dtype in (FLOATS if kind == "float" else ())]
        if rows and self.indices and self.chance(0.3):
            view, index = self.rng.choice(rows), self.rng.choice(self.indices).name
            condition, arms[0] = f"{index} > 0 and {index} <= {view.shape[0]}", f"{view.name}[{index} - 1]"
        self.lazy = before
        return f"select({condition}, {arms[0]}, {arms[1]})"

    def converted(self, kind: str, depth: int) -> str:
        into = {"float": FLOATS, "int": INTS, "uint": ("u32",)}[kind]
        inner = self.value(self.pick("float", "int", "uint", "bool"), depth - 1)
        return f"{self.rng.choice(into)}({inner})"

    def fold(self, kind: str, depth: int) -> str:
        made = [Index(self.fresh("k"), self.extent(), parallel=False) for _ in range(self.rng.choice((1, 1, 1, 2)))]
        before, self.indices = self.indices, self.indices + made
        body = self.value(kind, min(depth - 1, 1))
        if kind == "float" and self.chance(0.2):
            name = self.fresh("t")
            body = f"let {name} = f32({body}); {name} * {name}"
        self.indices = before
        dims = ", ".join(f"{self.pick('', '', '', '', '1..')}{index.cover} {index.name}" for index in made)
        return f"({self.pick(*FOLDS)} {dims} {{ {body} }})"

    def call(self, kind: str, depth: int) -> str:
        vector = self.vector(FLOATS if kind == "float" else INTS if kind == "int" else ("u32",))
        first = self.value(kind, depth - 1)
        if vector is not None and not self.lazy and self.chance(0.5):
            return f"total({vector[0]})" if self.chance(0.7) or kind != "float" else f"inner({vector[0]}, {vector[0]})"
        if vector is not None and kind == "int" and self.chance(0.3):
            return f"count({vector[0]})"
        roll = self.rng.randrange(5)
        if roll == 0:
            return f"fma({first}, {self.value(kind, depth - 1)}, {self.value(kind, depth - 2)})"
        if roll == 1:
            return f"clamp({first}, {self.literal(kind, 0)}, {self.literal(kind, 1)})"
        if roll == 2:
            return f"mixed({first}, {self.value(kind, depth - 1)})"
        if kind == "float":
            return f"{self.pick('pow', 'leaky_relu', 'elu', 'xlogy')}({first}, {self.value(kind, depth - 1)})"
        return f"{self.pick('abs', 'twice', 'relu', 'nested', 'squared')}({first})"

    def condition(self, depth: int) -> str:
        roll = self.rng.random()
        if roll < 0.25 and self.indices:
            left = self.rng.choice(self.indices).name
            right = self.pick("0", "2", left, *(i.name for i in self.indices), *self.sizes)
            return f"{left}{self.pick('', ' + 1', ' % 2', ' / 3')} {self.pick(*COMPARES)} {right}"
        if roll < 0.3:
            return self.pick("true", "false", "1 < 2", "0.5 == 0.5", "not (1 > 2)")
        if roll < 0.4 or depth <= 0:
            return self.read(("bool",))
        if roll < 0.5:
            return f"bool({self.value(self.pick('float', 'int', 'uint'), depth - 1)})"
        if roll < 0.55:
            return f"({self.condition(depth - 1)}) {self.pick('==', '!=')} ({self.condition(depth - 1)})"
        if roll < 0.7:
            left = self.condition(depth - 1)
            before, self.lazy = self.lazy, True
            right = self.condition(depth - 1)
            self.lazy = before
            return f"({left} {self.pick('and', 'or')} {right})"
        if roll < 0.75:
            return f"not ({self.condition(depth - 1)})"
        kind = self.pick("float", "int", "uint")
        return f"{self.value(kind, depth - 1)} {self.pick(*COMPARES)} {self.value(kind, depth - 1)}"

    def fit(self, dtype: str, depth: int) -> str:
        """A value that may be bound to the type: floats round by themselves, integers mostly need a cast."""
        if dtype in FLOATS or dtype == "bool":
            return self.value("float" if dtype in FLOATS else "bool", depth)
        if dtype == "u32":
            return self.value("uint", depth)
        if dtype == "i64":
            return self.value("int", depth)
        narrow = self.read((dtype,))
        pure = (f"{narrow} + {self.read((dtype,))}", f"{narrow} * 3", self.literal("uint", 0), narrow, f"-{narrow}")
        return self.rng.choice(pure) if self.chance(0.3) else f"{dtype}({self.value(self.pick('int', 'float'), depth)})"
