"""The attributes of the language in one table: where each may stand, with which arguments, and where it is mapped.

`check_attributes` turns surface attributes into core ones and refuses unknown, misplaced, repeated and malformed ones,
and arguments that no machine could keep (E0205).
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from math import prod

from texpr.grammar import syntax
from texpr.grammar.ast import Attr, IndexConst, IndexExpr
from texpr.grammar.diagnostics import did_you_mean
from texpr.grammar.index.expr import index_names
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span


class Construct(StrEnum):
    """Where an attribute may stand."""

    PAR = "a `par`"
    FULLY = "a `fully par`"
    SEQ = "a `seq`"
    STATEMENT = "a statement"
    PARAMETER = "a parameter"
    NEW = "a `new`"
    KERNEL = "a kernel"
    FN = "a `fn`"


PARS = (Construct.PAR, Construct.FULLY)
LOOPS = (*PARS, Construct.SEQ)
BUFFERS = (Construct.PARAMETER, Construct.NEW)
STATEMENTS = (Construct.STATEMENT, Construct.KERNEL)
MAX_VECTOR = 64  # elements: 64 bytes, the widest register that a target has, of one byte each
MAX_UNROLL = 1024  # iterations: longer bodies are nothing that compilers end with
MAX_STAGES = 16  # of copies that run ahead
MAX_THREADS = 1024  # of a block, on every GPU
MAX_BLOCKS = 32  # of a multiprocessor
MAX_RASTER = 65536  # rows of blocks: no grid of today has more in an L2
MAX_CLUSTER = 16  # blocks; of more than 8 a device says whether it has them, when it loads a kernel
MAX_ADDRESS_BIT = 20  # no shared memory has an address that needs it
WARP = 32


def forgotten_hash(text: str) -> str | None:
    """The attribute that a text begins with where its `#` is missing: `unroll` for `unroll(4)`."""
    word = re.match(r"\s*([a-z_0-9]+)\s*(\(|#|$)", text)
    return word[1] if word is not None and word[1] in ATTRIBUTES else None


class Needs(Enum):
    """What a construct must hold for an attribute to change anything there."""

    ROWS = "a launch of independent blocks in several rows and columns"
    LAUNCHES = "launches that follow one another"
    BLOCKS = "a launch of more blocks than a GPU runs at once"
    THREADS = "a launch of more than one thread"
    PRODUCTS = "a product of floats that is added"
    TENSOR_CORES = "a large product of matrices of f32"
    FASTER = "a function of f32 that has a faster form"
    GATHERED_WRITES = "a write of a gathered element"
    ACCUMULATIONS = "an accumulation"
    TILES = "a loop of several tiles"
    STAGES = "several stages"
    ITERATIONS = "iterations that one thread runs after another"
    MEMORY = "a buffer in memory"
    SHARED = "a buffer in shared memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Where an attribute may stand, and where this version maps it: elsewhere it is E0402, never ignored.

    Arguments are positive integers or sizes unless `words` lists them: from `least` to `most` many, `levels` with a
    word and a colon before them; `zero` is one too, `power` asks for a power of two, `greatest` is the greatest value,
    `names_sizes` makes a free name in them a size. `fineness` orders scopes and `unit`s. What is `inherited` holds for
    every statement of its construct. It changes nothing without what it `needs`, and on a CPU where `on_cpu` says why.
    """

    on: tuple[Construct, ...]
    mapped: tuple[Construct, ...] = ()
    form: str
    least: int = 0
    most: int = 0
    words: tuple[str, ...] = ()
    levels: bool = False
    zero: bool = False
    power: bool = False
    greatest: int | None = None
    names_sizes: bool = False
    fineness: int | None = None
    unit: bool = False
    inherited: bool = False
    needs: Needs | None = None
    on_cpu: str | None = None


def _scope(form: str, fineness: int, *, unit: bool = False, mapped: bool = False) -> Spec:
    on_cpu = "it names a place of a GPU" if mapped else None
    return Spec(
        on=PARS, mapped=(Construct.PAR,) if mapped else (), form=form, fineness=fineness, unit=unit, on_cpu=on_cpu
    )  # fmt: skip


