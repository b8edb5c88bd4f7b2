"""From the surface tree to core kernels: names, ranks, types, attributes; `fn` inlined, sugar gone.

    check(parse(SourceText("matmul.tex", text)))  ->  (Kernel("matmul", …),)

Invariant: a kernel that comes back obeys the docstring of ast.py. All findings of a module come at once, in text
order.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from texpr.grammar import ast, syntax
from texpr.grammar.ast import IndexConst, IndexExpr, SizeVar
from texpr.grammar.check.buffers import fn_attributes
from texpr.grammar.check.context import Context, Given, too_many
from texpr.grammar.check.imports import Loader
from texpr.grammar.check.indices import index
from texpr.grammar.check.kernel import context, read_alone, read_bare, read_kernel
from texpr.grammar.check.scope import FnName, Scope
from texpr.grammar.diagnostics import Diagnostic, Severity, TExprError, did_you_mean, error, first
from texpr.grammar.index.expr import index_names, size_names
from texpr.grammar.refusals import LimitError, RefusedError, refuse
from texpr.grammar.show import show
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place

__all__ = ["check", "show"]

NAMES_ONLY = frozenset({"E0201", "E0202", "E0203", "E0205", "E0208", "E0209", "E0212", "E0213"})


def check(
    module: syntax.Module,
    *,
    sizes: Mapping[str, int] | None = None,
    types: Mapping[str, str] | None = None,
    folder: Path | None = None,
    warnings: list[Diagnostic] | None = None,
) -> tuple[ast.Kernel, ...]:
    """All kernels of a module; TExprError with all diagnostics (E02, E0103) in text order.

    `sizes` overrides `size` constants and gives other sizes a default; `types` gives element types to the buffers of a
    bare program; imports are looked up under `folder`. Warnings (W0302) are appended to `warnings`.
    """
    diagnostics: list[Diagnostic] = []
    kernels = _Module(module, dict(sizes or {}), dict(types or {}), folder, diagnostics).kernels()
    ordered = in_text_order(diagnostics, module)
    errors = [d for d in ordered if d.severity is Severity.ERROR]
    if warnings is not None:
        warnings += first(d for d in ordered if d.severity is Severity.WARNING)
    if errors:
        raise TExprError(errors)
    return kernels


class _Module:
    """One module while it is checked."""

    def __init__(
        self,
        module: syntax.Module,
        sizes: dict[str, int],
        types: dict[str, str],
        folder: Path | None,
        diagnostics: list[Diagnostic],
    ) -> None:
        self.module = module
        self.folder = folder
        self.diagnostics = diagnostics
        self.given = Given(sizes=sizes, types=types, constants={}, used=set(), called=[])
        self.given_up = False  # a kernel passed a limit: what nothing uses cannot be known

    def kernels(self) -> tuple[ast.Kernel, ...]:
        for name, value in self.given.sizes.items():
            if isinstance(value, bool) or not isinstance(value, int):
                self.diagnostics.append(error("E0211", f"the size `{name}` is an integer, {value!r} was given"))
            elif not 0 <= value < 1 << 63:
                self.diagnostics.append(error("E0211", f"the size `{name}` is from 0 to 2^63 - 1, {value} was given"))
        if self.diagnostics:
            return ()
        scope = Loader(self.diagnostics, self.imported_constant).module_scope(
            self.module, self.folder, self.own_constant
        )
        declared = [item for item in self.module.items if isinstance(item, syntax.KernelDef)]
        skipped = syntax.KernelDef | syntax.FnDef | syntax.Import | syntax.SizeDef
        bare = tuple(item for item in self.module.items if not isinstance(item, skipped))
        kernels: list[ast.Kernel] = []
        if bare and declared:
            self.diagnostics.append(
                error(
                    "E0212", "a file has kernels or bare statements, not both", bare[0].span, help="put it in a kernel"
                )
            )
        elif bare:
            span = bare[0].span.to(bare[-1].span)
            kernels += self.read(partial(read_bare, name=self.module.name, body=bare, span=span), scope)
        seen: dict[str, Span] = {}
        for definition in declared:
            place = name_place(definition, definition.name)
            before = scope.lookup(definition.name)
            library = before is not None and isinstance(before.entity, FnName) and before.entity.library
            if definition.name in seen or (before is not None and not library):
                self.diagnostics.append(error("E0202", f"`{definition.name}` is defined twice", place))
            seen[definition.name] = place
            kernels += self.read(partial(read_kernel, definition=definition), scope)
            if too_many(self.diagnostics):
                break
        if not self.given_up:
            self.check_functions(scope)
            self.check_library_names(seen, scope)
            self.check_given(kernels)
        return tuple(kernels)

    def read(self, read: Callable[[Context], ast.Kernel], scope: Scope) -> tuple[ast.Kernel, ...]:
        """The kernel that is read, or none where it passes a limit."""
        try:
            return (read(context(Scope(scope), self.diagnostics, self.given)),)
        except LimitError as limit:
            self.given_up = True
            self.diagnostics += [limit.diagnostic] if limit.diagnostic is not None else []
            return ()

    # ---- constants

    def own_constant(self, item: syntax.SizeDef, scope: Scope) -> IndexExpr:
        """A `size` of the checked file: a name with a default, or an expression of such names."""
        given = self.given.sizes.get(item.name)
        if given is not None:
            self.given.used.add(item.name)
        if item.value is None:
            self.given.constants[item.name] = given
            return SizeVar(name=item.name, span=item.span)
        value = self.read_constant(item, scope)
        if given is None and not isinstance(value, IndexConst):
            return value
        self.given.constants[item.name] = given if given is not None else _number(value)
        return SizeVar(name=item.name, span=item.span)

    def imported_constant(self, item: syntax.SizeDef, scope: Scope) -> IndexExpr:
        return self.read_constant(item, scope)

    def read_constant(self, item: syntax.SizeDef, scope: Scope) -> IndexExpr:
        if item.value is None:
            raise refuse("E0212", "a `size` of an imported file has a value", item.span, help="write `size N = 128`")
        value = index(context(scope, self.diagnostics, self.given), item.value, "a `size`")
        assert not index_names(value), "no index is in scope at file level"
        if isinstance(value, IndexConst) and value.value < 0:
            raise refuse("E0206", "a `size` is not negative", item.value.span)
        return value

    # ---- what no kernel looked at

    def check_functions(self, scope: Scope) -> None:
        """Names and attributes in functions: a function that nothing inlined is read too."""
        for item in self.module.items:
            if not isinstance(item, syntax.FnDef):
                continue
            found: list[Diagnostic] = []
            ctx = context(Scope(scope), found, self.given)
            fn_attributes(ctx, item)
            if not any(item is known for known in self.given.called):
                try:
                    read_alone(ctx, FnName(definition=item, module=scope))
                except RefusedError as refused:
                    found += [refused.diagnostic] if refused.diagnostic is not None else []
            known = {_key(d) for d in self.diagnostics}
            self.diagnostics += [d for d in found if d.code in NAMES_ONLY and _key(d) not in known]

    def check_library_names(self, kernels: dict[str, Span], scope: Scope) -> None:
        """E0202 for a kernel called as a library function that the file calls: a reader would ask which."""
        for name, place in kernels.items():
            found = scope.lookup(name)
            if found is None or not isinstance(found.entity, FnName) or not found.entity.library:
                continue
            definition = found.entity.definition
            if any(definition is known for known in self.given.called):
                message = f"`{name}` is a function of the library, which this file calls"
                self.diagnostics.append(error("E0202", message, place, "a kernel", help="choose another name"))

    def check_given(self, kernels: list[ast.Kernel]) -> None:
        """E0211 for a size or a type that fits no kernel."""
        known = {size.name for kernel in kernels for size in kernel.sizes} | set(self.given.constants)
        scalars = {b.name: kernel.name for kernel in kernels for b in kernel.params if b.role is ast.Role.SCALAR}
        for name in self.given.sizes:
            if name in known or name in self.given.used:
                continue
            if name in scalars:
                message = f"`{name}` is a scalar parameter of `{scalars[name]}`, not a size"
                mend = f"a call gives its value, by `{name}=…`; on the command line, `texpr run -D {name}=…` does"
                self.diagnostics.append(error("E0211", message, help=mend))
            else:
                help = did_you_mean(name, known, "the sizes are " + ", ".join(sorted(known)) if known else None)
                self.diagnostics.append(error("E0211", f"there is no size `{name}`", help=help))
        buffers = {b.name for kernel in kernels for b in kernel.params if kernel.bare}
        for name in self.given.types:
            if name not in self.given.used:
                reason = "the type of a declared parameter stands in the program" if not buffers else None
                help = did_you_mean(name, buffers, reason)
                self.diagnostics.append(error("E0211", f"there is no undeclared buffer `{name}`", help=help))


def _number(value: IndexExpr) -> int:
    assert isinstance(value, IndexConst), f"a constant, not {size_names(value)}"
    return value.value


def _key(d: Diagnostic) -> tuple[str, str, int]:
    return d.code, d.message, d.primary.span.start if d.primary is not None else -1


def in_text_order(diagnostics: list[Diagnostic], module: syntax.Module) -> list[Diagnostic]:
    """Findings in the module's own text by place, then those in other texts, then those without a place."""

    def key(d: Diagnostic) -> tuple[int, str, int]:
        if d.primary is None:
            return 2, "", 0
        own = d.primary.span.source is module.span.source
        return (0 if own else 1), ("" if own else d.primary.span.source.name), d.primary.span.start

    return sorted(diagnostics, key=key)
