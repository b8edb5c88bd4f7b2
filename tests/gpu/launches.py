"""Launch artifacts that take more than arrays on a GPU: tensor maps, words, clusters, overlapping launches, cases.

    python tests/gpu/launches.py build OUT [--arch sm_90a]    where the compiler is, without a GPU
    python tests/gpu/launches.py run OUT                      with torch, cuda-core and cuda.bindings; no compiler

One line says of each check whether it is right or wrong. Words are used twice in a row, on two streams at once and in a
graph that is replayed beside its stream; arrays of which there is no tensor map must be refused before anything runs.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from build_or_run import build_or_run

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "polyhedral")]

PRODUCTS = ((520, 776, 1096), (1320, 776, 1096), (2048, 2048, 2048))
ROUNDS = 200  # calls that follow one another without a wait
CASES = "kernel scaled(A: f32[N], B: f32[N]) { par N i { B[i] = 2.0 * A[i] } }"


COLUMNS = "kernel columns(A: f32[M, N], S: f32[N]) { par N j { S[j] = sum M i { A[i, j] } } }"


def build(out: Path, arch: str) -> None:
    """An artifact with its cubin for each program."""
    from dataclasses import replace

    from gemm_by_hand import Shape, gemm
    from hand_built import GRAPHS
    from memory_by_hand import cluster_softmax, ticket_sum
    from rings import multicast

    import texpr
    from texpr.kernels import Compiled
    from texpr.pipeline import build_mapped
    from texpr.polyhedral.mapped.candidate import Case, Cases
    from texpr.polyhedral.mapped.when import read_condition
    from texpr.polyhedral.target import parse_target

    target = parse_target(f"cuda:{arch}")
    programs = {
        **{f"product_{m}_{n}_{k}": gemm(Shape(m, n, k)) for m, n, k in PRODUCTS},
        "boxes": multicast(3, "N"),
        "sum": ticket_sum(16, 2, 4 * 132),
        "small_sum": ticket_sum(2, 2, 8),
        "softmax": cluster_softmax(4, 8, 13),
        "prefix": GRAPHS["look-back"].program,
        "overlapping": GRAPHS["overlapping"].program,
        "two_passes": GRAPHS["two passes"].program,
    }
    for name, program in programs.items():
        Compiled(build_mapped(replace(program, target=target)), ()).save(out / name)
    kernel = texpr.parse(CASES).scaled
    own = kernel.compile(target.name, stop_after="map").mapping
    others = [other.choices for other in own.alternatives()[0].others[:2]]
    columns = texpr.parse(COLUMNS).only.compile(target.name, sizes={"M": 4096, "N": 1000})
    assert columns.manifest.words and columns.manifest.workspace, "its blocks meet in memory"
    columns.save(out / "columns")
    conditions = (read_condition("N % 2 == 0 and address(A) % 64 == 0"), read_condition("address(B) % 32 == 16"))
    assert conditions[0] is not None and conditions[1] is not None, "both are conditions"
    cases = tuple(Case(when=when, candidate=other) for when, other in zip(conditions, others, strict=True) if when)
    kernel.compile(target.name, mapping=Cases(cases=cases, otherwise=own.candidate)).save(out / "cases")
    print(len(programs) + 1, "artifacts for", arch)


def run(out: Path) -> int:
    """Every check; 0 when all are right."""
    import torch

    torch.zeros(1, device="cuda")
    wrong = 0
    for check in CHECKS:
        said = "right"
        try:
            fault = check(torch, lambda name: loaded(out / name))
            torch.cuda.synchronize()
            said = f"wrong: {fault}" if fault else "right"
        except Exception as error:
            said = f"wrong: {type(error).__name__}: {str(error)[:400]}"
        wrong += said != "right"
        print(f"{check.__name__.replace('_', ' ')}: {said}", flush=True)
    print(f"{len(CHECKS)} checks, {wrong} wrong")
    return 1 if wrong else 0


def loaded(folder: Path) -> Any:
    from texpr.runtime.load import load

    return load(folder)


Load = Callable[[str], Any]


def apart(torch: Any, got: Any, want: Any, tolerance: float) -> str:
    """Why a result is not as it should be, by the norm of the difference; empty where it is."""
    error = float((got.double() - want.double()).norm() / want.double().norm())
    return "" if error <= tolerance else f"an error of {error:.2e}"


def products_by_tensor_maps(torch: Any, load: Load) -> str:
    for m, n, k in PRODUCTS:
        kernel = load(f"product_{m}_{n}_{k}")
        a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
        for _ in range(2):  # other arrays, and the same ones again
            c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            for _ in range(2):
                kernel(a, b, c)
            if fault := apart(torch, c, a.double() @ b.double().T, 2.5e-3):
                return f"{m} x {n} x {k}: {fault}"
    return ""


def _halves(torch: Any, a: Any) -> Any:
    total = a[:, :64].sum(0, dtype=torch.int32)
    return (total[:32] + total.flip(0)[:32]).expand(2, 32)


def tensor_maps_of_dynamic_sizes(torch: Any, load: Load) -> str:
    kernel = load("boxes")
    for rows, width in ((5, 64), (9, 68), (1, 1000), (33, 64)):
        a = torch.randint(-99, 99, (rows, width), device="cuda", dtype=torch.int32)
        b = torch.zeros(2, 32, device="cuda", dtype=torch.int32)
        kernel(a, b)
        if not torch.equal(b, _halves(torch, a)):
            return f"{rows} rows of {width}"
    return ""


def arrays_without_a_tensor_map_are_refused(torch: Any, load: Load) -> str:
    from texpr.grammar.diagnostics import TExprError

    kernel, b = load("boxes"), torch.zeros(2, 32, device="cuda", dtype=torch.int32)
    try:
        kernel(torch.zeros(5, 66, device="cuda", dtype=torch.int32), b)
    except TExprError as error:
        return "" if "264 bytes along dimension 0" in str(error) else str(error)
    return "rows of 264 bytes went through"


def a_ticket_sum_twice_in_a_row(torch: Any, load: Load) -> str:
    for name in ("sum", "small_sum"):
        kernel = load(name)
        for n in (1, 5000, 100_003, 1 << 24, 4099):
            a, b = torch.rand(n, device="cuda"), torch.full((1,), float("nan"), device="cuda")
            for _ in range(2):
                b.fill_(float("nan"))
                kernel(a, b)
                if fault := apart(torch, b, a.double().sum()[None], 1e-5):
                    return f"{name} of {n}: {fault}"
    return ""


def a_ticket_sum_on_two_streams_at_once(torch: Any, load: Load) -> str:
    kernel = load("sum")
    streams = [torch.cuda.Stream() for _ in range(2)]
    arrays = [torch.rand(1 << 20, device="cuda") for _ in streams]
    wants = [a.double().sum() for a in arrays]
    results = [torch.full((ROUNDS, 4), float("nan"), device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for number in range(ROUNDS):
        for stream, a, result in zip(streams, arrays, results, strict=True):
            kernel(a, result[number, :1], stream=stream)
    torch.cuda.synchronize()
    for want, result in zip(wants, results, strict=True):
        off = int(((result[:, 0].double() - want).abs() > 1e-5 * want).sum() + result[:, 0].isnan().sum())
        if off:
            return f"{off} of {ROUNDS} sums"
    return ""


def a_ticket_sum_in_a_graph_beside_its_stream(torch: Any, load: Load) -> str:
    kernel = load("sum")
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    a, b = torch.rand(1 << 20, device="cuda"), torch.rand(1 << 20, device="cuda")
    into, beside = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel(a, into[:1])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(3):
                kernel(a, into[:1])
    for _ in range(ROUNDS):
        with torch.cuda.stream(other):
            graph.replay()
        kernel(b, beside[:1], stream=stream)
    torch.cuda.synchronize()
    faults = (
        apart(torch, into[:1], a.double().sum()[None], 1e-5),
        apart(torch, beside[:1], b.double().sum()[None], 1e-5),
    )
    return "; ".join(filter(None, faults))


def sums_of_columns_in_graphs_of_several_calls(torch: Any, load: Load) -> str:
    """Calls with a workspace find words in a graph that no run of it clears: two on a stream, one on another."""
    run = load("columns")
    given = [torch.randn(4096, 1000, device="cuda") for _ in range(3)]
    got = [torch.empty(1000, device="cuda") for _ in given]
    wanted = [a.double().sum(0) for a in given]
    run(given[0], got[0])  # before any capture
    torch.cuda.synchronize()
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph in graphs:
        with torch.cuda.graph(graph, stream=stream):
            run(given[0], got[0])
            other.wait_stream(stream)
            with torch.cuda.stream(other):
                run(given[2], got[2])
            run(given[1], got[1])
            stream.wait_stream(other)
    for turn in range(20):
        for out in got:
            out.fill_(torch.nan)
        graphs[turn % 2].replay()
        torch.cuda.synchronize()
        if any(why := [apart(torch, out, want, 1e-5) for out, want in zip(got, wanted, strict=True)]):
            return f"in turn {turn}: {why}"
        if turn % 5 == 0:  # beside the graph's own words
            run(given[1], got[1])
    return ""


def words_that_each_call_clears(torch: Any, load: Load) -> str:
    kernel = load("prefix")
    for n in (6, 1, 500, 6):
        a = torch.randint(-99, 99, (n, 32), device="cuda", dtype=torch.int32)
        p = torch.zeros_like(a)
        for _ in range(2):
            p.fill_(-1)
            kernel(a, p)
            if not torch.equal(p, a.cumsum(0, dtype=torch.int32)):
                return f"{n} rows"
    return ""


def a_softmax_over_clusters(torch: Any, load: Load) -> str:
    kernel = load("softmax")
    for m, n in ((3, 431), (257, 100_003), (1, 8)):
        x = torch.randn(m, n, device="cuda").bfloat16()
        y = torch.full_like(x, float("nan"))
        kernel(x, y)
        if fault := apart(torch, y, torch.softmax(x.double(), 1), 5e-3):
            return f"{m} rows of {n}: {fault}"
    return ""


def launches_that_overlap(torch: Any, load: Load) -> str:
    kernel = load("overlapping")
    for n in (6, 5000):
        a = torch.randint(-99, 99, (n, 32), device="cuda", dtype=torch.int32)
        for _ in range(ROUNDS // 4):
            b = torch.full_like(a, -1)
            kernel(a, b)
            a_next = b  # the next call reads what this one writes
            kernel(a_next, c := torch.full_like(a, -1))
            want = a.flip(0) + a
            if not torch.equal(b, want) or not torch.equal(c, want.flip(0) + want):
                return f"{n} rows"
    return ""


def blocks_that_run_together(torch: Any, load: Load) -> str:
    kernel = load("two_passes")
    for n in (6, 1, 132, 100):
        a = torch.randint(-99, 99, (n, 32), device="cuda", dtype=torch.int32)
        for _ in range(5):  # an odd number of barriers leaves the top bit of the word turned over
            b = torch.full_like(a, -1)
            kernel(a, b)
            if not torch.equal(b, a.flip(0)):
                return f"{n} blocks"
    return ""


def cases_by_size_and_address(torch: Any, load: Load) -> str:
    kernel = load("cases")
    memory = torch.rand(4096, device="cuda")
    for n in (1000, 1001):
        for at in (0, 4, 16):
            for to in (0, 4):
                a, b = memory[at : at + n], torch.zeros(n + 16, device="cuda")[to : to + n]
                kernel(a, b)
                if not torch.equal(b, 2 * a):
                    return f"{n} elements, {4 * at} and {4 * to} bytes behind a line"
    return ""


def tensors_that_change_in_place(torch: Any, load: Load) -> str:
    """A call that gives the tensors of the call before asks torch's guards whether they are as they were."""
    from texpr.grammar.diagnostics import TExprError

    kernel = load("cases")

    def at(n: int) -> Any:
        return torch.rand(n, device="cuda")

    def wrong(a: Any, b: Any) -> str:
        try:
            kernel(a, b)
        except TExprError as error:
            return error.diagnostics[0].code
        torch.cuda.synchronize()
        return "" if torch.equal(b, 2 * a) else "another result"

    def change(tensor: Any, to: Any) -> None:
        tensor.data = to

    changes: dict[str, tuple[Callable[[Any, Any], object], str]] = {
        "the same": (lambda a, b: None, ""),
        "other values": (lambda a, b: a.add_(1.0), ""),
        "another memory": (lambda a, b: change(b, at(64)), ""),
        "both longer": (lambda a, b: (change(a, at(96)), change(b, at(96))), ""),
        "one longer": (lambda a, b: b.resize_(96), "E0601"),
        "another type": (lambda a, b: change(b, b.data.view(torch.int32)), "E0601"),
        "other strides": (lambda a, b: b.set_(at(128)[::2]), "E0601"),
        "the other one's memory": (lambda a, b: b.set_(a), "E0603"),
        "no memory": (lambda a, b: b.untyped_storage().resize_(0), "E0601"),
        "negated lazily": (lambda a, b: change(a, torch._neg_view(at(64))), "E0601"),
        "in the host's memory": (lambda a, b: change(a, at(64).cpu()), "E0605"),
    }
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        for name, (made, code) in changes.items():
            with mode():
                a, b = at(64), at(64)
                if any(wrong(a, b) for _ in range(4)):
                    return f"before {name}"
                made(a, b)
                if any(wrong(a, b) != code for _ in range(2)):
                    return f"{name}: {wrong(a, b) or 'taken'}"
    return ""


CHECKS = (
    tensors_that_change_in_place,
    products_by_tensor_maps,
    tensor_maps_of_dynamic_sizes,
    arrays_without_a_tensor_map_are_refused,
    a_ticket_sum_twice_in_a_row,
    a_ticket_sum_on_two_streams_at_once,
    a_ticket_sum_in_a_graph_beside_its_stream,
    sums_of_columns_in_graphs_of_several_calls,
    words_that_each_call_clears,
    a_softmax_over_clusters,
    launches_that_overlap,
    blocks_that_run_together,
    cases_by_size_and_address,
)


if __name__ == "__main__":
    sys.exit(build_or_run(__doc__, build, run))
