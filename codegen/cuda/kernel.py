"""One block graph as one CUDA kernel: signature, tensors, digits, and the body with its barriers.

const int i_block = tx::block_x();
const int i_lane = tx::lane();
// vadd.tex:3  C[i] = A[i] + B[i]
#line 3 "/texpr/vadd.tex"
C.store(i, A.load(i) + B.load(i));
"""

from collections.abc import Mapping
from dataclasses import dataclass

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.expr import Surroundings, Value, cast, emit_value, product_factors
from texpr.codegen.cuda.literals import storage_type, value_type
from texpr.codegen.cuda.names import Scope, comment, kernel_symbol, place, source_line, virtual_path
from texpr.codegen.cuda.usage import Usage, usage_of
from texpr.codegen.graph import (
    BlockGraph,
    BlockNode,
    BlockTensor,
    Define,
    DTensor,
    Fresh,
    Generic,
    Guard,
    Loop,
    PlannedGraph,
    StoreMode,
)
from texpr.codegen.writer import Writer
from texpr.grammar.ast import AccOp, Condition, Gather, IndexConst, IndexExpr, Read, Role, Subscript
from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.source import Span
from texpr.grammar.types import I64, DType
from texpr.polyhedral.mapping import BarrierPosition, Digit, Memory, Place
from texpr.polyhedral.mapping import Scope as SyncScope

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
SHARED_ARRAY = "smem"
MAX_WIDTH = 100  # of a signature on one line


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor lie: C++ name, extents and strides in elements."""

    name: str
    dtype: DType
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    in_registers: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel: its symbol and the arguments that a launch passes, as (kind, name) in order."""

    symbol: str
    arguments: tuple[tuple[str, str], ...]


def emit_kernel(planned: PlannedGraph, graph: BlockGraph, out: Writer, own_path: str) -> Kernel:
    """Write the kernel of one block graph. `own_path` is the `#line` name of the emitted file itself."""
    return _KernelEmitter(planned, graph, out, own_path).emit()


