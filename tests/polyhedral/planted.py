"""Products of matrices with one thing wrong each: faults planted in the planned program, by class.

    multicast: parity: double wait ring          the consumers are a turn ahead of what they read

Every fault is an edit of the tree, or of where the plan puts a buffer; the text for a GPU is emitted from what was
edited. `planted_found.py` asks the checkers, the simulator and `cuda-host` of each, and prints who found it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from planted_kernels import KERNELS
from spoil import spoiled

from texpr.codegen.plan import plan
from texpr.grammar.ast import Gather, IndexBinary, IndexExpr, IndexOp, IndexVar, Read, Subscript
from texpr.grammar.index.expr import ONE, add, combine, const, constant_value, names, substitute, subtract
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.value import Xor
from texpr.polyhedral.mapped.operators import Copy, Generic, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Release
from texpr.polyhedral.mapped.tree import Guard, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.mapped.walks import branches, with_branches

EACH = 2  # faults of one class in one kernel that differ only in which node has them
CLASSES = (
    "a wait dropped",
    "parity flipped",
    "a stage released early",
    "a fence removed",
    "a wrong swizzle",
    "a wrong fragment",
    "an overlap",
    "a predicate lost",
)


BEYOND = "what is read behind a row is in the array, and goes into sums that nobody stores"
EMPTY = "the last groups have no copies"
ALONE = "a pipe of one slot"
HARMLESS = {
    ("shared", "slots of C_parts overlap"): ALONE,
    ("tiles", "no edge (2)"): BEYOND,
    ("tiles", "all of B is wanted"): BEYOND,
    ("warps", "all of B is wanted"): BEYOND,
    ("warps of three slots", "all of A is wanted"): BEYOND,
    ("warps", "drop wait (cp_async, all, done) (2) (2)"): EMPTY,
    ("warps of three slots", "drop wait (cp_async, all, done) (2)"): EMPTY,
    ("f64 by warps", "all of A is wanted"): BEYOND,
    ("f64 by warps", "all of B is wanted"): BEYOND,
    ("f64 by warps", "drop wait (cp_async, all, done) (2)"): EMPTY,
    ("portions by warps", "drop wait (cp_async, all, done) (2)"): EMPTY,
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a kernel, in words, and the planned program that has it."""

    kernel: str
    kind: str
    text: str
    planned: PlannedProgram

    @property
    def name(self) -> str:
        return f"{self.kernel}: {self.kind}: {self.text}"


@cache
def planned(kernel: str) -> PlannedProgram:
    """The kernel without a fault."""
    return plan(KERNELS[kernel].program)


def faults(kernel: str) -> Iterator[Fault]:
    """The faults of every class that the kernel can have."""
    right = planned(kernel)
    for kind, plant in PLANTED.items():
        seen: dict[str, int] = {}
        for text, wrong in plant(right):
            kept = text.split(" (")[0]
            seen[kept] = seen.get(kept, 0) + 1
            again = f" ({seen[kept]})" if seen[kept] > 1 else ""
            if seen[kept] <= EACH and (kernel, f"{text}{again}") not in HARMLESS:
                yield Fault(kernel, kind, f"{text}{again}", wrong)


Planted = Iterator[tuple[str, PlannedProgram]]
Changed = Iterator[tuple[str, tuple[Node, ...]]]
Change = Callable[[Node], Changed]


def _launch(right: PlannedProgram) -> Launch:
    (launch,) = right.program.host
    assert isinstance(launch, Launch)
    return launch


def _in_body(right: PlannedProgram, change: Change) -> Planted:
    """The program with one node put through a change."""
    launch = _launch(right)
    for text, body in _bodies(launch.body, change):
        yield text, _with_program(right, replace(right.program, host=(replace(launch, body=body),)))


def _with_program(right: PlannedProgram, program: MappedProgram) -> PlannedProgram:
    return replace(right, program=program)


def _bodies(body: tuple[Node, ...], change: Change) -> Changed:
    for at, node in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        for text, nodes in change(node):
            yield text, (*before, *nodes, *after)
        inner = branches(node)
        for number, inside in enumerate(inner):
            for text, changed in _bodies(inside, change):
                yield text, (*before, with_branches(node, (*inner[:number], changed, *inner[number + 1 :])), *after)


def _spoilt(right: PlannedProgram, *begins: str) -> Planted:
    """Syncs that are dropped, doubled or moved, as `spoil.py` names them."""
    for text, program in spoiled(right.program):
        if text.startswith(begins):
            yield text, _with_program(right, program)


def _waits(right: PlannedProgram) -> Planted:
    waits = ("wait ring", "wait met", "wait (", "acquire", "barrier (block)", "barrier (cluster")
    yield from _spoilt(right, *(f"drop {name}" for name in waits))


def _shared(right: PlannedProgram) -> list[str]:
    return [b.name for b in right.program.buffers.values() if b.memory is Memory.SHARED]


def _turned(subscript: Subscript) -> Subscript | None:
    """The next slot of a ring, where a subscript says which."""
    if isinstance(subscript, IndexBinary) and subscript.op is IndexOp.MOD:
        return combine(IndexOp.MOD, add(subscript.left, ONE), subscript.right)
    return None


def _with_slot(view: View) -> View | None:
    turned = _turned(view.subscripts[0]) if view.subscripts else None
    return None if turned is None else replace(view, subscripts=(turned, *view.subscripts[1:]))


def _parity(right: PlannedProgram) -> Planted:
    """A turn too far: of a pipe by one more wait, of slots that subscripts tell by the next one."""
    yield from _spoilt(right, "double wait ring", "double acquire")
    shared = _shared(right)

    def change(node: Node) -> Changed:
        if isinstance(node, Copy | Unload) and node.source.buffer in shared:
            other = _with_slot(node.source)
            if other is not None:
                yield "another slot is read", (replace(node, source=other),)

    yield from _in_body(right, change)


