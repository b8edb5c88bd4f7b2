"""The registers of a thread as variables: which are plain scalars, and where each is declared.

    new m                          tx::f32 m = 0.0f;                        a scalar, by its first bind
    m = 0.0
    new v                          tx::Reg<tx::f32, 8> v("v");              an accessor, where it begins

A scalar is one element that a bind among the siblings of its `new` defines before anything reads it, so no read of it
is undefined and none needs a check; the reads of all other registers are checked when the text runs on the CPU. A
register is declared at its `new` where all that touches it lies behind that in one C++ block, else at the top.
"""

from collections import defaultdict
from collections.abc import Sequence

from texpr.codegen.cuda.facts import LaunchFacts, Touch
from texpr.codegen.layout import room
from texpr.grammar.ast import IndexConst
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Generic, Reduce, Unused
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Guard
from texpr.polyhedral.mapped.walks import Path


@dataclass(frozen=True, slots=True)
class Variable:
    """A register: whether it is a plain scalar, of which no write follows the first (`constant`), whether it is
    declared where a `new` says that it begins (`placed`), and whether anything but its own updates reads it (`read`).
    """

    scalar: bool
    constant: bool
    placed: bool
    read: bool


def variables(facts: LaunchFacts) -> dict[str, Variable]:
    """The registers of a launch by name."""
    registers = {b.name: b for b in facts.local if b.memory is Memory.REG}
    begun: dict[str, list[Path]] = defaultdict(list)
    touches: dict[str, list[Touch]] = defaultdict(list)
    for place, touch in zip(facts.places, facts.touches, strict=True):
        if isinstance(place.node, Fresh):
            begun[place.node.buffer].append(place.path)
        for name in (touch.reads | touch.writes) & registers.keys():
            touches[name].append(touch)
    return {name: _variable(name, begun[name], touches[name], room(registers[name])) for name in registers}


_TOP: Path = (-1,)  # before the first node of a launch: there begins what no `new` begins


def _variable(name: str, news: Sequence[Path], touches: Sequence[Touch], elements: int) -> Variable:
    begun = news or (_TOP,)
    placed = not any(_behind(path, other) for path in begun for other in begun)
    first: dict[Path, Touch] = {}
    for touch in touches:
        start = next((path for path in begun if _behind(touch.path, path)), None)
        if start is None:
            placed = False
        else:
            first.setdefault(start, touch)
    scalar = placed and elements <= 1 and all(_is_plain(touch, name) for touch in touches)
    scalar = scalar and all(_defines(touch, name, start) for start, touch in first.items())
    writes = sum(name in touch.writes for touch in touches)
    read = any(name in touch.reads - touch.writes for touch in touches)
    return Variable(scalar, scalar and writes == len(first), placed and bool(news), read)


def _behind(path: Path, start: Path) -> bool:
    """Whether a node stands behind another one in the list of that one, or inside of such a node."""
    last = len(start) - 1
    return len(path) > last and path[:last] == start[:last] and path[last] > start[last]


def _is_plain(touch: Touch, name: str) -> bool:
    """Whether a node names the one element of a register as such, and not as a place in memory."""
    match touch.node:
        case Copy(access=access, completion=completion, over=over):
            plain = access is Access.EACH and (completion is Completion.NOW or not over)
        case node:
            plain = isinstance(node, Generic | Elementwise | Reduce | Guard)
    return plain and all(isinstance(s, IndexConst) for of, at in touch.elements if of == name for s in at)


def _defines(touch: Touch, name: str, start: Path) -> bool:
    """Whether a node among the siblings of a `new` gives its register a value without asking for one."""
    if touch.path[:-1] != start[:-1] or name in touch.reads:
        return False
    match touch.node:
        case Generic(unused=unused) as node:
            return unused is not Unused.ONCE and node.store is not None and node.store.op is None
        case Reduce(unused=unused):
            return unused is not Unused.ONCE
        case _:
            return False