ATTRIBUTES: dict[str, Spec] = {
    "grid": _scope("#grid", 0, mapped=True),
    "cluster": _scope("#cluster", 1, mapped=True),
    "block": _scope("#block", 2, mapped=True),
    "warp": _scope("#warp", 4, unit=True, mapped=True),
    "thread": _scope("#thread", 5, mapped=True),
    "warpgroup": _scope("#warpgroup", 3, unit=True, mapped=True),
    "cta": _scope("#cta", 2, unit=True, mapped=True),
    "tile": Spec(
        on=LOOPS, mapped=(Construct.PAR, Construct.SEQ), least=1, most=32, levels=True,
        form="#tile(128, 128) or #tile(block: 128, 128, warp: 32, 64)", needs=Needs.TILES,
        on_cpu="a CPU has no thread blocks",
    ),
    "unroll": Spec(
        on=LOOPS, mapped=(Construct.PAR, Construct.SEQ), most=1, greatest=MAX_UNROLL, form="#unroll or #unroll(n)",
        needs=Needs.ITERATIONS,
        on_cpu="the compiler of a CPU's code unrolls as it finds best",
    ),
    "vector": Spec(
        on=LOOPS, mapped=(Construct.PAR, Construct.SEQ), least=1, most=1, power=True, greatest=MAX_VECTOR,
        form="#vector(n), n a power of two", on_cpu="the compiler of a CPU's code makes vectors as it finds best",
    ),
    "stages": Spec(
        on=(Construct.SEQ,), mapped=(Construct.SEQ,), least=1, most=1, greatest=MAX_STAGES, form="#stages(n)",
        needs=Needs.STAGES, on_cpu="a CPU has no copies that run ahead of a loop",
    ),
    "ordered": Spec(
        on=(Construct.SEQ,), mapped=(Construct.SEQ,), form="#ordered", inherited=True, needs=Needs.ACCUMULATIONS
    ),
    "align": Spec(
        on=(Construct.FULLY, *BUFFERS), mapped=BUFFERS, least=1, most=1, power=True,
        form="#align(n), n a power of two", needs=Needs.MEMORY,
    ),
    "tf32": Spec(
        on=STATEMENTS, mapped=STATEMENTS, form="#tf32", inherited=True, needs=Needs.TENSOR_CORES,
        on_cpu="a CPU has no tensor cores",
    ),
    "fast": Spec(
        on=STATEMENTS, mapped=STATEMENTS, form="#fast", inherited=True, needs=Needs.FASTER,
        on_cpu="the functions of a CPU are the accurate ones",
    ),
    "strict": Spec(on=STATEMENTS, mapped=STATEMENTS, form="#strict", inherited=True, needs=Needs.PRODUCTS),
    "unique": Spec(on=STATEMENTS, mapped=STATEMENTS, form="#unique", needs=Needs.GATHERED_WRITES),
    "threads": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), least=1, most=1, greatest=MAX_THREADS, form="#threads(n)",
        needs=Needs.THREADS, on_cpu="a CPU has no thread blocks",
    ),
    "cluster_shape": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), least=1, most=3, form="#cluster_shape(x, y, z)",
        needs=Needs.THREADS, on_cpu="a CPU has no thread blocks",
    ),
    "persistent": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), form="#persistent", needs=Needs.BLOCKS,
        on_cpu="a CPU has no thread blocks",
    ),
    "cooperative": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), form="#cooperative", needs=Needs.LAUNCHES,
        on_cpu="the launches of a CPU are calls",
    ),
    "raster": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), least=1, most=1, greatest=MAX_RASTER, form="#raster(n)",
        needs=Needs.ROWS, on_cpu="a CPU has no thread blocks",
    ),
    "blocks_per_sm": Spec(
        on=(Construct.KERNEL,), mapped=(Construct.KERNEL,), least=1, most=1, greatest=MAX_BLOCKS,
        form="#blocks_per_sm(n)", needs=Needs.THREADS, on_cpu="a CPU has no thread blocks",
    ),
    "strides": Spec(
        on=BUFFERS, mapped=BUFFERS, least=1, most=32, zero=True, names_sizes=True,
        form="#strides(s0, s1, …), one for each dimension",
    ),
    "layout": Spec(on=BUFFERS, mapped=BUFFERS, least=1, most=1, words=("col", "row"), form="#layout(col)"),
    "pad": Spec(on=(Construct.NEW,), mapped=(Construct.NEW,), most=1, form="#pad or #pad(n)", needs=Needs.MEMORY),
    "swizzle": Spec(
        on=(Construct.NEW,), mapped=(Construct.NEW,), most=3, zero=True, greatest=MAX_ADDRESS_BIT,
        form="#swizzle or #swizzle(bits, base, shift)", needs=Needs.SHARED,
    ),
    "ptx": Spec(on=(Construct.FN,), least=1, most=2, zero=True, form="#ptx(major, minor)"),
    "sm": Spec(on=(Construct.FN,), least=1, most=1, form="#sm(80)"),
}  # fmt: skip

LEVELS = ("grid", "cluster", "block", "warpgroup", "warp", "thread")
SCOPES = frozenset(name for name, spec in ATTRIBUTES.items() if spec.fineness is not None and spec.mapped)
"""The scopes that this version maps."""


def is_mapped(name: str, construct: Construct) -> bool:
    """Whether this version maps an attribute there."""
    return name in ATTRIBUTES and construct in ATTRIBUTES[name].mapped


