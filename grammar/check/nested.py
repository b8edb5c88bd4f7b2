"""Calls that wait on a list instead of Python's stack, so that a program may nest deeper than Python does.

A reader is an `async def` that awaits `Nested(other reader)` wherever the program holds something that may hold
something like itself; `Stack.run` keeps those that wait and resumes one when what it waits for is done.

    async def depth(e):                                   Stack().run(depth(- - - a)) == 3, in four frames of Python
        return 1 + await Nested(depth(e.operand)) if isinstance(e, Unary) else 0
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Reading = Coroutine["Nested[Any]", Any, T]


class Nested(Generic[T]):
    """A reading to be awaited from another one, which waits outside Python's stack meanwhile."""

    __slots__ = ("reading",)

    def __init__(self, reading: Reading[T]) -> None:
        self.reading = reading

    def __await__(self) -> Generator["Nested[T]", T, T]:
        return (yield self)


class Stack:
    """The readings that wait for one another, outermost first; the last one runs."""

    def __init__(self) -> None:
        self.waiting: list[Reading[Any]] = []

    @property
    def height(self) -> int:
        """How many readings the running one stands inside."""
        return len(self.waiting) - 1

    def run(self, reading: Reading[T]) -> T:
        """What the reading returns, or raises."""
        waiting = self.waiting
        waiting.append(reading)
        result: Any = None
        raised: BaseException | None = None
        while True:
            try:
                running = waiting[-1]
                asked = running.send(result) if raised is None else running.throw(raised)
            except StopIteration as done:
                result, raised = done.value, None
            except BaseException as other:
                result, raised = None, other
            else:
                waiting.append(asked.reading)
                result, raised = None, None
                continue
            del waiting[-1]
            if not waiting:
                if raised is not None:
                    raise raised
                value: T = result
                return value
