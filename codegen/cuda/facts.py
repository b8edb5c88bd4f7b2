"""What the text of a kernel depends on, from one walk of its launch: everything else asks here.

facts = launch_facts(planned, launch)
facts.used        the buffers that the text names
facts.nodes       every node in execution order
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from texpr.codegen.cuda.copies import Box, Form, copy_form
from texpr.grammar.ast import Role
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.operators import Copy, Operator
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.tree import Fresh, Lead, Node, Part, Parts
from texpr.polyhedral.mapped.walks import Located, located, node_reads, word_names

T = TypeVar("T")


@dataclass(frozen=True)
class LaunchFacts:
    """A launch of a planned program and its nodes. `read` and `written` are the buffers that operators, conditions and
    subscripts read and that operators write, `used` those that the text names as accessors: of an array that nothing
    but boxes touches a kernel has the tensor map alone. `forms` are those of the asynchronous copies, by their ids."""

    planned: PlannedProgram
    launch: Launch
    places: tuple[Located, ...]
    forms: Mapping[str, Form]
    read: frozenset[str]
    written: frozenset[str]
    used: frozenset[str]

    def of(self, kind: type[T]) -> Iterator[T]:
        """The nodes of a kind, in execution order."""
        return (place.node for place in self.places if isinstance(place.node, kind))

    def has(self, *kinds: type[Node]) -> bool:
        """Whether there is a node of one of these kinds."""
        return any(isinstance(place.node, kinds) for place in self.places)

    @property
    def nodes(self) -> Iterator[Node]:
        """Every node, in execution order."""
        return (place.node for place in self.places)

    @cached_property
    def words(self) -> frozenset[str]:
        """The counters and flags that the launch uses."""
        return frozenset(name for node in self.nodes for name in word_names(node))

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """The parts of the block by name."""
        return {part.name: part for node in self.of(Parts) for part in node.parts}

    @cached_property
    def local(self) -> tuple[MappedBuffer, ...]:
        """The buffers that a block or a thread of it has for itself, as far as the text names them."""
        own = (b for b in self.planned.program.buffers.values() if b.role is Role.LOCAL)
        return tuple(b for b in own if b.memory is not Memory.GLOBAL and b.name in self.used)


def launch_facts(planned: PlannedProgram, launch: Launch) -> LaunchFacts:
    """Walk a launch once. Raises E0502 for an asynchronous copy that no instruction makes."""
    places = tuple(located(launch.body))
    forms: dict[str, Form] = {}
    read, written, plain = set[str](), set[str](), set[str]()
    for place in places:
        node = place.node
        if isinstance(node, Fresh):
            continue
        reads, writes = _touched(node)
        read |= reads
        written |= writes
        if isinstance(node, Copy) and node.completion is not Completion.NOW:
            forms[node.id] = copy_form(node, planned, launch)
        if not isinstance(forms.get(getattr(node, "id", "")), Box):
            plain |= reads | writes
    boxed = {form.map.buffer for form in forms.values() if isinstance(form, Box)} - plain
    return LaunchFacts(
        planned=planned,
        launch=launch,
        places=places,
        forms=forms,
        read=frozenset(read),
        written=frozenset(written),
        used=frozenset((read | written) - boxed),
    )


def _touched(node: Node) -> tuple[set[str], set[str]]:
    """The buffers that a node itself reads and writes."""
    if isinstance(node, Operator):
        return {read.buffer for read in node.reads}, {name for name, _ in node.writes}
    if isinstance(node, Lead):
        return {node.of.buffer}, set()
    return {read.buffer for read in node_reads(node)}, set()
