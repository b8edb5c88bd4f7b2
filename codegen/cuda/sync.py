"""Synchronisation in CUDA: one call of the headers for each node.

acquire ring          ring.acquire();
commit ring           ring.commit(256);                  a pipe of bulk copies expects their bytes
release ring          ring.release_to(0); ring.release_to(1);
await done[t - 1]     if (tx::thread() == 0) tx::await(done, t - 1);  tx::sync_block(2);
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.copies import is_cut
from texpr.codegen.cuda.facts import LaunchFacts
from texpr.codegen.cuda.frame import Frame
from texpr.codegen.cuda.groups import Groups
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.names import comment
from texpr.codegen.cuda.stand import Stand
from texpr.codegen.cuda.tiles import is_of_warp
from texpr.grammar.ast import Atomic, IndexExpr
from texpr.grammar.diagnostics import TExprError, fail
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Contract, Copy, Elementwise, Generic, Reduce, Store, Unload
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.phases import phases
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import (
    Acquire,
    Action,
    Barrier,
    Close,
    Commit,
    Drain,
    End,
    Fence,
    FenceKind,
    GroupKind,
    Pipe,
    PipeKind,
    Release,
    Skip,
    Sync,
    Until,
    Wait,
    WaitGroup,
)
from texpr.polyhedral.mapped.tree import Last, Part, Parts
from texpr.polyhedral.target import REGISTERS, WARPGROUP

MAX_REASONS = 6  # that the comment of one barrier gives; the first are those of no other barrier
MAX_WIDTH = 100  # of a call with its reason behind it
NAMED_BARRIERS = 15  # of a block, besides that of all its threads
REGISTER_STEP = 8  # parts exchange registers in such steps
_CLOSE = {
    GroupKind.CP_ASYNC: "tx::cp_async_close();",
    GroupKind.WGMMA: "tx::wgmma_close();",
    GroupKind.BULK: "tx::bulk_close();",
}


class Syncs:
    """The text of a launch's synchronisation; barriers are numbered as they are written."""

    def __init__(self, frame: Frame, out: Lines) -> None:
        self.frame, self.launch, self.out = frame, frame.launch, out
        self.pipes = {pipe.name: pipe for pipe in self.launch.pipes}
        self.warps = {name: part.warps for name, part in frame.facts.parts.items()}
        self.barriers = 0
        self.named = _named(frame.facts)
        self.combining = {node.id for node in frame.facts.of(Reduce)}
        self.groups = Groups(frame.made)

    def write(self, node: Sync, stand: Stand, scope: ix.IndexScope) -> None:
        """The calls of one node but `Turn`, whose value is an index."""
        match node:
            case Barrier():
                self._wait(self._barrier(node, stand), node.orders)
            case Acquire(pipe=pipe):
                self.out.line(f"{self._ring(pipe)}.{'acquire' if self.pipes[pipe].releases else 'acquire_free'}();")
            case Drain(pipe=pipe):
                self.out.line(f"{self._ring(pipe)}.drain();")
            case Commit(pipe=pipe, by_warp=by_warp):
                self._commit(self.pipes[pipe], stand, by_warp=by_warp)
            case Wait(pipe=pipe):
                self.out.line(f"{self._ring(pipe)}.wait();")
            case Release(pipe=pipe, behind=behind):
                self._release(self.pipes[pipe], behind, stand)
            case Skip(pipe=pipe):
                self.out.line(f"{self._ring(pipe)}.skip();")
            case Close(kind=kind):
                self.out.line(_CLOSE[kind])
                if kind is GroupKind.WGMMA:
                    self.groups.close()
            case WaitGroup(kind=kind, behind=behind):
                self.out.line(_group_wait(node))
                if kind is GroupKind.WGMMA:
                    for name in self.groups.over(behind):
                        self.out.line(f"tx::settle({self.frame.sums(name)});")
            case Fence(kind=kind):
                self._fence(kind)
            case Publish(flag=flag, at=at):
                self._meet(node, stand)
                self._once(f"tx::publish({self._word(flag, at, scope)}, 1);", stand)
            case Await(flag=flag, at=at):
                self._once(f"tx::await({self._word(flag, at, scope)});", stand)
                self._meet(node, stand)
            case AfterLaunch():
                self.out.line("tx::after_launch();")
            case TriggerNext():
                self.out.line("tx::trigger_next();")
            case GridBarrier(counter=counter):
                if stand.part:
                    raise self._refused("GridBarrier in a part of the block")
                self.out.line(f"tx::sync_grid({self._word(counter, (), scope)});")
            case Turn():
                raise self._refused(type(node).__name__)
            case _:
                assert_never(node)

    def turn(self, node: Turn, stand: Stand) -> ix.Term:
        """The calls that take a turn, and its value."""
        if stand.looped or stand.part:
            raise self._refused("a turn that is not taken once by the whole block")
        return self.turn_at(node.counter, stand)

    def turn_at(self, counter: str, stand: Stand) -> ix.Term:
        """The calls by which a block takes its turn, and its value."""
        blocks = ix.constant(1)
        for extent in self.launch.grid:
            blocks = ix.mul(blocks, ix.term(extent, self.frame.scope))
        own = self.frame.turns[counter]
        word = self._word(counter, (), self.frame.scope)
        self._once(f"{own}.store(0, tx::take_turn({word}, {self.out.use(blocks.as_int())}));", stand)
        self.meet(stand, f"the turn at {counter}")
        return ix.variable(f"{own}.load(0)", 0, min(max(blocks.high - 1, 0), ix.INT_MAX - 1))

    def last(self, node: Last, stand: Stand, scope: ix.IndexScope) -> str:
        """The condition under which a block is the last one; its threads meet before it and in it."""
        if stand.part:
            own, threads = self.named[(), _gate(node)], stand.warps * stand.warp_size
            self.out.line(f"tx::sync_part<{own}>({threads});")
            meet = f"tx::sync_any_part<{own}>({threads}"
        else:
            self._meet(node, stand)
            meet = f"tx::sync_any({self._number()}"
        count = self.out.use(ix.term(node.n, scope).as_int())
        word = self._word(node.counter, node.at, scope)
        return f"{meet}, {stand.elected} && tx::last({word}, {count}))"

    # ---- pipes ----

    def initialise(self) -> None:
        """Before anything else: the first thread of the block makes the mbarriers of all pipes; meanwhile one of the
        last warp asks for the tensor maps, so that the first copies find them."""
        lines = [
            f"{self._ring(p.name)}.init({p.commits}, {max(p.releases, 1)});"  # 0: nobody waits for them
            for p in self.launch.pipes
        ]
        if lines:
            with self.out.condition("if (tx::thread() == 0)"):
                for line in lines:
                    self.out.line(line)
        if self.frame.maps:
            with self.out.condition(f"if (tx::thread() == {self.launch.threads - self.frame.warp_size})"):
                for own in self.frame.maps.values():
                    self.out.line(f"tx::prefetch_map({own});")

    def share_registers(self, part: Part) -> None:
        """A part that says how many registers its threads have gives some, or takes what others gave."""
        if part.registers is None:
            return
        threads = self.launch.threads * max(self.launch.min_blocks, 1)
        start = REGISTERS // threads // REGISTER_STEP * REGISTER_STEP
        verb = "give" if part.registers < start else "take"
        self.out.line(f"tx::{verb}_registers<{part.registers}>();")

    def _ring(self, pipe: str) -> str:
        return self.frame.rings[pipe]

    def _commit(self, pipe: Pipe, stand: Stand, *, by_warp: bool) -> None:
        own, end = self._ring(pipe.name), _end(pipe.producers, stand)
        if by_warp and pipe.kind is not PipeKind.TRANSACTION:
            raise self._refused(f"a commit of {pipe.name} by warps")
        match pipe.kind:
            case PipeKind.TRANSACTION:
                if pipe.bytes % pipe.commits:
                    raise self._refused(f"{pipe.commits} commits that share {pipe.bytes} bytes of {pipe.name}")
                elected = "if (tx::lane() == 0) " if by_warp else ""
                self.out.line(f"{elected}{own}.commit({pipe.bytes // pipe.commits});")
            case PipeKind.CP_ASYNC:
                self.out.line(f"{own}.commit_copies();")
            case PipeKind.ARRIVE if end.ranks:
                self._to_ranks(end, f"{own}.commit_to")
            case PipeKind.ARRIVE:
                self.out.line(f"{own}.commit();")
            case _:
                assert_never(pipe.kind)

    def _release(self, pipe: Pipe, behind: int, stand: Stand) -> None:
        own, end = self._ring(pipe.name), _end(pipe.consumers, stand)
        if not pipe.releases:
            raise self._refused(f"a release of {pipe.name}, which expects none,")
        which = f"<{behind}>" if behind else ""
        if end.ranks:
            self._to_ranks(end, f"{own}.release_to{which}")
        else:
            self.out.line(f"{own}.release{which}();")

    def _to_ranks(self, end: End, call: str) -> None:
        if len(set(end.ranks)) > 1:
            raise self._refused("an end of a pipe that reaches other ranks from each rank")
        self.out.line(" ".join(f"{call}({rank});" for rank in end.ranks[0]))

    # ---- barriers, fences, words ----

    def _barrier(self, node: Barrier, stand: Stand) -> str:
        match node:
            case Barrier(scope=Scope.BLOCK, parts=(), action=Action.BOTH, name="") if not stand.part:
                return f"tx::sync_block({self._number()});"
            case Barrier(scope=Scope.WARP, parts=(), action=Action.BOTH):
                return f"tx::sync_warp({self._number()});"
            case Barrier(scope=Scope.CLUSTER, parts=(), name=""):
                arrive = "arrive_relaxed" if node.relaxed else "arrive"
                calls = {Action.ARRIVE: (arrive,), Action.WAIT: ("wait",), Action.BOTH: (arrive, "wait")}
                return " ".join(f"tx::cluster_{call}();" for call in calls[node.action])
            case Barrier(scope=Scope.WARPGROUP, parts=(), action=Action.BOTH, name=""):
                return f"tx::sync_warpgroup<{self.named[(), Scope.WARPGROUP]}>();"
            case Barrier(scope=Scope.BLOCK, action=Action.BOTH | Action.ARRIVE):
                parts = node.parts or tuple(self.warps) or ("",)
                count = sum(self.warps.get(part, stand.warps) for part in parts) * stand.warp_size
                verb = "sync" if node.action is Action.BOTH else "arrive"
                return f"tx::{verb}_part<{self.named[node.parts, node.name]}>({count});"
            case _:
                which = f"{node.action.value} at a barrier of the {node.scope.value}"
                raise self._refused(f"{which}{f' by {node.parts}' if node.parts else ''}")

    def _number(self) -> int:
        return self.numbers(1)

    def numbers(self, count: int) -> int:
        """The first number of so many barriers."""
        self.barriers += count
        return self.barriers - count

    def _meet(self, node: Publish | Await | Last, stand: Stand) -> None:
        """The barrier of the block that such a node holds."""
        self.meet(stand, type(node).__name__)

    def meet(self, stand: Stand, what: str) -> None:
        """A barrier of the block."""
        if stand.part:
            raise self._refused(f"{what} in a part of the block")
        self.out.line(f"tx::sync_block({self._number()});")

    def _once(self, call: str, stand: Stand) -> None:
        self.out.line(f"if ({stand.elected}) {call}")

    def _fence(self, kind: FenceKind) -> None:
        match kind:
            case FenceKind.BARRIER_INIT:
                self.out.line("tx::fence_barrier_init();")
            case FenceKind.WGMMA:
                self.out.line("tx::wgmma_fence();")
            case FenceKind.ASYNC_PROXY:
                self.out.line("tx::fence_async_shared();")
                if _reads_own_results(self.frame.facts):
                    self.out.line("tx::fence_async_global();")
            case _:
                assert_never(kind)

    def _word(self, name: str, at: Sequence[IndexExpr], scope: ix.IndexScope) -> str:
        """`done, t - 1`: the words and the number of one of them."""
        return f"{self.frame.words[name].name}, {self.out.use(self.word_number(name, at, scope))}"

    def word_number(self, name: str, at: Sequence[IndexExpr], scope: ix.IndexScope) -> ix.Term:
        """The number of a word among those of its name."""
        total = ix.constant(0)
        for subscript, extent in zip(at, self.frame.words[name].shape, strict=True):
            total = ix.add(ix.mul(total, ix.term(extent, scope)), ix.term(subscript, scope))
        return total

    def _wait(self, call: str, orders: Sequence[Order]) -> None:
        """A call at which threads wait, and what for: behind it where that is short."""
        why = phases(orders, self.combining)
        said = [comment(text) for text in why[:MAX_REASONS]]
        if len(why) > MAX_REASONS:
            said.append(f"and {len(why) - MAX_REASONS} more")
        short = len(said) == 1 and len(call) + len(said[0]) <= MAX_WIDTH
        for text in () if short else said:
            self.out.line(f"// {text}")
        self.out.line(f"{call}  // {said[0]}" if short else call, at=orders[0].sink_span if orders else None)

    def _refused(self, what: str) -> TExprError:
        return fail("E0502", f"{what} is not emitted for CUDA", self.launch.span)


