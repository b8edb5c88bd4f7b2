"""The LALR(1) tables of `texpr.lark`, read from the committed `texpr_tables.json`.

The file is plain JSON, written by `tablegen.py` and checked fresh by a test, so parsing needs neither Lark nor pickle.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

from texpr.grammar.records import dataclass

TABLE_FILE: Final = Path(__file__).with_name("texpr_tables.json")
END: Final = "$END"
"""The terminal after the last token."""

NONE: Final = -1
"""A plan entry for a part `[…]` that is absent."""

PASS: Final = ""
"""The action of a production that only hands its one part on."""

SPLICE: Final = "_"
"""The action of a production whose parts stand in its user's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """`origin` reduces `size` symbols. `plan` lists the parts to keep: NONE, 2 i for symbol i, 2 i + 1 to splice it."""

    action: str
    origin: str
    size: int
    plan: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """`rows[state][symbol]` is a state to shift or go to (>= 0), or ~p to reduce by `productions[p]`.

    State 0 begins; the text is accepted in `end` on END. `terminals` maps a terminal to its spelling, or to "" where
    it has many.
    """

    productions: tuple[Production, ...]
    rows: tuple[dict[str, int], ...]
    end: int
    terminals: dict[str, str]


@cache
def load_tables() -> Tables:
    """The committed tables; read once."""
    data = json.loads(TABLE_FILE.read_text(encoding="utf-8"))
    return Tables(
        productions=tuple(
            Production(action=action, origin=origin, size=size, plan=tuple(plan))
            for action, origin, size, plan in data["productions"]
        ),
        rows=tuple(data["rows"]),
        end=data["end"],
        terminals=data["terminals"],
    )
