"""Contractions of tiled tensors as tasks on their blocks.

    einsum(engine, "ik,kj->ij", A, B, out=C)          # C[i, j] += sum over k of A[i, k] * B[k, j]

One task for each tuple of tiles of all indices: it reads a block of each operand, and accumulates into one of `out`.
What a tensor's rule says is zero costs nothing: products with a zero block are not made, nor are those that would go to
a zero block of `out`, which takes nothing. Nothing waits: the engine does, when the values are asked for. Workers on a
CPU use NumPy, those on a GPU torch.
"""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.frameworks import on_arrays
from texpr.runtime.tasks.functions import FunctionDefinition
from texpr.runtime.tasks.permissions import accumulate, read
from texpr.runtime.tasks.tensors import Block, Slice, Tensor

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext
    from texpr.runtime.tasks.engine import Engine

Part = Tensor | Slice | Block


def einsum(
    engine: "Engine | TaskContext", subscripts: str, *operands: Part, out: Part, alpha: float = 1, name: str = "einsum"
) -> int:
    """Submit `out += alpha * einsum(subscripts, *operands)` block by block; how many tasks that are. `subscripts` are
    those of `numpy.einsum`, with an arrow; an index has the same tiles wherever it stands. Raises E0703."""
    letters = _letters(subscripts, operands, out)
    parts = [_tiles(part) for part in (*operands, out)]
    spaces: dict[str, tuple[tuple[int, ...], object]] = {}
    if any(_tensor(part) is _tensor(out) for part in operands):
        raise _wrong(subscripts, f"{_tensor(out).name} is both an operand and `out`")
    for part, own, tiles in zip((*operands, out), letters, parts, strict=True):
        for letter, run, space in zip(own, tiles, _tensor(part).spaces, strict=True):
            extents = tuple(space.tile_extent(tile) for tile in run)
            known, first = spaces.setdefault(letter, (extents, part))
            if known != extents:
                raise _wrong(subscripts, f"index {letter} has tiles {known} in {first} and {extents} in {part}")

    def at_host(*given: Any) -> None:
        *arrays, places = given
        values = numpy.einsum(subscripts, *(arrays[place] for place in places), optimize=True)
        arrays[-1][...] += values if alpha == 1 else alpha * values

    def at_gpu(*given: Any) -> None:
        import torch

        *arrays, places = given
        values = torch.einsum(subscripts, *(arrays[place] for place in places))
        arrays[-1][...] += values if alpha == 1 else alpha * values

    function = FunctionDefinition(cpu=on_arrays(at_host), cuda=on_arrays(at_gpu, library="torch"), name=name)
    count = 0
    indices = list(dict.fromkeys((*letters[-1], *(letter for own in letters for letter in own))))
    for chosen in product(*(range(len(spaces[letter][0])) for letter in indices)):
        at = dict(zip(indices, chosen, strict=True))
        *factors, sums = (
            _tensor(part).block(tuple(run[at[letter]] for letter, run in zip(own, tiles, strict=True)))
            for part, own, tiles in zip((*operands, out), letters, parts, strict=True)
        )
        if sums.is_zero or any(factor.is_zero for factor in factors):
            continue
        different = list(dict.fromkeys(factors))
        places = [different.index(factor) for factor in factors]
        engine.submit(function, *map(read, different), accumulate(sums), args=(places,))
        count += 1
    return count


def _letters(subscripts: str, operands: Sequence[Part], out: Part) -> list[str]:
    """The indices of each operand, and of `out` at the end."""
    before, arrow, after = subscripts.replace(" ", "").partition("->")
    found = [*before.split(","), after]
    if not arrow or not all(letter.isascii() and letter.isalpha() for own in found for letter in own):
        raise _wrong(subscripts, "there are indices of one letter, commas, and an arrow, as in `ik,kj->ij`")
    if len(found) != len(operands) + 1:
        raise _wrong(subscripts, f"it has {len(found) - 1} operands, and {len(operands)} are given")
    for own, part in zip(found, (*operands, out), strict=True):
        if not isinstance(part, Part):
            raise _wrong(subscripts, f"operands are tensors, slices and blocks, not a {type(part).__name__[:40]}")
        if len(own) != len(_tensor(part).spaces):
            raise _wrong(subscripts, f"`{own}` has {len(own)} indices, and {part} has {len(_tensor(part).spaces)}")
    missing = [letter for letter in after if letter not in before]
    if missing or len(set(after)) < len(after):
        raise _wrong(subscripts, f"each index behind the arrow stands there once, and before it: `{after}`")
    return found


def _tensor(part: Part) -> Tensor:
    return part if isinstance(part, Tensor) else part.tensor


def _tiles(part: Part) -> tuple[range, ...]:
    if isinstance(part, Block):
        return tuple(range(tile, tile + 1) for tile in part.index)
    return part.tiles if isinstance(part, Slice) else tuple(range(count) for count in part.n_tiles)


def _wrong(subscripts: str, why: str) -> TExprError:
    return fail("E0703", f"einsum {subscripts[:80]!r}: {why}")
