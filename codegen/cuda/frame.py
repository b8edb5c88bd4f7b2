"""The frame of a kernel: what its launch passes, the tensors that its text declares, and the C++ names of all of it.

Arguments stand in one order: array parameters, scalars, workspaces (each in the graph's order), sizes, host indices;
only what the text uses is passed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.literals import storage_type
from texpr.codegen.cuda.names import Scope, comment
from texpr.codegen.cuda.usage import Usage, usage_of
from texpr.codegen.graph import BlockGraph, BlockTensor, DTensor, PlannedGraph
from texpr.codegen.writer import Writer
from texpr.grammar.ast import IndexConst, IndexExpr, Role
from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.types import I64, DType
from texpr.polyhedral.mapped.places import Memory

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

    def __init__(self, planned: PlannedGraph, graph: BlockGraph) -> None:
        self.planned, self.graph = planned, graph
        self.names = Scope()
        self.usage: Usage = usage_of(graph)
        self.layouts: dict[str, Layout] = {}
        self.candidates: list[Argument] = []
        self._local = {t.name for t in graph.tensors}
        self._device = [t for t in planned.graph.tensors if t.name not in self._local]
        for role in (Role.PARAM, Role.SCALAR, Role.LOCAL):
            for tensor in self._device:
                if tensor.role is role and (role is Role.SCALAR or tensor.name in self.usage.tensors):
                    self._add_tensor(tensor)
        self.scope = self._index_scope()
        for block_tensor in graph.tensors:
            if block_tensor.name in self.usage.tensors:
                self._add_block_tensor(block_tensor)

    def arguments(self, text: str) -> tuple[Argument, ...]:
        """The arguments of the kernel whose body is `text`."""
        used = words_of(text)
        return tuple(c for c in self.candidates if c.kind in ("param", "workspace") or c.own in used)

    def _add_tensor(self, tensor: DTensor) -> None:
        own = self.names.new(tensor.name)
        scalar = tensor.role is Role.SCALAR
        data = "" if scalar else self.names.new(f"{own}_data")
        self.layouts[tensor.name] = Layout(own, tensor.dtype, tensor.shape, tensor.strides, scalar, data)
        declaration = (
            f"{storage_type(tensor.dtype)} {own}" if scalar else f"{self._element(tensor)}*{self._alone(tensor)} {data}"
        )
        self.candidates.append(Argument(_KINDS[tensor.role], tensor.name, own, declaration))

    def _index_scope(self) -> ix.IndexScope:
        bounds = ix.size_bounds(self.planned.graph.facts)
        sizes: dict[str, ix.Term] = {}
        for size in self.planned.graph.sizes:
            own = self.names.new(size)
            sizes[size] = ix.variable(own, *bounds.get(size, (0, ix.SIZE_MAX)), wide=True)
            self.candidates.append(Argument("size", size, own, f"tx::i64 {own}"))
        indices: dict[str, ix.Term] = {}
        for tensor in self._device:
            if tensor.role is Role.SCALAR and tensor.dtype.is_integer:
                own = self.layouts[tensor.name].name
                indices[tensor.name] = ix.variable(own, ix.LONG_MIN, ix.LONG_MAX, wide=tensor.dtype == I64)
        for host in self.graph.arguments:
            own = self.names.new(host)
            indices[host] = ix.variable(own, 0, ix.SIZE_MAX, wide=True)
            self.candidates.append(Argument("index", host, own, f"tx::i64 {own}"))
        return ix.IndexScope(indices, sizes)

    def _element(self, tensor: DTensor) -> str:
        constant = "" if tensor.name in self.usage.written else "const "
        return constant + storage_type(tensor.dtype)

    def _alone(self, tensor: DTensor) -> str:
        """` __restrict__`, but for a tensor through which the threads of a block may speak to each other: there the
        word would let a load be moved across the barrier."""
        shared = tensor.name in self.usage.written and self.usage.waits
        return "" if shared else " __restrict__"

    def _add_block_tensor(self, tensor: BlockTensor) -> None:
        strides = self.planned.strides.get(self.graph.name, {}).get(tensor.name, tensor.strides)
        if strides is None:
            raise InternalError(f"{tensor.name} has no layout")
        self.layouts[tensor.name] = Layout(
            self.names.new(tensor.name),
            tensor.dtype,
            tuple(IndexConst(value=n) for n in tensor.shape),
            tuple(IndexConst(value=s) for s in strides),
        )

    # ---- declarations ----

    def declare_tensors(self, out: Writer) -> None:
        """The accessors of all tensors, at the top of the kernel."""
        for tensor in self._device:
            if tensor.name in self.layouts and tensor.role is not Role.SCALAR:
                layout = self.layouts[tensor.name]
                element, label = self._element(tensor), f'"{comment(tensor.name)}"'
                out.line(f"const tx::Global<{element}> {layout.name}({layout.data}, {label});")
        used = [t for t in self.graph.tensors if t.name in self.layouts]
        if any(t.memory is Memory.SHARED for t in used):
            out.line(f"TX_DYN_SMEM({SHARED_ARRAY});")
        plan = self.planned.shared.get(self.graph.name)
        for block_tensor in used:
            self._declare_block_tensor(block_tensor, plan.offsets if plan else {}, out)

    def _declare_block_tensor(self, tensor: BlockTensor, offsets: Mapping[str, int], out: Writer) -> None:
        layout = self.layouts[tensor.name]
        element, label = storage_type(tensor.dtype), f'"{comment(tensor.name)}"'
        count = element_count(tensor.shape, layout.strides)
        match tensor.memory:
            case Memory.SHARED:
                where = f"{SHARED_ARRAY} + {offsets[tensor.name]}"
                out.line(f"const tx::Shared<{element}> {layout.name}({where}, {count}, {label});")
            case Memory.REG:
                out.line(f"tx::Reg<{element}, {max(count, 1)}> {layout.name}({label});")
            case Memory.CLUSTER | Memory.GLOBAL:
                raise fail("E0502", f"{tensor.name}: {tensor.memory} memory of a block is not emitted", tensor.span)


def element_count(shape: tuple[int, ...], strides: tuple[IndexExpr, ...]) -> int:
    """Elements from the first to the last of a tensor with constant strides, padding between them included."""
    if 0 in shape:
        return 0
    steps = [s.value for s in strides if isinstance(s, IndexConst)]
    return 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))


_QUOTED = re.compile(r'"[^"]*"')


def words_of(text: str) -> set[str]:
    """The identifiers in C++ text, those in comments, directives and strings left out."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(("//", "#")))
    return set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", _QUOTED.sub("", "\n".join(lines))))
