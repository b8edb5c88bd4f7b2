"""What the emission of one block function knows: its names, its tensors, and the text so far."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from texpr.codegen.cpu.names import Names
from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.text import ATOM, SUM
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import DType
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.layout.value import Layout

MAX_DEPTH = 90  # Python reads at most 100 levels of indentation
MAX_LOOPS = 19  # and compiles at most 20 nested loops


class Writer:
    """Indented lines of text. Raises E0506 for nesting that Python does not read."""

    def __init__(self, depth: int = 0, loops: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.loops = loops

    def line(self, text: str = "") -> None:
        """One line at the present depth."""
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head` and an indented block; an empty one becomes `pass`."""
        is_loop = head.startswith(("for ", "while "))
        if self.depth >= MAX_DEPTH or (is_loop and self.loops >= MAX_LOOPS):
            raise fail(
                "E0506",
                f"more than {MAX_LOOPS} nested loops, or {MAX_DEPTH} nested blocks, cannot be emitted for cpu",
                help="take inner loops out, or split the expression with `let`",
            )
        self.line(head)
        self.depth += 1
        self.loops += is_loop
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.loops -= is_loop

    def text(self) -> str:
        """All lines, with a final newline."""
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTensor:
    """A tensor as emitted code sees it: a pointer with a layout, or a plain variable (`scalar`).
    `device`: it is an array argument or a workspace, which all iterations share."""

    name: str
    identifier: str
    dtype: DType
    layout: Layout
    scalar: bool = False
    device: bool = False
    strides: tuple[IndexExpr, ...] = field(init=False)

    def __post_init__(self) -> None:
        steps = strides(self.layout)
        if steps is None:
            raise fail("E0502", f"{self.name}: a layout of more than strides is not emitted for a CPU")
        object.__setattr__(self, "strides", steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A run-time check of gathered subscripts; the kernel returns its number, counted from 1, and the figures that
    stand for VALUE and EXTENT in the message."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A result of `elements` numbers that every part of a parallel launch leaves in its own place, from
    `variable_parts[elements * task]` on, to be combined in the order of the parts by the lines of `combine`; so it does
    not change from run to run."""

    variable: str
    dtype: DType
    combine: tuple[str, ...]
    elements: int = 1


@dataclass(slots=True)
class Context:
    """Mutable state of one block function. `parallel`: several threads run it at once. `carried` names the variable
    that holds an accumulated element around a loop, by tensor, and `marks` what notes that there was one; `tallies` has
    the name of a part's copies of an array, how many there are and of how many elements, and `turn` names the index of
    the innermost loop; `owners` names the array that records which iteration wrote an element, by tensor that `#unique`
    speaks of; `partials` has what the parts leave to be combined."""

    names: Names
    tensors: dict[str, CpuTensor]
    writer: Writer
    checks: list[Check]
    parallel: bool
    carried: dict[str, str] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    tallies: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    turn: str = ""
    owners: dict[str, str] = field(default_factory=dict)
    partials: list[Partial] = field(default_factory=list)

    def tensor(self, name: str) -> CpuTensor:
        """A tensor that the text is about to name."""
        self.names.named.add(self.tensors[name].identifier)
        return self.tensors[name]

    def offset(self, tensor: CpuTensor, subscripts: tuple[IndexExpr | str, ...]) -> str:
        """The text of an element's offset; a gathered subscript is given by the variable that holds it."""
        parts: list[str] = []
        for subscript, stride in zip(subscripts, tensor.strides, strict=True):
            match subscript, stride:
                case IndexConst(value=0), _:
                    continue
                case _, IndexConst(value=0):
                    continue
                case str(), IndexConst(value=1):
                    parts.append(subscript)
                case str(), _:
                    parts.append(f"{subscript} * {self.names.text(stride, ATOM)}")
                case _, IndexConst(value=1):
                    parts.append(self.names.text(subscript, SUM))
                case IndexConst(value=a), IndexConst(value=b):
                    parts.append(str(a * b))
                case _:
                    assert not isinstance(subscript, str)
                    product = IndexBinary(op=IndexOp.MUL, left=subscript, right=stride)
                    parts.append(self.names.text(product, SUM))
        return " + ".join(parts) or "0"
