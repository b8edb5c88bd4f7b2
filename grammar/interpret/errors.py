"""The diagnostics that both modes of the interpreter raise, in one place so that they read alike.

Texts use the author's names. Witnesses use the core tree's, in the form that the proofs give: `sizes`, `statement`
(or `first_statement` and `second_statement`), `first` and `second` as values of the loop indices, `buffer` and
`element`; a race has its loop index as `par`.
"""

from collections.abc import Mapping
from dataclasses import field

from texpr.grammar.ast import Buffer, If, Intrinsic, Kernel, Par, Seq, Stmt
from texpr.grammar.diagnostics import Diagnostic, Label, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span


@dataclass(frozen=True, slots=True)
class Site:
    """One access: its statement's id, the span to mark, and the loop indices by unique name."""

    statement: str
    span: Span
    iteration: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a race: what it does (`write`, `read`, `accumulate into`, `update`) and where."""

    verb: str
    site: Site

    @property
    def does(self) -> str:
        first, *rest = self.verb.split(" ", 1)
        return " ".join([f"{first}s", *rest])


@dataclass(frozen=True, slots=True)
class Reports:
    """Diagnostics about one kernel at given sizes; `indices` has the author's name of every loop index."""

    sizes: Mapping[str, int]
    indices: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel, sizes: Mapping[str, int]) -> "Reports":
        reports = Reports(dict(sizes))
        pending: list[Stmt] = list(kernel.body)
        while pending:
            stmt = pending.pop()
            match stmt:
                case Par() | Seq():
                    reports.indices[stmt.index] = stmt.source_name
                    pending.extend(stmt.body)
                case If():
                    pending.extend((*stmt.then, *stmt.orelse))
                case Intrinsic():
                    pending.extend(stmt.reference)
                case _:
                    pass
        return reports

    def at(self, iteration: Mapping[str, int]) -> str:
        """`i = 0, j = 3`, or `this statement` outside all loops."""
        pairs = (f"{self.indices.get(name, name)} = {value}" for name, value in iteration.items())
        return ", ".join(pairs) or "this statement"

    def witness(self, site: Site, buffer: Buffer, element: tuple[int, ...]) -> dict[str, object]:
        return {
            "sizes": dict(self.sizes),
            "statement": site.statement,
            "first": dict(site.iteration),
            "buffer": buffer.name,
            "element": list(element),
        }

    def outside(
        self,
        site: Site,
        buffer: Buffer,
        shape: tuple[int, ...],
        element: tuple[int, ...],
        dimension: int,
        gathered: bool,
    ) -> Diagnostic:
        """E0302 for an affine subscript that leaves its buffer, E0604 for a gathered one."""
        extent = shape[dimension]
        room = f", outside 0..{extent - 1}" if extent > 0 else ", and it has no elements"
        return error(
            "E0604" if gathered else "E0302",
            f"subscript {dimension + 1} of {author_name(buffer)} is {element[dimension]}{room}",
            site.span,
            f"{self.at(site.iteration)} reaches {element_text(buffer, element)}",
            witness=self.witness(site, buffer, element),
        )

    def undefined(self, site: Site, buffer: Buffer, element: tuple[int, ...]) -> Diagnostic:
        """E0303: an element is read before anything wrote it."""
        return error(
            "E0303",
            f"{element_text(buffer, element)} is read before it is written",
            site.span,
            f"in {self.at(site.iteration)}" if site.iteration else "",
            help="bind it first; a `new` buffer is undefined at each entry of its block",
            witness=self.witness(site, buffer, element),
        )

    def unwritten(self, buffer: Buffer, element: tuple[int, ...]) -> Diagnostic:
        """E0304: an `out` buffer has an element that nothing wrote."""
        name = author_name(buffer)
        return error(
            "E0304",
            f"{name} is declared `out`, but {element_text(buffer, element)} is never written",
            buffer.span,
            help=f"write every element, or declare {name} `inout`",
            witness={"sizes": dict(self.sizes), "buffer": buffer.name, "element": list(element)},
        )

    def written(self, site: Site, buffer: Buffer, element: tuple[int, ...]) -> Diagnostic:
        """E0305: a write to an `in` buffer."""
        name = author_name(buffer)
        return error(
            "E0305",
            f"{name} is an `in` buffer and is written",
            site.span,
            f"{self.at(site.iteration)} writes {element_text(buffer, element)}",
            help=f"declare {name} `inout`",
            witness=self.witness(site, buffer, element),
        )

    def race(
        self, code: str, loop: Par, buffer: Buffer, element: tuple[int, ...], later: Party, earlier: Party
    ) -> Diagnostic:
        """Two iterations of `loop` meet in one element; `later` stands later in the text.

        The witness has the smaller iteration of the loop first.
        """
        touched, name, par = element_text(buffer, element), author_name(buffer), loop.source_name
        one, two = sorted((later, earlier), key=lambda party: party.site.iteration.get(loop.index, 0))
        secondary: tuple[Label, ...] = ()
        if later.verb == earlier.verb:
            message = f"two iterations of `par {par}` {later.verb} the same element of {name}"
            first, second = self.at(one.site.iteration), self.at(two.site.iteration)
            label = f"iterations ({first}) and ({second}) both {later.verb} {touched}"
        else:
            message = f"two iterations of `par {par}` touch the same element of {name}"
            label = f"iteration ({self.at(later.site.iteration)}) {later.does} {touched}"
        if later.site.span != earlier.site.span or later.verb != earlier.verb:
            said = f"iteration ({self.at(earlier.site.iteration)}) {earlier.does} {touched}"
            secondary = (Label(span=earlier.site.span, text=said),)
        return error(
            code,
            message,
            later.site.span,
            label,
            secondary=secondary,
            help="make the loop a `seq`, write to different elements, or accumulate with one operator",
            witness={
                "sizes": dict(self.sizes),
                "par": loop.index,
                "first_statement": one.site.statement,
                "first": dict(one.site.iteration),
                "second_statement": two.site.statement,
                "second": dict(two.site.iteration),
                "buffer": buffer.name,
                "element": list(element),
            },
        )


def asm_error(span: Span) -> Diagnostic:
    """E0502: assembly outside a `reference` has no meaning here."""
    return error(
        "E0502",
        "`asm` has no meaning for the interpreter",
        span,
        "only hardware can run this",
        help="put it in a `fn` with a `reference` body that says what it computes",
    )


def author_name(buffer: Buffer) -> str:
    return buffer.source_name or buffer.name


def element_text(buffer: Buffer, element: tuple[int, ...]) -> str:
    """`C[0, 3]`, or the bare name for rank 0."""
    name = author_name(buffer)
    return f"{name}[{', '.join(map(str, element))}]" if element else name
