"""Products of a warp, and loads and stores of matrices: fragments are packed and unpacked by the layouts of the
catalogue, every element with a value of its own."""

from fractions import Fraction

import ml_dtypes
import numpy as np
from cases import HEADER, Case, Family, kernel

from texpr.grammar.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8
from texpr.polyhedral.layout.place import every_place
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped import atoms
from texpr.polyhedral.simulate.aligned import aligned_sums

TYPES = {dtype.name: dtype for dtype in (F16, BF16, F32, F64, F8E4M3, F8E5M2, I8, U8, I32)}
NUMPY = {
    name: np.dtype(own)
    for name, own in (
        ("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f32", np.float32), ("f8e4m3", ml_dtypes.float8_e4m3fn),
        ("f8e5m2", ml_dtypes.float8_e5m2), ("i8", np.int8), ("u8", np.uint8), ("i32", np.int32), ("f64", np.float64),
    )
}  # fmt: skip
C_ELEMENT = {name: f"tx::{name}" for name in TYPES}


def held(layout, matrix, lanes=32):
    """What each lane holds of the matrix: an array of (lane, register)."""
    places = every_place(layout)
    registers = int(places[Unit.REGISTER].max()) + 1
    found = np.zeros((lanes, registers), matrix.dtype)
    found[places[Unit.LANE], places[Unit.REGISTER]] = matrix
    return found


def products():
    """mma_<operands>_<sums>: every lane reads its elements one after another, and writes those of two blocks of c."""
    cases, texts = [], []
    for t, c in (("f16", "f32"), ("bf16", "f32"), ("f16", "f16")):
        symbol, roles = f"mma_{t}_{c}", atoms.mma(TYPES[t], TYPES[c]).operands
        body = f"""  const tx::Global<const {C_ELEMENT[t]}> a(A, "A"), b(B, "B");
  const tx::Global<{C_ELEMENT[c]}> c(C, "C");
  tx::OperandA<{C_ELEMENT[t]}> left = {{}};
  tx::OperandB<{C_ELEMENT[t]}> right[2] = {{}};
  tx::Accumulator<16, 16, {C_ELEMENT[c]}> sums = {{}};
  for (int i = 0; i < 8; ++i) left.set(i, a.load(8 * tx::lane() + i));
  TX_UNROLL
  for (int k = 0; k < 2; ++k) {{
    for (int i = 0; i < 4; ++i) {{
      right[k].set(i, b.load(128 * k + 4 * tx::lane() + i));
      sums.set(4 * k + i, c.load(128 * k + 4 * tx::lane() + i));
    }}
    tx::mma(sums, left, right[k], k);
  }}
  for (int k = 0; k < 2; ++k) {{
    for (int i = 0; i < 4; ++i) c.store(128 * k + 4 * tx::lane() + i, sums.get(4 * k + i));
  }}"""
        parameters = f"const {C_ELEMENT[t]}* A, const {C_ELEMENT[t]}* B, {C_ELEMENT[c]}* C"
        texts.append(kernel(symbol, parameters, body))
        for name, a, b, start in matrices():
            want = a @ b + start
            packed_b = np.stack([held(roles["b"].layout, b[:, k : k + 8]) for k in (0, 8)])
            sums = [
                np.stack([held(roles["c"].layout, m[:, k : k + 8]) for k in (0, 8)]).astype(NUMPY[c])
                for m in (start, want)
            ]
            cases.append(
                Case(
                    name=f"mma {t} {c}, {name}",
                    symbol=symbol,
                    inputs=(held(roles["a"].layout, a).astype(NUMPY[t]), packed_b.astype(NUMPY[t])),
                    want=(sums[1],),
                    before=(sums[0],),
                )
            )
    return cases, texts


