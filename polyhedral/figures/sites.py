"""Sites: every access of a launch to shared or global memory, with all that its address depends on.

`Site.address` is the address in elements over the names of the launch's variables: hardware digits, loop indices, and
what only a run knows (turns). Sizes are at the representative values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from texpr.grammar.ast import (
    Accumulate,
    Always,
    And,
    Atomic,
    Compare,
    CompareOp,
    Condition,
    Gather,
    IndexExpr,
    IndexOp,
    IndexVar,
    Leaf,
    Not,
    Or,
    Read,
    Subscript,
)
from texpr.grammar.index.expr import ONE, ZERO, combine, const, constant_value, multiply, negation, substitute
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.figures.value import By
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.between import Turn
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import (
    Contract,
    Copy,
    Elementwise,
    Generic,
    Operator,
    Reduce,
    Scan,
    Unload,
    Unused,
)
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.mapped.views import Box, Within
from texpr.polyhedral.mapped.walks import Path, branches
from texpr.polyhedral.walk import read_accesses, subscript_reads, written

LOOK_BACK = "blocks hand it on by flags, as often as they must wait"
PRODUCT = "the tensor cores read and write tiles by descriptors and fragments, not lane by lane"
ENGINE = "the copy engine moves boxes of {} elements, whole lines at a time"
DATA = "data tells the address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A loop index that runs from 0 to below its extent, an expression of what is around it."""

    name: str
    extent: IndexExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One access. `address` is None where it cannot be told, and `why` says so. A lane is active where all of `where`
    hold, and, since every access is proved to be in bounds, where each of `inside` is below its extent; `unasked`
    counts conditions that data decides. `reach` are the elements of a lane's request that are wanted, where not all
    are: with `singly` a lane that wants only some asks for each by itself. `alone`: one thread of a block or of a part
    makes it; `shared_by`: one of so many blocks."""

    path: Path
    span: Span
    statement: str
    number: int
    mode: str
    buffer: MappedBuffer
    subscripts: tuple[Subscript, ...]
    width: int
    funnel: bool
    address: IndexExpr | None
    where: tuple[Condition, ...]
    inside: tuple[tuple[IndexExpr, IndexExpr], ...]
    reach: tuple[IndexExpr, IndexExpr] | None
    singly: bool
    loops: tuple[Variable, ...]
    alone: bool
    unasked: int
    warps: int
    shared_by: IndexExpr
    by: By
    why: str


@dataclass(slots=True)
class _Scope:
    """What is known at a place of the tree."""

    known: dict[str, IndexExpr]
    where: tuple[Condition, ...] = ()
    loops: tuple[Variable, ...] = ()
    unasked: int = 0
    once: bool = False
    warps: int = 0
    shared_by: IndexExpr = ONE

    def inside(self) -> "_Scope":
        return replace(self, known=dict(self.known))

    def value(self, expr: IndexExpr) -> IndexExpr:
        return substitute(expr, lambda leaf: self.known.get(leaf.name))

    def says(self, condition: Condition) -> Condition:
        return conditioned(condition, self.value)

    def loop(self, index: str, extent: IndexExpr) -> None:
        self.known.pop(index, None)
        self.loops = (*self.loops, Variable(name=index, extent=self.value(extent)))


def conditioned(condition: Condition, value: Callable[[IndexExpr], IndexExpr]) -> Condition:
    """The condition with each of its expressions put through `value`."""
    match condition:
        case Compare(left=left, right=right):
            return replace(condition, left=value(left), right=value(right))
        case And(parts=parts) | Or(parts=parts):
            return replace(condition, parts=tuple(conditioned(part, value) for part in parts))
        case Not(part=part):
            return replace(condition, part=conditioned(part, value))
        case Always():
            return condition


@dataclass(slots=True)
class Sites:
    """The sites of one launch, in execution order. `sizes` are representative values of the free sizes, `hosts` of the
    host indices that the launch is passed."""

    launch: Launch
    buffers: Mapping[str, MappedBuffer]
    sizes: Mapping[str, int]
    warp_size: int
    cpu: bool = False
    found: list[Site] = field(default_factory=list)

    def walk(self) -> list[Site]:
        known: dict[str, IndexExpr] = {name: const(value) for name, value in self.sizes.items()}
        warps = max(1, -(-self.launch.threads // self.warp_size))
        self._nodes(self.launch.body, (), _Scope(known, warps=warps))
        return self.found

    def _nodes(self, body: Sequence[Node], path: Path, scope: _Scope) -> None:
        for number, node in enumerate(body):
            self._node(node, (*path, number), scope)

    def _node(self, node: Node, path: Path, scope: _Scope) -> None:
        match node:
            case Define():
                scope.known[node.index] = scope.value(node.value)
            case Lead(index=index, of=of, bytes=bytes):
                scope.known[index] = self._lead(of.buffer, of.plain, bytes, scope)
            case Turn(index=index):
                scope.loop(index, _blocks(self.launch))
            case Loop(index=index, extent=extent, body=body):
                inner = scope.inside()
                inner.loop(index, extent)
                self._nodes(body, (*path, 0), inner)
            case Guard(condition=Read() as condition):
                self._read(condition, path, scope, node.once)
                for branch, inside in enumerate(branches(node)):
                    inner = scope.inside()
                    inner.unasked, inner.once = scope.unasked + 1, scope.once or node.once
                    self._nodes(inside, (*path, branch), inner)
            case Guard(condition=Compare() | And() | Or() | Not() | Always() as condition):
                for branch, (inside, holds) in enumerate(((node.body, condition), (node.orelse, negation(condition)))):
                    inner = scope.inside()
                    inner.where, inner.once = (*scope.where, scope.says(holds)), scope.once or node.once
                    self._nodes(inside, (*path, branch), inner)
            case Parts(parts=parts):
                for branch, part in enumerate(parts):
                    inner = scope.inside()
                    inner.warps = part.warps
                    self._nodes(part.body, (*path, branch), inner)
            case _ if isinstance(node, Operator):
                self._operator(node, path, scope)
            case Last(n=n, body=body):
                inner = scope.inside()
                inner.shared_by = multiply(scope.shared_by, scope.value(n))
                self._nodes(body, (*path, 0), inner)
            case _:
                pass

    def _lead(self, buffer: str, subscripts: tuple[IndexExpr, ...] | None, bytes: int, scope: _Scope) -> IndexExpr:
        """The elements behind a line of memory, of an array that begins at one."""
        if subscripts is None:
            return ZERO
        placed = self.buffers[buffer]
        at = scope.value(offset(placed.layout, [scope.value(s) for s in subscripts]))
        return combine(IndexOp.MOD, at, const(max(1, bytes // placed.dtype.size_bytes)))

    def _read(self, condition: Read, path: Path, scope: _Scope, once: bool) -> None:
        made = _Made(self, f"if@{'.'.join(map(str, path))}", path, scope, condition.span, alone=once or scope.once)
        for read in (*subscript_reads(condition.subscripts), condition):
            made.add("read", read.buffer, read.subscripts)

    def _operator(self, node: Operator, path: Path, scope: _Scope) -> None:
        inner = scope.inside()
        made = _Made(self, node.id, path, inner, node.span, alone=scope.once or node.unused is Unused.ONCE)
        match node:
            case Generic(leaf=leaf):
                made.leaf(leaf, node.atomic)
            case Elementwise(leaves=leaves, over=over):
                made.box(over)
                for leaf in leaves:
                    made.leaf(leaf, False)
            case Copy():
                made.copy(node)
            case Reduce() | Scan():
                made.box(node.over)
                for read in node.reads:
                    made.add("read", read.buffer, read.subscripts)
                for buffer, subscripts in node.writes:
                    made.add("write", buffer, subscripts)
            case Contract() | Unload() | LookBack():
                made.by, made.why = By.TENSOR_CORES, PRODUCT
                if isinstance(node, LookBack):
                    made.by, made.why = By.PROTOCOL, LOOK_BACK
                for read in node.reads:
                    made.add("read", read.buffer, read.subscripts)
                for buffer, subscripts in node.writes:
                    made.add("write", buffer, subscripts)


@dataclass(slots=True)
class _Made:
    """The sites of one operator in the making."""

    sites: Sites
    statement: str
    path: Path
    scope: _Scope
    span: Span
    alone: bool
    by: By = By.THREADS
    why: str = ""
    width: int = 1
    funnel: bool = False
    reach: tuple[IndexExpr, IndexExpr] | None = None
    exact: bool = False
    count: int = 0

    def box(self, over: Box) -> None:
        for index, extent in over:
            self.scope.loop(index, extent)

    def leaf(self, leaf: Leaf, atomic: bool) -> None:
        for read in read_accesses(leaf):
            self.add("read", read.buffer, read.subscripts)
        target = written(leaf)
        if target is not None:
            indivisible = atomic or isinstance(leaf, Atomic)
            self.add("atomic" if indivisible else "update" if isinstance(leaf, Accumulate) else "write", *target)

    def copy(self, node: Copy) -> None:
        """A wide access moves the elements of the last index together."""
        engine = node.completion in (Completion.TRANSACTION, Completion.BULK)
        wide = node.access not in (Access.EACH, Access.APART) and bool(node.over)
        extent = constant_value(self.scope.value(node.over[-1][1])) if wide else None
        self.box(node.over[:-1] if extent is not None else node.over)
        if extent is not None:
            self.width, self.funnel = extent, node.access is Access.FUNNEL
            self.scope.known[node.over[-1][0]] = ZERO
        if node.within is not None:
            self._within(node.within, node.over[-1][0], extent)
        if engine:
            extents = [self.scope.value(extent) for _, extent in node.over]
            box = " x ".join(in_words(extent) for extent in extents)
            self.by, self.why, self.alone = By.ENGINE, ENGINE.format(box), True
        before, after = subscript_reads(node.source.subscripts), subscript_reads(node.target.subscripts)
        for read in (*before, node.source.read(node.span), *after):
            self.add("read", read.buffer, read.subscripts)
        self.add("write", node.target.buffer, node.target.subscripts)

    def _within(self, within: Within, last: str, width: int | None) -> None:
        begin, end = self.scope.value(within.begin), self.scope.value(within.end)
        if width is not None:
            self.reach, self.exact = (begin, end), within.exact
            return
        at = IndexVar(name=last)
        self.scope.where = (
            *self.scope.where,
            Compare(op=CompareOp.LE, left=begin, right=at),
            Compare(op=CompareOp.LT, left=at, right=end),
        )

    def add(self, mode: str, name: str, subscripts: tuple[Subscript, ...]) -> None:
        """An access; those of registers are counted, and have no site."""
        number, placed, scope = self.count, self.sites.buffers[name], self.scope
        self.count += 1
        if placed.memory is Memory.REG:
            return
        plain = [scope.value(s) for s in subscripts if not isinstance(s, Gather)]
        gathered = len(plain) < len(subscripts)
        address = None if gathered else scope.value(offset(placed.layout, plain))
        inside = () if gathered or self.reach else tuple(zip(plain, map(scope.value, placed.shape), strict=True))
        site = Site(
            path=self.path,
            span=self.span,
            statement=self.statement,
            number=number,
            mode=mode,
            buffer=placed,
            subscripts=subscripts,
            width=self.width,
            funnel=self.funnel and placed.memory is Memory.GLOBAL,
            address=address,
            where=scope.where,
            inside=inside,
            reach=self.reach,
            singly=self.reach is not None and (mode == "write" or (self.exact and not self.funnel)),
            loops=scope.loops,
            alone=self.alone,
            unasked=scope.unasked,
            warps=scope.warps,
            shared_by=scope.shared_by,
            by=By.CORE if self.sites.cpu else self.by,
            why=DATA if gathered else self.why,
        )
        self.sites.found.append(site)


def _blocks(launch: Launch) -> IndexExpr:
    """How many blocks a launch has."""
    total: IndexExpr = launch.grid[0]
    for extent in launch.grid[1:]:
        total = multiply(total, extent)
    return total
