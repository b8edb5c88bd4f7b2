"""Names and texts of the program made safe for C++: identifiers, symbols, file names in `#line`, comments.

An identifier stays as the author wrote it unless C++, the compilers' macros or the emitter itself use the word; then
it ends in `_v`, as every name does that ends so already, so that different names stay different.
"""

import re
from collections.abc import Iterable

from texpr.grammar.source import Span

_CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const consteval constexpr constinit const_cast continue decltype default delete do
double dynamic_cast else enum explicit export extern false final float for friend goto if import inline int long module
mutable namespace new noexcept not not_eq nullptr operator or or_eq override private protected public register
reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while
xor xor_eq linux unix i386
"""
# Macros of the standard headers that nvcc and the host header bring in, where they are not all capitals.
_MACROS = """
alloca assert cudaDevicePropDontCare errno fma isfinite isinf isnan isnormal math_errhandling max min offsetof
signbit stderr stdin stdout strdupa strndupa unix assert_perror L_ctermid L_cuserid L_tmpnam P_tmpdir
"""
# Words of CUDA, and the names that the emitted text and the headers' macros use themselves.
_OURS = """
blockDim blockIdx gridDim threadIdx warpSize dim3 smem std texpr tx
"""
_RESERVED = frozenset(_CPP_WORDS.split()) | frozenset(_MACROS.split()) | frozenset(_OURS.split())
_SUFFIX = "_v"
# Three capitals and more may be a macro of some header (EOF, NULL, INT_MAX); shorter words are none, but for I.
# The rest are families: M_PIf, cudaHostAllocDefault, isalpha_l, htobe16.
_MACRO_LIKE = re.compile(r"[A-Z][A-Z0-9_]{2,}|I|M_[A-Z0-9]\w*|cuda\w+|(is|to)[a-z]+(_l)?|(be|le|hto)\w*(16|32|64)\w*")


def mangle(name: str) -> str:
    """The C++ identifier of a name of the program: injective, never a keyword, a macro or a name of ours."""
    if "__" in name or name.startswith("_"):
        return "m" + name.replace("_", "_u") + _SUFFIX
    if name in _RESERVED or name.endswith(_SUFFIX) or _MACRO_LIKE.fullmatch(name):
        return name + _SUFFIX
    return name


_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*_[0-9]+")


def kernel_symbol(launch: str) -> str:
    """The C symbol of a launch: its name where it ends in a number (as no function of the C library does that a
    launch could be called after), else `texpr_` and the mangled name."""
    return launch if _SYMBOL.fullmatch(launch) else f"texpr_{mangle(launch)}"


class Scope:
    """C++ names handed out in one function: the mangled name, or with a number where it is taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, name: str) -> str:
        """A C++ name for a variable that the program calls `name`, different from all given before."""
        stem = mangle(name)
        candidate, number = stem, 2
        while candidate in self._taken:
            candidate, number = f"{stem}_{number}", number + 1
        self._taken.add(candidate)
        return candidate


MAX_FILE_NAME = 80


def file_name(name: str) -> str:
    """The last part of a source's name with everything but letters, digits, `.`, `_` and `-` replaced."""
    base = re.split(r"[/\\]", name)[-1]
    clean = re.sub(r"[^A-Za-z0-9._-]", "_", base)[-MAX_FILE_NAME:].strip(".")
    return clean or "text"


def virtual_path(name: str) -> str:
    """The path that `#line` gives for a source: the same from every folder, so that cubins are too."""
    return f"/texpr/{file_name(name)}"


MAX_COMMENT = 100


def comment(text: str) -> str:
    """Program text inside a `//` comment: printable ASCII, no `/*`, no backslash, no trigraph, not too long."""
    clean = "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in " ".join(text.split()))
    clean = clean.replace("/*", "/ *").replace("??", "? ?")
    return clean if len(clean) <= MAX_COMMENT else clean[: MAX_COMMENT - 3] + "..."


def place(span: Span) -> str:
    """`matmul.tex:5`, or the empty string where a node has no place in a text."""
    return f"{file_name(span.source.name)}:{span.line}" if span.source.text else ""


def source_line(span: Span) -> str:
    """The text of the line at which a span begins, for a comment."""
    return comment(span.source.line_text(span.line)) if span.source.text else ""


def listed(words: Iterable[str]) -> str:
    """`a, b, c`."""
    return ", ".join(words)
