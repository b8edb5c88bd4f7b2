"""Options as users give them: what has another type, or a value that an option does not take, is an error with a code.

E0211 for sizes, types and hints, E0502 for stages, E0607 for all else.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from texpr.grammar.diagnostics import TExprError, did_you_mean, fail, nearest

if TYPE_CHECKING:
    from texpr.polyhedral.mapped.candidate import Choices
    from texpr.polyhedral.target import Target

T = TypeVar("T", bound=str)
MAX_SIZE = 2**63 - 1  # sizes are i64


def _kind(value: object) -> str:
    return type(value).__name__[:40]


def target_of(target: Any) -> "Target":
    """The option `target`; `cuda` is the first GPU of this machine. Raises E0501, and E0503 where there is no GPU."""
    from texpr.polyhedral.target import parse_target

    if not isinstance(target, str):
        raise fail("E0501", f"a target is a text such as 'cpu', not a {_kind(target)}")
    return parse_target(gpu_target(0) if target == "cuda" else target)


def gpu_target(number: int) -> str:
    """The target of a GPU of this machine. Raises E0503 where it cannot be asked."""
    from texpr.polyhedral.target import TARGETS
    from texpr.runtime.device import compute_capability

    try:
        major, minor = compute_capability(number)
    except TExprError as why:
        said = why.diagnostics[0].message
        message = f"the target `cuda` is the GPU of this machine: {said}"
        raise fail("E0503", message, help=f"name one, such as cuda:sm_90a: {TARGETS}") from None
    return f"cuda:sm_{major}{minor}{'a' if major >= 9 else ''}"


def refuse_misspelt(given: Collection[str], options: Sequence[str], known: Callable[[], Collection[str]]) -> None:
    """E0607 for a keyword that is no name of `known` and resembles an option: a misspelt option is not a size."""
    for name in given:
        close = nearest(name, options)
        if close is not None and name not in known():
            raise fail("E0607", f"there is no option `{name[:80]}`", help=f"did you mean `{close}`?")


def refuse_bound(free: Sequence[str], bound: Mapping[str, int]) -> None:
    """E0211 for a size that is to stay dynamic and has a value."""
    both = [name for name in free if name in bound]
    if both:
        raise fail("E0211", f"size {both[0]} is dynamic and has the value {bound[both[0]]}")


def refuse_unknown(kernel: str, given: Collection[str], sizes: Sequence[str]) -> None:
    """E0211 for a name that is no size of a kernel."""
    unknown = [name for name in given if name not in sizes]
    if unknown:
        help = did_you_mean(unknown[0][:80], sizes)
        raise fail("E0211", f"{kernel} has no size {unknown[0][:80]!r}", help=help)


def refuse_ambiguous(given: Collection[str], kernel: str, sizes: Collection[str], parameters: Collection[str]) -> None:
    """E0607 for an option that is given and might be meant for a size, or a parameter, of the same name."""
    for name in given:
        if name in sizes or name in parameters:
            what = "size" if name in sizes else "parameter"
            mend = f"give the size as sizes={{{name!r}: …}}" if name in sizes else "pass the parameter by position"
            raise fail("E0607", f"`{name}` is an option of this call and a {what} of {kernel}", help=mend)


def _by_name(option: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise fail("E0211", f"`{option}` is a mapping by name, not a {_kind(value)}")
    if not all(isinstance(name, str) for name in value):
        raise fail("E0211", f"`{option}` is a mapping by name: its keys are texts")
    return value


def element_types(types: Any) -> Mapping[str, str]:
    """The option `types`: names of element types by the names of buffers. Raises E0211."""
    if not all(isinstance(value, str) for value in _by_name("types", types).values()):
        raise fail("E0211", "`types` maps names to the names of element types, such as 'f16'")
    return _by_name("types", types)


def merge_sizes(option: str, *mappings: Any) -> dict[str, int]:
    """Sizes by name, from all mappings together; a name may be given twice with one value. Raises E0211."""
    merged: dict[str, int] = {}
    for mapping in mappings:
        for name, value in _by_name(option, mapping).items():
            number = None if isinstance(value, bool) else _integer(value)
            if number is None:
                raise fail("E0211", f"size {name[:80]} is {_shown(value)}, not an integer")
            if merged.setdefault(name, number) != number:
                raise fail("E0211", f"size {name[:80]} has two values, {_shown(merged[name])} and {_shown(number)}")
            if not 0 <= number <= MAX_SIZE:
                raise fail("E0211", f"the size `{name[:80]}` is from 0 to 2^63 - 1, {_shown(number)} was given")
    return merged


def _shown(value: object) -> str:
    """A value as messages show it: whatever its class does, and however long it is."""
    try:
        return repr(value)[:80]
    except Exception:  # a foreign object's own errors; also an integer of more digits than Python writes
        return "an integer of thousands of digits" if isinstance(value, int) else f"a {_kind(value)}"


def _integer(value: Any) -> int | None:
    """The integer that a value is, or stands for as a subscript."""
    try:
        return int(value.__index__())
    except Exception:  # a foreign object's own errors, of any class
        return None


def size_names(dynamic: Any) -> tuple[str, ...]:
    """The option `dynamic`: names of sizes, or one name. Raises E0211."""
    names = (dynamic,) if isinstance(dynamic, str) else dynamic
    if not isinstance(names, Sequence | frozenset | set) or not all(isinstance(name, str) for name in names):
        raise fail("E0211", "`dynamic` names sizes, such as ('M', 'N')")
    return tuple(names)


def stage_name(stop_after: Any) -> str | None:
    """The option `stop_after`, whose value `pipeline.build` knows. Raises E0502."""
    if stop_after is not None and not isinstance(stop_after, str):
        raise fail("E0502", f"`stop_after` is the name of a stage, not a {_kind(stop_after)}")
    return stop_after


def flag(option: str, value: Any) -> bool:
    """An option that is on or off. Raises E0607."""
    if not isinstance(value, bool):
        raise fail("E0607", f"`{option}` is True or False, not {_shown(value)}")
    return value


def natural(option: str, value: Any) -> int:
    """An option that is an integer from 0 on. Raises E0607."""
    number = _integer(value)
    if number is None or number < 0:
        raise fail("E0607", f"`{option}` is an integer from 0 on, not {_shown(value)}")
    return number


def one_of(option: str, value: Any, choices: tuple[T, ...]) -> T:
    """An option that has one of a few names. Raises E0607."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    raise fail("E0607", f"`{option}` is {' or '.join(map(repr, choices))}, not {_shown(value)}")


def text(option: str, value: Any) -> str:
    """An option that is a text. Raises E0607."""
    if not isinstance(value, str):
        raise fail("E0607", f"`{option}` is a text, not a {_kind(value)}")
    return value


def choices_of(mapping: Any) -> "Choices | None":
    """The option `mapping`: a candidate, or cases of several, or their JSON. Raises E0607."""
    if mapping is None:
        return None
    from texpr.polyhedral.mapped.candidate import Choices
    from texpr.polyhedral.mapped.candidate_json import read_choices

    return mapping if isinstance(mapping, Choices) else read_choices(mapping)
