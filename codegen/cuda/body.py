"""The body of a kernel: indices, loops, guards, statements, barriers.

Indices are declared before they are used, and those that no line uses in the end (an index of one value is folded away)
are left out, so that no compiler warns.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import assert_never

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.access import Access
from texpr.codegen.cuda.copies import Pieces, copy_call, copy_form
from texpr.codegen.cuda.cursor import Cursor
from texpr.codegen.cuda.expr import cast, emit_value, product_factors
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.names import comment, place, source_line
from texpr.codegen.cuda.stand import served_lines
from texpr.codegen.cuda.sync import Syncs
from texpr.codegen.cuda.tiles import tile_call
from texpr.codegen.cuda.wide import check_plain, fill_call, is_alone, reduction, rest_of, too_deep, wide_call
from texpr.grammar.ast import AccOp, Always, Condition, Read
from texpr.grammar.permissions import may_contract, promises_unique
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import Turn
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.operators import Contract, Copy, Elementwise, Generic, Operator, Reduce, Unload, Unused
from texpr.polyhedral.mapped.places import Place
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Part, Parts

_OPERATORS = {AccOp.ADD: "tx::Add", AccOp.MUL: "tx::Mul", AccOp.MAX: "tx::Max", AccOp.MIN: "tx::Min"}
TINY_EXTENT = 4  # iterations up to which a loop is unrolled unasked


def emit_body(frame: Frame, settled: Collection[str]) -> tuple[list[str], frozenset[str]]:
    """The lines between the kernel's braces, with the declarations of tensors, not indented; and the names they use.
    `settled` are the arrays that no launch writes."""
    out = Lines()
    frame.declare_sizes(out)
    frame.declare_tensors(out, settled)
    cursor = Cursor(frame, out)
    body = _Body(cursor)
    body.syncs.initialise()
    cursor.know_digits(frame.launch.hardware)
    for node in frame.launch.body:
        body.syncs.await_blocks(node)
        body.nodes((node,))
    return out.finish()


class _Body:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor, self.frame, self.out = cursor, cursor.frame, cursor.out
        self.launch = self.frame.launch
        self.access = Access(cursor)
        self.syncs = Syncs(self.frame, self.out)
        self.commented = ""

    # ---- the tree ----

    def nodes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        cursor, access = self.cursor, self.access
        match node:
            case Define(index=name, digits=digits, offset=offset):
                total = ix.constant(0)
                for digit in digits:
                    total = ix.add(total, ix.mul(ix.constant(digit.weight), cursor.scope.indices[digit.name]))
                cursor.declare(name, ix.add(total, cursor.term(offset)))
            case Loop():
                self._loop(node)
            case Guard():
                self._inside(node)
            case Fresh(buffer=name):
                if name in self.frame.local:
                    self.out.line(f"{self.frame.tensors[name].name}.fresh();")
            case Generic():
                self._explain(node.span, node.leaf.call_spans)
                self._once(node, lambda: self._statement(node))
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
                self._once(node, lambda: self._reduce(node))
            case Lead(index=name, of=of, bytes=bytes_):
                array, where = access.place(of.buffer, of.subscripts, writes=False)
                call, high = f"tx::lead<{bytes_}>({array}, {where.text})", bytes_ // of.dtype.size_bytes - 1
                cursor.declare(name, ix.Term(call, ix.ATOM, 0, high, False, names=where.names))
            case Copy():
                self._explain(node.span)
                self._once(node, lambda: self._copy(node))
            case Contract() | Unload():
                self._explain(node.span)
                self.out.line(tile_call(node, self.frame, access.corner, cursor.number), at=node.span)
            case Parts(parts=parts):
                self._parts(parts)
            case Last():
                condition = self.syncs.last(node, cursor.stand, cursor.scope)
                self._branch(f"if ({condition}) {{", node.body)
                self.out.line("}")
            case Turn():
                cursor.declare(node.index, self.syncs.turn(node, cursor.stand))
            case _ if isinstance(node, Sync):
                self.syncs.write(node, cursor.stand, cursor.scope)
            case _:
                assert_never(node)

    def _once(self, node: Operator, write: Callable[[], None]) -> None:
        """What an operator writes, under the condition that elects a thread where one alone runs it."""
        if node.unused is not Unused.ONCE:
            write()
            return
        with self.out.block(f"if ({self.cursor.stand.elected})"):
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

    def _branch(self, head: str, body: tuple[Node, ...], at: Span | None = None) -> None:
        """A head and what it holds, without its end."""
        self.out.line(head, at)
        with self.cursor.nested(looped=True), self.out.indented():
            self.nodes(body)

    def _loop(self, loop: Loop, write: Callable[[], None] | None = None) -> None:
        """A loop around its body, or around what `write` writes."""
        extent = self.cursor.term(loop.extent)
        own = self.frame.names.new(loop.index)
        index = ix.variable(own, 0, max(extent.high - 1, 0), wide=not ix.fits_int(0, extent.high))
        small = extent.low == extent.high and extent.high <= TINY_EXTENT
        whole = loop.unroll or loop.vector or small
        unrolled = self.cursor.stand.unrolled | {loop.index} if whole else self.cursor.stand.unrolled - {loop.index}
        kind = "tx::i64" if index.wide else "int"
        head = f"for ({kind} {own} = 0; {own} < {self.out.use(extent, ix.SUM)}; ++{own})"
        head = f"TX_UNROLL {head}" if whole else head
        with self.out.block(head), self.cursor.nested(looped=True, unrolled=unrolled):
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
            self._branch(f"if ({elected}) {{", guard.body)
            self.out.line("}")
        else:
            with self.out.block(f"if ({elected})"):
                self._guard(guard)

    def _guard(self, guard: Guard) -> None:
        self.access.begin(guard.span)
        text = self._condition(guard.condition)
        self._branch(f"if ({text}) {{", guard.body, self.access.at)
        if guard.orelse:
            self._branch("} else {", guard.orelse)
        self.out.line("}")

    def _condition(self, condition: Condition | Read) -> str:
        if isinstance(condition, Read):
            return self.out.use(emit_value(condition, self.access.around(strict=False)))
        return self.out.use(self.cursor.term(condition))

    # ---- statements ----

    def _statement(self, node: Generic) -> None:
        access, out = self.access, self.out
        access.begin(node.span)
        around = access.around(strict=not may_contract(node.leaf))
        store = node.store
        if store is None:
            value = emit_value(node.leaf.value, around)
            out.line(f"tx::anchor({out.use(value)});", access.at)
            return
        target, place_ = access.place(store.buffer, store.subscripts, writes=True, strict=around.strict)
        where = out.use(place_)
        value = emit_value(node.leaf.value, around)
        text, factors = out.use(value), product_factors(value)
        if store.op is None:
            verb = "store_unique" if promises_unique(node.leaf) else "store"
            call = f"{verb}({where}, {cast(value, self.frame.tensors[store.buffer].dtype).text})"
        elif store.atomic:
            call = f"atomic<{_OPERATORS[store.op]}>({where}, {text})"
        elif store.op is AccOp.ADD and factors is not None and not around.strict:
            call = f"add_product({where}, {factors[0]}, {factors[1]})"
        else:
            call = f"update<{_OPERATORS[store.op]}>({where}, {text})"
        out.line(f"{target}.{call};", access.at)

    # ---- copies and reductions ----

    def _wide(self, copy: Copy) -> None:
        """The calls that move vectors; what is not wanted is filled in when all loads are on their way."""
        self._each_vector(copy, wide_call)
        if copy.otherwise is not None:
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

    def _reduce(self, node: Reduce) -> None:
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
        out.line(f"const auto {done.name} = {done.call};", at=node.span)
        for target, component in zip(node.targets, done.components, strict=True):
            own, where = access.element(target.buffer, target.subscripts, writes=True)
            out.line(f"{own}.store({where}, {component});", at=node.span)

    def _copy(self, copy: Copy) -> None:
        """The call that begins an asynchronous copy, in loops over what one call does not bring."""
        form = copy_form(copy, self.frame.planned, self.launch)
        if isinstance(form, Pieces) and form.over:
            index, extent = copy.over[0]
            inner = replace(copy, over=copy.over[1:], unused=None)
            self._loop(Loop(index=index, extent=extent, body=(inner,), parallel=True, span=copy.span))
        else:
            call = copy_call(copy, form, self.frame, self.access.spot, self.access.corner, self.cursor.number)
            self.out.line(call, at=copy.span)

    # ---- comments ----

    def _explain(self, span: Span, calls: tuple[Span, ...] = ()) -> None:
        """The source line of a statement, once for each run of statements that come from it."""
        called = "".join(f", called at {place(s)}" for s in reversed(calls) if place(s))
        if place(span) and place(span) + called != self.commented:
            self.commented = place(span) + called
            self.out.line(f"// {self.commented}: {source_line(span)}")
