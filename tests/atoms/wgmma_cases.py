"""Products of a warpgroup: operands lie in shared memory as the layouts of the catalogue say, or in registers, and
every element of the accumulators is compared."""

import itertools

import numpy as np
from cases import HEADER, Case, Family, kernel
from mma_cases import C_ELEMENT, NUMPY, TYPES, held

from texpr.polyhedral.layout.place import every_place
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.atoms import SharedOperand, wgmma, wgmma_tile
from texpr.polyhedral.simulate.aligned import aligned_sums

INCLUDES = HEADER + "".join(f'#include "texpr/{name}.cuh"\n' for name in ("contract", "pipe", "vector", "wgmma"))
DEPTH = 64  # of k, four instructions
FEW = (8, 24, 64, 104, 256)  # numbers of columns where not all are tried


def image(matrix, swizzle):
    """The memory of a tile, in elements."""
    layout = wgmma_tile(*matrix.shape, swizzle_bytes=swizzle, element_bytes=matrix.dtype.itemsize)
    addresses = every_place(layout)[Unit.ADDRESS]
    found = np.zeros(int(addresses.max()) + 1, matrix.dtype)
    found[addresses] = matrix
    return found


def widened(matrix, swizzle, element_bytes=2):
    """With columns of zeros up to whole panels."""
    panel = swizzle // element_bytes
    return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % panel)))


BODY = """  TX_DYN_SMEM(smem);
  const tx::Global<const {t}> a(A, "A"), b(B, "B");
  const tx::Global<float> c(C, "C");
  const tx::Shared<{t}> left(smem, {count_a}, "left"), right(smem + {bytes_a}, {count_b}, "right");
  for (int i = tx::thread(); i < {stored_a}; i += 128) left.store(i, a.load(i));
  for (int i = tx::thread(); i < {count_b}; i += 128) right.store(i, b.load(i));
  tx::Accumulator<64, {n}> sums;
  sums.fill(9.0f);
  tx::fence_async_shared();
  tx::sync_block(0);
{operands}
  tx::wgmma_fence();
  TX_UNROLL
  for (int k = 0; k < {depth}; k += 16) tx::wgmma(sums, {at_a}, {at_b}, k > 0);
  tx::wgmma_close();
  tx::wgmma_wait<0>();
  tx::settle(sums);
  for (int i = 0; i < {n} / 2; ++i) c.store({n} / 2 * tx::thread() + i, sums.get(i));"""


