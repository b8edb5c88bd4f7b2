"""A mapping as the data that `texpr map --json` prints; docs/schemas.md describes it.

Nodes are objects whose `kind` is the name of the type in `polyhedral/mapped/`, with its fields. An index expression
or condition is an object of its `text` and its `tree`, an expression of the manifest:

    ceildiv(M, 8)   ->   {"text": "ceildiv(M, 8)", "tree": ["ceildiv", "M", 8]}
"""

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

from texpr.codegen.artifact import json_condition, json_expr
from texpr.figures_json import figures_json, statements_json
from texpr.grammar import ast
from texpr.grammar.index.text import in_words
from texpr.grammar.source import Span
from texpr.grammar.types import DType
from texpr.polyhedral import isl
from texpr.polyhedral.mapped.candidate_json import choices_json
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import element_text, leaf_text
from texpr.polyhedral.walk import read_accesses, written

MAPPING_SCHEMA = 6
MAX_PIECES = 16  # of a relation that is written out


def mapping_json(program: MappedProgram) -> dict[str, Any]:
    """The mapping of a program, without the program itself and what else it could choose."""
    return {
        "schema": MAPPING_SCHEMA,
        "kernel": program.kernel.name,
        "target": program.target.name,
        "warp_size": program.target.warp_size,
        "sizes": [size.name for size in program.kernel.sizes],
        "representative": dict(program.report.representative),
        "facts": [_plain(fact) for fact in program.kernel.facts],
        "buffers": {name: _plain(buffer) for name, buffer in program.buffers.items()},
        "host": [_plain(node) for node in program.host],
        "statements": statements_json(program),
        **figures_json(program),
        "report": _plain(program.report),
        "candidate": choices_json(program.candidate),
    }


def mapping_text(data: Mapping[str, Any]) -> str:
    """The JSON of a mapping as text: a line for each access, which are many."""
    rows = ",\n  ".join(json.dumps(access) for access in data["accesses"])
    before, after = json.dumps({**data, "accesses": [0]}, indent=1).split('"accesses": [\n  0\n ]')
    return f'{before}"accesses": [\n  {rows}\n ]{after}'


def _plain(value: Any) -> Any:
    match value:
        case ast.IndexConst() | ast.IndexVar() | ast.SizeVar() | ast.IndexBinary():
            return {"text": in_words(value), "tree": json_expr(value)}
        case ast.Compare() | ast.And() | ast.Or() | ast.Not() | ast.Always():
            return {"text": in_words(value), "tree": json_condition(value)}
        case ast.Read(buffer=buffer, subscripts=subscripts):
            return _access(buffer, subscripts)
        case ast.Bind() | ast.Accumulate() | ast.Atomic() | ast.Anchor():
            target = written(value)
            reads = [_access(read.buffer, read.subscripts) for read in read_accesses(value)]
            return {"text": leaf_text(value), "writes": _access(*target) if target else None, "reads": reads}
        case DType(name=name):
            return name
        case isl.Map():
            pieces = value.n_basic_map()
            return str(value) if pieces <= MAX_PIECES else f"a union of {pieces} relations"
        case Order():
            shown = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "met"}
            return {"kind": "Order", **shown, "relation": _plain(value.relation)}
        case Span():
            return {"line": value.line, "column": value.column}
        case enum.Enum():
            return value.value
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {
                "kind": type(value).__name__,
                **{f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)},
            }
        case _:
            return value


def _access(buffer: str, subscripts: tuple[ast.Subscript, ...]) -> dict[str, Any]:
    """A buffer's element; the tree of a subscript that is read from data is null."""
    each = [{"text": "data", "tree": None} if isinstance(s, ast.Gather) else _plain(s) for s in subscripts]
    return {"text": element_text(buffer, subscripts), "buffer": buffer, "subscripts": each}
