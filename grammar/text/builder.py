"""The reduce actions of the parser: from the parts of a production to a node of the surface tree.

`Builder.build` is called once for each production of `texpr.lark`, innermost first, so nothing recurses. Mistakes that
the grammar does not know (a number too large, a type's name declared) are collected in `diagnostics`.
"""

from typing import Any

from texpr.grammar import syntax as s
from texpr.grammar.diagnostics import Diagnostic, error
from texpr.grammar.source import SourceText, Span
from texpr.grammar.text.lexer import Token, is_type_or_function
from texpr.grammar.text.limits import MAX_FLOAT_DIGITS, MAX_INTEGER
from texpr.grammar.text.trivia import Comments
from texpr.grammar.words import TYPE_NAMES

# `Any` stands for the parts of a production: tokens, nodes, tuples of nodes, or None for an absent `[...]`.
# The grammar alone decides which; the printer's round trip is the test of it.


class Builder:
    """Actions by name: the method `on_<action>` takes the production's parts."""

    def __init__(self, source: SourceText, comments: Comments, module_name: str) -> None:
        self._source = source
        self._comments = comments
        self._module_name = module_name
        self.diagnostics: list[Diagnostic] = []

    def _span(self, token: Token) -> Span:
        return Span(self._source, token.start, token.end)

    def _declared(self, token: Token) -> str:
        """A name that is declared here."""
        if is_type_or_function(token.text):
            message = f"`{token.text}` is a reserved word and cannot be declared"
            self.diagnostics.append(error("E0101", message, self._span(token), help="choose another name"))
        return token.text

    # ---- items

    def on_start(self, parts: list[Any], span: Span) -> s.Module:
        items, dangling = self._comments.attach(parts, 0, len(self._source.text) + 1)
        whole = Span(self._source, 0, len(self._source.text))
        return s.Module(name=self._module_name, items=items, dangling=dangling, span=whole)

    def on_import_(self, parts: list[Any], span: Span) -> s.Import:
        return s.Import(path=tuple(token.text for token in parts), span=span)

    def on_kernel(self, parts: list[Any], span: Span) -> s.KernelDef:
        name, params, where, attrs, body = parts
        return s.KernelDef(name=self._declared(name), params=params, where=where, attrs=attrs, body=body, span=span)

    def on_fn(self, parts: list[Any], span: Span) -> s.FnDef:
        name, params, result, attrs, reference, body = parts
        return s.FnDef(
            name=self._declared(name),
            params=params,
            result=result,
            attrs=attrs,
            reference=reference,
            body=body,
            span=span,
        )

    def on_params(self, parts: list[Any], span: Span) -> tuple[s.Param, ...]:
        return tuple(parts)

    def on_param(self, parts: list[Any], span: Span) -> s.Param:
        direction, name, type_, attrs = parts
        return s.Param(
            direction=direction and direction.text, name=self._declared(name), type=type_, attrs=attrs, span=span
        )

    def on_type(self, parts: list[Any], span: Span) -> s.TypeExpr:
        element, shape = parts
        return s.TypeExpr(element=element.text, shape=shape, span=span)

    def on_rank0(self, parts: list[Any], span: Span) -> s.TypeExpr:
        return s.TypeExpr(element=parts[0].text, shape=(), span=span)

    def on_where(self, parts: list[Any], span: Span) -> tuple[s.Expr, ...]:
        return tuple(parts)

    def on_exprs(self, parts: list[Any], span: Span) -> tuple[s.Expr, ...]:
        return tuple(parts)

    # ---- statements

    def on_block(self, parts: list[Any], span: Span) -> s.Block:
        body, dangling = self._comments.attach(parts, span.start, span.end)
        return s.Block(body=body, dangling=dangling, span=span)

    def on_par(self, parts: list[Any], span: Span) -> s.Par:
        fully, dims, attrs, body = parts
        return s.Par(dims=dims, attrs=attrs, body=body, fully=fully is not None, span=span)

    def on_seq(self, parts: list[Any], span: Span) -> s.Seq:
        dims, attrs, body = parts
        return s.Seq(dims=dims, attrs=attrs, body=body, span=span)

    def on_dims(self, parts: list[Any], span: Span) -> tuple[s.Dim, ...]:
        return tuple(parts)

    def on_dim(self, parts: list[Any], span: Span) -> s.Dim:
        extent, index = parts
        return s.Dim(extent=extent, index=self._declared(index), index_span=self._span(index), span=span)

    def on_range(self, parts: list[Any], span: Span) -> s.Range:
        low, high = parts
        return s.Range(low=low, high=high, span=span)

    def on_if_(self, parts: list[Any], span: Span) -> s.If:
        condition, then, orelse = parts
        return s.If(condition=condition, then=then, orelse=orelse, span=span)

    def on_else_if(self, parts: list[Any], span: Span) -> s.If:
        nested: s.If = parts[0]
        return nested

    def on_call_stmt(self, parts: list[Any], span: Span) -> s.CallStmt | s.Assign:
        return s.CallStmt(call=parts[0], span=span) if len(parts) == 1 else self.on_bind(parts, span)

    def on_bind(self, parts: list[Any], span: Span) -> s.Assign:
        target, op, value, attrs = parts
        return s.Assign(target=target, op=op.text, value=value, attrs=attrs, span=span)

    def on_atomic(self, parts: list[Any], span: Span) -> s.Atomic:
        target, op, value, attrs = parts
        return s.Atomic(target=target, op=op.text, value=value, attrs=attrs, span=span)

    def on_new(self, parts: list[Any], span: Span) -> s.New:
        level, name, type_, attrs = parts
        return s.New(level=level and level.text, name=self._declared(name), type=type_, attrs=attrs, span=span)

    def on_new_flat(self, parts: list[Any], span: Span) -> s.New:
        level, name, extent, attrs = parts
        if isinstance(extent, (s.View, s.Name)) and extent.name in TYPE_NAMES:
            message = "a colon is missing between a buffer and its type"
            help = f"write `new {name.text}: {extent.name}`, with the shape in brackets"
            self.diagnostics.append(error("E0101", message, extent.span, help=help))
        return s.New(level=level and level.text, name=self._declared(name), flat_extent=extent, attrs=attrs, span=span)

    def on_reg(self, parts: list[Any], span: Span) -> s.Reg:
        _, name, type_, _, value = parts
        return s.Reg(name=self._declared(name), type=type_, value=value, span=span)

    def on_let(self, parts: list[Any], span: Span) -> s.Let:
        name, _, value = parts
        return s.Let(name=self._declared(name), value=value, span=span)

    def on_size(self, parts: list[Any], span: Span) -> s.SizeDef:
        name, _, value = parts
        return s.SizeDef(name=self._declared(name), value=value, span=span)

    def on_anchor(self, parts: list[Any], span: Span) -> s.Anchor:
        return s.Anchor(value=parts[0], span=span)

    def on_return_(self, parts: list[Any], span: Span) -> s.Return:
        return s.Return(value=parts[0], span=span)

    def on_asm(self, parts: list[Any], span: Span) -> s.Asm:
        text, *labelled = parts
        operands: list[s.AsmOperand] = []
        label: str | None = None
        for token, value, place in labelled:
            if token is not None:
                label = token.text
                if label not in ("in", "out", "inout", "clobber"):
                    message = f"`{label}` is not a label of `asm`"
                    help = "operands stand after `in:`, `out:`, `inout:` or `clobber:`"
                    self.diagnostics.append(error("E0101", message, self._span(token), help=help))
            if label is None:
                message = "the first operand of `asm` has no label"
                help = 'say how the text uses it: `asm("...", inout: x, in: y)`'
                self.diagnostics.append(error("E0101", message, value.span, help=help))
            operands.append(s.AsmOperand(label=label or "in", value=value, span=place))
        return s.Asm(text=self.on_string([text], self._span(text)), operands=tuple(operands), span=span)

    def on_asm_operand(self, parts: list[Any], span: Span) -> tuple[Token | None, s.Expr, Span]:
        return parts[0], parts[1], span

    def on_attrs(self, parts: list[Any], span: Span) -> tuple[s.Attr, ...]:
        return tuple(parts)

    def on_attr(self, parts: list[Any], span: Span) -> s.Attr:
        return s.Attr(name=parts[0].text, args=tuple(p for p in parts[1:] if p is not None), span=span)

    def on_attr_arg(self, parts: list[Any], span: Span) -> s.AttrArg:
        return s.AttrArg(value=parts[0], span=span)

    def on_attr_level(self, parts: list[Any], span: Span) -> s.AttrArg:
        return s.AttrArg(level=parts[0].text, value=parts[1], span=span)

    # ---- expressions

    def on_binary(self, parts: list[Any], span: Span) -> s.Binary:
        left, op, right = parts
        return s.Binary(op=op.text, left=left, right=right, span=span)

    def on_unary(self, parts: list[Any], span: Span) -> s.Unary:
        return s.Unary(op=parts[0].text, operand=parts[1], span=span)

    def on_name(self, parts: list[Any], span: Span) -> s.Name:
        return s.Name(name=parts[0].text, span=span)

    def on_member(self, parts: list[Any], span: Span) -> s.Member:
        return s.Member(owner=parts[0].text, name=parts[1].text, span=span)

    def on_view(self, parts: list[Any], span: Span) -> s.View:
        return s.View(name=parts[0].text, subscripts=parts[1], span=span)

    def on_call(self, parts: list[Any], span: Span) -> s.Call:
        return s.Call(name=parts[0].text, args=parts[1] if len(parts) > 1 else (), span=span)

    def on_args(self, parts: list[Any], span: Span) -> tuple[s.Expr | s.Slice, ...]:
        return tuple(parts)

    def on_slice(self, parts: list[Any], span: Span) -> s.Slice:
        return s.Slice(start=parts[0], extent=parts[1], span=span)

    def on_reduce(self, parts: list[Any], span: Span) -> s.Reduce:
        op, dims, attrs, *lets, body = parts
        return s.Reduce(op=op.text, dims=dims, attrs=attrs, lets=tuple(lets), body=body, span=span)

    def on_const(self, parts: list[Any], span: Span) -> s.FloatLit | s.BoolLit:
        text = parts[0].text
        return (
            s.FloatLit(text=text, span=span) if text in ("inf", "nan") else s.BoolLit(value=text == "true", span=span)
        )

    def on_string(self, parts: list[Any], span: Span) -> s.StringLit:
        return s.StringLit(text=parts[0].text[1:-1], span=span)

    def on_number(self, parts: list[Any], span: Span) -> s.IntLit | s.FloatLit:
        text: str = parts[0].text
        if text.startswith("0x"):
            digits = text[2:].lstrip("0")
            return self._integer(int(digits or "0", 16) if len(digits) <= 16 else MAX_INTEGER + 1, text, span)
        if text.isdigit():
            digits = text.lstrip("0")
            return self._integer(int(digits or "0") if len(digits) <= 20 else MAX_INTEGER + 1, text, span)
        if len(text) > MAX_FLOAT_DIGITS:
            message = f"a float literal has at most {MAX_FLOAT_DIGITS} characters"
            self.diagnostics.append(error("E0103", message, span))
        elif float(text) == float("inf"):
            message = "this number is beyond the range of f64"
            self.diagnostics.append(error("E0103", message, span, help="write `inf`"))
        return s.FloatLit(text=text, span=span)

    def _integer(self, value: int, text: str, span: Span) -> s.IntLit:
        if value > MAX_INTEGER:
            message = "this integer does not fit 64 bits"
            help = f"the greatest is {MAX_INTEGER}; a float literal has a point: `1.0e30`"
            self.diagnostics.append(error("E0103", message, span, help=help))
        return s.IntLit(value=min(value, MAX_INTEGER), text=text, span=span)