def product(symbol, dtype, n, swizzle_a, major_a, swizzle_b, major_b, seed=0):
    """A case and its text; `swizzle_a` 0: a from registers."""
    rng = np.random.default_rng(n + seed)
    a, b = rng.integers(-8, 9, (64, DEPTH)).astype(float), rng.integers(-8, 9, (DEPTH, n)).astype(float)
    t, on_chip = C_ELEMENT[dtype], SharedOperand(swizzle_bytes=swizzle_b, k_contiguous=major_b == "kK")
    roles = wgmma(TYPES[dtype], n, on_chip).operands  # with a from registers
    at = {"kK": "(0, k)", "kOuter": "(k, 0)"}
    tile_b = widened(b.T if major_b == "kK" else b, swizzle_b)
    lines = [f"  const tx::MatrixTile<{t}, tx::Major::{major_b}, {len(tile_b)}, {swizzle_b}> y(right);"]
    memory_b = image(tile_b.astype(NUMPY[dtype]), swizzle_b)
    if swizzle_a:
        tile_a = widened(a if major_a == "kK" else a.T, swizzle_a)
        memory_a = image(tile_a.astype(NUMPY[dtype]), swizzle_a)
        lines.append(f"  const tx::MatrixTile<{t}, tx::Major::{major_a}, {len(tile_a)}, {swizzle_a}> x(left);")
        at_a, stored_a = f"x.at{at[major_a]}", len(memory_a)
    else:
        parts = [held(roles["a"].layout, a[:, k : k + 16], 128) for k in range(0, DEPTH, 16)]
        memory_a = np.stack(parts).astype(NUMPY[dtype]).reshape(-1)
        lines.append(f"  tx::OperandA<{t}> x[{DEPTH // 16}];")
        lines.append(f"  TX_UNROLL\n  for (int k = 0; k < {DEPTH // 16}; ++k) {{")
        lines.append("    for (int i = 0; i < 8; ++i) x[k].set(i, a.load(1024 * k + 8 * tx::thread() + i));\n  }")
        at_a, stored_a = "x[k / 16]", 0
    bytes_a = -(-2 * stored_a // 1024) * 1024 if swizzle_a else 1024
    body = BODY.format(
        t=t, n=n, depth=DEPTH, count_a=bytes_a // 2, bytes_a=bytes_a, stored_a=stored_a, count_b=len(memory_b),
        operands="\n".join(lines), at_a=at_a, at_b=f"y.at{at[major_b]}",
    )  # fmt: skip
    want = held(roles["c"].layout, a @ b, 128)
    case = Case(
        name=f"wgmma {dtype} n{n}, a {major_a if swizzle_a else 'registers'} {swizzle_a}, b {major_b} {swizzle_b}",
        symbol=symbol,
        inputs=(memory_a, memory_b),
        want=(want.astype(np.float32),),
        block=128,
        shared_bytes=bytes_a + 2 * len(memory_b),
        arch="sm_90a",
    )
    return case, kernel(symbol, f"const {t}* A, const {t}* B, float* C", body, 128, "")


ALONG_K = """  TX_DYN_SMEM(smem);
  const tx::Global<const {t}> a(A, "A");
  const tx::Global<const {u}> b(B, "B");
  const tx::Global<{c}> c(C, "C");
  const tx::Shared<{t}> left(smem, {count_a}, "left");
  const tx::Shared<{u}> right(smem + {bytes_a}, {count_b}, "right");
  for (int i = tx::thread(); i < {count_a}; i += 128) left.store(i, a.load(i));
  for (int i = tx::thread(); i < {count_b}; i += 128) right.store(i, b.load(i));
  tx::Accumulator<64, {n}, {c}> sums;
  sums.fill(9);
  tx::fence_async_shared();
  tx::sync_block(0);
  const tx::MatrixTile<{t}, tx::Major::kK, 64, {swizzle_a}> x(left);
  const tx::MatrixTile<{u}, tx::Major::kK, {n}, {swizzle_b}> y(right);
  tx::wgmma_fence();
  tx::contract<{depth}>(sums, x, 0, 0, y, 0, 0, false);
  tx::wgmma_close();
  tx::wgmma_wait<0>();
  tx::settle(sums);
  for (int i = 0; i < {n} / 2; ++i) c.store({n} / 2 * tx::thread() + i, sums.get(i));"""
BYTES = 128  # of k


TURNED = """  TX_DYN_SMEM(smem);
  const tx::Global<const float> a(A, "A"), b(B, "B");
  const tx::Global<float> c(C, "C");
  const tx::Shared<float> left(smem, 2048, "left"), right(smem + 8192, {n} * 32, "right");
  for (int i = tx::thread(); i < 2048; i += 128) left.store(i, a.load(i));
  for (int i = tx::thread(); i < {n} * 32; i += 128) right.store(i, b.load(i));
  tx::Accumulator<64, {n}> sums;
  tx::WarpOperands<float, 1, 4> held;
  tx::fence_async_shared();
  tx::sync_block(0);
  const tx::WarpTile<float, tx::Major::kOuter, 32, 32> x(left);
  const tx::MatrixTile<float, tx::Major::kK, {n}, 128> y(right);
  TX_UNROLL
  for (int k = 0; k < 4; ++k) tx::load_a(held, k, x, 0, 16 * tx::warp(), 8 * k);
  tx::wgmma_fence();
  tx::contract<32>(sums, held, 0, y, 0, 0, false);
  tx::wgmma_close();
  tx::wgmma_wait<0>();
  tx::settle(sums);
  for (int i = 0; i < {n} / 2; ++i) c.store({n} / 2 * tx::thread() + i, sums.get(i));"""


def turned(n):
    """A product of f32 whose a lies across k, in panels [2][k][32], and comes by registers; with its text."""
    rng = np.random.default_rng(n)
    a, b = factors("f32", rng, (64, 32), (32, n))
    want = held(wgmma(TYPES["f32"], n, SharedOperand()).operands["c"].layout, as_taken(a) @ as_taken(b), 128)
    case = Case(
        name=f"wgmma f32 n{n}, a across k by registers",
        symbol=f"turned_{n}",
        inputs=(image(a.T, 128), image(b.T, 128)),
        want=(want.astype(np.float32),),
        block=128,
        shared_bytes=8192 + n * 128,
        arch="sm_90a",
    )
    return case, kernel(case.symbol, "const float* A, const float* B, float* C", TURNED.format(n=n), 128, "")


def factors(dtype, rng, *shapes):
    """Matrices whose products of so many terms are exact: of integers all values, of f32 also bits that are cut."""
    if TYPES[dtype].is_integer:
        ends = TYPES[dtype].integer_range
        return [rng.integers(*ends, shape, endpoint=True).astype(NUMPY[dtype]) for shape in shapes]
    found = [rng.integers(-8, 9, shape).astype(float) for shape in shapes]
    if dtype == "f32":
        found = [x * (1 + rng.integers(0, 4, x.shape) * 2.0**-13) for x in found]
    return [x.astype(NUMPY[dtype]) for x in found]


def as_taken(matrix):
    """What tensor cores multiply of it."""
    if matrix.dtype == np.float32:
        matrix = (matrix.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return matrix.astype(np.int64 if matrix.dtype.kind in "iu" else float)


def along_k(symbol, dtype, n, swizzle_a, swizzle_b, other="", rounds=False):
    """The same of types that lie along k alone, b of another. `rounds`: with sums that f8 keeps too few bits for."""
    rng, size, other = np.random.default_rng(n), TYPES[dtype].size_bytes, other or dtype
    depth = BYTES // size
    if rounds:
        a, b = (
            (rng.standard_normal((m, depth)) * 2.0 ** rng.integers(-9, 5, (m, depth))).astype(NUMPY[t])
            for m, t in ((64, dtype), (n, other))
        )  # some of them denormal or 0
    else:
        (a,), (b,) = factors(dtype, rng, (64, depth)), factors(other, rng, (n, depth))
    memories = [image(a, swizzle_a), image(b, swizzle_b)]
    operands = (SharedOperand(swizzle_bytes=swizzle) for swizzle in (swizzle_b, swizzle_a))
    sums = wgmma(TYPES[dtype], n, *operands, other=TYPES[other]).operands["c"]
    t, c, bytes_a = C_ELEMENT[dtype], C_ELEMENT[sums.dtype.name], -(-size * len(memories[0]) // 1024) * 1024
    want = as_taken(a) @ as_taken(b).T
    if rounds:
        want = aligned_sums(as_taken(a), as_taken(b), np.zeros((64, n)), (TYPES[dtype], TYPES[other]))
    text = ALONG_K.format(
        t=t, u=C_ELEMENT[other], c=c, n=n, depth=depth, count_a=len(memories[0]), count_b=len(memories[1]),
        bytes_a=bytes_a, swizzle_a=swizzle_a, swizzle_b=swizzle_b,
    )  # fmt: skip
    case = Case(
        name=f"wgmma {dtype} {other} n{n}, a {swizzle_a}, b {swizzle_b}{', rounded' if rounds else ''}",
        symbol=symbol,
        inputs=tuple(memories),
        want=(held(sums.layout, want, 128).astype(NUMPY[sums.dtype.name]),),
        block=128,
        shared_bytes=bytes_a + size * len(memories[1]),
        arch="sm_90a",
    )
    return case, kernel(symbol, f"const {t}* A, const {C_ELEMENT[other]}* B, {c}* C", text, 128, "")


STEPS, STAGES = 5, 2
PIPELINED = """  TX_DYN_SMEM(smem);
  constexpr int kTile = 64 * 64;
  const tx::Global<const tx::bf16> a(A, "A"), b(B, "B");
  const tx::Global<float> c(C, "C");
  tx::Pipe<{stages}, tx::PipeKind::kArrive> ab(smem + {stages} * 4 * kTile, "ab");
  if (tx::thread() == 0) ab.init(128, 4);
  tx::sync_block(0);
  if (tx::warpgroup() == 0) {{
    for (int k = 0; k < {steps}; ++k, ab.advance()) {{
      const tx::Shared<tx::bf16> left(smem + ab.stage * 4 * kTile, kTile, "left");
      const tx::Shared<tx::bf16> right(smem + ab.stage * 4 * kTile + 2 * kTile, kTile, "right");
      ab.acquire();
      for (int i = 8 * tx::thread(); i < kTile; i += 1024) {{
        tx::store(left, i, tx::load<8>(a, kTile * k + i));
        tx::store(right, i, tx::load<8>(b, kTile * k + i));
      }}
      tx::fence_async_shared();
      ab.commit();
    }}
  }} else {{
    tx::Accumulator<64, 64> sums;
    sums.fill(0.0f);
    for (int k = 0; k < {steps}; ++k, ab.advance()) {{
      const tx::Shared<tx::bf16> left(smem + ab.stage * 4 * kTile, kTile, "left");
      const tx::Shared<tx::bf16> right(smem + ab.stage * 4 * kTile + 2 * kTile, kTile, "right");
      const tx::MatrixTile<tx::bf16, tx::Major::kK, 64> x(left);
      const tx::MatrixTile<tx::bf16, tx::Major::kOuter, 64> y(right);
      ab.wait();
      tx::wgmma_fence();
      TX_UNROLL
      for (int i = 0; i < 64; i += 16) tx::wgmma(sums, x.at(0, i), y.at(i, 0));
      tx::wgmma_close();
      tx::wgmma_wait<1>();
      if (tx::lane() == 0) ab.release_after<1>();
    }}
    tx::wgmma_wait<0>();
    tx::settle(sums);
    for (int i = 0; i < 32; ++i) c.store(32 * (tx::thread() - 128) + i, sums.get(i));
  }}"""


def pipelined(symbol):
    """A warpgroup that fills a ring, another that multiplies: one group of products stays on the way."""
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-8, 9, (STEPS, 64, 64)).astype(float) for _ in range(2))
    memory = [np.concatenate([image(tile.astype(NUMPY["bf16"]), 128) for tile in tiles]) for tiles in (a, b)]
    sums = wgmma(TYPES["bf16"], 64, SharedOperand()).operands["c"].layout
    case = Case(
        name=f"wgmma of {STEPS} steps in a ring of {STAGES}",
        symbol=symbol,
        inputs=tuple(memory),
        want=(held(sums, (a @ b).sum(axis=0), 128).astype(np.float32),),
        block=256,
        shared_bytes=STAGES * 4 * 64 * 64 + 16 * STAGES,
        arch="sm_90a",
    )
    text = PIPELINED.format(steps=STEPS, stages=STAGES)
    return case, kernel(symbol, "const tx::bf16* A, const tx::bf16* B, float* C", text, 256, "")


def family(full=False):
    """All numbers of columns; every layout of the operands; a from registers."""
    made = []
    for n in range(8, 257, 8) if full else FEW:
        made.append(product(f"columns_{n}", "bf16", n, 128, "kK", 128, "kK"))
    for number, swizzle in enumerate((16, 32, 64, 128)):
        for major_a in ("kK", "kOuter"):
            for major_b in ("kK", "kOuter"):
                dtype = "f16" if number % 2 else "bf16"
                symbol = f"tiles_{swizzle}_{major_a}_{major_b}"
                other = 128 if swizzle == 16 else swizzle // 2
                made.append(product(symbol, dtype, 72, swizzle, major_a, other, major_b))
    for dtype in ("f16", "bf16"):
        for major_b in ("kK", "kOuter"):
            made.append(product(f"registers_{dtype}_{major_b}", dtype, 64, 0, "kK", 128, major_b))
    for dtype in ("f32", "i8", "u8", "f8e4m3", "f8e5m2"):
        for n, swizzle_a, swizzle_b in ((256, 128, 128), (8, 64, 128), (96, 32, 16)):
            made.append(along_k(f"along_k_{dtype}_{n}", dtype, n, swizzle_a, swizzle_b))
    for a, b in (("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3")):
        made.append(along_k(f"along_k_{a}_{b}", a, 64, 128, 128, b))
    for a, b in itertools.product(("f8e4m3", "f8e5m2"), repeat=2):
        made.append(along_k(f"rounded_{a}_{b}", a, 128, 128, 128, b, rounds=True))
    for n in (*range(8, 257, 8),) if full else ():
        made.append(along_k(f"along_k_columns_{n}", "f32", n, 128, 128))
        if n in (8, 24) or n % 16 == 0:
            made.append(along_k(f"along_k_integers_{n}", "i8", n, 128, 128))
    made += [turned(n) for n in (8, 256)]
    made.append(pipelined("ring"))
    text = INCLUDES + "".join(text for _, text in made)
    return Family(name="wgmma", cases=[case for case, _ in made], texts={"sm_90a": text})