def _early(right: PlannedProgram) -> Planted:
    """A slot is said to be free, or filled, while it is read."""
    yield from _spoilt(right, "earlier release")
    shared = _shared(right)

    def change(node: Node) -> Changed:
        if isinstance(node, Release) and node.behind:
            yield "the turn that is read is released", (replace(node, behind=0),)
        if isinstance(node, Copy) and node.target.buffer in shared:
            other = _with_slot(node.target)
            if other is not None:
                yield "the next slot is filled", (replace(node, target=other),)

    yield from _in_body(right, change)


def _fences(right: PlannedProgram) -> Planted:
    yield from _spoilt(right, "drop fence")


def _swizzles(right: PlannedProgram) -> Planted:
    """Who writes or reads a tile by the plan finds its elements elsewhere than who reads it by its type."""
    for name in _shared(right):
        placed = right.addresses[name]
        xor = placed.layout.xor
        if xor is None:
            continue
        others = [("no", None)]
        if xor.bits > 1 and not _launch(right).pipes:  # no box is written with it
            others.append(("a narrower", Xor(bits=xor.bits - 1, base=xor.base, shift=xor.shift)))
        for text, other in others:
            layout = replace(placed.layout, xor=other)
            yield f"{text} swizzle of {name}", _moved(right, name, layout=layout)


def _moved(right: PlannedProgram, name: str, **how: Any) -> PlannedProgram:
    return replace(right, addresses={**right.addresses, name: replace(right.addresses[name], **how)})


REVERSED = (("half", "rows", 2), ("one", "columns", 2), ("i_row", "rows", 4))  # indices of what one thread holds


def _fragments(right: PlannedProgram) -> Planted:
    """A lane takes, or stores, another element of what the threads of its team hold."""
    held = [b.name for b in right.program.buffers.values() if b.memory is Memory.REG and len(b.shape) > 1]

    def others(read: Read) -> Iterator[tuple[str, Read]]:
        for name, text, count in REVERSED:
            swap = _only(name, subtract(const(count - 1), IndexVar(name=name)))
            at = tuple(s if isinstance(s, Gather) else substitute(s, swap) for s in read.subscripts)
            if at != read.subscripts:
                yield f"{text} exchanged", replace(read, subscripts=at)

    def change(node: Node) -> Changed:
        match node:
            case Unload(source=source) if node.atom.loads:
                other = _matrix_further(source)
                if other is not None:
                    yield f"rows of {source.buffer} a matrix further", (replace(node, source=other),)
            case Unload(source=View(subscripts=(row, column)) as source) if not isinstance(column, Gather):
                other = replace(source, subscripts=(row, add(column, const(8))))
                yield "columns a matrix further", (replace(node, source=other),)
            case Generic():
                for read in (r for r in node.reads if r.buffer in held):
                    for text, found in others(read):
                        yield text, (replace(node, leaf=rewrite(node.leaf, _same(read, found))),)
            case _:
                pass

    yield from _in_body(right, change)


def _same(read: Read, other: Read) -> Callable[[Any], Any]:
    return lambda part: other if part == read else part


def _matrix_further(view: View) -> View | None:
    """The view of a tile that begins 8 rows later, where one subscript says the row."""
    rows = [n for n, s in enumerate(view.subscripts) if not isinstance(s, Gather) and names(s) & {"m", "n"}]
    if len(rows) != 1:
        return None
    at = list(view.subscripts)
    first = at[rows[0]]
    assert not isinstance(first, Gather)
    at[rows[0]] = add(first, const(8))
    return replace(view, subscripts=tuple(at))


def _only(name: str, value: IndexExpr) -> Callable[[Any], IndexExpr | None]:
    return lambda leaf: value if leaf.name == name else None


def _overlaps(right: PlannedProgram) -> Planted:
    """Two buffers, two slots of one, or a buffer and its pipe, at the same bytes."""
    shared = sorted(_shared(right), key=lambda name: constant_value(right.addresses[name].offset_bytes) or 0)
    for first, second in pairwise(shared):
        yield (
            f"{second} begins where {first} does",
            _moved(right, second, offset_bytes=right.addresses[first].offset_bytes),
        )
    for name in shared:
        if right.addresses[name].stage_bytes:
            yield f"slots of {name} overlap", _moved(right, name, stage_bytes=right.addresses[name].stage_bytes // 2)
    launch = _launch(right)
    for pipe in right.sync_offsets[launch.name]:
        at = constant_value(right.addresses[shared[0]].offset_bytes) or 0
        offsets = {**right.sync_offsets[launch.name], pipe: at}
        yield f"{pipe} begins where {shared[0]} does", replace(right, sync_offsets={launch.name: offsets})


def _predicates(right: PlannedProgram) -> Planted:
    """What keeps to the edge of an array goes beyond it."""

    def change(node: Node) -> Changed:
        match node:
            case Guard(padding=True, orelse=()):
                yield "no guard", node.body
            case Guard(padding=True):
                yield "no edge", node.body
            case Copy(within=within) if (
                within is not None and right.program.buffers[node.source.buffer].memory is Memory.GLOBAL
            ):
                yield f"all of {node.source.buffer} is wanted", (replace(node, within=None),)
            case _:
                pass

    yield from _in_body(right, change)


PLANTED: dict[str, Callable[[PlannedProgram], Planted]] = dict(
    zip(CLASSES, (_waits, _parity, _early, _fences, _swizzles, _fragments, _overlaps, _predicates), strict=True)
)
