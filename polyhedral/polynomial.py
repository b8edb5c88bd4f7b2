"""Index expressions in normal form: integer polynomials over sizes with at most one index atom in each term.

    i * N + 2 * (j / 4) - 1   becomes   {(("N",), i): 1, ((), j / 4): 2, ((), None): -1}

A term with sizes *and* an index, or with two sizes, is not affine; `delinearize` splits such terms by strides, and
everything else refuses them (E0308). A division, a modulo, a minimum or a maximum is an atom of its own.
"""

from collections.abc import Mapping

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar

Atom = IndexVar | IndexBinary
Term = tuple[tuple[str, ...], Atom | None]
Polynomial = Mapping[Term, int]

ONE: Term = ((), None)
MAX_DEPTH = 200  # nesting of one index expression


class NotAffineError(Exception):
    """The expression is outside the quasi-affine form; the text says why, in the language's words."""


class BeyondLimitError(NotAffineError):
    """The expression is larger than the proofs take, whatever its form: E0307 where its base is E0308."""


def constant(value: int) -> Polynomial:
    """The polynomial of one number."""
    return {ONE: value} if value else {}


def constant_value(polynomial: Polynomial) -> int | None:
    """The number that a constant polynomial is, or None."""
    if not polynomial:
        return 0
    return polynomial[ONE] if len(polynomial) == 1 and ONE in polynomial else None


def add(left: Polynomial, right: Polynomial, scale: int = 1) -> Polynomial:
    """`left + scale * right`."""
    result = dict(left)
    for term, coefficient in right.items():
        value = result.get(term, 0) + scale * coefficient
        if value:
            result[term] = value
        else:
            result.pop(term, None)
    return result


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product; NotAffineError where two index atoms meet."""
    result: Polynomial = {}
    for (left_sizes, left_atom), left_coefficient in left.items():
        for (right_sizes, right_atom), right_coefficient in right.items():
            if left_atom is not None and right_atom is not None:
                raise NotAffineError("it multiplies two expressions that are not constant")
            atom = left_atom if right_atom is None else right_atom
            term = (tuple(sorted(left_sizes + right_sizes)), atom)
            result = add(result, {term: left_coefficient * right_coefficient})
    return result


def normalize(expr: IndexExpr, depth: int = 0) -> Polynomial:
    """The normal form of an index expression; NotAffineError says why there is none."""
    if depth > MAX_DEPTH:
        raise BeyondLimitError(f"it is nested deeper than {MAX_DEPTH} operators")
    match expr:
        case IndexConst(value=value):
            return constant(value)
        case IndexVar():
            return {((), expr): 1}
        case SizeVar(name=name):
            return {((name,), None): 1}
        case IndexBinary(op=op, left=left_expr, right=right_expr):
            left, right = normalize(left_expr, depth + 1), normalize(right_expr, depth + 1)
            match op:
                case IndexOp.ADD:
                    return add(left, right)
                case IndexOp.SUB:
                    return add(left, right, -1)
                case IndexOp.MUL:
                    return multiply(left, right)
                case IndexOp.DIV | IndexOp.MOD | IndexOp.CEILDIV:
                    return _divided(expr, left, right)
                case IndexOp.MIN | IndexOp.MAX:
                    return _extremum(expr, left, right)


def _divided(expr: IndexBinary, left: Polynomial, right: Polynomial) -> Polynomial:
    divisor = constant_value(right)
    if divisor is None:
        raise NotAffineError("it divides by an expression that is not constant")
    if divisor <= 0:
        raise NotAffineError(f"it divides by {divisor}, and a divisor is positive")
    if all(coefficient % divisor == 0 for coefficient in left.values()):
        if expr.op is IndexOp.MOD:
            return {}
        return {term: coefficient // divisor for term, coefficient in left.items()}
    value = constant_value(left)
    if value is not None:
        match expr.op:
            case IndexOp.MOD:
                return constant(value % divisor)
            case IndexOp.CEILDIV:
                return constant(-(-value // divisor))
            case _:
                return constant(value // divisor)
    _require_affine(left)
    return {((), expr): 1}


def _extremum(expr: IndexBinary, left: Polynomial, right: Polynomial) -> Polynomial:
    difference = constant_value(add(left, right, -1))
    if difference is not None:
        return left if (difference <= 0) == (expr.op is IndexOp.MIN) else right
    _require_affine(left)
    _require_affine(right)
    return {((), expr): 1}


def _require_affine(polynomial: Polynomial) -> None:
    reason = why_not_affine(polynomial)
    if reason is not None:
        raise NotAffineError(reason)


def why_not_affine(polynomial: Polynomial) -> str | None:
    """The reason that a polynomial is not affine in indices and free sizes, or None when it is."""
    for sizes, atom in polynomial:
        if sizes and atom is not None:
            return f"it multiplies an index by the free size {sizes[0]}"
        if len(sizes) > 1:
            return f"it multiplies the free sizes {sizes[0]} and {sizes[1]}"
    return None


def size_names(polynomial: Polynomial) -> tuple[str, ...]:
    """The sizes that make the polynomial non-affine, in order of name."""
    return tuple(sorted({n for sizes, atom in polynomial if len(sizes) > 1 or atom is not None for n in sizes}))
