"""Kernels compiled in many threads at once give what they give one after the other: text, warnings, refusals.

    python tests/properties/threads.py [--threads 16] [--kernels 20]

The texts are kernels of `tests/kernels` and some whose proofs run out of steps, each under two targets, in another
order in every thread.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import texpr
from texpr.grammar.diagnostics import TExprError

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093)
MODULI = " + ".join(f"(i % {p}) + (i / {p + 2})" for p in PRIMES)
SPREAD = "(i * 37 + j * 2) / 2 % 100 + (i * 6 + j * 4) / 5 % 88 + (j * 25 + i * 7) / 8 % 40 + (i * 28 + j) / 9 % 49"
EXPENSIVE = (
    f"kernel k(inout A: f32[400]) {{ par 100 i, 100 j {{ A[{SPREAD}] = 1.0 }} }}",
    f"kernel k(inout A: f32[100000000]) {{ par 1000000 i {{ A[{MODULI}] = 1.0 }} }}",
    f"kernel k(A: f32[N], inout B: f32[M]) {{ par N i {{ seq N j {{ B[{SPREAD}] = A[i] }} }} }}",
)
TARGETS = ("cpu", "cuda:sm_90a")


def chosen(count: int) -> list[str]:
    """So many texts: some expensive ones, and kernels spread over the folder."""
    files = sorted(KERNELS.glob("*.tex"))
    expensive = EXPENSIVE[: max(count // 4, 1)]
    rest = count - len(expensive)
    return [*expensive, *(files[n * len(files) // rest].read_text(encoding="utf-8") for n in range(rest))]


def outcome(text: str, target: str) -> str:
    """What a compilation gives, as text; what is no diagnostic is raised."""
    try:
        made = texpr.parse(text).only.compile(target, stop_after="emit")
    except TExprError as refused:
        return "\n".join(str(diagnostic) for diagnostic in refused.diagnostics)
    return "\n".join([made.source, *map(str, made.warnings)])


def differences(texts: Sequence[str], threads: int) -> list[str]:
    """The texts whose outcome in some thread is another than alone."""
    jobs = [(text, target) for text in texts for target in TARGETS]
    alone = {job: outcome(*job) for job in jobs}

    def work(seed: int) -> list[str]:
        order = Random(seed).sample(jobs, len(jobs))
        return [text for text, target in order if outcome(text, target) != alone[text, target]]

    with ThreadPoolExecutor(threads) as pool:
        return sorted({text for found in pool.map(work, range(threads)) for text in found})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--kernels", type=int, default=20)
    given = parser.parse_args()
    found = differences(chosen(given.kernels), given.threads)
    print(
        f"{given.threads} threads, {given.kernels} kernels: {len(found)} differ from the serial run", *found, sep="\n"
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
