"""Comments of a Python function as the text front end's trivia: `# why` is `-- why` of the same statement.

The docstring leads the kernel or fn, line by line. Which comments belong to a block is a matter of indentation.
"""

import ast
import inspect
import io
import tokenize

from texpr.grammar.python.source import FunctionSource
from texpr.grammar.syntax import Comment, Trivia
from texpr.grammar.text.lexer import FORBIDDEN, RawComment
from texpr.grammar.text.trivia import Comments


def comments_of(found: FunctionSource) -> Comments:
    """The comments of a function's lines in order; none where Python's tokeniser does not read them."""
    starts = found.source.line_starts
    raw: list[RawComment] = []
    if "#" not in found.source.text:
        return Comments(found.source, raw)
    text = "if True:\n" * found.line_shift + found.source.text
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line = token.start[0] - 1 - found.line_shift
            if token.type == tokenize.COMMENT and 0 <= line < len(starts):
                start = starts[line] + token.start[1]
                raw.append(RawComment(token.string[1:].rstrip(), start, start + len(token.string)))
    except (tokenize.TokenError, SyntaxError):
        raw = []
    return Comments(found.source, raw)


def block_end(found: FunctionSource, statements: list[ast.stmt]) -> int:
    """The offset where a block ends: after its last statement, the comment beside it, and the comments and empty
    lines below it that are indented as deep as the block."""
    text = found.source.text
    first = found.span(statements[0]).start
    depth = first - (text.rfind("\n", 0, first) + 1)
    end = found.span(statements[-1]).end
    rest = text[end:].split("\n", 1)[0].strip()
    if rest and not rest.startswith("#"):
        return end  # another statement stands on this line, in an enclosing block
    while (newline := text.find("\n", end)) >= 0:
        stop = text.find("\n", newline + 1)
        line = text[newline + 1 : stop if stop >= 0 else len(text)]
        bare = line.lstrip()
        if bare.strip() and not (bare.startswith("#") and len(line) - len(bare) >= depth):
            return newline
        end = newline + 1 + len(line)
    return len(text)


def docstring_trivia(found: FunctionSource) -> Trivia:
    """The docstring as comments before the definition."""
    text = ast.get_docstring(found.definition, clean=False)
    if text is None:
        return Trivia()
    lines = FORBIDDEN.sub("\ufffd", inspect.cleandoc(text).replace("\r", "\n")).split("\n")
    return Trivia(leading=tuple(Comment(text=f" {line}".rstrip()) for line in lines))
