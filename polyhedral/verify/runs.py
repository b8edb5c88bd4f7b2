"""What runs where: the iterations and the stores that the trees of a mapping make, as points to count."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from texpr.polyhedral.verify.coverage import Asked, OpenError, Points, check_points
from texpr.polyhedral.verify.integers import Tree, Values, names_in, number
from texpr.polyhedral.verify.layouts import element_bytes
from texpr.polyhedral.verify.tree import OWN, Define, Launch, Lead, Loop, Place, expression, extents_of, written

Check = tuple[str, Callable[[], str]]
BOUND = ("write",)
WARPGROUP = 4  # warps
IN_THREADS = ("serial", "vector")  # places of loops


@dataclass(frozen=True, slots=True)
class Ran:
    """What a node of a launch has: a tuple of expressions, and for a copy that is cut to its array the extents of that,
    beyond which nothing is written."""

    launch: Launch
    place: Place
    at: tuple[Tree, ...]
    cut: tuple[Tree, ...] = ()


def check_statements(data: Mapping[str, Any], launches: list[Launch], sizes: Values) -> Iterator[Check]:
    """Each statement of the kernel: whether all its iterations run once."""
    for name, statement in data["statements"].items():
        yield name, partial(_iterations, data, name, statement, launches, sizes)


def _iterations(
    data: Mapping[str, Any], name: str, statement: Mapping[str, Any], launches: list[Launch], sizes: Values
) -> str:
    wanted = _domain(statement)
    indices = [str(loop["index"]) for loop in statement["loops"]]
    places = [
        Ran(launch, place, tuple(indices))
        for launch in launches
        for place in launch.places()
        if place.node.get("kind") in OWN and place.node.get("id") == name
    ]
    inside = all(_stays_inside(data, statement, ran.place.node) for ran in places)
    asked = Asked(beyond=inside, again=inside)
    return f"each of {_counted(data, wanted, places, sizes, asked)} iterations runs once"


def _counted(data: Mapping[str, Any], wanted: Points, places: list[Ran], sizes: Values, asked: Asked) -> str:
    """The points of a goal that nodes have, counted for each place in a line of memory at which rows may begin."""
    leads = [step for ran in places for step in ran.place.steps if isinstance(step, Lead)]
    if len({lead.index for lead in leads}) > 1:
        raise OpenError("the addresses of several arrays decide where its runs begin")
    ways = {max(1, lead.bytes // element_bytes(data["buffers"], lead.buffer)) for lead in leads}
    count, turns = 0, max(ways, default=1)
    asked = replace(asked, points=max(1, asked.points // turns))
    for lead in range(turns):
        found = [_points(ran, sizes, data["warp_size"], lead) for ran in places]
        count = check_points(wanted, found, sizes, asked)
    return f"{count}" if not leads else f"{count}, wherever rows begin in a line of memory,"


def _domain(statement: Mapping[str, Any]) -> Points:
    if statement["on_data"]:
        raise OpenError("data decides which of its iterations run")
    if statement["domain"] is None:
        raise OpenError("its iterations are no condition of the language")
    loops = tuple((str(loop["index"]), expression(loop["extent"])) for loop in statement["loops"])
    return Points(loops, (statement["domain"]["tree"],), tuple(name for name, _ in loops))


def _stays_inside(data: Mapping[str, Any], statement: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether what it writes stays in a thread, or in a block in place of an array: an iteration too many is then
    stored by nobody, and one that several threads have by one of them."""
    leaf = node.get("leaf") or {}
    name = (leaf.get("writes") or {}).get("buffer")
    memory, bound = data["buffers"].get(name, {}).get("memory"), statement["writes"]
    instead = bound is not None and bound["mode"] in BOUND and bound["buffer"] != name
    return memory == "reg" or (memory == "shared" and instead)


def check_stores(data: Mapping[str, Any], launches: list[Launch], sizes: Values) -> Iterator[Check]:
    """Each parameter that the kernel only binds: whether every element that it binds is stored once."""
    by: dict[str, list[Mapping[str, Any]]] = {}
    for statement in data["statements"].values():
        target = statement["writes"]
        if target is not None and data["buffers"].get(target["buffer"], {}).get("role") == "param":
            by.setdefault(str(target["buffer"]), []).append(statement)
    for name, statements in by.items():
        yield name, partial(_stored, data, name, statements, launches, sizes)