def of_other_types():
    """mma_<operands> of elements of 32 and of 8 bits, which come by load_matrices from rows in shared memory."""
    cases, texts = [], []
    rng = np.random.default_rng(8)
    for t, c in (("f32", "f32"), ("i8", "i32"), ("u8", "i32")):
        dtype, roles = TYPES[t], atoms.mma(TYPES[t], TYPES[c]).operands
        depth = 32 // dtype.size_bytes
        body = f"""  TX_DYN_SMEM(smem);
  const tx::Global<const {C_ELEMENT[t]}> a(A, "A"), b(B, "B");
  const tx::Global<{C_ELEMENT[c]}> c(C, "C");
  const tx::Shared<{C_ELEMENT[t]}> rows(smem, {16 * depth}, "rows");
  tx::OperandA<{C_ELEMENT[t]}> left;
  tx::OperandB<{C_ELEMENT[t]}> right;
  tx::Accumulator<16, 8, {C_ELEMENT[c]}> sums;
  for (int k = tx::lane(); k < {16 * depth}; k += 32) rows.store(k, a.load(k));
  for (int i = 0; i < {depth // 4}; ++i) right.set(i, b.load({depth // 4} * tx::lane() + i));
  for (int i = 0; i < 4; ++i) sums.set(i, c.load(4 * tx::lane() + i));
  tx::sync_warp(0);
  tx::load_matrices(left, rows, tx::lane() % 16 * {depth} + tx::lane() / 16 * {depth // 2});
  tx::mma(sums, left, right);
  for (int i = 0; i < 4; ++i) c.store(4 * tx::lane() + i, sums.get(i));"""
        parameters = f"const {C_ELEMENT[t]}* A, const {C_ELEMENT[t]}* B, {C_ELEMENT[c]}* C"
        texts.append(kernel(f"mma_{t}", parameters, body))
        if dtype.is_integer:
            ends = dtype.integer_range
            a, b = (rng.integers(*ends, shape, endpoint=True) for shape in ((16, depth), (depth, 8)))
            start = rng.integers(-(2**31), 2**31, (16, 8))
        else:  # with bits that tf32 has not
            a, b = (rng.integers(-8, 9, shape) * (1 + 2.0**-12) for shape in ((16, depth), (depth, 8)))
            start = rng.integers(-8, 9, (16, 8)).astype(float)
        cut = (a, b) if dtype.is_integer else (np.trunc(a), np.trunc(b))
        sums = [held(roles["c"].layout, m).astype(NUMPY[c]) for m in (start, start + cut[0] @ cut[1])]
        cases.append(
            Case(
                name=f"mma {t}",
                symbol=f"mma_{t}",
                inputs=(a.astype(NUMPY[t]).reshape(-1), held(roles["b"].layout, b).astype(NUMPY[t])),
                want=(sums[1],),
                before=(sums[0],),
                shared_bytes=512,
            )
        )
    return cases, texts


KINDS = [(a, b) for a in ("f8e4m3", "f8e5m2") for b in ("f8e4m3", "f8e5m2")]


def of_f8():
    """mma_<a>_<b>: both kinds of f8 with one another, small integers exactly, and numbers of many magnitudes, some of
    them denormal, to within what additions lose that keep 14 bits, as those on the CPU do."""
    cases, texts = [], []
    rng = np.random.default_rng(10)
    for t, u in KINDS:
        roles = atoms.mma(TYPES[t], F32, TYPES[u]).operands
        body = f"""  TX_DYN_SMEM(smem);
  const tx::Global<const {C_ELEMENT[t]}> a(A, "A");
  const tx::Global<const {C_ELEMENT[u]}> b(B, "B");
  const tx::Global<float> c(C, "C");
  const tx::Shared<{C_ELEMENT[t]}> rows(smem, 512, "rows");
  tx::OperandA<{C_ELEMENT[t]}> left;
  tx::OperandB<{C_ELEMENT[u]}> right;
  tx::Accumulator<16, 8> sums;
  for (int k = tx::lane(); k < 512; k += 32) rows.store(k, a.load(k));
  for (int i = 0; i < 8; ++i) right.set(i, b.load(8 * tx::lane() + i));
  for (int i = 0; i < 4; ++i) sums.set(i, c.load(4 * tx::lane() + i));
  tx::sync_warp(0);
  tx::load_matrices(left, rows, tx::lane() % 16 * 32 + tx::lane() / 16 * 16);
  tx::mma(sums, left, right);
  for (int i = 0; i < 4; ++i) c.store(4 * tx::lane() + i, sums.get(i));"""
        symbol = f"mma_{t}_{u}"
        texts.append(kernel(symbol, f"const {C_ELEMENT[t]}* A, const {C_ELEMENT[u]}* B, float* C", body))
        for rounds in (False, True):
            shapes = ((16, 32), (32, 8), (16, 8))
            a, b, start = (rng.integers(-8, 9, shape).astype(float) for shape in shapes)
            if rounds:
                a, b, start = (rng.normal(size=shape) * 2.0 ** rng.integers(-9, 5, shape) for shape in shapes)
            a, b, start = a.astype(NUMPY[t]), b.astype(NUMPY[u]), start.astype(np.float32)
            want = aligned_sums(a.astype(float), b.astype(float).T, start.astype(float), (TYPES[t], TYPES[u]))
            within = 33 * 2.0**-13 * (np.abs(start) + least_normal(a) @ least_normal(b))
            packed = [held(roles["c"].layout, m.astype(np.float32)) for m in (start, want, within)]
            cases.append(
                Case(
                    name=f"mma {t} {u}{', rounded' if rounds else ''}",
                    symbol=symbol,
                    inputs=(a.reshape(-1), held(roles["b"].layout, b)),
                    want=(packed[1],),
                    within=(packed[2],) if rounds else (),
                    before=(packed[0],),
                    shared_bytes=512,
                    arch="sm_89",
                )
            )
    return cases, texts


