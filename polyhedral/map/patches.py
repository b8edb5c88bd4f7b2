"""Patches: neighbouring iterations of two indices that a thread takes at once, with its windows of what they read.

    par 1..M-1 i, 1..N-1 j { Y[i, j] = X[i - 1, j] + X[i, j - 1] + X[i, j + 1] + X[i + 1, j] }   4 of j, 2 of i

    if all of it there is           copy X_window[row, 4 * chunk + e] = X[i_first + row, …] for chunk < 3, e < 4
    else                            each row that there is, in so far as iterations read it, else 0
    for i_row < 2
      i = i_first + i_row
      if i < M - 2                  a run of j, whose reads are X_window[i_row + …, j_vector + …]

The loads of all rows come first and are on their way together; a row is loaded once for all iterations that read it.
"""

from collections.abc import Iterator, Mapping

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexVar, Par
from texpr.grammar.index.expr import ONE, ZERO, add, conjunction, const, constant_value, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.extent import ends as lowest_and_highest
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.runs import Line, in_run, make_run, nothing, through
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.vectors import Element, along, at_places, plain_subscripts
from texpr.polyhedral.map.windows import Patch, Window
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.names import stem

Places = Mapping[str, IndexExpr]


def of_patch(
    draft: Draft, nest: Nest, patch: Patch, digits: tuple[str, ...], lead: str, origin: Element | None
) -> tuple[tuple[Node, ...], dict[str, str]]:
    """What a thread does with its patch, and under which name it has the first iteration of an index. Runs are counted
    from a line of the `origin`, `lead` elements before the first iteration of a row; '' where from the first one."""
    pars = {par.index: par for par in nest.pars}
    along_row, fresh = pars[patch.index], draft.names.fresh
    line = Line(lead=lead) if lead else None
    run = make_run(draft, patch.index, along_row.extent, patch.count, along_row.span, line)
    names = {patch.index: fresh(f"{stem(patch.index)}_start") if patch.skew.pitch else run.first}
    names |= {patch.down: fresh(f"{stem(patch.down)}_first")} if patch.down else {}
    windows = Windows(draft, nest, patch, {index: IndexVar(name=name) for index, name in names.items()}, digits)
    row = fresh(f"{stem(patch.down)}_row")
    number = IndexVar(name=row) if patch.down else ZERO
    others = along(draft.problem, nest.body, patch.index, nest.indices, windows.elements, origin).vectors(patch.count)
    body = Body(draft, hardware=nest.indices, digits=digits).nodes(nest.body)
    body = in_run(draft, run, others, windows.read(body, run.vector.name, number), digits)
    if patch.skew.pitch:
        begin = subtract(IndexVar(name=names[patch.index]), patch.skew.expression(number))
        body = (Define(index=run.first, digits=(), offset=begin), *body)
    if patch.down:
        body = (_in_rows(draft, pars[patch.down], patch, row, names[patch.down], body),)
    body = (*windows.loads(), *body)
    some = _some(patch, along_row, IndexVar(name=names[patch.index])) if line is not None else ()
    if some:
        body = (Guard(condition=conjunction(some), body=body, padding=True, span=along_row.span),)
    return body, names


def _some(patch: Patch, par: Par, first: IndexExpr) -> tuple[Condition, ...]:
    """What says that a thread whose runs are counted from a line has an iteration, or is before the first one."""
    last = add(par.extent, const(max(map(patch.skew.at, range(patch.rows)))))
    any_ = Compare(op=CompareOp.LT, left=ZERO, right=par.extent)
    here = Compare(op=CompareOp.LT, left=first, right=last)
    return (here,) if (constant_value(par.extent) or 0) > 0 else (any_, here)