def inherited(attrs: Iterable[Attr]) -> tuple[Attr, ...]:
    """The attributes of a kernel or a loop that hold for every statement in it."""
    return tuple(attr for attr in attrs if attr.name in ATTRIBUTES and ATTRIBUTES[attr.name].inherited)


def names_sizes(name: str) -> bool:
    """Whether a free name in the arguments of an attribute is a size."""
    return name in ATTRIBUTES and ATTRIBUTES[name].names_sizes


ReadIndex = Callable[[syntax.Expr], IndexExpr]


def check_attributes(
    attrs: tuple[syntax.Attr, ...], construct: Construct, read: ReadIndex, dims: int = 1, *, rank: int | None = None
) -> tuple[Attr, ...]:
    """The core attributes of a construct. `read` gives an argument as an index expression; `dims` counts the loops of a
    band, `rank` the dimensions of a buffer."""
    result: list[Attr] = []
    for attr in attrs:
        spec = ATTRIBUTES.get(attr.name)
        if spec is None:
            known = ", ".join(f"#{name}" for name, row in ATTRIBUTES.items() if construct in row.on)
            help = did_you_mean(attr.name, ATTRIBUTES, f"on {construct} may stand {known}")
            raise refuse("E0205", f"`#{attr.name}` is not an attribute", attr.span, help=help)
        if construct not in spec.on:
            help = f"it belongs to {', '.join(spec.on)}"
            raise refuse("E0205", f"`#{attr.name}` has no meaning on {construct}", attr.span, help=help)
        if any(before.name == attr.name for before in result):
            raise refuse("E0205", f"`#{attr.name}` stands twice", attr.span, help="remove one")
        result.append(_attribute(attr, spec, read))
        _check_values(result[-1], dims, spec)
    if construct in PARS:
        _check_scopes(result)
    if construct in BUFFERS and rank is not None:
        _check_layouts(result, rank)
    return tuple(result)


def _attribute(attr: syntax.Attr, spec: Spec, read: ReadIndex) -> Attr:
    if not spec.least <= len(attr.args) <= spec.most:
        raise refuse("E0205", f"`#{attr.name}` has {_count(len(attr.args))}", attr.span, help=f"write {spec.form}")
    args: list[IndexExpr | str] = []
    for arg in attr.args:
        if arg.level is not None and (not spec.levels or arg.level not in LEVELS):
            raise refuse(
                "E0205", f"`{arg.level}:` has no meaning in `#{attr.name}`", arg.span, help=f"write {spec.form}"
            )
        if spec.words:
            if not isinstance(arg.value, syntax.Name) or arg.value.name not in spec.words:
                raise refuse("E0205", f"this is not an argument of `#{attr.name}`", arg.span, help=f"write {spec.form}")
            args.append(arg.value.name)
        else:
            args.append(_number(attr, spec, arg, read))
    return Attr(name=attr.name, args=tuple(args), levels=tuple(arg.level for arg in attr.args), span=attr.span)


def _number(attr: syntax.Attr, spec: Spec, arg: syntax.AttrArg, read: ReadIndex) -> IndexExpr:
    value = read(arg.value)
    if index_names(value):
        raise refuse(
            "E0205", f"an argument of `#{attr.name}` is made of integers and sizes", arg.span, help=f"write {spec.form}"
        )
    if isinstance(value, IndexConst):
        least = 0 if spec.zero else 1
        demand = ""
        if value.value < least:
            demand = f"at least {least}"
        elif spec.greatest is not None and value.value > spec.greatest:
            demand = f"at most {spec.greatest}"
        elif spec.power and value.value & (value.value - 1):
            demand = "a power of two"
        if demand:
            message, this = f"an argument of `#{attr.name}` is {demand}", f"this is {value.value}"
            raise refuse("E0205", message, arg.span, this, help=f"write {spec.form}")
    return value


def check_fn_attributes(definition: syntax.FnDef, read: ReadIndex) -> tuple[Attr, ...]:
    """The attributes of a `fn`: they say what its hardware body needs, so a `fn` without a `reference` has none."""
    attrs = check_attributes(definition.attrs, Construct.FN, read)
    if attrs and definition.reference is None:
        raise refuse(
            "E0205", f"`#{attrs[0].name}` says what the hardware body of a `fn` needs, and this one has none",
            attrs[0].span, help="remove it, or give the meaning in a `reference` body before the hardware's",
        )  # fmt: skip
    return attrs


def _count(number: int) -> str:
    return "no argument" if number == 0 else "1 argument" if number == 1 else f"{number} arguments"