class _KernelEmitter:
    def __init__(self, planned: PlannedGraph, graph: BlockGraph, out: Writer, own_path: str) -> None:
        self.planned, self.graph, self.out, self.own_path = planned, graph, out, own_path
        self.device: dict[str, DTensor] = {t.name: t for t in planned.graph.tensors}
        self.block: dict[str, BlockTensor] = {t.name: t for t in graph.tensors}
        self.names = Scope()
        self.scope = ix.IndexScope({}, {})
        self.layouts: dict[str, Layout] = {}
        self.barriers: dict[tuple[int, ...], list[tuple[int, BarrierPosition]]] = {}
        for number, position in enumerate(planned.barriers.get(graph.name, ())):
            self.barriers.setdefault(position.path, []).append((number, position))
        self.usage = self._usage()
        self.temporary_span = graph.span
        self.commented = ""

    def _usage(self) -> Usage:
        layouts = {t.name: (*t.shape, *t.strides) for t in self.device.values()}
        return usage_of(self.graph, layouts)

    # ---- head ----

    def emit(self) -> Kernel:
        symbol = kernel_symbol(self.graph.name)
        arguments, declared = self._arguments()
        self.out.line(f'extern "C" __global__ void __launch_bounds__({self.graph.block_dim})')
        line = f"{symbol}({', '.join(declared)}) {{"
        if len(line) <= MAX_WIDTH:
            self.out.line(line)
        else:
            self.out.line(f"{symbol}(")
            for number, one in enumerate(declared, start=1):
                self.out.line(f"    {one}{',' if number < len(declared) else ') {'}")
        with self.out.indented():
            self._tensors()
            self._digits()
            self._body(self.graph.body, ())
        self.out.line("}")
        self.out.line(f"TX_EXPORT({symbol});")
        return Kernel(symbol=symbol, arguments=arguments)

    def _arguments(self) -> tuple[tuple[tuple[str, str], ...], list[str]]:
        """Array parameters, scalars, workspaces, sizes, host indices: those that the kernel uses, each in its order."""
        arguments: list[tuple[str, str]] = []
        declared: list[str] = []
        names = self.usage.tensors | self.usage.indices  # a scalar may also stand in an extent
        used = [t for t in self.planned.graph.tensors if t.name in names and t.name not in self.block]
        kinds = {Role.PARAM: "param", Role.SCALAR: "scalar", Role.LOCAL: "workspace"}
        for role in (Role.PARAM, Role.SCALAR, Role.LOCAL):
            for tensor in used:
                if tensor.role is not role:
                    continue
                arguments.append((kinds[role], tensor.name))
                name = self.names.new(tensor.name)
                self.layouts[tensor.name] = Layout(name, tensor.dtype, tensor.shape, tensor.strides, False)
                declared.append(
                    f"{storage_type(tensor.dtype)} {name}"
                    if role is Role.SCALAR
                    else f"{self._element(tensor)}* __restrict__ {name}_data"
                )
        bounds = ix.size_bounds(self.planned.graph.facts)
        sizes: dict[str, ix.Term] = {}
        for size in self.planned.graph.sizes:
            if size in self.usage.sizes:
                name = self.names.new(size)
                sizes[size] = ix.variable(name, *bounds.get(size, (0, ix.LONG_MAX)), wide=True)
                arguments.append(("size", size))
                declared.append(f"tx::i64 {name}")
        indices: dict[str, ix.Term] = {
            t.name: ix.variable(self.layouts[t.name].name, ix.LONG_MIN, ix.LONG_MAX, wide=t.dtype == I64)
            for t in used
            if t.role is Role.SCALAR and t.dtype.is_integer
        }
        for host in self.graph.arguments:
            if host in self.usage.indices:
                name = self.names.new(host)
                indices[host] = ix.variable(name, 0, ix.LONG_MAX, wide=True)
                arguments.append(("index", host))
                declared.append(f"tx::i64 {name}")
        self.scope = ix.IndexScope(indices, sizes)
        return tuple(arguments), declared

    def _element(self, tensor: DTensor) -> str:
        constant = "" if tensor.name in self.usage.written else "const "
        return constant + storage_type(tensor.dtype)

    def _tensors(self) -> None:
        out = self.out
        for tensor in self.planned.graph.tensors:
            if tensor.name in self.layouts and tensor.role is not Role.SCALAR:
                name = self.layouts[tensor.name].name
                out.line(f'const tx::Global<{self._element(tensor)}> {name}({name}_data, "{comment(tensor.name)}");')
        used = [t for t in self.graph.tensors if t.name in self.usage.tensors]
        if any(t.memory is Memory.SHARED for t in used):
            out.line(f"TX_DYN_SMEM({SHARED_ARRAY});")
        offsets = self.planned.shared[self.graph.name].offsets if self.graph.name in self.planned.shared else {}
        strides = self.planned.strides.get(self.graph.name, {})
        for block_tensor in used:
            steps = strides.get(block_tensor.name, block_tensor.strides)
            if steps is None:
                raise InternalError(f"{block_tensor.name} has no layout")
            self._block_tensor(block_tensor, steps, offsets)

    def _block_tensor(self, tensor: BlockTensor, strides: tuple[int, ...], offsets: Mapping[str, int]) -> None:
        name = self.names.new(tensor.name)
        count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
        count = 0 if 0 in tensor.shape else count
        element, label = storage_type(tensor.dtype), f'"{comment(tensor.name)}"'
        match tensor.memory:
            case Memory.SHARED:
                where = f"{SHARED_ARRAY} + {offsets[tensor.name]}"
                self.out.line(f"const tx::Shared<{element}> {name}({where}, {count}, {label});")
            case Memory.REG:
                self.out.line(f"tx::Reg<{element}, {max(count, 1)}> {name}({label});")
            case Memory.CLUSTER | Memory.GLOBAL:
                raise fail("E0502", f"{tensor.name}: {tensor.memory} memory of a block is not emitted", tensor.span)
        self.layouts[tensor.name] = Layout(
            name,
            tensor.dtype,
            tuple(IndexConst(value=n) for n in tensor.shape),
            tuple(IndexConst(value=s) for s in strides),
            tensor.memory is Memory.REG,
        )

    # ---- digits and indices ----

    def _coordinate(self, place_: Place) -> ix.Term:
        if place_ not in _COORDINATES:
            raise fail("E0502", f"the place {place_} is not emitted on this target", self.graph.span)
        if place_ in _GRID_AXIS:
            blocks = ix.term(self.graph.grid_dim[_GRID_AXIS[place_]], self.scope_of_sizes())
            high = min(max(blocks.high - 1, 0), ix.INT_MAX - 1)
        else:
            high = {Place.WARPGROUP: 128, Place.WARP: 32, Place.LANE: 1}[place_]
            high = 31 if place_ is Place.LANE else (self.graph.block_dim - 1) // high
        return ix.variable(_COORDINATES[place_], 0, high)

    def scope_of_sizes(self) -> ix.IndexScope:
        """The scope of expressions that are judged, not emitted: it has the names that the kernel lacks too."""
        bounds = ix.size_bounds(self.planned.graph.facts)
        sizes = {s: ix.variable(s, *bounds.get(s, (0, ix.LONG_MAX)), wide=True) for s in self.planned.graph.sizes}
        indices = {h: ix.variable(h, 0, ix.LONG_MAX, wide=True) for h in self.graph.arguments}
        return ix.IndexScope({**indices, **self.scope.indices}, {**sizes, **self.scope.sizes})

    def _digits(self) -> None:
        places = [d.place for d in self.graph.digits]
        for digit in self.graph.digits:
            if digit.name not in self.usage.indices:
                continue
            value = ix.div(self._coordinate(digit.place), ix.term(digit.stride, self.scope))
            if not self._alone(digit, places):
                value = ix.mod(value, ix.term(digit.radix, self.scope))
            self._declare(digit.name, value)

    def _alone(self, digit: Digit, places: list[Place]) -> bool:
        """Whether the digit is its grid axis, so that no remainder is needed."""
        axis = _GRID_AXIS.get(digit.place)
        one = digit.stride == IndexConst(value=1)
        return axis is not None and one and places.count(digit.place) == 1 and digit.radix == self.graph.grid_dim[axis]

    def _declare(self, name: str, value: ix.Term) -> None:
        """`const int NAME = value;`, and the name is known from here on."""
        own = self.names.new(name)
        self.out.line(f"const {'tx::i64' if value.wide else 'int'} {own} = {value.text};")
        self._know(name, ix.variable(own, value.low, value.high, wide=value.wide))

    def _know(self, name: str, term: ix.Term) -> None:
        self.scope = ix.IndexScope({**self.scope.indices, name: term}, self.scope.sizes)

    # ---- body ----

    def _body(self, nodes: tuple[BlockNode, ...], path: tuple[int, ...]) -> None:
        for number, node in enumerate(nodes):
            self._barriers((*path, number))
            self._node(node, (*path, number))
        self._barriers((*path, len(nodes)))

    def _node(self, node: BlockNode, path: tuple[int, ...]) -> None:
        match node:
            case Define(index=name, terms=terms):
                if name in self.usage.indices:
                    total = ix.constant(0)
                    for weight, digit in terms:
                        total = ix.add(total, ix.mul(ix.constant(weight), self.scope.indices[digit]))
                    self._declare(name, total)
            case Loop():
                self._loop(node, path)
            case Guard():
                self._guard(node, path)
            case Fresh(tensor=name):
                if name in self.layouts and name in self.block:
                    self.out.line(f"{self.layouts[name].name}.fresh();")
            case Generic():
                self._generic(node)

    def _loop(self, loop: Loop, path: tuple[int, ...]) -> None:
        outer = self.scope
        extent = ix.term(loop.extent, outer)
        own = self.names.new(loop.index)
        index = ix.variable(own, 0, max(extent.high - 1, 0), wide=not ix.fits_int(0, extent.high))
        small = extent.low == extent.high and extent.high <= TINY_EXTENT
        if loop.unroll or loop.vector or small:
            self.out.line("TX_UNROLL")
        self._line_directive(loop.span)
        kind = "tx::i64" if index.wide else "int"
        with self.out.block(f"for ({kind} {own} = 0; {own} < {extent.at(ix.SUM)}; ++{own})"):
            self._know(loop.index, index)
            self._body(loop.body, (*path, 0))
        self.scope = outer

    def _guard(self, guard: Guard, path: tuple[int, ...]) -> None:
        outer = self.scope
        text = self._condition(guard.condition)
        self._line_directive(guard.span)
        self.out.line(f"if ({text}) {{")
        with self.out.indented():
            self._body(guard.body, (*path, 0))
        self.scope = outer
        if guard.orelse:
            self.out.line("} else {")
            with self.out.indented():
                self._body(guard.orelse, (*path, 1))
            self.scope = outer
        self.out.line("}")

    def _condition(self, condition: Condition | Read) -> str:
        if isinstance(condition, Read):
            return emit_value(condition, self._around(strict=False)).text
        return ix.condition(condition, self.scope)[0]

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
        around = self._around(strict=node.leaf.has("strict"))
        store = node.store
        if store is None:
            value = emit_value(node.leaf.value, around)
            self._emit_at(node.span, f"tx::anchor({value.text});")
            return
        layout = self.layouts[store.tensor]
        gathered = tuple(emit_value(s.value, around) for s in store.subscripts if isinstance(s, Gather))
        where = self._offset(layout, store.subscripts, gathered).text
        value = emit_value(node.leaf.value, around)
        match store.mode:
            case StoreMode.BIND:
                verb = "store_unique" if node.leaf.has("unique") else "store"
                call = f"{verb}({where}, {cast(value, layout.dtype).text})"
            case StoreMode.UPDATE:
                factors = product_factors(value)
                if store.op is AccOp.ADD and factors is not None and not around.strict:
                    call = f"add_product({where}, {factors[0]}, {factors[1]})"
                else:
                    call = f"update<{self._operator(store.op)}>({where}, {value.text})"
            case StoreMode.ATOMIC:
                call = f"atomic<{self._operator(store.op)}>({where}, {value.text})"
        self._emit_at(node.span, f"{layout.name}.{call};")

    def _operator(self, op: AccOp | None) -> str:
        if op is None:
            raise InternalError("an update without an operator")
        return _OPERATORS[op]

    def _around(self, *, strict: bool) -> Surroundings:
        return Surroundings(scope=self.scope, read=self._read, strict=strict, temporary=self._temporary)

    def _temporary(self, text: str, dtype: DType) -> str:
        name = self.names.new("t")
        self._emit_at(self.temporary_span, f"const {value_type(dtype)} {name} = {text};")
        return name

    def _read(self, read: Read, gathered: tuple[Value, ...]) -> str:
        layout = self.layouts[read.buffer]
        tensor = self.device.get(read.buffer)
        if tensor is not None and tensor.role is Role.SCALAR and read.buffer not in self.block:
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
        calls = "".join(f", called at {place(s)}" for s in reversed(node.call_spans) if place(s))
        if not where or where + calls == self.commented:
            return
        self.commented = where + calls
        made = "" if node.origin.value == "source" else f" ({node.origin.value.replace('_', ' ')})"
        self.out.line(f"// {where}{calls}{made}: {source_line(node.span)}")

    def _barriers(self, path: tuple[int, ...]) -> None:
        for number, position in self.barriers.get(path, ()):
            said: list[str] = []
            for order in position.orders:
                carried = f", carried by {order.carried_by}" if order.carried_by else ""
                lines = f"{place(order.source_span) or order.source} to {place(order.sink_span) or order.sink}"
                text = comment(f"{order.hazard.value} of {order.buffer}, {lines}{carried}")
                if text not in said:
                    said.append(text)
            for text in said:
                self.out.line(f"// barrier {number}: {text}")
            if position.orders:
                self._line_directive(position.orders[0].sink_span)
            match position.scope:
                case SyncScope.BLOCK:
                    self.out.line(f"tx::sync_block({number});")
                case SyncScope.WARP:
                    self.out.line(f"tx::sync_warp({number});")
                case SyncScope.THREAD:
                    pass
                case SyncScope.CLUSTER | SyncScope.GRID:
                    raise fail("E0502", f"a barrier of the {position.scope} is not emitted", self.graph.span)
