"""Moves and refusals in words: what `texpr map` tells of a schedule, and why a move is not made.

fused `par i` (t) and `par i_1` (Y) into one launch
"""

from typing import assert_never

from texpr.grammar.ast import Accumulate, Atomic, Bind, Kernel, New, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import Diagnostic, Label, TExprError, error
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Precompute,
    Residues,
    Sink,
    Swap,
    View,
)
from texpr.polyhedral.program import Access, AccessMode, Program
from texpr.polyhedral.prove.witness import instance_mapping, instance_text, least, least_pair, sizes_mapping, sizes_text
from texpr.polyhedral.schedule.check import Fault
from texpr.polyhedral.schedule.legal import Violation
from texpr.polyhedral.schedule.tree import loop_of, place_of

PAST = {
    AccessMode.READ: "reads",
    AccessMode.WRITE: "writes",
    AccessMode.ACCUMULATE: "updates",
    AccessMode.ATOMIC: "updates",
}
EXAMPLE = "the iterations that this move would put out of order"
HELP = "leave the move out of the mapping"


def in_words(kernel: Kernel, move: Move) -> str:
    """What a move does to a kernel that it fits."""
    match move:
        case Fuse(first=first, second=second, shift=shift):
            place, _ = loop_of(kernel, first)
            alone = not any(isinstance(stmt, Par) for stmt in place.around)
            later = f", the second one {shift} iteration{'s' if shift > 1 else ''} later" if shift else ""
            one = "launch" if alone and isinstance(place.stmt, Par) else "loop"
            both = (_leaving(loop_of(kernel, index)[1]) for index in (first, second))
            return f"fused {' and '.join(both)} into one {one}{later}"
        case Swap(first=first, second=second):
            return f"put {_writing(kernel, second)} before {_writing(kernel, first)}"
        case Distribute(loop=loop, before=before):
            return f"made two loops of {_loop(kernel, loop)}, the second one from {_said(kernel, before)} on"
        case Interchange(outer=outer):
            inner = loop_of(kernel, outer)[1].body[0]
            return f"turned {_loop(kernel, outer)} inside {_named(inner)}"
        case Parallelize(loop=loop):
            return f"made a `par` of {_loop(kernel, loop)}"
        case Sink(statement=statement, loop=loop):
            ahead = place_of(kernel, statement).at < loop_of(kernel, loop)[0].at
            which = "first" if ahead else "last"
            return f"sank {_writing(kernel, statement)} into the {which} iteration of {_loop(kernel, loop)}"
        case Residues(loop=loop, phases=phases):
            return f"split {_loop(kernel, loop)} into {phases} phases, one for each remainder by {phases}"
        case Contract(buffer=buffer, loop=loop):
            return f"made {buffer} a local of each iteration of {_loop(kernel, loop)}"
        case Expand(buffer=buffer, loop=loop):
            return f"gave {buffer} elements for all iterations of {_loop(kernel, loop)}"
        case View(buffer=buffer):
            return f"saw {buffer} with the dimensions of its flat subscripts"
        case Precompute(statement=statement, part=part, dtype=dtype):
            what = "the value" if part == "value" else f"the {part} factor"
            return f"computed {what} of {_writing(kernel, statement)} once, as an array of {dtype}"
        case _:
            assert_never(move)


def _loop(kernel: Kernel, index: str) -> str:
    return _named(loop_of(kernel, index)[1])


def _named(stmt: Stmt) -> str:
    assert isinstance(stmt, Par | Seq)
    return f"`{'par' if isinstance(stmt, Par) else 'seq'} {stmt.index}`"


def _said(kernel: Kernel, name: str) -> str:
    stmt = place_of(kernel, name).stmt
    return _named(stmt) if isinstance(stmt, Par | Seq) else name


def _writing(kernel: Kernel, name: str) -> str:
    """A statement with what it leaves behind."""
    stmt = place_of(kernel, name).stmt
    return _leaving(stmt) if isinstance(stmt, Par | Seq) else name + _written(stmt)


