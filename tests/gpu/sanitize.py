"""compute-sanitizer over every atom and pipeline at small sizes, all four tools, and a table of what they say.

    python tests/gpu/sanitize.py build OUT                         where the compiler is, without a GPU
    python tests/gpu/sanitize.py run OUT [--tools memcheck,racecheck,synccheck,initcheck] [--jobs 16]

`build` writes the atoms of `atoms.py`, the texts of `pipes.py`, and products of matrices in every form: by wgmma with
and without clusters, whose blocks share columns or what is summed, of f8 in portions, in programs whose launches
begin early, by single warps, in tiles of the FMA units, with what is around them. `run` gives each group a process
under each tool, and says of each how many kernels are right and how many errors the tool counts; its words stay in OUT.
Exits with 1 where there is an error that `FALSE` does not explain.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FALSE = {
    ("initcheck", "laid"): "rows go back from a workspace in chunks, of which the last one has elements behind its row "
    "that nobody wrote; they are read and not kept",
}  # of a tool and a group: why what the tool says is no fault
API = {"memcheck": ("--report-api-errors", "no")}  # cuda-core asks for a context before there is one
LIMIT = 300  # seconds of a process
SIZES = {"M": 200, "N": 136, "K": 200}


@dataclass(frozen=True)
class Group:
    """Kernels that one process runs."""

    name: str
    command: tuple[str, ...]


def products() -> Iterator[tuple[str, str, Any, str, dict[str, int]]]:
    """A group, a program, its candidate (or a function of the sizes), its architecture and sizes."""
    from test_early_products import CHAIN, early
    from test_epilogues import FORMS as AROUND
    from test_piped import HEADS, piped, text
    from test_piped_split import SHARED
    from test_ringed import SMALL, ringed

    import texpr
    from texpr.polyhedral.mapped.candidate import Candidate

    own = {"nn": piped(64, 64), "nt": piped(64, 96, cluster=2), "tn": piped(128, 192), "tt": piped(128, 128, cluster=2)}
    warps = {"nn": SMALL, "nt": ringed(64, 128, 64, 32, depth=32, stages=2), "tn": ringed(128, 64, 32, 32), "tt": SMALL}
    for n, case in enumerate(HEADS):
        for group, choice, arch in (("wgmma", own[case], "sm_90a"), ("warps", warps[case], "sm_90")):
            for dtype, result in (("bf16", "bf16"), ("f16", "f32")):
                program = text(case, dtype, result=result)
                yield f"{group} {case}", program, Candidate(launches={"g_0": choice}), arch, SIZES
        yield "fma", text(case, "f32"), None, "sm_90a", {"M": 200 + n, "N": 136, "K": 70 + n}
    inside = [program for name, program in AROUND.items() if name != "looked up"]  # drawn data are no subscripts
    for n, program in enumerate(inside):
        for group, small, arch in (("wgmma around", piped(64, 64), "sm_90a"), ("warps around", SMALL, "sm_90")):
            large = texpr.parse(program).only.compile(f"cuda:{arch}", stop_after="map", M=512, N=512, K=512)
            found = large.mapping.candidate
            same = [name for name, own in found.launches.items() if type(own) is type(small)]
            own = {name: replace(small, memory=found.launches[name].memory) for name in same}
            yield f"{group} {n % 3}", program, replace(found, launches=found.launches | own), arch, SIZES
    odd = {"M": 200, "N": 135, "K": 131}
    yield "laid", text("nn"), None, "sm_90a", {"M": 520, "N": 519, "K": 515}
    yield "laid", text("tt"), None, "sm_90", {"M": 520, "N": 519, "K": 515}
    yield "fma", text("nn", "f64").replace("} }", "} #strict }", 1), None, "sm_90a", odd
    for case in HEADS:
        way = Candidate(launches={"g_0": replace(SMALL, depth=8 if case == "nt" else 16, stages=2)})
        yield "warps f64", text(case, "f64"), way, "sm_90a", odd
    turned = replace(piped(128, 96, cluster=2), along="i", across="j", tile={"j": 128, "i": 96})
    for case, loaded in (("tt", piped(64, 64)), ("nn", turned)):
        program = text(case, "f32").replace("} }", "} #tf32 }", 1)
        yield "loaded rows", program, Candidate(launches={"g_0": loaded}), "sm_90a", SIZES
    shared = replace(SHARED, persistent=24)
    for case in ("nt", "tn"):
        yield "shared", text(case), Candidate(launches={"g_0": shared}), "sm_90a", SIZES
    for case, clusters in (("nn", 5), ("nt", 7), ("tn", 13), ("tt", 24)):  # pieces of a tile and of several
        for cluster in (1, 2):
            streamed = piped(64, 64, cluster=cluster, persistent=cluster * clusters)
            choice = Candidate(launches={"g_0": replace(streamed, streamed=True)})
            yield "streamed", text(case), choice, "sm_90a", {**SIZES, "K": 520}
    for case in ("nn", "tt"):
        yield "fours", text(case), Candidate(launches={"g_0": piped(64, 160, cluster=4, persistent=4)}), "sm_90a", SIZES
    for n, tile in enumerate((piped(64, 64), piped(128, 128, cluster=2), piped(128, 256), piped(64, 160, cluster=2))):
        program = text("nt", ("f8e4m3", "f8e5m2")[n % 2], result="f32")
        yield "portions", program, Candidate(launches={"g_0": tile}), "sm_90a", {**SIZES, "K": 272 + 128 * (n % 2)}
    for cluster in (1, 2):
        yield "early", CHAIN, early(cluster), "sm_90a", {"M": 200}


def build(out: Path, share: slice) -> None:
    sys.path[:0] = [str(HERE), str(HERE.parent / "properties"), str(HERE.parent / "polyhedral")]
    from build import write_case
    from differential import reference, special_arguments

    import texpr
    from texpr.polyhedral.mapped.candidate import Candidate

    for n, (group, program, choice, arch, sizes) in list(enumerate(products()))[share]:
        folder = out / group.replace(" ", "_") / "small"
        folder.mkdir(parents=True, exist_ok=True)
        kernel = texpr.parse(program).only
        ref = reference(kernel, sizes, special_arguments(kernel, sizes, n))
        assert choice is None or isinstance(choice, Candidate)
        write_case(folder, f"{group.replace(' ', '_')}-{n}", ref, arch, choice)


def groups(out: Path, tool: str) -> Iterator[Group]:
    """What there is in a folder, as a tool takes it."""
    if (out / "atoms").exists():
        yield Group("atoms", (str(HERE / "atoms.py"), "run", str(out / "atoms")))
    if (out / "pipes").exists():
        flags = ("--racecheck",) if tool == "racecheck" else ()
        yield Group("pipes", (str(HERE / "pipes.py"), "run", str(out / "pipes"), "--repeat", "1", *flags))
    for folder in sorted(out.glob("*/small")):
        yield Group(folder.parent.name, (str(HERE / "verify.py"), str(folder.parent), "--small-only"))


def checked(out: Path, tool: str, group: Group) -> tuple[str, str, int, str]:
    """What a tool says of a group: its errors (-1: none were counted), and the last line of the process."""
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        *API.get(tool, ()),
        "--target-processes",
        "all",
        sys.executable,
        *group.command,
    ]
    log = out / f"{tool}-{group.name}.log"
    with log.open("w") as file:
        try:
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return tool, group.name, -1, f"no answer in {LIMIT} s"
    said = log.read_text(errors="replace")
    counts = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", said)
    own = [line for line in said.splitlines() if line.strip() and not line.startswith("=")]
    found = sum(int(a or b) for a, b in counts) if counts else -1
    return tool, group.name, found, own[-1] if own else "it said nothing"


def run(out: Path, tools: list[str], jobs: int) -> int:
    work = [(tool, group) for tool in tools for group in groups(out, tool)]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda one: checked(out, *one), work))
    names = list(dict.fromkeys(name for _, name, _, _ in found))
    by = {(name, tool): (errors, said) for tool, name, errors, said in found}
    print("| group | " + " | ".join(tools) + " | plain |\n| --- |" + " --- |" * (len(tools) + 1))
    bad = 0
    for name in names:
        cells = []
        for tool in tools:
            errors, _ = by[name, tool]
            false = (tool, name) in FALSE
            bad += errors != 0 and not false
            cells.append(f"{errors} errors" + (", false" if false and errors else "") if errors >= 0 else "did not run")
        print(f"| {name} | " + " | ".join(cells) + f" | {by[name, tools[0]][1][:60]} |")
    for (tool, name), why in FALSE.items():
        print(f"{tool} of {name}: {why}")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--share", default="0/1", help="K/N: every N-th product, from the K-th on")
    options = parser.parse_args()
    if options.what == "run":
        return run(options.out, options.tools.split(","), options.jobs)
    first, step = map(int, options.share.split("/"))
    build(options.out, slice(first, None, step))
    return 0


if __name__ == "__main__":
    sys.exit(main())
