"""How a loop over a range is written, so that LLVM can do something with it.

a counter of several digits     runs of the fastest one: addresses go on from row to row
what updates copies of arrays   groups of an iteration for each copy: which one it is, LLVM knows
a running fold of a row         a function that folds vectors of it
a branch that is rarely taken   is asked for many iterations at once, and those run where one of them takes it
"""

from collections.abc import Callable, Sequence
from math import inf

from texpr.codegen.cpu.context import Context
from texpr.codegen.cpu.ranges import Branch, CpuNode, Range, Split
from texpr.codegen.cpu.rarely import ASKED, is_rarely_taken
from texpr.codegen.cpu.scans import fold_lines
from texpr.codegen.cpu.windows import VECTOR, written_out
from texpr.grammar.ast import IndexConst, Read
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.text import ATOM, SUM
from texpr.polyhedral.map.bands import FEW_TURNS
from texpr.polyhedral.mapped.operators import Generic

UNROLLED = 16  # a loop of fewer iterations is left to LLVM, which unrolls it

Inside = Callable[[tuple[CpuNode, ...], Context], None]


def emit_loop(loop: Range, inside: Inside, context: Context) -> None:
    """The loop, around what `inside` writes of nodes."""
    digits = [node for node in loop.body if isinstance(node, Split) and node.source == loop.index]
    copies = max((copies for name, (_, copies, _) in context.tallies.items() if _updates(loop, name)), default=1)
    around, context.turn = context.turn, context.names.of("value", digits[-1].index if digits else loop.index)
    if digits:
        _emit_runs(loop, digits, inside, context)
    elif copies > 1:
        _emit_groups(loop, copies, inside, context)
    elif is_rarely_taken(loop, context.tensors):
        _emit_asked(loop, inside, context)
    elif lines := fold_lines(loop, context):
        for line in lines:
            context.writer.line(line)
    else:
        before, written = written_out(loop, context)
        inside(before, context)
        with context.writer.block(
            f"for {context.turn} in range({_limits(loop, context, windows=written is not loop)}):"
        ):
            inside(written.body, context)
    context.turn = around


def emit_split(digit: Split, counter: str, context: Context) -> None:
    """A digit of a counter."""
    names, text = context.names, counter
    if digit.stride != IndexConst(value=1):
        text += f" // {names.text(digit.stride, ATOM)}"
    context.writer.line(f"{names.of('value', digit.index)} = {text} % {names.text(digit.radix, ATOM)}")


def _limits(loop: Range, context: Context, *, windows: bool) -> str:
    """The limits of a loop; `windows`: whether it has some written out, whose text is too long to be unrolled, too."""
    low, high = context.names.text(loop.low), context.names.text(loop.high)
    if not windows and _is_better_vectorised(loop):
        # The compiler is to know what a constant extent divides by, and not how often the loop turns.
        whole = isinstance(loop.high, IndexConst) and loop.high.value % VECTOR == 0
        high = f"{high} * opaque(1)" if whole else f"opaque({high})"
    return high if loop.low == ZERO else f"{low}, {high}"


def _is_better_vectorised(loop: Range) -> bool:
    """Whether LLVM, knowing the trip count, would unroll a loop that it had better vectorise."""
    if loop.unroll or not isinstance(loop.low, IndexConst) or not isinstance(loop.high, IndexConst):
        return False
    return loop.high.value - loop.low.value >= UNROLLED and _turns(loop.body) <= FEW_TURNS


def _turns(body: tuple[object, ...]) -> float:
    """Turns of the loops inside, which all are unrolled where they are few; infinite where there is a branch."""
    turns = 1.0
    for node in body:
        match node:
            case Range(low=IndexConst(value=low), high=IndexConst(value=high), body=inside):
                turns = max(turns, (high - low) * _turns(inside))
            case Range() | Branch() | Split():
                return inf
    return turns


def _emit_runs(loop: Range, digits: Sequence[Split], inside: Inside, context: Context) -> None:
    """A loop over a counter as runs of its fastest digit; `digits` are those of the counter, the slowest first."""
    writer, names = context.writer, context.names
    for digit in digits:
        emit_split(digit, names.text(loop.low, ATOM), context)
    fastest = names.value(digits[-1].index)
    left, start, run, turn = (names.fresh(word) for word in ("left", "start", "run", "turn"))
    writer.line(f"{left} = {names.text(loop.high, SUM)} - {names.text(loop.low, ATOM)}")
    writer.line(f"{start} = {fastest}")
    with writer.block(f"while {left} > 0:"):
        writer.line(f"{run} = min({names.text(digits[-1].radix, SUM)} - {start}, {left})")
        writer.line(f"{left} -= {run}")
        with writer.block(f"for {turn} in range({run}):"):
            writer.line(f"{fastest} = {start} + {turn}")
            inside(tuple(node for node in loop.body if node not in digits), context)
        writer.line(f"{start} = 0")
        _emit_counted(tuple(reversed(digits[:-1])), context)


def _emit_counted(digits: Sequence[Split], context: Context) -> None:
    """The digits of the next run of the one faster than these, the fastest first: divisions take as long as short rows
    do."""
    if not digits:
        return
    (first, *more), writer = digits, context.writer
    name = context.names.value(first.index)
    writer.line(f"{name} += 1")
    if more:
        with writer.block(f"if {name} == {context.names.text(first.radix, ATOM)}:"):
            writer.line(f"{name} = 0")
            _emit_counted(more, context)


def _updates(loop: Range, name: str) -> bool:
    """Whether the loop is the innermost one around an update of the tensor."""
    return any(isinstance(node, Generic) and any(name == written for written, _ in node.writes) for node in loop.body)


def _emit_groups(loop: Range, copies: int, inside: Inside, context: Context) -> None:
    """Groups of an iteration for each copy, and those that they leave."""
    writer, names, index = context.writer, context.names, context.turn
    start, groups, group, copy = (names.fresh(word) for word in ("start", "groups", "group", "copy"))
    writer.line(f"{start} = {names.text(loop.low)}")
    writer.line(f"{groups} = max(0, {names.text(loop.high, SUM)} - {start}) // {copies}")
    with writer.block(f"for {group} in range({groups}):"), writer.block(f"for {copy} in range({copies}):"):
        writer.line(f"{index} = {start} + {copies} * {group} + {copy}")
        context.turn = copy
        inside(loop.body, context)
    context.turn = index
    with writer.block(f"for {index} in range({start} + {copies} * {groups}, {names.text(loop.high)}):"):
        inside(loop.body, context)


def _emit_asked(loop: Range, inside: Inside, context: Context) -> None:
    """Pieces of a loop of which only those are run where a branch is taken with what there was before them: where none
    is, nothing changes that a branch depends on."""
    writer, names, index = context.writer, context.names, context.turn
    *before, branch = loop.body
    assert isinstance(branch, Branch) and isinstance(branch.condition, Read)
    condition = context.tensor(branch.condition.buffer).identifier
    first, end, some = (names.fresh(word) for word in ("first", "end", "some"))
    with writer.block(f"for {first} in range({names.text(loop.low)}, {names.text(loop.high)}, {ASKED}):"):
        writer.line(f"{end} = min({first} + {ASKED}, {names.text(loop.high)})")
        writer.line(f"{some} = np.int32(0)")
        with writer.block(f"for {index} in range({first}, {end}):"):
            inside(tuple(before), context)
            writer.line(f"{some} = np.int32({some} | np.int32({condition}))")
        with writer.block(f"if {some} != 0:"), writer.block(f"for {index} in range({first}, {end}):"):
            inside(loop.body, context)
