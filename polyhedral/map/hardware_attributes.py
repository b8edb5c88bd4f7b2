"""The author's attributes: which ones this mapping keeps, and a refusal with a way round for all others.

The table of attributes says which ones are mapped on each construct; every other one is E0402, never ignored. `#grid`,
`#block` and `#thread` are kept where they say what the structure gives: blocks for an outermost par, threads for one
inside it, one thread for what is deeper. What a kept attribute did not change is told by `idle_attributes.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Asm, Attr, IndexConst, Intrinsic, Kernel, Leaf, Par, Seq, Stmt
from texpr.grammar.attributes import SCOPES, Construct, is_mapped
from texpr.grammar.core import children, statements
from texpr.grammar.diagnostics import Diagnostic, TExprError, error, fail
from texpr.grammar.index.expr import const
from texpr.grammar.permissions import may_use_tf32, multiplied, stages_of, tile_of, unroll_of, vector_of
from texpr.grammar.types import F32
from texpr.polyhedral.map.author_tiles import tile_faults
from texpr.polyhedral.map.author_units import block_threads, unit_fault, unit_faults
from texpr.polyhedral.map.bands import Nest, asked_scope, inner_nests, nest_of
from texpr.polyhedral.map.clustered import cluster_band, cluster_faults
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.placement import unsupported
from texpr.polyhedral.map.unrolled import unroll_faults
from texpr.polyhedral.mapped.candidate import Blocks
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.target import Target


def check_attributes(kernel: Kernel, target: Target) -> None:
    """Raises E0402 for every scheduling attribute that is not mapped, E0401 for arguments that cannot be, E0502 for
    hardware bodies and `fully par`."""
    found: list[Diagnostic] = []
    for attr in kernel.attrs:
        if not is_mapped(attr.name, Construct.KERNEL):
            found += unsupported(attr).diagnostics
    found += cluster_faults(kernel, target)
    for stmt in statements(kernel.body):
        construct, understood = Construct.STATEMENT, frozenset[str]()
        match stmt:
            case Par(fully=True):
                found.append(_not_emitted(stmt, "`fully par`", "write a `par`, which promises no simultaneity"))
                continue
            case Par():
                construct = Construct.PAR
            case Seq():
                construct = Construct.SEQ
            case Intrinsic(hardware=hardware, name=name) if hardware:
                understood = frozenset(attr.name for attr in stmt.attrs)
                found.append(
                    _not_emitted(stmt, f"the hardware body of {name}", "write out the statements of its reference body")
                )
            case Asm():
                understood = frozenset({"clobber"})
                found.append(_not_emitted(stmt, "`asm`", "write the statement in the language"))
            case _:
                pass
        if isinstance(stmt, Par):
            found += tile_faults(stmt)
        if isinstance(stmt, Par | Seq):
            found += unroll_faults(stmt)
        for attr in stmt.attrs:
            if attr.name not in understood and not is_mapped(attr.name, construct):
                found += unsupported(attr).diagnostics
    found += _tf32_faults(kernel)
    if target.is_cuda:
        found += _misplaced(kernel.body, target)
    if found:
        raise TExprError(_once(found))
    threads_asked(kernel, target)


def _tf32_faults(kernel: Kernel) -> list[Diagnostic]:
    """`#tf32` on products none of which is of f32."""
    leaves = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Leaf)]
    found: list[Diagnostic] = []
    asked = [(leaf, attr) for leaf in leaves for attr in (*leaf.attrs, *kernel.attrs) if may_use_tf32((attr,))]
    for attr in {attr.span.place: attr for _, attr in asked}.values():
        types = {dtype for leaf, own in asked if own.span.place == attr.span.place for dtype in multiplied(leaf)}
        if types and F32 not in types:
            what = ", ".join(sorted(map(str, types)))
            why = f"nothing that it stands on multiplies f32, but {what}"
            found.append(_disagrees(attr, why, "remove #tf32, or compute the products in f32"))
    return found


def _misplaced(stmts: tuple[Stmt, ...], target: Target) -> list[Diagnostic]:
    """Scopes that disagree with the structure: an outermost band runs on blocks, what is inside it does not."""
    found: list[Diagnostic] = []
    for stmt in stmts:
        if not isinstance(stmt, Par):
            found += _misplaced(children(stmt), target)
            continue
        if stmt.fully:
            continue
        nest = nest_of(stmt)
        inside = [s for s in statements(nest.body) if isinstance(s, Par)]
        wrong = [p for p in nest.pars if asked_scope(p) in (Scope.BLOCK, Scope.WARP, Scope.THREAD)]
        inner = [p for p in inside if asked_scope(p) in (Scope.GRID, Scope.CLUSTER)]
        found += (_disagrees(_scope_of(p), "an outermost `par` runs over the blocks of the grid") for p in wrong)
        found += (_disagrees(_scope_of(p), "a `par` inside another runs within one block") for p in inner)
        found += unit_faults(nest, inside, target)
    return found


def check_host_loop(seq: Seq) -> None:
    """Raises E0402 for `#unroll`, `#tile` or `#stages` on a loop of launches: no thread has its iterations."""
    attr = unroll_of(seq) or tile_of(seq) or stages_of(seq)
    if attr is not None:
        raise TExprError((_disagrees(attr, "the host runs this `seq`, as a loop of launches"),))


def _disagrees(attr: Attr, why: str, help: str = "") -> Diagnostic:
    help = help or f"remove #{attr.name}; the compiler then chooses by itself"
    return error("E0402", f"#{attr.name} is not mapped here: {why}", attr.span, "this attribute", help=help)


def _once(found: list[Diagnostic]) -> list[Diagnostic]:
    """A band's attributes stand on each of its loops, and are reported once."""
    seen: set[tuple[str, tuple[str, int, int] | None]] = set()
    kept: list[Diagnostic] = []
    for diagnostic in found:
        key = (diagnostic.message, diagnostic.primary.span.place if diagnostic.primary else None)
        if key not in seen:
            seen.add(key)
            kept.append(diagnostic)
    return kept


