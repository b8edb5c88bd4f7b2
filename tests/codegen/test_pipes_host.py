"""Pipes, clusters and flags on the CPU: right texts are right in every order, and each operation of theirs that is left
out, done twice or done elsewhere is found and told."""

import re
import subprocess
from functools import cache

import numpy as np
import pipe_cases
import pytest
from pipe_cases import CASES, Case, Map

from texpr.codegen.host_run import HostArray, HostModule
from texpr.codegen.toolchain import INCLUDE, compile_cubin, find_nvcc

pytestmark = pytest.mark.usefixtures("optimised_file")
SEEDS = (0, 1, 2, 77, 123456789)
BY_NAME = {case.kernel: case for case in CASES}


@cache
def module():
    return HostModule(pipe_cases.source())


def run(case: Case, broken: int = 0, seed: int = 0, kernel: str = "", grid: int | None = None):
    """The report of a launch, and the names of the arrays that are not what they should be."""
    arrays = case.arrays()
    expected = case.expected(arrays)
    arguments = []
    for argument in (*case.arguments, broken):
        if isinstance(argument, str):
            arguments.append(HostArray(arrays[argument].ctypes.data, arrays[argument].nbytes))
        elif isinstance(argument, Map):
            data = arrays[argument.array]
            arguments.append(argument.of(data, data.ctypes.data))
        else:
            arguments.append(np.int32(argument).tobytes())
    blocks = case.grid if grid is None else grid
    report = module().launch(kernel or case.kernel, arguments, (blocks, 1, 1), case.block, case.shared, seed)
    return report, [name for name, want in expected.items() if not np.array_equal(arrays[name], want)]


@pytest.mark.gxx
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda k: f"{CASES[k].kernel}-{k}")
@pytest.mark.sampled(3)
def test_the_right_text_is_right_in_every_order(number):
    for seed in SEEDS:
        assert run(CASES[number], seed=seed) == (None, []), seed


RACE = "nothing orders them|nothing waits for it"
EARLY = f"{RACE}|is read before anything wrote it"
NEVER_MADE = "is used and was never made"
TWICE = "is made twice"
NO_FENCE = "no fence_barrier_init came before"
PHASE = r"gets an arrival for phase \d+ from block \d+ thread \d+ and is in phase \d+"
ONE_MORE = "gets one arrival more than its"
SLOTS = r"waits for phase \d+ of ab.empty\[\d\] .*; block \d thread \d+ waits for phase \d+ of ab.full\[\d\]"
STUCK = r"waits for phase \d+ of \w+.full\[\d\] \(\d of 1 arrivals came, \d+ bytes (are missing|too many)\)"
TOO_FEW = r"bytes that were on the way in phase \d+ of \w+.full\[\d\] arrive in phase \d+: too few were expected"
ENDS = "ends, and nothing says that block . thread .* is done with its shared memory|of block ., which has ended"
NOT_ARRIVED = "waits at the cluster's barrier and has not arrived"
ARRIVED = "arrives twice at the cluster's barrier"
PARTS = r"waits at part barrier 2 .*; block 0 thread 32 waits at part barrier 1"
LAPPED = "the test of its parity passes at once"
HARMLESS = ""  # done twice, it is as done once
WRONG = "o"  # the only sign is a wrong result

START = {
    "INIT": (NEVER_MADE, TWICE),
    "FIRST": (NEVER_MADE, HARMLESS),
}
CONSUMER = {
    "WAIT": (EARLY, HARMLESS, EARLY),
    "RELEASE": (SLOTS, f"{PHASE}|{RACE}", f"{PHASE}|{RACE}|its parity is that of before"),
    "STEP": (f"{PHASE}|{RACE}", f"{LAPPED}|{SLOTS}"),
}
PRODUCER = {
    "ACQUIRE": (f"{PHASE}|{RACE}", HARMLESS, f"{PHASE}|{RACE}"),
    "COMMIT": (SLOTS, f"{PHASE}|{EARLY}|{ONE_MORE}", EARLY),
}
FENCED = START | {"FENCE": (NO_FENCE, HARMLESS)}
RING = START | CONSUMER | PRODUCER

