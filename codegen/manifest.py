"""Manifest v2: everything that a machine without the compiler needs in order to launch a kernel. Data only.

Expressions are JSON: an integer, a name (a size, a scalar parameter or a host index), or a list [op, left, right] with
op one of + - * / % ceildiv min max (floor semantics); conditions are lists [op, …] with op one of == != < <= > >=
(two expressions), and, or, not, true, false. The condition of a step may ask for ["%", "address(A)", n], the remainder
of where a parameter begins, in bytes. `evaluate` and `holds` interpret them; nothing is ever passed to `eval`.
Standard library only.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from texpr.codegen.tensor_map import UNIT_BYTES
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.operators import CALLED, OPERATORS, IndexOp, Operator
from texpr.grammar.records import dataclass
from texpr.grammar.strides import address_name

FORMAT = "texpr-manifest"
VERSION = 2
MAX_MANIFEST_BYTES = 4 << 20
MAX_DEPTH = 200
MAX_VALUE_BITS = 4096  # of an expression's value; each of its numbers has 64
INITS = ("none", "each call", "once")  # what words hold when a call begins
ALIGNMENT_BYTES = 256  # of a call's own memory, and of each array in it
MAX_WORKSPACE_BYTES = 1 << 47  # the address space of a process

JsonExpr = int | str | list[Any]
JsonCondition = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: `mode` is read, write, read-write or accumulate (with `op`); `box` has the touched part as
    [low, high) per dimension. `shape` and `strides` are in elements; `flat` accepts any dense array that is long
    enough; a `scalar` is passed by value."""

    name: str
    dtype: str
    shape: tuple[JsonExpr, ...]
    strides: tuple[JsonExpr, ...]
    mode: str
    op: str | None = None
    box: tuple[tuple[JsonExpr, JsonExpr], ...] = ()
    align: int = 16
    flat: bool = False
    scalar: bool = False

    @property
    def writes(self) -> bool:
        """Whether a launch may change the array."""
        return self.mode != "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceTensor:
    name: str
    offset_bytes: JsonExpr
    size_bytes: JsonExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Counters and flags of 32 bits, that no other call uses at the same time. `init` says what they hold when a call
    begins: `none` anything, `each call` zeros, `once` the zeros that earlier calls left."""

    name: str
    size_bytes: JsonExpr
    init: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapArgument:
    """A tensor map that a launch passes by value: how `tensor_map.py` sees a parameter or a workspace tensor. `shape`
    and `strides` are in elements."""

    name: str
    array: str
    dtype: str
    shape: tuple[JsonExpr, ...]
    strides: tuple[JsonExpr, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    promotion_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStep:
    """One launch: `symbol` in the module; `arguments` name parameters, workspace tensors, words, the step's `maps`,
    sizes and host indices in the kernel's order. A step that `overlaps` may begin before the step before it is over, as
    far as that one allows; the blocks of a `cooperative` one run together."""

    symbol: str
    grid: tuple[JsonExpr, JsonExpr, JsonExpr]
    cluster: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[tuple[str, str], ...]  # (kind, name), kind: param scalar workspace words map size index
    maps: tuple[MapArgument, ...] = ()
    overlaps: bool = False
    cooperative: bool = False

    @property
    def in_boxes(self) -> bool:
        """Whether it touches arrays, and none but by tensor maps: where it `overlaps`, none before it has waited."""
        return bool(self.maps) and all(kind in ("map", "size", "index") for kind, _ in self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStep:
    index: str
    extent: JsonExpr
    body: tuple["Step", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IfStep:
    condition: JsonCondition
    then: tuple["Step", ...]
    orelse: tuple["Step", ...] = ()


Step = LaunchStep | LoopStep | IfStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`sizes` maps every size in ABI order to its bound value, or None where it is free. `files` maps file names in
    the artifact's folder to their SHA-256. `loadable` is False for cpu and cuda-host artifacts (source only)."""

    name: str
    target: str
    arch: str
    loadable: bool
    parameters: tuple[Parameter, ...]
    sizes: Mapping[str, int | None]
    facts: tuple[JsonCondition, ...]
    workspace_bytes: JsonExpr
    workspace: tuple[WorkspaceTensor, ...]
    words: tuple[Words, ...] = ()
    host: tuple[Step, ...]
    files: Mapping[str, str]
    texpr: str


_BINARY: dict[str, Operator] = {op.value: row for op, row in OPERATORS.items()}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def damaged(why: str) -> TExprError:
    """The error for a manifest that does not follow this page."""
    return fail("E0505", f"the manifest is damaged: {why}", help="build the artifact again")


def check_expr(expr: object, depth: int = 0) -> JsonExpr:
    """`expr`, if it is an expression; E0505 otherwise."""
    if depth > MAX_DEPTH or isinstance(expr, bool):
        raise damaged("an expression is malformed")
    if isinstance(expr, str) or (isinstance(expr, int) and abs(expr) <= 2**64):
        return expr
    if isinstance(expr, list) and len(expr) == 3 and isinstance(expr[0], str) and expr[0] in _BINARY:
        return [expr[0], check_expr(expr[1], depth + 1), check_expr(expr[2], depth + 1)]
    raise damaged("an expression is malformed")