def _stored(
    data: Mapping[str, Any], name: str, statements: list[Mapping[str, Any]], launches: list[Launch], sizes: Values
) -> str:
    binding = [s for s in statements if s["writes"]["mode"] in BOUND]
    if not binding:
        raise OpenError("the kernel adds to what is there, by as many stores as it takes")
    wanted: list[Points] = []
    for statement in binding:
        subscripts = statement["writes"]["subscripts"]
        if None in subscripts:
            raise OpenError("data tells which elements are bound")
        own = _domain(statement)
        wanted.append(Points(own.variables, own.where, tuple(subscripts)))
    if len(wanted) > 1:
        raise OpenError(f"{len(wanted)} statements bind it, some of them one element")
    places = [
        Ran(launch, place, tuple(subscripts), _cut(data, place.node, name))
        for launch in launches
        for place in launch.places()
        for buffer, subscripts in written(place.node)
        if buffer == name
    ]
    if any(None in ran.at for ran in places):
        raise OpenError("data tells which elements are stored")
    if any(len(ran.at) != len(wanted[0].at) for ran in places):
        raise OpenError("its dimensions are others in the tree than in the program")
    again = len(binding) < len(statements)
    count = _counted(data, wanted[0], places, sizes, Asked(again=again))
    return f"each of {count} elements is stored {'at least ' * again}once"


def _cut(data: Mapping[str, Any], node: Mapping[str, Any], name: str) -> tuple[Tree, ...]:
    """The extents of the array to which the engine that copies cuts what it writes, if it does."""
    return tuple(s["tree"] for s in data["buffers"][name]["layout"]["shape"]) if node.get("clipped") else ()


def _points(ran: Ran, sizes: Values, warp_size: int, lead: int) -> Points:
    """The tuples of expressions that a node has, over the digits of blocks and threads and the loops around it, where
    rows begin `lead` elements behind a line of memory."""
    launch, place = ran.launch, ran.place
    node = place.node
    if place.asks_data:
        raise OpenError("data decides where it runs")
    known: dict[str, Tree] = {}
    loops: list[tuple[str, Tree]] = [(loop.index, loop.extent) for loop in launch.hosts]
    turns = {loop.index for loop in launch.hosts}
    where = [tree for tree in launch.when if names_in(tree) <= turns | set(sizes)]  # others are on addresses
    conditions = list(place.where)
    behind, last = place.last or (-1, ())
    tickets: list[Tree] = []
    outer: set[str] = set()
    for count, step in enumerate((*place.steps, None)):
        if count == behind:
            tickets, outer = [replaced(ticket, known) for ticket in last], {name for name, _ in loops}
        while conditions and conditions[0][0] == count:
            where.append(replaced(conditions.pop(0)[1], known))
        match step:
            case Loop(index=index, extent=extent):
                known.pop(index, None)
                loops.append((index, replaced(extent, known)))
            case Define(index=index, digits=digits, offset=offset):
                total: Tree = replaced(offset, known)
                for name, weight in digits:
                    total = ["+", total, ["*", weight, name]]
                known[index] = total
            case Lead(index=index):
                known[index] = lead
    for index, extent in node.get("over") or ():
        known.pop(str(index), None)
        loops.append((str(index), replaced(expression(extent), known)))
    within = node.get("within")
    if within is not None:
        along = str(node["over"][-1][0])
        where.append(["<=", replaced(expression(within["begin"]), known), along])
        where.append(["<", along, replaced(expression(within["end"]), known)])
    tuples = [replaced(tree, known) for tree in ran.at]
    where += [["<", tree, extent] for tree, extent in zip(tuples, ran.cut, strict=False)]
    there = {name for name, _ in loops} | set(launch.digits) | set(sizes)
    for tree in tuples:
        if tiles := sorted(names_in(tree) - there):
            raise OpenError(f"the tree has tiles where the program has {tiles[0]}")
    used = set[str]().union(*map(names_in, (*tuples, *where, *tickets, *(extent for _, extent in loops))))
    hardware, told = _hardware(launch, place, used, sizes, warp_size)
    return Points(
        (*hardware, *((name, replaced(extent, told)) for name, extent in loops)),
        tuple(replaced(tree, told) for tree in where),
        tuple(replaced(tree, told) for tree in tuples),
        tuple(replaced(tree, told) for tree in tickets),
        frozenset(outer | {name for name, _ in hardware if name.startswith("@grid")}) if place.last else frozenset(),
    )


