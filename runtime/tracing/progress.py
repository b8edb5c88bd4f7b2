"""A bar on the terminal that follows an engine: tasks over, tasks submitted, and how many failed."""

import sys
import threading

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.task import Counters

PERIOD_S = 0.1


class Progress:
    """The bar, kept by a thread of its own from `follow` to `end`; nothing where the standard error is no terminal.
    Raises E0503 without rich."""

    def __init__(self) -> None:
        self._bar = _Bar() if sys.stderr.isatty() else None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, counters: Counters) -> None:
        if self._bar is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self._bar, counters), name="texpr-progress", daemon=True
            )
            self._thread.start()

    def _run(self, bar: "_Bar", counters: Counters) -> None:
        bar.start()
        while not self._over.wait(PERIOD_S):
            bar.show(counters)
        bar.show(counters)
        bar.stop()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()


class _Bar:
    def __init__(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars
        except ImportError as why:
            raise fail("E0503", f"the progress bar of tasks needs rich: {why}", help="pip install rich") from None
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Bars(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
        self._task = self._bars.add_task("tasks", total=None)
        self.start, self.stop = self._bars.start, self._bars.stop

    def show(self, counters: Counters) -> None:
        failed = f", {counters.failed} failed" if counters.failed else ""
        self._bars.update(
            self._task,
            description=f"tasks{failed}",
            completed=counters.finished,
            total=counters.submitted,
            refresh=True,
        )
