"""The launches and trees of a mapping's JSON: what is around a node, and what every thread of a warp has there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from texpr.polyhedral.verify.integers import FileError, Form, Tree, Values, form, number
from texpr.polyhedral.verify.layouts import address_tree, element_bytes

Node = Mapping[str, Any]
OWN = ("Generic", "Copy", "Elementwise", "Reduce", "Scan", "LookBack", "Contract", "Unload")

ONE_BY_ONE = ("each", "apart")  # accesses whose elements are requests of their own


def field_of(node: Any, name: str) -> Any:
    """A field of a record. FileError where it is not there."""
    if not isinstance(node, Mapping):
        raise FileError(f"{str(node)[:60]} is no record")
    if name not in node:
        raise FileError(f"a {str(node.get('kind', 'record'))[:40]} has no {name}")
    return node[name]


def expression(node: Any) -> Tree:
    """The tree of an index expression or condition."""
    return field_of(node, "tree")


@dataclass(frozen=True, slots=True)
class Loop:
    index: str
    extent: Tree


@dataclass(frozen=True, slots=True)
class Define:
    """An index, its digits' names with their weights, and its offset."""

    index: str
    digits: tuple[tuple[str, int], ...]
    offset: Tree


@dataclass(frozen=True, slots=True)
class Lead:
    """An index that counts the elements behind a multiple of some bytes: of an array that begins at one."""

    index: str
    buffer: str
    subscripts: tuple[Tree, ...] | None
    bytes: int


Step = Loop | Define | Lead


@dataclass(frozen=True, slots=True)
class Place:
    """A node with what is around it: loops and definitions in order, and conditions, each with how many of these steps
    stand before it. `once`: one thread of a block (or of a part of `warps` warps) comes here. `last`: of blocks with
    equal tickets the last one does; how many steps stand before, and the tickets."""

    node: Node
    path: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    where: tuple[tuple[int, Tree], ...] = ()
    asks_data: bool = False
    once: bool = False
    warps: int | None = None
    last: tuple[int, tuple[Tree, ...]] | None = None

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(step for step in self.steps if isinstance(step, Loop))


@dataclass(slots=True)
class Launch:
    """A launch at some sizes. `hosts` are the host loops around it, outermost first, `when` the host's conditions, of
    which those on addresses are `unasked`."""

    node: Node
    hosts: tuple[Loop, ...]
    when: tuple[Tree, ...]
    digits: dict[str, Node] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(field_of(self.node, "name"))

    @property
    def threads(self) -> int:
        return int(field_of(self.node, "threads"))

    def places(self) -> Iterator[Place]:
        yield from _walk(field_of(self.node, "body"), (), Place(self.node, ()))

    def at(self, path: tuple[int, ...]) -> Place:
        for place in self.places():
            if place.path == path:
                return place
        raise FileError(f"{self.name} has no node at {list(path)}")


def launches(nodes: Any, hosts: tuple[Loop, ...] = (), when: tuple[Tree, ...] = ()) -> Iterator[Launch]:
    """Every launch of a host program."""
    if not isinstance(nodes, list):
        raise FileError("the host program is no list")
    for node in nodes:
        match field_of(node, "kind"):
            case "Launch":
                digits = {str(d["name"]): d for d in field_of(node, "digits")}
                yield Launch(node, hosts, when, digits)
            case "HostLoop":
                loop = Loop(str(field_of(node, "index")), expression(field_of(node, "extent")))
                yield from launches(field_of(node, "body"), (*hosts, loop), when)
            case "HostIf":
                condition = expression(field_of(node, "condition"))
                yield from launches(field_of(node, "then"), hosts, (*when, condition))
                yield from launches(field_of(node, "orelse"), hosts, (*when, ["not", condition]))
            case kind:
                raise FileError(f"the host program has a {str(kind)[:40]}")


