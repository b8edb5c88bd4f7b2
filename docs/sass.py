"""Makes the page that goes from the three lines of a product to its machine code.

    python docs/sass.py          (with NVRTC and nvdisasm)

Writes `sass.md` beside this file. A test compares it with what the compiler says now; after a change `pytest
tests/texpr/test_sass_page.py --update-golden` writes it, too.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))
SIZES = {"M": 4096, "N": 4096, "K": 4096}
GIVEN = " ".join(f"-D {name}={size}" for name, size in SIZES.items())
COLUMNS = 108  # of what is shown

PAGE = """# From three lines to machine code

The product of `examples/matmul.tex`, at 4096 x 4096 x 4096 on an H200 (`cuda:sm_90a`), from its text to what the
hardware runs. Each stage is printed by a command; `python docs/sass.py` makes this page of what they say.

{program}

## The mapping: who does what

`texpr graph examples/matmul.tex {given}` prints the planned program. A part of the block, of which one thread works,
brings boxes of A and B by the copy engine into a ring of {stages} stages in shared memory; the other warps wait for a
stage, multiply it by `wgmma`, and give it back one turn later. So of a tile there are a copy, a copy, a product, and
at its end a store:

{graph}

## The text: one line of CUDA C++ for each line of the graph

`texpr build examples/matmul.tex {given} -o matmul` writes it, with all headers that it includes:

{source}

Each call is a function of `include/texpr/*.cuh`, of one or a few instructions of PTX; `tx::contract<64>` makes four
`wgmma` of 16 products each, `ring.wait()` is a loop around `mbarrier.try_wait`. {resources}

## The machine code: what a turn costs

`texpr sass examples/matmul.tex {given}` builds the cubin and prints the main loop, the innermost one with the most
work; `--work` leaves out addresses, conditions and moves and says how many they are, `--all` prints the whole kernel,
`--json` data ([schemas.md](schemas.md)). Instructions stand under the line of the program that they come from.

{sass}

What to look for: `HGMMA` back to back, with one wait (`WARPGROUP.DEPBAR`) for each stage; copies by `UTMALDG`, which
the loop of the other part has; `SYNCS.PHASECHK` (waiting for a stage) and `SYNCS.ARRIVE` (giving one back) once for
each stage; no local memory (`LDL`, `STL`: spilled registers), no `MEMBAR` of the whole GPU in a loop.
`tests/texpr/test_sass.py` asks this of products on Hopper and Ampere, and of rows. ptxas has unrolled the loop twice
here.
"""


def made() -> str:
    """The page. Raises E0503 without a compiler or nvdisasm."""
    import texpr
    from texpr.codegen.line_table import line_tables
    from texpr.codegen.sass import listings
    from texpr.codegen.toolchain import disassembled
    from texpr.execute import occupancy_of, placed_cubin_of
    from texpr.profile_command import lines_of
    from texpr.sass_command import report

    path = DOCS.parent / "examples" / "matmul.tex"
    compiled = texpr.load(path).only.compile("cuda:sm_90a", sizes=SIZES)
    cubin = placed_cubin_of(compiled.build)
    (listing,) = listings(disassembled(cubin), line_tables(cubin))
    ((symbol, taken),) = occupancy_of(compiled.build).items()
    (form,) = compiled.mapping.candidate.launches.values()
    return PAGE.format(
        given=GIVEN,
        program=shown(path.read_text(encoding="utf-8").splitlines()),
        stages=form.stages,
        graph=shown(between(str(compiled.graph).splitlines(), "  body", "buffers")),
        source=shown(between(compiled.source.splitlines(), "  if (tx::warp() < ", "TX_EXPORT_AS")),
        resources=f"ptxas gives `{symbol}` {taken}.",
        sass=shown(list(report(listing, lines_of(compiled), whole=False, work=True))),
    )


def between(lines: list[str], first: str, last: str) -> list[str]:
    """The lines from the first that begins so up to the one before the last."""
    begin = next(k for k, line in enumerate(lines) if line.startswith(first))
    end = next(k for k, line in enumerate(lines) if k > begin and line.startswith(last))
    return lines[begin:end]


def shown(lines: list[str]) -> str:
    """Lines as an indented block, cut at the page's width."""
    cut = (line if len(line) <= COLUMNS else f"{line[:COLUMNS]}…" for line in lines)
    return "\n".join(f"    {line}".rstrip() for line in cut).rstrip()


def main() -> None:
    (DOCS / "sass.md").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
