"""Wide accesses: every width and hint, chunks at ragged ends, and the funnel at every alignment."""

import numpy as np
from cases import HEADER, Case, Family, kernel

LOADS = ("kPlain", "kStream", "kBypass", "kReadOnly", "kNoAllocate", "kKeep")
STORES = ("kPlain", "kStream", "kBypass", "kNoAllocate")
TYPES = {"float": np.float32, "tx::bf16": np.uint16, "signed char": np.int8, "double": np.float64}
WIDTHS = [(t, n) for t in TYPES for n in (1, 2, 4, 8, 16) if 1 <= n * np.dtype(TYPES[t]).itemsize <= 16]


def data(count, kind):
    """Distinct, odd values."""
    return (np.arange(count) * 37 % 251 - 100 + np.arange(count) % 3).astype(kind)


def copies():
    """copy_<n>: element block * 32 * width + lane * width …, loaded and stored in one access each."""
    cases, texts = [], []
    for c, width in WIDTHS:
        for number, load in enumerate(LOADS):
            put = STORES[number % len(STORES)]
            name = f"copy_{len(cases)}"
            body = f"""  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  const int at = {width} * tx::thread();
  tx::store<tx::Cache::{put}>(y, at, tx::load<{width}, tx::Cache::{load}>(x, at));"""
            texts.append(kernel(name, f"const {c}* __restrict__ X, {c}* __restrict__ Y", body))
            x = data(32 * width, TYPES[c])
            cases.append(Case(name=f"{width} {c} {load} {put}", symbol=name, inputs=(x,), want=(x,)))
    return cases, texts


def shared():
    """Reversed through shared memory: written 16 bytes wide, read 4 bytes wide."""
    body = """  TX_DYN_SMEM(smem);
  const tx::Global<const tx::bf16> x(X, "X");
  const tx::Global<tx::bf16> y(Y, "Y");
  const tx::Shared<tx::bf16> tile(smem, 256, "tile");
  tx::store(tile, 8 * tx::lane(), tx::load<8>(x, 8 * (31 - tx::lane())));
  tx::sync_warp(0);
  for (int k = 0; k < 4; ++k) tx::store(y, 2 * tx::lane() + 64 * k, tx::load<2>(tile, 2 * tx::lane() + 64 * k));"""
    x = data(256, np.uint16)
    want = x.reshape(32, 8)[::-1].reshape(-1).copy()
    case = Case(name="through shared memory", symbol="wide_tile", inputs=(x,), want=(want,), shared_bytes=512)
    return case, kernel("wide_tile", "const tx::bf16* X, tx::bf16* Y", body)


ROWS = """  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  const long long row = tx::block_x(), begin = row * n, end = begin + n;
  const int past = static_cast<int>(reinterpret_cast<unsigned long long>(x.address(begin)) & 15) / {size};
  for (long long at = begin - past + {width} * tx::lane(); at < end; at += 32 * {width}) {{
    const tx::Wanted<{width}> wanted(begin - at, end - at);
    tx::store_wanted<tx::Cache::{put}>(y, at, tx::{load}(x, at, {sure}wanted{room}), wanted);
  }}"""


