"""The frame of a kernel: what its launch passes, the tensors that its text declares, and the C++ names of all of it.

Arguments stand in one order: array parameters, scalars, workspaces (each in the program's order), words of counters and
flags, tensor maps, sizes, host indices; only what the text uses is passed.
"""

from collections.abc import Collection, Set

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.copies import Box, BoxMap
from texpr.codegen.cuda.facts import LaunchFacts
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.literals import storage_type
from texpr.codegen.cuda.names import Scope as Names
from texpr.codegen.cuda.names import comment, listed, source_line
from texpr.codegen.cuda.tiles import held_type, operands_type, sums_type, tile_type, warp_tile_type
from texpr.codegen.cuda.variables import Variable, variables
from texpr.codegen.layout import room
from texpr.codegen.writer import Writer
from texpr.grammar.ast import IndexConst, IndexExpr, Role
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import const, constant_value, multiply
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.grammar.types import I64, DType
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.between import AfterLaunch, Turn
from texpr.polyhedral.mapped.operators import Contract, Copy, Unload
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.show_sync import pipe_text
from texpr.polyhedral.mapped.sync import Pipe, PipeKind
from texpr.polyhedral.mapped.walks import conditions_of, device_buffers

SHARED_ARRAY = "smem"
CHUNK_BYTES = 16  # of two of which an access at any address is made
_KINDS = {Role.PARAM: "param", Role.SCALAR: "scalar", Role.LOCAL: "workspace"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in the text: its C++ name, and where its elements lie. A scalar argument is a value; an array is passed
    as a pointer of the name `data`. An accessor of several dimensions has one stride for each in `steps`, the first of
    them that of a pipe's slots; others take the number of an element. `variable` is set of a register."""

    name: str
    dtype: DType
    layout: Layout
    scalar: bool = False
    data: str = ""
    steps: tuple[IndexExpr, ...] = ()
    variable: Variable | None = None


@dataclass(frozen=True, slots=True)
class WordArray:
    """The C++ name and the extents of counters or flags."""

    name: str
    shape: tuple[IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """A candidate for the signature: kind and name as the manifest has them, its C++ name and declaration."""

    kind: str
    name: str
    own: str
    declaration: str


class Frame:
    """Names, tensors and index terms of one kernel. `scope` has the sizes, host indices and integer scalars; `settled`
    are the arrays that no launch writes."""

    def __init__(self, facts: LaunchFacts, settled: Collection[str]) -> None:
        self.facts, self.planned, self.launch, self.settled = facts, facts.planned, facts.launch, settled
        self.warp_size = self.planned.program.target.warp_size
        self.pipe_of = self.launch.pipe_of
        self.variables = variables(facts)
        self.scalars = {name for name, variable in self.variables.items() if variable.scalar}
        self.names = Names()
        self.tensors: dict[str, Tensor] = {}
        self.candidates: list[Argument] = []
        self._device = device_buffers(self.planned.program)
        for role in (Role.PARAM, Role.SCALAR, Role.LOCAL):
            for buffer in self._device:
                if buffer.role is role and (role is Role.SCALAR or buffer.name in facts.used):
                    self._add_argument(buffer)
        self.words = self._words()
        self.maps = self._maps()
        self.narrowed: dict[str, str] = {}  # sizes that the facts say to be small, and how they are passed
        self.scope = self._index_scope()
        self.local = {b.name: b for b in facts.local}
        for buffer in self.local.values():
            self._add_tensor(buffer, self.names.new(buffer.name))
        self.rings = {pipe.name: self.names.new(pipe.name) for pipe in self.launch.pipes}
        counters = (*((self.launch.turns,) if self.launch.turns else ()), *(n.counter for n in facts.of(Turn)))
        self.turns = {counter: self.names.new(f"{counter}_turn") for counter in counters}
        self.accumulators, self.tiles = dict[str, str](), dict[str, tuple[str, str]]()
        for node in facts.of(Contract):
            self.accumulators[node.c.buffer] = sums_type(node)
            for side, view in (("a", node.a), ("b", node.b)):
                operand = self.buffer(view.buffer)
                if operand.memory is Memory.REG:
                    self.accumulators[operand.name] = operands_type(operand, node, side)
                else:
                    self._add_tile(operand, tile_type(operand, node))
        self.made = tuple(dict.fromkeys(node.c.buffer for node in facts.of(Contract)))
        for buffer in self.local.values():
            if Unit.LANE in buffer.layout.units and buffer.name not in self.accumulators:
                self.accumulators[buffer.name] = held_type(buffer)
        for load in facts.of(Unload):
            if load.atom.loads:
                tile = self.buffer(load.source.buffer)
                self._add_tile(tile, warp_tile_type(tile, load, slots=0 if tile.name in self.pipe_of else 1))

    def arguments(self, used: Set[str]) -> tuple[Argument, ...]:
        """The arguments of the kernel whose body uses these C++ names."""
        return tuple(c for c in self.candidates if c.kind not in ("scalar", "size", "index") or c.own in used)

    def _add_tile(self, buffer: MappedBuffer, kind: str) -> None:
        if buffer.name not in self.tiles:
            self.tiles[buffer.name] = self.names.new(f"{buffer.name}_tile"), kind

    def _add_argument(self, buffer: MappedBuffer) -> None:
        own = self.names.new(buffer.name)
        scalar = buffer.role is Role.SCALAR
        data = "" if scalar else self.names.new(f"{own}_data")
        self._add_tensor(buffer, own, scalar=scalar, data=data)
        declaration = (
            f"{storage_type(buffer.dtype)} {own}" if scalar else f"{self._element(buffer)}*{self._alone(buffer)} {data}"
        )
        self.candidates.append(Argument(_KINDS[buffer.role], buffer.name, own, declaration))

    def _add_tensor(self, buffer: MappedBuffer, own: str, *, scalar: bool = False, data: str = "") -> None:
        layout = self.planned.addresses[buffer.name].layout
        steps = () if scalar else self._steps(buffer, layout)
        variable = None if data or scalar else self.variables.get(buffer.name)
        self.tensors[buffer.name] = Tensor(own, buffer.dtype, layout, scalar, data, steps, variable)

    def _steps(self, buffer: MappedBuffer, layout: Layout) -> tuple[IndexExpr, ...]:
        """The strides of an accessor of several dimensions. Registers are numbered, and so is what operators on whole
        tiles take."""
        found = strides(layout)
        if found is None or buffer.memory is Memory.REG or buffer.name in self.facts.tiles:
            return ()
        if buffer.role is Role.LOCAL and buffer.name in self.pipe_of:
            found = (const(self.planned.addresses[buffer.name].stage_bytes // buffer.dtype.size_bytes), *found)
        return found if len(found) > 1 else ()

    def _words(self) -> dict[str, WordArray]:
        """The counters and flags of the launch."""
        found: dict[str, WordArray] = {}
        for words in self.planned.program.words:
            if words.name in self.facts.words:
                own = self.names.new(words.name)
                found[words.name] = WordArray(own, words.shape)
                self.candidates.append(Argument("words", words.name, own, f"tx::u32* {self.names.new(f'{own}_data')}"))
        return found

    def _maps(self) -> dict[BoxMap, str]:
        """The tensor maps of the launch."""
        found: dict[BoxMap, str] = {}
        for form in self.facts.forms.values():
            if isinstance(form, Box) and form.map not in found:
                own = found[form.map] = self.names.new(f"{form.map.buffer}_box")
                self.candidates.append(Argument("map", own, own, f"const __grid_constant__ tx::TensorMap {own}"))
        return found

    def _index_scope(self) -> ix.IndexScope:
        program = self.planned.program
        bounds = ix.size_bounds((*program.kernel.facts, *conditions_of(program.host)[self.launch.name]))
        sizes: dict[str, ix.Term] = {}
        for size in self.planned.program.kernel.sizes:
            own = passed = self.names.new(size.name)
            low, high = bounds.get(size.name, (0, ix.SIZE_MAX))
            if low == high:
                sizes[size.name] = ix.constant(low)
                continue
            sizes[size.name] = ix.variable(own, low, high)
            if not sizes[size.name].wide:
                passed = self.narrowed[own] = self.names.new(f"{size.name}_i64")
            self.candidates.append(Argument("size", size.name, passed, f"tx::i64 {passed}"))
        indices: dict[str, ix.Term] = {}
        for buffer in self._device:
            if buffer.role is Role.SCALAR and buffer.dtype.is_integer:
                own = self.tensors[buffer.name].name
                indices[buffer.name] = ix.variable(own, ix.LONG_MIN, ix.LONG_MAX, wide=buffer.dtype == I64)
        for host in self.launch.arguments:
            own = self.names.new(host)
            indices[host] = ix.variable(own, 0, ix.SIZE_MAX, wide=True)
            self.candidates.append(Argument("index", host, own, f"tx::i64 {own}"))
        return ix.IndexScope(indices, sizes)

    def _element(self, buffer: MappedBuffer) -> str:
        constant = "" if buffer.name in self.facts.written else "const "
        return constant + storage_type(buffer.dtype)

    def _alone(self, buffer: MappedBuffer) -> str:
        """` __restrict__`, but for a buffer through which the threads of a block may speak to each other, or whose
        values another launch may still be writing: there the word would let a load be moved across the wait; and but
        for one whose loads nvcc merges with those of a buffer that is written."""
        spoken = buffer.name in self.facts.written and self.facts.waits
        return "" if spoken or not self.stays(buffer.name) else " __restrict__"

    def stays(self, name: str) -> bool:
        """Whether what is read of a buffer may be read at any time of the kernel, if that does not write it."""
        awaited = name not in self.settled and self.facts.has(AfterLaunch)
        return not awaited and name not in self.facts.merged

    # ---- declarations ----

    def declare_sizes(self, out: Lines) -> None:
        """The sizes that fit 32 bits."""
        for own, passed in self.narrowed.items():
            out.declare(own, "int", ix.Term(f"int({passed})", ix.ATOM, 0, ix.INT_MAX, False, names=frozenset({passed})))

    def declare_tensors(self, out: Lines) -> None:
        """The accessors of tensors, at the top of the kernel; registers that begin in one C++ block are declared
        there."""
        for buffer in self._device:
            if buffer.name in self.tensors and buffer.role is not Role.SCALAR:
                tensor = self.tensors[buffer.name]
                element, label = self._element(buffer), f'"{comment(buffer.name)}"'
                where, steps = self._where(tensor, out)
                if buffer.align % CHUNK_BYTES:  # accesses at any address then ask where it begins
                    where = f"{where or ', tx::Fixed<1>'}, {buffer.align}"
                data = self._in_l2(buffer, tensor, out)
                out.line(f"const tx::Global<{element}{where}> {tensor.name}({data}, {steps}{label});")
        for argument in self.candidates:
            if argument.kind == "words":
                data = argument.declaration.split()[-1]
                out.line(f'const tx::Global<tx::u32> {argument.own}({data}, "{comment(argument.name)}");')
        if self.rings or self.turns or any(b.memory in (Memory.SHARED, Memory.CLUSTER) for b in self.local.values()):
            out.line(f"TX_DYN_SMEM({SHARED_ARRAY});")
        for buffer in self.local.values():
            self._declare_local(buffer, out)
        for tiled, (own, kind) in self.tiles.items():
            out.line(f"const {kind} {own}({self.tensors[tiled].name});")
        for pipe in self.launch.pipes:
            self._declare_ring(pipe, out)
        for counter, own in self.turns.items():
            where = f"{SHARED_ARRAY} + {self._sync_offset(counter)}"
            out.line(f'const tx::Shared<tx::i32> {own}({where}, 1, "{comment(counter)}");')
        if self.facts.has(AfterLaunch):
            self._declare_settled(out)

    def _in_l2(self, buffer: MappedBuffer, tensor: Tensor, out: Lines) -> str:
        """The address of an array, with what the L2 is to give up first or last if the array is larger."""
        if buffer.name not in (*self.launch.lasting, *self.launch.passing):
            return tensor.data
        call = "tx::lasting" if buffer.name in self.launch.lasting else "tx::passing"
        size = multiply(extent(tensor.layout), const(buffer.dtype.size_bytes))
        if constant_value(size) is not None:  # then it is larger
            return f"{call}({tensor.data})"
        most = self.planned.program.target.l2_bytes
        return f"{call}({tensor.data}, {out.use(ix.term(size, self.scope))} > {most})"

    def _where(self, tensor: Tensor, out: Lines) -> tuple[str, str]:
        """The strides of an accessor of several dimensions, in its type, or as `{K, 1}, ` among its arguments."""
        if not tensor.steps:
            return "", ""
        steps = [ix.term(step, self.scope) for step in tensor.steps]
        narrow = ix.term(extent(tensor.layout), self.scope).high <= ix.INT_MAX and not any(step.wide for step in steps)
        if narrow and all(isinstance(step, IndexConst) for step in tensor.steps):
            return f", tx::Fixed<{listed(step.text for step in steps)}>", ""
        kind = f"{len(steps)}, int" if narrow else f"{len(steps)}"
        return f", tx::Strides<{kind}>", f"{{{listed(map(out.use, steps))}}}, "

    def _declare_ring(self, pipe: Pipe, out: Writer) -> None:
        kind = "kTransaction" if pipe.kind is PipeKind.TRANSACTION else "kArrive"
        scope = f", tx::Scope::k{pipe.scope.value.capitalize()}" if pipe.scope is Scope.CLUSTER else ""
        own, where = self.rings[pipe.name], f"{SHARED_ARRAY} + {self._sync_offset(pipe.name)}"
        filled = (copy.span for copy in self.facts.of(Copy) if copy.pipe == pipe.name)
        lines = listed(dict.fromkeys(source_line(span) for span in filled if span.source.text))
        out.line(f"// {comment(pipe_text(pipe))}")
        if lines:
            out.line(f"//   {comment(lines)}")
        out.line(f'tx::Ring<{pipe.stages}, tx::PipeKind::{kind}{scope}> {own}({where}, "{comment(pipe.name)}");')

    def _sync_offset(self, name: str) -> int:
        return self.planned.sync_offsets[self.launch.name][name]

    def _declare_settled(self, out: Writer) -> None:
        """Of a launch that may begin before the one before it is over: the arrays that no launch writes."""
        for buffer in self._device:
            if buffer.name in self.tensors and buffer.role is Role.PARAM and buffer.name in self.settled:
                out.line(f"tx::settled({self.tensors[buffer.name].name});")
        for map_, own in self.maps.items():
            if map_.buffer in self.settled:
                out.line(f"tx::settled({own});")

    def _declare_local(self, buffer: MappedBuffer, out: Lines) -> None:
        tensor = self.tensors[buffer.name]
        element, label = storage_type(buffer.dtype), f'"{comment(buffer.name)}"'
        match buffer.memory:
            case Memory.SHARED | Memory.CLUSTER:
                where, _ = self._where(tensor, out)
                pipe = self.pipe_of.get(buffer.name)
                count = room(buffer) + (0 if pipe is None else (pipe.stages - 1) * self.stage_elements(buffer.name))
                first = f"{SHARED_ARRAY} + {in_words(self.planned.addresses[buffer.name].offset_bytes)}"
                out.line(f"const tx::Shared<{element}{where}> {tensor.name}({first}, {count}, {label});")
            case Memory.REG if buffer.name in self.accumulators:
                out.line(f"{self.accumulators[buffer.name]} {tensor.name};")
            case Memory.REG:
                if tensor.variable is None or not (tensor.variable.scalar or tensor.variable.placed):
                    out.line(self.register(buffer.name))
            case Memory.GLOBAL:
                raise fail("E0502", f"{buffer.name}: {buffer.memory} memory of a block is not emitted", buffer.span)

    def register(self, name: str) -> str:
        """The declaration of a register that is no plain scalar."""
        buffer = self.buffer(name)
        kind = f"tx::Reg<{storage_type(buffer.dtype)}, {max(room(buffer), 1)}>"
        return f'{kind} {self.tensors[name].name}("{comment(name)}");'

    def buffer(self, buffer: str) -> MappedBuffer:
        return self.planned.program.buffers[buffer]

    def sums(self, buffer: str) -> str:
        """The accumulator of a buffer."""
        return self.tensors[buffer].name

    def tile(self, buffer: str) -> str:
        """The tile that products read of a buffer."""
        return self.tiles[buffer][0]

    def slot(self, buffer: str, *, writes: bool) -> ix.Term | None:
        """The slot of a pipe's buffer at the turn that is written or read; None of another."""
        pipe = self.pipe_of.get(buffer)
        if pipe is None:
            return None
        return ix.variable(f"{self.rings[pipe.name]}.{'fill' if writes else 'read'}()", 0, pipe.stages - 1)

    def stage_elements(self, name: str) -> int:
        """The elements from one slot of a pipe's buffer to the next."""
        return self.planned.addresses[name].stage_bytes // self.tensors[name].dtype.size_bytes
