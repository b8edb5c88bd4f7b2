"""What the text of a kernel depends on, from one walk of its launch: everything else asks here.

facts = launch_facts(planned, launch)
facts.used        the buffers that the text names
facts.nodes       every node in execution order
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import TypeVar, get_args

from texpr.codegen.cuda.copies import Box, Form, copy_form
from texpr.grammar import ast
from texpr.grammar.ast import Expr, Read, Role, Select
from texpr.grammar.records import dataclass
from texpr.grammar.walk import walk
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Contract, Copy, Element, Operator, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Fresh, Guard, Last, Lead, Node, Part, Parts
from texpr.polyhedral.mapped.walks import Located, Path, launch_words, located, node_reads

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Touch:
    """A node, where it is, the buffers that it itself reads and writes, and the elements of them that it names."""

    node: Node
    path: Path
    reads: frozenset[str]
    writes: frozenset[str]
    elements: tuple[Element, ...]


@dataclass(frozen=True)
class LaunchFacts:
    """A launch of a planned program and its nodes. `written` are the buffers that operators write, `used` those that
    the text names as accessors: of an array that nothing but boxes touches a kernel has the tensor map alone. `forms`
    are those of the asynchronous copies, by their ids."""

    planned: PlannedProgram
    launch: Launch
    places: tuple[Located, ...]
    touches: tuple[Touch, ...]
    forms: Mapping[str, Form]
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
    def begun(self) -> Mapping[str, int]:
        """How often each buffer begins to live in the text."""
        return Counter(fresh.buffer for fresh in self.of(Fresh))

    @cached_property
    def tiles(self) -> frozenset[str]:
        """The buffers that operators on whole tiles touch."""
        whole = (touch for touch in self.touches if isinstance(touch.node, Contract | Unload))
        return frozenset[str]().union(*(touch.reads | touch.writes for touch in whole))

    @cached_property
    def waits(self) -> bool:
        """Whether threads wait for one another anywhere."""
        return self.has(*get_args(Sync), Last, LookBack)

    @cached_property
    def merged(self) -> frozenset[str]:
        """What is only read, in an arm of a choice whose other arm reads what is written. nvcc makes one load of both,
        and where the one has `__restrict__` that load goes through the cache of what nobody writes (13.0)."""
        buffers, found = self.planned.program.buffers, set[str]()
        changed = {name for name in self.written if buffers[name].memory is Memory.GLOBAL}
        for arms in (arms for node in self.nodes for arms in _choices(node)):
            for one, other in (arms, arms[::-1]):
                if one & changed:
                    found |= other - self.written
        return frozenset(found)

    @cached_property
    def words(self) -> frozenset[str]:
        """The counters and flags that the launch uses."""
        return launch_words(self.launch)

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
    touches = tuple(map(_touch, places))
    forms = {
        node.id: copy_form(node, planned, launch)
        for node in (place.node for place in places)
        if isinstance(node, Copy) and node.completion is not Completion.NOW
    }
    boxes = {id: form for id, form in forms.items() if isinstance(form, Box)}
    plain = [touch for touch in touches if not (isinstance(touch.node, Copy) and touch.node.id in boxes)]
    used, named = (frozenset[str]().union(*(t.reads | t.writes for t in some)) for some in (touches, plain))
    return LaunchFacts(
        planned=planned,
        launch=launch,
        places=places,
        touches=touches,
        forms=forms,
        written=frozenset[str]().union(*(touch.writes for touch in touches)),
        used=used - ({box.map.buffer for box in boxes.values()} - named),
    )


def _choices(node: Node) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """What the two arms of each choice in a node read: of a guard with an `else`, and of every `select`."""
    if isinstance(node, Guard):
        yield _all_reads(node.body), _all_reads(node.orelse)
    elif isinstance(node, Operator):
        for select in _selects(node):
            yield _names_read(select.then), _names_read(select.other)


def _all_reads(nodes: tuple[Node, ...]) -> frozenset[str]:
    return frozenset[str]().union(*(_touch(place).reads for place in located(nodes)))


def _names_read(value: Expr) -> frozenset[str]:
    return frozenset(node.buffer for node in walk(value) if isinstance(node, Read))


def _selects(part: object) -> Iterator[Select]:
    """The `select`s in an operator, in whichever of its fields."""
    if isinstance(part, ast.Node):
        yield from (node for node in walk(part) if isinstance(node, Select))
    elif is_dataclass(part):
        yield from (found for field in fields(part) for found in _selects(getattr(part, field.name)))
    elif isinstance(part, tuple):
        yield from (found for each in part for found in _selects(each))


def _touch(place: Located) -> Touch:
    node = place.node
    reads: tuple[Element, ...]
    writes: tuple[Element, ...] = ()
    if isinstance(node, Operator):
        reads, writes = tuple((read.buffer, read.subscripts) for read in node.reads), node.writes
    elif isinstance(node, Lead):
        reads = ((node.of.buffer, node.of.subscripts),)
    else:
        reads = tuple((read.buffer, read.subscripts) for read in node_reads(node))
    read, written = (frozenset(name for name, _ in elements) for elements in (reads, writes))
    return Touch(node, place.path, read, written, (*reads, *writes))
