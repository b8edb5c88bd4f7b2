"""Ways in: `load` a file, `parse` a text, decorate a function with `kernel` or `fn`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, overload

from texpr.grammar.collector import rare_collections
from texpr.grammar.diagnostics import fail
from texpr.grammar.paths import as_path, read_plain
from texpr.kernels import Checker, Kernel
from texpr.modules import Module
from texpr.options import size_names
from texpr.options import text as text_option

MAX_FILE_BYTES = 4 << 20  # a text over the parser's own limit is refused there; this bounds what is read


def _module(text: str, name: str, folder: Path | None) -> Module:
    with rare_collections():
        from texpr.grammar.source import SourceText
        from texpr.grammar.syntax import KernelDef
        from texpr.grammar.text.parser import parse as parse_source

        tree = parse_source(SourceText(name, text))
    names = [item.name for item in tree.items if isinstance(item, KernelDef)]
    if not names and _is_bare(tree.items):
        names = [tree.name]
    checker = Checker(tree, folder)
    return Module({each: Kernel(checker, each) for each in names}, name)


def _is_bare(items: Sequence[Any]) -> bool:
    """Whether statements stand outside any kernel: they are one, named after the file."""
    from texpr.grammar.syntax import FnDef, Import, SizeDef

    return any(not isinstance(item, FnDef | Import | SizeDef) for item in items)


def parse(text: str, name: str = "main") -> Module:
    """The kernels of a text, called `name` in messages. Raises E01 errors; names and types are checked when a kernel is
    used."""
    if not isinstance(text, str):
        raise fail("E0606", f"a program is a text, not a {type(text).__name__[:40]}", help="texpr.load reads a file")
    return _module(text, text_option("name", name), None)


def read_text(path: str | Path, most: int = MAX_FILE_BYTES) -> str:
    """A program's text. Raises E0606 when it cannot be read, E0103 when it is too large, E0104 if it is not UTF-8."""
    file = as_path(path)
    try:
        return read_plain(file, most).decode("utf-8")
    except OSError as why:
        raise fail("E0606", f"{file} cannot be read: {why.strerror or why}") from None
    except UnicodeDecodeError as why:
        raise fail("E0104", f"{file} is not UTF-8: byte {why.start}") from None


def load(path: str | Path) -> Module:
    """The kernels of a `.tex` or `.texpr` file, whose imports stay inside its folder, or those of a `.py` file,
    which is read and never run. Raises E0606 and E01 errors."""
    if as_path(path).suffix == ".py":
        from texpr.python_files import load_python

        return load_python(as_path(path))
    return _module(read_text(path), str(path), as_path(path).parent)


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *attrs: str, where: str | None = None, dynamic: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(*args: Any, where: str | None = None, dynamic: Sequence[str] = ()) -> Any:
    """Make a kernel of a Python function: `@texpr.kernel`, or `@texpr.kernel("#persistent", where="N % 8 == 0")`.

    The body is parsed, never run. Raises E01 errors at the function.
    """
    from texpr.grammar.python.function import parse_function

    if len(args) == 1 and callable(args[0]):
        return Kernel(Checker(parse_function(args[0])), args[0].__name__, function=args[0])
    attrs = tuple(text_option("an attribute", attr) for attr in args)
    condition = None if where is None else text_option("where", where)
    free = size_names(dynamic)

    def decorate(function: Callable[..., Any]) -> Kernel:
        tree = parse_function(function, attrs=attrs, where=condition)
        return Kernel(Checker(tree), function.__name__, dynamic=free, function=function)

    return decorate


class Fn:
    """A Python function that kernels may call; `__texpr_fn__` is the function, `__texpr_reference__` the one that gives
    the meaning of a body that only hardware can run, if any."""

    def __init__(self, function: Callable[..., Any], reference: Callable[..., Any] | None = None) -> None:
        if not callable(function) or not hasattr(function, "__name__"):
            raise fail("E0106", f"a {type(function).__name__[:40]} has no Python source that TExpr could read")
        from texpr.grammar.python.lines import hold_text

        for part in (function, reference):
            if isinstance(part, FunctionType):  # anything else has no text, which is said where it is read
                hold_text(part)
        self.__texpr_fn__ = function
        if reference is not None:
            self.__texpr_reference__ = reference
        self.__name__, self.__doc__, self.__wrapped__ = function.__name__, function.__doc__, function

    def __repr__(self) -> str:
        return f"<texpr.Fn {self.__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise fail("E0601", f"{self.__name__} is a texpr.fn: it has a meaning only inside a kernel")


@overload
def fn(function: Callable[..., Any], /) -> Fn: ...
@overload
def fn(*, reference: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Fn]: ...
def fn(function: Callable[..., Any] | None = None, /, *, reference: Callable[..., Any] | None = None) -> Any:
    """Make a function that kernels may call: `@texpr.fn`, or `@texpr.fn(reference=meaning)` for a body with `asm`.

    It is parsed with the kernel that calls it.
    """
    if function is not None:
        return Fn(function)
    if reference is not None and not callable(reference):
        raise fail("E0607", f"`reference` is a function, not a {type(reference).__name__[:40]}")
    return lambda body: Fn(body, reference)
