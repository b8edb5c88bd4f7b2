"""What a schedule must keep, by enumeration: every instance of two programs, in order, with every element it touches.

It shares no code with the rules of the moves or with the check of schedules, which are compared with it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, pairwise

from brute_force import Touch, execute, number

from texpr.grammar.ast import Accumulate, Bind, Kernel, New, Par, Seq, Stmt
from texpr.grammar.core import children, statements
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Precompute,
    Residues,
    Sink,
    Swap,
)
from texpr.polyhedral.schedule.origins import Origins, origin_of
from texpr.polyhedral.schedule.precompute import factor_of
from texpr.polyhedral.schedule.tree import BLOCKS, label_of

Instance = tuple[str, tuple[tuple[str, int], ...]]


def keeps(before: Kernel, after: Kernel, origins: Origins, sizes: Mapping[str, int]) -> str | None:
    """What the second program does otherwise than the first at these sizes; None where nothing."""
    old, new = execute(before, dict(sizes)), execute(after, dict(sizes))
    loops = dict(_loops(before.body, ()))
    was: dict[Instance, list[Touch]] = {}
    for touch in old.touches:
        was.setdefault((touch.statement, tuple((name, v) for name, v, _ in touch.loops)), []).append(touch)
    now: dict[Instance, list[Touch]] = {}
    place: dict[Instance, int] = {}
    for at, touch in enumerate(new.touches):
        origin = origin_of(origins, touch.statement)
        env = {**sizes, **{name: value for name, value, _ in touch.loops}}
        values = tuple((name, number(origin.value(name), env)) for name in loops[origin.statement])
        instance = (origin.statement, values)
        if instance in now and now[instance][0].loops != touch.loops:
            return f"{instance} runs twice"
        now.setdefault(instance, []).append(touch)
        place.setdefault(instance, at)
    if was.keys() != now.keys():
        return f"{sorted(was.keys() ^ now.keys())[0]} runs in one of the two"
    names: dict[tuple[object, ...], tuple[object, ...]] = {}
    for instance, touches in was.items():
        others = now[instance]
        if [(t.number, t.mode, t.op) for t in touches] != [(t.number, t.mode, t.op) for t in others]:
            return f"{instance} makes other accesses"
        for a, b in zip(touches, others, strict=True):
            if (a.key[1] is None and a.key != b.key) or names.setdefault(a.key, b.key) != b.key:
                return f"{instance} touches another element of {a.key[0]}"
    if len(set(names.values())) != len(names):
        return "two elements share one"
    return _in_order(was, now, place)


def _in_order(
    was: Mapping[Instance, list[Touch]], now: Mapping[Instance, list[Touch]], place: Mapping[Instance, int]
) -> str | None:
    by_key: dict[tuple[object, ...], list[tuple[Instance, Touch]]] = {}
    for instance, touches in was.items():
        for touch in touches:
            by_key.setdefault(touch.key, []).append((instance, touch))
    for found in by_key.values():
        for (one, a), (two, b) in combinations(found, 2):  # `was` is in the order of the run
            if one == two or not (a.writes or b.writes) or _concurrent(a, b):
                continue
            if place[one] > place[two] or _concurrent(now[one][0], now[two][0]):
                return f"{one} was before {two}"
    return None


def _concurrent(a: Touch, b: Touch) -> bool:
    """Whether iterations of a `par` tell the two apart."""
    for (index, x, parallel), (other, y, _) in zip(a.loops, b.loops, strict=False):
        if index != other:
            return False
        if x != y:
            return parallel
    return False


def _loops(body: tuple[Stmt, ...], around: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for stmt in body:
        if isinstance(stmt, Par | Seq):
            yield from _loops(stmt.body, (*around, stmt.index))
        elif inside := children(stmt):
            yield from _loops(inside, around)
        elif not isinstance(stmt, New):
            yield stmt.id, around  # type: ignore[union-attr]  # leaves have ids


def moves(kernel: Kernel) -> Iterator[Move]:
    """Every move that might fit, sensible or not."""
    locals = [b.name for b in kernel.buffers if b not in kernel.params]
    blocks: list[tuple[Stmt, ...]] = [kernel.body]
    while blocks:
        block = blocks.pop()
        named = [stmt for stmt in block if label_of(stmt) is not None]
        for first, second in pairwise(named):
            pair = label_of(first) or "", label_of(second) or ""
            yield Swap(first=pair[0], second=pair[1])
            yield from (Fuse(first=pair[0], second=pair[1], shift=shift) for shift in (0, 1, 2))
            yield Sink(statement=pair[0], loop=pair[1])
            yield Sink(statement=pair[1], loop=pair[0])
        for stmt in block:
            if isinstance(stmt, Par | Seq):
                yield Interchange(outer=stmt.index)
                yield Parallelize(loop=stmt.index)
                yield from (Residues(loop=stmt.index, phases=phases) for phases in (2, 3))
                for inner in stmt.body:
                    yield Distribute(loop=stmt.index, before=label_of(inner) or "")
                for name in locals:
                    yield Contract(buffer=name, loop=stmt.index)
                    yield Expand(buffer=name, loop=stmt.index)
            blocks += [getattr(stmt, name) for name in BLOCKS if hasattr(stmt, name)]


def computed(kernel: Kernel) -> Iterator[Precompute]:
    """Every value and factor as an array, in the types that might hold it; `keeps` knows no statement that is added."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, Accumulate | Bind):
            for part in ("first", "second", "value"):
                move = Precompute(statement=stmt.id, part=part, dtype="f32")
                with suppress(TExprError):
                    own = factor_of(kernel, move).dtype
                    yield from (replace(move, dtype=dtype) for dtype in dict.fromkeys((own.name, "bf16", "f32")))
