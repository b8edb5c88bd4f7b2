"""Certificates checked: that the lanes of a warp lie no further apart than d, and no nearer together.

What a certificate says of the address is compared with the subscripts that the tree has, for every lane; its rows with
every pair of neighbouring lanes; its multipliers by the two identities of `figures/value.py`, coefficient by
coefficient; and d with the sum over the lanes themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from texpr.polyhedral.verify.integers import FileError, form, mentions, number
from texpr.polyhedral.verify.layouts import address_tree
from texpr.polyhedral.verify.tree import Launch, Place, definitions, expression, moved_together


class RefutedError(Exception):
    """What a claim says that is not so."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of an access, and where it stands."""

    entry: Mapping[str, Any]
    launch: Launch
    place: Place
    sizes: Mapping[str, int]
    buffers: Mapping[str, Any]
    lanes: int


def check_certificate(claim: Claim) -> None:
    """RefutedError where the certificate does not prove d."""
    entry, proof = claim.entry, claim.entry["certificate"]
    digits = [tuple(_whole(d[name], f"a {name}") for name in ("stride", "radix", "weight")) for d in proof["digits"]]
    lanes = _whole(proof["lanes"], "the number of lanes")
    if lanes != claim.lanes:
        raise RefutedError(f"it is of {lanes} lanes, and {claim.lanes} make the request")
    at = 1
    for stride, radix, _ in digits:
        if stride != at or radix < 1:
            raise RefutedError("its digits are not those of a number, fastest first")
        at *= radix
    if at != lanes:
        raise RefutedError(f"its digits count {at} lanes")
    values = [[lane // stride % radix for stride, radix, _ in digits] for lane in range(lanes)]
    weights = [weight for *_, weight in digits]
    said = [sum(w * v for w, v in zip(weights, own, strict=True)) for own in values]
    if said != _lane_part(claim, lanes):
        raise RefutedError("its digits and weights do not give the addresses that the subscripts give")
    total = _steps(proof["steps"], values, weights)
    apart = sum(abs(b - a) for a, b in pairwise(said))
    if total != _whole(entry["d"], "d"):
        raise RefutedError(f"its steps sum to {total}, and d is said to be {entry['d']}")
    if apart != total:
        raise RefutedError(f"neighbouring lanes lie {apart} apart, and not {total}")


def _lane_part(claim: Claim, lanes: int) -> list[int]:
    """What each lane adds to the address, wherever the warp stands. RefutedError where that is not affine in lanes."""
    subscripts = claim.entry["subscripts"]
    known = definitions(claim.place, claim.sizes, claim.buffers)
    for name in _wide(claim):
        known[name] = {}
    total = form(address_tree(claim.buffers, claim.entry["buffer"], list(subscripts)), known)
    own = {name: d for name, d in claim.launch.digits.items() if d["place"] == "lane"}
    part = [0] * lanes
    for key, factor in total.items():
        if not any(mentions(name, set(own)) for name in key) or lanes == 1:
            continue
        if len(key) > 1 or key[0] not in own:
            raise RefutedError("the address is not affine in the lanes")
        stride, radix = (number(expression(own[key[0]][name]), claim.sizes) for name in ("stride", "radix"))
        for lane in range(lanes):
            part[lane] += factor * (lane // stride % radix)
    return [value - part[0] for value in part]


def _wide(claim: Claim) -> list[str]:
    """The index over the elements that a lane's request moves together: an address is that of the first."""
    together = moved_together(claim.place.node)
    return [together[0]] if together and int(claim.entry["width"]) >= 1 else []


def _steps(steps: Sequence[Any], values: list[list[int]], weights: list[int]) -> Fraction:
    """The sum of the bounds that the steps prove, over all pairs of neighbouring lanes."""
    pairs = list(pairwise(values))
    carried = [max(q for q in range(len(u)) if u[q] != v[q]) for u, v in pairs]
    total, covered = Fraction(0), set[int]()
    for step in steps:
        to, count = _whole(step["carries_to"], "a digit"), _whole(step["count"], "a count")
        own = [pair for pair, digit in zip(pairs, carried, strict=True) if digit == to]
        if to in covered or len(own) != count:
            raise RefutedError(f"{len(own)} steps carry to digit {to}, and it counts {count}")
        covered.add(to)
        for row in step["rows"]:
            for u, v in own:
                held = _dot(row["before"], u) + _dot(row["after"], v) + _whole(row["constant"], "a constant")
                if held < 0 or (row["exact"] is not False and held != 0):
                    raise RefutedError(f"a row of the steps that carry to digit {to} does not hold")
        bound = _fraction(step["bound"])
        for side, sign in (("above", 1), ("below", -1)):
            _identity(step, [_fraction(x) for x in step[side]], [sign * w for w in weights], bound, side)
        total += count * bound
    if missing := set(carried) - covered:
        raise RefutedError(f"it says nothing of the steps that carry to digit {min(missing)}")
    return total


def _identity(
    step: Mapping[str, Any], multipliers: list[Fraction], weights: list[int], bound: Fraction, side: str
) -> None:
    """bound - (w · v - w · u) = multipliers · rows + slack, coefficient by coefficient."""
    rows = step["rows"]
    if len(multipliers) != len(rows):
        raise RefutedError(f"{side}: {len(multipliers)} multipliers of {len(rows)} rows")
    for multiplier, row in zip(multipliers, rows, strict=True):
        if multiplier < 0 and row["exact"] is not True:
            raise RefutedError(f"{side}: an inequality has the multiplier {multiplier}")
    for q, weight in enumerate(weights):
        before = sum((m * _at(row["before"], q) for m, row in zip(multipliers, rows, strict=True)), Fraction(0))
        after = sum((m * _at(row["after"], q) for m, row in zip(multipliers, rows, strict=True)), Fraction(0))
        if before != weight or after != -weight:
            raise RefutedError(f"{side}: the multipliers do not give the coefficients of digit {q}")
    constant = sum((m * _whole(row["constant"], "") for m, row in zip(multipliers, rows, strict=True)), Fraction(0))
    if bound - constant < 0:
        raise RefutedError(f"{side}: the bound is less than the multipliers give")


def _dot(row: Sequence[int], values: list[int]) -> int:
    if len(row) != len(values):
        raise RefutedError(f"a row has {len(row)} coefficients for {len(values)} digits")
    return sum(_whole(a, "a coefficient") * b for a, b in zip(row, values, strict=True))


def _at(row: Sequence[int], q: int) -> int:
    return _whole(row[q], "a coefficient")


def _whole(value: Any, what: str) -> int:
    if type(value) is not int:
        raise FileError(f"{what} is {str(value)[:40]!r}, and no integer")
    return value


def _fraction(value: Any) -> Fraction:
    """An integer, or the text of two: "3/4"."""
    if type(value) is int:
        return Fraction(value)
    over, slash, under = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash or not under.isdecimal() or not over.removeprefix("-").isdecimal() or int(under) == 0:
        raise FileError(f"{str(value)[:40]!r} is no fraction")
    return Fraction(int(over), int(under))
