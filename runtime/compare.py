"""Comparing a kernel's outputs with a float64 reference and its error bound. NumPy comes lazily."""

from collections.abc import Sequence
from typing import Any

from texpr.grammar.records import dataclass

UNDECIDED_SHARE = 0.01  # of an output's elements, at most, in a run that is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One output beside the reference, or a sample of its elements, of which there are `of`.

    `ratio` is the greatest |got - reference| / bound over decided elements; at most 4 passes. `undecided` elements hang
    on a comparison within their own error and are not compared."""

    name: str
    elements: int
    undecided: int
    greatest_error: float
    ratio: float
    wrong: int
    of: int

    @property
    def decided(self) -> int:
        return self.elements - self.undecided

    @property
    def objection(self) -> str | None:
        """Why this output is not right: wrong elements, or too many that were not compared."""
        if self.wrong:
            return f"{self.name} is wrong in {self.wrong} elements"
        if self.undecided > UNDECIDED_SHARE * self.elements:
            return f"{self.undecided} of {self.elements} elements of {self.name} are undecided, and were not compared"
        return None


def objections(outputs: Sequence[Comparison]) -> tuple[str, ...]:
    """Why the run that these outputs are of is not right; none where it is. A run that compared nothing is not."""
    found = tuple(said for said in (output.objection for output in outputs) if said is not None)
    if not found and not sum(output.decided for output in outputs):
        return ("nothing was compared: the kernel writes no element",)
    return found


def compare(name: str, got: Any, reference: Any, bound: Any, undecided: Any, compared: Any | None = None) -> Comparison:
    """One output against the float64 reference: |got - ref| <= 4 bound on decided floats, equality on integers; only
    the elements that `compared` marks, if given."""
    import numpy

    whole = got.size
    if compared is not None:
        got, reference, bound, undecided = (a[compared] for a in (got, reference, bound, undecided))
    if got.dtype.kind in "iub":
        differ = (got != reference) & ~undecided
        worst = float(numpy.abs(got.astype(numpy.float64) - reference)[~undecided].max(initial=0.0))
        ratio = 0.0 if not differ.any() else float("inf")
        return Comparison(
            name=name,
            elements=got.size,
            undecided=int(undecided.sum()),
            greatest_error=worst,
            ratio=ratio,
            wrong=int(differ.sum()),
            of=whole,
        )
    wide = got.astype(numpy.float64)
    with numpy.errstate(all="ignore"):
        same = (wide == reference) | (numpy.isnan(wide) & numpy.isnan(reference))
        error = numpy.where(same, 0.0, numpy.abs(wide - reference))
        right = same | (error <= 4.0 * bound) | undecided
        ratios = numpy.where(same | undecided, 0.0, error / numpy.where(bound > 0, bound, 5e-324))
    decided = error[~undecided]
    return Comparison(
        name=name,
        elements=got.size,
        undecided=int(undecided.sum()),
        greatest_error=float(decided[numpy.isfinite(decided)].max(initial=0.0)),
        ratio=float(numpy.nanmax(ratios, initial=0.0)),
        wrong=int((~right).sum()),
        of=whole,
    )
