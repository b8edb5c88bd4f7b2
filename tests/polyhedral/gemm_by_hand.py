"""A product of matrices for sm_90a, written by hand as a value of the project's types: C = A * B^T in bf16, f32 sums.

A block has a tile of 128 x 256 of C and goes over k in steps of 64. Its first warpgroup brings A and B into a ring of
four slots, the other two multiply 64 rows each, one product on the way while the next is waited for. Two blocks of a
cluster stand one below the other and share the tile of B, of which each brings half to both. Blocks stay for several
tiles, which come in bands of eight clusters; sums go back by stmatrix and bulk stores of 16 rows and 64 columns.
"""

from dataclasses import dataclass, replace

from graphs import barrier, condition, once, order, part, parts, when
from stages import proved

from texpr.grammar.ast import IndexExpr, IndexOp, IndexVar, Role, Subscript
from texpr.grammar.index.expr import add, combine, const, minimum, multiply, subtract
from texpr.grammar.source import Span
from texpr.grammar.types import BF16, F32, DType
from texpr.polyhedral.layout.make import row_major, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.atoms import SharedOperand, store_matrices, wgmma
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Contract, Copy, Unload
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Close,
    Commit,
    End,
    Fence,
    FenceKind,
    GroupKind,
    Pipe,
    PipeKind,
    Release,
    Until,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Define, Loop, Node, Part
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.target import parse_target

TEXT = """kernel gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]) {
    par M i, N j {
        new s: f32
        s = 0
        seq K k { s += f32(A[i, k]) * f32(B[j, k]) }
        C[i, j] = bf16(s)
    }
}"""
GROUP_M, TILE_N, TILE_K = 64, 256, 64
STAGES, RANKS, BAND = 4, 2, 8
CONSUMERS, BUFFERS, CHUNK = 2, 2, 64


