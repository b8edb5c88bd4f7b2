"""Turns, flags and counters in a happens-before graph."""

from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.between import Await, GridBarrier, Init, Publish, Turn
from texpr.polyhedral.mapped.show_sync import sync_text, word_text
from texpr.polyhedral.mapped.tree import Last
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.orders.gates import Gates
from texpr.polyhedral.orders.points import Findings, Points
from texpr.polyhedral.orders.trace import Event

Word = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class WordRules:
    """Who published each word, and who waits for it: launch, block, and the turn that the block took before."""

    points: Points
    findings: Findings
    gates: Gates
    published: dict[Word, tuple[int, int]] = field(default_factory=dict)
    awaited: list[tuple[Word, int, Span]] = field(default_factory=list)
    turns: set[tuple[int, int]] = field(default_factory=set)

    def event(self, node: Turn | Publish | Await | Last, number: int, event: Event) -> None:
        """All threads of the block, or of the part, come to the node, and then it does what it does for them."""
        name = node.counter if isinstance(node, Turn | Last) else node.flag
        at = () if isinstance(node, Turn) else node.at
        word: Word = (name, tuple(int(event.value(e)[0]) for e in at))
        text = f"last at {word_text(name, at)}" if isinstance(node, Last) else sync_text(node)
        self.gates.come(("at", id(node), event.launch, event.block), event.team.count, text, number, event)
        self.declared(name, node)
        graph, threads = self.points.graph, self.points.threads(number)
        match node:
            case Turn():
                if (event.launch, event.block) in self.turns:
                    self.findings.fault(f"a block takes a second turn at {name}", node.span)
                self.turns.add((event.launch, event.block))
            case Publish():
                if word in self.published:
                    self.findings.fault(f"{name}{list(word[1])} is published twice", node.span)
                self.published[word] = (event.launch, event.block)
                for thread in threads:
                    graph.edge(self.points.goes_on(number, thread), graph.point(("word", word)))
            case Await():
                self.awaited.append((word, number, node.span))
                for thread in threads:
                    graph.edge(graph.point(("word", word)), self.points.goes_on(number, thread))
            case Last():
                counted = graph.point(("counted", event.launch, word, event.round))
                for thread in threads:
                    graph.edge(self.points.comes(number, thread), counted)
                    if event.runs:
                        graph.edge(counted, self.points.goes_on(number, thread))

    def end(self) -> None:
        """Words that nobody publishes, or a block that may never run; counters that are not left at 0."""
        trace = self.points.trace
        for word, number, span in self.awaited:
            name = f"{word[0]}{list(word[1])}"
            event = trace.events[number]
            if word not in self.published:
                self.findings.fault(f"nobody publishes {name}", span)
                continue
            launch, block = self.published[word]
            body = trace.launches[event.launch].body
            together = any(of_kind(body, GridBarrier))
            lower = launch < event.launch or (block < event.block and (event.launch, event.block) in self.turns)
            if not lower and not together and block != event.block:
                self.findings.fault(f"{name} is awaited by a block without a higher turn than its publisher's", span)
        for (_, counter, at), count in trace.counts.items():
            if count:
                self.findings.fault(f"{counter}{list(at)} is left at {count}, and the next call expects 0")

    def declared(self, name: str, node: Turn | Publish | Await | Last | GridBarrier) -> None:
        """A word must have a first value, in every call again where the kernel does not restore it."""
        words = {w.name: w for w in self.points.trace.program.words}[name]
        if words.init is Init.NONE:
            self.findings.fault(f"{name} is used and nothing ever wrote to it", node.span)
        elif words.init is Init.ZERO_ONCE and not isinstance(node, Last | GridBarrier):
            self.findings.fault(f"{name} is not restored for the next call, which expects 0", node.span)