# For each kernel and operation what is told when it is dropped, doubled, and, where it can be, moved.
FOUND = {
    **{f"ring_arrive_{n}": RING for n in (1, 2, 3, 4)},
    **{f"ring_copies_{n}": RING for n in (1, 3)},
    **{
        f"ring_transaction_{n}": RING
        | FENCED
        | {"COMMIT": (SLOTS, f"{PHASE}|{ONE_MORE}"), "BYTES": (f"{TOO_FEW}|{STUCK}|{EARLY}", STUCK)}
        for n in (1, 2, 3, 4)
    },
    **{
        f"ring_products_{n}": FENCED
        | {"WAIT": (RACE, HARMLESS), "CLOSE": (RACE, HARMLESS), "RELEASE": (SLOTS, PHASE, f"{PHASE}|{RACE}")}
        for n in (2, 3)
    },
    "ring_groups_1": dict.fromkeys(("COMMIT", "WAIT", "FREE", "SHOW"), (EARLY, HARMLESS)),
    **{f"ring_groups_{n}": dict.fromkeys(("COMMIT", "WAIT", "FREE"), (EARLY, HARMLESS)) for n in (2, 3, 4)},
    **{
        f"parts_{n}": {
            "WAIT": (EARLY, PARTS, EARLY),
            "RELEASE": (PARTS, RACE),
            "FREE": (EARLY, PARTS),
            "SHOW": (PARTS, EARLY, EARLY),
        }
        for n in (0, 1)
    },
    "ended_0": {
        "FREE": (f"{RACE}|is used and has been invalidated", HARMLESS),
        "END": (r"again\[7\] lies in an mbarrier", "has been invalidated", f"{RACE}|has been invalidated"),
        "SHOW": (f"{RACE}|lies in an mbarrier", HARMLESS),
    },
    "stores_0": {
        "READ": (RACE, HARMLESS),
        "FREE": (RACE, HARMLESS),
        "FENCE": ("no fence_async shows it to copies", HARMLESS, "no fence_async shows it to copies"),
        "SHOW": (EARLY, HARMLESS),
        "CLOSE": (RACE, HARMLESS),
        "WAIT": (ENDS, HARMLESS),
    },
    "dependent_0": {"AFTER": (before := r"reads A\[\d+\] before after_launch", HARMLESS, before)},
    "settled_0": {
        "SETTLED": (before, HARMLESS),
        "AFTER": (late := r"writes O\[\d+\] before after_launch", HARMLESS, late),
    },
    **{
        f"multicast_{n}": {
            "INIT": (NEVER_MADE, TWICE),
            "FENCE": (f"{RACE}|{NO_FENCE}", HARMLESS),
            "ARRIVE": (NOT_ARRIVED, ARRIVED),
            "FIRST": (NEVER_MADE, NOT_ARRIVED),
            "ACQUIRE": (f"{PHASE}|{RACE}|{ONE_MORE}", HARMLESS, f"{PHASE}|{RACE}|{ONE_MORE}"),
            "COMMIT": (SLOTS, f"{PHASE}|{ONE_MORE}"),
            "BYTES": (f"{TOO_FEW}|{EARLY}|{SLOTS}", SLOTS),
            "WAIT": (EARLY, HARMLESS, EARLY),
            "SHOW": (RACE, HARMLESS, RACE),
            "RELEASE": (SLOTS, f"{PHASE}|{RACE}|{ONE_MORE}"),
            "DRAIN": (ENDS, r"waits for phase \d+ of ab.empty"),
        }
        for n in (1, 2, 3, 4)
    },
    **{
        f"across_{n}": FENCED
        | {op: CONSUMER[op] for op in ("WAIT", "RELEASE")}
        | PRODUCER
        | {
            "INIT": (NEVER_MADE, TWICE),
            "FENCE": (f"{RACE}|{NO_FENCE}", HARMLESS),
            "ARRIVE": (NOT_ARRIVED, ARRIVED),
            "FIRST": (f"{NEVER_MADE}|nothing says that it runs already", NOT_ARRIVED),
            "RELEASE": (SLOTS, f"{PHASE}|{RACE}|{ONE_MORE}", f"{PHASE}|{RACE}|its parity is that of before|{ONE_MORE}"),
            "DRAIN": (ENDS, r"waits for phase \d+ of ab.empty"),
        }
        for n in (1, 2, 3, 4)
    },
    "letters": {
        "SHOW": (EARLY, HARMLESS),
        "PUBLISH": (r"waits for phase 0 of box.full\[0\]", f"{PHASE}|{ENDS}", RACE),
        "WAIT": (EARLY, HARMLESS, RACE),
    },
    "peers": {
        "ARRIVE": (NOT_ARRIVED, ARRIVED),
        "FIRST": (ARRIVED, NOT_ARRIVED),
        "SHOW": (NOT_ARRIVED, ARRIVED, f"{RACE}|{ARRIVED}"),
        "WAIT": (EARLY, NOT_ARRIVED, EARLY),
        "LEAVE": (ENDS, HARMLESS, ENDS),
        "STORE": (HARMLESS, HARMLESS, r"writes O\[\d\], block \d thread 0 writes it"),
    },
    "neighbours": {
        "INIT": (NEVER_MADE, TWICE),
        "FENCE": (NO_FENCE, HARMLESS),
        "COMMIT": (STUCK, ONE_MORE),
        "BYTES": (f"{TOO_FEW}|{EARLY}", STUCK),
        "ARRIVE": (NOT_ARRIVED, ARRIVED),
        "FIRST": (NEVER_MADE, NOT_ARRIVED),
        "STORE": (STUCK, RACE),
        "WAIT": (EARLY, HARMLESS),
    },
    "boxes": {
        "INIT": (NEVER_MADE, TWICE),
        "FENCE": (NO_FENCE, HARMLESS),
        "COMMIT": (STUCK, ONE_MORE),
        "BYTES": (STUCK, STUCK),
        "WAIT": (RACE, HARMLESS),
        "STORE": (WRONG, r"writes tensor map\[\d+\], a copy of"),
        "CLOSE": (ENDS, HARMLESS),
        "READ": (ENDS, HARMLESS),
    },
    "look_back": {
        "TURN": (EARLY, r"waits for flag \d|left at", "of turn -1, awaits flag|counter stands|waits for flag"),
        "AWAIT": (RACE, HARMLESS, RACE),
        "PUBLISH": (r"waits for flag \d", "publishes 1 at a flag that says so already", RACE),
        "RESET": ("a counter or flag is left at 1, and the next launch begins with that", HARMLESS),
    },
    "ticket_sum": {
        "SHOW": (RACE, HARMLESS, RACE),
        "LAST": (WRONG, "is counted twice of the 7 that are to come", f"{RACE}|is counted twice"),
        "WAIT": (RACE, HARMLESS),
    },
    "grid_steps": dict.fromkeys(("GRID", "FREE", "SHOW"), (RACE, HARMLESS)),
}
BREAKS = [
    pytest.param(kernel, operation, how, text, id=f"{kernel}-{operation}-{how}")
    for kernel, operations in FOUND.items()
    for operation, texts in operations.items()
    for how, text in zip(pipe_cases.HOW, texts, strict=False)
]


