"""The body of a kernel: indices, loops, guards, statements, barriers.

Indices are declared before they are used, and those that no line uses in the end (an index of one value is folded away)
are left out, so that no compiler warns.
"""

from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import assert_never

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.access import Access
from texpr.codegen.cuda.copies import Pieces, check_plain, copy_call, copy_form
from texpr.codegen.cuda.cursor import Cursor
from texpr.codegen.cuda.expr import emit_value
from texpr.codegen.cuda.folds import reduction, scanned, too_deep
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.look_back import Chain
from texpr.codegen.cuda.names import comment, place, source_line
from texpr.codegen.cuda.picked import pick_call, picked_in_registers
from texpr.codegen.cuda.shifted import loads_shifted, shifted_call
from texpr.codegen.cuda.stand import served_lines
from texpr.codegen.cuda.statements import bind, declared, statement
from texpr.codegen.cuda.sync import Syncs
from texpr.codegen.cuda.tiles import tile_call
from texpr.codegen.cuda.wide import (
    chunk_call,
    chunk_row,
    fill_call,
    is_alone,
    needs_fill,
    rest_of,
    shift_call,
    wide_call,
)
from texpr.grammar.ast import Always, Read
from texpr.grammar.index.expr import constant_value
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import Turn
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
    Unused,
)
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Part, Parts
from texpr.polyhedral.mapped.walks import statements, tree_buffers

_BINDS = Generic | Reduce  # what may define a scalar
MOST_UNROLLED = 64  # asynchronous copies of a thread, one after the other
TINY_EXTENT = 4  # iterations up to which a loop is unrolled unasked


def emit_body(frame: Frame, *, exact: bool) -> tuple[list[str], frozenset[str]]:
    """The lines between the kernel's braces, with the declarations of tensors, not indented; and the names they use.
    `exact` as of `Lines`."""
    out = Lines(exact=exact)
    frame.declare_sizes(out)
    frame.declare_tensors(out)
    cursor = Cursor(frame, out)
    body = _Body(cursor)
    body.syncs.initialise()
    if frame.launch.turns:
        cursor.number_blocks(body.syncs.turn_at(frame.launch.turns, cursor.stand))
    cursor.know_digits(frame.launch.hardware)
    begun = frame.scalars - {fresh.buffer for fresh in frame.facts.of(Fresh)}
    body.nodes(frame.launch.body, begun)
    return out.finish()


