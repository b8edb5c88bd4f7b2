"""Strides that are sums: `y * (Q + 2) + x` has the stride R = Q + 2, and in R it is `y * R + x`.

A `Basis` takes such sums for sizes of their own: Q = R - 2 in every polynomial, which is exact and can be undone. A sum
is one where a size stands alone and once; common factors are left outside, so that (P + 2) * (Q + 2) becomes S * R.

    coefficients of y, x in y * (Q + 2) + x       Q + 2, 1        R = Q + 2
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, SizeVar
from texpr.polyhedral.polynomial import ONE, Polynomial, Term, add, multiply

MAX_SUMS = 4  # of the strides of one buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Sums by the name that stands for them: `sums[name]` is a polynomial of sizes, `solved[size]` the size by it. Both
    in order of making; a later one may name an earlier."""

    sums: Mapping[str, Polynomial] = field(default_factory=dict)
    solved: Mapping[str, Polynomial] = field(default_factory=dict)

    def into(self, polynomial: Polynomial) -> Polynomial:
        """The polynomial in the names of the sums."""
        for size, value in self.solved.items():
            polynomial = _replaced(polynomial, size, value)
        return polynomial

    def back(self, polynomial: Polynomial) -> Polynomial:
        """The polynomial in sizes."""
        for name, value in reversed(tuple(self.sums.items())):
            polynomial = _replaced(polynomial, name, value)
        return polynomial

    def expression(self, name: str) -> IndexExpr:
        """A size, or the sum that a name stands for, as an index expression."""
        if name not in self.sums:
            return SizeVar(name=name)
        result: IndexExpr | None = None
        for (sizes, _), coefficient in self.sums[name].items():
            if not sizes:
                part: IndexExpr = IndexConst(value=coefficient)
            else:
                part = self.expression(sizes[0])
                for size in sizes[1:]:
                    part = IndexBinary(op=IndexOp.MUL, left=part, right=self.expression(size))
                if coefficient != 1:
                    part = IndexBinary(op=IndexOp.MUL, left=IndexConst(value=coefficient), right=part)
            result = part if result is None else IndexBinary(op=IndexOp.ADD, left=result, right=part)
        assert result is not None, "a sum has parts"
        return result


PLAIN = Basis()


def basis_of(subscripts: Sequence[Polynomial]) -> Basis:
    """The basis in which no index of the subscripts is multiplied by a sum of sizes, as far as there is one."""
    basis = PLAIN
    for _ in range(MAX_SUMS):
        found = next(_sums([basis.into(subscript) for subscript in subscripts]), None)
        if found is None:
            break
        size, rest = found
        value = add({((size,), None): 1}, rest)
        name = f"({_text(value)})"
        basis = Basis(
            sums={**basis.sums, name: value}, solved={**basis.solved, size: add({((name,), None): 1}, rest, -1)}
        )
    return basis


def _sums(subscripts: Sequence[Polynomial]) -> Iterator[tuple[str, Polynomial]]:
    """A size and what is added to it, for each sum of sizes that an index is multiplied by; short ones first."""
    factors: list[Polynomial] = []
    for subscript in subscripts:
        by_atom: dict[object, dict[Term, int]] = {}
        for (sizes, atom), coefficient in subscript.items():
            if atom is not None:
                by_atom.setdefault(atom, {})[sizes, None] = coefficient
        factors += [factor for factor in by_atom.values() if len(factor) > 1]
    for factor in sorted(factors, key=lambda f: (max(len(sizes) for sizes, _ in f), len(f), str(f))):
        common = list(next(iter(factor))[0])
        for sizes, _ in factor:
            common = [size for size in dict.fromkeys(common) if size in sizes]
        inner = {_without(term, common): coefficient for term, coefficient in factor.items()}
        for term, coefficient in inner.items():
            rest = {other: number for other, number in inner.items() if other != term}
            if len(term[0]) == 1 and coefficient in (1, -1) and not any(term[0][0] in sizes for sizes, _ in rest):
                yield term[0][0], {other: number * coefficient for other, number in rest.items()}


def _without(term: Term, common: Sequence[str]) -> Term:
    sizes = list(term[0])
    for size in common:
        sizes.remove(size)
    return tuple(sizes), term[1]


def _replaced(polynomial: Polynomial, name: str, value: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for (sizes, atom), coefficient in polynomial.items():
        kept = tuple(size for size in sizes if size != name)
        part: Polynomial = {(kept, atom): coefficient}
        for _ in range(len(sizes) - len(kept)):
            part = multiply(part, value)
        result = add(result, part)
    return result


def _text(value: Polynomial) -> str:
    text = ""
    for term, coefficient in value.items():
        factors = [*term[0]] if abs(coefficient) == 1 and term != ONE else [str(abs(coefficient)), *term[0]]
        sign = ("-" if coefficient < 0 else "") if not text else " - " if coefficient < 0 else " + "
        text += sign + " * ".join(factors)
    return text
