"""Python expressions of a decorated function's body → expressions of the surface tree.

`/` is TExpr's own division: true on floats, floor on integers. `//` is the same floor division, and an error on
operands that are not known to be integers, so that it never means less than in Python. Every unsupported expression
is a diagnostic; a placeholder stands in its place and reading goes on, so that all errors of a function come at once.
"""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass

from texpr.grammar import syntax
from texpr.grammar.python.names import (
    LOOPS,
    REDUCTIONS,
    STATEMENT_WORDS,
    Constant,
    FnObject,
    Foreign,
    LibraryPath,
    TypeObject,
    Unknown,
    Word,
    is_identifier,
    literal,
)
from texpr.grammar.python.refused import REFUSED, read_before_given
from texpr.grammar.python.scope import FOREIGN_HELP, NAMED_EXTENTS, Binding, ScopeReader, instead_of, is_attribute

BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
CALLED: dict[type[ast.operator], str] = {
    ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl",
    ast.RShift: "shr",
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopHead:
    """`for i, j in par("M", "N", "#tile(8, 8)")`, without its body."""

    word: str
    dims: tuple[syntax.Dim, ...]
    attrs: tuple[syntax.Attr, ...]


class ExpressionReader(ScopeReader):
    """Reads the expressions and loop heads of one function."""

    # ---- expressions ----

    def expression(self, node: ast.expr) -> syntax.Expr:
        """One expression; on an error the diagnostic is kept and a placeholder returned."""
        span = self.span(node)
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.UnaryOp(op=ast.USub()):
                return syntax.Unary(op="-", operand=self.expression(node.operand), span=span)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.expression(node.operand)
            case ast.UnaryOp(op=ast.Not()):
                return syntax.Unary(op="not", operand=self.expression(node.operand), span=span)
            case ast.UnaryOp():
                self.expression(node.operand)
                self.refuse("E0105", "`~` has no meaning in TExpr", node, "write bitxor(x, -1)")
                return self.placeholder(node)
            case ast.BinOp():
                return self._binary(node)
            case ast.BoolOp():
                op = "and" if isinstance(node.op, ast.And) else "or"
                first = self.expression(node.values[0])
                for part in map(self._unsure, node.values[1:]):
                    first = syntax.Binary(op=op, left=first, right=part, span=first.span.to(part.span))
                return first
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                parts = (self.expression(node.test), self._unsure(node.body), self._unsure(node.orelse))
                return syntax.Call(name="select", args=parts, span=span)
            case ast.Subscript():
                return self.view(node)
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr() if self.lets is not None:
                value = self.expression(node.value)
                name, place = node.target.id, self.span(node.target)
                self.declare(name, Binding("let", self.is_integer(value), place))
                self.lets.append(syntax.Let(name=name, value=value, span=span))
                return syntax.Name(name=name, span=place)
            case _:
                what, help = REFUSED.get(type(node), ("this expression", FOREIGN_HELP))
                self.refuse("E0105", f"{what} has no meaning in TExpr", node, help)
                return self.placeholder(node)

    def _unsure(self, node: ast.expr) -> syntax.Expr:
        """An expression that is not always evaluated: no `:=` stands in it."""
        before, self.lets = self.lets, None
        found = self.expression(node)
        self.lets = before
        return found

    def _constant(self, node: ast.Constant) -> syntax.Expr:
        span = self.span(node)
        match node.value:
            case bool() | int() | float():
                text = span.text if self.literal_span is None else None
                return self._literal(node.value, node, text)
            case str():
                message, help = "a string stands only for an extent, an attribute or asm", "write the expression bare"
            case None:
                message, help = "`None` has no meaning in TExpr", "every value is a number"
            case _:
                what = "`...`" if node.value is ... else f"a {type(node.value).__name__} value"
                message, help = f"{what} has no meaning in TExpr", "write integers and floats"
        self.refuse("E0105", message, node, help)
        return self.placeholder(node)

    def _literal(self, value: int | float | bool, node: ast.expr, text: str | None = None) -> syntax.Expr:
        beyond = text is not None and isinstance(value, float) and math.isinf(value)
        found = literal(value, self.span(node), text)
        if beyond or found is None:
            kind, help = ("f64", "write inf") if beyond else ("64 bits", "use a smaller number")
            self.refuse("E0103", f"this number is beyond the range of {kind}", node, help)
            return self.placeholder(node)
        return found

    def _name(self, node: ast.Name | ast.Attribute) -> syntax.Expr:
        span = self.span(node)
        found = self.meaning(node)
        if found is None:
            self.refuse("E0105", "attributes of values have no meaning in TExpr", node, 'name a size: f32["M"]')
            return self.placeholder(node)
        name, meaning = found
        match meaning:
            case Constant(value):
                return self._literal(value, node)
            case Unknown() if "." not in name:
                if name in ("inf", "nan"):
                    return syntax.FloatLit(text=name, span=span)
                if self.lookup(name) is None and not is_identifier(name):
                    self.refuse("E0105", f"`{name}` is not a name of TExpr", node, "names are ASCII and not reserved")
                return syntax.Name(name=name, span=span)
            case Unknown() if name.count(".") == 1:
                owner, member = name.split(".")
                if not (is_identifier(owner) and is_identifier(member)):
                    wrong = member if is_identifier(owner) else owner
                    self.refuse("E0105", f"`{wrong}` is not a name of TExpr", node, "names are ASCII and not reserved")
                if self.lookup(owner) is None and owner not in self.sizes:
                    return syntax.Member(owner=owner, name=member, span=span)
                help = 'a size has a name of its own: A: f32["M", "K"], then M'
                self.refuse("E0105", f"`{owner}` has no attributes in TExpr", node, help)
            case Word() | FnObject() | LibraryPath():
                self.refuse("E0105", f"`{name}` is a word of TExpr, not a value", node, f"call it: {name}(…)")
            case TypeObject():
                self.refuse("E0105", f"`{name}` is a type, not a value", node, f"a cast is a call: {name}(x)")
            case Foreign(what):
                self.refuse("E0105", f"`{name}` is {what} of Python, which has no meaning here", node, FOREIGN_HELP)
            case _:
                self.refuse("E0105", f"`{name}` has no meaning in TExpr", node, FOREIGN_HELP)
        return self.placeholder(node)

    def _binary(self, node: ast.BinOp) -> syntax.Expr:
        span = self.span(node)
        left, right = self.expression(node.left), self.expression(node.right)
        if type(node.op) in BINARY:
            return syntax.Binary(op=BINARY[type(node.op)], left=left, right=right, span=span)
        if type(node.op) in CALLED:
            return syntax.Call(name=CALLED[type(node.op)], args=(left, right), span=span)
        if isinstance(node.op, ast.FloorDiv):
            if not (self.is_integer(left) and self.is_integer(right)):
                self.refuse("E0105", "`//` divides integers, and an operand is not known to be one", node,
                            "write floor(a / b), or cast: i32(a) // i32(b)")  # fmt: skip
            return syntax.Binary(op="/", left=left, right=right, span=span)
        self.refuse("E0105", "`@` has no meaning in TExpr", node, 'write sum(A[i, k] * B[k, j] for k in seq("K"))')
        return self.placeholder(node)

    def _compare(self, node: ast.Compare) -> syntax.Expr:
        parts = [self.expression(part) for part in (node.left, *node.comparators)]
        if len(parts) > 2:
            self.refuse("E0105", "comparisons are not chained in TExpr", node, "write a < b and b < c")
            return self.placeholder(node)
        op = COMPARE.get(type(node.ops[0]))
        if op is None:
            self.refuse("E0105", "`is` and `in` have no meaning in TExpr", node, "compare numbers with ==")
            return self.placeholder(node)
        return syntax.Binary(op=op, left=parts[0], right=parts[1], span=self.span(node))

    # ---- subscripts ----

    def view(self, node: ast.Subscript) -> syntax.Expr:
        """`A[i:16, k]`, where a slice is start : extent; `L[()]` is the name of a buffer of rank 0, as in NumPy."""
        whole = isinstance(node.slice, ast.Tuple) and not node.slice.elts and isinstance(node.value, ast.Name)
        subscripts = () if whole else self.subscripts(node.slice)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            self._shape_of(node, node.value.value)
            return self.placeholder(node)
        if not isinstance(node.value, ast.Name):
            self.refuse("E0105", "only a buffer's name takes subscripts", node, "write all subscripts at once: A[i, j]")
            return self.placeholder(node)
        name = node.value.id
        found = self.meaning(node.value)
        if self.lookup(name) is None and found is not None and not isinstance(found[1], Unknown):
            what = found[1].what if isinstance(found[1], Foreign) else "no buffer"
            self.refuse("E0105", f"`{name}` is {what} of Python, which has no meaning here", node.value,
                        "pass it as a parameter")  # fmt: skip
            return self.placeholder(node)
        if whole:
            return syntax.Name(name=name, span=self.span(node))
        return syntax.View(name=name, subscripts=subscripts, span=self.span(node))

    def _shape_of(self, node: ast.Subscript, owner: ast.expr) -> None:
        """Refuse `A.shape[0]`, with the name of that extent where the annotation gives one."""
        shape = self.shapes.get(owner.id, ()) if isinstance(owner, ast.Name) else ()
        position = node.slice.value if isinstance(node.slice, ast.Constant) else None
        name = shape[position] if isinstance(position, int) and 0 <= position < len(shape) else None
        help = f'that extent is `{name}`: write par("{name}")' if name is not None else NAMED_EXTENTS
        self.refuse("E0105", "a buffer has no shape to ask for: its extents are names", node, help)

    def subscripts(self, node: ast.expr) -> tuple[syntax.Expr | syntax.Slice, ...]:
        if isinstance(node, ast.Tuple):
            if not node.elts:
                self.refuse("E0105", "a view has at least one subscript", node, "a rank-0 buffer is read by its name")
            return tuple(self._subscript(part) for part in node.elts)
        return (self._subscript(node),)

    def _subscript(self, node: ast.expr) -> syntax.Expr | syntax.Slice:
        if not isinstance(node, ast.Slice):
            return self.expression(node)
        parts = [self.expression(part) for part in (node.lower, node.upper, node.step) if part is not None]
        if node.lower is None or node.upper is None or node.step is not None:
            help = "in TExpr the second part is how many elements: A[i:16] is A[i] to A[i + 15]"
            self.refuse("E0105", "a slice is start:extent, both written, without a step", node, help)
            return self.placeholder(node)
        return syntax.Slice(start=parts[0], extent=parts[1], span=self.span(node))

    # ---- calls and reductions ----

    def _call(self, node: ast.Call) -> syntax.Expr:
        found = self.meaning(node.func)
        generator = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) else None
        match found:
            case (_, Word(name)) if name in REDUCTIONS and generator is not None:
                if node.keywords:
                    self._no_keywords(node)
                return self._reduce(REDUCTIONS[name], generator, node)
            case (_, Word(name)) if name in ("sum", "prod", "maximum", "minimum"):
                for argument in node.args:
                    self.expression(argument)
                other = {"maximum": "; of two values max(a, b)", "minimum": "; of two values min(a, b)"}.get(name, "")
                help = f'write {name}(e for k in seq("K")){other}'
                self.refuse("E0105", f"`{name}` takes a generator", node, help)
                return self.placeholder(node)
            case (_, Word(name)) if name in LOOPS:
                self.refuse("E0105", f"`{name}` stands only after `in`", node, f'write for i in {name}("N")')
                return self.placeholder(node)
            case (_, Word(name)) if name in STATEMENT_WORDS:
                help = "x = new(f32[4])" if name == "new" else "x = reg(f32[4], e)" if name == "reg" else f"{name}(…)"
                self.refuse("E0105", f"`{name}` is a statement, not a value", node, f"on a line of its own: {help}")
                return self.placeholder(node)
            case _:
                callee = self.callee(node)
        args = tuple(self.expression(argument) for argument in node.args)
        if node.keywords:
            self._no_keywords(node)
        if callee == "select" and len(args) != 3:
            self.refuse("E0207", "select takes a condition and two values", node, "write select(c, a, b)")
        if callee is None:
            return self.placeholder(node)
        return syntax.Call(name=callee, args=args, span=self.span(node))

    def _no_keywords(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            self.expression(keyword.value)
        self.refuse("E0105", "a call has no keyword arguments", node, "pass the arguments by position")

    def callee(self, node: ast.Call) -> str | None:
        """The TExpr name of the function that a call names; None after an error."""
        found = self.meaning(node.func)
        if found is None:
            self.expression(node.func)
            self.refuse("E0105", "only a function's name can be called", node.func, FOREIGN_HELP)
            return None
        name, meaning = found
        match meaning:
            case Word(word):
                return word
            case TypeObject(direction=None, shape=None, attributes=(), element=element):
                return element
            case FnObject(function):
                self.callees.setdefault(id(function), meaning)
                return function.__name__
            case LibraryPath(path) if len(path) > 1:
                self.imports.setdefault(path[:-1], self.span(node.func))
                return path[-1]
            case Unknown() if "." not in name and self.lookup(name) is None and is_identifier(name):
                return name
            case Foreign(what):
                self.refuse(
                    "E0105", f"`{name}` is {what} of Python, and a body is never run", node.func, instead_of(name)
                )
            case _:
                owner = self.lookup(name.partition(".")[0])
                if "." in name and owner is not None and owner.kind == "buffer":
                    help = 'write sum(A[i] for i in seq("N"))'
                    self.refuse("E0105", "a buffer has no methods", node.func, help)
                else:
                    self.refuse("E0105", f"`{name}` cannot be called", node.func, FOREIGN_HELP)
        return None

    def _reduce(self, op: str, node: ast.GeneratorExp, call: ast.Call) -> syntax.Expr:
        first = node.generators[0]
        head = self.loop_head(first.target, first.iter, ("seq",))
        if len(node.generators) > 1:
            self.refuse("E0105", "a reduction has one `for`", node.generators[1].target,
                        'write for k, l in seq("K", "L")')  # fmt: skip
        for condition in first.ifs:
            self.refuse("E0105", "a reduction has no `if`", condition, "write sum(e if c else 0 for …)")
        if first.is_async:
            self.refuse("E0105", "`async for` has no meaning in TExpr", node, 'write for k in seq("K")')
        self.scopes.append({})
        self.declare_indices(head)
        for early in read_before_given(node.elt):
            self.refuse("E0201", f"`{early.id}` is not known here", early, "write its `:=` at the first use")
        before, self.lets = self.lets, []
        body, lets = self.expression(node.elt), tuple(self.lets)
        self.lets = before
        self.scopes.pop()
        return syntax.Reduce(op=op, dims=head.dims, attrs=head.attrs, lets=lets, body=body, span=self.span(call))

    # ---- loop heads ----

    def declare_indices(self, head: LoopHead) -> None:
        for dim in head.dims:
            self.declare(dim.index, Binding("index", True, dim.index_span))

    def loop_head(self, target: ast.expr, iterable: ast.expr, allowed: Sequence[str]) -> LoopHead:
        """The loop of a `for`: its word, extents and attributes. The indices are not yet declared."""
        empty = LoopHead(allowed[0], (), ())
        found = self.meaning(iterable.func) if isinstance(iterable, ast.Call) else None
        if not isinstance(iterable, ast.Call) or found is None or not isinstance(found[1], Word):
            choice = 'par("N"), seq("N") or fully_par(32)' if len(allowed) > 1 else 'seq("K")'
            self.refuse("E0105", "this is not a loop of TExpr", iterable, f"write for i in {choice}")
            return empty
        word = found[1].name
        if word not in allowed:
            self.refuse("E0105", f"`{word}` does not stand here", iterable, f"write {' or '.join(allowed)}")
            return empty
        targets = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        spare = sum(not is_attribute(argument) for argument in iterable.args) > len(targets)
        extents: list[syntax.Expr | syntax.Range] = []
        attrs: list[syntax.Attr] = []
        for argument in iterable.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                if argument.value.lstrip().startswith("#"):
                    attrs += self.attributes(argument)
                    continue
                if self.lacks_hash(argument.value, argument, called=not spare):
                    continue
                extents.append(self.extent_text(argument.value, self.span(argument)))
            else:
                extents.append(self._extent(argument))
        if iterable.keywords:
            self._no_keywords(iterable)
        indices = [(part.id, self.span(part)) for part in targets if isinstance(part, ast.Name)]
        if len(indices) != len(targets):
            self.refuse("E0105", "an index is a plain name", target, f'write for i, j in {word}("M", "N")')
            return empty
        if len(extents) != len(indices) or not extents:
            message = f"{len(indices)} {'index' if len(indices) == 1 else 'indices'} for {len(extents)} extents"
            self.refuse("E0105", message, iterable, f'each index has one extent: for i, j in {word}("M", "N")')
            return empty
        dims = tuple(
            syntax.Dim(extent=extent, index=name, index_span=span, span=extent.span.to(span))
            for extent, (name, span) in zip(extents, indices, strict=True)
        )
        return LoopHead(word, dims, tuple(attrs))

    def _extent(self, node: ast.expr) -> syntax.Expr | syntax.Range:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"):
            return self.expression(node)
        parts = [self.expression(argument) for argument in node.args]
        if node.keywords or len(parts) not in (1, 2):
            self.refuse("E0105", "a range here is range(n) or range(low, high)", node, "scale the index instead")
            return self.placeholder(node)
        if len(parts) == 1:
            return parts[0]
        return syntax.Range(low=parts[0], high=parts[1], span=self.span(node))
