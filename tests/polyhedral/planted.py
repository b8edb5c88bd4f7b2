"""Kernels with one thing wrong each: faults planted in the planned program, by class.

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
from spoil import detuned, spoiled

from texpr.codegen.plan import plan
from texpr.grammar.ast import Gather, IndexBinary, IndexExpr, IndexOp, IndexVar, Read, Subscript
from texpr.grammar.index.expr import ONE, ZERO, add, combine, const, constant_value, names, substitute, subtract
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.value import Xor
from texpr.polyhedral.mapped.between import AfterLaunch
from texpr.polyhedral.mapped.operators import Copy, Generic, Reduce, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Release
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.mapped.walks import block_buffers, branches, launches, with_branches
from texpr.polyhedral.names import stem

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
    "a wrong piece",
)


BEYOND = "what is read behind a row is in the array, and goes into sums that nobody stores"
EMPTY = "the last groups have no copies"
ALONE = "a pipe of one slot"
ZEROS = "what lies behind is zeros, as the loads say, too"
OUTSIDE = "threads beyond the columns begin a sum of their own that nobody reads"
HARMLESS = {
    ("shared", "slots of C_parts overlap"): ALONE,
    ("scaled sums", "slots of top_parts overlap"): ALONE,
    ("scaled sums", "slots of total_parts overlap"): ALONE,
    ("rows across", "no guard (2)"): ZEROS,
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
    ("ring of rows", "no guard"): OUTSIDE,
    ("ring of rows", "all of A is wanted"): BEYOND,
}
OWN = {  # what kernels have that are else like others
    "first": ("what is before",),
    "chain": ("what is before", "the next of D"),
    "crossed": (
        "drop barrier (warpgroup)", "drop fence (async_proxy)", "drop wait (bulk", "no swizzle of C_rows",
        "columns a matrix further", "C_rows begins where",
    ),
}  # fmt: skip


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
            if not text.startswith(OWN.get(kernel, "")):
                continue
            kept = text.split(" (")[0]
            seen[kept] = seen.get(kept, 0) + 1
            again = f" ({seen[kept]})" if seen[kept] > 1 else ""
            if seen[kept] <= EACH and (kernel, f"{text}{again}") not in HARMLESS:
                yield Fault(kernel, kind, f"{text}{again}", wrong)


Planted = Iterator[tuple[str, PlannedProgram]]
Changed = Iterator[tuple[str, tuple[Node, ...]]]
Change = Callable[[Node], Changed]
Ways = Callable[[MappedProgram], Iterator[tuple[str, MappedProgram]]]


def _launches(right: PlannedProgram) -> list[Launch]:
    return list(launches(right.program.host))


def _in_body(right: PlannedProgram, change: Change) -> Planted:
    """The program with one node put through a change."""
    for launch in _launches(right):
        for text, body in _bodies(launch.body, change):
            host = tuple(replace(one, body=body) if one is launch else one for one in right.program.host)
            yield text, _with_program(right, replace(right.program, host=host))


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


def _spoilt(right: PlannedProgram, *begins: str, ways: Ways = spoiled) -> Planted:
    """Syncs that are dropped, doubled, moved or detuned, as `spoil.py` names them."""
    for text, program in ways(right.program):
        if text.startswith(begins):
            yield text, _with_program(right, program)


BARRIERS = ("barrier (block)", "barrier (cluster", "barrier (warpgroup")
WAITS = ("wait ring", "wait met", "wait (", "wait at", "acquire", *BARRIERS, "last")


def _waits(right: PlannedProgram) -> Planted:
    yield from _spoilt(right, *(f"drop {name}" for name in WAITS))
    yield from _spoilt(right, "the last is one too", ways=detuned)

    def change(node: Node) -> Changed:
        if isinstance(node, Guard) and node.body and isinstance(node.body[0], AfterLaunch):
            yield "what is before is waited for too late", (replace(node, body=(*node.body[1:], node.body[0])),)

    yield from _in_body(right, change)


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
        if xor.bits > 1 and not any(launch.pipes for launch in _launches(right)):  # no box is written with it
            others.append(("a narrower", Xor(bits=xor.bits - 1, base=xor.base, shift=xor.shift)))
        for text, other in others:
            layout = replace(placed.layout, xor=other)
            yield f"{text} swizzle of {name}", _moved(right, name, layout=layout)


def _moved(right: PlannedProgram, name: str, **how: Any) -> PlannedProgram:
    return replace(right, addresses={**right.addresses, name: replace(right.addresses[name], **how)})


REVERSED = (("half", "rows", 2), ("one", "columns", 2), ("i_row", "rows", 4))  # indices of what one thread holds


def _fragments(right: PlannedProgram) -> Planted:
    """A lane takes, or stores, another element of what the threads of its team hold."""
    registers = [b for b in right.program.buffers.values() if b.memory is Memory.REG]
    held = [b.name for b in registers if len(b.shape) > 1 or b.name.endswith("_run")]

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
            case Reduce(reads=reads) if all(read.subscripts for read in reads):
                first = {read: replace(read, subscripts=(ZERO,) * len(read.subscripts)) for read in reads}
                values = tuple(rewrite(value, lambda part: first.get(part, part)) for value in node.values)
                yield "one part for all", (replace(node, values=values),)
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
    for launch in _launches(right):
        for pipe in right.sync_offsets[launch.name]:
            first = next(n for n in shared if n in {b.name for b in block_buffers(right.program, launch)})
            at = constant_value(right.addresses[first].offset_bytes) or 0
            offsets = {**right.sync_offsets[launch.name], pipe: at}
            moved = {**right.sync_offsets, launch.name: offsets}
            yield f"{pipe} begins where {first} does", replace(right, sync_offsets=moved)


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


STEPS = {"k_step", "k_taken", "k_first"}
TURNS = ("tile", "first", "low", "sharers")  # which of the pieces that a block has


def _with(view: View, name: str, value: IndexExpr) -> View:
    """The view whose subscripts have a value for an index."""
    swap = _only(name, value)
    at = tuple(s if isinstance(s, Gather) else substitute(s, swap) for s in view.subscripts)
    return replace(view, subscripts=at)


def _pieces(right: PlannedProgram) -> Planted:
    """A block takes another piece of the work than the one that is its own, or puts it elsewhere."""
    arrays = {buffer.name for buffer in right.program.kernel.params}
    between = {b.name for b in right.program.buffers.values() if b.memory is Memory.GLOBAL} - arrays
    ours = (Memory.SHARED, Memory.REG)

    def change(node: Node) -> Changed:
        match node:
            case Define(index=index, offset=offset) if stem(index) in TURNS:
                yield f"{stem(index)} is one further", (replace(node, offset=add(offset, ONE)),)
            case Copy(source=source, target=target) if right.program.buffers[target.buffer].memory in ours:
                yield from ((f"{text} is taken", (replace(node, source=v),)) for text, v in further(source))
            case Copy(target=target):
                yield from ((f"{text} is put", (replace(node, target=v),)) for text, v in further(target))
            case _:
                pass

    def further(view: View) -> Iterator[tuple[str, View]]:
        if view.buffer in between and not isinstance(view.subscripts[0], Gather):
            moved = (add(view.subscripts[0], ONE), *view.subscripts[1:])
            yield f"the next of {view.buffer}", replace(view, subscripts=moved)
        own = {name for s in view.subscripts if not isinstance(s, Gather) for name in names(s)}
        for step in sorted(own & STEPS):
            yield f"the next step of {view.buffer}", _with(view, step, add(IndexVar(name=step), ONE))
        if "k_taken" in own:
            yield f"{view.buffer} forwards in every turn", _with(view, "k_taken", IndexVar(name="k_step"))

    yield from _in_body(right, change)


PLANTS = (_waits, _parity, _early, _fences, _swizzles, _fragments, _overlaps, _predicates, _pieces)
PLANTED: dict[str, Callable[[PlannedProgram], Planted]] = dict(zip(CLASSES, PLANTS, strict=True))
