"""Python expressions that have no meaning in TExpr: what each is called, and what to write instead."""

import ast

REFUSED: dict[type[ast.expr], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "write a function with `def` under @texpr.fn and call it"),
    ast.NamedExpr: (
        "an assignment here",
        "it stands in what a reduction adds up, outside of `and`, `or` and `if`; else write x = … before",
    ),
    ast.ListComp: ("a list comprehension", 'a reduction takes a bare generator: sum(e for k in seq("K"))'),
    ast.SetComp: ("a set comprehension", 'a reduction takes a bare generator: sum(e for k in seq("K"))'),
    ast.DictComp: ("a dict comprehension", 'a reduction takes a bare generator: sum(e for k in seq("K"))'),
    ast.GeneratorExp: ("a generator", "a generator stands only in sum, prod, max or min"),
    ast.List: ("a list", 'name a buffer: t = new(f32[4]), then bind its elements'),
    ast.Tuple: ("a tuple", "write one value for each statement"),
    ast.Set: ("a set", "write one value for each statement"),
    ast.Dict: ("a dict", "write one value for each statement"),
    ast.JoinedStr: ("an f-string", "strings stand only for extents, attributes and asm, and are written in full"),
    ast.Starred: ("a starred expression", "write each argument in full"),
    ast.Await: ("`await`", "a kernel has no coroutines"),
    ast.Yield: ("`yield`", "write the value into a buffer"),
    ast.YieldFrom: ("`yield from`", "write the values into a buffer"),
    ast.Slice: ("a slice", "a slice start:extent stands only in a subscript"),
}  # fmt: skip


def read_before_given(element: ast.expr) -> list[ast.Name]:
    """The names that stand before their `:=` in what a reduction adds up: in Python they have no value there, and the
    `let` that `:=` becomes would give them one."""
    given = {node.target.id: _place(node) for node in ast.walk(element) if isinstance(node, ast.NamedExpr)}
    names = (node for node in ast.walk(element) if isinstance(node, ast.Name))
    return [name for name in names if name.id in given and _place(name) < given[name.id]]


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
