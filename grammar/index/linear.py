"""The normal form of index expressions: c0 + sum of c * monomial, a monomial being a product of atoms.

An atom is an index, a size, or an operation that no sum of products is: a floor, a remainder, a minimum, a maximum,
whose operands are in normal form too. Every expression has a form, and expressions that are equal as polynomials over
their atoms have equal ones. Terms keep the order in which they came, for whoever writes them; equality is blind to it.

    linear((i + 1) * N - N + 4 * j / 2)   ==   N * i + 2 * j
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Union

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.index.expr import ZERO, add, apply, combine, const, multiply, subtract
from texpr.grammar.index.operators import DIVISIONS, OPERATORS, Operator
from texpr.grammar.index.text import in_words
from texpr.grammar.records import dataclass
from texpr.grammar.walk import fold

MAX_TERMS = 2000  # a product with more terms stays whole

Atom = Union[IndexVar, SizeVar, "Operation"]
Monomial = tuple[Atom, ...]
NO_DIVISORS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Linear:
    """`terms` maps monomials, their factors sorted, to their coefficients, none of which is 0; () is the constant's."""

    terms: Mapping[Monomial, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: "Linear | int") -> "Linear":
        return self._plus(_form(other), 1)

    def __sub__(self, other: "Linear | int") -> "Linear":
        return self._plus(_form(other), -1)

    def __neg__(self) -> "Linear":
        return self * -1

    def __mul__(self, other: "Linear | int") -> "Linear":
        if isinstance(other, int):
            return Linear({monomial: other * c for monomial, c in self.terms.items()} if other else {})
        total: dict[Monomial, int] = {}
        for first, a in self.terms.items():
            for second, b in other.terms.items():
                monomial = first + second if not first or not second else tuple(sorted(first + second, key=_place))
                total[monomial] = total.get(monomial, 0) + a * b
        return Linear({monomial: c for monomial, c in total.items() if c})

    def _plus(self, other: "Linear", factor: int) -> "Linear":
        total = dict(self.terms)
        for monomial, c in other.terms.items():
            value = total.get(monomial, 0) + factor * c
            if value:
                total[monomial] = value
            else:
                del total[monomial]
        return Linear(total)

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def value(self) -> int | None:
        """The number that the form is, None where it depends on a name."""
        return self.constant if len(self.terms) == (() in self.terms) else None

    def is_nonnegative(self) -> bool:
        """Whether nothing in it is negative where sizes and indices are not."""
        return not self.operations() and all(c >= 0 for c in self.terms.values())

    def is_multiple(self, by: int, divisors: Mapping[str, int] = NO_DIVISORS) -> bool:
        """Whether each term is a multiple of a number, and so is the value; `divisors` says by what sizes are
        divisible."""
        return all(_known_factor(monomial, c, divisors) % by == 0 for monomial, c in self.terms.items())

    def coefficient(self, name: str) -> int | None:
        """The coefficient of an index or a size; None where it stands in a product or under an operation too."""
        found = 0
        for monomial, c in self.terms.items():
            if len(monomial) == 1 and isinstance(monomial[0], IndexVar | SizeVar) and monomial[0].name == name:
                found = c
            elif any(name in atom_names(atom) for atom in monomial):
                return None
        return found

    def without(self, name: str) -> "Linear":
        """The form at 0 of an index or a size that has a coefficient."""
        return self.part(lambda monomial, c: not any(name in atom_names(atom) for atom in monomial))

    def part(self, keep: Callable[[Monomial, int], bool]) -> "Linear":
        """The terms that `keep` says."""
        return Linear({monomial: c for monomial, c in self.terms.items() if keep(monomial, c)})

    def replaced(self, atom: "Atom", value: "Linear") -> "Linear":
        """The form with a form for each factor that is the atom; operations stay what they are."""
        total = Linear()
        for monomial, c in self.terms.items():
            term = Linear({tuple(factor for factor in monomial if factor != atom): c})
            for _ in range(monomial.count(atom)):
                term *= value
            total += term
        return total

    def operations(self) -> tuple["Operation", ...]:
        """The operations in the terms; those inside them are theirs."""
        return tuple(atom for monomial in self.terms for atom in monomial if isinstance(atom, Operation))

    def expression(self) -> IndexExpr:
        """An index expression of that value: what is added first, products before single atoms, the constant last."""

        def rank(term: tuple[Monomial, int]) -> tuple[bool, bool, int]:
            return not term[0], term[1] < 0, -len(term[0])

        total: IndexExpr = ZERO
        for monomial, c in sorted(self.terms.items(), key=rank):
            term: IndexExpr = const(abs(c))
            for atom in monomial:
                term = multiply(term, atom_expression(atom))
            total = add(total, term) if c > 0 else subtract(total, term)
        return total


@dataclass(frozen=True, slots=True)
class Operation:
    """`op` of two forms where no law of this page resolves it. `expression`, `names` and `depth`, the operations over
    one another, are known once it is made."""

    op: IndexOp
    left: Linear
    right: Linear
    expression: IndexExpr = field(init=False, compare=False, repr=False)
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        expression = combine(self.op, self.left.expression(), self.right.expression())
        below = (*self.left.operations(), *self.right.operations())
        object.__setattr__(self, "expression", expression)
        terms = (*self.left.terms, *self.right.terms)
        object.__setattr__(self, "names", frozenset[str]().union(*(atom_names(a) for m in terms for a in m)))
        object.__setattr__(self, "depth", 1 + max((inner.depth for inner in below), default=0))
        object.__setattr__(self, "_hash", hash((self.op, self.left, self.right)))

    def __hash__(self) -> int:
        return self._hash


