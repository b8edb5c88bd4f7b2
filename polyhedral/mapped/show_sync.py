"""Synchronisation as text, one line a node: `acquire a`, `await done[t - 1]`, `wait (bulk, all but 1, read)`."""

from collections.abc import Sequence
from typing import assert_never

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.text import in_words
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Action,
    Barrier,
    Close,
    Commit,
    Drain,
    End,
    Fence,
    Pipe,
    PipeKind,
    Release,
    Skip,
    Sync,
    Wait,
    WaitGroup,
)


def sync_text(node: Sync) -> str:
    """What the node does and with what."""
    match node:
        case Barrier(scope=scope, parts=parts, action=action, name=name, relaxed=relaxed):
            verb = "barrier" if action is Action.BOTH else f"{action.value} at barrier"
            how = ("relaxed",) if relaxed else ()
            return f"{verb}{f' {name}' if name else ''} ({', '.join((scope.value, *parts, *how))})"
        case Acquire(pipe=pipe):
            return f"acquire {pipe}"
        case Drain(pipe=pipe):
            return f"drain {pipe}"
        case Commit(pipe=pipe, by_warp=by_warp):
            return f"commit {pipe}{' (by warp)' if by_warp else ''}"
        case Wait(pipe=pipe):
            return f"wait {pipe}"
        case Release(pipe=pipe, behind=behind):
            return f"release {pipe}{f' ({behind} behind)' if behind else ''}"
        case Skip(pipe=pipe):
            return f"skip {pipe}"
        case Close(kind=kind):
            return f"close group ({kind.value})"
        case WaitGroup(kind=kind, behind=behind, until=until):
            return f"wait ({kind.value}, all{f' but {behind}' if behind else ''}, {until.value})"
        case Fence(kind=kind):
            return f"fence ({kind.value})"
        case Turn(counter=counter, index=index):
            return f"{index} = turn {counter}"
        case Publish(flag=flag, at=at):
            return f"publish {word_text(flag, at)}"
        case Await(flag=flag, at=at):
            return f"await {word_text(flag, at)}"
        case GridBarrier(counter=counter):
            return f"barrier (grid, {counter})"
        case AfterLaunch(queue=queue):
            return "after all that is on the queue" if queue else "after the launch before"
        case TriggerNext():
            return "the next launch may begin"
        case _:
            assert_never(node)


def word_text(name: str, at: Sequence[IndexExpr]) -> str:
    """An element of a workspace of words."""
    return f"{name}[{', '.join(in_words(e) for e in at)}]" if at else name


def pipe_text(pipe: Pipe) -> str:
    """What a pipe is made of and who stands at its ends."""
    size = f" of {pipe.bytes} bytes" if pipe.kind is PipeKind.TRANSACTION else ""
    ends = " -> ".join(", ".join(_end(e) for e in side) for side in (pipe.producers, pipe.consumers))
    return (
        f"pipe {pipe.name}: {pipe.stages} stages, {pipe.kind.value}, {pipe.scope.value}; {', '.join(pipe.buffers)}; "
        f"{ends}; commits {pipe.commits}{size}, releases {pipe.releases}"
    )


def _end(end: End) -> str:
    ranks = f" {list(map(list, end.ranks))}" if end.ranks else ""
    return (end.part or "block") + ranks
