"""Squared differences from a value that an earlier sum of the same elements gives: both sums in one reading.

    par C c { mean[c] = (sum B b, H h { X[b, c, h] }) / f32(B * H) }
    par C c { s = sum B b, H h { (X[b, c, h] - mean[c]) * (X[b, c, h] - mean[c]) } … }

    par B b, C c {                                              rows H, each about its own mean
        sums[b, c] = sum H h { X[b, c, h] }
        means[b, c] = sums[b, c] / f32(H)
        offs[b, c] = sum H h { X[b, c, h] - means[b, c] }
        squares[b, c] = sum H h { (X[b, c, h] - means[b, c]) * (X[b, c, h] - means[b, c]) }
    }
    par C c { mean[c] = (sum B b { sums[b, c] }) / f32(B * H) }
    par C c { s = sum B b { squares + (means - mean[c]) * (2.0 * offs + f32(H) * (means - mean[c])) } … }

For every m and v the squares of X - v are those of X - m, and (m - v) times twice the sum of X - m and H times (m - v):
nothing is asked of `mean[c]`. Where m is the mean of a row nothing cancels, so that the error is that of the author's
sum, whose squares are of the same size (Chan, Golub and LeVeque, 1983). Infinities and NaN come where they came before:
the sums are the author's own.

Input: a kept program, and such sums of squares by id. Output: the program that reads the elements once for both. It is
proved too: what is read is what was read in the same loops, and each iteration writes elements of its own.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Bind,
    Buffer,
    Cast,
    Const,
    Expr,
    Fn,
    IndexExpr,
    IndexValue,
    IndexVar,
    Kernel,
    New,
    Node,
    Op,
    Par,
    Read,
    Role,
    Seq,
    SizeVar,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, index_names, product, same
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import BF16, F16, F32
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_least
from texpr.polyhedral.map.kept import Kept, rewritten
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.walk import adjacent, subscript_names

Place = tuple[IndexVar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """A sum over loops in a band of the kernel, whose number among the kernel's statements is `number`."""

    number: int
    band: tuple[Par, ...]
    loops: tuple[Seq, ...]
    leaf: Accumulate

    @property
    def around(self) -> tuple[Par | Seq, ...]:
        return (*self.band, *self.loops)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A sum, and one of squares of the differences of its terms from the value `about`; `outer` of the loops of each
    are over rows, and the others over the elements of one."""

    total: _Sum
    squares: _Sum
    about: Read
    outer: int


def to_centre(kept: Kept) -> frozenset[str]:
    """The sums of squares that could be made with an earlier sum, by id."""
    return frozenset(pair.squares.leaf.id for pair in _pairs(kept))


def centre(kept: Kept, ids: Collection[str]) -> Kept:
    """The program with these sums of squares made with an earlier sum. Raises E0307 where its model takes too many
    steps."""
    if not ids:
        return kept
    kernel, program = kept.proved.program.kernel, kept.proved.program
    names = Names((*names_taken(kernel), *(s.id for s in program.statements)))
    band = max(s.band for s in statements(kernel.body) if isinstance(s, Par))
    body, buffers = list(kernel.body), list(kernel.buffers)
    before: dict[int, tuple[Stmt, ...]] = {}
    for pair in (one for one in _pairs(kept) if one.squares.leaf.id in ids):
        band += 1
        rows = _Rows(pair, names, band)
        buffers += rows.buffers
        before[pair.total.number] = rows.stmts
        for one, value in ((pair.total, rows.term), (pair.squares, rows.square)):
            body[one.number] = _shortened(body[one.number], one, pair.outer, value)
    stmts = tuple(each for n, stmt in enumerate(body) for each in (*before.get(n, ()), stmt))
    found = rewritten(kept, replace(kernel, buffers=tuple(buffers), body=stmts))
    return replace(found, centred=frozenset(ids))


def _pairs(kept: Kept) -> Iterator[_Pair]:
    """Every pair, of sums that no other pair has."""
    kernel = kept.proved.program.kernel
    if kernel.attrs:
        return
    sums, taken = list(_sums(kernel)), set[str]()
    for squares in sums:
        for total in sums:
            if total.number < squares.number and not {total.leaf.id, squares.leaf.id} & taken:
                pair = _pair(kept, total, squares)
                if pair is not None:
                    taken |= {total.leaf.id, squares.leaf.id}
                    yield pair


def _sums(kernel: Kernel) -> Iterator[_Sum]:
    """Every sum of f32 by loops that a band of the kernel has, of which an author said nothing."""
    for number, stmt in enumerate(kernel.body):
        nest = adjacent(stmt) if isinstance(stmt, Par) else ()
        for inner in nest[-1].body if nest else ():
            loops = tuple(_loops(inner))
            leaf = loops[-1].body[0] if loops else None
            if not isinstance(leaf, Accumulate) or leaf.op is not AccOp.ADD or leaf.value.dtype != F32:
                continue
            around: tuple[Par | Seq, ...] = (*nest, *loops)
            plain = not any(one.attrs for one in (*around, leaf)) and not any(index_names(o.extent) for o in around)
            own = {loop.index for loop in loops}
            target = kernel.buffer(leaf.buffer)
            once = target.dtype == F32 and not target.attrs and not own & subscript_names(leaf.subscripts)
            if plain and once and not any(par.fully for par in nest):
                yield _Sum(number=number, band=nest, loops=loops, leaf=leaf)


def _loops(stmt: Stmt) -> Iterator[Seq]:
    """Loops right inside one another."""
    while isinstance(stmt, Seq) and len(stmt.body) == 1:
        yield stmt
        stmt = stmt.body[0]


def _pair(kept: Kept, total: _Sum, squares: _Sum) -> _Pair | None:
    """The two as a pair, where the second has the squares of differences of the first one's terms."""
    kernel = kept.proved.program.kernel
    alike = len(total.band) == len(squares.band) and len(total.loops) == len(squares.loops)
    pairs = list(zip(total.around, squares.around, strict=alike)) if alike else []
    read, value = _element(total.leaf.value), squares.leaf.value
    if not pairs or read is None or not all(same(a.extent, b.extent) for a, b in pairs):
        return None
    called = {b.index: IndexVar(name=a.index) for a, b in pairs}
    match value:
        case Op(fn=Fn.MUL, args=(Op(fn=Fn.SUB, args=(term, Read(dtype=dtype) as about)) as left, right)) if (
            left == right and dtype == F32 and _renamed(term, called) == total.leaf.value
        ):
            pass
        case _:
            return None
    moves = {loop.index for loop in squares.loops} & subscript_names(about.subscripts)
    apart = about.buffer not in (squares.leaf.buffer, read.buffer)
    array = kernel.buffer(read.buffer)
    constant = kept.proved.directions.get(array.name) == "in" and array.role is Role.PARAM and not array.flat
    outer = _outer(kernel, total, read)
    if moves or not apart or not constant or not outer:
        return None
    return _Pair(total=total, squares=squares, about=about, outer=outer)


