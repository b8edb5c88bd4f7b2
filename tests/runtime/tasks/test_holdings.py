"""Memory that tasks are promised: who is evicted for it, and who is not."""

from texpr.runtime.tasks.holdings import Holdings
from texpr.runtime.tasks.residency import HOME, Outcome, Residency
from texpr.runtime.tasks.spaces import tiled
from texpr.runtime.tasks.states import Op, State
from texpr.runtime.tasks.tensors import Tensor


def written(holdings: Holdings, blocks: int) -> list[Residency]:
    """Blocks of 32 bytes whose values are at node 1 alone, the first of them unused for the longest time."""
    found = []
    for block in Tensor("A", (tiled(4 * blocks, 4),)).blocks():
        residency = holdings.residency(block)
        assert holdings.machine.request(residency, Op.WRITE, 1, None) is Outcome.GRANTED
        holdings.machine.take(residency, 1)
        holdings.machine.release(residency, 1)
        found.append(residency)
    return found


def test_what_is_on_its_way_home_is_waited_for_before_more_is_evicted() -> None:
    holdings = Holdings([("a", 96)], debug=True)
    blocks = written(holdings, 3)
    for _ in range(2):
        assert not holdings._make_room(holdings.nodes[1], 32, ())
        assert [block.state[1] for block in blocks] == [State.UNALLOCATED, State.DIRTY, State.DIRTY]
    (transfer,) = holdings.machine.started
    holdings.machine.done(transfer)
    assert holdings._make_room(holdings.nodes[1], 32, ()) and holdings.leaving == [0, 0]


def test_what_stays_keeps_its_turn_to_be_evicted() -> None:
    holdings = Holdings([("a", 96)], debug=True)
    first, second, third = written(holdings, 3)
    holdings.machine.request(first, Op.READ, HOME, None)  # its values are on their way home
    assert not holdings._make_room(holdings.nodes[1], 32, (second,))
    assert [block.state[1] for block in (first, second, third)] == [State.READY, State.DIRTY, State.UNALLOCATED]
    first.state[1] = State.DIRTY  # as it was before
    assert [holdings._idle[1].take(dirty=True) for _ in range(3)] == [(1, first), (2, second), None]
