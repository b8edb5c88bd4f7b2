"""The order of tiles: each comes once, whatever way bands lie and wind, and neighbours in number are near in place."""

import itertools

import pytest

from texpr.grammar.ast import IndexVar
from texpr.grammar.index.expr import const
from texpr.grammar.index.value import index_value
from texpr.polyhedral.map.tile_order import TileOrder
from texpr.polyhedral.mapped.tree import Define
from texpr.polyhedral.names import Names


def places(order: TileOrder, down: int, across: int) -> list[tuple[int, int]]:
    """The row and the column of tiles of each number, of every rank."""
    nodes = order.nodes(Names(()), IndexVar(name="number"), IndexVar(name="rank"), ("row", 10), ("column", 100))
    found = []
    for number, rank in itertools.product(range(down * across), range(order.ranks)):
        values = {"number": number, "rank": rank}
        for node in nodes:
            assert isinstance(node, Define)
            values[node.index] = int(index_value(node.value, values))
        found.append((values["row"] // 10, values["column"] // 100))
    return found


@pytest.mark.parametrize("sides", [(1, 1), (4, 3), (7, 5), (5, 12), (16, 8)])
@pytest.mark.parametrize("winding", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("abreast", [False, True])
def test_each_tile_comes_once(sides: tuple[int, int], winding: bool, turned: bool, abreast: bool) -> None:
    down, across = sides
    for band in (1, 3, 8):
        order = TileOrder(
            down=const(down), across=const(across), ranks=2, band=band, others=(), abreast=abreast, winding=winding,
            turned=turned,
        )  # fmt: skip
        high, wide = (1, 2) if abreast else (2, 1)
        every = itertools.product(range(high * down), range(wide * across))
        assert sorted(places(order, down, across)) == sorted(every)


def test_bands_that_wind_go_on_beside_where_the_one_before_has_ended() -> None:
    order = TileOrder(down=const(4), across=const(3), ranks=1, band=2, others=(), winding=True)
    rows = places(order, 4, 3)
    assert rows[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert rows[6:] == [(2, 2), (3, 2), (2, 1), (3, 1), (2, 0), (3, 0)]
    turned = TileOrder(down=const(3), across=const(4), ranks=1, band=2, others=(), winding=True, turned=True)
    assert places(turned, 3, 4) == [(column, row) for row, column in rows]
