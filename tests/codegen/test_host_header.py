"""The checking host header: right kernels pass in every order of threads, broken ones are reported with their lines."""

from functools import cache

import numpy as np
import pytest

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.cuda.names import kernel_symbol
from texpr.codegen.host_run import HostArray, HostModule
from texpr.grammar import ast
from texpr.grammar.types import F32, I32
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Fresh, Guard, Loop
from texpr.polyhedral.target import parse_target

pytestmark = [pytest.mark.gxx, pytest.mark.usefixtures("optimised_file")]

TARGET = parse_target("cuda-host:sm_90a")


def array(data):
    return HostArray(data.ctypes.data, data.nbytes)


module = cache(HostModule)


def run(planned, arguments, *, seed=0, launch=0, grid=None, shared=None):
    """Compile and run one launch of a planned program; grids are constant here."""
    block = planned.program.host[launch]
    text = emit_cuda(planned, TARGET)
    extents = grid or tuple(e.value for e in block.grid)
    shared = planned.shared_bytes[block.name] if shared is None else shared
    return module(text.source).launch(kernel_symbol(block.name), arguments, extents, block.threads, shared, seed)


@pytest.mark.parametrize("seed", [0, 1, 77, 123456789])
def test_a_vector_sum_is_right_in_every_order_of_threads(build, seed):
    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
    c = np.zeros(1000, np.float32)
    assert run(build.vadd(), [array(a), array(b), array(c), 1000], grid=(4, 1, 1), seed=seed) is None
    assert np.array_equal(c, a + b)


def test_a_matmul_in_f16_sums_in_f32(build):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, shape).astype(np.float16) for shape in ((48, 24), (24, 40)))
    c = np.zeros((48, 40), np.float32)
    assert run(build.matmul(), [array(a), array(b), array(c)]) is None
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


class TestShared:
    """A row reversed through shared memory, and its broken forms."""

    def reverse(self, build, **broken):
        a, c = np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros((4, 64), np.float32)
        shared = broken.pop("shared", None)
        seed = broken.pop("seed", 0)
        report = run(build.reverse(**broken), [array(a), array(c)], shared=shared, seed=seed)
        return report, np.array_equal(c, a[:, ::-1])

    @pytest.mark.parametrize("seed", [0, 3, 99])
    def test_it_is_right_with_its_barrier(self, build, seed):
        assert self.reverse(build, seed=seed) == (None, True)

    @pytest.mark.parametrize("seed", [0, 3, 99])
    def test_a_missing_barrier_is_a_race_with_both_lines(self, build, seed):
        report, _ = self.reverse(build, barrier=False, seed=seed)
        assert report.kind in ("race", "undefined")  # who comes first reads what nobody wrote
        assert report.file == "/texpr/reverse.tex" and report.line in (4, 5)
        if report.kind == "race":
            assert {report.line, report.other_line} == {4, 5}
            assert report.thread != report.other_thread

    def test_a_warp_barrier_does_not_order_two_warps(self, build):
        report, _ = self.reverse(build, scope=Scope.WARP)
        assert report.kind in ("race", "undefined")

    def test_a_warp_barrier_orders_one_warp(self, build):
        # within 32 elements every read is of a value that the same warp wrote: reach 31 of the first warp only
        report, _ = self.reverse(build, scope=Scope.WARP, condition=None, reach=63, shift=0)
        assert report is not None
        planned = warp_reverse(build, barrier=True)
        a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        assert run(planned, [array(a), array(c)]) is None
        assert np.array_equal(c.reshape(2, 32), a.reshape(2, 32)[:, ::-1])

    def test_without_it_one_warp_races_with_itself(self, build):
        a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        report = run(warp_reverse(build, barrier=False), [array(a), array(c)])
        assert report.kind in ("race", "undefined") and report.thread // 32 == report.other_thread // 32

    def test_a_read_beyond_the_tile_is_out_of_bounds(self, build):
        report, _ = self.reverse(build, shift=1)
        assert (report.kind, report.line, report.index) == ("bounds", 5, 64)
        assert report.message == "tile[64] is outside its 64 elements" and report.thread == 0

    def test_a_barrier_under_a_uniform_condition_is_fine(self, build):
        assert self.reverse(build, condition=build.less("b", 4)) == (None, True)

    def test_blocks_that_write_one_row_race(self, build):
        report, _ = self.reverse(build, plain=False)
        assert report.kind == "race" and (report.line, report.other_line) == (5, 5)
        assert report.block != report.other_block

    def test_a_launch_with_too_little_shared_memory_is_told(self, build):
        report, _ = self.reverse(build, shared=128)
        assert report.kind == "bounds" and "less shared memory" in report.message


