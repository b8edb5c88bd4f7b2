"""Kernels whose isl queries are starved: whatever limit runs out, there is a diagnostic or a right program.

    python tests/properties/starve.py [--factor 1.0] [--each] [FILE…]

takes every limit from 1 upwards (or each `--factor` times the one before) until nothing is missed: for all queries of a
compilation, and with `--each` for one after the other with the rest as they are. isl ends the process where a limit
runs out in a place that it does not check, so a run that ends with a table is itself the result.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import texpr
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import Span
from texpr.polyhedral.isl import Work

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
USUAL = ("transpose_shared", "block_scan", "matmul_tiled", "softmax", "attention_tile")
Limited = Callable[..., AbstractContextManager[None]]


@contextmanager
def starved(limit: int, chosen: int | None) -> Iterator[Counter[str]]:
    """Every query has `limit` steps, or the one with number `chosen`; counts the queries, and those that ended."""
    counts: Counter[str] = Counter()
    usual: Limited = Work.limited

    @contextmanager
    def limited(self: Work, span: Span, what: str, width: int = 0, steps: int = 0) -> Iterator[None]:
        number = counts["queries"]
        counts["queries"] += 1
        arguments: dict[str, Any] = {"steps": steps} if steps else {}
        if chosen is None or number == chosen:
            width, arguments = 0, {"steps": limit}
        try:
            with usual(self, span, what, width, **arguments):
                yield
        except TExprError:
            counts["ended"] += 1
            raise

    with patch.object(Work, "limited", limited):
        yield counts


def outcome(file: Path, target: str) -> str:
    """`built`, or the codes of the refusal; anything else is raised."""
    try:
        texpr.load(file).only.compile(target, stop_after="emit")
    except TExprError as refused:
        assert all(d.primary is not None and str(d) for d in refused.diagnostics)
        return " ".join(sorted({d.code for d in refused.diagnostics}))
    return "built"


def starve(file: Path, target: str, factor: float, chosen: int | None) -> Counter[str]:
    """Outcomes by how often they came, over growing limits until no query ends early."""
    found: Counter[str] = Counter()
    limit = 1
    while True:
        with starved(limit, chosen) as counts:
            found[outcome(file, target)] += 1
        if not counts["ended"]:
            return found
        limit = max(limit + 1, int(limit * factor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=[KERNELS / f"{name}.tex" for name in USUAL])
    parser.add_argument("--target", default="cuda:sm_90a")
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument("--each", action="store_true", help="one query after the other, too")
    given = parser.parse_args()
    for file in given.files:
        print(file.stem, dict(starve(file, given.target, given.factor, None)), flush=True)
        if given.each:
            with starved(1 << 30, -1) as counts:
                outcome(file, given.target)
            found: Counter[str] = Counter()
            for chosen in range(counts["queries"]):
                found += starve(file, given.target, given.factor, chosen)
            print(file.stem, f"each of {counts['queries']} queries", dict(found), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