@pytest.mark.gxx
@pytest.mark.parametrize(("kernel", "operation", "how", "text"), BREAKS)
def test_a_broken_operation_is_told(kernel, operation, how, text):
    for seed in SEEDS[:3]:
        report, wrong = run(BY_NAME[kernel], pipe_cases.broken(operation, how), seed)
        if text == HARMLESS:
            assert (report, wrong) == (None, [])
        elif text == WRONG:
            assert (report, wrong) == (None, ["o"])
        else:
            assert report is not None and re.search(text, report.message), report
            assert report.file.startswith("/texpr/") and report.line > 0
            assert report.to_error().diagnostics[0].code == "E0604"


def test_every_operation_of_the_texts_is_broken():
    texts = {name: (pipe_cases.HERE / f"{name}.cu").read_text() for name in pipe_cases.TEXTS}
    broken = {op: max(len(ops[op]) for ops in FOUND.values() if op in ops) for ops in FOUND.values() for op in ops}
    for text in texts.values():
        assert set(re.findall(r"\bOP\((\w+)\)", text)) <= set(broken)
        assert set(re.findall(r"MOVED\((\w+)\)", text)) <= {op for op, ways in broken.items() if ways == 3}
    assert set(broken) == set(pipe_cases.OPERATIONS)


@pytest.mark.gxx
class TestKinds:
    """A report's kind, and both of its places."""

    def told(self, kernel, operation, how):
        report, _ = run(BY_NAME[kernel], pipe_cases.broken(operation, how))
        return report

    def test_a_deadlock_names_two_who_wait_for_one_another(self):
        report = self.told("ring_transaction_2", "RELEASE", "dropped")
        assert report.kind == "deadlock" and report.line != report.other_line and report.other_line > 0
        assert (report.thread, report.other_thread) == (0, 32)

    def test_a_phase_that_does_not_fit_is_of_its_kind(self):
        assert self.told("ring_transaction_2", "COMMIT", "doubled").kind == "phase"

    def test_memory_of_a_block_that_ends_is_of_its_kind(self):
        assert self.told("multicast_2", "DRAIN", "dropped").kind == "exited"

    def test_a_copy_that_nobody_waited_for_is_a_race_with_the_line_that_started_it(self):
        report = self.told("ring_copies_3", "ACQUIRE", "moved")
        text = (pipe_cases.HERE / "rings.cu").read_text().splitlines()
        assert report.kind == "race" and "cp_async<4>" in text[report.other_line - 1]

    def test_pipes_need_blocks_that_run_together(self):
        report, _ = run(BY_NAME["ended_0"], kernel="alone")
        assert (report.kind, "TX_EXPORT_AS" in report.message) == ("launch", True)

    def test_a_grid_is_made_of_whole_clusters(self):
        report, _ = run(BY_NAME["ended_0"], kernel="pairs", grid=3)
        assert (report.kind, report.message) == ("launch", "the grid is not made of whole clusters")

    def test_two_clusters_that_write_one_element_race(self):
        report, _ = run(BY_NAME["ended_0"], kernel="pairs", grid=2)
        assert report.kind == "race" and report.block != report.other_block