def _group_wait(node: WaitGroup) -> str:
    match node.kind:
        case GroupKind.CP_ASYNC:
            return f"tx::cp_async_wait<{node.behind}>();"
        case GroupKind.WGMMA:
            return f"tx::wgmma_wait<{node.behind}>();"
        case GroupKind.BULK:
            return f"tx::bulk_wait{'_read' if node.until is Until.READ else ''}<{node.behind}>();"
        case _:
            assert_never(node.kind)


def _end(ends: Sequence[End], stand: Stand) -> End:
    """The end at which a part stands; the checker has seen that there is one."""
    return next((end for end in ends if end.part in ("", stand.part)), End())


def _named(facts: LaunchFacts) -> dict[tuple[tuple[str, ...], str], int]:
    """The numbers of barriers of some parts, of those with names, and of the last blocks' parts, from 1 on in text
    order, and behind them of those of warpgroups."""
    found: dict[tuple[tuple[str, ...], str], int] = {}
    for spot in facts.places:
        inside = any(isinstance(around, Parts) for around in spot.around)
        if isinstance(spot.node, Last) and inside:
            found.setdefault(((), _gate(spot.node)), len(found) + 1)
        if not isinstance(spot.node, Barrier) or spot.node.scope is not Scope.BLOCK:
            continue
        if spot.node.parts or spot.node.name or spot.node.action is not Action.BOTH or inside:
            found.setdefault((spot.node.parts, spot.node.name), len(found) + 1)
    count = len(found)
    if any(isinstance(node, Barrier) and node.scope is Scope.WARPGROUP for node in facts.nodes):
        found[(), Scope.WARPGROUP] = count + 1  # one for each of the block's
        count += facts.launch.threads // (WARPGROUP * facts.planned.program.target.warp_size)
    if count > NAMED_BARRIERS:
        what = f"{count} barriers of parts of a block, which has {NAMED_BARRIERS},"
        raise fail("E0502", f"{what} are not emitted for CUDA", facts.launch.span)
    return found


