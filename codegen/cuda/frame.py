"""The frame of a kernel: what its launch passes, the tensors that its text declares, and the C++ names of all of it.

Arguments stand in one order: array parameters, scalars, workspaces (each in the program's order), sizes, host indices;
only what the text uses is passed.
"""

import re
from dataclasses import dataclass

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.literals import storage_type
from texpr.codegen.cuda.names import Scope, comment
from texpr.codegen.layout import span_elements
from texpr.codegen.writer import Writer
from texpr.grammar.ast import IndexExpr, Role
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.text import in_words
from texpr.grammar.types import I64, DType
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Sync
from texpr.polyhedral.mapped.walks import block_buffers, device_buffers, located, tree_reads, tree_writes

SHARED_ARRAY = "smem"
_KINDS = {Role.PARAM: "param", Role.SCALAR: "scalar", Role.LOCAL: "workspace"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor lie: C++ name, extents and strides in elements. A scalar argument is a value; an
    array is passed as a pointer of the name `data`."""

    name: str
    dtype: DType
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    scalar: bool = False
    data: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """A candidate for the signature: kind and name as the manifest has them, its C++ name and declaration."""

    kind: str
    name: str
    own: str
    declaration: str


class Frame:
    """Names, layouts and index terms of one kernel. `scope` has the sizes, host indices and integer scalars."""

    def __init__(self, planned: PlannedProgram, launch: Launch) -> None:
        self.planned, self.launch = planned, launch
        self.names = Scope()
        self.written = tree_writes(launch.body)
        self.used = tree_reads(launch.body) | self.written
        self.waits = any(isinstance(place.node, Sync) for place in located(launch.body))
        self.layouts: dict[str, Layout] = {}
        self.candidates: list[Argument] = []
        self._device = device_buffers(planned.program)
        for role in (Role.PARAM, Role.SCALAR, Role.LOCAL):
            for buffer in self._device:
                if buffer.role is role and (role is Role.SCALAR or buffer.name in self.used):
                    self._add_argument(buffer)
        self.scope = self._index_scope()
        self.local = {b.name: b for b in block_buffers(planned.program, launch)}
        for buffer in self.local.values():
            if buffer.name in self.used:
                self._add_layout(buffer, self.names.new(buffer.name))

    def arguments(self, text: str) -> tuple[Argument, ...]:
        """The arguments of the kernel whose body is `text`."""
        used = words_of(text)
        return tuple(c for c in self.candidates if c.kind in ("param", "workspace") or c.own in used)

    def _add_argument(self, buffer: MappedBuffer) -> None:
        own = self.names.new(buffer.name)
        scalar = buffer.role is Role.SCALAR
        data = "" if scalar else self.names.new(f"{own}_data")
        self._add_layout(buffer, own, scalar=scalar, data=data)
        declaration = (
            f"{storage_type(buffer.dtype)} {own}" if scalar else f"{self._element(buffer)}*{self._alone(buffer)} {data}"
        )
        self.candidates.append(Argument(_KINDS[buffer.role], buffer.name, own, declaration))

    def _add_layout(self, buffer: MappedBuffer, own: str, *, scalar: bool = False, data: str = "") -> None:
        strides = self.planned.addresses[buffer.name].strides
        self.layouts[buffer.name] = Layout(own, buffer.dtype, buffer.shape, strides, scalar, data)

    def _index_scope(self) -> ix.IndexScope:
        bounds = ix.size_bounds(self.planned.program.kernel.facts)
        sizes: dict[str, ix.Term] = {}
        for size in self.planned.program.kernel.sizes:
            own = self.names.new(size.name)
            sizes[size.name] = ix.variable(own, *bounds.get(size.name, (0, ix.SIZE_MAX)), wide=True)
            self.candidates.append(Argument("size", size.name, own, f"tx::i64 {own}"))
        indices: dict[str, ix.Term] = {}
        for buffer in self._device:
            if buffer.role is Role.SCALAR and buffer.dtype.is_integer:
                own = self.layouts[buffer.name].name
                indices[buffer.name] = ix.variable(own, ix.LONG_MIN, ix.LONG_MAX, wide=buffer.dtype == I64)
        for host in self.launch.arguments:
            own = self.names.new(host)
            indices[host] = ix.variable(own, 0, ix.SIZE_MAX, wide=True)
            self.candidates.append(Argument("index", host, own, f"tx::i64 {own}"))
        return ix.IndexScope(indices, sizes)

    def _element(self, buffer: MappedBuffer) -> str:
        constant = "" if buffer.name in self.written else "const "
        return constant + storage_type(buffer.dtype)

    def _alone(self, buffer: MappedBuffer) -> str:
        """` __restrict__`, but for a buffer through which the threads of a block may speak to each other: there the
        word would let a load be moved across the barrier."""
        return "" if buffer.name in self.written and self.waits else " __restrict__"

    # ---- declarations ----

    def declare_tensors(self, out: Writer) -> None:
        """The accessors of all tensors, at the top of the kernel."""
        for buffer in self._device:
            if buffer.name in self.layouts and buffer.role is not Role.SCALAR:
                layout = self.layouts[buffer.name]
                element, label = self._element(buffer), f'"{comment(buffer.name)}"'
                out.line(f"const tx::Global<{element}> {layout.name}({layout.data}, {label});")
        used = [b for b in self.local.values() if b.name in self.layouts]
        if any(b.memory is Memory.SHARED for b in used):
            out.line(f"TX_DYN_SMEM({SHARED_ARRAY});")
        for buffer in used:
            self._declare_local(buffer, out)

    def _declare_local(self, buffer: MappedBuffer, out: Writer) -> None:
        name = self.layouts[buffer.name].name
        element, label = storage_type(buffer.dtype), f'"{comment(buffer.name)}"'
        address = self.planned.addresses[buffer.name]
        count = span_elements(buffer, address.strides)
        match buffer.memory:
            case Memory.SHARED:
                where = f"{SHARED_ARRAY} + {in_words(address.offset_bytes)}"
                out.line(f"const tx::Shared<{element}> {name}({where}, {count}, {label});")
            case Memory.REG:
                out.line(f"tx::Reg<{element}, {max(count, 1)}> {name}({label});")
            case Memory.CLUSTER | Memory.GLOBAL:
                raise fail("E0502", f"{buffer.name}: {buffer.memory} memory of a block is not emitted", buffer.span)


_QUOTED = re.compile(r'"[^"]*"')


def words_of(text: str) -> set[str]:
    """The identifiers in C++ text, those in comments, directives and strings left out."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(("//", "#")))
    return set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", _QUOTED.sub("", "\n".join(lines))))