class _Body:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor, self.frame, self.out = cursor, cursor.frame, cursor.out
        self.launch = self.frame.launch
        self.access = Access(cursor)
        self.syncs = Syncs(self.frame, self.out)
        self.chain = Chain(cursor, self.access, self.syncs)
        self.commented = ""

    # ---- the tree ----

    def nodes(self, nodes: tuple[Node, ...], begun: Set[str] = frozenset()) -> None:
        """The nodes of a C++ block. A scalar whose `new` is among them, or that has `begun` before, is declared by the
        first that writes it."""
        begun, packed = set(begun), {node.buffer for node in nodes if isinstance(node, Fresh) and node.packed}
        with self.chain.nested():
            for number, node in enumerate(nodes):
                if isinstance(node, Loop) and packed:
                    self._keep(node, packed)
                if isinstance(node, Fresh) and node.buffer in self.frame.scalars:
                    begun.add(node.buffer)
                begins = {name for name, _ in node.writes if name in begun} if isinstance(node, _BINDS) else set[str]()
                begun -= begins
                self._node(node, begins, nodes[number + 1 :])
                self.chain.tell(node)

    def _node(self, node: Node, begins: Set[str] = frozenset(), behind: tuple[Node, ...] = ()) -> None:
        cursor, access = self.cursor, self.access
        match node:
            case Define(index=name):
                cursor.define(name, node.value)
            case Loop() if (found := picked_in_registers(node, self.frame)) is not None:
                self.out.line(pick_call(found, access, self.out), at=found.best.span)
            case Loop():
                self._loop(node)
            case Guard():
                self._inside(node)
            case Fresh(buffer=name):
                self._begin(name)
            case Generic():
                self._explain(node.span, node.leaf.call_spans)
                self._once(node, lambda: self._statement(node, begins=bool(begins)))
            case Copy() if is_alone(node):
                self._once(node, lambda: self._wide(node))
            case Copy(completion=Completion.NOW):
                check_plain(node)
                self._node(expand(node))
            case Elementwise(over=((index, extent), *inner)) if node.unused is not Unused.ONCE:
                self._loop(Loop(index=index, extent=extent, body=rest_of(node, inner), unroll=True, span=node.span))
            case Elementwise():
                self._node(expand(node))
            case Reduce():
                self._once(node, lambda: self._reduce(node, begins))
            case Scan():
                self._once(node, lambda: self._scan(node) if node.over else self._reduce(node, begins))
            case LookBack():
                self.chain.look_back(node, behind)
            case Lead(index=name, of=of, bytes=bytes_):
                array, where = access.place(of.buffer, of.subscripts, writes=False)
                call, high = f"tx::lead<{bytes_}>({array}, {where.text})", bytes_ // of.dtype.size_bytes - 1
                cursor.declare(name, ix.Term(call, ix.ATOM, 0, high, False, names=where.names))
            case Copy():
                self._explain(node.span)
                self._once(node, lambda: self._copy(node))
            case Contract() | Unload():
                if isinstance(node, Contract):
                    self.syncs.groups.start(node.c.buffer)
                self._explain(node.span)
                self.out.line(tile_call(node, self.frame, access.corner, cursor.number), at=node.span)
            case Parts(parts=parts):
                self._parts(parts)
            case Last():
                condition = self.syncs.last(node, cursor.stand, cursor.scope)
                self._branch(f"if ({condition})", node.body)
            case Turn():
                cursor.declare(node.index, self.syncs.turn(node, cursor.stand))
            case _ if isinstance(node, Sync):
                self.syncs.write(node, cursor.stand, cursor.scope)
            case _ if isinstance(node, Operator):
                self._node(expand(node))
            case _:
                assert_never(node)

    def _keep(self, node: Loop, packed: Set[str]) -> None:
        """Before each loop over registers that stay packed: NVIDIA's compiler would unpack them for all loops at once,
        and have no room for what it unpacked."""
        for name in sorted(packed & tree_buffers((node,))):
            self.out.line(f"{self.frame.tensors[name].name}.keep();")

    def _begin(self, name: str) -> None:
        """A `new`: a scalar waits for its first bind, other registers are declared, or begin again."""
        variable = self.frame.tensors[name].variable if name in self.frame.local else None
        if variable is None or variable.scalar or name in self.frame.accumulators:
            return
        self.out.line(self.frame.register(name) if variable.placed else f"{self.frame.tensors[name].name}.fresh();")

    def _once(self, node: Operator, write: Callable[[], None]) -> None:
        """What an operator writes, under the condition that elects a thread where one alone runs it."""
        if node.unused is not Unused.ONCE:
            write()
            return
        with self.out.condition(f"if ({self.cursor.stand.elected})"):
            write()

    def _parts(self, parts: tuple[Part, ...]) -> None:
        """Each part under the condition that tells its warps from those of the parts after it."""
        first = 0
        for number, part in enumerate(parts, start=1):
            head = f"if (tx::warp() < {first + part.warps}) {{" if number < len(parts) else "{"
            head = f"{'} else ' if number > 1 else ''}{head}  // part {part.name}"
            self.out.line(f"{head}{comment(served_lines(part))}")
            with self.cursor.nested(part=part.name, first_warp=first, warps=part.warps), self.out.indented():
                self.syncs.share_registers(part)
                if first:
                    moved = (Place.WARP, Place.WARPGROUP)
                    self.cursor.know_digits(d for d in self.launch.hardware if d.place in moved)
                self.nodes(part.body)
            first += part.warps
        self.out.line("}")

    def _branch(self, head: str, body: tuple[Node, ...], at: Span | None = None, *, ends: bool = True) -> None:
        """A head and what it holds; without its end where another branch follows."""
        with self.out.condition(head, at, ends=ends), self.cursor.nested(looped=True):
            self.nodes(body)

    def _loop(self, loop: Loop, write: Callable[[], None] | None = None) -> None:
        """A loop around its body, or around what `write` writes."""
        extent = self.cursor.term(loop.extent)
        own = self.frame.names.new(loop.index)
        index = ix.variable(own, 0, max(extent.high - 1, 0), wide=not ix.fits_int(0, extent.high))
        small = extent.low == extent.high and extent.high <= TINY_EXTENT
        whole = loop.unroll or (loop.unroll_by is None and (loop.vector or small))
        unrolled = self.cursor.stand.unrolled | {loop.index} if whole else self.cursor.stand.unrolled - {loop.index}
        kind = "tx::i64" if index.wide else "int"
        head = f"for ({kind} {own} = 0; {own} < {self.out.use(extent, ix.SUM)}; ++{own})"
        if whole:
            head = f"TX_UNROLL {head}"
        elif loop.unroll_by is not None:
            head = f"TX_UNROLL_BY({loop.unroll_by}) {head}"
        self._explain_all(loop.body)
        with self.access.in_word(loop.word), self.out.block(head), self.cursor.nested(looped=True, unrolled=unrolled):
            self.cursor.know(loop.index, index)
            if write is None:
                self.nodes(loop.body)
            else:
                write()

    def _inside(self, guard: Guard) -> None:
        elected = self.cursor.stand.elected
        if not guard.once:
            self._guard(guard)
        elif guard.condition == Always(value=True):
            self._branch(f"if ({elected})", guard.body)
        else:
            with self.out.condition(f"if ({elected})"):
                self._guard(guard)

    def _guard(self, guard: Guard) -> None:
        condition = guard.condition
        if not isinstance(condition, Read) and self.cursor.term(condition).low == 1 and self._are_new(guard.body):
            self.nodes(guard.body)  # it always holds
            return
        self._explain_all((*guard.body, *guard.orelse))
        self.access.begin(guard.span)
        if isinstance(condition, Read):
            text = self.out.use(emit_value(condition, self.access.around(strict=False)))
        else:
            text = self.out.use(self.cursor.term(condition))
        self._branch(f"if ({text})", guard.body, self.access.at, ends=not guard.orelse)
        if guard.orelse:
            self._branch("} else", guard.orelse)

    def _are_new(self, nodes: tuple[Node, ...]) -> bool:
        """Whether what is declared among these nodes is declared nowhere else, so that they need no C++ block."""
        names = [node.buffer for node in nodes if isinstance(node, Fresh)]
        return all(self.frame.facts.begun[name] == 1 for name in names)

    # ---- statements ----

    def _statement(self, node: Generic, *, begins: bool) -> None:
        self.access.begin(node.span)
        text = statement(node, self.access, begins=begins)
        self.out.line(text, self.access.at)

    # ---- copies and reductions ----

    def _wide(self, copy: Copy) -> None:
        """The calls that move vectors; what they bring is shifted and filled in when all loads are on their way."""
        if loads_shifted(copy, self.access):
            self.out.line(shifted_call(copy, self.access), at=copy.span)
            if needs_fill(copy):
                self._each_vector(copy, fill_call)
            return
        row, name = chunk_row(copy), ""
        if row:
            name = self.frame.names.new(f"{copy.target.buffer}_chunks")
            self.out.line(f"{row} {name};", at=copy.span)
        self._each_vector(copy, partial(wide_call, chunks=name))
        if row:
            self._each_vector(copy, partial(shift_call, chunks=name))
        if needs_fill(copy):
            self._each_vector(copy, fill_call)

    def _each_vector(self, copy: Copy, call: Callable[[Copy, Access], str]) -> None:
        """A call for the copy's last index, in loops over those around it, unrolled as registers are numbers."""
        if len(copy.over) > 1:
            (index, extent), *inner = copy.over
            rest = replace(copy, over=tuple(inner))
            around = Loop(index=index, extent=extent, body=(), unroll=True, span=copy.span)
            self._loop(around, lambda: self._each_vector(rest, call))
        else:
            self.out.line(call(copy, self.access), at=copy.span)

    def _reduce(self, node: Reduce | Scan, begins: Set[str]) -> None:
        cursor, access, out = self.cursor, self.access, self.out
        name, index, warp = self.frame.names.new(node.id), "", cursor.stand.warp_size
        with cursor.nested():
            for over, extent in node.over:
                index = self.frame.names.new(over)
                cursor.know(over, ix.variable(index, 0, max(cursor.term(extent).high - 1, 0)))
            around = access.around(strict=True)
            if node.over:
                around = replace(around, temporary=too_deep(node))
            done = reduction(node, name, lambda v: out.use(emit_value(v, around)), index, warp)
        access.begin(node.span)
        elements = [access.element(t.buffer, t.subscripts, writes=True) for t in node.targets]
        kinds = [declared(t.buffer, access) if t.buffer in begins else "" for t in node.targets]
        for element in elements:
            out.use(element.value)
        if len(elements) == 1:
            out.line(bind(elements[0], done.whole, kinds[0]), at=node.span)
            return
        out.line(f"const auto {name} = {done.whole.text};", at=node.span)
        for element, kind, component in zip(elements, kinds, done.components, strict=True):
            out.line(bind(element, component, kind), access.at)

    def _scan(self, node: Scan) -> None:
        """A function of the elements, and the call that gives what they are up to each to its targets."""
        cursor, access, out = self.cursor, self.access, self.out
        name, partial = self.frame.names.new(node.id), self.frame.names.new("upto")
        index = self.frame.names.new(node.over[-1][0])
        access.begin(node.span)
        with cursor.nested():
            for over, extent in node.over:
                cursor.know(over, ix.variable(index, 0, max(cursor.term(extent).high - 1, 0)))
            around = replace(access.around(strict=True), temporary=too_deep(node))
            warp = cursor.stand.warp_size
            done = scanned(node, name, lambda v: out.use(emit_value(v, around)), index, partial, warp)
            elements = [access.element(t.buffer, t.subscripts, writes=True) for t in node.targets]
        for element in elements:
            out.use(element.value)
        binds = " ".join(bind(*pair) for pair in zip(elements, done.components, strict=True))
        out.line(done.element, at=node.span)
        out.line(f"{done.call} {{ {binds} }});", access.at)

    def _copy(self, copy: Copy) -> None:
        """The call that begins an asynchronous copy, in loops over what one call does not bring."""
        form = copy_form(copy, self.frame.planned, self.launch)
        if isinstance(form, Pieces) and form.over:
            index, extent = copy.over[0]
            inner = replace(copy, over=copy.over[1:], unused=None)
            whole = (constant_value(extent) or MOST_UNROLLED + 1) <= MOST_UNROLLED
            self._loop(Loop(index=index, extent=extent, body=(inner,), parallel=True, unroll=whole, span=copy.span))
        else:
            access = self.access
            if isinstance(form, Pieces) and form.chunks:
                call = chunk_call(copy, access)
            else:
                call = copy_call(copy, form, self.frame, access.spot, access.corner, self.cursor.number, access.value)
            self.out.line(call, at=copy.span)

    # ---- comments ----

    def _explain(self, span: Span, calls: tuple[Span, ...] = ()) -> None:
        """The source line of a statement, once for each run of statements that come from it."""
        called = "".join(f", called at {place(s)}" for s in reversed(calls) if place(s))
        if place(span) and place(span) + called != self.commented:
            self.commented = place(span) + called
            self.out.line(f"// {self.commented}: {source_line(span)}")

    def _explain_all(self, nodes: tuple[Node, ...]) -> None:
        """The source line before what holds nodes, where all statements in it come from that."""
        found = list(statements(nodes))
        if len({place(one.span) for one in found}) == 1:
            self._explain(found[0].span, found[0].leaf.call_spans)
