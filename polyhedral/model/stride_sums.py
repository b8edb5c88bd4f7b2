"""Strides that are sums: `y * (Q + 2) + x` has the stride R = Q + 2, and in R it is `y * R + x`.

A `Basis` takes such sums for sizes of their own: Q = R - 2 in every form, which is exact and can be undone. A sum
is one where a size stands alone and once; common factors are left outside, so that (P + 2) * (Q + 2) becomes S * R.

    coefficients of y, x in y * (Q + 2) + x       Q + 2, 1        R = Q + 2
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from texpr.grammar.ast import IndexExpr, SizeVar
from texpr.grammar.index.linear import Linear, Monomial, factors, variable
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass

Sizes = tuple[str, ...]  # a product of sizes, by their names

MAX_SUMS = 4  # of the strides of one buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Sums by the name that stands for them: `sums[name]` is a form of sizes, `solved[size]` the size by it. Both
    in order of making; a later one may name an earlier."""

    sums: Mapping[str, Linear] = field(default_factory=dict)
    solved: Mapping[str, Linear] = field(default_factory=dict)

    def into(self, form: Linear) -> Linear:
        """The form in the names of the sums."""
        for size, value in self.solved.items():
            form = form.replaced(SizeVar(name=size), value)
        return form

    def back(self, form: Linear) -> Linear:
        """The form in sizes."""
        for name, value in reversed(tuple(self.sums.items())):
            form = form.replaced(SizeVar(name=name), value)
        return form

    def expression(self, name: str) -> IndexExpr:
        """A size, or the sum that a name stands for, as an index expression."""
        return self.back(variable(SizeVar(name=name))).expression()


PLAIN = Basis()


def basis_of(subscripts: Sequence[Linear]) -> Basis:
    """The basis in which no index of the subscripts is multiplied by a sum of sizes, as far as there is one."""
    basis = PLAIN
    for _ in range(MAX_SUMS):
        found = next(_sums([basis.into(subscript) for subscript in subscripts]), None)
        if found is None:
            break
        size, rest = found
        value = variable(size) + rest
        name = f"({in_words(value.expression())})"
        solved = variable(SizeVar(name=name)) - rest
        basis = Basis(sums={**basis.sums, name: value}, solved={**basis.solved, size.name: solved})
    return basis


def _sums(subscripts: Sequence[Linear]) -> Iterator[tuple[SizeVar, Linear]]:
    """A size and what is added to it, for each sum of sizes that an index is multiplied by; short ones first."""
    found: list[dict[Sizes, int]] = []
    for subscript in subscripts:
        by_atoms: dict[Monomial, dict[Sizes, int]] = {}
        for monomial, coefficient in subscript.terms.items():
            sizes, atoms = factors(monomial)
            if atoms:
                by_atoms.setdefault(atoms, {})[sizes] = coefficient
        found += [factor for factor in by_atoms.values() if len(factor) > 1]
    for factor in sorted(found, key=lambda f: (max(map(len, f)), len(f), str(f))):
        common = list(next(iter(factor)))
        for sizes in factor:
            common = [size for size in dict.fromkeys(common) if size in sizes]
        inner = {_without(sizes, common): coefficient for sizes, coefficient in factor.items()}
        for sizes, coefficient in inner.items():
            rest = {other: number for other, number in inner.items() if other != sizes}
            if len(sizes) == 1 and coefficient in (1, -1) and not any(sizes[0] in other for other in rest):
                yield SizeVar(name=sizes[0]), _form(rest) * coefficient


def _form(factor: Mapping[Sizes, int]) -> Linear:
    return Linear({tuple(SizeVar(name=name) for name in sizes): number for sizes, number in factor.items()})


def _without(sizes: Sizes, common: Sequence[str]) -> Sizes:
    rest = list(sizes)
    for size in common:
        rest.remove(size)
    return tuple(rest)
