"""Every monoid through the trees over lanes, for rows with every oddity: each lane folds a run of the row, then groups
of lanes reduce or scan."""

import operator

import numpy as np
from cases import HEADER, Case, Family, kernel

from texpr.grammar.types import F32, F64, I32, I64
from texpr.polyhedral.mapped.monoids import MONOIDS

C_TYPES = {"f32": "float", "f64": "double", "i32": "int", "i64": "long long"}
LENGTHS = (0, 1, 2, 5, 32, 77)
ONLY = {"f64": ("Sum", "ScaledSum", "Moments", "LastLeast"), "i64": ("Sum", "FirstGreatest")}
GROUPS = {
    ("Sum", "f32"),
    ("Moments", "f32"),
    ("FirstGreatest", "i32"),
    ("LastGreatest", "i32"),
    ("FirstLeast", "f32"),
    ("LastLeast", "f32"),
    ("Sum", "i64"),
}  # the trees are the same for all
PAIRS = [
    (m, t)
    for m in MONOIDS.values()
    for t in (F32, F64, I32, I64)
    if m.name in ONLY.get(t.name, MONOIDS) and (m.integers or t.is_float)
]


def rows(dtype, count):
    """Rows of `count` elements: plain ones, ties, signed zeros, NaN, infinities in every company."""
    rng = np.random.default_rng(count + dtype.bits)
    if not dtype.is_float:
        low, high = dtype.integer_range
        drawn = rng.integers(-9, 9, (6, count))
        edges = rng.choice(np.array([low, high, 0, 1, -1], np.int64), (4, count))
        return np.concatenate([drawn, edges]).astype(dtype.name.replace("i", "int"))
    found = [rng.integers(-6, 7, count).astype(float) for _ in range(3)]  # ties; sums and products are exact
    found += [rng.normal(0, 3, count) for _ in range(3)]
    found += [np.full(count, value) for value in (-np.inf, np.inf, np.nan, 0.0, -0.0, 80.0, -80.0)]
    for special in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [np.nan, np.inf], [-np.inf] * 3, [-0.0, 0.0]):
        row = rng.integers(-6, 7, count).astype(float)
        at = rng.permutation(count)[: len(special)]
        row[at] = special[: len(at)]
        found.append(row)
    return np.array(found).astype(dtype.name.replace("f", "float"))


def sequential(monoid, row):
    """What the statements that stand for the monoid leave, in float64 or in integers that wrap; all components."""
    with np.errstate(all="ignore"):
        return _SEQUENTIAL[monoid.name](row)


def _folded(start, change):
    def run(row):
        value = row.dtype.type(start(row.dtype)) if row.dtype.kind == "i" else np.float64(start(row.dtype))
        for x in row:
            value = change(value, x)
        return (value,)

    return run


def _limit(least):
    def start(dtype):
        if dtype.kind == "f":
            return -np.inf if least else np.inf
        return np.iinfo(dtype).min if least else np.iinfo(dtype).max

    return start


def _scaled_sum(row):
    greatest, total = -np.inf, np.float64(0)
    for x in row.astype(np.float64):
        greatest = np.maximum(greatest, x)
    for x in row.astype(np.float64):
        total += np.exp(x - greatest)
    return greatest, total


def _pick(better, start):
    def run(row):
        value, index = start(row.dtype), -1
        for k, x in enumerate(row):
            if better(x, value):
                value, index = x, k
        return value, index

    return run


def _moments(row):
    wide = row.astype(np.float64)
    if not len(wide):
        return 0.0, 0.0, 0.0
    mean = wide.sum() / len(wide)
    squares = np.float64(0)
    for x in wide:
        squares += (x - mean) ** 2
    return float(len(wide)), mean, squares


_SEQUENTIAL = {
    "Sum": _folded(lambda dtype: -0.0 if dtype.kind == "f" else 0, np.add),
    "Product": _folded(lambda dtype: 1, np.multiply),
    "Greatest": _folded(_limit(True), np.maximum),
    "Least": _folded(_limit(False), np.minimum),
    "GreatestNumber": _folded(_limit(True), np.fmax),
    "LeastNumber": _folded(_limit(False), np.fmin),
    "ScaledSum": _scaled_sum,
    "FirstGreatest": _pick(operator.gt, _limit(True)),
    "LastGreatest": _pick(operator.ge, _limit(True)),
    "FirstLeast": _pick(operator.lt, _limit(False)),
    "LastLeast": _pick(operator.le, _limit(False)),
    "Moments": _moments,
}


def component_types(monoid, dtype):
    """The NumPy types of a partial's components."""
    kind = np.dtype(dtype.name.replace("f", "float").replace("i", "int"))
    return [np.dtype(np.int32) if name == "index" else kind for name in monoid.components]


def unit(dtype):
    return 2.0 ** -(dtype.mantissa + 1) if dtype.is_float else 0.0


def bounds(monoid, dtype, row, depth):
    """The bounds of the components' errors, from the finite elements: the others leave exact values."""
    wide = row.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    if not dtype.is_float or not len(wide):
        return (0.0,) * len(monoid.components)
    tiny = float(np.finfo(row.dtype).tiny)
    return tuple(float(bound) * 1.01 + tiny for bound in monoid.error(wide, unit(dtype), depth))