def least_normal(values):
    """Magnitudes, of denormal numbers that of the least normal one."""
    return np.maximum(np.abs(values.astype(float)), 2.0 ** (-6 if values.dtype == NUMPY["f8e4m3"] else -14))


def of_f64():
    """mma_f64: numbers of many magnitudes, for each sum is the chain of fused multiply-adds in the order of k, bit by
    bit."""
    roles, rng = atoms.mma(F64, F64).operands, np.random.default_rng(9)
    body = """  const tx::Global<const double> a(A, "A"), b(B, "B");
  const tx::Global<double> c(C, "C");
  tx::OperandA<tx::f64> left;
  tx::OperandB<tx::f64> right;
  tx::Accumulator<16, 8, tx::f64> sums;
  for (int i = 0; i < 2; ++i) left.set(i, a.load(2 * tx::lane() + i));
  right.set(0, b.load(tx::lane()));
  for (int i = 0; i < 4; ++i) sums.set(i, c.load(4 * tx::lane() + i));
  tx::mma(sums, left, right);
  for (int i = 0; i < 4; ++i) c.store(4 * tx::lane() + i, sums.get(i));"""
    text = kernel("mma_f64", "const double* A, const double* B, double* C", body)
    a, b, start = (rng.normal(size=shape) * 2.0 ** rng.integers(-30, 30, shape) for shape in ((16, 4), (4, 8), (16, 8)))
    want = np.array([[chain(start[m, n], a[m], b[:, n]) for n in range(8)] for m in range(16)])
    sums = [held(roles["c"].layout, matrix) for matrix in (start, want)]
    inputs = (held(roles["a"].layout, a), held(roles["b"].layout, b))
    return [Case(name="mma f64", symbol="mma_f64", inputs=inputs, want=(sums[1],), before=(sums[0],))], [text]


def chain(start, left, right):
    """The sum that takes one product after the other, each rounded once."""
    for x, y in zip(left, right, strict=True):
        start = float(Fraction(start) + Fraction(x) * Fraction(y))
    return start


def matrices():
    """(name, a, b, c) of 16 x 16, 16 x 16, 16 x 16 whose products are exact in every type."""
    rng = np.random.default_rng(3)
    eye, count = np.eye(16), np.arange(256.0).reshape(16, 16)
    yield "A itself", count, eye, np.zeros((16, 16))
    yield "B itself", eye, count, np.zeros((16, 16))
    yield "C itself", np.zeros((16, 16)), count, count
    yield "random", *(rng.integers(-5, 6, (16, 16)).astype(float) for _ in range(3))


