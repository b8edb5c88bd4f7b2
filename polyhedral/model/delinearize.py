"""Flat subscripts split into dimensions: `A[i * N + j]` with 0 <= j < N is the element A[i, j].

The strides are read off the subscripts of all accesses to one buffer (the factors of its indices), ordered by
divisibility, and every access must split by the same ones, each inner part proved to lie in 0 .. ratio - 1. The split
is then a bijection between flat and split elements, so every proof on split elements is exact. With free sizes it is
the parametric delinearisation of Grosser et al. (ICS 2015) without the optimism: what is not proved is refused.

    strides of A[i * N + j], A[j]          N, 1
    parts                                  (i, j), (0, j)        given 0 <= j < N

A stride may be a sum of sizes, as in `A[y * (Q + 2) + x]` (`stride_sums`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from texpr.grammar.ast import IndexExpr, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import const, product
from texpr.grammar.index.linear import Linear, Monomial, factors, why_not_affine
from texpr.grammar.index.text import in_words
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope
from texpr.polyhedral.model.stride_sums import PLAIN, Basis, basis_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatAccess:
    """A flat subscript in normal form, at the points of `domain`."""

    scope: Scope
    domain: isl.Set
    subscript: Linear
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, order=True)
class Stride:
    """`factor` times the product of `sizes` (sorted)."""

    sizes: tuple[str, ...]
    factor: int

    @property
    def form(self) -> Linear:
        return Linear({tuple(SizeVar(name=name) for name in self.sizes): self.factor})

    def expression(self, basis: Basis) -> IndexExpr:
        """The stride as an index expression."""
        return product((const(self.factor), *map(basis.expression, self.sizes)))

    def over(self, smaller: "Stride") -> "Stride | None":
        """`self / smaller` where that is exact, else None."""
        quotient, rest = smaller.divide(self.form)
        if rest.terms:
            return None
        ((monomial, factor),) = quotient.terms.items()
        return Stride(factors(monomial)[0], factor)

    def divide(self, form: Linear) -> tuple[Linear, Linear]:
        """Quotient and rest: `form == self * quotient + rest`.

        A constant floors, so that its rest is a subscript; a coefficient truncates, so that -1 stays -1.
        """
        quotient: dict[Monomial, int] = {}
        for monomial, coefficient in form.terms.items():
            inner = _without(monomial, self.sizes)
            whole = coefficient // self.factor if not monomial else _truncated(coefficient, self.factor)
            if inner is not None and whole:
                quotient[inner] = whole
        found = Linear(quotient)
        return found, form - found * self.form


UNIT = Stride((), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """`strides` outermost first, ending in 1, in the names of `basis`; `parts[a]` are the subscripts of access a, one
    for each stride, in sizes."""

    strides: tuple[Stride, ...]
    parts: tuple[tuple[Linear, ...], ...]
    basis: Basis = PLAIN

    def ratio(self, level: int) -> Linear:
        """How often the stride at `level` goes into the one before it."""
        ratio = self.strides[level - 1].over(self.strides[level])
        assert ratio is not None, "strides divide one another"
        return self.basis.back(ratio.form)

    def rows(self, length: Linear) -> Linear | None:
        """How often the outermost stride goes into a length; None where it does not divide it."""
        rows, rest = self.strides[0].divide(self.basis.into(length))
        return None if rest.terms else self.basis.back(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a buffer cannot be split: the access, and the reason."""

    access: FlatAccess
    reason: str


def delinearize(accesses: Sequence[FlatAccess]) -> Split | Refusal | None:
    """Splits the accesses of one buffer.

    None when no split is needed (every subscript is affine) and none is found; a `Refusal` when one is needed.
    """
    result = _delinearize(accesses, PLAIN)
    if isinstance(result, Refusal):
        basis = basis_of([access.subscript for access in accesses])
        if basis is not PLAIN:
            return _delinearize([replace(a, subscript=basis.into(a.subscript)) for a in accesses], basis)
    return result