def _check_values(attr: Attr, dims: int, spec: Spec) -> None:
    """What the arguments of an attribute must be together."""
    values = [arg.value for arg in attr.args if isinstance(arg, IndexConst)]
    match attr.name:
        case "tile":
            _check_tile(attr, dims, attr.span)
        case "swizzle" if len(attr.args) not in (0, 3):
            raise refuse("E0205", f"`#swizzle` has {_count(len(attr.args))}", attr.span, help=f"write {spec.form}")
        case "swizzle" if attr.args:
            _check_swizzle(attr, values)
        case "threads" if any(value % WARP and (value > WARP or value & (value - 1)) for value in values):
            raise refuse(
                "E0205", f"a block of {values[0]} threads is no number of whole warps", attr.span,
                help=f"write a multiple of {WARP} up to {MAX_THREADS}, or a power of two below {WARP}",
            )  # fmt: skip
        case "cluster_shape" if prod(values) > MAX_CLUSTER:
            raise refuse(
                "E0205", f"a cluster of {prod(values)} blocks is larger than any GPU has", attr.span,
                help=f"the product of the arguments is at most {MAX_CLUSTER}",
            )  # fmt: skip
        case _:
            pass


def _check_swizzle(attr: Attr, values: list[int]) -> None:
    """Bits of an address that are read are none of those that are changed."""
    message = ""
    if len(values) < len(attr.args):
        message = "the arguments of `#swizzle` are integers"
    elif not values[0] or values[2] < values[0]:
        message = "`#swizzle(bits, base, shift)` reads at least 1 bit, from at least `bits` above those that it changes"
    if message:
        raise refuse("E0205", message, attr.span, help="write #swizzle(3, 4, 3) for the hardware's of 128 bytes")


def _check_tile(attr: Attr, dims: int, span: Span) -> None:
    """Each level of a `#tile` has one size for each dim of the band."""
    groups: list[int] = []
    for level in attr.levels:
        if level is not None or not groups:
            groups.append(0)
        groups[-1] += 1
    if any(size != dims for size in groups):
        each = "each level of " if len(groups) > 1 else ""
        raise refuse(
            "E0205", f"{each}`#tile` has one size for each of the {dims} loops of its band", span,
            help="write " + "#tile(" + ", ".join(["128"] * dims) + ")",
        )  # fmt: skip
    named = [level for level in attr.levels if level is not None]
    order = [LEVELS.index(level) for level in named]
    if order != sorted(set(order)):
        raise refuse("E0205", "the levels of `#tile` go from coarse to fine, each once", span, help=", ".join(LEVELS))


def _check_layouts(attrs: list[Attr], rank: int) -> None:
    """One attribute at most says where the elements of a buffer lie, for all its dimensions."""
    names = [attr.name for attr in attrs]
    for attr in attrs:
        match attr.name:
            case "strides" if len(attr.args) != rank:
                message = f"`#strides` has one stride for each dimension, here are {rank}"
                raise refuse("E0205", message, attr.span)
            case "layout" if "strides" in names:
                raise refuse("E0205", "`#layout` and `#strides` say two things", attr.span, help="remove one")
            case "pad" if rank < 2:
                raise refuse(
                    "E0205", "`#pad` stands between the rows of a buffer, and this one has no rows", attr.span,
                    help="remove it, or declare the buffer with two dimensions",
                )  # fmt: skip
            case "swizzle" if rank < 2 and not attr.args:
                raise refuse(
                    "E0205", "`#swizzle` mixes the rows of a buffer, and this one has no rows", attr.span,
                    help="declare the buffer with two dimensions, or write #swizzle(bits, base, shift)",
                )  # fmt: skip
            case "pad" | "swizzle" if {"strides", "layout", "pad"} & set(names) - {attr.name}:
                raise refuse("E0205", f"`#{attr.name}` and another layout say two things", attr.span, help="remove one")
            case _:
                pass


def _check_scopes(attrs: list[Attr]) -> None:
    """At most a scope and a finer unit: `#block #warp` is one iteration per warp of the CTA."""
    found = [(attr, spec) for attr in attrs if (spec := ATTRIBUTES[attr.name]).fineness is not None]
    if len(found) > 2:
        raise refuse("E0205", "a `par` has one scope and at most one unit", found[2][0].span, help="write #block #warp")
    if found and found[0][0].name in ("warpgroup", "cta"):
        name = found[0][0].name
        raise refuse(
            "E0205", f"`#{name}` is a unit and needs a scope before it", found[0][0].span,
            help=f"write #grid #{name}" if name == "cta" else "write #block #warpgroup",
        )  # fmt: skip
    if len(found) == 2:
        (scope, coarse), (unit, fine) = found
        if not fine.unit or (fine.fineness or 0) <= (coarse.fineness or 0):
            raise refuse(
                "E0205", f"`#{unit.name}` is not a unit finer than `#{scope.name}`", unit.span,
                help="the units are #cta, #warpgroup and #warp",
            )  # fmt: skip
