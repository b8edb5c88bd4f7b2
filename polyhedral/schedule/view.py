"""An array of one dimension seen with several: flat subscripts become the digits that the model splits them into.

    C[i * N + j] of f32[M * N]      C[i, j] of f32[M, N], the same elements at the same addresses

Callers pass what the author declared (`Buffer.given`). No statement moves.
"""

from dataclasses import replace
from itertools import pairwise

from texpr.grammar.ast import Buffer, IndexExpr, Role, Subscript
from texpr.grammar.index.linear import Linear
from texpr.polyhedral.affine import NotAffineError, normal
from texpr.polyhedral.model.delinearize import Stride, parts_of, stride_of
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import View
from texpr.polyhedral.program import Program
from texpr.polyhedral.schedule.origins import Moved
from texpr.polyhedral.schedule.storage import accessed, with_buffer
from texpr.polyhedral.schedule.tree import unfit


def view(program: Program, move: View) -> Moved:
    """The kernel with a parameter of several dimensions. Raises E0404 where its subscripts have no digits, or digits
    that carry into one another."""
    kernel = program.kernel
    buffer = next((b for b in kernel.buffers if b.name == move.buffer and b.role is Role.PARAM), None)
    if buffer is None or len(buffer.shape) != 1 or buffer.strides is not None:
        raise unfit(f"there is no dense parameter {move.buffer[:80]!r} of one dimension", kernel.span)
    strides = _strides(program, buffer)
    shape = _shape(buffer, strides)

    def split(subscripts: tuple[Subscript, ...]) -> tuple[Subscript, ...]:
        (subscript,) = subscripts
        assert isinstance(subscript, IndexExpr), "gathers are not split"
        return tuple(part.expression() for part in parts_of(normal(subscript), strides))

    seen = replace(buffer, shape=shape, given=buffer.shape)
    changed = with_buffer(accessed(kernel, buffer.name, split), seen)
    if not _alike(program, build_program(changed, beside=program), buffer.name):
        raise unfit(f"the digits of {buffer.name}'s subscripts carry into one another", buffer.span, "this parameter")
    return Moved(kernel=changed)


def can_be_seen(program: Program, buffer: Buffer) -> bool:
    """Whether a parameter may have a view; `view` may yet refuse it."""
    home = program.buffers.get(buffer.name)
    return buffer.role is Role.PARAM and buffer.strides is None and home is not None and bool(home.flat_strides)


def _strides(program: Program, buffer: Buffer) -> tuple[Stride, ...]:
    found = [stride_of(normal(stride)) for stride in program.buffers[buffer.name].flat_strides]
    strides = tuple(stride for stride in found if stride is not None)
    if not found or len(strides) != len(found):
        raise unfit(f"{buffer.name} is not split into dimensions", buffer.span, "this parameter")
    return strides


def _shape(buffer: Buffer, strides: tuple[Stride, ...]) -> tuple[IndexExpr, ...]:
    """The extents: how often each stride goes into the one before it, and the first one into the length."""
    try:
        rows, rest = strides[0].divide(normal(buffer.shape[0]))
    except NotAffineError:
        rows, rest = Linear({}), Linear({(): 1})
    inner = [one.over(other) for one, other in pairwise(strides)]
    if rest.terms or None in inner:
        raise unfit(f"{buffer.name} is not made of whole rows", buffer.span, "this parameter")
    return (rows.expression(), *(ratio.form.expression() for ratio in inner if ratio is not None))


def _alike(before: Program, after: Program, name: str) -> bool:
    """Whether every access touches the element that the model split its subscript into."""
    for old, new in zip(before.statements, after.statements, strict=True):
        for one, other in zip(old.accesses, new.accesses, strict=True):
            if one.buffer == name and not one.relation.is_equal(other.relation):
                return False
    return True
