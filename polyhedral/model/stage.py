"""The model stage: a checked kernel lifted to isl.

    Kernel  par M i { C[2 * i] = A[i] }
    Program S0: domain { S0[i] : 0 <= i < M }, accesses read A { S0[i] -> A[i] }, write C { S0[i] -> C[2i] }

Input: a `Kernel` whose bound sizes are substituted; the sizes that remain are parameters. Output: a `Program` that says
what the kernel touches, and proves nothing. Invariants: one statement per leaf in text order, relations exact but for
gathered subscripts, which have the whole range of their dimension. Errors: E0306 and E0308 for what is not
quasi-affine, E0307 for the counted limits, all of a kernel at once.
"""

from collections.abc import Iterator, Mapping, Sequence

from texpr.grammar.ast import Buffer, Gather, Kernel
from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.grammar.index.linear import Linear, constant
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope, extend, normal, relation
from texpr.polyhedral.facts import Facts, build_facts, sizes_in
from texpr.polyhedral.model.delinearize import FlatAccess, Refusal, Split, delinearize, show
from texpr.polyhedral.model.lift import AccessDraft, BufferDraft, StatementDraft, lift, not_affine
from texpr.polyhedral.program import Access, Program, ProgramBuffer, ProgramStatement

MAX_ACCESSES = 3_000  # of one kernel


def build_program(kernel: Kernel, steps: int = isl.TOTAL, *, beside: Program | None = None) -> Program:
    """The polyhedral model of a kernel, whose proofs may take so many steps; `beside` another program of its
    compilation they take of the same ones. E0306, E0307 and E0308 as the module says."""
    return _Model(kernel, isl.Work(steps) if beside is None else beside.work.beside()).build()


