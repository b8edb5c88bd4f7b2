"""The kernels of a Python file, read from its text: nothing that stands in the file is run.

A file's statements are followed in order, as Python would run them, but only these are understood: imports of texpr and
of `math`, numbers assigned to names, and functions, of which those under `@texpr.kernel` are kernels and those under
`@texpr.fn` are functions that kernels call. Every other statement makes the names that it gives unknown: a kernel that
uses one is refused, since its value is known only where the file runs.
"""

import ast
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import texpr
from texpr import frontends, language
from texpr.grammar.diagnostics import Diagnostic, TExprError, fail
from texpr.grammar.paths import read_plain
from texpr.grammar.python.names import NotRun
from texpr.grammar.text.limits import MAX_TEXT_BYTES
from texpr.kernels import Kernel
from texpr.modules import Module

FROM_PYTHON = "import the file in Python and call the kernel's compile(…)"


def load_python(path: Path, name: str | None = None) -> Module:
    """The kernels of a Python file. Raises E0606 where there are none or the file is not Python, E0103 where it is too
    large, and what is wrong with its kernels; where only `name` is wanted, nothing of the others."""
    try:
        content = read_plain(path, MAX_TEXT_BYTES)
    except OSError as why:
        raise fail("E0606", f"{path} cannot be read: {why.strerror or why}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python would say of the file's other code
            tree = ast.parse(content, str(path))
            code = compile(tree, str(path), "exec", dont_inherit=True)
    except (RecursionError, MemoryError):
        raise fail("E0103", f"{path} is nested more deeply than Python's parser reads") from None
    except (SyntaxError, ValueError) as why:
        line = f"line {why.lineno}: {why.msg}" if isinstance(why, SyntaxError) else str(why)
        raise fail("E0606", f"{path} is not Python: {line[:200]}") from None
    reader = _FileReader(path, code, tree)
    for statement in tree.body:
        reader.read(statement)
    if reader.diagnostics and name not in reader.kernels:
        raise TExprError(reader.diagnostics)
    if not reader.kernels:
        help = f"write @texpr.kernel above a function of the file itself; for kernels made otherwise, {FROM_PYTHON}"
        raise fail("E0606", f"{path} has no function under @texpr.kernel", help=help)
    return Module(reader.kernels, str(path))


class _FileReader:
    """What the names of the file stand for so far, and the kernels that were found."""

    def __init__(self, path: Path, code: CodeType, tree: ast.Module) -> None:
        self.path = path
        self.kernels: dict[str, Kernel] = {}
        self.diagnostics: list[Diagnostic] = []
        self.names: dict[str, Any] = {"__name__": path.stem}  # the globals of every function of the file
        self.codes = {(c.co_name, c.co_firstlineno): c for c in _codes(code)}
        self.changed = {n for node in ast.walk(tree) if isinstance(node, ast.Global) for n in node.names}

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    self.give(alias.asname or alias.name.partition(".")[0], _module(alias))
            case ast.ImportFrom():
                self.import_from(statement)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                self.give(name, self.value(statement.value))
            case ast.AnnAssign(value=None):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(statement)
            case _:
                for name in _given(statement):
                    self.give(name, NotRun())

    def give(self, name: str, value: object) -> None:
        self.names[name] = NotRun() if name in self.changed else value

    def import_from(self, statement: ast.ImportFrom) -> None:
        module = _TRUSTED.get(statement.module or "") if statement.level == 0 else None
        for alias in statement.names:
            if alias.name == "*" and module is not None:
                for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
                    self.give(name, getattr(module, name))
            elif alias.name != "*":
                self.give(alias.asname or alias.name, _attribute(module, alias.name))

    def value(self, node: ast.expr | None) -> object:
        """A number that is written out, or a type parameter; all else is known only where the file runs."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Call(func=function, args=[ast.Constant(value=str() as name)], keywords=[]):
                return language.type_parameter(name) if self.resolved(function) is language.type_parameter else NotRun()
            case _:
                return NotRun()

    def resolved(self, node: ast.expr) -> object:
        """What a dotted name stands for."""
        match node:
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Attribute(value=owner, attr=name):
                return _attribute(self.resolved(owner), name)
            case _:
                return None

    def function(self, definition: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        line = min(node.lineno for node in (definition, *definition.decorator_list))
        code = self.codes[definition.name, line]
        function = FunctionType(code, self.names, closure=tuple(CellType() for _ in code.co_freevars) or None)
        made: object = function
        self.kernels.pop(definition.name, None)
        for decorator in reversed(definition.decorator_list):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            word = self.resolved(called)
            if word not in (frontends.kernel, frontends.fn):
                made = NotRun()
                continue
            try:
                made = self.decorated(word, decorator, function)
            except TExprError as wrong:
                self.diagnostics += wrong.diagnostics
                made = NotRun()
            if isinstance(made, Kernel):
                self.kernels[definition.name] = made
        self.give(definition.name, made)

    def decorated(self, word: Any, decorator: ast.expr, function: FunctionType) -> object:
        """What `@word` or `@word(…)` makes of a function."""
        if not isinstance(decorator, ast.Call):
            return word(function)
        arguments = [self.argument(node, decorator) for node in decorator.args]
        keywords = {k.arg or "**": self.argument(k.value, decorator) for k in decorator.keywords}
        try:
            return word(*arguments, **keywords)(function)
        except TypeError:
            raise self.not_run("the arguments of this decorator are not those of texpr", decorator) from None

    def argument(self, node: ast.expr, decorator: ast.expr) -> object:
        value = self.resolved(node)  # `reference=` names a function
        if value is None:
            try:
                return ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                value = NotRun()
        if isinstance(value, NotRun):
            raise self.not_run("an argument of this decorator is known only where the file runs", decorator)
        return value

    def not_run(self, why: str, node: ast.expr) -> TExprError:
        return fail("E0106", f"{self.path}:{node.lineno}: {why}", help=f"write it out, or {FROM_PYTHON}")


_TRUSTED: dict[str, ModuleType] = {
    "texpr": texpr,
    "texpr.language": language,
    "texpr.frontends": frontends,
    "math": math,
}


def _module(alias: ast.alias) -> object:
    """What `import a.b` gives the name `a`, or `import a.b as c` the name `c`."""
    whole = alias.name if alias.asname else alias.name.partition(".")[0]
    return _TRUSTED.get(whole, NotRun())


def _attribute(owner: object, name: str) -> object:
    """An attribute of a module that is ours to read; NotRun for any other owner."""
    if isinstance(owner, ModuleType) and (owner in _TRUSTED.values()) and not name.startswith("_"):
        return getattr(owner, name, NotRun())
    return NotRun()


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A module's code and that of every function in it."""
    stack = [code]
    while stack:
        one = stack.pop()
        yield one
        stack += [c for c in one.co_consts if isinstance(c, CodeType)]


def _given(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement may give or take away at the level of its file."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                yield name
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                yield name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif not isinstance(node, ast.Lambda):
            stack += ast.iter_child_nodes(node)
