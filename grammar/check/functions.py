"""What the definition of a `fn` says by itself, before it is called."""

from texpr.grammar import syntax


def is_pure(definition: syntax.FnDef) -> bool:
    """Whether the body is only `let` and `return`, and nothing is written through a parameter."""
    if definition.reference is not None or any(p.direction in ("out", "inout") for p in definition.params):
        return False
    return all(isinstance(s, syntax.Let | syntax.Return) for s in definition.body.body)


def is_effectless(definition: syntax.FnDef) -> bool:
    """Whether the function only computes a value."""
    body = definition.body.body
    return definition.reference is None and bool(body) and all(isinstance(s, syntax.Let | syntax.Return) for s in body)


def returned(definition: syntax.FnDef) -> syntax.Expr | None:
    """The value of the `return` at the end of the body."""
    last = definition.body.body[-1] if definition.body.body else None
    return last.value if isinstance(last, syntax.Return) else None


def declares_array(definition: syntax.FnDef) -> bool:
    """Whether the declared result has a shape."""
    return definition.result is not None and definition.result.shape is not None


def may_return_view(definition: syntax.FnDef) -> bool:
    """Whether the function may return a view: its body or its type says so."""
    return declares_array(definition) or isinstance(returned(definition), syntax.Name | syntax.View)


def signature(definition: syntax.FnDef) -> str:
    """The head of a function as the author wrote it, for a help line."""
    names = ", ".join(p.name for p in definition.params)
    return f"it is {definition.name}({names})"