# The cases of misuse.cu: kind and words.
MISUSES = (
    ("bounds", "a bulk copy of 24 bytes; their number is a multiple of 16"),
    ("alignment", "an access of 16 bytes at tile[1], which lies 4 bytes behind a multiple of that"),
    ("bounds", "a copy of 32 bytes at tile[28] goes 16 bytes beyond its end"),
    ("phase", "ab.full[0] expects 0 bytes; 1 to 1048575 can be"),
    ("phase", "ab.full[0] is made with 0 arrivals; it lies on a multiple of 8 in shared memory, and takes 1 or more"),
    ("divergence", "barrier 1 is of 48 threads; it takes whole warps of the block's 64"),
    ("divergence", "barrier 1 is of "),
    ("bounds", "O is not in shared memory, which this copy needs"),
    ("bounds", "rank 1 is not of the cluster's 1 blocks"),
    ("bounds", "17 of 16 bytes of a cp.async are to be read"),
    ("launch", "block 0 thread 0 uses flags between blocks: export the kernel as Launched().flags()"),
    ("launch", "sync_grid needs all blocks at once: export the kernel as Launched().cooperative()"),
    ("phase", "raw[0] lies in an mbarrier"),
    ("phase", "ab.full[0] gets an arrival for phase 1 from block 0 thread 0 and is in phase 0"),
    ("bounds", "tile[32] is outside its 32 elements"),
    ("bounds", "A is not in shared memory, which this copy needs"),
)


@pytest.mark.gxx
@pytest.mark.parametrize("case", range(len(MISUSES)))
def test_what_the_device_leaves_undefined_is_refused(case):
    kind, words = MISUSES[case]
    launch = Case(
        kernel="misuse",
        arrays=lambda: {"a": np.ones(64, np.float32), "o": np.zeros(64, np.float32)},
        expected=lambda arrays: {},
        shared=264,
    )
    for seed in SEEDS:
        report, _ = run(launch, case, seed)
        assert (report.kind, report.message[: len(words)]) == (kind, words)
        assert (" threads for thread " in report.message) == (case == 6)  # who came first is the seed's choice


@pytest.mark.gxx
@pytest.mark.parametrize("number", range(len(pipe_cases.REFUSED)))
def test_a_box_begins_at_a_multiple_of_16_bytes_of_its_row(number):
    launch = pipe_cases.REFUSED[number]
    for seed in SEEDS:
        report, _ = run(launch, seed=seed)
        words = f"a box whose corner is {4 * launch.arguments[4]} bytes into its row; the device takes multiples of 16"
        assert (report.kind, report.message[: len(words)]) == ("alignment", words)
        assert (report.file, report.thread) == ("/texpr/clusters.cu", 0)


@pytest.mark.parametrize("number", range(len(pipe_cases.REFUSED_STORES)))
def test_a_box_is_stored_from_the_first_element_on(number):
    report, _ = run(pipe_cases.REFUSED_STORES[number], seed=0)
    assert (report.kind, report.file) == ("alignment", "/texpr/clusters.cu")
    assert report.message.startswith("a box is stored to a corner before the array")


