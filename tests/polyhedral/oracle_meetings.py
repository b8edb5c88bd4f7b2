"""Where all blocks of a cooperative launch meet, as the text of the launch says: part of the oracle of orders."""

from collections.abc import Callable
from itertools import takewhile

from texpr.polyhedral.mapped.between import GridBarrier
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Loop
from texpr.polyhedral.mapped.walks import located, of_kind


def blocks_meeting(launch: Launch) -> Callable[[str, str, str | None], bool]:
    """Whether all threads of all blocks meet between two operators: behind one and before the other in a list around
    both, or before any other thing in each iteration of the loop that carries them."""
    places = list(located(launch.body))
    barriers = [place.path for place in places if isinstance(place.node, GridBarrier)]
    paths = {getattr(place.node, "id", ""): place.path for place in places}
    first = {
        loop.index
        for loop in of_kind(launch.body, Loop)
        if any(isinstance(n, GridBarrier) for n in takewhile(lambda n: isinstance(n, Define | GridBarrier), loop.body))
    }

    def meet(source: str, sink: str, carrier: str | None) -> bool:
        if carrier is not None or not {source, sink} <= paths.keys():
            return carrier in first
        before, after = paths[source], paths[sink]
        return any(
            before[: len(at) - 1] == at[:-1] == after[: len(at) - 1]
            and before[len(at) - 1] < at[-1] < after[len(at) - 1]
            for at in barriers
        )

    return meet
