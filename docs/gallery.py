"""Makes the gallery: what kernels become, as pages in docs.

    python docs/gallery.py

Writes `gallery.md` and its pictures beside this file. A test compares them with what the compiler says now; after a
change of a mapping `pytest tests/texpr/test_gallery.py --update-golden` writes them, too.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

HEAD = """# A gallery of mappings

What some kernels become on an H200 (`cuda:sm_90a`): their launches, what waits for what, where buffers
lie and why, and what the accesses of a warp take. In the pictures an index is the product of its digits, the greatest
weight first, in the colour of the place that runs them. [guide.md](guide.md) says how to read it,
[inspection.md](inspection.md) what each figure means. `python docs/gallery.py` makes this page.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An example at sizes, with what is worth seeing there."""

    name: str
    folder: str = "examples"
    sizes: dict[str, int]
    title: str
    text: str


PIECES = (
    Piece(
        name="softmax",
        sizes={"M": 4096, "N": 1024},
        title="Softmax: a row in registers",
        text="Three loops go over a row. A warp has one, each lane 32 elements, read once; lanes share both sums.",
    ),
    Piece(
        name="matmul",
        sizes={"M": 4096, "N": 4096, "K": 4096},
        title="A product of f16: tensor cores, and a pipe that feeds them",
        text="A part of the block brings tiles by the copy engine, others multiply; blocks stay for several tiles.",
    ),
    Piece(
        name="transpose",
        folder="tests/kernels",
        sizes={"M": 4096, "N": 4096},
        title="A transpose: a tile, and lanes that change their index",
        text="No lanes serve both accesses: a block reads along one index and writes along the other.",
    ),
    Piece(
        name="conv2d_same",
        sizes={"H": 1024, "V": 1024},
        title="A stencil: neighbours share what they read",
        text="Each element needs its neighbours'. What lies beyond the edges is asked for by no lane.",
    ),
    Piece(
        name="average_pool_2d",
        folder="benchmarks/kernels/memory",
        sizes={"B": 32, "C": 256, "H": 64, "W": 64},
        title="A pool: what neighbours read is one row",
        text="Two neighbours read four of a row, one pair behind the other: each row is one access, before all sums.",
    ),
    Piece(
        name="histogram",
        sizes={"N": 1 << 20},
        title="A histogram: copies of a small array",
        text="Updates of one counter would wait for one another, so that lanes have copies in shared memory.",
    ),
    Piece(
        name="jacobi_1d",
        sizes={"N": 1 << 20, "T": 100},
        title="Steps in time: a loop on the host",
        text="The `seq` around parallel loops starts launches in order; each waits for the whole one before it.",
    ),
)


def files() -> dict[str, str]:
    """The page and its pictures, by their path in docs."""
    found: dict[str, str] = {}
    parts = [HEAD]
    for piece in PIECES:
        section, picture = shown(piece)
        parts.append(section)
        found[f"pictures/gallery_{piece.name}.svg"] = picture
    return {"gallery.md": "\n".join(parts), **found}


def shown(piece: Piece) -> tuple[str, str]:
    """The section of a kernel, and its picture."""
    import texpr
    from texpr.hierarchy_pictures import digit_strips, launches_at
    from texpr.mapping_json import mapping_json
    from texpr.pictures import stacked

    path = DOCS.parent / piece.folder / f"{piece.name}.tex"
    compiled = texpr.load(path).only.compile("cuda:sm_90a", sizes=piece.sizes, stop_after="map")
    data = mapping_json(compiled.mapping.program)
    strips = [digit_strips(launch, data["representative"]) for launch in launches_at(data)]
    given = " ".join(f"-D {name}={value}" for name, value in piece.sizes.items())
    lines = [
        f"## {piece.title}",
        "",
        piece.text,
        "",
        *indented(path.read_text(encoding="utf-8").splitlines()),
        "",
        f"`texpr map {piece.folder}/{piece.name}.tex {given}`:",
        "",
        *indented(essence(str(compiled.mapping))),
        "",
        f"![the digits of {piece.name}](pictures/gallery_{piece.name}.svg)",
        "",
    ]
    return "\n".join(lines), stacked(f"{piece.name} on cuda:sm_90a", strips).svg() + "\n"


def indented(lines: list[str] | Iterator[str]) -> Iterator[str]:
    return (f"    {line}".rstrip() for line in lines)


def essence(text: str) -> Iterator[str]:
    """Of a printed mapping what is not the body of its threads: launches, what waits, buffers, accesses."""
    section = ""
    for line in text.splitlines():
        said = line.strip()
        section = section if line.startswith(" ") else line.split(" ")[0]
        starts = section in ("launch", "host") and (said == line or said.startswith("launch "))
        if starts or section in ("buffers", "accesses"):
            yield line
        elif said.startswith(("barrier", "wait")):
            yield f"  {said}"


def main() -> None:
    for name, text in files().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
