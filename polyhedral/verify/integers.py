"""Expressions and conditions of a mapping's JSON, as integers and as linear forms.

    number(["ceildiv", "M", 8], {"M": 20})   3
    form(["*", 4, ["+", "i", 1]], {})        {("i",): 4, (): 4}

A quotient, remainder, minimum or maximum that is no number is a factor of its own in a form, named by its text.
Division floors, and by 0 it gives 0.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Tree = Any
Values = Mapping[str, int]
Factor = str
Form = dict[tuple[Factor, ...], int]

MAX_DEPTH = 200
MAX_TERMS = 5000


class FileError(Exception):
    """What is wrong with the file."""


def _quotient(a: int, b: int) -> int:
    return a // b if b else 0


def _rest(a: int, b: int) -> int:
    return a % b if b else 0


def _rounded_up(a: int, b: int) -> int:
    return -(-a // b) if b else 0


OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": _quotient,
    "%": _rest,
    "ceildiv": _rounded_up,
    "min": min,
    "max": max,
}
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}


def number(tree: Tree, values: Values) -> int:
    """The value of an expression. FileError for what is none, and for a name without a value."""
    return compiled(tree)(values)


def truth(tree: Tree, values: Values) -> bool:
    """Whether a condition holds."""
    return compiled_condition(tree)(values)


def compiled(tree: Tree, depth: int = 0) -> Callable[[Values], int]:
    """The expression as a function of the values of its names."""
    if depth > MAX_DEPTH:
        raise FileError(f"an expression is nested more than {MAX_DEPTH} deep")
    match tree:
        case bool():
            raise FileError(f"{tree} is no expression")
        case int():
            return lambda values: tree
        case str():
            return lambda values: _named(tree, values)
        case [str() as op, left, right] if op in OPERATORS:
            apply, a, b = OPERATORS[op], compiled(left, depth + 1), compiled(right, depth + 1)
            return lambda values: apply(a(values), b(values))
    raise FileError(f"{str(tree)[:60]} is no expression")


def compiled_condition(tree: Tree, depth: int = 0) -> Callable[[Values], bool]:
    if depth > MAX_DEPTH:
        raise FileError(f"a condition is nested more than {MAX_DEPTH} deep")
    match tree:
        case ["and", *parts]:
            every = [compiled_condition(part, depth + 1) for part in parts]
            return lambda values: all(part(values) for part in every)
        case ["or", *parts]:
            some = [compiled_condition(part, depth + 1) for part in parts]
            return lambda values: any(part(values) for part in some)
        case ["not", part]:
            inner = compiled_condition(part, depth + 1)
            return lambda values: not inner(values)
        case ["true" | "false" as word]:
            return lambda values: word == "true"
        case [str() as op, left, right] if op in COMPARISONS:
            compare, a, b = COMPARISONS[op], compiled(left, depth + 1), compiled(right, depth + 1)
            return lambda values: compare(a(values), b(values))
    raise FileError(f"{str(tree)[:60]} is no condition")


def _named(name: str, values: Values) -> int:
    if name not in values:
        raise FileError(f"{name[:60]} has no value")
    return values[name]


def names_in(tree: Tree) -> set[str]:
    """The names in an expression or condition."""
    if isinstance(tree, str):
        return {tree}
    if isinstance(tree, list):
        return set[str]().union(*(names_in(part) for part in tree[1:]))
    return set()


# ---- linear forms ----------------------------------------------------------------------------------------------------


def form(tree: Tree, known: Mapping[str, Form], depth: int = 0) -> Form:
    """The linear form, names in `known` replaced by theirs."""
    if depth > MAX_DEPTH:
        raise FileError(f"an expression is nested more than {MAX_DEPTH} deep")
    match tree:
        case bool():
            raise FileError(f"{tree} is no expression")
        case int():
            return {(): tree} if tree else {}
        case str():
            return dict(known[tree]) if tree in known else {(tree,): 1}
        case [str() as op, left, right] if op in OPERATORS:
            a, b = form(left, known, depth + 1), form(right, known, depth + 1)
            return _combined(op, a, b)
    raise FileError(f"{str(tree)[:60]} is no expression")


def _combined(op: str, a: Form, b: Form) -> Form:
    if set(a) <= {()} and set(b) <= {()}:
        value = OPERATORS[op](a.get((), 0), b.get((), 0))
        return {(): value} if value else {}
    match op:
        case "+":
            return added(a, b, 1)
        case "-":
            return added(a, b, -1)
        case "*" if len(a) * len(b) <= MAX_TERMS:
            total: Form = {}
            for one, x in a.items():
                for other, y in b.items():
                    key = tuple(sorted(one + other))
                    total[key] = total.get(key, 0) + x * y
            return {key: value for key, value in total.items() if value}
        case "/" | "%" | "ceildiv" if set(b) == {()} and b[()] > 0:
            by = b[()]
            if all(value % by == 0 for key, value in a.items() if key):
                rest = OPERATORS[op](a.get((), 0), by)
                whole = {} if op == "%" else {key: value // by for key, value in a.items() if key}
                return {**whole, **({(): rest} if rest else {})}
    return {(_text(op, a, b),): 1}


def added(a: Form, b: Form, factor: int) -> Form:
    total = dict(a)
    for key, value in b.items():
        total[key] = total.get(key, 0) + factor * value
    return {key: value for key, value in total.items() if value}


def _text(op: str, a: Form, b: Form) -> Factor:
    """The name of a factor that is an operation: it tells the names in it, so that `mentions` finds them."""
    shown = [sorted([list(key), value] for key, value in side.items()) for side in (a, b)]
    return json.dumps([op, *shown])


def mentions(factor: Factor, names: Sequence[str] | set[str]) -> bool:
    """Whether a factor is, or is made of, one of these names."""
    if factor in names:
        return True
    if not factor.startswith("["):
        return False
    _, *sides = json.loads(factor)
    return any(mentions(inner, names) for side in sides for key, _ in side for inner in key)