def _hardware(
    launch: Launch, place: Place, used: set[str], sizes: Values, warp_size: int
) -> tuple[list[tuple[str, Tree]], dict[str, Tree]]:
    """The coordinates of blocks and threads that run a node, as numbers that count up independently, and the digits of
    the launch in terms of these."""
    turns = {loop.index for loop in launch.hosts}
    if any(names_in(expression(extent)) & turns for extent in launch.node["grid"]):
        raise OpenError("turns of the host decide how many blocks there are")
    values = {**sizes, **dict.fromkeys(turns, 0)}
    grid = extents_of(launch.node["grid"], values)
    warps = place.warps or -(-launch.threads // warp_size)
    ranges = {
        "grid.x": grid[0], "grid.y": grid[1], "grid.z": grid[2], "warp": warps,
        "lane": min(launch.threads, warp_size),
    }  # fmt: skip
    unused = place.node.get("unused")
    own = set(place.node.get("digits") or ())
    variables: list[tuple[str, Tree]] = []
    known: dict[str, Tree] = {}
    for where, count in ranges.items():
        of_place = {n: d for n, d in _digits_at(launch, where, values) if n in used}
        if not count:
            variables.append((f"@{where}", 0))
            known |= dict.fromkeys(of_place, 0)
            continue
        cuts = _cuts(list(of_place.values()), count)
        in_block = where in ("warp", "lane")
        for low, high in pairwise(cuts):
            inside = [n for n, (stride, radix) in of_place.items() if stride <= low and high <= stride * radix]
            name = f"@{where}/{low}"
            idle = not inside if place.last is not None and not in_block else False
            if in_block and (place.once or (unused is not None and not own.intersection(inside))):
                idle = True
            if not idle:
                variables.append((name, high // low))
            for digit in inside:
                step = low // of_place[digit][0]
                known[digit] = ["+", known.get(digit, 0), ["*", step, 0 if idle else name]]
        for digit in of_place:
            known.setdefault(digit, 0)
    return variables, known


def _digits_at(launch: Launch, where: str, values: Values) -> Iterator[tuple[str, tuple[int, int]]]:
    """The digits of a coordinate, each with its stride and radix."""
    for name, digit in launch.digits.items():
        if digit["place"] in IN_THREADS:
            continue
        stride, radix = (max(1, number(expression(digit[what]), values)) for what in ("stride", "radix"))
        match digit["place"]:
            case "warpgroup" if where == "warp":
                yield name, (stride * WARPGROUP, radix)
            case "core" if where == "grid.x":
                yield name, (stride, radix)
            case "cluster" if where == "grid.x":
                along, *others = launch.node["cluster"]
                if others != [1, 1]:
                    raise OpenError("its clusters have more than one dimension")
                yield name, (stride, min(radix, max(1, along // stride)))
            case at if at == where:
                yield name, (stride, radix)


def _cuts(digits: list[tuple[int, int]], count: int) -> list[int]:
    """Where a coordinate is cut so that each of its digits is some of the pieces."""
    cuts = {1, count}.union(*({stride, min(stride * radix, count)} for stride, radix in digits if stride < count))
    ends = sorted(cuts)
    if any(b % a for a, b in pairwise(ends)):
        raise OpenError("its digits do not nest in one another")
    return ends


def replaced(tree: Tree, known: Mapping[str, Tree]) -> Tree:
    """The tree with names replaced."""
    if isinstance(tree, str):
        return known.get(tree, tree)
    if isinstance(tree, list):
        return [tree[0], *(replaced(part, known) for part in tree[1:])]
    return tree