def _element(value: Expr) -> Read | None:
    """The element whose value it is, in f32."""
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    if not isinstance(read, Read) or read.dtype not in (F32, F16, BF16):
        return None
    return read if all(isinstance(s, IndexExpr) for s in read.subscripts) else None


def _renamed(value: Expr, called: Mapping[str, IndexVar]) -> Expr:
    return rewrite(value, lambda node: called.get(node.name, node) if isinstance(node, IndexVar) else node)


def _outer(kernel: Kernel, total: _Sum, read: Read) -> int:
    """How many loops are over rows, where an element's last subscripts are those of the others, of which there are
    some; 0 where rows are none, or may be empty."""
    own, least = [IndexVar(name=loop.index) for loop in total.loops], size_least(kernel)
    pairs = zip(reversed(own), reversed(read.subscripts), strict=False)
    inner = min(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))), len(own) - 1)
    ends = [loop.extent for loop in total.loops[len(own) - inner :]]
    full = all((least.get(e.name, 0) if isinstance(e, SizeVar) else constant_value(e) or 0) >= 1 for e in ends)
    return len(own) - inner if inner and full else 0


class _Rows:
    """What each row has by itself: arrays, the band that fills them, and what the two sums add of a row."""

    def __init__(self, pair: _Pair, names: Names, band: int) -> None:
        self.pair, self.names, self.span = pair, names, pair.squares.leaf.span
        one = pair.total
        over: tuple[Par | Seq, ...] = (*one.loops[: pair.outer], *one.band)
        self.shape = tuple(loop.extent for loop in over)
        self.buffers: list[Buffer] = []
        self.stmts: tuple[Stmt, ...] = ()
        words = ("sums", "means", "offs", "squares")
        self.arrays = [self._new(f"{one.leaf.buffer}_{word}", self.shape) for word in words]
        self.count = Cast(operand=IndexValue(index=product(loop.extent for loop in one.loops[pair.outer :])), dtype=F32)
        called = {loop.index: IndexVar(name=names.fresh(loop.index)) for loop in over}
        here = tuple(called[loop.index] for loop in over)
        body = self._band(called, here)
        for loop in reversed(over):
            index = called[loop.index].name
            body = (Par(index=index, source_name=index, extent=loop.extent, band=band, body=body, span=one.leaf.span),)
        self.stmts = (*(New(buffer=name, span=self.span) for name in self.arrays), *body)

    @property
    def term(self) -> Expr:
        return self._read(self.arrays[0], self._place(self.pair.total))

    @property
    def square(self) -> Expr:
        """The squares of a row about the value that they should be about."""
        place, about = self._place(self.pair.squares), self.pair.about
        mean, off, square = (self._read(name, place) for name in self.arrays[1:])
        far = _op(Fn.SUB, mean, about)
        twice = _op(Fn.MUL, Const(value=2.0, dtype=F32), off)
        return _op(Fn.ADD, square, _op(Fn.MUL, far, _op(Fn.ADD, twice, _op(Fn.MUL, self.count, far))))

    def _place(self, one: _Sum) -> Place:
        over: tuple[Par | Seq, ...] = (*one.loops[: self.pair.outer], *one.band)
        return tuple(IndexVar(name=loop.index) for loop in over)

    def _band(self, called: dict[str, IndexVar], here: Place) -> tuple[Stmt, ...]:
        one, span = self.pair.total, self.pair.total.leaf.span
        total, mean, off, square = (self._new(word, ()) for word in ("total", "mean", "off", "square"))
        sums, means, offs, squares = self.arrays
        ratio = _op(Fn.DIV, self._read(total, ()), self.count)
        first, second = dict(called), dict(called)
        for loop in one.loops[self.pair.outer :]:
            first[loop.index], second[loop.index] = (IndexVar(name=self.names.fresh(loop.index)) for _ in range(2))
        far = _op(Fn.SUB, _renamed(one.leaf.value, second), self._read(mean, ()))
        adds = [(off, far), (square, _op(Fn.MUL, far, far))]
        news = (New(buffer=name, span=span) for name in (total, mean, off, square))
        return (
            *news,
            *(self._bind(name, (), Const(value=0.0, dtype=F32), span) for name in (total, off, square)),
            self._loop(first, [(total, _renamed(one.leaf.value, first))], span),
            self._bind(mean, (), ratio, self.span),
            self._loop(second, adds, self.span),
            *(
                self._bind(array, here, self._read(name, ()), self.span)
                for array, name in ((sums, total), (means, mean), (offs, off), (squares, square))
            ),
        )

    def _loop(self, called: Mapping[str, IndexVar], adds: list[tuple[str, Expr]], span: Span) -> Stmt:
        """A sum over a row."""
        body: tuple[Stmt, ...] = tuple(
            Accumulate(id=self.names.fresh(name), op=AccOp.ADD, buffer=name, subscripts=(), value=value, span=span)
            for name, value in adds
        )
        for loop in reversed(self.pair.total.loops[self.pair.outer :]):
            body = (replace(loop, index=called[loop.index].name, body=body),)
        return body[0]

    def _new(self, name: str, shape: tuple[IndexExpr, ...]) -> str:
        fresh = self.names.fresh(name)
        found = Buffer(name=fresh, dtype=F32, shape=shape, role=Role.LOCAL, source_name=fresh, span=self.span)
        self.buffers.append(found)
        return fresh

    def _bind(self, name: str, place: Place, value: Expr, span: Span) -> Stmt:
        return Bind(id=self.names.fresh(name), buffer=name, subscripts=place, value=value, span=span)

    def _read(self, name: str, place: Place) -> Read:
        return Read(buffer=name, subscripts=place, dtype=F32, span=self.span)


def _op(fn: Fn, *args: Expr) -> Expr:
    return Op(fn=fn, args=args, dtype=F32)


def _shortened(stmt: Stmt, one: _Sum, outer: int, value: Expr) -> Stmt:
    """The band with a sum over rows alone, of this value of each."""
    last = one.loops[outer - 1]

    def change(node: Node) -> Node:
        if isinstance(node, Seq) and node.index == last.index:
            return replace(node, body=(replace(one.leaf, value=value),))
        return node

    found = rewrite(stmt, change)
    assert isinstance(found, Par)
    return found
