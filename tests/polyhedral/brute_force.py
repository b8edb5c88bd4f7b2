"""A brute force that executes kernels instance by instance, with Python integers, and records every access.

It shares no code with the proofs that it is compared with.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from texpr.grammar import ast
from texpr.grammar.ast import AccOp, CompareOp, Expr, IndexExpr, IndexOp, Stmt

OPS: dict[IndexOp, Callable[[int, int], int]] = {
    IndexOp.ADD: lambda a, b: a + b,
    IndexOp.SUB: lambda a, b: a - b,
    IndexOp.MUL: lambda a, b: a * b,
    IndexOp.DIV: lambda a, b: a // b,
    IndexOp.MOD: lambda a, b: a % b,
    IndexOp.CEILDIV: lambda a, b: -(-a // b),
    IndexOp.MIN: min,
    IndexOp.MAX: max,
}
COMPARE: dict[CompareOp, Callable[[int, int], bool]] = {
    CompareOp.EQ: lambda a, b: a == b,
    CompareOp.NE: lambda a, b: a != b,
    CompareOp.LT: lambda a, b: a < b,
    CompareOp.LE: lambda a, b: a <= b,
    CompareOp.GT: lambda a, b: a > b,
    CompareOp.GE: lambda a, b: a >= b,
}
Environment = dict[str, int]


def number(expr: IndexExpr, env: Environment) -> int:
    match expr:
        case ast.IndexConst(value=value):
            return value
        case ast.IndexVar(name=name) | ast.SizeVar(name=name):
            return env[name]
        case ast.IndexBinary(op=op, left=left, right=right):
            return OPS[op](number(left, env), number(right, env))


def truth(condition: ast.Condition, env: Environment) -> bool:
    match condition:
        case ast.Always(value=value):
            return value
        case ast.Compare(op=op, left=left, right=right):
            return COMPARE[op](number(left, env), number(right, env))
        case ast.And(parts=parts):
            return all(truth(p, env) for p in parts)
        case ast.Or(parts=parts):
            return any(truth(p, env) for p in parts)
        case ast.Not(part=part):
            return not truth(part, env)


@dataclass(frozen=True)
class Touch:
    """One access at one instance. `key` tells elements apart, entries of locals included."""

    statement: str
    number: int
    mode: str
    op: AccOp | None
    key: tuple[object, ...]
    element: tuple[int, ...]
    loops: tuple[tuple[str, int, bool], ...]

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(value for _, value, _ in self.loops)

    @property
    def writes(self) -> bool:
        return self.mode != "read"

    def commutes(self, other: "Touch") -> bool:
        if not self.writes and not other.writes:
            return True
        return self.mode == other.mode == "accumulate" and self.op == other.op


@dataclass
class Execution:
    """All accesses of a run in program order, with what the run found out."""

    kernel: ast.Kernel
    sizes: Environment
    touches: list[Touch] = field(default_factory=list)
    outside: dict[tuple[str, int], Touch] = field(default_factory=dict)
    undefined: dict[tuple[str, int], Touch] = field(default_factory=dict)
    defined: set[tuple[object, ...]] = field(default_factory=set)
    entries: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    fresh: Iterator[int] = field(default_factory=itertools.count)

    def run(self) -> "Execution":
        self.block(self.kernel.body, dict(self.sizes), ())
        return self

    def block(self, body: tuple[Stmt, ...], env: Environment, loops: tuple[tuple[str, int, bool], ...]) -> None:
        for statement in body:
            match statement:
                case ast.Par() | ast.Seq():
                    for value in range(number(statement.extent, env)):
                        dim = (statement.index, value, isinstance(statement, ast.Par))
                        self.block(statement.body, {**env, statement.index: value}, (*loops, dim))
                case ast.If(condition=condition):
                    assert not isinstance(condition, ast.Read)
                    chosen = statement.then if truth(condition, env) else statement.orelse
                    self.block(chosen, env, loops)
                case ast.New(buffer=buffer):
                    self.entries[buffer] = next(self.fresh)
                case ast.Bind() | ast.Accumulate():
                    self.leaf(statement, env, loops)

    def leaf(self, leaf: ast.Bind | ast.Accumulate, env: Environment, loops: tuple[tuple[str, int, bool], ...]) -> None:
        mode = "write" if isinstance(leaf, ast.Bind) else "accumulate"
        op = None if isinstance(leaf, ast.Bind) else leaf.op
        accesses: list[tuple[str, tuple[ast.Subscript, ...], str, AccOp | None, bool]] = [
            (*read, "read", None, runs) for read, runs in self.reads(leaf.value, env, True)
        ]
        accesses.append((leaf.buffer, leaf.subscripts, mode, op, True))
        for place, (buffer, subscripts, kind, operator, runs) in enumerate(accesses):
            if not runs:
                continue
            element = tuple(number(s, env) for s in subscripts if not isinstance(s, ast.Gather))
            key = (buffer, self.entries.get(buffer), element)
            self.touch(Touch(leaf.id, place, kind, operator, key, element, loops), env)

    def reads(
        self, value: Expr, env: Environment, runs: bool
    ) -> Iterator[tuple[tuple[str, tuple[ast.Subscript, ...]], bool]]:
        match value:
            case ast.Read():
                yield (value.buffer, value.subscripts), runs
            case ast.Op(args=args):
                for arg in args:
                    yield from self.reads(arg, env, runs)
            case ast.Select(condition=condition, then=then, other=other):
                assert isinstance(condition, ast.Compare)
                chosen = truth(condition, env)
                yield from self.reads(then, env, runs and chosen)
                yield from self.reads(other, env, runs and not chosen)
            case _:
                return

    def touch(self, touch: Touch, env: Environment) -> None:
        self.touches.append(touch)
        buffer = self.kernel.buffer(str(touch.key[0]))
        shape = [number(extent, env) for extent in buffer.shape]
        place = (touch.statement, touch.number)
        if not all(0 <= c < n for c, n in zip(touch.element, shape, strict=True)):
            self.keep_least(self.outside, place, touch)
        if touch.mode == "write":
            self.defined.add(touch.key)
        elif touch.key not in self.defined:
            self.keep_least(self.undefined, place, touch)

    def keep_least(self, found: dict[tuple[str, int], Touch], place: tuple[str, int], touch: Touch) -> None:
        if place not in found or (touch.values, touch.element) < (found[place].values, found[place].element):
            found[place] = touch

    def conflicts(self) -> dict[tuple[str, int, str, int, str], tuple[Touch, Touch]]:
        """For accesses and a par, the least pair of instances that race, first iteration of the par first."""
        by_key: dict[tuple[object, ...], list[Touch]] = {}
        for touch in self.touches:
            by_key.setdefault(touch.key, []).append(touch)
        found: dict[tuple[str, int, str, int, str], tuple[Touch, Touch]] = {}
        for touches in by_key.values():
            for a, b in itertools.combinations(touches, 2):
                if a.commutes(b):
                    continue
                for (index, x, parallel), (other, y, _) in zip(a.loops, b.loops, strict=False):
                    if index != other:
                        break
                    if x == y:
                        continue
                    if parallel:
                        one, two = (a, b) if x < y else (b, a)
                        place = (*min((a.statement, a.number), (b.statement, b.number)),)
                        place = (*place, *max((a.statement, a.number), (b.statement, b.number)), index)
                        pair = found.get(place)
                        if pair is None or (one.values, two.values) < (pair[0].values, pair[1].values):
                            found[place] = (one, two)
                    break
        return found

    def dependences(self) -> set[tuple[str, int, tuple[int, ...], str, int, tuple[int, ...]]]:
        """Ordered pairs of instances that touch one element and do not commute, none of them carried by a par."""
        by_key: dict[tuple[object, ...], list[Touch]] = {}
        for touch in self.touches:
            by_key.setdefault(touch.key, []).append(touch)
        return {
            (a.statement, a.number, a.values, b.statement, b.number, b.values)
            for touches in by_key.values()
            for a, b in itertools.combinations(touches, 2)
            if not a.commutes(b) and (a.statement, a.values) != (b.statement, b.values)
        }


def execute(kernel: ast.Kernel, sizes: Environment) -> Execution:
    """A kernel at sizes, run by brute force."""
    return Execution(kernel, sizes).run()
