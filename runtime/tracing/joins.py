"""Join nodes of the graph of tasks: of all that stands before one, directly or by others, what is greatest."""

from collections.abc import Callable, Mapping, Sequence

Pair = tuple[float, int]  # compared by the first; the second is a task


class Joined:
    """The greatest pair of the tasks before a node. What `of_task` says of the tasks before a join node must not change
    once the node was asked for."""

    def __init__(self, joins: Mapping[str, Sequence[int | str]], of_task: Callable[[int], Pair | None]) -> None:
        self._joins, self._of_task = joins, of_task
        self._found: dict[str, Pair | None] = {}

    def greatest(self, before: Sequence[int | str]) -> Pair | None:
        work = [b for b in before if isinstance(b, str)]
        while work:
            inner = [b for b in self._joins.get(work[-1], ()) if isinstance(b, str) and b not in self._found]
            if inner and work[-1] not in self._found:
                work += inner
                continue
            name = work.pop()
            if name not in self._found:
                self._found[name] = self._of(self._joins.get(name, ()))
        return self._of(before)

    def _of(self, before: Sequence[int | str]) -> Pair | None:
        pairs = (self._found[b] if isinstance(b, str) else self._of_task(b) for b in before)
        return max((pair for pair in pairs if pair is not None), key=lambda pair: pair[0], default=None)
