"""Reading the loops of a band: extents, ranges, indices, attributes."""

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr, IndexConst, IndexExpr, IndexVar
from texpr.grammar.attributes import Place, check_attributes
from texpr.grammar.check.indices import INDEX_CALLS, INDEX_OPERATORS
from texpr.grammar.check.scope import IndexName, RefusedError
from texpr.grammar.check.views import ViewReader
from texpr.grammar.index.expr import add, size_names, substitute, subtract
from texpr.grammar.source import Span

Loop = tuple[str, str, IndexExpr, Span, IndexExpr]  # core index, the author's word, extent, span, low


class LoopReader(ViewReader):
    """Reads the loops of a band and their attributes."""

    def open_loops(self, dims: tuple[syntax.Dim, ...]) -> list[Loop]:
        """Enter the indices of a band into the scope; a refused extent is reported and taken as 1."""
        return [self._open(dim) for dim in dims]

    def _open(self, dim: syntax.Dim) -> Loop:
        low: IndexExpr = IndexConst(value=0)
        try:
            if isinstance(dim.extent, syntax.Range):
                low = self.index(dim.extent.low, "the extent")
                high = self.index(dim.extent.high, "the extent")
                extent = subtract(high, low, dim.extent.span)
                self.check_divisions(dim.extent.low)
                self.check_divisions(dim.extent.high)
            else:
                extent = self.index(dim.extent, "the extent")
                self.check_divisions(dim.extent)
        except RefusedError as refused:
            self.report(refused)
            extent = IndexConst(value=1)
        index = self.fresh(dim.index)
        span = dim.index_span if dim.index_span.source.text else dim.span
        variable = IndexVar(name=index, span=span)
        self.define(dim.index, IndexName(index=add(variable, low, span), what="an index"), span)
        return index, dim.index, extent, dim.span, low

    def check_divisions(self, extent: syntax.Expr) -> None:
        """W0302 for a floor division of constants in an extent that leaves a remainder."""
        stack = [extent]
        while stack:
            e = stack.pop()
            if isinstance(e, syntax.Unary):
                stack.append(e.operand)
            elif isinstance(e, syntax.Call) and e.name in INDEX_CALLS:
                stack += [arg for arg in e.args if not isinstance(arg, syntax.Slice)]
            elif isinstance(e, syntax.Binary) and e.op in INDEX_OPERATORS:
                stack += [e.right, e.left]
                left, right = self.try_index(e.left), self.try_index(e.right)
                if e.op == "/" and left is not None and right is not None:
                    self._check_division(left, right, e.span)

    def _check_division(self, left: IndexExpr, right: IndexExpr, span: Span) -> None:
        a, b = self.with_defaults(left), self.with_defaults(right)
        if isinstance(a, IndexConst) and isinstance(b, IndexConst) and b.value > 0 and a.value % b.value:
            self.warn("W0302", missed_range(a.value, b.value), span, help=EXACT)

    def with_defaults(self, index: IndexExpr) -> IndexExpr:
        """The expression with the `size` constants and bound sizes replaced by their values."""
        values = {name: size.default for name, size in self.sizes.items() if size.default is not None}
        if not any(name in values for name in size_names(index)):
            return index

        def leaf(node: ast.IndexVar | ast.SizeVar) -> IndexExpr | None:
            value = values.get(node.name) if isinstance(node, ast.SizeVar) else None
            return None if value is None else IndexConst(value=value)

        return substitute(index, leaf)

    def attributes(self, attrs: tuple[syntax.Attr, ...], place: Place, dims: int = 1) -> tuple[Attr, ...]:
        """The core attributes of a construct; a refused one is reported and left out."""
        try:
            return check_attributes(attrs, place, lambda e: self.index(e, "an argument"), dims)
        except RefusedError as refused:
            self.report(refused)
            return ()

    def loop_attributes(self, attrs: tuple[syntax.Attr, ...], dims: int) -> tuple[Attr, ...]:
        return self.attributes(attrs, Place.SEQ, dims)


EXACT = "write ceildiv(…) and guard the last part, or state the divisibility"


def missed_range(value: int, divisor: int) -> str:
    """The sentence of W0302 for `value / divisor`."""
    covered = value // divisor * divisor
    which = f"{covered}" if covered == value - 1 else f"{covered} to {value - 1}"
    return f"{value} / {divisor} floors: {which} of {value} are missed"
