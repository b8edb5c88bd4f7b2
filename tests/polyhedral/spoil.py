"""Launches with one sync dropped, doubled, moved past its neighbour or detuned, with words that say what was done."""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.index.expr import ONE, add, subtract
from texpr.polyhedral.mapped.between import Await, Init
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.show_sync import sync_text
from texpr.polyhedral.mapped.sync import (
    Action,
    Barrier,
    End,
    Fence,
    FenceKind,
    Pipe,
    PipeKind,
    Release,
    Sync,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Last, Node
from texpr.polyhedral.mapped.walks import branches, located, with_branches

Bodies = Iterator[tuple[str, tuple[Node, ...]]]


def spoiled(program: MappedProgram) -> Iterator[tuple[str, MappedProgram]]:
    """Every way of spoiling one sync of one launch."""
    for number, launch in enumerate(program.host):
        assert isinstance(launch, Launch)
        found: dict[str, int] = {}
        for text, body in _bodies(launch.body):
            found[text] = found.get(text, 0) + 1
            again = f" ({found[text]})" if found[text] > 1 else ""
            host = (*program.host[:number], replace(launch, body=body), *program.host[number + 1 :])
            yield f"{text}{again}", replace(program, host=host)


def _bodies(body: tuple[Node, ...]) -> Bodies:
    for at, node in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        if isinstance(node, Sync | Last):
            name = "last" if isinstance(node, Last) else sync_text(node)
            yield f"drop {name}", (*before, *(node.body if isinstance(node, Last) else ()), *after)
            yield f"double {name}", (*before, node, node, *after)
            if before:
                yield f"earlier {name}", (*before[:-1], node, before[-1], *after)
            if after:
                yield f"later {name}", (*before, after[0], node, *after[1:])
        inner = branches(node)
        for number, inside in enumerate(inner):
            for text, changed in _bodies(inside):
                yield text, (*before, with_branches(node, (*inner[:number], changed, *inner[number + 1 :])), *after)


def detuned(program: MappedProgram) -> Iterator[tuple[str, MappedProgram]]:
    """Every sync with a number or a scope that is wrong by one."""
    for number, launch in enumerate(program.host):
        assert isinstance(launch, Launch)
        others = program.host[:number], program.host[number + 1 :]
        found: dict[str, int] = {}
        for text, pipe in (pair for p in launch.pipes for pair in _pipes(p)):
            pipes = tuple(pipe if p.name == pipe.name else p for p in launch.pipes)
            yield text, replace(program, host=(*others[0], replace(launch, pipes=pipes), *others[1]))
        for place in located(launch.body):
            for text, node in _nodes(place.node):
                found[text] = found.get(text, 0) + 1
                text += f" ({found[text]})" if found[text] > 1 else ""
                body = _with(launch.body, place.path, node)
                yield text, replace(program, host=(*others[0], replace(launch, body=body), *others[1]))
    for word in program.words:
        rest = tuple(w for w in program.words if w is not word)
        yield f"{word.name} never written", replace(program, words=(*rest, replace(word, init=Init.NONE)))


def _pipes(pipe: Pipe) -> Iterator[tuple[str, Pipe]]:
    yield "a commit too many expected", replace(pipe, commits=pipe.commits + 1)
    yield "a commit too few expected", replace(pipe, commits=pipe.commits - 1)
    if pipe.releases:
        yield "a release too many expected", replace(pipe, releases=pipe.releases + 1)
        yield "a release too few expected", replace(pipe, releases=pipe.releases - 1)
        yield "releases not waited for", replace(pipe, releases=0)
    if pipe.kind is PipeKind.TRANSACTION:
        yield "half of the bytes expected", replace(pipe, bytes=pipe.bytes // 2)
        yield "twice the bytes expected", replace(pipe, bytes=pipe.bytes * 2)
    for side in ("producers", "consumers"):
        ends: tuple[End, ...] = getattr(pipe, side)
        if any(end.ranks for end in ends):
            alone = tuple(replace(end, ranks=()) for end in ends)
            yield f"{side} reach their own block only", replace(pipe, **{side: alone})


def _nodes(node: Node) -> Iterator[tuple[str, Node]]:
    match node:
        case Barrier(scope=Scope.BLOCK, parts=()):
            yield "a barrier of warps instead of the block", replace(node, scope=Scope.WARP)
        case Barrier(scope=Scope.CLUSTER):
            yield "a barrier of the block instead of the cluster", replace(node, scope=Scope.BLOCK, relaxed=False)
            if node.action is not Action.WAIT and not node.relaxed:
                yield "a relaxed barrier of the cluster", replace(node, relaxed=True)
        case WaitGroup(kind=kind, behind=behind):
            yield f"a group too few waited for ({kind.value})", replace(node, behind=behind + 1)
        case Release(behind=behind):
            yield "a release one turn behind", replace(node, behind=behind + 1)
        case Await(at=at):
            yield "one's own word awaited", replace(node, at=tuple(add(e, ONE) for e in at))
        case Last(n=n):
            yield "the last is one too late", replace(node, n=add(n, ONE))
            yield "the last is one too early", replace(node, n=subtract(n, ONE))
        case Fence(kind=FenceKind.ASYNC_PROXY):
            yield "a fence of another kind", replace(node, kind=FenceKind.BARRIER_INIT)
        case _:
            pass


def _with(body: tuple[Node, ...], path: tuple[int, ...], node: Node) -> tuple[Node, ...]:
    """The tree with another node at a path."""
    at, rest = path[0], path[1:]
    if rest:
        inner = list(branches(body[at]))
        inner[rest[0]] = _with(inner[rest[0]], rest[1:], node)
        node = with_branches(body[at], inner)
    return (*body[:at], node, *body[at + 1 :])
