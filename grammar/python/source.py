"""Where a Python function stands in its file: its text, its tree, and spans that point into the user's own lines.

The text comes from `linecache`, so files, zip archives and notebook cells work, and neither the function nor its
module is run. It is the text that the function was compiled from, or none: compiled again, it gives the function's own
code (`lines.py`). Nothing here recurses over the tree.
"""

import ast
import inspect
import tokenize
from bisect import bisect_right
from types import FunctionType

from texpr.grammar.diagnostics import Diagnostic, TExprError, error, fail, first
from texpr.grammar.python.lines import lines_of
from texpr.grammar.records import dataclass
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.lexer import check_characters
from texpr.grammar.text.limits import MAX_BLOCK_DEPTH, MAX_DIAGNOSTICS, MAX_EXPRESSION_HEIGHT, MAX_TEXT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSource:
    """A function, its definition, and the lines it stands on; `line_shift` lines were put before them to parse."""

    function: FunctionType
    source: SourceText
    definition: ast.FunctionDef
    line_shift: int

    def offset(self, line: int, byte_column: int) -> int:
        """The character offset in `source` of a line and UTF-8 column of the tree; clamped to the text."""
        starts = self.source.line_starts
        index = line - 1 - self.line_shift
        if not 0 <= index < len(starts):
            return 0 if index < 0 else len(self.source.text)
        end = starts[index + 1] if index + 1 < len(starts) else len(self.source.text)
        text = self.source.text[starts[index] : end]
        if text.isascii():
            return min(starts[index] + byte_column, len(self.source.text))
        return starts[index] + len(text.encode("utf-8", "surrogatepass")[:byte_column].decode("utf-8", "ignore"))

    def span(self, node: ast.AST) -> Span:
        """The span of a node that has a position; a statement of several lines is marked on its first."""
        line = getattr(node, "lineno", None)
        if line is None:
            return self.name_span()
        start = self.offset(line, getattr(node, "col_offset", 0))
        end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
        end = start + 1 if end_line is None or end_column is None else self.offset(end_line, end_column)
        return Span(self.source, start, max(end, start))

    def name_span(self) -> Span:
        """The span of the function's name in its `def` line."""
        start = self.offset(self.definition.lineno, self.definition.col_offset)
        position = self.source.text.find(self.definition.name, start)
        if position < 0:
            return Span(self.source, start, start + 1)
        return Span(self.source, position, position + len(self.definition.name))

    def first_line_span(self, node: ast.AST) -> Span:
        """The span of a compound statement cut at the end of its first line."""
        span = self.span(node)
        starts = self.source.line_starts
        index = bisect_right(starts, span.start)
        stop = starts[index] - 1 if index < len(starts) else len(self.source.text)
        end = min(span.end, max(stop, span.start))
        return Span(self.source, span.start, span.start + len(self.source.text[span.start : end].rstrip()))


def read_function_source(function: object) -> FunctionSource:
    """The definition of `function` in its file. TExprError E0106 where there is none to read, E0103 where it is
    larger or deeper than TExpr reads, E0104 at forbidden characters, E0105 for `async def`."""
    if not isinstance(function, FunctionType):
        raise fail(
            "E0106",
            f"a {type(function).__name__} has no Python source that TExpr could read",
            help="decorate a function that is written with `def`",
        )
    code = function.__code__
    if code.co_name == "<lambda>":
        raise fail("E0106", "a lambda cannot be a kernel or a fn", help="write it with `def` and give it a name")
    lines = _lines(function)
    text = "".join(lines)
    source = SourceText(code.co_filename, text, code.co_firstlineno)
    if len(text) > MAX_TEXT_BYTES:
        raise fail("E0103", f"the source of `{code.co_name}` is longer than {MAX_TEXT_BYTES} characters")
    forbidden = check_characters(source)
    if forbidden:
        raise TExprError(first(forbidden, MAX_DIAGNOSTICS))
    # An indented function keeps its columns: it becomes the body of an `if` on a line of its own.
    line_shift = 1 if text[:1] in (" ", "\t") else 0
    try:
        module = ast.parse("if True:\n" + text if line_shift else text)
    except (RecursionError, MemoryError):
        raise fail("E0103", f"`{code.co_name}` is nested more deeply than Python's parser reads") from None
    except (SyntaxError, ValueError):
        raise changed(code.co_name, code.co_filename) from None
    body = module.body
    if line_shift and body and isinstance(body[0], ast.If):
        body = body[0].body
    definition = body[0] if body else None
    if isinstance(definition, ast.AsyncFunctionDef):
        found = FunctionSource(function=function, source=source, definition=_plain(definition), line_shift=line_shift)
        raise fail("E0105", "an `async def` cannot be a kernel", found.name_span(), help="write a plain `def`")
    if not isinstance(definition, ast.FunctionDef) or not _describes(definition, function):
        raise changed(code.co_name, code.co_filename)
    found = FunctionSource(function=function, source=source, definition=definition, line_shift=line_shift)
    too_deep = _deepest(found)
    if too_deep is not None:
        raise TExprError([too_deep])
    return found


