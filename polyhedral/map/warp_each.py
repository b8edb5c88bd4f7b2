"""Blocks of several iterations of a band, a warp for each: where an iteration needs one warp, and is over soon.

    par M i { Y[i] = sum 1024 k { X[i, k] } }      i = 4*i_block + i_warp, k on the lanes; where i < M

A multiprocessor begins a block in about `BLOCK_NS`: on an H200 row sums of 1024 columns in bf16 run at .75 of what they
read with a block of one warp for each, at 1.02 with four or eight; in f32, with twice the bytes, at 1.00 with one.
No thread waits for another warp, so nothing of the block's is shared: locals are in registers, and what one thread of a
block would do is done by the first lane of a warp.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, If, IndexVar, Leaf, Par, Read, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, ZERO, const
from texpr.grammar.index.interval import Ranges
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.map.author_units import block_threads
from texpr.polyhedral.map.bands import Nest, asked_scope
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.hardware_attributes import threads_asked
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.candidate import Blocks
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Generic, Operator, Reduce, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import branches, every_node, with_branches
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import read_accesses, subscript_names, written

BLOCK_NS = 80  # from one block to the next one on a multiprocessor
TOGETHER = (4, 8)  # warps of a block: as few as do


def choose_together(problem: Problem, nest: Nest, ranges: Ranges, choice: Blocks) -> Blocks:
    """The choice with several iterations in a block, where the grid has many and each moves few bytes."""
    target = problem.target
    if (
        choice.resident
        or choice.cluster > 1
        or next(together_faults(problem, nest, replace(choice, together=1)), None) is not None
    ):
        return choice
    iterations = 1
    for par in nest.pars:
        iterations *= problem.representative(par.extent, ranges)
    at_once = BLOCK_NS * target.memory_gb_s // target.multiprocessors  # bytes of a multiprocessor
    moved = sum(_bytes(problem, nest, ranges))
    if not 0 < moved < at_once or iterations < 2 * target.multiprocessors * target.resident_blocks:
        return choice
    together = next((n for n in TOGETHER if n * moved >= at_once), TOGETHER[-1])
    return replace(choice, together=together, threads=together * choice.threads)


def _bytes(problem: Problem, nest: Nest, ranges: Ranges) -> Iterator[int]:
    """Bytes of each array that an iteration of a nest moves, of those of which every iteration has its own."""
    moved = dict[tuple[str, bool], int]()
    for loop in (s for s in nest.body if isinstance(s, Par | Seq)):
        for leaf in (s for s in statements((loop,)) if isinstance(s, Leaf)):
            reads = [(read.buffer, read.subscripts, False) for read in read_accesses(leaf)]
            target = written(leaf)
            for name, subscripts, writes in (*reads, *([(*target, True)] if target is not None else [])):
                used = subscript_names(subscripts)
                if loop.index in used and used & set(nest.indices):
                    size = problem.kernel.buffer(name).dtype.size_bytes
                    moved[name, writes] = size * problem.representative(loop.extent, ranges)
    yield from moved.values()


def together_faults(problem: Problem, nest: Nest, choice: Blocks) -> Iterator[str]:
    """Why the iterations of a block cannot have a warp each."""
    warp = problem.target.warp_size
    if choice.threads != choice.together * warp:
        yield f"`together`: {choice.threads} threads are not {choice.together} warps"
    if not choice.inner and not choice.shared_out:
        yield "`together`: nothing of an iteration is for the lanes of a warp"
    if not is_power_of_two(choice.together):
        yield "`together` is a power of two"
    if any(where is not Memory.REG for where in choice.memory.values()):
        yield "`together`: locals that threads share would be those of several iterations"
    if not all(_asks_nobody(stmt, choice) for stmt in nest.body):
        yield "`together`: a condition on data decides whether threads share a loop out"
    asked = block_threads(nest, problem.target, threads_asked(problem.kernel, problem.target))
    if asked is not None or any(asked_scope(par) is Scope.CLUSTER for par in nest.pars):
        yield "`together`: the author says which threads have an iteration"


def _asks_nobody(stmt: Stmt, choice: Blocks) -> bool:
    """Whether warps run a statement without asking one another: no loop that they share out stands under a condition on
    data, which may hold for some of them."""
    inside = statements((stmt,))
    shared = any(isinstance(s, Par | Seq) and s.index in (*choice.inner, *choice.shared_out) for s in inside)
    match stmt:
        case Par():
            return True
        case Seq(index=index, body=body):
            return index in choice.shared_out or all(_asks_nobody(s, choice) for s in body)
        case If(condition=condition, then=then, orelse=orelse) if shared:
            return not isinstance(condition, Read) and all(_asks_nobody(s, choice) for s in then + orelse)
        case _:
            return True


def warp_digit(draft: Draft, index: str, choice: Blocks) -> tuple[Digit, ...]:
    """The digit of the index of which each warp of a block has an iteration of its own."""
    if choice.together == 1:
        return ()
    name, radix = draft.names.fresh(f"{stem(index)}_warp"), const(choice.together)
    return (Digit(name=name, index=index, weight=1, radix=radix, stride=ONE, place=Place.WARP),)


def by_warps(draft: Draft, warp: Digit, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The body of a block of one warp, run by each of several: who is the only thread of a block there is the first
    lane of its warp."""
    index = draft.names.fresh("in_warp")
    name, radix = draft.names.fresh(f"{index}_lane"), const(draft.target.warp_size)
    lane = Digit(name=name, index=index, weight=1, radix=radix, stride=ONE, place=Place.LANE)
    draft.digits += (warp, lane)
    own = tuple(_of_warp(node, warp, lane) for node in body)
    return (Define(index=index, digits=(lane,)), *own)


Told = Generic | Copy | Elementwise | Reduce  # operators that say what threads do with them


def _is_one_threads(node: Node) -> bool:
    """Whether a node is a loop of which one thread runs all: the lane is asked once, before it."""
    inside = [each for each in every_node((node,)) if isinstance(each, Operator)] if isinstance(node, Loop) else []
    return bool(inside) and all(isinstance(each, Told) and each.unused is Unused.ONCE for each in inside)


def _of_warp(node: Node, warp: Digit, lane: Digit, *, alone: bool = False) -> Node:
    """The node as each of several warps runs it; `alone`: its first lane."""
    once = node.once if isinstance(node, Guard) else isinstance(node, Told) and node.unused is Unused.ONCE
    if (once or _is_one_threads(node)) and not alone:
        first = Compare(op=CompareOp.EQ, left=IndexVar(name=lane.index), right=ZERO)
        return Guard(condition=first, body=(_of_warp(node, warp, lane, alone=True),), span=_span(node))
    inside = [tuple(_of_warp(n, warp, lane, alone=alone) for n in body) for body in branches(node)]
    match with_branches(node, inside):
        case Guard() as guard:
            uniform = Scope.THREAD if alone else min(guard.uniform, Scope.WARP, key=list(Scope).index)
            return replace(guard, uniform=uniform, once=False)
        case Generic() | Copy() | Elementwise() | Reduce() as found:
            digits = (lane.name, warp.name) if once else (*found.digits, warp.name)
            return replace(found, digits=digits, unused=None if once else found.unused)
        case found:
            return found


def _span(node: Node) -> Span:
    return node.span if isinstance(node, Guard | Told) else NO_SPAN
