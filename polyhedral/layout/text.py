"""Layouts in one line for people, and as data both ways.

    show(padded((128, 64), 8))       (128, 64): address x0 * 72 + x1
    to_json(padded((128, 64), 8))    {"shape": [128, 64], "terms": [{"dim": 0, "stride": 72}, {"dim": 1, "stride": 1}]}
    from_json(to_json(layout))       layout

Expressions are those of manifests, an index being ["index", name].
"""

from collections.abc import Mapping, Sequence
from typing import Any

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.text import Json, in_words, text
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Layout, Term, Unit, Xor

MAX_DEPTH = 100  # of an index expression that is read from data


def show(layout: Layout, names: Sequence[str] = ()) -> str:
    """Shape, units, XOR and copies, in the canonical form; dimensions by `names`, else x0, x1, …, copies as c0, …"""
    form = canonical(layout)
    given = names or [f"x{dim}" for dim in range(form.rank)]
    subscripts = [IndexVar(name=n) for n in (*given, *(f"c{number}" for number in range(len(form.copies))))]
    shape = ", ".join(map(in_words, form.shape)) + ("," if form.rank == 1 else "")
    parts = [f"{unit} {in_words(coordinate(form, unit, subscripts))}" for unit in form.units]
    if form.xor is not None:
        parts.append(xor_text(form.xor))
    if form.copies:
        parts.append(f"copies ({', '.join(map(str, form.copies))})")
    return f"({shape}): {', '.join(parts) or 'address 0'}"


def xor_text(xor: Xor) -> str:
    return f"xor(bits {xor.bits}, base {xor.base}, shift {xor.shift})"


class _WithIndices(Json):
    """Sizes by their names, indices as ["index", name]."""

    def name(self, leaf: IndexVar | SizeVar) -> Any:
        return leaf.name if isinstance(leaf, SizeVar) else ["index", leaf.name]


def to_json(layout: Layout) -> dict[str, Any]:
    """The layout as plain data; what is not there is what a term or a layout has by default."""
    found: dict[str, Any] = {
        "shape": [_expr_json(e) for e in layout.shape],
        "terms": [_term_json(t) for t in layout.terms],
    }
    if layout.xor is not None:
        found["xor"] = {"bits": layout.xor.bits, "base": layout.xor.base, "shift": layout.xor.shift}
    if layout.copies:
        found["copies"] = list(layout.copies)
    return found


def _expr_json(expr: IndexExpr) -> Any:
    return text(expr, _WithIndices())


def _term_json(term: Term) -> dict[str, Any]:
    found: dict[str, Any] = {"dim": term.dim, "stride": _expr_json(term.stride)}
    if term.divisor != 1:
        found["divisor"] = term.divisor
    if term.modulus is not None:
        found["modulus"] = term.modulus
    if term.offset != ZERO:
        found["offset"] = _expr_json(term.offset)
    if term.unit is not Unit.ADDRESS:
        found["unit"] = term.unit.value
    return found


def from_json(data: Any) -> Layout:
    """The layout of `to_json`'s data. ValueError, with what is wrong, for any other."""
    try:
        _keys(data, ("shape", "terms"), ("xor", "copies"))
        xor = data.get("xor")
        if xor is not None:
            _keys(xor, ("bits", "base", "shift"), ())
            xor = Xor(**{name: _int(value) for name, value in xor.items()})
        return Layout(
            shape=tuple(_expr(item) for item in _list(data["shape"])),
            terms=tuple(_term(item) for item in _list(data["terms"])),
            xor=xor,
            copies=tuple(_int(item) for item in _list(data.get("copies", []))),
        )
    except InternalError as why:  # what the values themselves refuse
        raise ValueError(f"no layout: {why}") from None


def _term(data: Any) -> Term:
    _keys(data, ("dim", "stride"), ("divisor", "modulus", "offset", "unit"))
    unit = data.get("unit", Unit.ADDRESS.value)
    if unit not in list(Unit):
        raise ValueError(f"{unit!r} is no unit of a layout")
    return Term(
        dim=None if data["dim"] is None else _int(data["dim"]),
        stride=_expr(data["stride"]),
        divisor=_int(data.get("divisor", 1)),
        modulus=_int(data["modulus"]) if "modulus" in data else None,
        offset=_expr(data["offset"]) if "offset" in data else ZERO,
        unit=Unit(unit),
    )


def _keys(data: Any, needed: Sequence[str], optional: Sequence[str]) -> None:
    if not isinstance(data, Mapping):
        raise ValueError(f"{data!r} is no record of a layout")
    wrong = [name for name in data if name not in needed and name not in optional]
    missing = [name for name in needed if name not in data]
    if wrong or missing:
        raise ValueError(f"a record of a layout has {wrong} or lacks {missing}")


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r} is no list")
    return data


def _int(data: Any) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise ValueError(f"{data!r} is no integer")
    return data


def _expr(data: Any, depth: int = 0) -> IndexExpr:
    match data:
        case bool() | [*_] if depth > MAX_DEPTH or isinstance(data, bool):
            raise ValueError(f"{str(data)[:80]} is no index expression")
        case int():
            return IndexConst(value=data)
        case str():
            return SizeVar(name=data)
        case ["index", str() as name]:
            return IndexVar(name=name)
        case [str() as op, left, right] if op in list(IndexOp):
            return IndexBinary(op=IndexOp(op), left=_expr(left, depth + 1), right=_expr(right, depth + 1))
        case _:
            raise ValueError(f"{str(data)[:80]} is no index expression")
