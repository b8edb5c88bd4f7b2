"""Looking at things from the command line: what the machine offers, progress, whole-file writes."""

import contextlib
import os
import platform
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from texpr.grammar.diagnostics import fail
from texpr.grammar.endings import at_end, temporary
from texpr.grammar.paths import not_written


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file all at once, keeping its mode; where `path` is a link, the file that it leads to.

    Raises E0608 where the disk is full, and E0606, also for a read-only file and for what is no plain file: a rename
    would put one in the place of a pipe or a device.
    """
    try:
        target = path.resolve()
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            raise fail("E0606", f"{path} is not a file")
        if mode is not None and not (mode & 0o222 and os.access(target, os.W_OK)):
            raise fail("E0606", f"{path} cannot be written: it is read-only")
        with temporary(target.with_name(f".{target.name[:100]}-{secrets.token_hex(8)}")) as beside:
            beside.touch(exist_ok=False)
            if mode is not None:
                beside.chmod(mode & 0o777)
            beside.write_bytes(content)
            beside.replace(target)
    except OSError as why:
        raise not_written(path, why) from None
    except RuntimeError:
        raise fail("E0606", f"{path} cannot be written: its links go in a circle") from None


def doctor_report() -> dict[str, str]:
    """What this machine offers, each as a sentence."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from texpr.cache import cache_folder, entries, folder_fault
    from texpr.codegen.toolchain import describe_gxx, describe_nvcc, describe_nvrtc
    from texpr.version import VERSION

    report = {"texpr": VERSION, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("islpy", "z3-solver", "lark", "numba", "numpy", "ml_dtypes", "cuda-core", "cuda-bindings"):
        try:
            report[package] = installed(package)
        except PackageNotFoundError:
            report[package] = "not installed"
    report |= {"nvrtc": describe_nvrtc(), "nvcc": describe_nvcc(), "g++": describe_gxx()}
    report["gpu"] = _describe_gpu()
    folder = cache_folder()
    fault = folder_fault()
    report["cache"] = "off" if not folder else f"not used: {fault}" if fault else f"{folder}, {len(entries())} entries"
    return report


def _describe_gpu() -> str:
    try:
        from cuda.core import Device

        device = Device()
        device.set_current()
        return f"{device.name}, compute capability {device.compute_capability}"
    except Exception as why:  # no package, no driver, no GPU: each in a library's own words
        return f"none ({type(why).__name__})"


class Progress:
    """How far a long piece of work is: off a terminal, and until its cost is known, nothing is shown of it."""

    def __init__(self, show: Callable[[int, int], None] | None = None) -> None:
        self.show = show
        self.total = 0
        self.done = 0

    def expect(self, total: int) -> None:
        """The work that is now to come."""
        self.total, self.done = max(1, total), 0

    def advance(self, steps: int) -> None:
        """So much more of it is done."""
        self.done += steps
        if self.show is not None:
            self.show(min(self.done, self.total), self.total)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A spinner with the time elapsed and, once the work is counted, a bar, on a terminal, for work that takes over a
    second; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    bar = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    timer = threading.Timer(1.0, bar.start)
    timer.start()
    with at_end(_show_cursor):
        try:
            yield Progress(lambda done, total: bar.update(task, completed=done, total=total))
        finally:
            timer.cancel()
            bar.stop()


def _show_cursor() -> None:
    """The bar hides it, and a signal ends the process before the bar does."""
    with contextlib.suppress(OSError):
        os.write(2, b"\x1b[?25h")


def duration(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError("microseconds are the last unit")
