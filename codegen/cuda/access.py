"""Elements in the text: accessors with the program's subscripts, and numbers of elements for wide accesses.

A[i, k]                                  A(i, k)
the same in the slot of a pipe           A(ring.read(), i, k)
A[idx[i], k], read from data             A(tx::gathered<int>(idx(i), 16), k)
for an instruction on many elements      A, i * 24 + k
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.cursor import Cursor
from texpr.codegen.cuda.expr import Surroundings, Value, emit_value
from texpr.codegen.cuda.held import register
from texpr.codegen.cuda.literals import value_type
from texpr.codegen.cuda.tiles import check_corner
from texpr.grammar.ast import Gather, IndexBinary, IndexOp, IndexVar, Read, Subscript
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ZERO, const, multiply, names
from texpr.grammar.index.linear import linear, rejoined
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.walk import walk
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.mapped.places import Memory, Place
from texpr.polyhedral.mapped.views import View

CHUNK_WORDS = 4  # of 4 bytes in 16
SEVERAL_LOOPS = {(Memory.GLOBAL, False): 2, (Memory.GLOBAL, True): 2, (Memory.SHARED, False): 1}
"""In how many unrolled loops an access stands so often that the sum of each takes NVRTC a tenth of its time, by memory
and whether it writes. Stores to shared memory have each their own: by one address some kernels take 18 % longer."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element as the text names it; one of another block's memory by an accessor alone, and `where` it is there."""

    value: Value
    where: str = ""

    @property
    def remote(self) -> bool:
        """Whether it lies in another block's memory."""
        return bool(self.where)


