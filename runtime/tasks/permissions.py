"""What a task may do (permissions), what it will do (accesses), and which of the one allows which of the other.

A permission is on a block, a slice or a tensor; dependences between tasks follow from permissions alone. An access is
on one block, which the engine then has ready in the task's memory. The tables:

    access       may_read   may_write   may_read_write   may_accumulate   brings, where nothing is declared
    read            yes        yes           yes               no            may_read
    write           no         yes           yes               no            may_write
    read_write      no         yes           yes               no            may_read_write
    accumulate      no         yes           yes               yes           may_accumulate
    temp            yes        yes           yes               yes           nothing

A write permission is exclusive, so reading inside it is in order; strict engines refuse to read a block before the task
wrote it (E0713). Several permissions of one task on one block fold to one (`FOLD`). A child's permission lies within
its parent's (`WITHIN`).
"""

from enum import IntEnum
from typing import NamedTuple

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.tensors import NO_ACCESSES, Block, Slice, Tensor


class Effect(IntEnum):
    """What dependences ask of a permission: do two tasks conflict? Only equal READs and equal ACCUMULATEs do not."""

    READ = 0
    WRITE = 1
    ACCUMULATE = 2


class Right(IntEnum):
    """The kinds of permissions."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    ACCUMULATE = 3


class Mode(IntEnum):
    """The kinds of accesses."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    ACCUMULATE = 3
    TEMP = 4


# By number, as members of an enumeration are slow keys.
EFFECT = (Effect.READ, Effect.WRITE, Effect.WRITE, Effect.ACCUMULATE)

ALLOWS: dict[Right, frozenset[Mode]] = {
    Right.READ: frozenset({Mode.READ, Mode.TEMP}),
    Right.WRITE: frozenset(Mode),
    Right.READ_WRITE: frozenset(Mode),
    Right.ACCUMULATE: frozenset({Mode.ACCUMULATE, Mode.TEMP}),
}

BRINGS: tuple[Right | None, ...] = (Right.READ, Right.WRITE, Right.READ_WRITE, Right.ACCUMULATE, None)

_R, _W, _RW, _A = Right
FOLD: dict[Right, dict[Right, Right]] = {
    _R: {_R: _R, _W: _RW, _RW: _RW, _A: _RW},
    _W: {_R: _RW, _W: _W, _RW: _RW, _A: _W},
    _RW: {_R: _RW, _W: _RW, _RW: _RW, _A: _RW},
    _A: {_R: _RW, _W: _W, _RW: _RW, _A: _A},
}

WITHIN: dict[Effect, frozenset[Effect]] = {
    Effect.READ: frozenset({Effect.READ}),
    Effect.WRITE: frozenset(Effect),
    Effect.ACCUMULATE: frozenset({Effect.ACCUMULATE}),
}

WORDS = {_R: "read", _W: "write", _RW: "read and write", _A: "accumulate into"}
MODE_WORDS = dict(zip(Mode, ("read", "write", "read_write", "accumulate", "temp"), strict=True))

Region = Block | Slice | Tensor


class Permission(NamedTuple):
    right: Right
    region: Region

    def __repr__(self) -> str:
        return f"may_{self.right.name.lower()}({region_text(self.region)})"


class Access(NamedTuple):
    mode: Mode
    block: Block
    cancellable: bool = False

    def __repr__(self) -> str:
        return f"{MODE_WORDS[self.mode]}({self.block}{', cancellable=True' if self.cancellable else ''})"


def has(right: Right | None) -> str:
    """What a task may do with a block, for errors: "but the task …"."""
    return f"may only {WORDS[right]} it" if right is not None else "has no permission on it"


def region_text(region: Region) -> str:
    return region.name if isinstance(region, Tensor) else repr(region)


def _permission(right: Right, region: object) -> Permission:
    if not isinstance(region, Block | Slice | Tensor):
        raise fail("E0703", f"a permission is on a tensor, a slice or a block, not on a {type(region).__name__[:40]}")
    return Permission(right, region)


def may_read(region: Region) -> Permission:
    return _permission(Right.READ, region)


def may_write(region: Region) -> Permission:
    return _permission(Right.WRITE, region)


def may_read_write(region: Region) -> Permission:
    return _permission(Right.READ_WRITE, region)


def may_accumulate(region: Region) -> Permission:
    return _permission(Right.ACCUMULATE, region)


# Most tasks declare nothing but accesses: each block keeps those to it that were made, one of each mode.
_READ, _WRITE, _READ_WRITE, _ACCUMULATE, _TEMP = Mode  # names of the module are found faster than members


def _no_block(block: object) -> TExprError:
    what = repr(block) if isinstance(block, Slice | Tensor) else f"a {type(block).__name__[:40]}"
    return fail(
        "E0703",
        f"an access is on one block, not on {what}",
        help="declare a permission for the whole, and one access for each block: `for b in A[0].blocks()`",
    )


def read(block: Block | Slice) -> Access:
    """The task reads the block: its values are there when the task begins."""
    if type(block) is not Block:
        raise _no_block(block)
    found: Access | None = block.accesses[_READ]
    return found if found is not None else _first(_READ, block)


def write(block: Block | Slice, *, cancellable: bool = False) -> Access:
    """The task overwrites all of the block."""
    return _modifying(_WRITE, block, cancellable)


def read_write(block: Block | Slice, *, cancellable: bool = False) -> Access:
    """The task reads the block and writes it."""
    return _modifying(_READ_WRITE, block, cancellable)


def accumulate(block: Block | Slice, *, cancellable: bool = False) -> Access:
    """The task adds to the block, by `+=`, in any order with other tasks that do."""
    return _modifying(_ACCUMULATE, block, cancellable)


def temp(block: Block | Slice) -> Access:
    """The task wants memory of the block's shape; what it holds touches the block only if it is committed."""
    if type(block) is not Block:
        raise _no_block(block)
    return Access(_TEMP, block)


def _modifying(mode: Mode, block: Block | Slice, cancellable: bool) -> Access:
    if type(block) is not Block:
        raise _no_block(block)
    found: Access | None = block.accesses[mode]
    if found is None:
        if block.is_zero:
            raise fail("E0709", f"{block} is a zero block, and cannot be declared `{MODE_WORDS[mode]}`")
        found = _first(mode, block)
    return Access(mode, block, True) if cancellable else found


def _first(mode: Mode, block: Block) -> Access:
    if block.accesses is NO_ACCESSES:
        block.accesses = [None] * len(NO_ACCESSES)
    made = block.accesses[mode] = Access(mode, block)
    return made
