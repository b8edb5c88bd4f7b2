"""What the text front end refuses to read (E0103), counted and never timed.

Later passes recurse on the trees, so these numbers also keep Python's default recursion limit out of reach.
"""

from typing import Final

MAX_TEXT_BYTES: Final = 1 << 20
MAX_BLOCK_DEPTH: Final = 64
"""Braces inside braces, and the length of an `else if` chain."""
MAX_BRACKET_DEPTH: Final = 128
"""Open ( and [ at one place."""
MAX_EXPRESSION_HEIGHT: Final = 128
"""Nodes from an expression's root to its deepest leaf; a chain `a + b + ...` counts one for each operator."""
MAX_INTEGER: Final = (1 << 64) - 1
MAX_FLOAT_DIGITS: Final = 64
"""Characters of one float literal."""
MAX_DIAGNOSTICS: Final = 20
"""Messages for one text."""