def _scope_of(par: Par) -> Attr:
    return next(attr for attr in par.attrs if attr.name in SCOPES)


def _not_emitted(stmt: Stmt, what: str, way_round: str) -> Diagnostic:
    return error("E0502", f"{what} is not mapped yet", stmt.span, "here", help=way_round)


def width_asked(loops: Sequence[Par | Seq]) -> int | None:
    """The argument of the `#vector(n)` of a band or a loop, or None. Raises E0401 for one that is not known."""
    for attr in filter(None, map(vector_of, loops)):
        value = attr.args[0]
        if not isinstance(value, IndexConst):
            help = "bind the size, or write a number"
            raise fail("E0401", "how many iterations a thread takes is not known", attr.span, "a free size", help=help)
        return value.value
    return None


def check_vectors(stmts: tuple[Stmt, ...], widths: Mapping[str, int]) -> None:
    """Raises E0402 for a `#vector(n)` that the `widths` of a launch's indices do not obey."""
    asked = [(s, attr) for s in statements(stmts) if isinstance(s, Par | Seq) and (attr := vector_of(s)) is not None]
    if not asked:
        return
    kept = {attr.span.place for loop, attr in asked if widths.get(loop.index, 1) == width_asked((loop,))}
    found = [attr for _, attr in asked if attr.span.place not in kept]
    if found:
        why = "along an index that threads share out, no access is contiguous and aligned, nor read so in short loops"
        help = "remove #vector, or let `where` say what the length of rows is a multiple of"
        raise TExprError(_once([_disagrees(attr, why, help) for attr in found]))


def blocks_fault(kernel: Kernel, target: Target, nest: Nest, choice: Blocks) -> str | None:
    """What a candidate's blocks of a band, and the threads of the nests inside, contradict of the author's scopes and
    units; None where they are obeyed."""
    wanted = block_threads(nest, target, threads_asked(kernel, target))
    if wanted is not None and choice.threads != wanted:
        return f"`threads`: the author gives a block {wanted}"
    together = cluster_band(nest.pars, kernel, target)
    if set(choice.grid[: len(together)]) != set(together):
        return f"`grid`: the blocks of a cluster come first, those of {', '.join(together)}"
    for inner in inner_nests(nest.body):
        fault = unit_fault(inner, choice.inner.get(inner.indices[0], ()), target)
        if fault is not None:
            return f"inner of {inner.indices[0]}: {fault}"
    return None


def threads_asked(kernel: Kernel, target: Target) -> int | None:
    """The argument of `#threads(n)` on the kernel, or None. Raises E0401 for a number that the target cannot run."""
    for attr in kernel.attrs:
        if attr.name == "threads" and target.is_cuda:
            return _threads(attr, target)
    return None


def with_threads(kernel: Kernel, threads: int) -> Kernel:
    """The kernel as if its author had asked for blocks of so many threads."""
    return replace(kernel, attrs=(*kernel.attrs, Attr(name="threads", args=(const(threads),), levels=(None,))))


def _threads(attr: Attr, target: Target) -> int:
    value = attr.args[0]
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "the number of a block's threads is not known", attr.span, "a free size", help=help)
    threads = value.value
    small = threads < target.warp_size and is_power_of_two(threads)
    if not (small or (threads % target.warp_size == 0 and 0 < threads <= target.max_threads)):
        raise fail(
            "E0401",
            f"a block cannot have {threads} threads",
            attr.span,
            "the number of threads",
            help=f"a multiple of {target.warp_size} up to {target.max_threads}",
        )
    return threads
