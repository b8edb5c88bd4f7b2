"""The body of a kernel: digits and indices, loops, guards, statements, barriers.

Digits and indices are declared before they are used, and those that the text does not use in the end (an index of one
value is folded away) are taken out again, so that no compiler warns.
"""

import re
from dataclasses import replace
from math import prod

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.expr import Surroundings, Value, cast, emit_value, product_factors
from texpr.codegen.cuda.frame import Frame, Layout, words_of
from texpr.codegen.cuda.literals import value_type
from texpr.codegen.cuda.names import comment, place, source_line, virtual_path
from texpr.codegen.writer import Writer
from texpr.grammar.ast import AccOp, Condition, Gather, IndexBinary, IndexConst, IndexExpr, IndexOp, Read, Subscript
from texpr.grammar.diagnostics import fail
from texpr.grammar.permissions import may_contract, promises_unique
from texpr.grammar.source import Span
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Digit, Place, Scope
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node

_COORDINATES: dict[Place, str] = {
    Place.GRID_X: "tx::block_x()",
    Place.GRID_Y: "tx::block_y()",
    Place.GRID_Z: "tx::block_z()",
    Place.WARPGROUP: "tx::warpgroup()",
    Place.WARP: "tx::warp()",
    Place.LANE: "tx::lane()",
}
_GRID_AXIS = {Place.GRID_X: 0, Place.GRID_Y: 1, Place.GRID_Z: 2}
_OPERATORS = {AccOp.ADD: "tx::Add", AccOp.MUL: "tx::Mul", AccOp.MAX: "tx::Max", AccOp.MIN: "tx::Min"}
TINY_EXTENT = 4  # iterations up to which a loop is unrolled unasked
MAX_REASONS = 6  # orders that the comment of one barrier names; the first are those that no other barrier enforces
_INDEX_DECLARATION = re.compile(r" *const (?:int|tx::i64) ([A-Za-z0-9_]+) = ")


def emit_body(frame: Frame) -> str:
    """The text between the kernel's braces, with the declarations of tensors; not indented."""
    out = Writer()
    frame.declare_tensors(out)
    emitter = _Body(frame, out)
    emitter.digits()
    emitter.nodes(frame.launch.body)
    return without_unused_indices(out.text())


def without_unused_indices(text: str) -> str:
    """The text without the declarations of digits and indices that it does not use. Every name is declared once."""
    used: set[str] = set()
    kept: list[str] = []
    for line in reversed(text.splitlines()):  # a declaration stands before its uses
        declared = _INDEX_DECLARATION.match(line)
        if declared is None or declared[1] in used:
            kept.append(line)
            used |= words_of(line if declared is None else line[declared.end() :])
    return "".join(f"{line}\n" for line in reversed(kept))


