"""Compiled kernels as functions of tasks: what the task accesses follows from the kernel's manifest.

    engine.submit(gemm, A[i, k], B[k, j], C[i, j])            # as the kernel is called, with blocks for arrays

    a parameter's mode    the access to its block
    read                  read          (of a zero block: zeros of the task's own)
    write                 write         every element is written: that is what the compiler has proved
    read-write            read_write
    accumulate with `+`   accumulate    with another operator: read_write

A block is accessed whole, whatever part of it the kernel touches. The kernel is called with the blocks' buffers, which
are committed when it returns. Needs manifests, not the compiler.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from texpr.codegen.manifest import Manifest, Parameter
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.arguments import assign, check_extents, scalar_value
from texpr.runtime.host_arrays import numpy_dtype
from texpr.runtime.tasks.devices import DeviceArray
from texpr.runtime.tasks.permissions import MODE_WORDS, Access, Mode
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext

MODES = {"read": Mode.READ, "write": Mode.WRITE, "read-write": Mode.READ_WRITE, "accumulate": Mode.ACCUMULATE}
SUFFICES: dict[Mode, tuple[Mode, ...]] = {  # what may be declared instead of what follows from the manifest
    Mode.READ: (Mode.READ, Mode.READ_WRITE),
    Mode.WRITE: (Mode.WRITE, Mode.READ_WRITE),
    Mode.READ_WRITE: (Mode.READ_WRITE,),
    Mode.ACCUMULATE: (Mode.ACCUMULATE, Mode.READ_WRITE),
    Mode.TEMP: (Mode.TEMP,),
}


class KernelFunction:
    """A compiled kernel as a task's function. `modes` has the access of each array parameter by its name."""

    __slots__ = ("__name__", "_dtypes", "kernel", "manifest", "modes")

    def __init__(self, kernel: Any) -> None:
        make_ready = getattr(kernel, "make_ready", None)
        if make_ready is not None:
            make_ready()  # what the environment lacks is an error here, not in a worker
        self.kernel = kernel
        self.manifest: Manifest = kernel.manifest
        self.__name__ = self.manifest.name
        arrays = [p for p in self.manifest.parameters if not p.scalar]
        self.modes = {p.name: _mode(p) for p in arrays}
        self._dtypes = {p.name: numpy_dtype(ELEMENT_TYPES[p.dtype]) for p in arrays}

    def check_twin(self, other: "KernelFunction") -> None:
        """E0703 for a kernel that is no version of another one."""
        mine, its = (tuple((p.name, p.dtype, p.mode, p.op) for p in k.manifest.parameters) for k in (self, other))
        if mine != its:
            raise fail(
                "E0703",
                f"kernels {other.__name__} and {self.__name__} are entries of one function, and have not the same "
                "parameters",
                help="compile one kernel for both targets",
            )

    def arguments(
        self, task: object, given: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, int]]:
        """The task's arguments in the order of the parameters, and sizes by name. Raises E0601 to E0603, E0703."""
        found: dict[str, Any] = {}
        try:
            found, sizes = assign(self.manifest, given, named)
            for parameter in self.manifest.parameters:
                if parameter.scalar:
                    found[parameter.name] = scalar_value(self.manifest, parameter, found[parameter.name])
                else:
                    self._check_block(parameter, found[parameter.name])
            check_extents(self.manifest, {name: found[name].shape for name in self.modes}, sizes)
        except TExprError as why:
            raise told(task, why, found) from None
        self._check_distinct(task, found)
        return tuple(found[p.name] for p in self.manifest.parameters), sizes

    def _check_block(self, parameter: Parameter, block: object) -> None:
        if not isinstance(block, Block):
            what = repr(block) if hasattr(block, "tensor") else f"a {type(block).__name__[:40]}"
            raise fail(
                "E0703",
                f"parameter {parameter.name} takes a block of a tensor, not {what}",
                help="such as `A[0, 1]`; an array becomes a tensor by `Tensor(name, spaces, data=array)`",
            )
        if block.tensor.dtype != self._dtypes[parameter.name]:
            raise fail("E0601", f"parameter {parameter.name} has type {parameter.dtype}, not {block.tensor.dtype}")
        if block.is_zero and parameter.writes:
            raise fail("E0709", f"parameter {parameter.name} is written, and {block} is a zero block")

    def _check_distinct(self, task: object, found: Mapping[str, Any]) -> None:
        """Parameters may share a block that none of them writes."""
        first: dict[Block, str] = {}
        for name, mode in self.modes.items():
            other = first.setdefault(found[name], name)
            if other != name and not mode == self.modes[other] == Mode.READ:
                raise fail(
                    "E0603",
                    f"{task}: {found[name]} is both {other} and {name}, and the kernel writes one of them",
                    help="a block that is both read and written is one `inout` parameter",
                )

    def accesses(self, task: object, args: Sequence[Any], declared: Sequence[Any]) -> list[Access]:
        """The accesses that the task has not declared itself. Raises E0704 for one that it declared otherwise."""
        explicit = {item.block: item for item in declared if type(item) is Access}
        found: dict[Block, Access] = {}
        for parameter, block in zip(self.manifest.parameters, args, strict=True):
            if parameter.scalar:
                continue
            mode = Mode.TEMP if block.is_zero else self.modes[parameter.name]
            said = explicit.get(block)
            if said is None:
                found[block] = Access(mode, block)
            elif said.mode not in SUFFICES[mode]:
                raise fail(
                    "E0704",
                    f"{task}: the kernel needs `{MODE_WORDS[mode]}` of {block}, its {parameter.name}, and the task "
                    f"declares `{said}`",
                    help="leave the access out: it follows from the kernel",
                )
        return list(found.values())

    def __call__(self, context: "TaskContext", *args: Any, **sizes: int) -> None:
        buffers = {arg: context.get_buf(arg, fill=0 if arg.is_zero else None) for arg in args if type(arg) is Block}
        arrays = [_argument(buffers[arg].array) if type(arg) is Block else arg for arg in args]
        stream = {} if context.stream is None else {"stream": context.stream}
        try:
            self.kernel(*arrays, **sizes, **stream)
        except TExprError as why:
            given = {parameter.name: arg for parameter, arg in zip(self.manifest.parameters, args, strict=True)}
            views = [block for block in buffers if block.tensor.is_view]
            help = (
                f"the blocks of {views[0].tensor.name} are parts of its data: `packed=True` copies them"
                if views
                else None
            )
            raise told(context.task, why, given, help) from why
        context.conclude(self, buffers.values())


def _argument(array: Any) -> Any:
    return array.as_view() if isinstance(array, DeviceArray) else array


def _mode(parameter: Parameter) -> Mode:
    """Other memories begin a sum with zeros, which no operator but `+` can do."""
    return Mode.READ_WRITE if parameter.mode == "accumulate" and parameter.op != "add" else MODES[parameter.mode]


def told(task: object, why: TExprError, found: Mapping[str, Any], help: str | None = None) -> TExprError:
    """A kernel's refusal of its arguments, with the task and the blocks that it was given."""
    said = why.diagnostics[0]
    blocks = [(name, block) for name, block in found.items() if isinstance(block, Block)]
    given = ", ".join(f"{name} is {block}" for name, block in blocks[:8])
    return fail(said.code, f"{task}: {said.message}" + (f" ({given})" if given else ""), help=help or said.help)
