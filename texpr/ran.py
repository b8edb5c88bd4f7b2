"""What the reports of `texpr run` and `texpr bench` begin with: which kernel ran, for which target, at what sizes."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from texpr.grammar.diagnostics import Diagnostic
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A kernel that ran: `sizes` has all of them, `dynamic` names those that the call solved."""

    kernel: str
    target: str
    sizes: Mapping[str, int]
    dynamic: tuple[str, ...]
    warnings: tuple[Diagnostic, ...] = field(repr=False)

    def __str__(self) -> str:
        free = dict.fromkeys(self.dynamic, " (dynamic)")
        sizes = ", ".join(f"{name}={value}{free.get(name, '')}" for name, value in self.sizes.items())
        return f"{self.kernel} on {self.target}" + (f" with {sizes}" if sizes else "")

    def to_json(self) -> dict[str, Any]:
        """The fields that the object of every report begins with."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "sizes": dict(self.sizes),
            **findings(self.dynamic, self.warnings),
        }


def findings(dynamic: Iterable[str], warnings: Iterable[Diagnostic]) -> dict[str, Any]:
    """The fields of a JSON answer for what is printed beside one in words."""
    return {"dynamic": list(dynamic), "warnings": [warning.to_json() for warning in warnings]}
