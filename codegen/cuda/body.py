"""The body of a kernel: digits and indices, loops, guards, statements, barriers.

Digits and indices are declared before they are used, and those that no line uses in the end (an index of one value is
folded away) are left out, so that no compiler warns.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.copies import Pieces, copy_call, copy_form
from texpr.codegen.cuda.digits import digit_value
from texpr.codegen.cuda.expr import Surroundings, Value, cast, emit_value, product_factors
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.literals import value_type
from texpr.codegen.cuda.names import comment, line_directive, place, source_line
from texpr.codegen.cuda.stand import Stand, served_lines
from texpr.codegen.cuda.sync import Syncs
from texpr.codegen.cuda.tiles import check_corner, tile_call
from texpr.codegen.cuda.wide import check_plain, is_alone, reduction, rest_of, too_deep, wide_call
from texpr.grammar.ast import AccOp, Always, Condition, Gather, IndexExpr, Read, Subscript
from texpr.grammar.diagnostics import fail
from texpr.grammar.permissions import may_contract, promises_unique
from texpr.grammar.source import Span
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.between import Turn
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.operators import (
    Completion,
    Contract,
    Copy,
    Elementwise,
    Generic,
    Reduce,
    Unload,
    Unused,
    View,
)
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Part, Parts

_OPERATORS = {AccOp.ADD: "tx::Add", AccOp.MUL: "tx::Mul", AccOp.MAX: "tx::Max", AccOp.MIN: "tx::Min"}
TINY_EXTENT = 4  # iterations up to which a loop is unrolled unasked


def emit_body(frame: Frame) -> tuple[list[str], frozenset[str]]:
    """The lines between the kernel's braces, with the declarations of tensors, not indented; and the names they use."""
    out = Lines()
    frame.declare_tensors(out)
    emitter = _Body(frame, out)
    emitter.syncs.initialise()
    emitter.digits()
    emitter.nodes(frame.launch.body)
    return out.finish()


