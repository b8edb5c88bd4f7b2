"""Blocks that stay: `#persistent` on a kernel gives a launch as many blocks as a GPU runs at once, and each goes over
its share of what more blocks would have done.

grid (ceildiv(N, 256), 1, 1)      grid (min(ceildiv(N, 256), 528), 1, 1), a loop over i_tile

The fastest digits of the grid keep their blocks, as far as there is room; the blocks of the next one go over it in
steps of what they reach together, and slower ones are loops. Iterations beyond the last block of before are cut by a
guard. The tiles of a block follow one another as the rounds of a `seq` do: they use the same shared memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Attr, Compare, CompareOp, IndexExpr, IndexVar, Kernel
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import add, ceildiv, const, constant_value, minimum, multiply, product
from texpr.grammar.permissions import persistent_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Columns, Contracted, Flat, Single, Tiled
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Loop, Node
from texpr.polyhedral.mapped.walks import map_nodes, of_kind
from texpr.polyhedral.names import Names
from texpr.polyhedral.target import Target

REGISTERS_FOR = 2  # a GPU has the registers of one thread in so many of those that it runs at once, at 64 each


@dataclass(frozen=True, slots=True)
class Shared:
    """A digit of the grid whose iterations fewer blocks share: those of `block`, which step over `reach` of them by
    the loop `tile`."""

    whole: Digit
    block: Digit | None
    tile: str
    reach: int


def persistent(launch: Launch, choice: Choice, kernel: Kernel, target: Target, names: Names) -> Launch:
    """The launch with no more blocks than run at once, where the author asks for it. Raises E0402 where blocks share
    reductions and may be more."""
    attr = persistent_of(kernel)
    if attr is None or not target.is_cuda or isinstance(choice, Single):
        return launch
    room = target.multiprocessors * (launch.min_blocks or blocks_at_once(launch.threads, target))
    if not isinstance(choice, Flat | Blocks | Columns | Tiled | Contracted) or any(of_kind(launch.body, Last)):
        known = constant_value(product(launch.grid))
        if known is None or known > room:
            raise _refused(attr, launch)
        return launch
    return limited(launch, room, names)


def limited(launch: Launch, room: int, names: Names) -> Launch:
    """The launch of a band with `room` for so many blocks, each of which goes over several tiles."""
    kept, shared = _dealt([digit for place in GRID_PLACES for digit in _on(launch.digits, place)], room, names)
    if not shared:
        return launch
    blocks = _placed([*kept, *(one.block for one in shared if one.block is not None)])
    steps = {one.whole.name: one for one in shared}
    body = map_nodes(launch.body, lambda node: _on_blocks(node, blocks, steps))
    for one in shared:
        body = _over(one, blocks, body, launch, names)
    digits = tuple(blocks.get(d.name, d) for d in launch.digits if d.name in blocks or d.name not in steps)
    x, y, z = (product(d.radix for d in digits if d.place is place) for place in GRID_PLACES)
    return replace(launch, grid=(x, y, z), body=body, digits=digits)


def blocks_at_once(threads: int, target: Target) -> int:
    """Of a multiprocessor, with 64 registers for each thread."""
    return max(1, min(target.resident_blocks, target.resident_threads // (REGISTERS_FOR * threads)))


def _on(digits: Sequence[Digit], place: Place) -> list[Digit]:
    """The digits on an axis of the grid, fastest first: each one's stride is the blocks of those before it."""
    left, found = [digit for digit in digits if digit.place is place], list[Digit]()
    while left:
        stride = product(digit.radix for digit in found)
        found.append(next(digit for digit in left if digit.stride == stride))
        left.remove(found[-1])
    return found


def _dealt(digits: Sequence[Digit], room: int, names: Names) -> tuple[list[Digit], list[Shared]]:
    """The digits, fastest first, that keep their blocks, and those that share fewer."""
    kept, shared = list[Digit](), list[Shared]()
    for digit in digits:
        known = constant_value(digit.radix)
        if not shared and known is not None and known <= room:
            kept.append(digit)
            room //= max(known, 1)
            continue
        mine = 1 if shared else max(room, 1)
        block = replace(digit, radix=minimum(digit.radix, const(mine))) if mine > 1 else None
        shared.append(Shared(digit, block, names.fresh(f"{digit.index}_tile"), mine))
    return kept, shared


def _placed(digits: Sequence[Digit]) -> Mapping[str, Digit]:
    """Digits of the grid with the strides that their radices give them, by name."""
    found = dict[str, Digit]()
    for place in GRID_PLACES:
        before = list[IndexExpr]()
        for digit in digits:
            if digit.place is place:
                found[digit.name] = replace(digit, stride=product(before))
                before.append(digit.radix)
    return found


def _on_blocks(node: Node, blocks: Mapping[str, Digit], steps: Mapping[str, Shared]) -> Node:
    """A definition by the blocks that there are now, and the tiles that they come to."""
    if not isinstance(node, Define):
        return node
    offset = node.offset
    for one in (steps[digit.name] for digit in node.digits if digit.name in steps):
        step = const(one.whole.weight * one.reach)
        offset = add(offset, multiply(step, IndexVar(name=one.tile)))
    digits = tuple(blocks.get(d.name, d) for d in node.digits if d.name in blocks or d.name not in steps)
    return replace(node, digits=digits, offset=offset)


def _over(
    one: Shared, blocks: Mapping[str, Digit], body: tuple[Node, ...], launch: Launch, names: Names
) -> tuple[Node, ...]:
    """The body for each tile of a block: those that there are."""
    whole, known = one.whole, constant_value(one.whole.radix)
    if one.block is not None and (known is None or known % one.reach):
        first = names.fresh(f"{whole.index}_first_of_tile")
        define = _on_blocks(Define(index=first, digits=(whole,)), blocks, {whole.name: one})
        end = multiply(whole.radix, const(whole.weight))
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=first), right=end)
        body = (define, Guard(condition=inside, body=body, padding=True, uniform=Scope.BLOCK, span=launch.span))
    return (Loop(index=one.tile, extent=ceildiv(whole.radix, one.reach), body=body, span=launch.span),)


def _refused(attr: Attr, launch: Launch) -> TExprError:
    why = f"the blocks of {launch.name} share reductions or scans, and may be more than run at once"
    help = "remove #persistent; the compiler then chooses how many share one"
    return fail("E0402", f"#persistent is not mapped here: {why}", attr.span, "this attribute", help=help)