@dataclass(frozen=True)
class Shape:
    """The sizes of a product, the blocks that a launch has at most, the columns of a tile and the warpgroups that
    multiply its rows, the slots of the ring and of each warp's way back."""

    m: int
    n: int
    k: int
    blocks: int = 132
    columns: int = TILE_N
    consumers: int = CONSUMERS
    stages: int = STAGES
    buffers: int = BUFFERS

    @property
    def rows(self) -> int:
        """Of a tile."""
        return GROUP_M * self.consumers

    @property
    def down(self) -> int:
        """Clusters of tiles from top to bottom."""
        return -(-self.m // (self.rows * RANKS))

    @property
    def across(self) -> int:
        return -(-self.n // self.columns)

    @property
    def steps(self) -> int:
        return -(-self.k // TILE_K)

    @property
    def clusters(self) -> int:
        """Of the launch."""
        return min(self.blocks // RANKS, self.down * self.across)


def var(name: str) -> IndexVar:
    return IndexVar(name=name)


def let(name: str, value: IndexExpr) -> Define:
    return Define(index=name, digits=(), offset=value)


def digit(name: str, place: Place, radix: int, stride: int = 1) -> Digit:
    return Digit(
        name=f"{name}_{place.value[:4]}", index=name, weight=1, radix=const(radix), stride=const(stride), place=place
    )


def at(name: str, digit_: Digit) -> Define:
    return Define(index=name, digits=(digit_,))


def view(buffer: str, dtype: DType, *subscripts: Subscript) -> View:
    return View(buffer=buffer, subscripts=subscripts, dtype=dtype)


def below(index_: str, extent: int) -> tuple[str, IndexExpr]:
    return index_, const(extent)


def tile_order(shape: Shape) -> tuple[Node, ...]:
    """The tile of a turn: bands of some clusters of rows, in each of them column after column."""
    number = var("tile")
    per = BAND * shape.across
    band, inside = combine(IndexOp.DIV, number, const(per)), combine(IndexOp.MOD, number, const(per))
    first = multiply(const(BAND), var("band"))
    height = minimum(subtract(const(shape.down), first), const(BAND))
    row = add(first, combine(IndexOp.MOD, inside, var("height")))
    tall = add(multiply(const(RANKS), row), var("rank"))
    return (
        let("tile", add(multiply(const(shape.clusters), var("turn")), var("cluster"))),
        let("band", band),
        let("height", height),
        let("i0", multiply(const(shape.rows), tall)),
        let("j0", multiply(const(shape.columns), combine(IndexOp.DIV, inside, var("height")))),
    )


def _line(span: Span, begin: str) -> Span:
    """The line of the text that begins so."""
    start = span.source.text.index(begin)
    return Span(source=span.source, start=start, end=start + len(begin))


def _with_registers(part_: Part, registers: int) -> Part:
    return replace(part_, registers=registers)


def _local(name: str, dtype: DType, memory: Memory, layout: Layout) -> MappedBuffer:
    """A tile of a block, at a multiple of what its swizzle repeats after, or of a warpgroup's threads."""
    shared = memory is Memory.SHARED
    return MappedBuffer(
        name=name,
        dtype=dtype,
        memory=memory,
        scope=Scope.BLOCK if shared else Scope.THREAD,
        layout=layout,
        role=Role.LOCAL,
        align=1024 if shared else 16,
    )


def gemm(shape: Shape) -> MappedProgram:
    """The product of these sizes."""
    base = proved(TEXT, M=shape.m, N=shape.n, K=shape.k)
    lines = {leaf: _line(base.program.kernel.span, leaf) for leaf in ("s +=", "C[")}
    step, sums = lines["s +="], lines["C["]
    tiles = shape.down * shape.across
    ranks = tuple(tuple(range(RANKS)) for _ in range(RANKS))
    pipe = Pipe(
        name="ring",
        stages=shape.stages,
        kind=PipeKind.TRANSACTION,
        scope=Scope.CLUSTER,
        buffers=("a", "b"),
        producers=(End(part="load", ranks=ranks),),
        consumers=(End(part="multiply", ranks=ranks),),
        commits=1,
        releases=RANKS * shape.consumers * 4,
        bytes=(shape.rows + shape.columns) * TILE_K * 2,
    )
    rank, block = digit("rank", Place.CLUSTER, RANKS), digit("cluster", Place.GRID_X, shape.clusters, RANKS)
    group, warp = digit("g", Place.WARPGROUP, shape.consumers), digit("w", Place.WARP, 4)
    lane = digit("lane", Place.LANE, 32)
    turns = combine(IndexOp.CEILDIV, subtract(const(tiles), var("cluster")), const(shape.clusters))
    x, y, k = var("x"), var("y"), var("k")
    k0 = multiply(const(TILE_K), k)

    def over_tiles(*body: Node) -> Loop:
        return Loop(index="turn", extent=turns, body=(*tile_order(shape), *body), span=sums)

    def over_k(*body: Node) -> Loop:
        return Loop(index="k", extent=const(shape.steps), body=body, span=step)

    half = shape.columns // RANKS
    shared_b = add(multiply(const(half), var("rank")), x)
    load = once(
        over_tiles(
            over_k(
                Acquire(pipe="ring"),
                Copy(
                    id="S0",
                    source=view("A", BF16, add(var("i0"), x), add(k0, y)),
                    target=view("a", BF16, x, y),
                    over=(below("x", shape.rows), below("y", TILE_K)),
                    completion=Completion.TRANSACTION,
                    pipe="ring",
                    own_block=True,
                    clipped=True,
                    span=step,
                ),
                Copy(
                    id="S1",
                    source=view("B", BF16, add(var("j0"), shared_b), add(k0, y)),
                    target=view("b", BF16, shared_b, y),
                    over=(below("x", half), below("y", TILE_K)),
                    completion=Completion.TRANSACTION,
                    pipe="ring",
                    clipped=True,
                    span=step,
                ),
                Commit(pipe="ring"),
            )
        )
    )
    m, n, depth = var("m"), var("n"), var("d")
    product = Contract(
        id="S2",
        c=view("c", F32, m, n),
        a=view("a", BF16, add(multiply(const(64), var("g")), m), depth),
        b=view("b", BF16, n, depth),
        over=(below("m", 64), below("n", shape.columns), below("d", TILE_K)),
        atom=wgmma(BF16, shape.columns, SharedOperand(), SharedOperand()),
        accumulate=condition("k > 0"),
        span=step,
    )
    chunk = multiply(const(CHUNK), var("q"))
    row = add(multiply(const(64), var("g")), multiply(const(16), var("w")))
    slot = (var("g"), var("w"), combine(IndexOp.MOD, var("q"), const(shape.buffers)))
    store = Loop(
        index="q",
        extent=const(shape.columns // CHUNK),
        unroll=True,
        span=sums,
        body=(
            when("lane == 0", WaitGroup(kind=GroupKind.BULK, behind=shape.buffers - 1, until=Until.READ)),
            barrier("warp"),
            Unload(
                id="S3",
                source=view("c", F32, add(multiply(const(16), var("w")), x), add(chunk, y)),
                target=view("d", BF16, *slot, x, y),
                over=(below("x", 16), below("y", CHUNK)),
                atom=store_matrices(BF16, 4),
                span=sums,
            ),
            Fence(kind=FenceKind.ASYNC_PROXY),
            barrier("warp"),
            when(
                "lane == 0",
                Copy(
                    id="S4",
                    source=view("d", BF16, *slot, x, y),
                    target=view("C", BF16, add(add(var("i0"), row), x), add(add(var("j0"), chunk), y)),
                    over=(below("x", 16), below("y", CHUNK)),
                    completion=Completion.BULK,
                    clipped=True,
                    span=sums,
                ),
                Close(kind=GroupKind.BULK),
            ),
        ),
    )
    multiply_part = (
        at("g", group),
        at("w", warp),
        over_tiles(
            over_k(
                Wait(pipe="ring"),
                Fence(kind=FenceKind.WGMMA),
                product,
                Close(kind=GroupKind.WGMMA),
                WaitGroup(kind=GroupKind.WGMMA, behind=1),
                when("k > 0", when("lane == 0", Release(pipe="ring", behind=1))),
            ),
            WaitGroup(kind=GroupKind.WGMMA),
            when("lane == 0", Release(pipe="ring")),
            store,
        ),
        when("lane == 0", WaitGroup(kind=GroupKind.BULK, until=Until.READ)),
    )
    body = (
        at("rank", rank),
        at("cluster", block),
        at("lane", lane),
        once(Fence(kind=FenceKind.BARRIER_INIT)),
        barrier("cluster"),
        parts(
            _with_registers(part("load", 4, load), 40),
            _with_registers(part("multiply", 4 * shape.consumers, *multiply_part), 232),
        ),
        barrier("cluster"),
    )
    launch = Launch(
        name="gemm_0",
        grid=(const(RANKS * shape.clusters), const(1), const(1)),
        cluster=(RANKS, 1, 1),
        threads=128 * (1 + shape.consumers),
        digits=(block, rank, group, warp, lane),
        body=body,
        pipes=(pipe,),
        orders=(
            order("S0", "S2", "a"),
            order("S1", "S2", "b", scope="cluster"),
            order("S2", "S0", "a", "anti", after="k", distance=shape.stages),
            order("S2", "S1", "b", "anti", "cluster", after="k", distance=shape.stages),
            order("S2", "S3", "c", scope="warp"),
            order("S3", "S4", "d", scope="warp"),
            order("S4", "S3", "d", "anti", "warp", after="q", distance=shape.buffers),
        ),
        span=base.program.kernel.span,
    )
    buffers = {
        b.name: MappedBuffer(
            name=b.name, dtype=b.dtype, memory=Memory.GLOBAL, scope=Scope.GRID, layout=row_major(b.shape), role=b.role
        )
        for b in base.program.kernel.params
    }
    for name, extents in (
        ("a", (shape.rows, TILE_K)),
        ("b", (shape.columns, TILE_K)),
        ("d", (shape.consumers, 4, shape.buffers, 16, CHUNK)),
    ):
        buffers[name] = _local(name, BF16, Memory.SHARED, canonical(swizzled(extents, 2, 128)))
    buffers["c"] = _local("c", F32, Memory.REG, product.atom.operands["c"].layout)
    return MappedProgram(
        kernel=base.program.kernel,
        proved=base,
        target=parse_target("cuda:sm_90a"),
        candidate=Candidate(launches={}),
        host=(launch,),
        buffers=buffers,
    )
