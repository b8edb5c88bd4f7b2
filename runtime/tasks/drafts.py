"""From the arguments of `submit` to a task whose declarations are checked, and that no engine has yet."""

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import did_you_mean, fail
from texpr.runtime.tasks.functions import FunctionDefinition, is_kernel, kind_of, kinds_of
from texpr.runtime.tasks.grants import check_within, grants
from texpr.runtime.tasks.permissions import Access, Permission
from texpr.runtime.tasks.task import Task, holds_of
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


def draft(
    flow: "Flow", parent: Task | None, fn: Any, declared: Sequence[Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Task:
    """A task of `fn`, with all that it may and will access; within what `parent` may, if that is given. Raises E0703 to
    E0705, E0716, and for arguments that a kernel does not take, E0601 to E0603."""
    task = Task(flow, flow.counters.submitted, fn, args)
    if named or type(fn) is not FunctionType or not flow.has_cpu:
        declared = _resolve(flow, task, declared, named)
    found = grants(task, declared)
    if parent is not None:
        check_within(task, found, parent, parent.grants)
    task.grants = found
    if found.accesses:
        task.holds = holds_of(found.accesses)
    return task


def _resolve(flow: "Flow", task: Task, declared: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
    """The declarations of a task whose function is not a plain one; a kernel's follow from its arguments."""
    fn: Any = task.fn
    if is_kernel(fn):
        known = flow.definitions.get(fn)
        if known is None:
            known = flow.definitions[fn] = FunctionDefinition(**{kind_of(fn): fn})
        fn = task.fn = known
    elif not callable(fn):
        raise fail("E0703", f"a task is a function, not a {type(fn).__name__[:40]}")
    kinds = kinds_of(fn)
    if not kinds & flow.kinds:
        have, needs = (", ".join(f"`{kind}`" for kind in sorted(some)) for some in (flow.kinds, kinds))
        raise fail("E0716", f"{task} has an entry for {needs}, and the engine has workers for {have}")
    kernels = fn.kernels if type(fn) is FunctionDefinition else ()
    if not kernels:
        return _plain(task, declared, named)
    said = [item for item in declared if type(item) in (Access, Permission)]
    given = [item for item in declared if type(item) not in (Access, Permission)]
    task.args, sizes = kernels[0].arguments(task, (*given, *task.args), named)
    if sizes:
        task.fn = fn.with_sizes(sizes)
    return [*said, *kernels[0].accesses(task, task.args, said)]


def _plain(task: Task, declared: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
    """Only kernels are given blocks without an access, or anything by name."""
    if named:
        name = next(iter(named))
        help = did_you_mean(name[:80], ("args",), "arguments of a function go to `args=`; only kernels take names")
        raise fail("E0703", f"{task} is submitted with `{name[:80]}=`", help=help)
    if any(isinstance(item, Block) for item in declared) and hasattr(task.fn, "compile"):
        help = "submit `kernel.compile()`, whose accesses follow from its manifest"
        raise fail("E0703", f"{task}: kernel {getattr(task.fn, 'name', '')} is not compiled", help=help)
    return declared
