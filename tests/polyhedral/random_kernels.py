"""Small random kernels of core nodes, for comparing the proofs with a brute force."""

import random

from texpr.grammar import ast
from texpr.grammar.ast import AccOp, CompareOp, Expr, Fn, IndexExpr, IndexOp, Role, Stmt
from texpr.grammar.types import F32

FILLS = (31, 32, 33, 63, 64, 65, 128)


class RandomPrograms:
    """Small programs, legal and illegal: nests of par and seq, triangles, ifs, selects, locals, several buffers.

    A tame program mostly writes one element per iteration of the pars and fills its locals first, so that about half
    of them are legal; a wild one is nearly always wrong, in several ways at once. With `fills`, one par of a nest may
    fill a warp or a block, or miss or pass it by one.
    """

    def __init__(self, rng: random.Random, sizes: tuple[str, ...] = (), fills: bool = False) -> None:
        self.rng = rng
        self.fills = fills
        self.filled: set[str] = set()
        self.sizes = sizes
        self.statements = 0
        self.loops = 0
        self.buffers: dict[str, ast.Buffer] = {}
        self.tame = rng.random() < 0.7
        self.parallel: set[str] = set()

    def kernel(self) -> ast.Kernel:
        for name in "ABC":
            rank = self.rng.choice((1, 1, 2))
            shape = tuple(
                self.extent(()) if self.rng.random() < 0.5 else self.const(self.rng.randint(3, 9)) for _ in range(rank)
            )
            direction = self.rng.choice((None, None, "out", "inout"))
            if self.tame:
                shape, direction = (self.const(60_000 if self.fills else 400),), None
            self.buffers[name] = ast.Buffer(
                name=name, dtype=F32, shape=shape, role=Role.PARAM, direction=direction, source_name=name
            )
        body = self.block((), 0, tuple(self.buffers))
        return ast.Kernel(
            name="random",
            buffers=tuple(self.buffers.values()),
            sizes=tuple(ast.Size(name=s) for s in self.sizes),
            body=body,
        )

    def const(self, value: int) -> ast.IndexConst:
        return ast.IndexConst(value=value)

    def binary(self, op: IndexOp, left: IndexExpr, right: IndexExpr) -> IndexExpr:
        return ast.IndexBinary(op=op, left=left, right=right)

    def block(self, indices: tuple[str, ...], depth: int, visible: tuple[str, ...]) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        if depth and self.rng.random() < 0.3:
            name = f"t{len(self.buffers)}"
            shape = () if self.rng.random() < 0.6 else (self.const(self.rng.randint(1, 4)),)
            self.buffers[name] = ast.Buffer(name=name, dtype=F32, shape=shape, role=Role.LOCAL, source_name=name)
            body.append(ast.New(buffer=name))
            if self.tame:
                body.append(self.fill(name, shape))
            visible = (*visible, name, name)
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            body.append(self.statement(indices, depth, visible))
        return tuple(body)

    def fill(self, name: str, shape: tuple[IndexExpr, ...]) -> Stmt:
        index, leaf_id = f"i{self.loops}", f"S{self.statements}"
        self.loops += 1
        self.statements += 1
        subscripts = tuple(ast.IndexVar(name=index) for _ in shape)
        zero = ast.Const(value=0.0, dtype=F32)
        bind = ast.Bind(id=leaf_id, buffer=name, subscripts=subscripts, value=zero)
        return ast.Seq(index=index, source_name=index, extent=shape[0], body=(bind,)) if shape else bind

    def own(self, indices: tuple[str, ...]) -> IndexExpr:
        """A flat subscript that differs between iterations of the pars."""
        result: IndexExpr = self.const(self.rng.choice((0, 0, 0, 1)))
        for place, index in enumerate(i for i in indices if i in self.parallel):
            result = self.binary(
                IndexOp.ADD, self.binary(IndexOp.MUL, ast.IndexVar(name=index), self.const(7**place)), result
            )
        return result

    def statement(self, indices: tuple[str, ...], depth: int, visible: tuple[str, ...]) -> Stmt:
        draw = self.rng.random()
        if len(indices) < 3 and (draw < 0.6 or not indices):
            index = f"i{self.loops}"
            self.loops += 1
            parallel = self.rng.random() < 0.6
            full = self.fills and parallel and not self.filled & set(indices) and self.rng.random() < 0.5
            if parallel:
                self.parallel.add(index)
            if full:
                self.filled.add(index)
            inner = self.block((*indices, index), depth + 1, visible)
            extent = self.const(self.rng.choice(FILLS)) if full else self.extent(indices)
            if parallel:
                return ast.Par(index=index, source_name=index, extent=extent, band=self.loops, body=inner)
            return ast.Seq(index=index, source_name=index, extent=extent, body=inner)
        if draw > 0.88 and depth < 4:
            orelse = self.block(indices, depth + 1, visible) if self.rng.random() < 0.5 else ()
            return ast.If(
                condition=self.condition(indices), then=self.block(indices, depth + 1, visible), orelse=orelse
            )
        name, subscripts = self.access(indices, visible, written=True)
        leaf_id = f"S{self.statements}"
        self.statements += 1
        value = self.value(indices, visible)
        if self.rng.random() < 0.3:
            op = self.rng.choice((AccOp.ADD, AccOp.ADD, AccOp.MAX))
            return ast.Accumulate(id=leaf_id, op=op, buffer=name, subscripts=subscripts, value=value)
        return ast.Bind(id=leaf_id, buffer=name, subscripts=subscripts, value=value)

    def extent(self, indices: tuple[str, ...]) -> IndexExpr:
        draw = self.rng.random()
        indices = tuple(i for i in indices if i not in self.filled)
        if indices and draw < 0.25:
            return self.binary(
                IndexOp.ADD, ast.IndexVar(name=self.rng.choice(indices)), self.const(self.rng.randint(0, 2))
            )
        if indices and draw < 0.35:
            return self.binary(
                IndexOp.SUB, self.const(self.rng.randint(2, 4)), ast.IndexVar(name=self.rng.choice(indices))
            )
        if self.sizes and draw < 0.8:
            size = ast.SizeVar(name=self.rng.choice(self.sizes))
            return self.rng.choice(
                (
                    size,
                    size,
                    self.binary(IndexOp.SUB, size, self.const(1)),
                    self.binary(IndexOp.CEILDIV, size, self.const(2)),
                )
            )
        return self.const(self.rng.choice((0, 1, 2, 3, 3, 4, 5)))

    def subscript(self, indices: tuple[str, ...]) -> IndexExpr:
        if not indices or self.rng.random() < 0.1:
            return self.const(self.rng.randint(0, 2))
        index: IndexExpr = ast.IndexVar(name=self.rng.choice(indices))
        match self.rng.randint(0, 11):
            case 0:
                return self.binary(IndexOp.ADD, index, self.const(1))
            case 1:
                return self.binary(IndexOp.SUB, index, self.const(1))
            case 2:
                return self.binary(IndexOp.DIV, index, self.const(2))
            case 3:
                return self.binary(IndexOp.MOD, index, self.const(2))
            case 4:
                return self.binary(IndexOp.SUB, self.const(4), index)
            case 5:
                return self.binary(IndexOp.MIN, index, self.const(2))
            case 6 | 7:
                other = ast.IndexVar(name=self.rng.choice(indices))
                return self.binary(
                    IndexOp.ADD, self.binary(IndexOp.MUL, index, self.const(self.rng.randint(1, 4))), other
                )
            case _:
                return index

    def access(
        self, indices: tuple[str, ...], visible: tuple[str, ...], written: bool = False
    ) -> tuple[str, tuple[IndexExpr, ...]]:
        name = self.rng.choice(visible)
        if self.tame and written and name == "A":
            name = "B"
        if self.tame and name in ("B", "C") and self.rng.random() < 0.95:
            return name, (self.own(indices),)
        return name, tuple(self.subscript(indices) for _ in self.buffers[name].shape)

    def value(self, indices: tuple[str, ...], visible: tuple[str, ...]) -> Expr:
        reads: list[Expr] = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            name, subscripts = self.access(indices, visible)
            read: Expr = ast.Read(buffer=name, subscripts=subscripts, dtype=F32)
            if self.rng.random() < 0.2 and indices:
                zero = ast.Const(value=0.0, dtype=F32)
                read = ast.Select(condition=self.compare(indices), then=read, other=zero, dtype=F32)
            reads.append(read)
        if not reads:
            return ast.Const(value=1.0, dtype=F32)
        return reads[0] if len(reads) == 1 else ast.Op(fn=Fn.MUL, args=tuple(reads), dtype=F32)

    def compare(self, indices: tuple[str, ...]) -> ast.Compare:
        op = self.rng.choice(list(CompareOp))
        left = ast.IndexVar(name=self.rng.choice(indices))
        right = self.const(self.rng.randint(0, 3))
        return ast.Compare(op=op, left=left, right=right)

    def condition(self, indices: tuple[str, ...]) -> ast.Condition:
        first = self.compare(indices)
        match self.rng.randint(0, 4):
            case 0:
                return ast.And(parts=(first, self.compare(indices)))
            case 1:
                return ast.Or(parts=(first, self.compare(indices)))
            case 2:
                return ast.Not(part=first)
            case _:
                return first


def random_kernel(seed: int, sizes: tuple[str, ...] = (), *, fills: bool = False) -> ast.Kernel:
    """A random kernel from a seed; with `sizes`, extents may name them."""
    return RandomPrograms(random.Random(seed), sizes, fills).kernel()
