"""Reductions and scans in CUDA: one call of a header function each.

q[x] = Sum up to p[x] for x < 8          const auto S5 = [&](int x) { return p(x); };
                                         tx::scan<tx::Sum<tx::f32>, 8>(tx::Sum<tx::f32>::identity(), S5, [&](int x,
                                           const auto& upto) { q(x) = upto; });
m[0] = Greatest of v[x] for x < 48       tx::f32 m = tx::fold<tx::Greatest<tx::f32>, 48>([&](int x) {
                                           return v(x); });
z[0], … = ScaledSum over 32 lanes        const auto S4 = tx::reduce_lanes<tx::ScaledSum<tx::f32>>({m, s});
"""

from collections.abc import Callable

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.expr import Value
from texpr.codegen.cuda.literals import value_type
from texpr.codegen.cuda.wide import refused
from texpr.grammar.ast import Expr
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import constant_value
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16, F32, F64, I32, I64, U32
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.monoids import MONOIDS, Monoid
from texpr.polyhedral.mapped.operators import Combined, Reduce, Scan

COMBINED = (F32, F64, I32, I64, U32)  # the types of values that monoids combine
PAIRED = F16, BF16  # these two at once, of what is chosen and never rounded:
ORDERED = "Greatest", "Least", "GreatestNumber", "LeastNumber"


@dataclass(frozen=True, slots=True)
class Reduction:
    """What was combined, as a whole and, under the name of that, its components in the order of the targets."""

    whole: Value
    components: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Terms:
    """The C++ type of a monoid, one of its elements, of how many a thread combines (None: of that alone), and whether a
    partial is a value and not a struct of its components."""

    kind: str
    element: str
    count: int | None
    single: bool


def _terms(node: Combined, value: Callable[[Expr], str], warp_size: int) -> _Terms:
    """Raises E0502 for what is not emitted."""
    dtype = node.values[0].dtype
    combined = dtype in COMBINED or (dtype in PAIRED and node.monoid in ORDERED and isinstance(node, Reduce))
    if not combined or len(node.over) > 1:
        why = "several indices" if combined else f"values of {dtype} by {node.monoid}"
        raise refused(node, f"combines {why}, which no header function does")
    if warp_size % node.lanes or node.lanes & (node.lanes - 1):
        raise refused(node, f"combines {node.lanes} lanes, which are no group")
    monoid = MONOIDS[node.monoid]
    kind = f"tx::{monoid.name}<{', '.join(value_type(v.dtype) for v in _parameters(node, monoid))}>"
    values = ", ".join(value(v) for v in node.values)
    single = len(monoid.components) == 1
    if node.lift and not single:
        element = f"{kind}::lift({values})"
    else:
        element = values if single else f"{kind}::Partial{{{values}}}"
    counts = [constant_value(extent) for _, extent in node.over]
    if None in counts:
        raise refused(node, "combines so many elements as no number says")
    return _Terms(kind, element, counts[0] if counts else None, single)


def _parameters(node: Combined, monoid: Monoid) -> tuple[Expr, ...]:
    """The values whose types a monoid's C++ type has: of the element, and of its index where that is no i32."""
    return node.values[:2] if monoid.indexed and node.values[1].dtype != I32 else node.values[:1]


def _over_lanes(node: Combined, function: str, kind: str, warp_size: int, partial: str) -> str:
    lanes = "" if node.lanes == warp_size else f", {node.lanes}"
    return f"tx::{function}<{kind}{lanes}>({partial})"


def reduction(node: Reduce | Scan, name: str, value: Callable[[Expr], str], index: str, warp_size: int) -> Reduction:
    """The call of a reduction, whose one index has this C++ name, or of a scan over lanes alone. Raises E0502 for one
    that is not emitted."""
    terms = _terms(node, value, warp_size)
    kind, call = terms.kind, terms.element
    if terms.count is not None:
        call = f"tx::fold<{kind}, {terms.count}>([&](int {index}) {{ return {call}; }})"
    if node.lanes > 1:
        across = "reduce_lanes" if isinstance(node, Reduce) else "before_lanes" if node.exclusive else "scan_lanes"
        call = _over_lanes(node, across, kind, warp_size, call)
    elif isinstance(node, Scan) and node.exclusive:
        call = f"{kind}::identity()"
    if node.last:
        call = f"{kind}::result({call})"
    types = [target.dtype for target in node.targets]
    parts = (f"{name}.{component}" for component in MONOIDS[node.monoid].components)
    components = tuple(Value(part, ix.ATOM, t) for part, t in zip(parts, types, strict=True))
    return Reduction(Value(call, ix.ATOM, types[0]), components)


@dataclass(frozen=True, slots=True)
class Scanned:
    """The function of the elements of a scan, the call up to what each result is given to, and the components there."""

    element: str
    call: str
    components: tuple[Value, ...]


def scanned(node: Scan, name: str, value: Callable[[Expr], str], index: str, partial: str, warp_size: int) -> Scanned:
    """The call of a scan over one index: `name` is that of the function of its elements, `partial` of each result."""
    terms = _terms(node, value, warp_size)
    start = f"{terms.kind}::identity()"
    if node.lanes > 1:
        fold = f"tx::fold<{terms.kind}, {terms.count}>({name})"
        start = _over_lanes(node, "before_lanes", terms.kind, warp_size, fold)
    given = f"{terms.kind}::result({partial})" if node.last else partial
    parts = (given if terms.single else f"{given}.{part}" for part in MONOIDS[node.monoid].components)
    components = tuple(Value(part, ix.ATOM, t.dtype) for part, t in zip(parts, node.targets, strict=True))
    what = f"{terms.kind}, {terms.count}{', true' if node.exclusive else ''}"
    call = f"tx::scan<{what}>({start}, {name}, [&](int {index}, const auto& {partial})"
    return Scanned(f"const auto {name} = [&](int {index}) {{ return {terms.element}; }};", call, components)


def too_deep(node: Reduce | Scan | LookBack) -> Callable[[Value], str]:
    """What a value in the body of a fold does for a temporary: its statement would stand outside."""

    def refuse(_: Value) -> str:
        said = f"a value that {node.id} folds is nested too deeply to be emitted"
        raise fail("E0506", said, node.span, help="compute parts of it in an elementwise operator before")

    return refuse
