"""Picks of narrow elements in registers of their own type, with the number of the round in 16 bits.

    par N j { seq M i { if X[i, j] > top { top = X[i, j] ; at = i } } }     X: bf16, 8 neighbours of j, teams of 32

    every round:     if X_run[j_vector] > top_narrow[j_vector]
                       top_narrow[j_vector] = X_run[j_vector] ; at_narrow[j_vector] = i / 32          in bf16 and i16
    at the end:      top_part = top_narrow in f32 ; at_part = at_narrow < 0 ? -1 : 32 * at_narrow + team

What is picked is an element, so no bit of it is lost, and a thread has every 32nd iteration, so it need not number
those of others. Two such elements lie in a register, and are compared and chosen at once (`tx::pick`): three
instructions for two elements, where in f32 there were four for one. First maxima of bf16 on an H200, of what they read,
beside the same in f32 registers in the same run: 32768 x 4096 .967 and .963, 32749 x 4093 .929 and .922, 257 x 100003
.947 and .946 (.943 and .928 in another run), 131072 x 1024 .967 and .961 (and .949 and .959 in another). A greatest
value alone, without its number, runs at .977, .933, .950 and .974; with three blocks on a multiprocessor, or eight
rounds ahead, all of them are slower or the same.
"""

from dataclasses import replace

from texpr.grammar.ast import Cast, Const, Expr, Fn, IndexOp, IndexValue, IndexVar, New, Op, Read, Select
from texpr.grammar.index.expr import combine, const, constant_value
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, BOOL, F16, F32, I16
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.picks import Pick
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.mapped.tree import Fresh, Node

IN_WORD = 2  # elements


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowPicks:
    """A reduction whose pick is narrow, the registers that a thread has of it, and those of the `whole` pick in the
    end."""

    crew: Crew
    reduction: Reduction
    narrow: Part
    whole: Part

    @property
    def parts(self) -> dict[str, Part]:
        return {self.narrow.update.id: self.narrow}

    def started(self) -> tuple[Node, ...]:
        """Before all rounds."""
        return self.crew.started(self.narrow, "init")

    def widened(self) -> tuple[Node, ...]:
        """Behind all rounds: what was picked, and of which iteration."""
        crew, whole = self.crew, self.whole
        name, at = crew.neighbour()
        best, number = crew.read(self.narrow, at=at)
        none = whole.components[-1].start
        values = (_as(best, whole.components[0].start), self._iteration(number, none))
        return (
            *(Fresh(buffer=register) for register in whole.registers),
            *crew.each(name, crew.put(whole, "whole", whole.registers, at, values, crew.own), whole.update),
        )

    def _iteration(self, number: Read, none: Const) -> Expr:
        crew, span = self.crew, number.span
        wide, team = _as(number, none), Const(value=crew.team, dtype=none.dtype, span=span)
        own = IndexValue(index=IndexVar(name=crew.team_index), dtype=none.dtype)
        rounds = Op(fn=Fn.MUL, args=(wide, team), dtype=none.dtype, span=span)
        picked = Op(fn=Fn.ADD, args=(rounds, own), dtype=none.dtype, span=span)
        some = Op(fn=Fn.GE, args=(wide, Const(value=0, dtype=none.dtype, span=span)), dtype=BOOL, span=span)
        return Select(condition=some, then=picked, other=none, dtype=none.dtype, span=span)


def narrow_picks(crew: Crew, reduction: Reduction) -> NarrowPicks | None:
    """The narrow pick of a reduction by several threads with neighbours along another index, where it does nothing
    else, compares narrow elements as they are, and has so few rounds; None where that is not so."""
    (update, *others), over = reduction.updates, reduction.over
    if others or len(reduction.loops) > 1 or not isinstance(update, Pick) or update.compared is None or update.instead:
        return None
    read, extent = _element(update.compared.value), constant_value(over.extent)
    alone = crew.along is not None and over.index not in crew.choice.widths and crew.width % IN_WORD == 0
    if read is None or extent is None or not alone or update.iteration.index != IndexVar(name=over.index):
        return None
    own = (update.asking, update.condition, update.taken)
    if not all(isinstance(stmt, New) or any(stmt is one for one in own) for stmt in reduction.body):
        return None
    if -(-extent // crew.team) - 1 > I16.integer_range[1]:
        return None
    rounds = combine(IndexOp.DIV, IndexVar(name=over.index), const(crew.team))
    number = IndexValue(index=rounds, dtype=I16)
    narrow = replace(update, compared=replace(update.compared, value=read), iteration=number)
    return NarrowPicks(
        crew=crew,
        reduction=replace(reduction, updates=(narrow,)),
        narrow=crew.registers(narrow, "narrow"),
        whole=crew.registers(update, "part"),
    )


def _element(value: Expr) -> Read | None:
    """The narrow element that a value is."""
    read = value.operand if isinstance(value, Cast) and value.dtype == F32 else value
    return read if isinstance(read, Read) and read.dtype in (F16, BF16) else None


def _as(value: Read, like: Const) -> Expr:
    return value if value.dtype == like.dtype else Cast(operand=value, dtype=like.dtype, span=value.span)