class Access:
    """The elements that the text at a cursor names. `touched` is set where one is named that lies in memory. Loads at
    any address begin in the `word` of that name, where there is one."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor, self.frame, self.out = cursor, cursor.frame, cursor.out
        self.tensors = self.frame.tensors
        self.touched = False
        self.span = NO_SPAN
        self.word = ""

    def around(self, *, strict: bool, fast: bool = False, below: bool = False) -> Surroundings:
        """What value trees need of the kernel here."""
        scope = self.cursor.scope
        temporary = self._temporary
        return Surroundings(scope=scope, read=self.read, strict=strict, temporary=temporary, fast=fast, below=below)

    @property
    def shifted(self) -> str:
        """The call that makes one access of two chunks."""
        return f".in_word({self.word}).shifted()" if self.word else ".shifted()"

    @contextmanager
    def in_word(self, word: View | None) -> Iterator[None]:
        """The block of what stands for each word of a chunk, where loads at any address begin in that of an element."""
        if word is None:
            yield
            return
        mine, name = self.frame.names.new("past"), self.frame.names.new("word")
        self.word = name
        array, where = self.place(word.buffer, word.subscripts, writes=False)
        self.out.line(f"const int {mine} = tx::word_past({array}, {where.text});")
        each = f"TX_UNROLL for (int {name} = 0; {name} < {CHUNK_WORDS}; ++{name})"
        with self.out.block(each), self.out.block(f"if ({name} == {mine})"):
            yield
        self.word = ""

    def begin(self, span: Span) -> None:
        """A line that comes from there is about to be made."""
        self.touched, self.span = False, span

    @property
    def at(self) -> Span | None:
        """Where the line comes from, if it touches memory."""
        return self.span if self.touched else None

    def _temporary(self, value: Value) -> str:
        name = self.frame.names.new("t")
        self.out.declare(name, value_type(value.dtype), value, self.at)
        return name

    def read(self, read: Read, gathered: tuple[Value, ...]) -> Value:
        """The value of an element."""
        tensor = self.tensors[read.buffer]
        if tensor.scalar:
            text = f"tx::decode({tensor.name})" if tensor.dtype.is_bool else tensor.name
            return Value(text, ix.ATOM, read.dtype, names=frozenset({tensor.name}))
        element = self.element(read.buffer, read.subscripts, gathered, writes=False)
        if element.remote:
            return replace(element.value, text=f"{element.value.text}.load({element.where})")
        return element.value

    def element(
        self,
        name: str,
        subscripts: tuple[Subscript, ...],
        gathered: tuple[Value, ...] | None = None,
        *,
        writes: bool,
    ) -> Element:
        """An element as the text names it. `gathered` has the values of the subscripts that are data, in order, where
        they are known already."""
        tensor = self.tensors[name]
        if tensor.variable is not None and tensor.variable.scalar:
            return Element(Value(tensor.name, ix.ATOM, tensor.dtype))
        if not tensor.steps:
            own, where = self.place(name, subscripts, gathered, writes=writes)
            if own != tensor.name:
                return Element(Value(own, ix.ATOM, tensor.dtype, names=where.names), where.text)
            return Element(Value(f"{own}({where.text})", ix.ATOM, tensor.dtype, names=where.names))
        self.touched = True
        slot = self.frame.slot(name, writes=writes)
        parts = [] if slot is None else [slot]
        parts += self._subscripts(tensor.layout, subscripts, self._gathered(subscripts, gathered))
        names = frozenset[str]().union(*(part.names for part in parts))
        return Element(Value(f"{tensor.name}({', '.join(p.text for p in parts)})", ix.ATOM, tensor.dtype, names=names))

    def _gathered(self, subscripts: tuple[Subscript, ...], known: tuple[Value, ...] | None) -> tuple[Value, ...]:
        """The values of the subscripts that are data, in order."""
        if known is not None:
            return known
        around = self.around(strict=True)
        return tuple(emit_value(s.value, around) for s in subscripts if isinstance(s, Gather))

    def place(
        self,
        name: str,
        subscripts: tuple[Subscript, ...],
        gathered: tuple[Value, ...] | None = None,
        *,
        writes: bool,
        mixed: bool = True,
    ) -> tuple[str, ix.Term]:
        """The accessor of an element and its number there: in the slot that a pipe is at, in another rank's memory. The
        names of both are those of the second. `gathered` as in `element`."""
        self.touched = True
        own, layout, names = self.tensors[name].name, self.tensors[name].layout, frozenset[str]()
        scope, span = self.cursor.scope, self.frame.launch.span
        if name in self.frame.accumulators:
            return own, register(layout, name, subscripts, self.cursor, self.span)
        if not {*layout.units} <= {Unit.ADDRESS, Unit.RANK}:
            raise fail("E0502", f"{name}: a layout over the threads of a block is not emitted", span)
        offset = self._whole_rows(layout, subscripts)
        if offset is None:
            parts = self._subscripts(layout, subscripts, self._gathered(subscripts, gathered))
            offset = ix.address(layout if mixed else replace(layout, xor=None), parts, scope)
        if Unit.RANK in layout.units:
            if isinstance(subscripts[0], Gather):
                raise fail("E0502", f"a rank of {name} that is read from data is not emitted", span)
            parts = self._subscripts(layout, subscripts, self._gathered(subscripts, gathered))
            rank = ix.coordinate(layout, Unit.RANK, parts, scope)
            mine = self.cursor.stand.named.get(Place.CLUSTER)
            if mine is None or rank.text != mine.text:
                own, names = f"tx::remote({own}, {rank.text})", rank.names
        slot = self.frame.slot(name, writes=writes)
        if slot is not None:
            offset = ix.add(ix.mul(slot, ix.constant(self.frame.stage_elements(name))), offset)
        return own, replace(offset, names=offset.names | names)

    def _whole_rows(self, layout: Layout, subscripts: tuple[Subscript, ...]) -> ix.Term | None:
        """The number of an element whose subscripts are quotient and remainder of one that walks over whole rows, one
        behind the other; None where they are not."""
        plain = [s for s in subscripts if not isinstance(s, Gather)]
        if len(plain) < len(subscripts) or layout.xor is not None or {*layout.units} != {Unit.ADDRESS}:
            return None
        if not any(isinstance(node, IndexBinary) and node.op is IndexOp.DIV for s in plain for node in walk(s)):
            return None
        told = linear(coordinate(layout, Unit.ADDRESS, plain))
        one = rejoined(told)
        return None if one == told else self.cursor.term(one.expression())

    def number(
        self, name: str, subscripts: tuple[Subscript, ...], *, writes: bool, mixed: bool = True
    ) -> tuple[str, str]:
        """The accessor of an element and its number there, for the next line; before the XOR where not `mixed`."""
        own, where = self.place(name, subscripts, writes=writes, mixed=mixed)
        return own, self.out.use(where)

    def apart(self, view: View, *, writes: bool) -> tuple[str, str]:
        """The same as a sum of two, of which the second has what is a number once loops are unrolled, where several of
        these make many accesses of one: what they have alike is one address, and each adds a number to it. That of a
        load from shared memory has the constants, too: products of 8 by 8 sums run up to 10 % faster so."""
        tensor, unrolled, plain = self.tensors[view.buffer], self.cursor.stand.unrolled, view.plain
        straight = tensor.layout.xor is None and {*tensor.layout.units} == {Unit.ADDRESS}
        memory = self.frame.buffer(view.buffer).memory
        several, in_shared = SEVERAL_LOOPS.get((memory, writes)), memory is Memory.SHARED
        if several is None or len(unrolled) < several or plain is None or not straight:
            return self.number(view.buffer, view.subscripts, writes=writes)
        first = linear(self.cursor.written_out(coordinate(tensor.layout, Unit.ADDRESS, plain)))
        behind = linear(ZERO)
        loops = sorted(unrolled & names(first.expression()))
        for name in loops:
            step = first.coefficient(name)
            if step is None:
                return self.number(view.buffer, view.subscripts, writes=writes)
            first, behind = first.without(name), behind + linear(multiply(const(step), IndexVar(name=name)))
        if in_shared:
            first, behind = first - first.constant, behind + first.constant
        parts = [self.cursor.term(form.expression()) for form in (first, behind)]
        if len(loops) < several or first.value is not None or parts[1].wide:
            return self.number(view.buffer, view.subscripts, writes=writes)
        self.touched = True
        return tensor.name, f"tx::apart({', '.join(map(self.out.use, parts))})"

    def room(self, name: str) -> str:
        """How many elements an array has room for, for the next line."""
        return self.out.use(self.cursor.term(extent(self.tensors[name].layout)))

    def value(self, view: View) -> str:
        """The value of the element of a view, for the next line."""
        return self.out.use(self.read(view.read(self.span), ()))

    def spot(self, view: View, writes: bool = False, outside: bool = False) -> str:
        """Where the element of a view lies, for a copy that begins there; it may be `outside` if nothing of it is
        taken."""
        own, where = self.place(view.buffer, view.subscripts, writes=writes)
        return f"{own}.{'maybe' if outside else 'at'}({self.out.use(where)})"

    def corner(self, view: View, writes: bool) -> tuple[str, str]:
        """The accessor and the number of the first element of a tile."""
        check_corner(self.tensors[view.buffer].layout, view, self.frame.launch.span)
        own, where = self.place(view.buffer, view.subscripts, writes=writes, mixed=False)
        return own, self.out.use(where)

    def _subscripts(
        self, layout: Layout, subscripts: tuple[Subscript, ...], gathered: tuple[Value, ...]
    ) -> list[ix.Term]:
        """The subscripts of an element; those that are read from data are checked."""
        values = iter(gathered)
        parts: list[ix.Term] = []
        for subscript, count in zip(subscripts, layout.shape, strict=True):
            if isinstance(subscript, Gather):
                limit = self.cursor.term(count)
                wide = not ix.fits_int(0, limit.high)
                kind = "tx::i64" if wide else "int"
                value = next(values)
                text = f"tx::gathered<{kind}>({value.text}, {limit.text})"
                names = value.names | limit.names
                parts.append(ix.Term(text, ix.ATOM, 0, max(limit.high - 1, 0), wide, names=names))
            else:
                parts.append(self.cursor.term(subscript))
        return parts