def _gate(node: Last) -> str:
    """The name of the barrier at which a part of a block meets around it."""
    return f"last at {node.counter}"


def _reads_own_results(facts: LaunchFacts) -> bool:
    """Whether the launch writes arrays that its asynchronous copies read."""
    sources = {copy.source.buffer for copy in facts.of(Copy) if copy.completion is Completion.TRANSACTION}
    buffers = facts.planned.program.buffers
    return any(buffers[name].memory is Memory.GLOBAL for name in sources & facts.written)


def needed_headers(facts: LaunchFacts) -> Iterator[str]:
    """The headers of the calls of a launch, besides kernel.cuh."""
    barriers = "texpr/parts.cuh" if _named(facts) else "texpr/kernel.cuh"
    if facts.launch.pipes:
        yield "texpr/ring.cuh"
    if facts.launch.cluster != (1, 1, 1):
        yield "texpr/cluster.cuh"
    for node in facts.nodes:
        match node:
            case Generic(store=Store(atomic=True)):
                yield "texpr/atomic.cuh"
            case Elementwise(leaves=leaves) if any(isinstance(leaf, Atomic) for leaf in leaves):
                yield "texpr/atomic.cuh"
            case Turn() | Publish() | Await() | GridBarrier() | Last():
                yield "texpr/flags.cuh"
                if isinstance(node, Last):
                    yield barriers
            case LookBack():
                yield "texpr/look_back.cuh"
            case AfterLaunch() | TriggerNext():
                yield "texpr/dependent.cuh"
            case Barrier(scope=Scope.BLOCK | Scope.WARPGROUP):
                yield barriers
            case Close() | WaitGroup() | Fence():
                yield "texpr/group.cuh"
            case Copy(completion=Completion.TRANSACTION | Completion.BULK):
                yield "texpr/tma.cuh"
            case Copy(completion=Completion.CP_ASYNC) as copy:
                yield "texpr/slots.cuh" if is_cut(copy) else "texpr/group.cuh"
            case Unload(atom=atom) if atom.loads:
                yield "texpr/warp_contract.cuh"
            case Contract(c=sums) | Unload(source=sums):
                of_warp = is_of_warp(facts.planned.program.buffers[sums.buffer])
                yield "texpr/warp_contract.cuh" if of_warp else "texpr/contract.cuh"
            case Parts(parts=parts) if any(part.registers for part in parts):
                yield "texpr/parts.cuh"
            case _:
                pass
