"""Imports: which file a path names, and the scope of functions and constants that a module gives.

`import std.x` is `x.tex` beside this file's `std/`; `import a.b` is `a/b.tex` under the importing file's own folder.
Links are resolved before the folder is compared, so no path leaves it. A missing file, a file outside, and a cycle
are E0210. A module exports its functions and its constants; it does not pass on what it imports.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from texpr.grammar import syntax
from texpr.grammar.ast import IndexExpr
from texpr.grammar.check.scope import FnName, IndexName, Poison, Scope
from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.grammar.paths import read_plain
from texpr.grammar.refusals import RefusedError, refuse
from texpr.grammar.source import SourceText, Span
from texpr.grammar.surface import name_place

STD = Path(__file__).parents[1] / "std"
MAX_IMPORTS = 64
MAX_FILE_BYTES = 1 << 20

ReadConstant = Callable[[syntax.SizeDef, Scope], IndexExpr]


def _text(path: Path, item: syntax.Import) -> str:
    """The text of an imported file; E0210 where it cannot be read."""
    why = ""
    try:
        return read_plain(path, MAX_FILE_BYTES).decode("utf-8")
    except OSError as failed:
        why = failed.strerror or type(failed).__name__
    except UnicodeDecodeError as failed:
        why = f"byte {failed.start} is not UTF-8"
    except TExprError:
        why = f"it is no plain file of at most {MAX_FILE_BYTES} bytes"
    raise refuse("E0210", f"the module `{'.'.join(item.path)}` cannot be read: {why}", item.span)


def _parse(text: str, name: str) -> syntax.Module:
    from texpr.grammar.text.parser import parse

    return parse(SourceText(name=name, text=text))


@cache
def prelude() -> Scope:
    """The library functions that are visible everywhere."""
    scope = Scope()
    for item in _parse((STD / "prelude.tex").read_text(encoding="utf-8"), "std/prelude.tex").items:
        if isinstance(item, syntax.FnDef):
            scope.define(item.name, FnName(definition=item, module=scope, library=True), item.span)
    return scope


class Loader:
    """Loads the modules that one program imports; `diagnostics` collects what is wrong with them.

    `constant` reads the value of a `size` of an imported module.
    """

    def __init__(self, diagnostics: list[Diagnostic], constant: ReadConstant) -> None:
        self.diagnostics = diagnostics
        self.constant = constant
        self.loaded: dict[Path, tuple[Scope, str]] = {}  # with the name of the file in messages
        self.active: list[Path] = []

    def module_scope(self, module: syntax.Module, folder: Path | None, constant: ReadConstant) -> Scope:
        """The scope of a module: the library, what it imports, its constants (read by `constant`) and functions."""
        own = Scope(prelude())
        for item in module.items:
            try:
                match item:
                    case syntax.Import():
                        self._import(item, folder, own)
                    case syntax.SizeDef():
                        entity = IndexName(index=constant(item, own), what="a size")
                        own.define(item.name, entity, name_place(item, item.name))
                    case syntax.FnDef():
                        own.define(item.name, FnName(definition=item, module=own), name_place(item, item.name))
                    case _:
                        pass
            except RefusedError as refused:
                if refused.diagnostic is not None:
                    self.diagnostics.append(refused.diagnostic)
                if isinstance(item, syntax.SizeDef | syntax.FnDef) and own.lookup(item.name) is None:
                    own.define(item.name, Poison(), item.span)
            except TExprError as failed:
                self.diagnostics += [d for d in failed.diagnostics if d not in self.diagnostics]
        return own

    def _import(self, item: syntax.Import, folder: Path | None, own: Scope) -> None:
        path = find(item.path, folder, item.span)
        scope, name_of_file = self._load(path, item)
        for name, binding in scope.names.items():
            known = own.names.get(name)
            again = known is not None and known.entity is binding.entity  # a file may be imported twice, or by a link
            if binding.span.source.name == name_of_file and not again:
                own.define(name, binding.entity, binding.span)

    def _load(self, path: Path, item: syntax.Import) -> tuple[Scope, str]:
        if path in self.active:
            raise refuse(
                "E0210", f"`{'.'.join(item.path)}` imports itself", item.span, help="remove one of the imports"
            )
        if path in self.loaded:
            return self.loaded[path]
        if len(self.loaded) + len(self.active) >= MAX_IMPORTS:
            raise refuse("E0103", f"a program imports at most {MAX_IMPORTS} files", item.span)
        module = _parse(_text(path, item), shown(item.path))
        self.active.append(path)
        try:
            scope = self.module_scope(module, path.parent, self.constant)
        finally:
            self.active.pop()
        self.loaded[path] = scope, shown(item.path)
        return self.loaded[path]


def shown(path: tuple[str, ...]) -> str:
    """The name of a module's file in messages."""
    return "/".join(path) + ".tex"


def find(path: tuple[str, ...], folder: Path | None, span: Span) -> Path:
    """The file that an import names; E0210 where there is none, or it lies outside the folder."""
    dotted = ".".join(path)
    if path[0] == "std":
        root, parts = STD, path[1:]
    elif folder is None:
        raise refuse(
            "E0210", f"`{dotted}` has no folder: this text is not a file", span, help="import std.x, or save it"
        )
    else:
        root, parts = folder, path
    known = ", ".join(sorted(f"std.{p.stem}" for p in STD.glob("*.tex") if p.stem != "prelude"))
    if not parts or not all(part.isidentifier() for part in parts):
        raise refuse("E0210", f"`{dotted}` names no module", span, help=f"there are {known}")
    try:
        root = root.resolve()
        for ending in (".tex", ".texpr"):
            candidate = root.joinpath(*parts[:-1], parts[-1] + ending).resolve()
            if not candidate.is_file():
                continue
            if not candidate.is_relative_to(root):
                raise refuse("E0210", f"`{dotted}` leads out of the program's folder", span, help="copy the file")
            return candidate
    except (OSError, RuntimeError):
        pass
    where = f"there are {known}" if path[0] == "std" else f"it would be {'/'.join(parts)}.tex beside the importing file"
    raise refuse("E0210", f"the module `{dotted}` was not found", span, help=where)
