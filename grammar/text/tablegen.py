"""Builds `texpr_tables.json` from `texpr.lark` with Lark: `python -m texpr.grammar.text.tablegen` writes the file.

Lark's numbering of states follows the hash seed, so states are renumbered by a breadth-first walk over sorted symbols
and productions are sorted: equal grammars give equal bytes. This is the only file of the package that imports Lark.
"""

import json
from collections import deque
from pathlib import Path
from typing import Any

from texpr.grammar.text.tables import END, NONE, PASS, SPLICE, TABLE_FILE

GRAMMAR_FILE = Path(__file__).with_name("texpr.lark")


def build_lark(*, strict: bool = False) -> Any:
    """Lark's own parser for the grammar. `strict` refuses every conflict and needs the package interegular."""
    from lark import Lark

    return Lark(GRAMMAR_FILE.read_text(encoding="utf-8"), parser="lalr", lexer="basic", strict=strict)


def _plan(rule: Any) -> list[int]:
    """Which parts of an expansion are kept, as `tables.Production.plan` says; the rules are those of Lark's trees."""
    size = len(rule.expansion)
    absent = [0] * (size + 1)
    if rule.options.empty_indices:
        bits = "".join(str(int(b)) for b in rule.options.empty_indices)
        absent = [len(ones) for ones in bits.split("0")]
    plan: list[int] = []
    for index, symbol in enumerate(rule.expansion):
        plan += [NONE] * absent[index]
        if symbol.is_term:
            if not symbol.filter_out:
                plan.append(2 * index)
        else:
            plan.append(2 * index + int(symbol.name.startswith("_")))
    return plan + [NONE] * absent[size]


def _action(rule: Any, plan: list[int]) -> str:
    if rule.origin.name.startswith("_"):
        return SPLICE
    if rule.alias:
        return str(rule.alias)
    expands = len(plan) == 1 and plan[0] >= 0 and plan[0] % 2 == 0
    return PASS if rule.options.expand1 and expands else str(rule.origin.name)


def build_tables() -> str:
    """The text of `texpr_tables.json`, deterministic to the byte."""
    from lark.parsers.lalr_analysis import Shift

    lark = build_lark()
    table = lark.parser.parser._parse_table
    keyed: dict[str, tuple[Any, list[int]]] = {}
    for rule in lark.rules:
        plan = _plan(rule)
        keyed[f"{rule.origin.name}: {[s.name for s in rule.expansion]} {plan} {rule.alias}"] = rule, plan
    assert len(keyed) == len(lark.rules)
    order = sorted(keyed)
    number_of = {keyed[key][0]: number for number, key in enumerate(order)}
    productions = [
        [_action(rule, plan), rule.origin.name, len(rule.expansion), plan] for rule, plan in (keyed[k] for k in order)
    ]
    first = table.start_states["start"]
    states = {first: 0}
    queue = deque([first])
    rows: list[dict[str, int]] = []
    while queue:
        row: dict[str, int] = {}
        for symbol, (kind, argument) in sorted(table.states[queue.popleft()].items()):
            if kind is not Shift:
                row[symbol] = ~number_of[argument]
                continue
            if argument not in states:
                states[argument] = len(states)
                queue.append(argument)
            row[symbol] = states[argument]
        rows.append(row)
    terminals = {t.name: t.pattern.value if t.pattern.type == "str" else "" for t in lark.terminals}
    terminals = {name: text for name, text in sorted(terminals.items()) if name not in lark.ignore_tokens}
    lines = [
        "{",
        f' "end": {states[table.end_states["start"]]},',
        f' "terminals": {json.dumps({**terminals, END: ""})},',
        ' "productions": [',
        ",\n".join(f"  {json.dumps(p)}" for p in productions),
        " ],",
        ' "rows": [',
        ",\n".join(f"  {json.dumps(r, separators=(',', ':'))}" for r in rows),
        " ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE_FILE.write_text(build_tables(), encoding="utf-8")