def warp_reverse(build, *, barrier):
    """Every warp of a block reverses its 32 elements."""
    tile = build.binary("+", build.binary("*", 32, "w"), build.binary("-", 31, "l"))
    first, second = (build.span_of("a\nb\n", part) for part in "ab")
    orders = (build.order("S0", "S1", "tile", first, second, Scope.WARP),)
    body = (
        build.define("w", (1, "w_warp")),
        build.define("l", (1, "l_lane")),
        build.define("i", (32, "w_warp"), (1, "l_lane")),
        build.statement("tile", ("i",), build.read("A", "i"), span=first),
        *((Barrier(scope=Scope.WARP, orders=orders),) if barrier else ()),
        build.statement("C", ("i",), build.read("tile", tile), span=second, id="S1"),
    )
    digits = (build.digit("w_warp", "warp", 2, of="w"), build.digit("l_lane", "lane", 32, of="l"))
    block = build.launch("k_0", body, block=64, digits=digits, tensors=(build.block_tensor("tile", 64),))
    return build.plan(
        (block,),
        (build.tensor("A", 64), build.tensor("C", 64)),
    )


def flat(build, body, tensors, *, block=64, grid=(2, 1, 1), locals_=(), reach=64):
    """A launch of blocks of threads over i."""
    digits = (
        build.digit("i_block", "grid.x", grid[0], weight=reach),
        build.digit("i_warp", "warp", block // 32, weight=32),
        build.digit("i_lane", "lane", 32),
    )
    define = build.define("i", (reach, "i_block"), (32, "i_warp"), (1, "i_lane"))
    return build.plan(
        (build.launch("k_0", (define, *body), block=block, grid=grid, digits=digits, tensors=locals_),), tensors
    )


def divided(build, *scopes):
    """Threads below 40 meet at one barrier, the others at the next, if there is one."""
    lines = "a\nb\nc\n"
    body = [build.define("i", (32, "i_warp"), (1, "i_lane"))]
    digits = (build.digit("i_warp", "warp", 2, weight=32), build.digit("i_lane", "lane", 32))
    first, second = build.span_of(lines, "b"), build.span_of(lines, "c")
    store = build.statement("C", ("i",), build.const(1.0), span=build.span_of(lines, "a"))
    arms = [
        (Barrier(scope=scope, orders=(build.order("S0", "S0", "C", first, sink),)),)
        for scope, sink in zip(scopes, (first, second), strict=False)
    ]
    split = Guard(condition=build.less("i", 40), body=arms[0], orelse=arms[1] if len(arms) == 2 else ())
    block = build.launch("k_0", (*body, store, split), block=64, digits=digits)
    return build.plan((block,), (build.tensor("C", 64),))


class TestDivergence:
    def test_a_thread_that_ends_while_others_wait_is_told(self, build):
        report = run(divided(build, Scope.BLOCK), [array(np.zeros(64, np.float32))])
        assert (report.kind, report.line) == ("divergence", 2)
        assert report.message == "thread 0 waits at block barrier 0, thread 40 has ended"

    def test_threads_at_two_barriers_are_told_with_both_lines(self, build):
        report = run(divided(build, Scope.BLOCK, Scope.BLOCK), [array(np.zeros(64, np.float32))])
        assert (report.kind, report.line, report.other_line) == ("divergence", 2, 3)
        assert report.message == "thread 0 waits at block barrier 0, thread 40 waits at block barrier 1"

    def test_a_warp_barrier_that_half_a_warp_misses_is_told(self, build):
        report = run(divided(build, Scope.WARP), [array(np.zeros(64, np.float32))])
        assert report.kind == "divergence"
        assert report.message == "thread 32 waits at warp barrier 0, thread 40 has ended"


def test_the_portable_fibers_do_the_same(build):
    """Processors without a switch of our own use the C library's."""
    text = emit_cuda(build.reverse(), TARGET)
    portable = HostModule("#define TX_HOST_UCONTEXT 1\n" + text.source)
    a, c = np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros((4, 64), np.float32)
    assert portable.launch("reverse_0", [array(a), array(c)], (4, 1, 1), 64, 256) is None
    assert np.array_equal(c, a[:, ::-1])
    report = portable.launch("reverse_0", [array(a), array(c[:2])], (4, 1, 1), 64, 256)
    assert (report.kind, report.block) == ("bounds", 2)


class TestGlobal:
    def test_every_thread_of_a_block_writing_one_element_races(self, build):
        planned = flat(build, (build.statement("C", (0,), build.const(1.0)),), (build.tensor("C", 1),), grid=(1, 1, 1))
        report = run(planned, [array(np.zeros(1, np.float32))])
        assert report.kind == "race" and report.block == report.other_block == 0
        assert "writes C[0]" in report.message and "writes it" in report.message

    def test_a_plain_update_of_one_element_races_and_an_atomic_one_does_not(self, build):
        for atomic in (False, True):
            update = build.statement("C", (0,), build.const(1.0), op=ast.AccOp.ADD, atomic=atomic)
            c = np.zeros(1, np.float32)
            report = run(flat(build, (update,), (build.tensor("C", 1),)), [array(c)])
            assert (report is None, c[0] == 128) == (atomic, atomic)

    def test_an_atomic_update_and_a_plain_read_race(self, build):
        update = build.statement("C", (0,), build.const(1.0), op=ast.AccOp.ADD, atomic=True)
        look = build.statement("D", ("i",), build.read("C", 0), id="S1")
        planned = flat(build, (update, look), (build.tensor("C", 1), build.tensor("D", 128)))
        report = run(planned, [array(np.zeros(1, np.float32)), array(np.zeros(128, np.float32))])
        assert report.kind == "race"
        assert {"atomically updates", "reads"} <= {w for w in ("atomically updates", "reads") if w in report.message}

    def test_many_readers_and_a_later_writer_race(self, build):
        look = build.statement("D", ("i",), build.read("C", 0))
        write = Guard(
            condition=build.less(63, "i"), body=(build.statement("C", (0,), build.const(1.0), id="S1", once=True),)
        )
        planned = flat(build, (look, write), (build.tensor("C", 1), build.tensor("D", 128)))
        for seed in (0, 5):
            report = run(planned, [array(np.zeros(1, np.float32)), array(np.zeros(128, np.float32))], seed=seed)
            assert report.kind == "race"

    def test_a_guard_that_is_too_wide_is_out_of_bounds(self, build):
        planned = flat(build, (build.statement("C", ("i",), build.const(1.0)),), (build.tensor("C", 128),))
        report = run(planned, [array(np.zeros(100, np.float32))])
        assert (report.kind, report.index) == ("bounds", 100)
        assert (report.block, report.thread) == (1, 36)

    def test_an_empty_array_has_no_element(self, build):
        planned = flat(build, (build.statement("C", ("i",), build.const(1.0)),), (build.tensor("C", 128),))
        report = run(planned, [array(np.zeros(0, np.float32))])
        assert (report.kind, report.message) == ("bounds", "C[0] is outside its 0 elements")

    def test_a_gathered_subscript_is_checked_in_its_own_dimension(self, build):
        gather = ast.Gather(value=build.read("idx", "i", dtype=I32))
        body = (build.statement("C", ("i",), build.read("A", gather, 1)),)
        tensors = (build.tensor("A", 64, 2), build.tensor("idx", 128, dtype=I32), build.tensor("C", 128))
        a, idx, c = np.arange(128, dtype=np.float32), np.arange(128, dtype=np.int32) % 64, np.zeros(128, np.float32)
        arguments = [array(a), array(idx), array(c)]
        planned = flat(build, body, tensors)
        assert run(planned, arguments) is None
        assert np.array_equal(c, a.reshape(64, 2)[idx, 1])
        for wrong in (64, -1):
            idx[70] = wrong
            report = run(planned, arguments)
            assert (report.kind, report.index, report.block, report.thread) == ("gather", wrong, 1, 6)

    def test_a_broken_promise_of_uniqueness_is_named(self, build):
        gather = ast.Gather(value=build.read("idx", "i", dtype=I32))
        body = (build.statement("C", (gather,), build.const(1.0), attrs=(build.attr("unique"),)),)
        idx, c = np.arange(128, dtype=np.int32), np.zeros(128, np.float32)
        planned = flat(build, body, (build.tensor("idx", 128, dtype=I32), build.tensor("C", 128)))
        assert run(planned, [array(idx), array(c)]) is None
        idx[90] = 3
        report = run(planned, [array(idx), array(c)])
        assert (report.kind, report.index) == ("unique", 3) and report.message.startswith("#unique is broken")

    def test_an_undefined_register_is_told(self, build):
        acc = build.block_tensor("acc", 1, memory=Memory.REG)
        body = (Fresh(buffer="acc"), build.statement("C", ("i",), build.read("acc", 0)))
        report = run(flat(build, body, (build.tensor("C", 128),), locals_=(acc,)), [array(np.zeros(128, np.float32))])
        assert (report.kind, report.message) == ("undefined", "acc[0] is read before anything wrote it")

    def test_fresh_forgets_what_the_last_iteration_wrote(self, build):
        acc = build.block_tensor("acc", memory=Memory.REG)
        once = Guard(condition=build.less("k", 1), body=(build.statement("acc", (), build.const(2.0)),))
        loop = Loop(
            index="k",
            extent=build.number(2),
            body=(Fresh(buffer="acc"), once, build.statement("C", ("i",), build.read("acc"), id="S1")),
        )
        report = run(
            flat(build, (loop,), (build.tensor("C", 128),), locals_=(acc,)), [array(np.zeros(128, np.float32))]
        )
        assert report.kind == "undefined"

    def test_arguments_that_do_not_fit_are_refused(self, build):
        planned = flat(build, (build.statement("C", ("i",), build.const(1.0)),), (build.tensor("C", 128),))
        assert run(planned, [array(np.zeros(128, np.float32)), 5]).kind == "launch"
        assert run(planned, []).kind == "launch"


def test_a_report_becomes_an_error_with_both_places(build):
    a, c = np.zeros((4, 64), np.float32), np.zeros((4, 64), np.float32)
    report = run(build.reverse(plain=False), [array(a), array(c)])
    (diagnostic,) = report.to_error().diagnostics
    assert diagnostic.code == "E0604"
    assert [note.split(",")[0] for note in diagnostic.notes] == ["at reverse.tex:5", "and at reverse.tex:5"]


def test_a_scalar_is_passed_by_value_and_a_host_index_too(build):
    from texpr.grammar.bits import scalar_bytes
    from texpr.grammar.types import BF16

    alpha = build.tensor("alpha", dtype=BF16, role=ast.Role.SCALAR)
    value = build.op("mul", build.cast(build.read("alpha", dtype=BF16), F32), build.read("A", "s", "i"))
    define = build.define("i", (1, "i_lane"))
    block = build.launch(
        "k_0",
        (define, build.statement("C", ("i",), value)),
        digits=(build.digit("i_lane", "lane", 32),),
        arguments=("s",),
    )
    planned = build.plan((block,), (build.tensor("A", 3, 32), alpha, build.tensor("C", 32)))
    text = emit_cuda(planned, TARGET)
    assert text.arguments == {"k_0": (("param", "A"), ("param", "C"), ("scalar", "alpha"), ("index", "s"))}
    a, c = np.arange(96, dtype=np.float32).reshape(3, 32), np.zeros(32, np.float32)
    assert run(planned, [array(a), array(c), scalar_bytes(1.5, BF16), 2]) is None
    assert np.array_equal(c, 1.5 * a[2])