def _walk(body: Any, path: tuple[int, ...], around: Place) -> Iterator[Place]:
    if not isinstance(body, list):
        raise FileError("a body is no list")
    here = around
    for count, node in enumerate(body):
        own = (*path, count)
        place = replace(here, node=node, path=own)
        yield place
        match field_of(node, "kind"):
            case "Define":
                digits = tuple((str(d["name"]), int(d["weight"])) for d in field_of(node, "digits"))
                step: Step = Define(str(node["index"]), digits, expression(field_of(node, "offset")))
                here = replace(here, steps=(*here.steps, step))
            case "Lead":
                of = field_of(node, "of")
                subscripts = [expression(s) for s in field_of(of, "subscripts")]
                plain = None if None in subscripts else tuple(subscripts)
                step = Lead(str(node["index"]), str(of["buffer"]), plain, int(node["bytes"]))
                here = replace(here, steps=(*here.steps, step))
            case "Turn":
                step = Loop(str(node["index"]), _product([expression(g) for g in around_grid(around)]))
                here = replace(here, steps=(*here.steps, step))
            case "Loop":
                step = Loop(str(node["index"]), expression(field_of(node, "extent")))
                yield from _walk(field_of(node, "body"), (*own, 0), replace(place, steps=(*place.steps, step)))
            case "Guard":
                yield from _guarded(node, place, own)
            case "Parts":
                for number_, part in enumerate(field_of(node, "parts")):
                    inner = replace(place, warps=int(field_of(part, "warps")))
                    yield from _walk(field_of(part, "body"), (*own, number_), inner)
            case "Last":
                tickets = tuple(expression(ticket) for ticket in field_of(node, "at"))
                inner = replace(place, last=(len(place.steps), tickets))
                yield from _walk(field_of(node, "body"), (*own, 0), inner)


def written(node: Node) -> Iterator[tuple[str, list[Tree]]]:
    """The buffers that a node writes, each with the subscripts of an element."""
    if node.get("kind") in ("Copy", "Unload"):
        targets = [node["target"]]
    elif node.get("kind") in ("Reduce", "Scan"):
        targets = list(node["targets"])
    else:
        leaves = node.get("leaves") or ([node["leaf"]] if node.get("leaf") else [])
        targets = [leaf["writes"] for leaf in leaves if leaf.get("writes")]
    for target in targets:
        yield str(target["buffer"]), [expression(s) for s in target["subscripts"]]


def moved_together(node: Node) -> tuple[str, Tree] | None:
    """The index over the elements that a request of a copy moves, with its extent; None where each has its own."""
    if node.get("kind") != "Copy" or node.get("access") in ONE_BY_ONE or not node.get("over"):
        return None
    index, extent = node["over"][-1]
    return str(index), expression(extent)


def around_grid(place: Place) -> list[Any]:
    grid = field_of(place.node, "grid") if place.node.get("kind") == "Launch" else []
    return list(grid)


def _product(trees: list[Tree]) -> Tree:
    total: Tree = 1
    for tree in trees:
        total = ["*", total, tree]
    return total


def _guarded(node: Node, place: Place, own: tuple[int, ...]) -> Iterator[Place]:
    once = place.once or bool(node.get("once"))
    condition = field_of(node, "condition")
    for branch, name in enumerate(("body", "orelse")):
        inner = replace(place, once=once)
        if isinstance(condition, Mapping) and "tree" in condition:
            held = condition["tree"] if branch == 0 else ["not", condition["tree"]]
            inner = replace(inner, where=(*place.where, (len(place.steps), held)))
        else:
            inner = replace(inner, asks_data=True)
        yield from _walk(field_of(node, name), (*own, branch), inner)


def extents_of(grid: Any, values: Values) -> list[int]:
    return [max(0, number(expression(extent), values)) for extent in grid]


def definitions(place: Place, sizes: Values, layouts: Mapping[str, Any]) -> dict[str, Form]:
    """The linear forms of all indices that are defined around a place, over digits, loop indices and what is known of
    neither."""
    known: dict[str, Form] = {name: ({(): value} if value else {}) for name, value in sizes.items()}
    for step in place.steps:
        match step:
            case Loop(index=index):
                known.pop(index, None)
            case Define(index=index, digits=digits, offset=offset):
                total = form(offset, known)
                for name, weight in digits:
                    key = (name,)
                    total[key] = total.get(key, 0) + weight
                known[index] = {key: value for key, value in total.items() if value}
            case Lead(index=index):
                known[index] = lead_form(step, known, layouts)
    return known


def lead_form(step: Lead, known: Mapping[str, Form], layouts: Mapping[str, Any]) -> Form:
    if step.subscripts is None:
        return {}
    each = max(1, step.bytes // element_bytes(layouts, step.buffer))
    return form(["%", address_tree(layouts, step.buffer, list(step.subscripts)), each], known)