class _Body:
    def __init__(self, frame: Frame, out: Writer) -> None:
        self.frame, self.launch, self.out = frame, frame.launch, out
        self.scope = frame.scope
        self.layouts = frame.layouts
        self.barriers = 0  # so many were written
        self.temporary_span = self.launch.span
        self.commented = ""

    # ---- digits and indices ----

    def digits(self) -> None:
        """The digits of hardware places: coordinate / stride % radix."""
        for digit in self.launch.hardware:
            value = ix.div(self._coordinate(digit.place), self._factor(digit.stride))
            if not self._highest(digit):
                value = ix.mod(value, self._factor(digit.radix))
            self._declare(digit.name, value)

    def _coordinate(self, place_: Place) -> ix.Term:
        if place_ not in _COORDINATES:
            raise fail("E0502", f"the place {place_} is not emitted on this target", self.launch.span)
        if place_ in _GRID_AXIS:
            blocks = ix.term(self.launch.grid[_GRID_AXIS[place_]], self.scope)
            high = min(max(blocks.high - 1, 0), ix.INT_MAX - 1)
        elif place_ is Place.LANE:
            high = min(self.launch.threads, 32) - 1
        else:
            high = (self.launch.threads - 1) // (128 if place_ is Place.WARPGROUP else 32)
        return ix.variable(_COORDINATES[place_], 0, high)

    def _factor(self, expr: IndexExpr) -> ix.Term:
        """A stride or radix of a digit in 32 bits. It divides the extent of its place, which is positive, as the
        thread runs, and below 2^31."""
        term = ix.term(expr, self.scope)
        low, high = max(term.low, 1), max(min(term.high, ix.INT_MAX), 1)
        if not term.wide:
            return replace(term, low=low, high=high)
        return ix.Term(f"int({term.text})", ix.ATOM, low, high, False)

    def _highest(self, digit: Digit) -> bool:
        """Whether stride * radix is the extent of the digit's grid axis, so that no remainder is needed."""
        if digit.place not in _GRID_AXIS:
            return False
        extent = self.launch.grid[_GRID_AXIS[digit.place]]
        if digit.stride == IndexConst(value=1) and digit.radix == extent:
            return True
        match extent:
            case IndexBinary(op=IndexOp.MUL, left=left, right=right):
                return (left, right) in ((digit.radix, digit.stride), (digit.stride, digit.radix))
            case IndexConst(value=blocks):
                factors = (digit.stride, digit.radix)
                return prod(f.value if isinstance(f, IndexConst) else 0 for f in factors) == blocks
            case _:
                return False

    def _declare(self, name: str, value: ix.Term) -> None:
        """`const int NAME = value;`, and the name is known from here on; a single value needs no variable."""
        if value.low == value.high:
            self._know(name, ix.constant(value.low))
            return
        own = self.frame.names.new(name)
        self.out.line(f"const {'tx::i64' if value.wide else 'int'} {own} = {value.text};")
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
            case Guard(once=True):
                with self.out.block("if (tx::thread() == 0)"):
                    self._guard(node)
            case Guard():
                self._guard(node)
            case Fresh(buffer=name):
                if name in self.frame.local and name in self.layouts:
                    self.out.line(f"{self.layouts[name].name}.fresh();")
            case Barrier(parts=(), action=Action.BOTH, name=""):
                self._barrier(node)
            case Generic():
                self._generic(node)
            case _:
                raise fail("E0502", f"{type(node).__name__} is not emitted for CUDA", self.launch.span)

    def _loop(self, loop: Loop) -> None:
        outer = self.scope
        extent = ix.term(loop.extent, outer)
        own = self.frame.names.new(loop.index)
        index = ix.variable(own, 0, max(extent.high - 1, 0), wide=not ix.fits_int(0, extent.high))
        small = extent.low == extent.high and extent.high <= TINY_EXTENT
        if loop.unroll or loop.vector or small:
            self.out.line("TX_UNROLL")
        self._line_directive(loop.span)
        kind = "tx::i64" if index.wide else "int"
        with self.out.block(f"for ({kind} {own} = 0; {own} < {extent.at(ix.SUM)}; ++{own})"):
            self._know(loop.index, index)
            self.nodes(loop.body)
        self.scope = outer

    def _guard(self, guard: Guard) -> None:
        outer = self.scope
        text = self._condition(guard.condition)
        self._line_directive(guard.span)
        self.out.line(f"if ({text}) {{")
        with self.out.indented():
            self.nodes(guard.body)
        self.scope = outer
        if guard.orelse:
            self.out.line("} else {")
            with self.out.indented():
                self.nodes(guard.orelse)
            self.scope = outer
        self.out.line("}")

    def _condition(self, condition: Condition | Read) -> str:
        if isinstance(condition, Read):
            return emit_value(condition, self._around(strict=False)).text
        return ix.term(condition, self.scope).text

    # ---- statements ----

    def _generic(self, node: Generic) -> None:
        self._explain(node)
        if not node.once:
            self._statement(node)
            return
        with self.out.block("if (tx::thread() == 0)"):
            self._statement(node)

    def _statement(self, node: Generic) -> None:
        self.temporary_span = node.span
        around = self._around(strict=not may_contract(node.leaf))
        store = node.store
        if store is None:
            value = emit_value(node.leaf.value, around)
            self._emit_at(node.span, f"tx::anchor({value.text});")
            return
        layout = self.layouts[store.buffer]
        gathered = tuple(emit_value(s.value, around) for s in store.subscripts if isinstance(s, Gather))
        where = self._offset(layout, store.subscripts, gathered).text
        value = emit_value(node.leaf.value, around)
        factors = product_factors(value)
        if store.op is None:
            verb = "store_unique" if promises_unique(node.leaf) else "store"
            call = f"{verb}({where}, {cast(value, layout.dtype).text})"
        elif store.atomic:
            call = f"atomic<{_OPERATORS[store.op]}>({where}, {value.text})"
        elif store.op is AccOp.ADD and factors is not None and not around.strict:
            call = f"add_product({where}, {factors[0]}, {factors[1]})"
        else:
            call = f"update<{_OPERATORS[store.op]}>({where}, {value.text})"
        self._emit_at(node.span, f"{layout.name}.{call};")

    def _around(self, *, strict: bool) -> Surroundings:
        return Surroundings(scope=self.scope, read=self._read, strict=strict, temporary=self._temporary)

    def _temporary(self, text: str, dtype: DType) -> str:
        name = self.frame.names.new("t")
        self._emit_at(self.temporary_span, f"const {value_type(dtype)} {name} = {text};")
        return name

    def _read(self, read: Read, gathered: tuple[Value, ...]) -> str:
        layout = self.layouts[read.buffer]
        if layout.scalar:
            return f"tx::decode({layout.name})" if layout.dtype.is_bool else layout.name
        return f"{layout.name}.load({self._offset(layout, read.subscripts, gathered).text})"

    def _offset(self, layout: Layout, subscripts: tuple[Subscript, ...], gathered: tuple[Value, ...]) -> ix.Term:
        """The element that subscripts name, counted from the tensor's first."""
        values = iter(gathered)
        total = ix.constant(0)
        for subscript, extent, stride in zip(subscripts, layout.shape, layout.strides, strict=True):
            if isinstance(subscript, Gather):
                limit = ix.term(extent, self.scope)
                wide = not ix.fits_int(0, limit.high)
                kind = "tx::i64" if wide else "int"
                text = f"tx::gathered<{kind}>({next(values).text}, {limit.text})"
                part = ix.variable(text, 0, max(limit.high - 1, 0), wide=wide)
            else:
                part = ix.term(subscript, self.scope)
            total = ix.add(total, ix.mul(part, ix.term(stride, self.scope)))
        return total

    # ---- lines, comments, barriers ----

    def _line_directive(self, span: Span) -> None:
        if span.source.text:
            self.out.directive(f'#line {span.line} "{virtual_path(span.source.name)}"')

    def _emit_at(self, span: Span, text: str) -> None:
        self._line_directive(span)
        self.out.line(text)

    def _explain(self, node: Generic) -> None:
        """The source line of a statement, once for each run of statements that come from it."""
        where = place(node.span)
        calls = "".join(f", called at {place(s)}" for s in reversed(node.leaf.call_spans) if place(s))
        if not where or where + calls == self.commented:
            return
        self.commented = where + calls
        made = "" if node.origin.value == "source" else f" ({node.origin.value.replace('_', ' ')})"
        self.out.line(f"// {where}{calls}{made}: {source_line(node.span)}")

    def _barrier(self, barrier: Barrier) -> None:
        number, self.barriers = self.barriers, self.barriers + 1
        said: list[str] = []
        for order in barrier.orders[:MAX_REASONS]:
            carried = f", carried by {order.carried_by}" if order.carried_by else ""
            lines = f"{place(order.source_span) or order.source} to {place(order.sink_span) or order.sink}"
            text = comment(f"{order.hazard.value} of {order.buffer}, {lines}{carried}")
            if text not in said:
                said.append(text)
        for text in said:
            self.out.line(f"// barrier {number}: {text}")
        if len(barrier.orders) > MAX_REASONS:
            self.out.line(f"// barrier {number}: and {len(barrier.orders) - MAX_REASONS} more")
        if barrier.orders:
            self._line_directive(barrier.orders[0].sink_span)
        match barrier.scope:
            case Scope.BLOCK:
                self.out.line(f"tx::sync_block({number});")
            case Scope.WARP:
                self.out.line(f"tx::sync_warp({number});")
            case Scope.THREAD | Scope.CLUSTER | Scope.GRID:
                raise fail("E0502", f"a barrier of the {barrier.scope} is not emitted", self.launch.span)
