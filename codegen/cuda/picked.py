"""Picks of narrow registers in CUDA: one call for all neighbours that a thread has, two of them at a time.

    for v < 8 (unrolled)                           tx::pick<tx::FirstGreatest<tx::bf16>>(top_narrow, at_narrow,
      condition = X_run[8 * r + v] > top_narrow[v]     X_run, 8 * r, (32 * r + i_first) / 32);
      if condition
        top_narrow[v] = X_run[8 * r + v] ; at_narrow[v] = i / 32

NVIDIA's compiler has no such instructions for what is written element by element.
"""

from texpr.codegen.cuda.access import Access
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.index import SUM
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.literals import storage_type
from texpr.codegen.layout import room
from texpr.grammar.ast import Bind, Fn, IndexExpr, IndexValue, IndexVar, Op, Read
from texpr.grammar.index.expr import ZERO, constant_value, names, substitute
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16, I16
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop

ORDERS = {Fn.GT: "FirstGreatest", Fn.GE: "LastGreatest", Fn.LT: "FirstLeast", Fn.LE: "LastLeast"}
NARROW = F16, BF16
IN_WORD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """So many elements of `held` from `first` on, which take the place of those of `best` that they are better than,
    and their `number` that of those of `at`."""

    order: str
    best: Read
    at: str
    held: Read
    first: IndexExpr
    number: IndexExpr
    count: int


def picked(loop: Loop) -> Picked | None:
    """What a loop picks that does nothing else, of narrow elements that lie beside one another; None of other loops."""
    own = IndexVar(name=loop.index)
    defined = {node.index: node.value for node in loop.body if isinstance(node, Define)}
    match tuple(node for node in loop.body if not isinstance(node, Define)):
        case (
            Fresh(buffer=local),
            Generic(leaf=Bind(buffer=asked, value=Op(fn=fn, args=(Read() as held, Read() as best))), unused=None),
            Guard(
                condition=Read(buffer=condition),
                body=(
                    Generic(leaf=Bind(buffer=taken, subscripts=there, value=value), unused=None),
                    Generic(leaf=Bind(buffer=at, subscripts=beside, value=IndexValue() as number), unused=None),
                ),
                orelse=(),
                once=False,
            ),
        ) if local == asked == condition and fn in ORDERS and value == held:
            pass
        case _:
            return None
    count = constant_value(loop.extent) or 0
    narrow = (
        count > 0 and count % IN_WORD == 0 and held.dtype in NARROW and best.dtype == held.dtype and number.dtype == I16
    )
    each = best.buffer == taken and best.subscripts == there == beside == (own,)
    if not (narrow and each and loop.unroll and len(held.subscripts) == 1 and held.buffer != taken):
        return None
    (place,) = held.subscripts
    if isinstance(place, IndexExpr) and linear(place).coefficient(loop.index) == 1:
        first = substitute(place, lambda leaf: ZERO if leaf == own else None)
        told = substitute(number.index, lambda leaf: defined.get(leaf.name) if isinstance(leaf, IndexVar) else None)
        if loop.index not in names(told):
            return Picked(order=ORDERS[fn], best=best, at=at, held=held, first=first, number=told, count=count)
    return None


def picked_in_registers(loop: Loop, frame: Frame) -> Picked | None:
    """The same where all of it is in registers, of which it picks into all."""
    found = picked(loop)
    if found is None:
        return None
    names_ = (found.best.buffer, found.at, found.held.buffer)
    variables = [frame.tensors[name].variable for name in names_ if name not in frame.accumulators]
    arrays = len(variables) == len(names_) and all(v is not None and not v.scalar for v in variables)
    return found if arrays and all(room(frame.buffer(name)) == found.count for name in names_[:2]) else None


def pick_call(found: Picked, access: Access, out: Lines) -> str:
    """The call."""
    best, _ = access.place(found.best.buffer, (ZERO,), writes=True)
    at, _ = access.place(found.at, (ZERO,), writes=True)
    held, where = access.place(found.held.buffer, (found.first,), writes=False)
    number = access.cursor.term(found.number)
    first, told = out.use(where, SUM), out.use(number, SUM)
    return f"tx::pick<tx::{found.order}<{storage_type(found.held.dtype)}>>({best}, {at}, {held}, {first}, {told});"