REMOTE_ARRIVAL = """
#include "texpr/pipe.cuh"
extern "C" __global__ void light() {
  extern __shared__ __align__(16) tx::u8 smem[];
  tx::Pipe<2, tx::PipeKind::kTransaction, tx::Scope::kCluster> ab(smem, "ab");
  ab.release_to(1);
  ab.release_after_to<1>(0);
  ab.release_after<1>();
}
extern "C" __global__ void heavy() {
  extern __shared__ __align__(16) tx::u8 smem[];
  tx::Pipe<2, tx::PipeKind::kArrive, tx::Scope::kCluster> ab(smem, "ab");
  ab.commit_to(1);
  ab.commit();
}
"""


def device_fences(cubin: bytes, kernel: str, tmp_path) -> int:
    """How many MEMBAR instructions of sm_90 stand in a kernel of a cubin: 16-byte words whose low bits are 0x992."""
    (tmp_path / "k.cubin").write_bytes(cubin)
    listed = subprocess.run(["readelf", "-SW", tmp_path / "k.cubin"], capture_output=True, text=True, check=True).stdout
    place = re.search(rf"\.text\.{kernel}\s+PROGBITS\s+\S+\s+(\w+)\s+(\w+)", listed)
    assert place
    code = cubin[int(place[1], 16) :][: int(place[2], 16)]
    return sum(int.from_bytes(code[k : k + 2], "little") & 0xFFF == 0x992 for k in range(0, len(code), 16))


# What is wrong on sm_80, or anywhere, with what the compiler says of it.
REFUSED = {
    "tx::Pipe<2, tx::PipeKind::kTransaction> p(0, 0);": "a pipe of bulk copies: sm_90 or newer is needed; use "
    "PipeKind::kCpAsync or kArrive",
    "tx::fence_barrier_init();": "barriers of copies and clusters: sm_90 or newer is needed; within a block of sm_80 "
    "sync_block is enough",
    "tx::cluster_arrive();": "clusters: sm_90 or newer is needed",
    "tx::bulk_close();": "bulk copies: sm_90 or newer is needed",
    "tx::wgmma_close();": "wgmma: only sm_90a has it",
    "tx::after_launch();": "dependent launches: sm_90 or newer is needed",
    "tx::take_registers<40>();": "setmaxnreg: an architecture with the suffix a or f is needed, such as sm_90a",
    "tx::prefetch_map(*static_cast<tx::TensorMap*>(nullptr));": "tensor maps: sm_90 or newer is needed",
    "tx::sync_part<16>(64);": "parts have the barriers 1 to 15",
    "tx::Pipe<2, tx::PipeKind::kArrive>(0, 0).commit(64);": "commit(bytes) is of PipeKind::kTransaction",
}


@pytest.mark.nvcc
class TestDevice:
    @pytest.mark.parametrize("arch", ["sm_80", "sm_90a", pytest.param("sm_100a", marks=pytest.mark.long), "sm_120a"])
    def test_the_texts_compile_without_warnings(self, arch):
        assert compile_cubin(pipe_cases.source(), arch, werror=True)

    def test_freeing_a_slot_of_another_block_costs_no_fence_of_the_device(self, tmp_path):
        cubin = compile_cubin(REMOTE_ARRIVAL, "sm_90a", werror=True)
        assert device_fences(cubin, "light", tmp_path) == 0
        assert device_fences(cubin, "heavy", tmp_path) > 0  # it publishes what this block wrote

    def test_what_sm_80_lacks_is_refused_in_words(self, tmp_path):
        headers = ("pipe", "cluster", "tma", "dependent", "parts", "flags")
        lines = [*(f'#include "texpr/{name}.cuh"' for name in headers), "__global__ void k() {", *REFUSED, "}"]
        (tmp_path / "k.cu").write_text("\n".join(lines))
        command = [find_nvcc().path, "-std=c++17", "-arch=sm_80", "-I", INCLUDE, "-cubin", "-o", "k.cubin", "k.cu"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        said = re.findall(r'error: static assertion failed with "(.*)"', done.stderr)
        assert said == [*REFUSED.values(), "an mbarrier that counts bytes: sm_90 or newer is needed"]