class _Model:
    def __init__(self, kernel: Kernel, work: isl.Work) -> None:
        self.kernel = kernel
        self.work = work
        self.facts = build_facts(kernel, self.work)
        self.diagnostics: list[Diagnostic] = []

    def build(self) -> Program:
        drafts = lift(self.kernel, self.work, self.facts, self.diagnostics)
        self.stop_on_errors()
        uses: dict[str, list[tuple[StatementDraft, AccessDraft]]] = {b.name: [] for b in self.kernel.buffers}
        count = 0
        for draft in drafts.statements:
            for access in draft.accesses:
                uses[access.buffer].append((draft, access))
                count += 1
        if count > MAX_ACCESSES:
            raise TExprError([_too_many(self.kernel, count)])
        relations: dict[int, isl.Map] = {}
        buffers: dict[str, ProgramBuffer] = {}
        for buffer in self.kernel.buffers:
            home = drafts.buffers.get(buffer.name)
            if home is None:
                continue  # a local of an intrinsic's hardware body, which its reference stands for
            try:
                buffers[buffer.name] = self.place(buffer, home, uses[buffer.name], relations)
            except TExprError as limit:
                self.diagnostics += limit.diagnostics
        self.stop_on_errors()
        statements = tuple(_statement(draft, self.facts, relations) for draft in drafts.statements)
        return Program(kernel=self.kernel, work=self.work, facts=self.facts, statements=statements, buffers=buffers)

    def stop_on_errors(self) -> None:
        if self.diagnostics:
            raise TExprError(sorted(self.diagnostics, key=_text_order))

    def place(
        self,
        buffer: Buffer,
        home: BufferDraft,
        uses: list[tuple[StatementDraft, AccessDraft]],
        relations: dict[int, isl.Map],
    ) -> ProgramBuffer:
        """The elements of a buffer, and the relation of every access to it (entered in `relations` by identity)."""
        shape, reason = self.shape(buffer)
        refused = len(self.diagnostics)
        split = self.split(buffer, uses) if len(buffer.shape) == 1 else None
        if len(self.diagnostics) == refused and reason is not None and buffer.flat and split is None and uses:
            why = type(reason)(f"the length of {_name(buffer)} follows from it")
            self.refuse(uses[0][1].span, why, "this subscript")
        if len(self.diagnostics) > refused or (shape is None and (split is None or not buffer.flat)):
            return ProgramBuffer(buffer=buffer, outer=(), elements=self.facts.known(home.domain))
        named = self.named(buffer, uses)
        for number, (draft, access) in enumerate(uses):
            parts = split.parts[number] if split is not None else None
            try:
                with self.work.limited(access.span, "this subscript", draft.scope.width, isl.BUILDING):
                    reached = _relation(draft, access, home.scope.indices, parts)
                    relations[id(access)] = self.facts.known(reached, named)
            except NotAffineError as why:
                self.refuse(access.span, why, "this subscript")
        ranges = [relations[id(access)].range() for _, access in uses if id(access) in relations]
        with self.work.limited(buffer.span, f"the elements of {_name(buffer)}", home.scope.width, isl.BUILDING):
            elements = self.facts.known(self.elements(buffer, home, shape, split, ranges), named)
        for _, access in uses:
            found = relations.get(id(access))
            if found is not None and access.gathered:
                positions = [k for k, subscript in enumerate(access.subscripts) if isinstance(subscript, Gather)]
                with self.work.limited(access.span, "this subscript", home.scope.width, isl.BUILDING):
                    box = self.facts.known(self.box(buffer, home, shape or (), positions), named)
                    relations[id(access)] = found.intersect_range(box)
        strides = tuple(stride.expression(split.basis) for stride in split.strides) if split is not None else ()
        return ProgramBuffer(buffer=buffer, outer=home.scope.indices, elements=elements, flat_strides=strides)

    def named(self, buffer: Buffer, uses: list[tuple[StatementDraft, AccessDraft]]) -> set[str]:
        """The sizes that a buffer's shape and subscripts name, where not all sizes are together anyway."""
        if self.facts.together:
            return set()
        subscripts = [s for _, access in uses for s in access.subscripts if not isinstance(s, Gather)]
        return sizes_in([*buffer.shape, *subscripts])

    def shape(self, buffer: Buffer) -> tuple[tuple[Linear, ...] | None, NotAffineError | None]:
        """The extents; None and the reason when one is not quasi-affine, which is an error but for the inferred length
        of a `flat` buffer: where its subscripts are split, its rows follow from them."""
        try:
            return tuple(normal(extent) for extent in buffer.shape), None
        except NotAffineError as reason:
            if not buffer.flat:
                self.refuse(buffer.span, reason, f"the shape of {_name(buffer)}")
            return None, reason

    def split(self, buffer: Buffer, uses: list[tuple[StatementDraft, AccessDraft]]) -> Split | None:
        """The split of a buffer of one dimension, where its subscripts have one; refusals are reported."""
        flat = []
        named = self.named(buffer, uses)
        for draft, access in uses:
            (subscript,) = access.subscripts
            with self.work.limited(access.span, "this subscript", draft.scope.width, isl.BUILDING):
                domain = self.facts.known(access.domain, named)
            if isinstance(subscript, Gather):
                return None
            try:
                form = normal(subscript)
            except NotAffineError:
                return None
            flat.append(FlatAccess(scope=draft.scope, domain=domain, subscript=form, span=access.span))
        result = delinearize(flat)
        match result:
            case Refusal(access=refused, reason=reason):
                self.diagnostics.append(
                    error(
                        "E0306",
                        f"this subscript of {_name(buffer)} cannot be split into dimensions while sizes are free",
                        refused.span,
                        reason,
                        help="bind the sizes, or declare the buffer with several dimensions",
                    )
                )
                return None
            case _:
                return result

    def elements(
        self,
        buffer: Buffer,
        home: BufferDraft,
        shape: tuple[Linear, ...] | None,
        split: Split | None,
        ranges: list[isl.Set],
    ) -> isl.Set:
        if split is None:
            return self.box(buffer, home, shape or (), range(len(buffer.shape)))
        scope, coordinates = self.coordinates(home, len(split.strides))
        box = extend(home.domain, scope)
        try:
            box = box.intersect(self.split_box(buffer, scope, coordinates, shape[0] if shape else None, split, ranges))
        except NotAffineError as reason:
            self.refuse(buffer.span, reason, f"the shape of {_name(buffer)}")
        return box.set_tuple_name(buffer.name).coalesce()

    def coordinates(self, home: BufferDraft, rank: int) -> tuple[Scope, list[isl.PwAff]]:
        """A scope of the indices around a buffer and of its coordinates."""
        names = tuple(_fresh([f"d{k}" for k in range(rank)], home.scope))
        scope = Scope(home.scope.sizes, (*home.scope.indices, *names), self.work)
        return scope, [scope.index(name) for name in names]

    def box(self, buffer: Buffer, home: BufferDraft, shape: tuple[Linear, ...], positions: Sequence[int]) -> isl.Set:
        """The points of a buffer's space whose coordinates at `positions` are within its extents; the others are free,
        also where a dimension has no elements."""
        scope, coordinates = self.coordinates(home, len(buffer.shape))
        box = extend(home.domain, scope)
        try:
            for position in positions if shape else ():
                box = box.intersect(scope.below(coordinates[position], scope.form(shape[position])))
        except NotAffineError as reason:
            self.refuse(buffer.span, reason, f"the shape of {_name(buffer)}")
        return box.set_tuple_name(buffer.name).coalesce()

    def split_box(
        self,
        buffer: Buffer,
        scope: Scope,
        coordinates: list[isl.PwAff],
        length: Linear | None,
        split: Split,
        ranges: list[isl.Set],
    ) -> isl.Set:
        box = isl.Set.universe(scope.space)
        for level, coordinate in enumerate(coordinates[1:], 1):
            box = box.intersect(scope.below(coordinate, scope.form(split.ratio(level))))
        if length is None:
            return box.intersect(_rows(scope, len(scope.indices) - len(coordinates), ranges))
        rows = split.rows(length)
        if rows is not None:
            return box.intersect(scope.below(coordinates[0], scope.form(rows)))
        if any(stride.sizes for stride in split.strides):
            self.diagnostics.append(
                error(
                    "E0306",
                    f"the length of {_name(buffer)} is not a whole number of rows while sizes are free",
                    buffer.span,
                    f"{show(length)} is not divided by {show(split.strides[0].form)}",
                    help="bind the sizes, or declare the buffer with several dimensions",
                )
            )
            return box
        flat = scope.form(constant(0))
        for stride, coordinate in zip(split.strides, coordinates, strict=True):
            flat = flat.add(coordinate.scale_val(isl.Val.int_from_si(self.work.context, stride.factor)))
        return box.intersect(scope.below(flat, scope.form(length)))

    def refuse(self, span: Span, reason: NotAffineError, what: str) -> None:
        self.diagnostics.append(not_affine(span, reason, what))


