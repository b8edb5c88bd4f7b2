"""compute-sanitizer over every atom and pipeline at small sizes, all four tools, and a table of what they say.

    python tests/gpu/sanitize.py build OUT [--groups high,early]   where the compiler is, without a GPU
    python tests/gpu/sanitize.py run OUT [--tools memcheck,racecheck,synccheck,initcheck] [--jobs 16]

`build` writes products of matrices in every form, to which `atoms.py` and `pipes.py` add OUT/atoms and OUT/pipes: by
wgmma with and without clusters, whose blocks share columns or what is summed, of f8 in portions, in programs whose
launches begin early, by single warps, in tiles of the FMA units, with what is around them; and rows that threads or
blocks share. `run` gives each group a process under each tool, and says of each how many kernels are right and how many
errors the tool counts; its words stay in OUT.
Exits with 1 where there is an error that `FALSE` does not explain.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "benchmarks" / "kernels" / "memory"
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


Case = tuple[str, str, Any, str, dict[str, int]]


def products() -> Iterator[Case]:
    """A group, a program, its candidate, its architecture and sizes."""
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
            own = {name: like(small, of) for name, of in found.launches.items() if type(of) is type(small)}
            yield f"{group} {n % 3}", program, replace(found, launches=found.launches | own), arch, SIZES
    for n, case in enumerate(HEADS):
        yield from turns(text(case, "f32"), n)
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


def turns(program: str, number: int) -> Iterator[Case]:
    """Products on FMA units by turns and in a row, of 8 by 8 and 16 by 8 sums, of blocks that share them."""
    import texpr

    for each, team, ahead, parts in (((8, 8), (16, 16), 2, 1), ((16, 8), (8, 16), 2, 3), ((8, 8), (8, 16), 1, 2)):
        large = texpr.parse(program).only.compile("cuda:sm_90a", stop_after="map", M=2048, N=2048, K=2048)
        ((name, found),) = large.mapping.candidate.launches.items()
        tile = {"i": team[0] * each[0], "j": team[1] * each[1]}
        own = replace(found, tile=tile, each=dict(zip("ij", each, strict=True)), threads=team[0] * team[1])
        own = replace(own, ahead=ahead, parts=parts, resident=2)
        sizes = {"M": 256, "N": 128, "K": 96} if number % 2 == 0 else {"M": 201 + number, "N": 137, "K": 70}
        yield "turns", program, replace(large.mapping.candidate, launches={name: own}), "sm_90a", sizes


def like(small: Any, of: Any) -> Any:
    """The small choice, whose rows and columns are those of another."""
    sides = {small.across: of.across, small.along: of.along}
    turned = {
        name: {sides[index]: count for index, count in getattr(small, name).items()}
        for name in ("tile", "each")
        if hasattr(small, name)
    }
    return replace(small, across=of.across, along=of.along, memory=of.memory, **turned)


def high_tiles() -> Iterator[Case]:
    """Warpgroups of 128 rows, blocks side by side; bands of tiles that wind, and blocks that stay for several tiles."""
    from test_piped import text
    from test_piped_high import FORMS, high

    from texpr.polyhedral.mapped.candidate import Candidate

    tiles = [("nt", high(256, 208, abreast=2, stages=3)), ("nn", replace(FORMS["alone"], band=2))]
    tiles += list(zip(("tn", "tt", "nt", "nn", "tn", "tt", "nt"), list(FORMS.values())[1:], strict=True))
    for n, (case, how) in enumerate(tiles):
        sizes = {"M": 264, "N": 264, "K": 200 + 72 * (n % 2)}
        yield "high", text(case, ("bf16", "f16")[n % 2]), Candidate(launches={"g_0": how}), "sm_90a", sizes


def crossed_tiles() -> Iterator[Case]:
    """High tiles of which rows and columns are exchanged: a warpgroup fills a box."""
    from test_piped import text
    from test_piped_crossed import FORMS

    from texpr.polyhedral.mapped.candidate import Candidate

    for n, how in enumerate(FORMS.values()):
        sizes = {"M": 232 + 32 * (n % 2), "N": 264, "K": 136 + 64 * (n % 2)}
        yield "crossed", text("nn", ("bf16", "f16")[n % 2]), Candidate(launches={"g_0": how}), "sm_90a", sizes


def more_products() -> Iterator[Case]:
    """What is around sums that blocks share; a first launch that begins early; one row; few rows by registers."""
    import test_row_runs
    from test_early_products import ONE
    from test_epilogues import small
    from test_one_row import SMALL as OF_ONE
    from test_one_row import text as one_row
    from test_piped_high import FORMS, high
    from test_piped_rest import CUT
    from test_piped_types import text as typed
    from test_ringed_f64 import SMALL as F64
    from test_streamed import AROUND

    from texpr.polyhedral.mapped.candidate import Candidate

    for n, program in enumerate(AROUND.values()):
        how = small(program, 64, 32, persistent=3 + n % 3, streamed=True)
        yield "streamed around", program, how, "sm_90a", {"M": 72, "N": 56, "K": 200}
    for tile in (high(128, 64), FORMS["abreast"], CUT):
        first = Candidate(launches={"g_0": tile}, early=frozenset({"g_0"}))
        yield "first", ONE, first, "sm_90a", {"M": 264}
    for rows, n, k in ((1, 72, 128), (1, 264, 520), (5, 136, 200)):
        choice = Candidate(launches={"g_0": replace(OF_ONE, persistent=OF_ONE.split * -(-n // OF_ONE.tile["j"]))})
        yield "one row", one_row(rows=str(rows)), choice, "sm_90a", {"N": n, "K": k}
    for n, case in enumerate(("nn", "nt", "tn", "tt")):
        tile = replace(F64, tile={"i": 64 << n // 2, "j": 64}, depth=(16, 8)[n % 2], stages=2 + n % 2)
        odd = {"M": 133 + n, "N": 71, "K": 67 + 2 * n}
        yield "warps f64", typed(case, "f64", "f64"), Candidate(launches={"g_0": tile}), "sm_90a", odd
    for scale, sizes, patch, how in test_row_runs.CASES:
        for rows in ("m, k", "k, m"):
            choice = test_row_runs.across(patch, **how)
            yield "row runs", test_row_runs.text(scale, rows), choice, "sm_90a", dict(zip("MNK", sizes, strict=True))


def rows() -> Iterator[Case]:
    """Rows whose maximum scales their sum: blocks of a cluster meet once for both."""
    from test_scaled_sums import clustered, text

    for t, n, slots, ranks in (("f32", 515, False, 2), ("bf16", 1027, True, 4), ("f16", 1024, False, 8)):
        for start in ("-inf", "S[i]"):
            program = text(t, n, start, m=8)  # ends with a chunk: of a part, memcheck says that cp.async reads it all
            choice = clustered(program, n, 4 if t == "f32" else 8, slots=slots, ranks=ranks).candidate
            yield "scaled sums", program, choice, "sm_90a", {}


def ragged() -> Iterator[Case]:
    """Rows and columns that begin anywhere: scans through rings of rows, and rows that all read one vector, aligned
    alike in each thread and whole in a block."""
    from test_rows_beside import ALIKE, LINES, PROGRAMS, of_rows
    from test_scan_ring import RINGED, ringed, text_of

    for n, (name, (_, _, more)) in enumerate(RINGED.items()):
        columns, text = (131, 203, 67)[n % 3], text_of(name).replace("36 - i", "39 - i")
        sizes = {"M": 40, "N": columns}  # memory ends with a whole chunk (`false_reports.py` says why)
        yield "rings", text, ringed(text, columns, dict.fromkeys(more, 40)).candidate, "sm_90a", sizes
    for n, (m, own, k) in enumerate(case for case in ALIKE if case[2] > 1):
        text = PROGRAMS[("times", "narrow", "mixed", "shifted")[n % 4]]
        found = of_rows(text, own, m, k, **LINES, **({"ahead": 2, "blocks": {}} if n % 2 else {}))
        yield "rows alike", text, found.candidate, "sm_90a", {"M": m, "N": k}


def narrow() -> Iterator[Case]:
    """What columns pick in 16 bits; blocks of seven warps that share a row; rows in pairs; whole rows of stencils."""
    import test_rows_jammed as jammed
    from stages import mapped
    from test_narrow_picks import CASES, START, forced, text_of
    from test_patches import JACOBI
    from test_row_slots import NORM, in_slots

    for n, (m, columns, choice) in enumerate(CASES.values()):
        text = text_of(("bf16", "f16")[n % 2], tuple(START)[n % 4])
        yield "picks", text, forced(text, m, columns, **choice).candidate, "sm_90a", {"M": m, "N": columns}
    for t, n, cluster in (("bf16", 14344, 8), ("bf16", 14339, 4), ("f32", 7171, 8)):
        text = NORM.format(t=t, n=n)
        yield "seven warps", text, in_slots(text, 224, cluster=cluster).candidate, "sm_90a", {"M": 8}
    for program, t, m, n in (
        (jammed.LAYER, "bf16", 72, 515),
        (jammed.ROOT, "bf16", 200, 259),
        (jammed.LAYER, "f64", 18, 131),
    ):
        for ranks in (1, 2):
            choice = jammed.paired(program, t, m, n, ranks).candidate
            yield "pairs", program.format(t=t, m=m, n=n), choice, "sm_90a", {}
    for text, n in ((JACOBI, 1024), (JACOBI, 1030), (JACOBI.replace("f32", "bf16"), 2048)):
        large = mapped(text, **({"M": 131072, "N": 1024} if text is JACOBI else {"M": 65536, "N": 2048}))
        yield "whole rows", text, large.candidate, "sm_90a", {"M": 37, "N": n}


def loaded() -> Iterator[Case]:
    """Rows whose first and last loads have less than a chunk, or nothing, of their own; and long ones in pieces."""
    from test_row_slots import NORM
    from test_rows_ahead import SOFTMAX
    from test_rows_jammed import LAYER

    for t, n in (("f32", 1157), ("f32", 1292), ("bf16", 2002), ("bf16", 2501), ("bf16", 2312)):
        yield "rows ahead", SOFTMAX.format(t=t, m=3, n=n), None, "sm_90a", {}
    for t, n in (("f32", 10007), ("f32", 12001), ("bf16", 12003), ("bf16", 16384)):
        yield "pieces", NORM.format(t=t, n=n), None, "sm_90a", {"M": 8}  # memory ends with a whole chunk
    for t, n in (("bf16", 51200), ("bf16", 65536), ("f32", 28672)):
        yield "longest", SOFTMAX.format(t=t, m=3, n=n), None, "sm_90a", {}
        yield "longest", NORM.format(t=t, n=n), None, "sm_90a", {"M": 2}
    for n in (24576, 32000):
        yield "longest", LAYER.format(t="f32", m=2, n=n), None, "sm_90a", {}


def columns() -> Iterator[Case]:
    """Sums and first maxima of columns, few or many, aligned or not, which blocks share in strips; running sums."""
    from stages import mapped
    from test_look_back import running

    for t, n in (("bf16", 301), ("f32", 131)):
        text, candidate = running(t, 16 * 270, n)
        yield "running", text, candidate, "sm_90a", {}
    for name in ("column_sum", "argmax_columns", "vector_matrix"):
        text = (KERNELS / f"{name}.tex").read_text(encoding="utf-8")
        head, brace, body = text.partition("{")
        for t in ("bf16", "f32"):
            for n in (51, 127, 128, 255, 701, 2053):
                own = head.replace("f32[", f"{t}[") + brace + body
                large = mapped(own, M=(1 << 26) // n, N=n)  # rows for many turns
                sizes = {"M": 16 * 46, "N": n}  # memory ends with a whole chunk
                yield "columns", own, large.candidate, "sm_90a", sizes


def arguments(kernel: Any, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    """Numbers as a user has them; every third case takes all bits and special values, which leave few sums a number."""
    from differential import random_arguments, special_arguments

    if seed % 3 == 0:
        return special_arguments(kernel, sizes, seed)
    return random_arguments(kernel.core(sizes=sizes), sizes, 2 * seed)


def build(out: Path, share: slice, chosen: frozenset[str]) -> int:
    """All cases, or those of the chosen groups, of a share; how many of them are refused."""
    sys.path[:0] = [str(HERE), *(str(HERE.parent / folder) for folder in ("properties", "polyhedral", "codegen"))]
    import test_one_row
    from build import write_case
    from differential import reference
    from sanitized_runs import runs

    import texpr
    from texpr.polyhedral.map import one_row
    from texpr.polyhedral.mapped.candidate import Candidate

    one_row.BUSY, one_row.choose_piped = 132, lambda problem, region: test_one_row.SMALL  # small ones, too
    refused = 0
    cases = (products, high_tiles, crossed_tiles, more_products, rows, ragged, narrow, loaded, columns, runs)
    every = enumerate(chain.from_iterable(some() for some in cases))
    for n, (group, program, choice, arch, sizes) in [one for one in every if not chosen or one[1][0] in chosen][share]:
        folder = out / group.replace(" ", "_") / "small"
        folder.mkdir(parents=True, exist_ok=True)
        kernel = texpr.parse(program).only
        ref = reference(kernel, sizes, arguments(kernel, sizes, n))
        assert choice is None or isinstance(choice, Candidate)
        refused += not write_case(folder, f"{group.replace(' ', '_')}-{n}", ref, arch, choice)
    return refused


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
    parser.add_argument("--groups", default="", help="those alone")
    parser.add_argument("--share", default="0/1", help="K/N: every N-th product, from the K-th on")
    options = parser.parse_args()
    if options.what == "run":
        return run(options.out, options.tools.split(","), options.jobs)
    first, step = map(int, options.share.split("/"))
    return 1 if build(options.out, slice(first, None, step), frozenset(filter(None, options.groups.split(",")))) else 0


if __name__ == "__main__":
    sys.exit(main())
