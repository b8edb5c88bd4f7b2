"""What a task runs: a function for each kind of worker.

    FunctionDefinition(cpu=python_gemm, cuda=gemm_kernel)

A task is placed where its function has an entry (E0716 where no worker is of such a kind), and calls the entry as
`entry(context, *args)`. An entry that is a compiled kernel declares by itself what it accesses (`kernels.py`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.kernels import KernelFunction

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext

KINDS = ("cpu", "cuda")
CPU_ONLY = frozenset(("cpu",))


class FunctionDefinition:
    """One function in versions for several kinds of workers: Python functions, compiled kernels, or both. The kernels
    among them have the same parameters, in which a Python version gets its arguments, too."""

    __slots__ = ("__name__", "entries", "sizes")

    def __init__(
        self, *, cpu: Callable[..., Any] | None = None, cuda: Callable[..., Any] | None = None, name: str | None = None
    ) -> None:
        """`name` is what errors and traces say; otherwise it is that of the first entry. Raises E0703."""
        given = {kind: entry for kind, entry in zip(KINDS, (cpu, cuda), strict=True) if entry is not None}
        if not given:
            raise fail("E0703", "a function definition has an entry for `cpu`, `cuda` or both")
        for kind, entry in given.items():
            if not callable(entry):
                raise fail("E0703", f"the {kind} entry of a function is a {type(entry).__name__[:40]}, no function")
        self.entries = {kind: _entry(kind, entry) for kind, entry in given.items()}
        self.__name__ = name or name_of(next(iter(self.entries.values())))
        self.sizes: Mapping[str, int] = {}  # given by name, for kernels whose blocks do not tell them
        kernels = self.kernels
        for kernel in kernels[1:]:
            kernel.check_twin(kernels[0])

    @property
    def kernels(self) -> list[KernelFunction]:
        return [entry for entry in self.entries.values() if isinstance(entry, KernelFunction)]

    def with_sizes(self, sizes: Mapping[str, int]) -> "FunctionDefinition":
        """The same function, called with these sizes by name."""
        found = object.__new__(FunctionDefinition)
        found.entries, found.__name__, found.sizes = self.entries, self.__name__, sizes
        return found

    def __call__(self, context: "TaskContext", *args: Any) -> None:
        self.entries[context.kind](context, *args, **self.sizes)


def kind_of(kernel: Any) -> str:
    """The kind of worker that runs a compiled kernel: the host build of CUDA text runs on a CPU."""
    return "cuda" if kernel.manifest.target.startswith("cuda:") else "cpu"


def is_kernel(fn: object) -> bool:
    """Whether it is a compiled kernel: a callable with a manifest."""
    return isinstance(getattr(fn, "manifest", None), Manifest)


def kinds_of(fn: object) -> frozenset[str]:
    """The kinds of workers on which a task's function runs; a plain function runs on a CPU."""
    return frozenset(fn.entries) if type(fn) is FunctionDefinition else CPU_ONLY


def name_of(fn: object) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _entry(kind: str, entry: Any) -> Callable[..., Any]:
    if not is_kernel(entry):
        found: Callable[..., Any] = entry
        return found
    if kind_of(entry) != kind:
        target = entry.manifest.target
        raise fail("E0703", f"the {kind} entry is kernel {entry.manifest.name}, which is compiled for {target}")
    return KernelFunction(entry)