def _in_rows(draft: Draft, par: Par, patch: Patch, row: str, first: str, body: tuple[Node, ...]) -> Loop:
    """The body for each row that there is, from the first one on."""
    digit = Digit(name=row, index=patch.down, weight=1, radix=const(patch.rows), stride=ONE, place=Place.SERIAL)
    draft.digits.append(digit)
    known = constant_value(par.extent)
    if known is None or known % patch.rows:
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=patch.down), right=par.extent)
        body = (Guard(condition=inside, body=body, padding=True, span=par.span),)
    here = Define(index=patch.down, digits=(digit,), offset=IndexVar(name=first))
    return Loop(index=row, extent=digit.radix, body=(here, *body), digit=digit, unroll=True, span=par.span)


class Windows:
    """The windows of a thread's patch in registers. `first` is where its iterations begin, of both indices."""

    def __init__(self, draft: Draft, nest: Nest, patch: Patch, first: Places, digits: tuple[str, ...]) -> None:
        self.draft, self.patch, self.first, self.digits = draft, patch, first, digits
        self.pars = {par.index: par for par in nest.pars}
        self.registers = [self._register(window) for window in patch.windows]
        fresh = draft.names.fresh
        self.row, self.chunk, self.element = (fresh(f"{stem(patch.index)}_{w}") for w in ("line", "chunk", "element"))

    @property
    def elements(self) -> tuple[Element, ...]:
        """The reads that are in windows."""
        return tuple(element for window in self.patch.windows for element in window.shifts)

    def _register(self, window: Window) -> str:
        name, layout = window.base[0], row_major((const(window.rows), const(window.chunks * window.width)))
        reads = f"{len(window.shifts)} reads of it" if len(window.shifts) > 1 else "a read of it"
        reason = f"what {reads} have of {name}, in aligned chunks of {window.width}"
        return self.draft.local(f"{name}_window", window.dtype, Memory.REG, layout, reason, span=window.first.span)

    def loads(self) -> tuple[Node, ...]:
        """All rows of all windows; nothing is asked where the whole patch is inside."""
        ends = self._around()
        plain = tuple(self._load(*pair, around=bool(ends)) for pair in self._pairs())
        cut = tuple(self._load(*pair, cut=True) for pair in self._pairs())
        span = self.pars[self.patch.index].span
        condition = conjunction((*(ends or self._columns()), *self._rows()))
        whole = Guard(condition=condition, body=plain, orelse=cut, padding=True, span=span)
        return (*(Fresh(buffer=name) for name in self.registers), whole)

    def _pairs(self) -> Iterator[tuple[Window, str]]:
        yield from zip(self.patch.windows, self.registers, strict=True)

    def read(self, body: tuple[Node, ...], vector: str, row: IndexExpr) -> tuple[Node, ...]:
        """The body of an iteration with registers in place of what is in windows, in the `row` of the patch."""
        held: dict[Element, Element] = {}
        for window, register in self._pairs():
            own = row if window.moves else ZERO
            for element, (down, aside) in window.shifts.items():
                there = add(own, const(down - window.above))
                shift = subtract(window.steps.expression(there), self.patch.skew.expression(row))
                place = add(add(IndexVar(name=vector), shift), const(aside - window.before * window.width))
                held[element] = (register, (there, place))
        return through(body, held)

    def _column(self, window: Window, row: IndexExpr) -> IndexExpr:
        """The column of the first element of a row, counted as the index of the patch is."""
        begin = subtract(self.first[self.patch.index], window.steps.expression(row))
        return add(begin, const(window.before * window.width))

    def _around(self) -> tuple[Condition, ...]:
        """Where all chunks lie in their arrays, though they may have what no iteration reads: but for the first and the
        last threads that is so, and no warp at the end of a row does both (jacobi of 32749 x 4093 in bf16 on an H200:
        .949 of a copy, .943 where rows' ends were asked). None where rows may lie the other way round."""
        ends = list[Condition]()
        for window in self.patch.windows:
            layout = self.draft.problem.layouts[window.base[0]]
            follows = linear(subtract(self._place(window, 1), self._place(window, 0))).is_nonnegative()
            if layout.xor is not None or lowest_and_highest(layout)[0] != ZERO or not (window.rows == 1 or follows):
                return ()
            last, chunks = self._place(window, window.rows - 1, aligned=True), const(window.chunks * window.width)
            ends.append(Compare(op=CompareOp.LE, left=ZERO, right=self._place(window, 0, aligned=True)))
            ends.append(Compare(op=CompareOp.LE, left=add(last, chunks), right=extent(layout)))
        return tuple(dict.fromkeys(ends))

    def _place(self, window: Window, row: int, *, aligned: bool = False) -> IndexExpr:
        """Where in its array the base of a row lies, or its first chunk."""
        patch = self.patch
        places = {patch.index: self._column(window, const(row)) if aligned else self.first[patch.index]}
        if window.moves:
            places[patch.down] = add(self.first[patch.down], const(row + window.above))
        name, subscripts = window.base
        return offset(self.draft.problem.layouts[name], plain_subscripts(at_places(subscripts, places)))

    def _columns(self) -> tuple[Condition, ...]:
        """Where every row has only columns that iterations read."""
        patch, ends = self.patch, list[Condition]()
        iterations = self.pars[patch.index].extent
        first = self.first[patch.index]
        for window in patch.windows:
            least, most = window.columns
            steps = [window.steps.at(row) for row in range(window.rows)]
            begin = window.before * window.width - max(steps) - least
            end = (window.before + window.chunks) * window.width - min(steps) - most
            ends.append(Compare(op=CompareOp.LE, left=const(-begin), right=first))
            ends.append(Compare(op=CompareOp.LE, left=add(first, const(end)), right=iterations))
        return tuple(dict.fromkeys(ends))

    def _rows(self) -> tuple[Condition, ...]:
        """Where there are all rows of iterations."""
        if self.patch.rows == 1:
            return ()
        last = add(self.first[self.patch.down], const(self.patch.rows))
        return (Compare(op=CompareOp.LE, left=last, right=self.pars[self.patch.down].extent),)

    def _load(self, window: Window, register: str, *, cut: bool = False, around: bool = False) -> Node:
        """Every row of a window, in chunks: only what iterations read where it is `cut`, also what is `around` it where
        the array has it."""
        patch, span = self.patch, window.first.span
        row = IndexVar(name=self.row) if window.rows > 1 else ZERO
        chunk = multiply(const(window.width), IndexVar(name=self.chunk)) if window.chunks > 1 else ZERO
        element, begin = IndexVar(name=self.element), add(self._column(window, row), chunk)
        places = {patch.index: add(begin, element)}
        if window.moves:
            places[patch.down] = add(self.first[patch.down], add(row, const(window.above)))
        copy = Copy(
            id=self.draft.names.fresh(f"{getattr(window.first, 'id', patch.index)}_window"),
            source=View(buffer=window.base[0], subscripts=at_places(window.base[1], places), dtype=window.dtype),
            target=View(buffer=register, subscripts=(row, add(chunk, element)), dtype=window.dtype),
            over=(
                *([(self.chunk, const(window.chunks))] if window.chunks > 1 else []),
                (self.element, const(window.width)),
            ),
            within=self._within(window, begin, around) if cut or around else None,
            access=Access.ALIGNED,
            digits=self.digits,
            span=span,
        )
        body: tuple[Node, ...] = (copy,)
        if cut and window.moves and patch.rows > 1:
            there = add(self.first[patch.down], subtract(row, const(window.spread)))
            read = Compare(op=CompareOp.LT, left=there, right=self.pars[patch.down].extent)
            body = (Guard(condition=read, body=body, padding=True, span=span),)
        return (
            Loop(index=self.row, extent=const(window.rows), body=body, unroll=True, span=span)
            if row != ZERO
            else body[0]
        )

    def _within(self, window: Window, begin: IndexExpr, around: bool) -> Within:
        """What iterations read of a chunk that begins in this column."""
        (least, most), iterations = window.columns, self.pars[self.patch.index].extent
        end = subtract(add(iterations, const(most)), begin)
        other = nothing(window.dtype, window.first.span)  # an iteration that there is reads no such element
        return Within(begin=subtract(const(least), begin), end=end, other=other, unseen=True, around=around)