class _Body:
    def __init__(self, frame: Frame, out: Lines) -> None:
        self.frame, self.launch, self.out = frame, frame.launch, out
        self.scope = frame.scope
        self.tensors = frame.tensors
        self.stand = Stand.whole(self.launch, frame.planned.program.target.warp_size)
        self.syncs = Syncs(frame, out)
        self.temporary_span = self.launch.span
        self.commented = ""

    # ---- digits and indices ----

    def digits(self) -> None:
        """The digits of hardware places: coordinate / stride % radix."""
        self._digits(self.launch.hardware)

    def _digits(self, digits: Iterable[Digit]) -> None:
        for digit in digits:
            self._declare(digit.name, digit_value(digit, self.launch, self.scope, self.stand))

    def _declare(self, name: str, value: ix.Term) -> None:
        """`const int NAME = value;`, and the name is known from here on; a single value needs no variable."""
        if value.low == value.high:
            self._know(name, ix.constant(value.low))
            return
        own = self.frame.names.new(name)
        self.out.declare(own, "tx::i64" if value.wide else "int", value)
        self._know(name, ix.variable(own, value.low, value.high, wide=value.wide))

    def _know(self, name: str, term: ix.Term) -> None:
        self.scope = ix.IndexScope({**self.scope.indices, name: term}, self.scope.sizes)

    # ---- the tree ----

    def nodes(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        match node:
            case Define(index=name, digits=digits, offset=offset):
                total = ix.constant(0)
                for digit in digits:
                    total = ix.add(total, ix.mul(ix.constant(digit.weight), self.scope.indices[digit.name]))
                self._declare(name, ix.add(total, ix.term(offset, self.scope)))
            case Loop():
                self._loop(node)
            case Guard():
                self._inside(node)
            case Fresh(buffer=name):
                if name in self.frame.local and name in self.tensors:
                    self.out.line(f"{self.tensors[name].name}.fresh();")
            case Generic():
                self._generic(node)
            case Copy() if is_alone(node):
                self._wide(node)
            case Copy(completion=Completion.NOW):
                check_plain(node)
                self._node(expand(node))
            case Elementwise(over=((index, extent), *inner)) if node.unused is not Unused.ONCE:
                self._loop(Loop(index=index, extent=extent, body=rest_of(node, inner), unroll=True, span=node.span))
            case Elementwise():
                self._node(expand(node))
            case Reduce():
                self._reduce(node)
            case Lead(index=name, of=of, bytes=bytes_):
                array, where = self._place(of.buffer, of.subscripts, writes=False)
                call, high = f"tx::lead<{bytes_}>({array}, {where.text})", bytes_ // of.dtype.size_bytes - 1
                self._declare(name, ix.Term(call, ix.ATOM, 0, high, False, names=where.names))
            case Copy():
                self._copy(node)
            case Contract() | Unload():
                self._explain(node)
                self._emit_at(node.span, tile_call(node, self.frame, self._corner, self._number))
            case Parts(parts=parts):
                self._parts(parts)
            case Last():
                condition = self.syncs.last(node, self.stand, self.scope)
                self._branch(f"if ({condition}) {{", node.body)
                self.out.line("}")
            case Turn():
                self._declare(node.index, self.syncs.turn(node, self.stand))
            case _ if isinstance(node, Sync):
                self.syncs.write(node, self.stand, self.scope)
            case _:
                assert_never(node)

    def _parts(self, parts: tuple[Part, ...]) -> None:
        """Each part under the condition that tells its warps from those of the parts after it."""
        first, outer = 0, self.stand
        for number, part in enumerate(parts, start=1):
            head = f"if (tx::warp() < {first + part.warps}) {{" if number < len(parts) else "{"
            head = f"{'} else ' if number > 1 else ''}{head}  // part {part.name}"
            self.stand = replace(outer, part=part.name, first_warp=first, warps=part.warps)
            known = self.scope
            self.out.line(f"{head}{comment(served_lines(part))}")
            with self.out.indented():
                self.syncs.share_registers(part)
                self._digits(d for d in self.launch.hardware if first and d.place in (Place.WARP, Place.WARPGROUP))
                self.nodes(part.body)
            self.scope = known
            first += part.warps
        self.stand = outer
        self.out.line("}")

    def _branch(self, head: str, body: tuple[Node, ...]) -> None:
        """A head and what it holds, without its end."""
        known, outer = self.scope, self.stand
        self.out.line(head)
        self.stand = replace(outer, looped=True)
        with self.out.indented():
            self.nodes(body)
        self.scope, self.stand = known, outer

    def _loop(self, loop: Loop) -> None:
        outer = self.scope
        extent = ix.term(loop.extent, outer)
        own = self.frame.names.new(loop.index)
        index = ix.variable(own, 0, max(extent.high - 1, 0), wide=not ix.fits_int(0, extent.high))
        small = extent.low == extent.high and extent.high <= TINY_EXTENT
        if loop.unroll or loop.vector or small:
            self.out.line("TX_UNROLL")
        line_directive(loop.span, self.out)
        kind = "tx::i64" if index.wide else "int"
        with self.out.block(f"for ({kind} {own} = 0; {own} < {self.out.use(extent, ix.SUM)}; ++{own})"):
            self._know(loop.index, index)
            stand, self.stand = self.stand, replace(self.stand, looped=True)
            self.nodes(loop.body)
            self.stand = stand
        self.scope = outer

    def _inside(self, guard: Guard) -> None:
        if not guard.once:
            self._guard(guard)
        elif guard.condition == Always(value=True):
            self._branch(f"if ({self.stand.elected}) {{", guard.body)
            self.out.line("}")
        else:
            with self.out.block(f"if ({self.stand.elected})"):
                self._guard(guard)

    def _guard(self, guard: Guard) -> None:
        text = self._condition(guard.condition)
        line_directive(guard.span, self.out)
        self._branch(f"if ({text}) {{", guard.body)
        if guard.orelse:
            self._branch("} else {", guard.orelse)
        self.out.line("}")

    def _condition(self, condition: Condition | Read) -> str:
        if isinstance(condition, Read):
            return self.out.use(emit_value(condition, self._around(strict=False)))
        return self.out.use(ix.term(condition, self.scope))

    # ---- statements ----

    def _generic(self, node: Generic) -> None:
        self._explain(node)
        if not node.once:
            self._statement(node)
            return
        with self.out.block(f"if ({self.stand.elected})"):
            self._statement(node)

    def _statement(self, node: Generic) -> None:
        self.temporary_span = node.span
        around = self._around(strict=not may_contract(node.leaf))
        store = node.store
        if store is None:
            value = emit_value(node.leaf.value, around)
            self._emit_at(node.span, f"tx::anchor({self.out.use(value)});")
            return
        target, place_ = self._place(store.buffer, store.subscripts, writes=True, strict=around.strict)
        where = self.out.use(place_)
        value = emit_value(node.leaf.value, around)
        text, factors = self.out.use(value), product_factors(value)
        if store.op is None:
            verb = "store_unique" if promises_unique(node.leaf) else "store"
            call = f"{verb}({where}, {cast(value, self.tensors[store.buffer].dtype).text})"
        elif store.atomic:
            call = f"atomic<{_OPERATORS[store.op]}>({where}, {text})"
        elif store.op is AccOp.ADD and factors is not None and not around.strict:
            call = f"add_product({where}, {factors[0]}, {factors[1]})"
        else:
            call = f"update<{_OPERATORS[store.op]}>({where}, {text})"
        self._emit_at(node.span, f"{target}.{call};")

    def _around(self, *, strict: bool) -> Surroundings:
        return Surroundings(scope=self.scope, read=self._read, strict=strict, temporary=self._temporary)

    def _temporary(self, value: Value) -> str:
        name = self.frame.names.new("t")
        line_directive(self.temporary_span, self.out)
        self.out.declare(name, value_type(value.dtype), value)
        return name

    def _read(self, read: Read, gathered: tuple[Value, ...]) -> Value:
        tensor = self.tensors[read.buffer]
        if tensor.scalar:
            text = f"tx::decode({tensor.name})" if tensor.dtype.is_bool else tensor.name
            return Value(text, ix.ATOM, read.dtype, names=frozenset({tensor.name}))
        source, where = self._place(read.buffer, read.subscripts, gathered, writes=False)
        return Value(f"{source}.load({where.text})", ix.ATOM, read.dtype, names=where.names)

    def _place(
        self,
        name: str,
        subscripts: tuple[Subscript, ...],
        gathered: tuple[Value, ...] | None = None,
        *,
        writes: bool,
        mixed: bool = True,
        strict: bool = True,
    ) -> tuple[str, ix.Term]:
        """The accessor of an element and where it is there: in the slot that a pipe is at, in a rank's memory. The
        names of both are those of the second. `gathered` has the values of the subscripts that are data, in order,
        where they are known already."""
        if gathered is None:
            around = self._around(strict=strict)
            gathered = tuple(emit_value(s.value, around) for s in subscripts if isinstance(s, Gather))
        own, layout, names = self.tensors[name].name, self.tensors[name].layout, frozenset[str]()
        if not {*layout.units} <= {Unit.ADDRESS, Unit.RANK}:
            raise fail("E0502", f"{name}: a layout over the threads of a block is not emitted", self.launch.span)
        parts = self._subscripts(layout, subscripts, gathered)
        offset = ix.address(layout if mixed else replace(layout, xor=None), parts, self.scope)
        if Unit.RANK in layout.units:
            if isinstance(subscripts[0], Gather):
                raise fail("E0502", f"a rank of {name} that is read from data is not emitted", self.launch.span)
            rank = ix.coordinate(layout, Unit.RANK, parts, self.scope)
            own, names = f"tx::remote({own}, {rank.text})", rank.names
        slot = self.frame.slot(name, writes=writes)
        if slot is not None:
            offset = ix.add(ix.mul(slot, ix.constant(self.frame.stage_elements(name))), offset)
        return own, replace(offset, names=offset.names | names)

    # ---- copies and reductions ----

    def _wide(self, copy: Copy) -> None:
        """The call that moves a vector, in loops over the indices around it, unrolled as registers are numbers."""
        if copy.unused is Unused.ONCE:
            with self.out.block(f"if ({self.stand.elected})"):
                self._wide(replace(copy, unused=None))
        elif len(copy.over) > 1:
            (index, extent), *inner = copy.over
            body = (replace(copy, over=tuple(inner)),)
            self._loop(Loop(index=index, extent=extent, body=body, unroll=True, span=copy.span))
        else:
            buffers = self.frame.planned.program.buffers
            self._emit_at(copy.span, wide_call(copy, buffers.__getitem__, self._element, self._number))

    def _reduce(self, node: Reduce) -> None:
        if node.unused is Unused.ONCE:
            with self.out.block(f"if ({self.stand.elected})"):
                self._reduce(replace(node, unused=None))
            return
        outer, index = self.scope, ""
        for name, extent in node.over:
            index = self.frame.names.new(name)
            self._know(name, ix.variable(index, 0, max(ix.term(extent, outer).high - 1, 0)))
        around = self._around(strict=True)
        if node.over:
            around = replace(around, temporary=too_deep(node))
        name, warp = self.frame.names.new(node.id), self.stand.warp_size
        done = reduction(node, name, lambda v: self.out.use(emit_value(v, around)), index, warp)
        self.scope = outer
        self._emit_at(node.span, f"const auto {done.name} = {done.call};")
        for target, component in zip(node.targets, done.components, strict=True):
            own, where = self._element(target.buffer, target.subscripts, writes=True)
            self.out.line(f"{own}.store({where}, {component});")

    def _element(self, name: str, subscripts: tuple[Subscript, ...], *, writes: bool) -> tuple[str, str]:
        """The accessor of an element and its number there, for the next line."""
        own, where = self._place(name, subscripts, writes=writes)
        return own, self.out.use(where)

    def _copy(self, copy: Copy) -> None:
        """The call that begins an asynchronous copy, in loops over what one call does not bring."""
        self._explain(copy.each)
        if copy.unused is Unused.ONCE:
            with self.out.block(f"if ({self.stand.elected})"):
                self._copy(replace(copy, unused=None))
            return
        form = copy_form(copy, self.frame.planned, self.launch)
        if isinstance(form, Pieces) and form.over:
            index, extent = copy.over[0]
            inner = replace(copy, over=copy.over[1:])
            self._loop(Loop(index=index, extent=extent, body=(inner,), parallel=True, span=copy.span))
        else:
            self._emit_at(copy.span, copy_call(copy, form, self.frame, self._at, self._corner, self._number))

    def _at(self, view: View, writes: bool = False) -> str:
        own, where = self._place(view.buffer, view.subscripts, writes=writes)
        return f"{own}.at({self.out.use(where)})"

    def _corner(self, view: View, writes: bool) -> tuple[str, str]:
        check_corner(self.tensors[view.buffer].layout, view, self.launch.span)
        own, where = self._place(view.buffer, view.subscripts, writes=writes, mixed=False)
        return own, self.out.use(where)

    def _number(self, expr: IndexExpr | Condition) -> ix.Term:
        """The term of an expression that the text uses."""
        term = ix.term(expr, self.scope)
        self.out.use(term)
        return term

    def _subscripts(
        self, layout: Layout, subscripts: tuple[Subscript, ...], gathered: tuple[Value, ...]
    ) -> list[ix.Term]:
        """The subscripts of an element; those that are read from data are checked."""
        values = iter(gathered)
        parts: list[ix.Term] = []
        for subscript, extent in zip(subscripts, layout.shape, strict=True):
            if isinstance(subscript, Gather):
                limit = ix.term(extent, self.scope)
                wide = not ix.fits_int(0, limit.high)
                kind = "tx::i64" if wide else "int"
                value = next(values)
                text = f"tx::gathered<{kind}>({value.text}, {limit.text})"
                names = value.names | limit.names
                parts.append(ix.Term(text, ix.ATOM, 0, max(limit.high - 1, 0), wide, names=names))
            else:
                parts.append(ix.term(subscript, self.scope))
        return parts

    # ---- lines and comments ----

    def _emit_at(self, span: Span, text: str) -> None:
        line_directive(span, self.out)
        self.out.line(text)

    def _explain(self, node: Generic | Contract | Unload) -> None:
        """The source line of a statement, once for each run of statements that come from it."""
        where = place(node.span)
        calls = "".join(f", called at {place(s)}" for s in reversed(node.leaf.call_spans) if place(s))
        if not where or where + calls == self.commented:
            return
        self.commented = where + calls
        origin = node.origin.value if isinstance(node, Generic) else "source"
        made = "" if origin == "source" else f" ({origin.replace('_', ' ')})"
        self.out.line(f"// {where}{calls}{made}: {source_line(node.span)}")
