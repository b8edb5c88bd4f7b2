"""Where the text of a kernel has come to: its lines, the terms that are in scope, the part and loops around.

Hardware coordinates are named once, at the top. Digits are not named: they stand in the values of indices, and an
index that has the value of another of its name (`i` of two sibling bands) is that one.

    const int lane = tx::lane();
    const int i = 32 * tx::block_x() + lane;
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.digits import digit_value
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.stand import Stand, coordinates
from texpr.grammar.ast import Condition, IndexExpr
from texpr.grammar.index.expr import names, substitute
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.names import stem


class Cursor:
    """Mutable; `nested` puts back what was in scope."""

    def __init__(self, frame: Frame, out: Lines) -> None:
        self.frame, self.launch, self.out = frame, frame.launch, out
        self.scope = frame.scope
        self.equal: dict[tuple[str, str], ix.Term] = {}
        self.stepping: dict[str, IndexExpr] = {}  # values of names that count with loops that are unrolled
        named = {
            place: self._named(name, value)
            for place, (name, value) in coordinates(self.launch, frame.warp_size).items()
        }
        warps = -(-self.launch.threads // frame.warp_size)
        self.stand = Stand(warps=warps, warp_size=frame.warp_size, named=named)

    @contextmanager
    def nested(self, **changes: Any) -> Iterator[None]:
        """A C++ block, in which the stand has these fields."""
        scope, stand, equal, stepping = self.scope, self.stand, self.equal, self.stepping
        self.stand, self.equal, self.stepping = replace(stand, **changes), dict(equal), dict(stepping)
        yield
        self.scope, self.stand, self.equal, self.stepping = scope, stand, equal, stepping

    def know(self, name: str, term: ix.Term) -> None:
        """A name of the program is this term from here on."""
        self.scope = ix.IndexScope({**self.scope.indices, name: term}, self.scope.sizes)

    def number_blocks(self, turn: ix.Term) -> None:
        """Blocks along x have the numbers of their turns."""
        block = self._named("block", turn)
        self.stand = replace(self.stand, named={**self.stand.named, Place.GRID_X: block})

    def know_digits(self, digits: Iterable[Digit]) -> None:
        """The digits of hardware places: coordinate / stride % radix."""
        known = dict(self.scope.indices)
        for digit in digits:
            known[digit.name] = digit_value(digit, self.launch, self.scope, self.stand)
        self.scope = ix.IndexScope(known, self.scope.sizes)

    def declare(self, name: str, value: ix.Term) -> None:
        """`const int NAME = value;`, and the name is known from here on. A single value needs no variable, nor does
        that of another variable of this name, or what has this name already."""
        if value.low == value.high:
            self.know(name, ix.constant(value.low))
            return
        key = (stem(name), value.text)
        if key[0] == key[1]:
            self.know(name, value)
            return
        if key not in self.equal:
            self.equal[key] = self._named(name, value)
        self.know(name, self.equal[key])

    def define(self, name: str, value: IndexExpr) -> None:
        """The index has this value from here on, whose names are known."""
        self.declare(name, self.term(value))
        known = self.written_out(value)
        if names(known) & self.stand.unrolled:
            self.stepping[name] = known
        else:
            self.stepping.pop(name, None)

    def written_out(self, expr: IndexExpr) -> IndexExpr:
        """The same without the names that count with loops that are unrolled, but for their indices."""
        return substitute(expr, lambda index: self.stepping.get(index.name)) if self.stepping else expr

    def _named(self, name: str, value: ix.Term) -> ix.Term:
        own = self.frame.names.new(name)
        self.out.declare(own, "tx::i64" if value.wide else "int", value)
        return ix.variable(own, value.low, value.high, wide=value.wide)

    def term(self, expr: IndexExpr | Condition) -> ix.Term:
        """The term of an expression here."""
        return ix.term(expr, self.scope)

    def number(self, expr: IndexExpr | Condition) -> ix.Term:
        """The term of an expression that the text uses."""
        term = self.term(expr)
        self.out.use(term)
        return term
