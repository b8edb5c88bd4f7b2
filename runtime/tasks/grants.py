"""What a task declared, folded: which right it has on each block, and which regions its dependences follow.

`grants(task, declared)` checks the accesses against the permissions (E0703, E0704) and gives the `Grants`, in which a
tensor has either one right for the whole of it, or one for each block:

    may_read(A), read(A[0]), accumulate(B[1])   ->  whole {A: READ}, blocks {B[1]: ACCUMULATE}
    may_read(A), may_write(A[0])                ->  blocks {A[0]: READ_WRITE, A[1]: READ, …}

Where permissions cover a block, accesses must be within them; where none does, an access brings its own.
"""

from collections.abc import Sequence
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.permissions import (
    ALLOWS,
    BRINGS,
    EFFECT,
    FOLD,
    MODE_WORDS,
    WITHIN,
    WORDS,
    Access,
    Mode,
    Permission,
    Right,
    has,
)
from texpr.runtime.tasks.tensors import Block, Tensor

NO_TENSORS: dict[Tensor, Right] = {}  # never changed
_TEMP = Mode.TEMP
_RIGHTS = {int(right): right for right in Right}  # found faster than a call of the class finds them


class Grants:
    """A task's rights: on whole tensors, and on single blocks of others; and its accesses in the order of blocks.
    `touched` has the rights on single blocks once more: each accessed or permitted one first, then its block."""

    __slots__ = ("_blocks", "accesses", "touched", "whole")

    def __init__(self, accesses: Sequence[Access] = ()) -> None:
        """Of accesses alone, each of which brings its right."""
        self._blocks: dict[Block, Right] | None = None
        self.whole: dict[Tensor, Right] = NO_TENSORS
        self.touched: Sequence[tuple[int, Block, bool]] = accesses
        self.accesses = accesses

    @property
    def blocks(self) -> dict[Block, Right]:
        if self._blocks is None:
            self._blocks = {block: _RIGHTS[mode] for mode, block, _ in self.touched}
        return self._blocks

    def right(self, block: Block) -> Right | None:
        found = self.blocks.get(block)
        return found if found is not None else self.whole.get(block.tensor)

    def add_block(self, block: Block, right: Right) -> None:
        held = self.blocks.get(block)
        self.blocks[block] = right if held is None else FOLD[held][right]

    def add_whole(self, tensor: Tensor, right: Right) -> None:
        if self.whole is NO_TENSORS:
            self.whole = {}
        held = self.whole.get(tensor)
        self.whole[tensor] = right if held is None else FOLD[held][right]

    def spread(self) -> None:
        """Give every block of a tensor its own right where single blocks have more than the whole."""
        for tensor in {block.tensor for block in self.blocks} & self.whole.keys():
            right = self.whole[tensor]
            mine = [block for block in self.blocks if block.tensor is tensor]
            if all(FOLD[right][self.blocks[block]] is right for block in mine):
                for block in mine:
                    del self.blocks[block]
                continue
            del self.whole[tensor]
            for block in tensor.blocks():
                self.add_block(block, right)


def grants(task: object, declared: Sequence[Any]) -> Grants:
    """The rights of a task, from its permissions and accesses."""
    for item in declared:
        if type(item) is not Access or item[0] is _TEMP:
            return _with_permissions(task, declared)
    if len({item[1] for item in declared}) < len(declared):
        _settle(task, Grants(), declared)  # raises E0703 for the first block that comes twice
    return Grants(declared)


def _with_permissions(task: object, declared: Sequence[Any]) -> Grants:
    found = Grants()
    accesses: list[Access] = []
    for item in declared:
        if type(item) is Access:
            accesses.append(item)
        elif type(item) is Permission:
            region = item.region
            if isinstance(region, Block):
                found.add_block(region, item.right)
            elif isinstance(region, Tensor):
                found.add_whole(region, item.right)
            elif region.is_whole:
                found.add_whole(region.tensor, item.right)
            else:
                for block in region.blocks():
                    found.add_block(block, item.right)
        else:
            raise fail(
                "E0703",
                f"{task} declares a {type(item).__name__[:40]}, no permission and no access",
                help="such as `read(A[0])` or `may_write(A)`; arguments of the function go to `args=`",
            )
    if found.whole and found.blocks:
        found.spread()
    if accesses:
        found.accesses = accesses
        _settle(task, found, accesses)
    found.touched = [(right, block, False) for block, right in found.blocks.items()]
    return found


def _settle(task: object, found: Grants, accesses: Sequence[Access]) -> None:
    """Check the accesses against what was declared, and bring the rights of the others."""
    brought_here: dict[Block, Right] = {}
    for mode, block, _ in accesses:
        held = found.right(block)
        if held is not None and mode not in ALLOWS[held]:
            raise outside(task, mode, block, held)
        if mode is Mode.TEMP:
            continue
        if block in brought_here:
            raise twice(task, block)
        brought_here[block] = BRINGS[mode] if held is None else held  # type: ignore[assignment]  # TEMP went on
    for block, right in brought_here.items():
        if found.right(block) is None:
            found.blocks[block] = right


def twice(task: object, block: Block) -> TExprError:
    return fail(
        "E0703",
        f"{task} declares two accesses to {block}",
        help="one access says all that the task does with a block: `read_write` reads and writes it",
    )


def outside(task: object, mode: Mode, block: Block, right: Right | None) -> TExprError:
    """E0704 for an access that the task's right on the block does not allow, or for which it has none."""
    return fail("E0704", f"{task}: `{MODE_WORDS[mode]}` of {block}, but the task {has(right)}")


def check_within(task: object, child: Grants, parent_task: object, parent: Grants) -> None:
    """E0705 where a child may do more than its parent."""
    for tensor, right in child.whole.items():
        held = parent.whole.get(tensor)
        if held is not None and EFFECT[right] in WITHIN[EFFECT[held]]:
            continue
        for block in tensor.blocks():
            _check_block(task, block, right, parent_task, parent)
    for block, right in child.blocks.items():
        _check_block(task, block, right, parent_task, parent)


def _check_block(task: object, block: Block, right: Right, parent_task: object, parent: Grants) -> None:
    held = parent.right(block)
    if held is None or EFFECT[right] not in WITHIN[EFFECT[held]]:
        raise fail("E0705", f"{task} would {WORDS[right]} {block}, but its parent {parent_task} {has(held)}")