def ragged():
    """Rows of any length, copied in chunks that are counted from 16-byte boundaries of memory."""
    cases, texts = [], []
    for number, (c, load, put, room) in enumerate(
        (
            ("float", "load_wanted<4>", "kPlain", ""),
            ("tx::bf16", "load_wanted<8, tx::Cache::kNoAllocate>", "kStream", ""),
            ("signed char", "load_exactly<16, tx::Cache::kKeep>", "kPlain", ""),
            ("double", "load_inside<2>", "kPlain", ", 5 * n"),
            ("tx::bf16", "load_or_sure<8>", "kPlain", ""),
            ("float", "load_or_sure<4, tx::Cache::kNoAllocate>", "kPlain", ""),
            ("tx::bf16", "load_inside_or_sure<8>", "kPlain", ", 5 * n"),
            ("float", "load_inside_or_sure<4>", "kStream", ", 5 * n"),
        )
    ):
        size, symbol = np.dtype(TYPES[c]).itemsize, f"ragged_{number}"
        sure = f"begin - past + {16 // size}, " if "_or_sure" in load else ""  # the second chunk of a row
        texts.append(
            kernel(
                symbol,
                f"const {c}* X, {c}* Y, long long n",
                ROWS.format(c=c, size=size, width=16 // size, load=load, put=put, room=room, sure=sure),
            )
        )
        for n in (1, 3, 7, 16, 33, 61, 601):
            if sure and n < 2 * (16 // size):
                continue
            x = data(5 * n, TYPES[c]).reshape(5, n)
            cases.append(
                Case(name=f"rows of {n} {c} by {load}", symbol=symbol, inputs=(x,), want=(x,), sizes=(n,), grid=5)
            )
    return cases, texts


AROUND = """  const tx::Global<const tx::bf16> x(X, "X");
  const tx::Global<tx::bf16> y(Y, "Y");
  const int at = 8 * tx::lane();
  const tx::Wanted<8> wanted(begin - at, end - at);
  tx::store_wanted(y, at, tx::load_around<8>(x, at, wanted), wanted);"""


def around():
    """Chunks that all lie in an array, of which some, all or none are wanted."""
    x, cases = data(256, np.uint16), []
    for begin, end in ((0, 256), (3, 250), (96, 97), (40, 40)):
        want, before = np.zeros(256, np.uint16), np.zeros(256, np.uint16)
        want[begin:end] = x[begin:end]
        cases.append(
            Case(
                name=f"around {begin} to {end}",
                symbol="around_2",
                inputs=(x,),
                want=(want,),
                before=(before,),
                sizes=(begin, end),
            )
        )
    return cases, [kernel("around_2", "const tx::bf16* X, tx::bf16* Y, long long begin, long long end", AROUND)]


FUNNEL = """  const tx::Global<const {c}> x(X, "X");
  const tx::Global<{c}> y(Y, "Y");
  const long long at = {width} * tx::thread();
  // all of them exist
  if (shift + at + {width} <= n) tx::store(y, at, tx::chunks<{width}>(x, shift + at).shifted());
  // some of them do
  const tx::Wanted<{width}> wanted(2 - shift - at, n - 1 - shift - at);
  const tx::Vector<{c}, {width}> some = tx::chunks_wanted<{width}>(x, shift + at, wanted).shifted();
  const tx::Vector<{c}, {width}> own = tx::chunks_exactly<{width}>(x, shift + at, wanted, n).shifted();
  for (int i = 0; i < {width}; ++i) {{
    if (shift + at + i >= 2 && shift + at + i < n - 1) y.store(32 * {width} + at + i, (i % 2 == 0 ? some : own).get(i));
  }}"""


def funnels():
    """Pieces of 16 bytes that begin anywhere, between the first and the last element of an array."""
    cases, texts = [], []
    for c in TYPES:
        size = np.dtype(TYPES[c]).itemsize
        width, symbol = 16 // size, f"funnel_{size}"
        text = FUNNEL.format(c=c, width=width)
        texts.append(kernel(symbol, f"const {c}* X, {c}* Y, long long n, long long shift", text))
        count = 32 * width - 1
        for shift in range(width + 1):
            x = data(count, TYPES[c])
            before = np.zeros(64 * width, TYPES[c])
            want = before.copy()
            whole = (count - shift) // width * width
            want[: min(whole, 32 * width)] = x[shift : shift + whole]
            for i in range(32 * width):
                if 2 <= shift + i < count - 1:
                    want[32 * width + i] = x[shift + i]
            cases.append(
                Case(
                    name=f"{c} shifted by {shift}",
                    symbol=symbol,
                    inputs=(x,),
                    want=(want,),
                    before=(before,),
                    sizes=(count, shift),
                )
            )
    return cases, texts


def family():
    tile_case, tile_text = shared()
    cases, texts = [tile_case], [HEADER, '#include "texpr/wanted.cuh"\n', tile_text]
    for more_cases, more_texts in (copies(), ragged(), around(), funnels()):
        cases += more_cases
        texts += more_texts
    return Family(name="vectors", cases=cases, texts={"sm_80": "".join(texts)})
