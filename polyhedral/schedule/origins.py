"""Where the instances of a changed program come from: for each statement the old one, and the old iteration as a
function of the new one.

    par M i { S0: A(i) ; S1: B(i - 1) }     S1 at i was S1 of `par M j` at j = i - 1
    Origin(statement="S1", values={"j": i - 1})
"""

from collections.abc import Callable, Mapping
from dataclasses import field

from texpr.grammar.ast import IndexExpr, IndexVar, Kernel, SizeVar
from texpr.grammar.index.expr import substitute
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The old statement, and the values of its loops' indices; one that is not among them is what it was."""

    statement: str
    values: Mapping[str, IndexExpr] = field(default_factory=dict)

    def value(self, index: str) -> IndexExpr:
        """The old index, in new ones."""
        return self.values.get(index, IndexVar(name=index))


Origins = Mapping[str, Origin]
"""By the ids of the new statements; one that is not there is the old one of that id, its indices as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A kernel after a move, and where its instances come from."""

    kernel: Kernel
    origins: Origins = field(default_factory=dict)


def origin_of(origins: Origins, statement: str) -> Origin:
    """Where a statement comes from."""
    return origins.get(statement) or Origin(statement=statement)


def composed(first: Origins, second: Origins) -> Origins:
    """Where the instances come from after two changes, one after the other."""
    found = dict(first)
    for statement, later in second.items():
        earlier = origin_of(first, later.statement)
        renamed = later.values
        values = {name: substitute(value, _lookup(renamed)) for name, value in earlier.values.items()}
        found[statement] = Origin(statement=earlier.statement, values={**renamed, **values})
    return found


def _lookup(values: Mapping[str, IndexExpr]) -> Callable[[IndexVar | SizeVar], IndexExpr | None]:
    return lambda leaf: values.get(leaf.name)
