"""Folds over blocks that are numbered as they begin: what each block has from those before, and leaves for the next."""

from collections.abc import Callable
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.simulate.cells import Array
from texpr.polyhedral.simulate.clocks import NOTHING
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.reductions import spread
from texpr.polyhedral.simulate.words import Word, WordMemory

Link = tuple[str, tuple[int, ...], int, int]
"""Flags, place, part and element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a crew waits, until when, and what it does then."""

    text: str
    span: Span
    ready: Callable[[], bool]
    resume: Callable[[], None]


@dataclass(slots=True)
class Chain:
    """The folds of a launch up to and with each part, by flags, place, part and element, and the flags that it set."""

    evaluator: Evaluator
    memory: WordMemory
    links: dict[Link, Array] = field(default_factory=dict)
    published: set[Word] = field(default_factory=set)

    def look_back(self, node: LookBack, lanes: Lanes) -> Pause | None:
        """These threads look back, in the order of their parts; why they wait, where a part before is not there."""
        every = spread(node.over, lanes)
        shape = every.thread.shape
        at = [np.broadcast_to(np.asarray(every.index(e)), shape) for e in (*node.at, node.part)]
        offset = np.broadcast_to(np.asarray(every.index(node.element)), shape)
        for index, _ in node.over:
            offset = offset + np.asarray(every.values[index])
        part, places = at[-1], list(zip(*(place.tolist() for place in at[:-1]), strict=True)) or [()] * len(offset)
        wanted = [
            (node.flags, tuple(place), int(n) - 1, int(element))
            for place, n, element in zip(places, part, offset, strict=True)
        ]
        mine = {(flags, place, n + 1, element) for flags, place, n, element in wanted}

        def resume() -> None:
            self._fold(node, every, wanted)

        def ready() -> bool:
            return all(link[2] < 0 or link in self.links or link in mine for link in wanted)

        if ready():
            resume()
            return None
        return Pause(text=f"{node.id}: for the parts before", span=node.span, ready=ready, resume=resume)

    def _fold(self, node: LookBack, every: Lanes, wanted: list[Link]) -> None:
        evaluator, monoid = self.evaluator, MONOIDS[node.monoid]
        evaluator.at(node.id, node.span)
        evaluator.watch.step(every.thread)
        values, start = (evaluator.load(view.buffer, view.subscripts, every) for view in (node.value, node.target))
        values, start = (np.broadcast_to(array, every.thread.shape) for array in (values, start))
        found = start.copy()
        for flags, place, before in {link[:3] for link in wanted}:
            self._publish(self.memory.word(flags, (*place, before + 1), node.span), node.span)
        for n in np.argsort([link[2] for link in wanted], kind="stable").tolist():
            flags, place, before, element = wanted[n]
            found[n] = start[n] if before < 0 else self.links[wanted[n]]
            with np.errstate(all="ignore"):
                (after,) = monoid.combine((found[n],), (values[n],))
            link, known = (flags, place, before + 1, element), self.links.get((flags, place, before + 1, element))
            if known is not None and not np.array_equal(known, after, equal_nan=True):
                raise failure(f"{node.id}: threads of a block have two values of one element", node.span)
            self.links[link] = np.asarray(after, dtype=found.dtype)
        evaluator.store(node.target.buffer, node.target.subscripts, found, every)

    def _publish(self, word: Word, span: Span) -> None:
        """A block tells its fold, of which crews have elements each; one that an earlier launch told is an error."""
        if word not in self.published:
            self.memory.publish(word, NOTHING, span)
            self.published.add(word)
