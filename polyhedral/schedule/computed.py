"""The check of arrays that a schedule added: they are put back where they are read, and what is left is a program of
the author's statements, which `check` compares with his. It shares no code with what made them.

    every element is made once, before      one statement binds it, under no condition, before all that read it
    it is what it stands for                nobody changes meanwhile what it is made of, and its type holds every value
    it is there                             what is read is among what is made
"""

from collections.abc import Callable
from dataclasses import replace

from texpr.grammar.ast import (
    Bind,
    Buffer,
    Cast,
    Expr,
    If,
    IndexExpr,
    IndexVar,
    New,
    Node,
    Par,
    Read,
    Role,
    SizeVar,
    Stmt,
    Subscript,
)
from texpr.grammar.core import buffers_read, statements
from texpr.grammar.exact import fits
from texpr.grammar.index.expr import substitute
from texpr.grammar.walk import rewrite
from texpr.polyhedral import isl
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramStatement
from texpr.polyhedral.schedule.check import CHECK, Fault, check
from texpr.polyhedral.schedule.origins import Origins, origin_of


def check_schedule(before: Program, after: Program, origins: Origins) -> Fault | None:
    """The first fault of a schedule, of the arrays that it added or of its order; None where there is none."""
    plain = without_computed(before, after, origins)
    return plain if isinstance(plain, Fault) else check(before, plain, origins)


def without_computed(before: Program, after: Program, origins: Origins) -> Program | Fault:
    """The second program with the values of the arrays that it has more in their place; or why they are not these."""
    known, own = {b.name for b in before.kernel.buffers}, {s.id for s in before.statements}
    copies = {s.id for s in after.statements if s.id not in own and origin_of(origins, s.id).statement in own}
    added = [
        b for b in after.kernel.buffers
        if b.name not in known and b.role is Role.LOCAL and _is_made(after, b, copies)
    ]  # fmt: skip
    if not added:
        return after
    for buffer in added:
        why = _wrong(before, after, buffer, {b.name for b in added})
        if why is not None:
            return Fault(why=f"{buffer.name} {why}", span=buffer.span)
    body = after.kernel.body
    # The last ones first: an array that is made of another one is put back before that one, whose readers it has then.
    for made in sorted((_maker(after, b.name) for b in added), key=_band, reverse=True):
        assert isinstance(made.leaf, Bind)
        put = _putting(made.leaf)
        body = tuple(rewrite(s, put) for s in _without(body, made.leaf) if not _declares(s, made.leaf.buffer))
    names = {b.name for b in added}
    kernel = replace(after.kernel, buffers=tuple(b for b in after.kernel.buffers if b.name not in names), body=body)
    return build_program(kernel, beside=after)


def _is_made(after: Program, buffer: Buffer, copies: set[str]) -> bool:
    """Whether a statement at the kernel's own level declares it, and no copy of the author's binds it: others are the
    author's, under another name."""
    if any(made.id in copies for made in _makers(after, buffer.name)):
        return False
    return any(_declares(stmt, buffer.name) for stmt in after.kernel.body)


def _makers(program: Program, name: str) -> list[ProgramStatement]:
    return [s for s in program.statements if _writes(s, {name})]


def _maker(program: Program, name: str) -> ProgramStatement:
    (made,) = _makers(program, name)
    return made


def _writes(statement: ProgramStatement, names: set[str]) -> bool:
    return any(a.buffer in names and a.mode is not AccessMode.READ for a in statement.accesses)


def _readers(program: Program, name: str) -> list[tuple[ProgramStatement, Access]]:
    return [(s, a) for s in program.statements for a in s.accesses if a.buffer == name and a.mode is AccessMode.READ]


def _made_of(after: Program, made: ProgramStatement, added: set[str]) -> tuple[set[str], int]:
    """What the values of an array are made of, through other arrays that were added, and where the first of these is
    made."""
    assert isinstance(made.leaf, Bind)
    inputs, start = set[str](), _band(made)
    for name in buffers_read(made.leaf.value):
        makers = [s for s in _makers(after, name) if isinstance(s.leaf, Bind) and _band(s) < _band(made)]
        if name in added and len(makers) == 1:
            deeper, first = _made_of(after, makers[0], added)
            inputs, start = inputs | deeper, min(start, first)
        else:
            inputs.add(name)
    return inputs, start


