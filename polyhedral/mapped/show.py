"""A mapped or planned program as text, for `texpr map`, `texpr graph` and their like in Python.

launch matmul_0   grid (ceildiv(M, 8) * ceildiv(N, 32), 1, 1)   256 threads
  i = 8*i_block + i_warp         i_block: grid.x / ceildiv(N, 32) % ceildiv(M, 8); i_warp: warp % 8
  …
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import assert_never

from texpr.grammar.ast import AccOp, Accumulate, Always, Anchor, Atomic, Condition, Gather, Leaf, Read, Role, Subscript
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.text import ATOM, in_words
from texpr.grammar.records import dataclass
from texpr.grammar.show import show_value
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.layout.text import show as show_layout
from texpr.polyhedral.layout.text import xor_text
from texpr.polyhedral.layout.value import Layout, Placed
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import (
    Contract,
    Copy,
    Elementwise,
    Generic,
    Operator,
    Reduce,
    Scan,
    Unload,
)
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import (
    HostIf,
    HostLoop,
    HostNode,
    Launch,
    MappedBuffer,
    MappedProgram,
)
from texpr.polyhedral.mapped.show_sync import pipe_text, sync_text, word_text
from texpr.polyhedral.mapped.sync import Barrier, Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.walk import read_accesses, written


def show(program: MappedProgram | PlannedProgram) -> str:
    """A mapping: launches with digits and bodies, barriers with reasons, buffers, accesses and notes. Of a planned
    program whole statements, and where every buffer lies. Ends with a newline."""
    if isinstance(program, PlannedProgram):
        return _planned(program)
    lines = [f"kernel {program.kernel.name} on {program.target.name}"]
    if program.report.representative:
        sizes = ", ".join(f"{name} = {value}" for name, value in program.report.representative.items())
        lines.append(f"judged at {sizes}; right for every size")
    if program.report.schedule:
        lines += ["schedule", *(f"  {move}" for move in program.report.schedule)]
    for node in program.host:
        lines += _host(node, _Words(leaf=leaf_text))
    lines.append("buffers")
    lines += [f"  {line}" for line in _table([_buffer(b) for b in program.buffers.values()])]
    if program.report.accesses:
        lines.append("accesses in global memory, of one warp")
        rows: list[tuple[str, ...]] = [("statement", "access", "mode", "lane stride", "d", "sectors", "ideal", "wide")]
        for a in program.report.accesses:
            figures = (a.lane_stride, a.distance, a.sectors, a.ideal_sectors)
            shown = ("-" if f is None else str(f) for f in figures)
            rows.append((a.statement, a.relation, a.mode, *shown, f"{a.width} together" if a.width > 1 else ""))
        if not any(row[-1] for row in rows[1:]):
            rows = [row[:-1] for row in rows]
        lines += [f"  {line}" for line in _table(rows)]
    lines += [f"note: {note}" for note in program.report.notes]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """How a statement is written, and the bytes of shared memory by launch."""

    leaf: Callable[[Leaf], str]
    shared_bytes: Mapping[str, int] = field(default_factory=dict)


def _planned(planned: PlannedProgram) -> str:
    program = planned.program
    lines = [f"kernel {program.kernel.name} on {program.target.name}"]
    if program.kernel.facts:
        lines.append(f"where {', '.join(map(in_words, program.kernel.facts))}")
    for node in program.host:
        lines += _host(node, _Words(leaf=whole_text, shared_bytes=planned.shared_bytes))
    lines.append("buffers")
    rows = [_placed(buffer, planned.addresses[buffer.name]) for buffer in program.buffers.values()]
    lines += [f"  {line}" for line in _table(rows)]
    if planned.workspace_bytes != ZERO:
        lines.append(f"workspace of {in_words(planned.workspace_bytes)} bytes")
    return "\n".join(lines) + "\n"


def _placed(buffer: MappedBuffer, address: Placed) -> tuple[str, str, str, str]:
    named, memory, _, _ = _buffer(buffer)
    within = buffer.role is Role.LOCAL and buffer.memory is not Memory.REG
    layout = _lies(address.layout) if buffer.shape else ""
    return named, memory, layout, f"at byte {in_words(address.offset_bytes)}" if within else ""


def _lies(layout: Layout) -> str:
    """Where the elements lie among one another: strides, and what these do not say."""
    steps = strides(replace(layout, xor=None))
    if steps is None:
        return show_layout(layout)
    mixed = "" if layout.xor is None else f", {xor_text(layout.xor)}"
    return f"strides ({', '.join(map(in_words, steps))}){mixed}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with aligned columns."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _buffer(buffer: MappedBuffer) -> tuple[str, str, str, str]:
    shape = ", ".join(in_words(e) for e in buffer.shape)
    usual = buffer.role is Role.LOCAL and buffer.layout == row_major(buffer.shape)
    layout = "" if usual else _lies(buffer.layout)
    expanded = f", one copy for each {', '.join(buffer.expanded)}" if buffer.expanded else ""
    return f"{buffer.name}: {buffer.dtype}[{shape}]", buffer.memory.value, layout, buffer.reason + expanded


def _host(node: HostNode, words: _Words) -> Iterator[str]:
    match node:
        case Launch():
            yield from _launch(node, words)
        case HostLoop(index=index, extent=extent, body=body):
            yield f"host loop {index} < {in_words(extent)}"
            yield from (f"  {line}" for inner in body for line in _host(inner, words))
        case HostIf(condition=condition, then=then, orelse=orelse):
            yield f"host if {in_words(condition)}"
            yield from (f"  {line}" for inner in then for line in _host(inner, words))
            if orelse:
                yield "host else"
            yield from (f"  {line}" for inner in orelse for line in _host(inner, words))


def _launch(launch: Launch, words: _Words) -> Iterator[str]:
    grid = ", ".join(in_words(g) for g in launch.grid)
    arguments = f"  arguments {', '.join(launch.arguments)}" if launch.arguments else ""
    cluster = f"  clusters of {launch.cluster}" if launch.cluster != (1, 1, 1) else ""
    threads = f"{launch.threads} thread{'s' * (launch.threads > 1)}"
    threads += f", at least {launch.min_blocks} blocks together" if launch.min_blocks > 1 else ""
    threads += f", blocks numbered by {launch.turns}" if launch.turns else ""
    shared_bytes = words.shared_bytes.get(launch.name, 0)
    shared = f"  {shared_bytes} bytes of shared memory" if shared_bytes else ""
    yield f"launch {launch.name}  grid ({grid})  {threads}{cluster}{shared}{arguments}"
    for when, arrays in (("last", launch.lasting), ("first", launch.passing)):
        if arrays:
            yield f"  the L2 gives up {when} what was read of {', '.join(arrays)}"
    if launch.digits:
        yield "  digits"
        yield from (f"    {line}" for line in _table([(d.name, _place(d)) for d in launch.digits]))
    yield from (f"  {pipe_text(pipe)}" for pipe in launch.pipes)
    yield "  body"
    yield from (f"    {line}" for line in _nodes(launch.body, words))


def _place(digit: Digit) -> str:
    radix, stride = in_words(digit.radix, ATOM), in_words(digit.stride, ATOM)
    if digit.place in (Place.SERIAL, Place.VECTOR):
        return f"{digit.place.value}, {in_words(digit.radix)} iterations"
    over = "" if stride == "1" else f" / {stride}"
    return f"{digit.place.value}{over} % {radix}"


def _nodes(body: Sequence[Node], words: _Words) -> Iterator[str]:
    for node in body:
        yield from _node(node, words)


def _reason(orders: Sequence[Order]) -> str:
    """The first order in words; a barrier enforces at least one."""
    order = orders[0]
    words = {"flow": "reads what {0} wrote to", "anti": "overwrites what {0} read from", "output": "overwrites {0}'s"}
    verb = words[order.hazard.value].format(order.source)
    when = f" in an earlier iteration of {order.carried_by}" if order.carried_by else ""
    more = f" (and {len(orders) - 1} more)" if len(orders) > 1 else ""
    return f"{order.sink} {verb} {order.buffer}{when}{more}"


def _node(node: Node, words: _Words) -> Iterator[str]:
    match node:
        case Define(index=index, digits=digits, offset=offset):
            terms = [d.name if d.weight == 1 else f"{d.weight}*{d.name}" for d in digits]
            terms += [] if offset == ZERO else [in_words(offset)]
            yield f"{index} = {' + '.join(terms) or '0'}"
        case Loop(index=index, extent=extent, body=body):
            kind = (
                "vector" if node.vector else "par, in one thread" if node.parallel else "serial" if node.digit else ""
            )
            word = "" if node.word is None else f"in the word of {element_text(node.word.buffer, node.word.subscripts)}"
            marks = ", ".join(m for m in (kind, _unrolled(node), word) if m)
            yield f"for {index} < {in_words(extent)}{f'  ({marks})' if marks else ''}"
            yield from (f"  {line}" for line in _nodes(body, words))
        case Guard(condition=condition, body=body, orelse=orelse):
            yield f"if {_condition(condition)}{'  (padding)' if node.padding else '  (once)' if node.once else ''}"
            yield from (f"  {line}" for line in _nodes(body, words))
            if orelse:
                yield "else"
                yield from (f"  {line}" for line in _nodes(orelse, words))
        case Generic():
            yield _statement(node, words)
        case Copy():
            yield f"{node.id}: copy {words.leaf(node.leaf)}{_copied(node)}"
        case Elementwise(leaves=leaves, over=over):
            what = "; ".join(map(words.leaf, leaves))
            yield f"{node.id}: each {_box(over)}: {what}{f'  ({node.unused.value})' if node.unused else ''}"
        case Reduce() | Scan():
            yield f"{node.id}: {_reduced(node)}"
        case LookBack():
            yield f"{node.id}: {_looked_back(node)}"
        case Lead(index=index, of=of, bytes=bytes):
            yield f"{index} = {element_text(of.buffer, of.subscripts)} behind a multiple of {bytes} bytes"
        case Contract(over=over, accumulate=accumulate, atom=atom):
            fresh = "" if accumulate == Always(value=True) else f", from 0 unless {in_words(accumulate)}"
            yield f"{node.id}: contract {words.leaf(node.leaf)} for {_box(over)}{fresh}  ({atom.name})"
        case Unload(over=over, atom=atom):
            verb = "load" if atom.loads else "unload"
            yield f"{node.id}: {verb} {words.leaf(node.leaf)} for {_box(over)}  ({atom.name})"
        case _ if isinstance(node, Operator):
            yield f"{node.id}: {type(node).__name__.lower()}"
            yield from (f"  {line}" for line in _node(expand(node), words))
        case Fresh(buffer=buffer):
            yield f"new {buffer}"
        case Parts(parts=parts):
            for part in parts:
                registers = f", {part.registers} registers" if part.registers else ""
                yield f"part {part.name} ({part.warps} warp{'s' * (part.warps > 1)}{registers})"
                yield from (f"  {line}" for line in _nodes(part.body, words))
        case Last(counter=counter, at=at, n=n, body=body):
            yield f"last of {in_words(n)} at {word_text(counter, at)}"
            yield from (f"  {line}" for line in _nodes(body, words))
        case Barrier(orders=orders) if orders:
            yield f"{sync_text(node)}: {_reason(orders)}"
        case _ if isinstance(node, Sync):
            yield sync_text(node)
        case _:
            assert_never(node)


def _box(over: Box) -> str:
    return ", ".join(f"{index} < {in_words(extent)}" for index, extent in over)


def _copied(copy: Copy) -> str:
    """Which elements are copied, and how."""
    of = f" for {_box(copy.over)}" if copy.over else ""
    if copy.within is not None:
        of += f", {in_words(copy.within.begin)} <= {copy.over[-1][0]} < {in_words(copy.within.end)}"
        other = "anything" if copy.within.unseen else show_value(copy.within.other) if copy.within.other else ""
        of += f", else {other}" if other else ""
        of += ", no other byte" if copy.within.exact else ""
        if copy.within.part is not None:
            of += (
                f", cut only at {in_words(copy.within.part)} < 1 or {copy.within.whole} <= {in_words(copy.within.part)}"
            )
        of += ", all before the first is used" if copy.within.ahead else ""
    wide = copy.access.value if copy.access is not Access.EACH else ""
    cache = copy.cache.value if copy.cache is not Cache.PLAIN else ""
    how = (
        copy.completion.value,
        copy.pipe,
        "own block" if copy.own_block else "",
        f"to rank {in_words(copy.rank)}" if copy.rank is not None else "",
        "clipped" if copy.clipped else "",
        wide,
        cache,
        copy.unused.value if copy.unused else "",
    )
    return f"{of}  ({', '.join(word for word in how if word)})"


def _looked_back(node: LookBack) -> str:
    """What is folded over blocks, and where it goes."""
    target, value = (element_text(v.buffer, v.subscripts) for v in (node.target, node.value))
    over = f" for {_box(node.over)}" if node.over else ""
    where = word_text(node.flags, (*node.at, node.part))
    how = (where, "one warp asks" if node.one_asks else "", f"told in {node.own.name}" if node.own else "")
    marks = ", ".join(word for word in how if word)
    return f"{target} = {node.monoid} of {target} and of {value} of all blocks before{over}  ({marks})"


def _reduced(node: Reduce | Scan) -> str:
    """What is combined, over what, and where it goes."""
    targets = ", ".join(element_text(t.buffer, t.subscripts) for t in node.targets)
    values = ", ".join(map(show_value, node.values))
    of = f"{'' if node.lift else 'partial '}{values}{f' for {_box(node.over)}' if node.over else ''}"
    how = (f"over {node.lanes} lanes" if node.lanes > 1 else "", "last" if node.last else "")
    marks = ", ".join(word for word in (*how, node.unused.value if node.unused else "") if word)
    reach = "of" if isinstance(node, Reduce) else "before" if node.exclusive else "up to"
    return f"{targets} = {node.monoid} {reach} {of}{f'  ({marks})' if marks else ''}"


def _condition(condition: Condition | Read) -> str:
    if isinstance(condition, Read):
        return element_text(condition.buffer, condition.subscripts)
    return in_words(condition)


def element_text(buffer: str, subscripts: tuple[Subscript, ...]) -> str:
    """An element as the mapping prints it; a subscript that is read from data is `data`."""
    shown = ", ".join("data" if isinstance(s, Gather) else in_words(s) for s in subscripts)
    return f"{buffer}[{shown}]" if subscripts else buffer


def _unrolled(loop: Loop) -> str:
    return "unrolled" if loop.unroll else f"unrolled by {loop.unroll_by}" if loop.unroll_by else ""


def _statement(statement: Generic, words: _Words) -> str:
    store = statement.store
    marks = [statement.origin.value if statement.origin.value != "source" else ""]
    marks += [
        "atomic" if store is not None and store.atomic else "",
        statement.unused.value if statement.unused else "",
    ]
    shown = ", ".join(m for m in marks if m)
    return f"{statement.id}: {words.leaf(statement.leaf)}{f'  ({shown})' if shown else ''}"


def leaf_text(leaf: Leaf) -> str:
    """What a statement writes and what it reads."""
    reads = ", ".join(dict.fromkeys(element_text(r.buffer, r.subscripts) for r in read_accesses(leaf)))
    target = written(leaf)
    what = "anchor" if isinstance(leaf, Anchor) or target is None else f"{element_text(*target)} {_sign(leaf)}"
    return f"{what} {f'from {reads}' if reads else 'a constant'}"


def whole_text(leaf: Leaf) -> str:
    """What a statement computes, gathered subscripts in brackets of their own."""
    value, target = show_value(leaf.value), written(leaf)
    if target is None:
        return f"anchor {value}"
    shown = ", ".join(f"[{show_value(s.value)}]" if isinstance(s, Gather) else in_words(s) for s in target[1])
    return f"{target[0]}{f'[{shown}]' if shown else ''} {_sign(leaf)} {value}"


_SIGN = {AccOp.ADD: "+=", AccOp.MUL: "*=", AccOp.MAX: "max=", AccOp.MIN: "min="}


def _sign(leaf: Leaf) -> str:
    return _SIGN[leaf.op] if isinstance(leaf, Accumulate | Atomic) else "="