def _known_factor(monomial: Monomial, coefficient: int, divisors: Mapping[str, int]) -> int:
    """A number by which a term is divisible."""
    for atom in monomial if divisors else ():
        coefficient *= divisors.get(atom.name, 1) if isinstance(atom, SizeVar) else 1
    return coefficient


def atom_names(atom: Atom) -> frozenset[str]:
    """The names that an atom depends on."""
    return atom.names if isinstance(atom, Operation) else frozenset((atom.name,))


def atom_expression(atom: Atom) -> IndexExpr:
    return atom.expression if isinstance(atom, Operation) else atom


def _place(atom: Atom) -> str:
    return in_words(atom.expression) if isinstance(atom, Operation) else atom.name


def _form(value: Linear | int) -> Linear:
    return constant(value) if isinstance(value, int) else value


def constant(value: int) -> Linear:
    """The form of a number."""
    return Linear({(): value} if value else {})


def variable(name: IndexVar | SizeVar) -> Linear:
    """The form of an index or a size."""
    return Linear({(name,): 1})


Definitions = Mapping[str, Linear]
NOTHING: Definitions = MappingProxyType({})


def linear(expression: IndexExpr, definitions: Definitions = NOTHING) -> Linear:
    """The normal form, with defined indices and sizes replaced by what they are defined as."""

    def form(node: IndexExpr, parts: Sequence[Linear]) -> Linear:
        match node:
            case IndexConst(value=value):
                return constant(value)
            case IndexVar(name=name) | SizeVar(name=name):
                return definitions[name] if name in definitions else variable(node)
            case _:
                return operation(node.op, parts[0], parts[1])

    return fold(expression, form) if isinstance(expression, IndexBinary) else form(expression, ())


def operation(op: IndexOp, left: Linear, right: Linear) -> Linear:
    """The form of `left op right`."""
    row = OPERATORS[op]
    match op:
        case IndexOp.ADD:
            return left + right
        case IndexOp.SUB:
            return left - right
        case IndexOp.MUL if len(left.terms) * len(right.terms) <= MAX_TERMS:
            return left * right
        case _:
            found = _divided(op, left, right.value) if row.divides else _chosen(row, left, right)
            if found is not None:
                return found
    return Linear({(Operation(op, left, right),): 1})


def _divided(op: IndexOp, left: Linear, divisor: int | None) -> Linear | None:
    """A quotient or remainder that is exact or of numbers, else None."""
    if divisor is None or divisor <= 0:
        return None
    if left.value is not None:
        return constant(apply(op, left.value, divisor))
    if any(c % divisor for c in left.terms.values()):
        return None
    parts = {monomial: apply(op, c, divisor) for monomial, c in left.terms.items()}
    return Linear({monomial: c for monomial, c in parts.items() if c})


def _chosen(row: Operator, left: Linear, right: Linear) -> Linear | None:
    """The side that the operator chooses where the gap between them is a number, else None."""
    gap = (left - right).value if row.chooses else None
    return None if gap is None else left if (gap <= 0) == (row.chooses == "least") else right


def rejoined(form: Linear) -> Linear:
    """The form with n*(x / n) + x % n as x, and multiples of it, where the operations stand alone."""
    for inner in form.operations():
        apart, rest = form.terms.get((inner,), 0), Operation(IndexOp.MOD, inner.left, inner.right)
        count, step = inner.right.value, form.terms.get((rest,), 0)
        if inner.op is IndexOp.DIV and count and count > 0 and step and apart == count * step:
            form = Linear({m: c for m, c in form.terms.items() if m not in ((inner,), (rest,))})
            form += inner.left * step
    return form


def difference(left: IndexExpr, right: IndexExpr) -> int | None:
    """`left - right` where it is the same number for all sizes and indices, else None."""
    return (linear(left) - linear(right)).value


def factors(monomial: Monomial) -> tuple[tuple[str, ...], Monomial]:
    """The sizes of a monomial, by name, and its other atoms."""
    sizes = tuple(atom.name for atom in monomial if isinstance(atom, SizeVar))
    return sizes, tuple(atom for atom in monomial if not isinstance(atom, SizeVar))


def obstacle(form: Linear) -> str | None:
    """Why no constraint of integer sets, not even one with products of sizes, has this form; None where one has."""
    for inner in form.operations():
        reason = _refused(inner)
        if reason is not None:
            return reason
    if any(len(factors(monomial)[1]) > 1 for monomial in form.terms):
        return "it multiplies two expressions that are not constant"
    return None


def why_not_affine(form: Linear) -> str | None:
    """Why a form is not quasi-affine in indices and sizes, in the language's words; None where it is."""
    reason = obstacle(form)
    if reason is not None:
        return reason
    for sizes, others in map(factors, form.terms):
        if sizes and others:
            return f"it multiplies an index by the free size {sizes[0]}"
        if len(sizes) > 1:
            return f"it multiplies the free sizes {sizes[0]} and {sizes[1]}"
    return None


def _refused(inner: Operation) -> str | None:
    if inner.op is IndexOp.MUL:
        return f"it is a product of more than {MAX_TERMS} terms"
    if inner.op in DIVISIONS:
        divisor = inner.right.value
        if divisor is None:
            return "it divides by an expression that is not constant"
        if divisor <= 0:
            return f"it divides by {divisor}, and a divisor is positive"
    return why_not_affine(inner.left) or why_not_affine(inner.right)
