"""Index expressions as integer combinations of atoms, enough to read a loop's bound off a guard.

4096*c + v < N   in v   ->   v <= N - 4096*c - 1
"""

from collections.abc import Mapping
from dataclasses import dataclass

from texpr.grammar.ast import (
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    SizeVar,
)
from texpr.grammar.index.expr import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """`constant + sum(coefficient * atom)`; an atom is a variable or an expression that is not linear."""

    terms: tuple[tuple[IndexExpr, int], ...]
    constant: int = 0

    def plus(self, other: "Linear", factor: int = 1) -> "Linear":
        """`self + factor * other`."""
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + factor * coefficient
        terms = tuple((atom, c) for atom, c in sums.items() if c)
        return Linear(terms=terms, constant=self.constant + factor * other.constant)

    def coefficient(self, name: str) -> int | None:
        """The coefficient of a variable, or None where it also stands inside an atom."""
        found = 0
        for atom, coefficient in self.terms:
            if isinstance(atom, IndexVar) and atom.name == name:
                found = coefficient
            elif name in names(atom):
                return None
        return found

    def without(self, name: str) -> "Linear":
        """The combination at 0 of that variable."""
        return Linear(
            terms=tuple((a, c) for a, c in self.terms if not (isinstance(a, IndexVar) and a.name == name)),
            constant=self.constant,
        )

    def expression(self) -> IndexExpr:
        """The combination as an index expression: positive terms first."""
        result: IndexExpr | None = None
        for atom, coefficient in sorted(self.terms, key=lambda term: term[1] < 0):
            size = abs(coefficient)
            factor = IndexConst(value=size)
            term = atom if size == 1 else IndexBinary(op=IndexOp.MUL, left=factor, right=atom)
            if result is None:
                result = term if coefficient > 0 else IndexBinary(op=IndexOp.MUL, left=IndexConst(value=-1), right=term)
            else:
                result = IndexBinary(op=IndexOp.ADD if coefficient > 0 else IndexOp.SUB, left=result, right=term)
        if result is None:
            return IndexConst(value=self.constant)
        if self.constant == 0:
            return result
        op = IndexOp.ADD if self.constant > 0 else IndexOp.SUB
        return IndexBinary(op=op, left=result, right=IndexConst(value=abs(self.constant)))


Definitions = Mapping[str, Linear]


def linear(expr: IndexExpr, definitions: Definitions) -> Linear:
    """The combination that equals `expr`, with defined variables replaced by what they are defined as."""
    match expr:
        case IndexConst(value=value):
            return Linear(terms=(), constant=value)
        case IndexVar(name=name) if name in definitions:
            return definitions[name]
        case IndexVar() | SizeVar():
            return Linear(terms=((expr, 1),))
        case IndexBinary(op=op, left=left, right=right):
            a, b = linear(left, definitions), linear(right, definitions)
            match op:
                case IndexOp.ADD:
                    return a.plus(b)
                case IndexOp.SUB:
                    return a.plus(b, -1)
                case IndexOp.MUL if not b.terms:
                    return Linear(terms=()).plus(a, b.constant)
                case IndexOp.MUL if not a.terms:
                    return Linear(terms=()).plus(b, a.constant)
                case _:
                    atom = IndexBinary(op=op, left=a.expression(), right=b.expression())
                    return Linear(terms=((atom, 1),))