def moves():
    """load_<n>, store_<n>: 1, 2 or 4 matrices whose rows lie anywhere, straight and transposed."""
    cases, texts = {"sm_80": [], "sm_90": []}, {"sm_80": [], "sm_90": []}
    rng = np.random.default_rng(4)
    for count in (1, 2, 4):
        for transposed in (False, True):
            flag, form = ("true", f"x{count}t") if transposed else ("false", f"x{count}")
            rows = rng.permutation(32)[: 8 * count]  # of 32 rows of 24 elements
            image = np.arange(32 * 24, dtype=np.uint16) * 7 + 3
            matrix = image.reshape(32, 24)[rows, 8:16]
            atom = atoms.load_matrices(F16, count, transposed=transposed)
            registers = held(atom.operands["target"].layout, matrix)
            places = np.zeros(32, np.int32)
            places[: 8 * count] = 24 * rows + 8
            before = f"""  TX_DYN_SMEM(smem);
  const tx::Global<const int> places(P, "places");
  const tx::Shared<tx::f16> tile(smem, 768, "tile");
  tx::Fragment<tx::f16, {2 * count}> held = {{}};"""
            load = f"""{before}
  const tx::Global<const tx::f16> x(X, "X");
  const tx::Global<tx::f16> y(Y, "Y");
  for (int k = tx::lane(); k < 768; k += 32) tile.store(k, x.load(k));
  tx::sync_warp(0);
  tx::load_matrices<{flag}>(held, tile, places.load(tx::lane()));
  for (int i = 0; i < {2 * count}; ++i) y.store({2 * count} * tx::lane() + i, held.get(i));"""
            store = f"""{before}
  const tx::Global<const tx::f16> x(X, "X");
  const tx::Global<tx::f16> y(Y, "Y");
  for (int k = tx::lane(); k < 768; k += 32) tile.store(k, y.load(k));
  for (int i = 0; i < {2 * count}; ++i) held.set(i, x.load({2 * count} * tx::lane() + i));
  tx::sync_warp(0);
  tx::store_matrices<{flag}>(tile, places.load(tx::lane()), held);
  tx::sync_warp(1);
  for (int k = tx::lane(); k < 768; k += 32) y.store(k, tile.load(k));"""
            parameters = "const int* P, const tx::f16* X, tx::f16* Y"
            texts["sm_80"].append(kernel(f"load_{form}", parameters, load))
            texts["sm_90"].append(kernel(f"store_{form}", parameters, store))
            cases["sm_80"].append(
                Case(
                    name=f"ldmatrix {form}",
                    symbol=f"load_{form}",
                    inputs=(places, image),
                    want=(registers,),
                    shared_bytes=1536,
                )
            )
            zero = np.zeros_like(image)
            stored = zero.reshape(32, 24).copy()
            stored[rows, 8:16] = matrix
            cases["sm_90"].append(
                Case(
                    name=f"stmatrix {form}",
                    symbol=f"store_{form}",
                    inputs=(places, registers),
                    want=(stored.reshape(-1),),
                    before=(zero,),
                    shared_bytes=1536,
                    arch="sm_90",
                )
            )
    return cases, texts


def packs():
    """Two elements rounded into one word."""
    rng = np.random.default_rng(5)
    x = np.concatenate([[1.5, np.inf, -np.inf, np.nan, 1e-8, 65520.0, -0.0, 3.0e38], rng.normal(0, 100, 56)])
    cases, texts = [], []
    for t in ("f16", "bf16"):
        body = f"""  const tx::Global<const float> x(X, "X");
  const tx::Global<unsigned> y(Y, "Y");
  y.store(tx::lane(), tx::pack<{C_ELEMENT[t]}>(x.load(2 * tx::lane()), x.load(2 * tx::lane() + 1)));"""
        texts.append(kernel(f"pack_{t}", "const float* X, unsigned* Y", body))
        with np.errstate(over="ignore"):
            want = x.astype(np.float32).astype(NUMPY[t])
        cases.append(Case(name=f"pack {t}", symbol=f"pack_{t}", inputs=(x.astype(np.float32),), want=(want,)))
    return cases, texts


def family():
    found, texts = products()
    others, other_texts = of_other_types()
    narrow, narrow_texts = of_f8()
    wide, wide_texts = of_f64()
    more, more_texts = packs()
    moved, moved_texts = moves()
    include = HEADER + '#include "texpr/mma.cuh"\n'
    return Family(
        name="mma",
        cases=[*found, *others, *narrow, *wide, *more, *moved["sm_80"], *moved["sm_90"]],
        texts={
            "sm_80": include + "".join((*texts, *other_texts, *wide_texts, *more_texts, *moved_texts["sm_80"])),
            "sm_89": "".join(narrow_texts),
            "sm_90": "".join(moved_texts["sm_90"]),
        },
    )