def _delinearize(accesses: Sequence[FlatAccess], basis: Basis) -> Split | Refusal | None:
    terms = [(*factors(monomial), c) for access in accesses for monomial, c in access.subscript.terms.items()]
    strides = sorted({Stride(sizes, abs(c)) for sizes, atoms, c in terms if atoms} - {UNIT})
    needed = [stride for stride in strides if stride.sizes]
    chains = [_chain(needed)] if needed else [_chain(strides), _chain(strides[-1:])]
    refusal: Refusal | None = None
    for chain in chains:
        if len(chain) < 2:
            continue
        result = _split(accesses, chain, basis)
        if isinstance(result, Split):
            return result
        refusal = refusal or result
    for access in accesses:
        reason = why_not_affine(access.subscript)
        if reason is not None:
            return refusal or Refusal(access=access, reason=reason)
    return None


def _chain(strides: Sequence[Stride]) -> tuple[Stride, ...]:
    """The strides that divide one another, outermost first, ending in 1."""
    chain = [UNIT]
    for stride in sorted(strides, key=lambda s: (len(s.sizes), s.factor, s.sizes)):
        if stride.over(chain[-1]) is not None:
            chain.append(stride)
    return tuple(reversed(chain))


def _split(accesses: Sequence[FlatAccess], chain: tuple[Stride, ...], basis: Basis) -> Split | Refusal:
    split = []
    for access in accesses:
        parts = list(parts_of(access.subscript, chain))
        try:
            with access.scope.work.limited(access.span, "this split", access.scope.width):
                reason = _settle(access, parts, chain, basis)
        except TExprError as limit:
            reason = limit.diagnostics[0].message
        if reason is not None:
            return Refusal(access=access, reason=reason)
        split.append(tuple(basis.back(part) for part in parts))
    return Split(strides=chain, parts=tuple(split), basis=basis)


def stride_of(form: Linear) -> Stride | None:
    """A factor times sizes as a stride; None for another form."""
    if len(form.terms) != 1:
        return None
    ((monomial, factor),) = form.terms.items()
    sizes, atoms = factors(monomial)
    return None if atoms or factor <= 0 else Stride(sizes, factor)


def parts_of(subscript: Linear, chain: tuple[Stride, ...]) -> tuple[Linear, ...]:
    """The coefficients of the strides, outermost first; nothing is proved yet."""
    parts: list[Linear] = []
    rest = subscript
    for stride in chain[:-1]:
        quotient, rest = stride.divide(rest)
        parts.append(quotient)
    return (*parts, rest)


def _settle(access: FlatAccess, parts: list[Linear], chain: tuple[Stride, ...], basis: Basis) -> str | None:
    """Proves every inner part in range, innermost first, carrying one into the next where that is needed."""
    for level in range(len(chain) - 1, 0, -1):
        ratio = chain[level - 1].over(chain[level])
        assert ratio is not None
        for carry in (0, 1, -1):
            inner = parts[level] + ratio.form * carry
            if _in_range(access, basis.back(inner), basis.back(ratio.form)):
                parts[level] = inner
                parts[level - 1] -= carry
                break
        else:
            return f"{show(parts[level])} is not known to lie in 0 .. {show(ratio.form)} - 1"
    reason = why_not_affine(basis.back(parts[0]))
    return None if reason is None else f"{show(parts[0])} is not affine"


def _in_range(access: FlatAccess, value: Linear, limit: Linear) -> bool:
    single, bound = value.value, limit.value
    if single is not None and bound is not None:
        return 0 <= single < bound
    try:
        inside = access.scope.below(access.scope.form(value), access.scope.form(limit))
    except NotAffineError:
        return False
    return bool(access.domain.is_subset(inside))


def show(form: Linear) -> str:
    """The form as text for a message."""
    return in_words(form.expression())


def _without(monomial: Monomial, sizes: tuple[str, ...]) -> Monomial | None:
    """The monomial divided by sizes, None where they are not all in it."""
    rest = list(monomial)
    for name in sizes:
        size = SizeVar(name=name)
        if size not in rest:
            return None
        rest.remove(size)
    return tuple(rest)


def _truncated(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)
