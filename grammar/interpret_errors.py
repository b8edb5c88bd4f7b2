"""The diagnostics that both modes of the interpreter raise, in one place so that they read alike.

Witnesses name loop indices (unique names) and buffers: {"i": 4, "A": (4,)} for one iteration, and pairs of values for
two, {"i": (0, 1), "C": (0,)}.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from texpr.grammar.diagnostics import Diagnostic, Label, error
from texpr.grammar.source import Span


def element_text(buffer: str, element: tuple[int, ...]) -> str:
    """`C[0, 3]`, or the bare name for rank 0."""
    return f"{buffer}[{', '.join(map(str, element))}]" if element else buffer


def iteration_text(iteration: Mapping[str, int]) -> str:
    """`i = 0, j = 3`, or `the only iteration`."""
    return ", ".join(f"{name} = {value}" for name, value in iteration.items()) or "the only iteration"


def outside_error(
    buffer: str,
    element: tuple[int, ...],
    shape: tuple[int, ...],
    dimension: int,
    iteration: Mapping[str, int],
    gathered: bool,
    span: Span,
) -> Diagnostic:
    """E0302 for an affine subscript that leaves its buffer, E0604 for a gathered one."""
    return error(
        "E0604" if gathered else "E0302",
        f"subscript {dimension + 1} of {buffer} is {element[dimension]}, outside 0..{shape[dimension] - 1}"
        if shape[dimension] > 0
        else f"{buffer} has no elements",
        span,
        f"reaches {element_text(buffer, element)} at {iteration_text(iteration)}",
        witness={**iteration, buffer: element},
    )


def asm_error(span: Span) -> Diagnostic:
    """E0502: assembly outside a `reference` has no meaning here."""
    return error(
        "E0502",
        "`asm` has no meaning for the interpreter",
        span,
        "only hardware can run this",
        help="put it in a `fn` with a `reference` body that says what it computes",
    )


def undefined_error(buffer: str, element: tuple[int, ...], iteration: Mapping[str, int], span: Span) -> Diagnostic:
    """E0303: an element is read before anything wrote it."""
    return error(
        "E0303",
        f"{element_text(buffer, element)} is read before it is written",
        span,
        f"at {iteration_text(iteration)}",
        help="bind it first; a `new` buffer is undefined at each entry of its block",
        witness={**iteration, buffer: element},
    )


def unwritten_error(buffer: str, element: tuple[int, ...], span: Span) -> Diagnostic:
    """E0304: an `out` buffer has an element that nothing wrote."""
    return error(
        "E0304",
        f"{buffer} is declared `out`, but {element_text(buffer, element)} is never written",
        span,
        help="write every element, or declare it `inout`",
        witness={buffer: element},
    )


def direction_error(buffer: str, element: tuple[int, ...], iteration: Mapping[str, int], span: Span) -> Diagnostic:
    """E0305: a write to an `in` buffer."""
    return error(
        "E0305",
        f"{buffer} is an `in` buffer and is written",
        span,
        f"writes {element_text(buffer, element)} at {iteration_text(iteration)}",
        help="declare it `inout`",
        witness={**iteration, buffer: element},
    )


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a race: what it does (`write`, `read`, `accumulate into`, `update`), where and in which iteration."""

    verb: str
    iteration: Mapping[str, int]
    span: Span

    @property
    def does(self) -> str:
        first, *rest = self.verb.split(" ", 1)
        return " ".join([f"{first}s", *rest])


def race_error(
    code: str, loop: str, name: str, buffer: str, element: tuple[int, ...], later: Party, earlier: Party
) -> Diagnostic:
    """Two iterations of the `par` with index `loop` (called `name` by the author) meet in one element.

    `later` stands later in the text. The witness pairs the indices of both, the smaller `loop` first.
    """
    touched = element_text(buffer, element)
    one, two = sorted((later.iteration, earlier.iteration), key=lambda iteration: iteration.get(loop, 0))
    pairs = {index: (one.get(index), two.get(index)) for index in {**one, **two}}
    same = later.verb == earlier.verb
    said = f"iterations {name} = {one[loop]} and {name} = {two[loop]} both {later.verb} {touched}"
    return error(
        code,
        f"two iterations of `par {name}` {later.verb if same else 'touch'} the same element of {buffer}",
        later.span,
        said if same else f"{later.does} {touched} at {iteration_text(later.iteration)}",
        secondary=()
        if later.span == earlier.span and same
        else (Label(span=earlier.span, text=f"{earlier.does} {touched} at {iteration_text(earlier.iteration)}"),),
        help="make the loop a `seq`, write to different elements, or accumulate with one operator",
        witness={**pairs, buffer: element},
    )
