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

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.affine import Scope
from texpr.polyhedral.polynomial import ONE, NotAffineError, Polynomial, Term, add, constant_value, why_not_affine
from texpr.polyhedral.stride_sums import PLAIN, Basis, basis_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatAccess:
    """A flat subscript in normal form, at the points of `domain`."""

    scope: Scope
    domain: isl.Set
    subscript: Polynomial
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, order=True)
class Stride:
    """`factor` times the product of `sizes` (sorted)."""

    sizes: tuple[str, ...]
    factor: int

    @property
    def polynomial(self) -> Polynomial:
        return {(self.sizes, None): self.factor}

    def expression(self, basis: Basis) -> IndexExpr:
        """The stride as an index expression."""
        result: IndexExpr | None = IndexConst(value=self.factor) if self.factor != 1 or not self.sizes else None
        for name in self.sizes:
            size = basis.expression(name)
            result = size if result is None else IndexBinary(op=IndexOp.MUL, left=result, right=size)
        assert result is not None
        return result

    def over(self, smaller: "Stride") -> "Stride | None":
        """`self / smaller` where that is exact, else None."""
        rest = _without(self.sizes, smaller.sizes)
        if rest is None or self.factor % smaller.factor:
            return None
        return Stride(rest, self.factor // smaller.factor)

    def divide(self, polynomial: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Quotient and rest: `polynomial == self * quotient + rest`.

        A constant floors, so that its rest is a subscript; a coefficient truncates, so that -1 stays -1.
        """
        quotient: Polynomial = {}
        rest: dict[Term, int] = {}
        for term, coefficient in polynomial.items():
            inner = _without(term[0], self.sizes)
            whole = coefficient // self.factor if term == ONE else _truncated(coefficient, self.factor)
            if inner is None or whole == 0:
                rest[term] = coefficient
                continue
            quotient = add(quotient, {(inner, term[1]): whole})
            if coefficient != whole * self.factor:
                rest[term] = coefficient - whole * self.factor
        return quotient, rest


UNIT = Stride((), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """`strides` outermost first, ending in 1, in the names of `basis`; `parts[a]` are the subscripts of access a, one
    for each stride, in sizes."""

    strides: tuple[Stride, ...]
    parts: tuple[tuple[Polynomial, ...], ...]
    basis: Basis = PLAIN

    def ratio(self, level: int) -> Polynomial:
        """How often the stride at `level` goes into the one before it."""
        ratio = self.strides[level - 1].over(self.strides[level])
        assert ratio is not None, "strides divide one another"
        return self.basis.back(ratio.polynomial)

    def rows(self, length: Polynomial) -> Polynomial | None:
        """How often the outermost stride goes into a length; None where it does not divide it."""
        rows, rest = self.strides[0].divide(self.basis.into(length))
        return None if rest else self.basis.back(rows)


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
    terms = [term for access in accesses for term in access.subscript.items()]
    strides = sorted({Stride(sizes, abs(c)) for (sizes, atom), c in terms if atom is not None} - {UNIT})
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
        parts = _parts(access.subscript, chain)
        try:
            with access.scope.work.limited(access.span, "this split", access.scope.width):
                reason = _settle(access, parts, chain, basis)
        except TExprError as limit:
            reason = limit.diagnostics[0].message
        if reason is not None:
            return Refusal(access=access, reason=reason)
        split.append(tuple(basis.back(part) for part in parts))
    return Split(strides=chain, parts=tuple(split), basis=basis)


def _parts(subscript: Polynomial, chain: tuple[Stride, ...]) -> list[Polynomial]:
    """The coefficients of the strides, outermost first; nothing is proved yet."""
    parts: list[Polynomial] = []
    rest = subscript
    for stride in chain[:-1]:
        quotient, rest = stride.divide(rest)
        parts.append(quotient)
    return [*parts, rest]


def _settle(access: FlatAccess, parts: list[Polynomial], chain: tuple[Stride, ...], basis: Basis) -> str | None:
    """Proves every inner part in range, innermost first, carrying one into the next where that is needed."""
    for level in range(len(chain) - 1, 0, -1):
        ratio = chain[level - 1].over(chain[level])
        assert ratio is not None
        for carry in (0, 1, -1):
            inner = add(parts[level], ratio.polynomial, carry)
            if _in_range(access, basis.back(inner), basis.back(ratio.polynomial)):
                parts[level] = inner
                parts[level - 1] = add(parts[level - 1], {ONE: 1}, -carry)
                break
        else:
            return f"{show(parts[level])} is not known to lie in 0 .. {show(ratio.polynomial)} - 1"
    reason = why_not_affine(basis.back(parts[0]))
    return None if reason is None else f"{show(parts[0])} is not affine"


def _in_range(access: FlatAccess, value: Polynomial, limit: Polynomial) -> bool:
    single, bound = constant_value(value), constant_value(limit)
    if single is not None and bound is not None:
        return 0 <= single < bound
    try:
        inside = access.scope.below(access.scope.polynomial(value), access.scope.polynomial(limit))
    except NotAffineError:
        return False
    return bool(access.domain.is_subset(inside))


def show(polynomial: Polynomial) -> str:
    """The polynomial as text for a message."""
    text = ""
    for (sizes, atom), coefficient in polynomial.items():
        factors = [*sizes, *([atom.name if hasattr(atom, "name") else "(…)"] if atom is not None else [])]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} " + " * ".join(factors) if text else ("-" if coefficient < 0 else "") + " * ".join(factors)
    return text or "0"


def _without(sizes: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...] | None:
    """The multiset difference, None where `taken` is not inside."""
    rest = list(sizes)
    for name in taken:
        if name not in rest:
            return None
        rest.remove(name)
    return tuple(rest)


def _truncated(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)