def _relation(
    draft: StatementDraft, access: AccessDraft, outer: tuple[str, ...], parts: tuple[Linear, ...] | None
) -> isl.Map:
    """An access as a relation; a gathered dimension has no bounds yet. NotAffineError says why there is none."""
    values: list[isl.PwAff | None] = [draft.scope.index(name) for name in outer]
    if parts is not None:
        values += [draft.scope.form(part) for part in parts]
    else:
        values += [None if isinstance(s, Gather) else draft.scope.value(s) for s in access.subscripts]
    reached = relation(access.domain, values)
    return reached.set_tuple_name(isl.dim_type.in_, draft.id).set_tuple_name(isl.dim_type.out, access.buffer)


def _statement(draft: StatementDraft, facts: Facts, relations: Mapping[int, isl.Map]) -> ProgramStatement:
    with draft.scope.work.limited(draft.leaf.span, "this statement", draft.scope.width, isl.BUILDING):
        domain = facts.known(draft.domain).set_tuple_name(draft.id)
    accesses = tuple(
        Access(
            statement=draft.id,
            number=number,
            buffer=access.buffer,
            mode=access.mode,
            op=access.op,
            relation=relations[id(access)],
            must=access.must and not access.gathered and not draft.guards,
            subscripts=access.subscripts,
            span=access.span,
        )
        for number, access in enumerate(draft.accesses)
    )
    return ProgramStatement(
        id=draft.id,
        leaf=draft.leaf,
        loops=draft.loops,
        domain=domain,
        accesses=accesses,
        position=draft.position,
        guards=draft.guards,
    )


def _rows(scope: Scope, place: int, ranges: list[isl.Set]) -> isl.Set:
    """The points of `scope` whose coordinate `place` is from 0 to the greatest that some range has there."""
    result = isl.Set.empty(scope.space)
    for reached in ranges:
        rank = reached.dim(isl.dim_type.set)
        top = reached.project_out(isl.dim_type.set, place + 1, rank - place - 1).project_out(isl.dim_type.set, 0, place)
        top = top.reset_tuple_id().insert_dims(isl.dim_type.set, 0, place)
        top = top.add_dims(isl.dim_type.set, rank - place - 1)
        below = isl.Map.universe(scope.space.map_from_set()).order_ge(isl.dim_type.in_, place, isl.dim_type.out, place)
        below = below.lower_bound_val(isl.dim_type.out, place, 0)
        result = result.union(top.apply(below))
    return result.coalesce()


def _fresh(names: list[str], scope: Scope) -> Iterator[str]:
    """The names, primed until they differ from every size and index."""
    taken = {*scope.sizes, *scope.indices}
    for name in names:
        while name in taken:
            name += "_"
        yield name


def _name(buffer: Buffer) -> str:
    return buffer.source_name or buffer.name


def _too_many(kernel: Kernel, count: int) -> Diagnostic:
    return error(
        "E0307",
        f"`{kernel.name}` has {count} accesses, and {MAX_ACCESSES} are the most that are proved at once",
        kernel.span,
        help="split the kernel, or replace unrolled statements by loops",
    )


def _text_order(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.primary.span if diagnostic.primary else None
    return (span.start, span.end) if span is not None else (0, 0)