def check_condition(condition: object, depth: int = 0) -> JsonCondition:
    """`condition`, if it is one; E0505 otherwise."""
    if isinstance(condition, list) and condition and isinstance(condition[0], str) and depth <= MAX_DEPTH:
        op, *rest = condition
        if op in _COMPARE and len(rest) == 2:
            return [op, check_expr(rest[0], depth + 1), check_expr(rest[1], depth + 1)]
        if op in ("and", "or") or (op == "not" and len(rest) == 1) or (op in ("true", "false") and not rest):
            return [op, *(check_condition(part, depth + 1) for part in rest)]
    raise damaged("a condition is malformed")


def evaluate(expr: JsonExpr, values: Mapping[str, int], depth: int = 0) -> int:
    """The value of an expression; E0505 for anything that is not one, or divides by zero or less."""
    if isinstance(expr, bool) or depth > MAX_DEPTH:
        raise damaged("an expression is malformed")
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        if expr not in values:
            raise damaged(f"unknown name {expr[:80]!r} in an expression")
        return values[expr]
    if isinstance(expr, list) and len(expr) == 3 and isinstance(expr[0], str) and expr[0] in _BINARY:
        left, right = evaluate(expr[1], values, depth + 1), evaluate(expr[2], values, depth + 1)
        row = _BINARY[expr[0]]
        if row.divides and right <= 0:
            raise damaged("an expression divides by zero or less")
        value: int = row.value(left, right)
        if value.bit_length() > MAX_VALUE_BITS:
            raise damaged("an expression's value is out of range")
        return value
    raise damaged("an expression is malformed")


def holds(condition: JsonCondition, values: Mapping[str, int], depth: int = 0) -> bool:
    """Whether a condition holds; E0505 for anything that is not one."""
    if not isinstance(condition, list) or not condition or depth > MAX_DEPTH:
        raise damaged("a condition is malformed")
    op, *rest = condition
    if isinstance(op, str) and op in _COMPARE and len(rest) == 2:
        return _COMPARE[op](evaluate(rest[0], values, depth + 1), evaluate(rest[1], values, depth + 1))
    if op == "and":
        return all(holds(part, values, depth + 1) for part in rest)
    if op == "or":
        return any(holds(part, values, depth + 1) for part in rest)
    if op == "not" and len(rest) == 1:
        return not holds(rest[0], values, depth + 1)
    if op in ("true", "false") and not rest:
        return bool(op == "true")
    raise damaged("a condition is malformed")


def text_of(part: JsonExpr | JsonCondition, depth: int = 0) -> str:
    """An expression or a condition as an author writes it, with brackets around every operand that has parts."""
    if not isinstance(part, list) or not part or depth > MAX_DEPTH:
        return str(part)[:80]
    op, *rest = part
    texts = [text_of(operand, depth + 1) for operand in rest]
    if op in CALLED.values():
        return f"{op}({', '.join(texts)})"
    if len(rest) < 2:
        return " ".join((str(op)[:80], *texts))
    if op in _COMPARE:
        return f" {op} ".join(texts)
    return f" {op} ".join(f"({text})" if " " in text else text for text in texts)


def names_of(part: JsonExpr | JsonCondition, depth: int = 0) -> set[str]:
    """The names in an expression or a condition."""
    if isinstance(part, str):
        return {part}
    if not isinstance(part, list) or depth > MAX_DEPTH:
        return set()
    return {name for operand in part[1:] for name in names_of(operand, depth + 1)}


def questions(manifest: Manifest) -> tuple[tuple[str, int], ...]:
    """What the steps ask of addresses: (parameter, n) for each remainder by n, each once. Conditions ask what they say,
    and tensor maps whether one begins at an array that may lie elsewhere. Raises E0505 where a condition asks for an
    address in any other way, or for that of no array."""
    arrays = {address_name(p.name): p.name for p in manifest.parameters if not p.scalar}
    loose = {p.name for p in manifest.parameters if max(p.align, 1) % UNIT_BYTES}
    maps = [map_ for step in all_steps(manifest.host) if isinstance(step, LaunchStep) for map_ in step.maps]
    found: dict[tuple[str, int], None] = {(map_.array, UNIT_BYTES): None for map_ in maps if map_.array in loose}
    work: list[Any] = [step.condition for step in all_steps(manifest.host) if isinstance(step, IfStep)]
    while work:
        match work.pop():
            case [IndexOp.MOD, str(name), int(number)] if name in arrays and number > 0:
                found[arrays[name], number] = None
            case str(name) if "(" in name:
                raise damaged(f"a condition asks for {name[:80]!r}")
            case list(parts):
                work += parts[:0:-1]
            case _:
                pass
    return tuple(found)


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, outer before inner."""
    stack = list(reversed(steps))
    while stack:
        step = stack.pop()
        yield step
        match step:
            case LoopStep(body=body):
                stack.extend(reversed(body))
            case IfStep(then=then, orelse=orelse):
                stack.extend(reversed(then + orelse))
            case LaunchStep():
                pass


def canonical_json(value: object) -> str:
    """JSON text with sorted keys and a final newline: equal data give equal bytes."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
