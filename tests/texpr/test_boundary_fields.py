"""Every field of a boundary type is read by the product: what a stage hands on, a later one obeys.

Fields are replaced by ones that note who reads them, programs of all kinds go through all stages, the the
simulator; what a printer, the JSON of a mapping, a test or a dataclass's own methods read does not count.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from gemm_by_hand import Shape, gemm
from hand_built import GRAPHS
from memory_by_hand import cluster_softmax, softmax, ticket_sum
from scans import scanned

import texpr
from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.plan import plan
from texpr.polyhedral import program as model
from texpr.polyhedral.mapped import between, operators, order, places, planned, program, sync, tree, views
from texpr.polyhedral.mapped.candidate import Candidate, Piped
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.prove.dependence import find_dependences
from texpr.polyhedral.simulate.stage import simulate

ROOT = Path(__file__).resolve().parents[2]
MODULES: tuple[ModuleType, ...] = (
    model, places, views, operators, order, sync, between, tree, program, planned,
)  # fmt: skip
FLOORS = ("grammar", "polyhedral", "codegen", "runtime", "texpr")
PRINTERS = ("show.py", "show_sync.py", "mapping_json.py", "manifest_io.py", "printed.py")
HAND_BUILT = (
    "ring 2",
    "multicast 2",
    "staged 2",
    "groups",
    "named",
    "look-back",
    "ticket",
    "two passes",
    "overlapping",
)
FOR_PEOPLE = {
    "Guard.padding", "MappedProgram.candidate", "MappedBuffer.reason", "Order.met",
    "Report.accesses", "Report.representative", "Report.schedule",
    *(f"AccessReport.{name}" for name in (
        "statement", "buffer", "mode", "relation", "width", "lane_stride", "distance", "sectors", "ideal_sectors",
    )),
    # The reasons of syncs; those of a barrier stand in the emitted text, which has no others yet.
    *(f"{name}.orders" for name in ("Acquire", "Wait", "WaitGroup", "Await", "AfterLaunch", "GridBarrier", "Last")),
}  # fmt: skip
AWAITED = {
    # What `find_dependences` gives to who asks beside what schedules are judged by.
    "Dependence.hazard", "Dependence.must",
    # Read where a launch cannot be synchronised.
    "Order.computed",
    # What the mapper will say of threads, when it makes these: those written by hand stand where all threads come.
    "Contract.digits", "Contract.unused", "Unload.digits", "Unload.unused", "Combined.digits",
}  # fmt: skip


def boundary_types() -> Iterator[type]:
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
                yield value


class Noted:
    """A field that notes from which file it is read."""

    def __init__(self, member: Any, note: Callable[[str], None]) -> None:
        self.member, self.note = member, note

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.member
        self.note(sys._getframe(1).f_code.co_filename)
        return self.member.__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        self.member.__set__(instance, value)


@contextmanager
def readers() -> Iterator[dict[str, set[str]]]:
    """The files that read each field meanwhile."""
    found: dict[str, set[str]] = {}
    kept: list[tuple[type, str, Any]] = []
    for kind in boundary_types():
        for field in dataclasses.fields(kind):
            if field.name not in vars(kind):
                continue  # of the type that it extends
            member = vars(kind)[field.name]
            files = found.setdefault(f"{kind.__name__}.{field.name}", set())
            kept.append((kind, field.name, member))
            setattr(kind, field.name, Noted(member, files.add))
    try:
        yield found
    finally:
        for kind, name, member in kept:
            setattr(kind, name, member)


def of_product(file: str) -> bool:
    path = Path(file).resolve()
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FLOORS
    return inside and path.name not in PRINTERS


def test_every_field_of_a_boundary_type_is_read_by_the_product() -> None:
    with readers() as found:
        use()
    unread = {field for field, files in found.items() if not any(map(of_product, files))}
    assert found.keys() >= FOR_PEOPLE | AWAITED
    assert not {field for field in unread - FOR_PEOPLE - AWAITED if not field.endswith(".span")}


def test_a_field_that_only_a_printer_reads_is_found() -> None:
    mapped = texpr.parse(KERNELS)["rows"].compile("cpu", stop_after="map").mapping
    with readers() as found:
        assert "workspace" in str(mapped)
    assert {Path(file).name for file in found["MappedBuffer.reason"]} == {"show.py"}


KERNELS = """
kernel rows(A: f32[M, N], s: f32[M], scale: f32) where N >= 1, M < 4096 {
    new w: f32[M]
    par M i { w[i] = sum N k { A[i, k] } }
    if M > 2 { par M i { s[i] = w[M - 1 - i] * scale } } else { par M i { s[i] = 0.0 } }
    par M i {
        new x: f32
        if A[i, 0] > 0.0 { x = 1.0 } else { x = 2.0 }
        s[i] += x
    }
    seq 3 t {
        par M - 1 i { s[i + 1] += w[i] }
        par M i { w[i] = s[M - 1 - i] + f32(t) }
    }
}
kernel tiles(A: f32[M, 64], B: f32[M, 64], f: i32[M], C: i32[64]) {
    par M i {
        new t: f32[64] #align(128)
        par 64 a { t[a] = A[i, a] }
        if f[i] > 0 { par 64 b { B[i, b] = t[63 - b] } }
        par 64 c { atomic C[f[i]] += 1 }
        seq 2 q { par 64 d { t[d] = A[i, d] } par 64 e { B[i, e] += t[63 - e] } }
    }
}
"""


PRODUCT = """kernel product(A: bf16[8192, 256], B: bf16[8192, 256], C: bf16[8192, 8192]) {
    par 8192 i, 8192 j { C[i, j] = sum 256 k { A[i, k] * B[j, k] } }
}"""


def use() -> None:
    """Programs through all stages and the simulator, programs that are refused, hand-built launches simulated."""
    for kernel in texpr.parse(KERNELS):
        for target in ("cpu", "cuda:sm_90a"):
            assert kernel.compile(target).source
    assert "drain" in texpr.parse(PRODUCT).only.compile("cuda:sm_90a", stop_after="emit").source
    turns = Piped(along="j", across="i", tile={"i": 64, "j": 64}, stages=3, persistent=1, alternate=True)
    by_turns = Candidate(launches={"product_0": turns})
    assert texpr.parse(PRODUCT).only.compile("cuda:sm_90a", stop_after="emit", mapping=by_turns).source
    for path in sorted((ROOT / "tests" / "kernels" / "refused").glob("*.tex")):
        with suppress(texpr.TExprError):
            texpr.load(path).only.compile("cuda:sm_90a", stop_after="map")
    compiled = texpr.parse(KERNELS)["tiles"].compile("cuda:sm_90a")
    mapped = compiled.mapping.program
    assert find_dependences(mapped.proved.program)
    a = np.ones((5, 64), np.float32)
    simulate(mapped, {"A": a, "B": a.copy(), "f": np.ones(5, np.int32), "C": np.zeros(64, np.int32)})
    for graph in (GRAPHS[name] for name in HAND_BUILT):
        check_orders(graph.program)
        simulate(plan(graph.program), graph.arrays(), sizes=graph.sizes)
    x = np.ones((2, 40), ml_dtypes.bfloat16)
    simulate(softmax(1, 1), {"X": x, "Y": x.copy()}, addresses={"X": 0, "Y": 0})
    for made in (
        gemm(Shape(256, 256, 192)),
        softmax(3, 6),
        scanned("both before"),
        ticket_sum(2, 1, 3),
        cluster_softmax(2, 2, 1),
    ):
        assert emit_cuda(plan(made), made.target).source