def _band(statement: ProgramStatement) -> int:
    """The place of a statement among those of the kernel's own level."""
    place = statement.position[0]
    assert isinstance(place, int)
    return place


def _wrong(before: Program, after: Program, buffer: Buffer, added: set[str]) -> str | None:
    """Why an array's values cannot be put in its place."""
    makers = _makers(after, buffer.name)
    made = makers[0] if len(makers) == 1 else None
    if made is None or not isinstance(made.leaf, Bind) or any(s.id == made.id for s in before.statements):
        return "is not made by one statement of its own"
    names = tuple(s.name for s in made.leaf.subscripts if isinstance(s, IndexVar))
    loops = tuple(loop.index for loop in made.loops)
    plain = len(names) == len(made.leaf.subscripts) and sorted(names) == sorted(loops)
    if not plain or made.guards or not all(loop.parallel for loop in made.loops):
        return "is not made by a band of its elements"
    if buffer.attrs or buffer.memory is not None:
        return "is placed by somebody"
    if made.leaf.value.dtype != buffer.dtype:
        return "has another type than what is bound to it"
    inputs, start = _made_of(after, made, added)
    for statement, access in _readers(after, buffer.name):
        end = _band(statement)
        if end <= _band(made):
            return f"is read by {statement.id} before it is made"
        if not _is_there(after, made, access):
            return f"is read by {statement.id} where nothing was made"
        for other in after.statements:
            if start <= _band(other) <= end and _writes(other, inputs):
                return f"is made of what {other.id} changes before {statement.id} reads it"
    return None


def _is_there(after: Program, made: ProgramStatement, access: Access) -> bool:
    """Whether the elements that are read are made."""
    write = next(a for a in made.accesses if a.mode is AccessMode.WRITE)
    with after.work.limited(access.span, CHECK, isl.columns(write.relation, access.relation)):
        return bool(access.relation.range().is_subset(write.relation.range()))


def _putting(made: Bind) -> Callable[[Node], Node]:
    """What puts the value where the array is read: what was converted to a type that holds it, and back, is itself."""
    names = [s.name for s in made.subscripts if isinstance(s, IndexVar)]
    there: list[Node] = []

    def value(subscripts: tuple[Subscript, ...]) -> Expr:
        found: dict[str, IndexExpr] = {n: s for n, s in zip(names, subscripts, strict=True) if isinstance(s, IndexExpr)}

        def told(leaf: IndexVar | SizeVar) -> IndexExpr | None:
            return found.get(leaf.name) if isinstance(leaf, IndexVar) else None

        return rewrite(
            made.value,
            lambda node: substitute(node, told) if isinstance(node, IndexExpr) else node,
            into=lambda node: not isinstance(node, IndexExpr),
        )

    def put(node: Node) -> Node:
        match node:
            case Read(buffer=made.buffer, subscripts=subscripts):
                there.append(value(subscripts))
                return there[-1]
            case Cast(operand=Cast(operand=whole, dtype=narrow) as stored, dtype=dtype) if (
                any(stored is one for one in there) and whole.dtype == dtype and fits(whole, narrow)
            ):
                return whole
            case _:
                return node

    return put


def _without(body: tuple[Stmt, ...], made: Bind) -> tuple[Stmt, ...]:
    """The statements but the one that makes an array, and what has nothing else: another band may be fused with its
    own, which is under a condition where that one is longer."""
    left = list[Stmt]()
    for stmt in body:
        if all(each is not made for each in statements((stmt,))):
            left.append(stmt)
        elif isinstance(stmt, Par) and (others := _without(stmt.body, made)):
            left.append(replace(stmt, body=others))
        elif isinstance(stmt, If):
            then, orelse = _without(stmt.then, made), _without(stmt.orelse, made)
            left += [replace(stmt, then=then, orelse=orelse)] if then or orelse else []
    return tuple(left)


def _declares(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, New) and stmt.buffer == name