def _lines(function: FunctionType) -> list[str]:
    """The lines of a function from its first decorator on; E0106 where the file is not at hand, or is another."""
    code = function.__code__
    lines = lines_of(function)
    if lines is None:
        raise changed(code.co_name, code.co_filename)
    if not 0 < code.co_firstlineno <= len(lines):
        raise fail(
            "E0106",
            f"the source of `{code.co_name}` is not available: {code.co_filename} cannot be read",
            help="save the function to a file, or define it in a notebook cell",
        )
    try:
        return list(inspect.getblock(lines[code.co_firstlineno - 1 :]))
    except (SyntaxError, tokenize.TokenError, RecursionError, MemoryError, ValueError):
        raise changed(code.co_name, code.co_filename) from None


def changed(name: str, file: str) -> TExprError:
    """The error for a function whose text is not the one that Python compiled."""
    return fail(
        "E0106",
        f"the text of `{name}` in {file} is not the one that was imported",
        help="the file changed, or an import hook rewrote the function; import it again, without the hook",
    )


def _plain(node: ast.AsyncFunctionDef) -> ast.FunctionDef:
    """An `async def` seen as a `def`, to find its name."""
    plain = ast.FunctionDef(name=node.name, args=node.args, body=node.body, decorator_list=node.decorator_list)
    return ast.copy_location(plain, node)


def _describes(definition: ast.FunctionDef, function: FunctionType) -> bool:
    """Whether a definition has the name and the parameters of a function (Python mangles `__x` in a class)."""
    code = function.__code__
    arguments = definition.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    if definition.name != code.co_name or len(names) != count:
        return False
    return all(real.endswith(name) for real, name in zip(code.co_varnames[:count], names, strict=True))


def _deepest(found: FunctionSource) -> Diagnostic | None:
    """E0103 at the first expression or block that is higher than TExpr reads; None where all are within bounds."""
    stack: list[tuple[ast.AST, int, int]] = [(found.definition, 0, 0)]
    while stack:
        node, height, depth = stack.pop()
        if height > MAX_EXPRESSION_HEIGHT:
            message = f"the expression is nested more deeply than {MAX_EXPRESSION_HEIGHT} operations"
            return error("E0103", message, found.first_line_span(node), help="give parts of it a name: x = …")
        if depth > MAX_BLOCK_DEPTH:
            message = f"blocks are nested more deeply than {MAX_BLOCK_DEPTH}"
            return error("E0103", message, found.first_line_span(node), help="move inner blocks into a texpr.fn")
        if isinstance(node, ast.expr):
            # `a and b and c` is one node in Python and a chain of operations in TExpr.
            step = max(1, len(node.values) - 1) if isinstance(node, ast.BoolOp) else 1
            height += step
        elif isinstance(node, ast.stmt):
            height, depth = 0, depth + 1
        stack += [(child, height, depth) for child in ast.iter_child_nodes(node)]
    return None