def wanted(monoid, dtype, matrix, depth):
    """(want, within) of the results of all rows, an array for each component."""
    found = [sequential(monoid, row) for row in matrix]
    limits = [bounds(monoid, dtype, row, depth) for row in matrix]
    types = component_types(monoid, dtype)
    with np.errstate(all="ignore"):
        want = tuple(np.array([row[k] for row in found]).astype(t) for k, t in enumerate(types))
    within = tuple(np.array([limit[k] for limit in limits]) for k in range(len(types)))
    return want, within


def members(monoid, value):
    """The components of a C++ partial."""
    return [value] if monoid.components == ("value",) else [f"{value}.{name}" for name in monoid.components]


def symbol(monoid, dtype, kind):
    return f"{kind}_{monoid.name}_{dtype}"


def text(monoid, dtype):
    """fold: a row by one warp, each lane a run of it; group: 32 values reduced and scanned by groups of kLanes."""
    c = C_TYPES[dtype.name]
    outs = ["int" if name == "index" else c for name in monoid.components]
    index = ", static_cast<int>(k)" if monoid.indexed else ""
    writes = "\n    ".join(
        f'tx::Global<{t}>(Y{k}, "Y{k}").store(row, {m});'
        for k, (t, m) in enumerate(zip(outs, members(monoid, "done"), strict=True))
    )
    parameters = f"const {c}* X, " + ", ".join(f"{t}* Y{k}" for k, t in enumerate(outs)) + ", long long n"
    fold = f"""  using M = tx::{monoid.name}<{c}>;
  const tx::Global<const {c}> x(X, "X");
  const long long row = tx::block_x(), run = (n + 31) / 32, first = tx::lane() * run;
  M::Partial partial = M::identity();
  for (long long k = first; k < first + run && k < n; ++k) {{
    partial = M::combine(partial, M::lift(x.load(row * n + k){index}));
  }}
  const M::Partial done = M::result(tx::reduce_lanes<M>(partial));
  if (tx::lane() == 0) {{
    {writes}
  }}"""
    stores = [f'tx::Global<{t}>(Y{k}, "Y{k}")' for k, t in enumerate(outs)]
    lift = "M::lift(x.load(tx::thread())" + (", tx::lane())" if monoid.indexed else ")")
    lines = [f"  using M = tx::{monoid.name}<{c}>;", f'  const tx::Global<const {c}> x(X, "X");']
    lines.append(f"  const M::Partial value = {lift};")
    for number, lanes in enumerate((2, 4, 8, 16, 32)):
        for place, kind in ((2 * number, "reduce"), (2 * number + 1, "scan")):
            lines.append(f"  {{\n    const M::Partial done = M::result(tx::{kind}_lanes<M, {lanes}>(value));")
            for store, member in zip(stores, members(monoid, "done"), strict=True):
                lines.append(f"    {store}.store({place} * n + tx::thread(), {member});")
            lines.append("  }")
    found = kernel(symbol(monoid, dtype, "fold"), parameters, fold)
    if (monoid.name, dtype.name) in GROUPS:
        found += kernel(symbol(monoid, dtype, "group"), parameters, "\n".join(lines))
    return found


def group_want(monoid, dtype, x):
    """The results of all groups: (reduce, scan) for 2, 4, … 32 lanes."""
    parts = []
    for lanes in (2, 4, 8, 16, 32):
        for scan in (False, True):
            for lane in range(32):
                first = lane // lanes * lanes
                row = x[first : lane + 1 if scan else first + lanes]
                value, limits = list(sequential(monoid, row)), bounds(monoid, dtype, row, 5)
                if monoid.indexed and value[1] != -1:
                    value[1] += first
                parts.append((value, limits))
    types = component_types(monoid, dtype)
    with np.errstate(all="ignore"):
        want = tuple(np.array([p[0][k] for p in parts]).astype(t) for k, t in enumerate(types))
    return want, tuple(np.array([p[1][k] for p in parts]) for k in range(len(types)))


def family():
    """fold_* over rows of every length, group_* over 32 values."""
    cases, texts = [], [HEADER, '#include "texpr/lanes.cuh"\n#include "texpr/monoid.cuh"\n']
    for monoid, dtype in PAIRS:
        texts.append(text(monoid, dtype))
        for count in LENGTHS:
            matrix = rows(dtype, count)
            want, within = wanted(monoid, dtype, matrix, 8)
            cases.append(
                Case(
                    name=f"{monoid.name} of {dtype}, {count} elements",
                    symbol=symbol(monoid, dtype, "fold"),
                    inputs=(matrix,),
                    want=want,
                    within=within,
                    sizes=(count,),
                    grid=len(matrix),
                )
            )
        if (monoid.name, dtype.name) not in GROUPS:
            continue
        x = rows(dtype, 32)[8 if dtype.is_float else 7]
        for row in (rows(dtype, 32)[1], rows(dtype, 32)[4], rows(dtype, 32)[-2], x):
            want, within = group_want(monoid, dtype, row)
            name = f"{monoid.name} of {dtype}, groups"
            case = Case(
                name=name, symbol=symbol(monoid, dtype, "group"), inputs=(row,), want=want, within=within, sizes=(32,)
            )
            cases.append(case)
    return Family(name="monoids", cases=cases, texts={"sm_80": "".join(texts)})
