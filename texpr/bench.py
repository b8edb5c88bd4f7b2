"""`texpr bench`: how long a kernel takes with warm and with cold caches, beside a copy of as many bytes, and what share
of the roofline that is.

The roof is measured in the same run: a large copy says how fast bytes move, a large matrix product how fast numbers are
computed. The least time of a kernel is the longer of its bytes at the one rate and its operations at the other.
"""

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from texpr.grammar.records import dataclass
from texpr.inspect import duration
from texpr.ran import Ran
from texpr.roofline import bytes_moved, float_operations, widest_float
from texpr.stopwatch import SWEPT_BYTES, HostWatch, Watch, gpu_watch
from texpr.trial import prepare_trial

if TYPE_CHECKING:
    from texpr.kernels import Kernel

ROUNDS = 5
LARGE_BYTES = 1 << 28  # of the copy that is a roof, read and written together


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one run with warm and with cold caches: medians."""

    warm_s: float
    cold_s: float

    def to_json(self) -> dict[str, float]:
        return {"warm_us": self.warm_s * 1e6, "cold_us": self.cold_s * 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The rates of the roof are of bytes and operations in a second; `approximate` names the counts that are not
    exact."""

    ran: Ran
    bytes: int
    operations: int
    time: Timing
    copy: Timing
    byte_rate: float
    operation_rate: float
    approximate: tuple[str, ...] = ()

    @property
    def least_s(self) -> float:
        """What the roof allows."""
        return max(self.bytes / self.byte_rate, self.operations / self.operation_rate)

    def share(self, time_s: float) -> float:
        return self.least_s / time_s

    def __str__(self) -> str:
        by = "its bytes" if self.bytes / self.byte_rate >= self.operations / self.operation_rate else "its operations"
        moved, operations = ("about " if name in self.approximate else "" for name in ("bytes", "operations"))
        lines = [
            str(self.ran),
            f"  {moved}{self.bytes / 1e6:.4g} MB must move, {operations}{self.operations / 1e6:.4g} million operations",
            f"  roof: {self.byte_rate / 1e9:.4g} GB/s by a large copy, {self.operation_rate / 1e9:.4g} GFLOP/s by a "
            f"matrix product; at least {duration(self.least_s)}, by {by}",
            f"  {'':8}{'time':>10}{'GB/s':>10}{'GFLOP/s':>10}{'of roof':>9}{'a copy':>12}",
        ]
        for name in ("warm", "cold"):
            own, copy = (getattr(each, f"{name}_s") for each in (self.time, self.copy))
            lines.append(
                f"  {name:8}{duration(own):>10}{self.bytes / own / 1e9:10.4g}{self.operations / own / 1e9:10.4g}"
                f"{self.share(own):9.2f}{duration(copy):>12}"
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The object that `texpr bench --json` prints."""
        return {
            **self.ran.to_json(),
            "bytes": self.bytes,
            "operations": self.operations,
            "approximate": list(self.approximate),
            "roof": {"bytes_per_s": self.byte_rate, "operations_per_s": self.operation_rate},
            "least_us": self.least_s * 1e6,
            "time": self.time.to_json(),
            "copy": self.copy.to_json(),
            "share": {"warm": self.share(self.time.warm_s), "cold": self.share(self.time.cold_s)},
        }


def run_bench(kernel: "Kernel", target: str, **prepared: Any) -> BenchReport:
    """Prepare a kernel as `prepare_trial` does, and time it. Raises TExprError for anything that is wrong, such as
    E0503 for a target `cuda` without a GPU."""
    trial = prepare_trial(kernel, target, beside=2 * SWEPT_BYTES, **prepared)
    compiled, manifest = trial.compiled, trial.compiled.manifest
    moved, operations = bytes_moved(trial.kernel, manifest, trial.solved), float_operations(trial.kernel, trial.solved)
    inexact = {"bytes": not moved.exact, "operations": not operations.exact}
    dtype = widest_float(trial.kernel)

    def timed(watch: Watch, call: Callable[[], object]) -> BenchReport:
        compiled.make_ready()
        time, copy = (_timing(watch, each) for each in (call, watch.copy(moved.total)))
        product, products = watch.product(dtype)
        return BenchReport(
            ran=trial.ran,
            bytes=moved.total,
            operations=operations.total,
            time=time,
            copy=copy,
            byte_rate=LARGE_BYTES / _timing(watch, watch.copy(LARGE_BYTES)).cold_s,
            operation_rate=products / _timing(watch, product).warm_s,
            approximate=tuple(name for name, is_so in inexact.items() if is_so),
        )

    if trial.on_host:
        return timed(HostWatch(), lambda: trial.call(trial.values))
    from texpr.runtime.gpu_arrays import on_gpu

    with on_gpu(trial.values) as (arrays, stream):
        return timed(gpu_watch(stream), lambda: trial.call(arrays, stream=stream))


def _timing(watch: Watch, call: Callable[[], object]) -> Timing:
    """Warm and cold rounds in turn, so that what disturbs the machine disturbs both."""
    watch.warm(call)
    rounds = [(watch.warm(call), watch.cold(call)) for _ in range(ROUNDS)]
    warm, cold = zip(*rounds, strict=True)
    return Timing(warm_s=statistics.median(warm), cold_s=statistics.median(cold))