def _leaving(loop: Stmt) -> str:
    return _named(loop) + _written(loop)


def _written(stmt: Stmt) -> str:
    own = {s.buffer for s in statements((stmt,)) if isinstance(s, New)}
    found = (s.buffer for s in statements((stmt,)) if isinstance(s, Bind | Accumulate | Atomic))
    written = dict.fromkeys(buffer for buffer in found if buffer not in own)
    return f" ({', '.join(written)})" if written else ""


def refusal(program: Program, move: Move, why: Violation) -> Diagnostic:
    """E0404 for a move that is not legal, with the least instances that say so."""
    what = f"the schedule cannot do this: {_wanted(program.kernel, move)}"
    if why.lost is not None:
        statement = program.statement(why.statement)
        with program.work.limited(statement.leaf.span, EXAMPLE, isl.columns(why.lost)):
            sizes, values = least(program, why.lost)
        where = instance_text(program, statement, sizes, values) or "once"
        label = f"{sizes_text(program, sizes)}{statement.id} runs at {where}, where the loop has no iteration"
        witness = {"sizes": sizes_mapping(program, sizes), "statement": statement.id}
        return error("E0404", what, statement.leaf.span, label, help=HELP, witness=witness)
    assert why.source is not None and why.sink is not None and why.relation is not None
    verb = "both use one element of" if why.apart else "would no longer wait for"
    return _between(program, what, why.source, why.sink, why.relation, verb)


def fault(program: Program, found: Fault) -> TExprError:
    """E0404 for a schedule that the check refuses."""
    if found.source is None or found.sink is None or found.relation is None:
        return TExprError([error("E0404", f"the schedule does not pass its check: {found.why}", found.span)])
    what = f"the schedule does not pass its check: {found.why}"
    return TExprError([_between(program, what, found.source, found.sink, found.relation, "would no longer wait for")])


def _between(program: Program, what: str, source: Access, sink: Access, relation: isl.Map, verb: str) -> Diagnostic:
    """The least pair of instances, at the later one."""
    one, two = program.statement(source.statement), program.statement(sink.statement)
    with program.work.limited(sink.span, EXAMPLE, isl.columns(relation)):
        pair = least_pair(program, relation, one)
    places = [
        instance_text(program, statement, pair.sizes, values) or "its only iteration"
        for statement, values in ((one, pair.first), (two, pair.second))
    ]
    home = program.buffers[sink.buffer].buffer
    name = home.source_name or home.name
    told = sizes_text(program, pair.sizes)
    if verb.startswith("both"):
        label = f"{told}{two.id} at {places[1]} and {one.id} at {places[0]} {verb} {name}"
    else:
        label = f"{told}{two.id} at {places[1]} {PAST[sink.mode]} {name} and {verb} {one.id} at {places[0]}"
    return error(
        "E0404",
        what,
        sink.span,
        label,
        secondary=_labels(source.span, sink.span, f"{one.id} {PAST[source.mode]} it before"),
        help=HELP,
        witness={
            "sizes": sizes_mapping(program, pair.sizes),
            "first_statement": one.id,
            "first": instance_mapping(one, pair.first),
            "second_statement": two.id,
            "second": instance_mapping(two, pair.second),
            "buffer": sink.buffer,
        },
    )


def _labels(source: Span, sink: Span, text: str) -> tuple[Label, ...]:
    return () if source == sink else (Label(span=source, text=text),)


def _wanted(kernel: Kernel, move: Move) -> str:
    """The move as one that was not made."""
    words = in_words(kernel, move)
    verb, _, rest = words.partition(" ")
    return f"{INFINITIVE[verb]} {rest}"


INFINITIVE = {
    "fused": "fuse",
    "put": "put",
    "made": "make",
    "turned": "turn",
    "sank": "sink",
    "split": "split",
    "gave": "give",
    "computed": "compute",
}
